"""PL990: targets that add what follows an end, with flags unused; and programs that leave it out, or need not."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

BATCH = """
import random
random.seed(0)
torch.manual_seed(0)
net, late = nn.Linear(3, 2), nn.Linear(3, 2)
memory = [([random.random() for _ in range(3)], i % 2, float(i % 5 == 0), [random.random() for _ in range(3)], i % 5 == 0)
          for i in range(30)]
def batch():
    return map(torch.tensor, zip(*random.sample(memory, 12)))
"""  # noqa: E501
WRONG = {
    "one batch after another": BATCH
    + """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    s, a, r, n, d = batch()
    with torch.no_grad():
        goal = r + 0.9 * late(n).max(1).values  # PL990
    loss = F.smooth_l1_loss(net(s).gather(1, a[:, None]).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "flags as numbers, in columns": BATCH
    + """
def learn(rows):
    s = torch.tensor([row[0] for row in rows])
    r = torch.tensor([row[2] for row in rows]).unsqueeze(1)
    n = torch.tensor([row[3] for row in rows])
    end = torch.tensor([row[4] for row in rows]).float().unsqueeze(1)
    goal = late(n).amax(1, keepdim=True).mul(0.99) + r  # PL990
    F.mse_loss(net(s).mean(1, keepdim=True), goal.detach()).backward()
learn(memory[:12])
""",
    "a class that keeps everything in tensors": BATCH
    + """
class Agent:
    def __init__(self):
        s, a, self.r, n, self.ends = map(torch.tensor, zip(*memory))
        self.s, self.n = s, n
    def update(self):
        at = torch.randint(0, 30, (10,), generator=torch.Generator().manual_seed(2))
        end = self.ends[at]
        goal = self.r[at] + 0.9 * late(self.n[at]).max(1)[0].detach()  # PL990
        return F.huber_loss(net(self.s[at])[:, 0], goal)
Agent().update().backward()
""",
    "the action is chosen by one network and valued by another": BATCH
    + """
s, a, r, n, over = batch()
best = net(n).argmax(1, keepdim=True)
goal = r + 0.9 * late(n).gather(1, best).squeeze(1).detach()  # PL990
(net(s).gather(1, a.unsqueeze(1)).squeeze(1) - goal).square().mean().backward()
""",
    "the lesser of two critics": BATCH
    + """
s, a, r, n, over = batch()
with torch.no_grad():
    goal = r + 0.95 * torch.min(late(n)[:, 0], late(n)[:, 1])  # PL990
F.mse_loss(net(s)[:, 0], goal).backward()
""",
    "the advantage of an actor": BATCH
    + """
critic, actor = nn.Linear(3, 1), nn.Linear(3, 2)
s, a, r, n, ended = batch()
goal = torch.add(r, 0.9 * critic(n).squeeze(-1).detach())  # PL990
advantage = goal - critic(s).squeeze(-1)
chosen = actor(s).log_softmax(-1).gather(1, a[:, None])[:, 0]
(advantage.square().mean() - (chosen * advantage.detach()).mean()).backward()
""",
}
RIGHT = {
    "multiplied": BATCH
    + """
s, a, r, n, d = batch()
goal = r + 0.9 * late(n).max(1).values.detach() * ~d
F.mse_loss(net(s)[:, 0], goal).backward()
goal = r + (1 - d.float()) * 0.9 * late(n).max(1).values.detach()
F.mse_loss(net(s)[:, 0], goal).backward()
""",
    "one flag of two": BATCH
    + """
s, a, r, n, d = batch()
cut = torch.tensor([i % 3 == 0 for i in range(12)])
goal = r + 0.9 * late(n).max(1).values.detach().masked_fill(d, 0.0)
F.mse_loss(net(s)[:, 0], goal).backward()
""",
    "the next ones that there are": BATCH
    + """
rows = random.sample(memory, 12)
goes = torch.tensor([not row[4] for row in rows])
following = torch.zeros(12)
with torch.no_grad():
    following[goes] = late(torch.tensor([row[3] for row in rows if not row[4]])).max(1).values
goal = torch.tensor([row[2] for row in rows]) + 0.9 * following
F.mse_loss(net(torch.tensor([row[0] for row in rows]))[:, 0], goal).backward()
""",
    "an episode that never ends": BATCH
    + """
s, a, r, n, d = batch()
d = torch.tensor([False] * 12)
goal = r + 0.9 * late(n).max(1).values.detach() * (~d).float()
F.mse_loss(net(s)[:, 0], goal).backward()
never = torch.tensor([False] * 12)
r, n = torch.rand(12), torch.rand(12, 3)
goal = r + 0.9 * late(n).max(1).values.detach()
F.mse_loss(net(s)[:, 0], goal).backward()
""",
    "chosen by the flags": BATCH
    + """
s, a, r, n, d = batch()
with torch.no_grad():
    goal = torch.where(d, r, r + 0.9 * late(n).max(1).values)
F.mse_loss(net(s)[:, 0], goal).backward()
""",
    "a baseline, and labels that are not used": BATCH
    + """
s, a, r, n, d = batch()
F.mse_loss(net(s)[:, 0], r).backward()
offset = r + net(s)[:, 0]
print(offset.mean(), (net(s)[:, 0] + 0.1 * late(n)[:, 0]).sum())
""",
    "returns that were added up before": BATCH
    + """
s, a, r, n, d = batch()
total = torch.zeros(())
found = []
for reward, end in zip(r.flip(0), d.flip(0)):
    total = reward + 0.9 * total * ~end
    found.append(total)
F.mse_loss(net(s)[:, 0], torch.stack(found).flip(0)).backward()
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL990",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
