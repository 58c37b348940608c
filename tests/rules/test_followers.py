"""Copies of a network that should follow it: averages that never arrive in them, and those that do."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TWO = """
import copy
x, reward = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
slow = copy.deepcopy(net)
opt = Adam(net.parameters(), lr=0.01)
def learn():
    with torch.no_grad():
        goal = reward + 0.9 * slow(x)
    update(opt, F.mse_loss(net(x), goal))
"""

WRONG = {
    "entries of a state_dict, in a function": TWO
    + """
def follow(target, online, tau):
    goal, new = target.state_dict(), online.state_dict()
    for key in goal:
        goal[key] = (1 - tau) * goal[key] + tau * new[key]  # PL744
for _ in range(4):
    learn()
    follow(slow, net, 0.05)
""",
    "a dictionary of the named parameters, with lerp": TWO
    + """
for _ in range(4):
    learn()
    own = dict(slow.named_parameters())
    with torch.no_grad():
        for name, p in net.named_parameters():
            own[name] = torch.lerp(own[name], p, 0.05)  # PL744
""",
    "a list of the parameters": TWO
    + """
for _ in range(4):
    learn()
    with torch.no_grad():
        weights = list(slow.parameters())
        for i, p in enumerate(net.parameters()):
            weights[i] = weights[i] * 0.95 + p * 0.05  # PL744
""",
    "a dictionary made at once, in a class": TWO
    + """
class Agent:
    def __init__(self):
        self.online, self.target = net, slow
    def follow(self):
        new = self.online.state_dict()
        mixed = {k: 0.99 * v + 0.01 * new[k] for k, v in self.target.state_dict().items()}  # PL744
agent = Agent()
for _ in range(4):
    learn()
    agent.follow()
""",
    "moved by a part of the gap": TWO
    + """
for _ in range(4):
    learn()
    for key, p in net.state_dict().items():
        slow.state_dict()[key] = slow.state_dict()[key] + 0.1 * (p - slow.state_dict()[key])  # PL744
""",
}

RIGHT = {
    "entries that are loaded": TWO
    + """
for _ in range(4):
    learn()
    goal, new = slow.state_dict(), net.state_dict()
    for key in goal:
        goal[key] = 0.9 * goal[key] + 0.1 * new[key]
    slow.load_state_dict(goal)
""",
    "entries that are written": TWO
    + """
for _ in range(4):
    learn()
    goal, new = slow.state_dict(), net.state_dict()
    for key in goal:
        goal[key].copy_(0.9 * goal[key] + 0.1 * new[key])
""",
    "the data of parameters replaced": TWO
    + """
for _ in range(4):
    learn()
    for p, q in zip(slow.parameters(), net.parameters()):
        p.data = 0.9 * p.data + 0.1 * q.data
""",
    "a mixture of a fixed network and a trained one, used by functional_call": TWO
    + """
for _ in range(4):
    learn()
    old, new = slow.state_dict(), net.state_dict()
    mixed = {k: 0.5 * old[k] + 0.5 * new[k] for k in old}
    print(torch.func.functional_call(net, mixed, (x,)).mean().item())
""",
    "an average of the weights kept beside, loaded at the end": TWO
    + """
mean = {k: v.clone() for k, v in net.state_dict().items()}
for _ in range(4):
    learn()
    for k, v in net.state_dict().items():
        mean[k] = 0.9 * mean[k] + 0.1 * v
net.load_state_dict(mean)
print(net(x).mean().item())
""",
    "how far the two are apart": TWO
    + """
for _ in range(4):
    learn()
    gaps = [(p - q).norm().item() for p, q in zip(slow.parameters(), net.parameters())]
    ways = {}
    for (name, p), q in zip(slow.named_parameters(), net.parameters()):
        ways[name] = (p + 2 * q).detach()
    print(max(gaps), sum(w.sum().item() for w in ways.values()))
""",
}


def test_averages_that_no_copy_gets_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL744",))


def test_the_averages_are_loaded_or_written_by_a_fix(shop: Workshop) -> None:
    """All but the dictionary that is made and forgotten, which has no entry to write into."""
    parts = {name: text for name, text in WRONG.items() if "at once" not in name}
    assert_found(shop, together(parts), only=("PL744",), repaired=True)


def test_averages_that_arrive_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
