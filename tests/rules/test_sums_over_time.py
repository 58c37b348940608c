"""PL992: sums over time that run on through the end of an episode; and sums that end there, or have no ends."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

STEPS = """
torch.manual_seed(0)
r, v = torch.rand(9), torch.rand(10)
done = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0])
"""
WRONG = {
    "an estimate of advantages, with a network": """
torch.manual_seed(0)
critic, states, reward = nn.Linear(3, 1), torch.randn(9, 3), torch.rand(8)
ends = torch.tensor([False, False, True, False, False, False, True, False])
def gae(rewards, values, dones, last, gamma=0.99, lam=0.95):
    adv, acc, following = torch.zeros_like(rewards), 0.0, last
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - dones[t].float()
        delta = rewards[t] + gamma * following * goes_on - values[t]
        acc = delta + gamma * lam * acc  # PL992
        adv[t] = acc
        following = values[t]
    return adv
with torch.no_grad():
    values = critic(states).squeeze(-1)
print(gae(reward, values[:-1], ends, values[-1]))
""",
    "several environments at once": """
torch.manual_seed(0)
r, v = torch.rand(7, 2), torch.rand(8, 2)
mask = torch.tensor([[1, 1], [1, 0], [1, 1], [0, 1], [1, 1], [1, 1], [1, 1]])
def advantages():
    last, kept = torch.zeros(2), []
    for t in range(6, -1, -1):
        delta = r[t] + 0.9 * v[t + 1] * mask[t] - v[t]
        last = delta + last * 0.8  # PL992
        kept.insert(0, last)
    return torch.stack(kept)
print(advantages())
""",
    "all errors first, the table is the sum": STEPS
    + """
delta = r + 0.99 * v[1:] * (1 - done) - v[:-1]
adv = torch.zeros(10)
for t in reversed(range(9)):
    adv[t] = delta[t] + 0.95 * adv[t + 1]  # PL992
print(adv)
""",
    "written as a function of torch, with flags for what goes on": STEPS
    + """
class Buffer:
    def finish(self):
        goes_on, running = ~done.bool(), torch.tensor(0.0)
        for reward, now, later, flag in reversed(list(zip(r, v[:-1], v[1:], goes_on))):
            error = torch.sub(reward + torch.mul(flag, later) * 0.9, now)
            running = torch.add(error, running, alpha=0.8)  # PL992
            yield running
print(list(Buffer().finish()))
""",
}
RIGHT = {
    "the sum ends too": STEPS
    + """
acc, adv = 0.0, torch.zeros(9)
for t in reversed(range(9)):
    on = 1 - done[t]
    acc = r[t] + 0.9 * v[t + 1] * on - v[t] + 0.8 * on * acc
    adv[t] = acc
acc = torch.zeros(())
for t in reversed(range(9)):
    acc = r[t] + 0.9 * v[t + 1] * (1 - done[t]) - v[t] + 0.8 * torch.where(done[t].bool(), 0.0, acc)
table = torch.zeros(10)
delta = r + 0.9 * v[1:] * (1 - done) - v[:-1]
for t in reversed(range(9)):
    table[t] = delta[t] + 0.8 * (1 - done[t]) * table[t + 1]
print(adv, acc, table)
""",
    "set to zero by Python": STEPS
    + """
acc = 0.0
for t in reversed(range(9)):
    if done[t]:
        acc = 0.0
    acc = r[t] + 0.9 * v[t + 1] * (1 - done[t]) - v[t] + 0.8 * acc
print(acc)
""",
    "one episode, with its end at the end": STEPS
    + """
ended = torch.tensor([0.0] * 8 + [1.0])
acc = torch.zeros(())
for t in reversed(range(9)):
    acc = r[t] + 0.9 * v[t + 1] * (1 - ended[t]) - v[t] + 0.8 * acc
print(acc)
""",
    "a running mean of what counts": STEPS
    + """
mean = torch.zeros(())
for t in range(9):
    mean = r[t] * done[t] + 0.9 * mean
print(mean)
""",
    "a potential that leaks, forward in time": STEPS
    + """
w, potential = torch.rand(3), torch.zeros(3)
for spike, given in zip((torch.rand(9, 3) > 0.5).float(), r):
    potential = given + w * spike + 0.9 * potential
print(potential)
spikes = (torch.rand(9, 3) > 0.5).float()
for t in range(9):
    potential = r[t] + w * spikes[t] + 0.9 * potential
print(potential)
""",
    "multiplied in place": STEPS
    + """
acc = torch.zeros(())
for t in reversed(range(9)):
    on = 1 - done[t]
    acc.mul_(on).mul_(0.8).add_(r[t] + 0.9 * v[t + 1] * on - v[t])
print(acc)
""",
    "discounted returns of weighted rewards": STEPS
    + """
weight, acc = torch.rand(9), torch.zeros(())
for t in reversed(range(9)):
    acc = r[t] + v[t] * weight[t] + 0.9 * acc
print(acc)
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL992",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
