"""PL783: target networks that keep the values of the beginning; and frozen copies that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import copy
import torch
from torch import nn

F = nn.functional
torch.manual_seed(0)

def network():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def batch():
    s, after = torch.randn(8, 3), torch.randn(8, 3)
    return s, torch.randint(2, (8, 1)), s[:, 0], after, (torch.rand(8) < 0.2).float()

q = network()
"""
LOOP = """
opt = torch.optim.SGD(q.parameters(), 0.1)
for step in range(25):
    s, a, r, after, done = batch()
    with torch.no_grad():
        goal = r + 0.9 * (1 - done) * target(after).max(1).values
    loss = F.mse_loss(q(s).gather(1, a).squeeze(1), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COPY = "target = copy.deepcopy(q)  # here\n"
FOUND = {
    "a deep copy": COPY + LOOP,
    "a state that was loaded": "target = network()\ntarget.load_state_dict(q.state_dict())  # here\n" + LOOP,
    "frozen and in evaluation mode": COPY
    + "target.eval()\nfor p in target.parameters():\n    p.requires_grad_(False)\n"
    + LOOP,
    "detached, the best action by the trained one": COPY
    + LOOP.replace("    with torch.no_grad():\n        goal", "    if True:\n        goal").replace(
        "target(after).max(1).values", "target(after).gather(1, q(after).argmax(1, keepdim=True)).squeeze(1).detach()"
    ),
    "in a class": """
class Agent:
    def __init__(self):
        self.q = network()
        self.target = copy.deepcopy(self.q)  # here
        self.opt = torch.optim.Adam(self.q.parameters(), 1e-2)
        self.gamma = 0.95

    def learn(self, s, a, r, after, done):
        with torch.no_grad():
            later = self.target(after).amax(1)
            goal = r + self.gamma * later * (1 - done)
        loss = (self.q(s).gather(1, a).squeeze(1) - goal).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

agent = Agent()
for _ in range(25):
    agent.learn(*batch())
""",
}
RIGHT = {
    "a copy every so many rounds": COPY
    + LOOP
    + "    if step % 10 == 9:\n        target.load_state_dict(q.state_dict())\n",
    "a copy in a round that did not come": COPY
    + LOOP
    + "    if step % 1000 == 999:\n        target.load_state_dict(q.state_dict())\n",
    "another deep copy in a round that did not come": COPY
    + LOOP
    + "    if step % 1000 == 999:\n        target = copy.deepcopy(q)\n",
    "small steps": COPY
    + LOOP
    + "    with torch.no_grad():\n        for old, new in zip(target.parameters(), q.parameters()):\n"
    + "            old.lerp_(new, 0.05)\n",
    "small steps by a product": COPY
    + LOOP
    + "    for old, new in zip(target.parameters(), q.parameters()):\n"
    + "        old.data = 0.9 * old.data + 0.1 * new.data\n",
    "few rounds": COPY + LOOP.replace("25", "5"),
    "another network, trained before": "target = network()\n" + LOOP,
    "a teacher of the same examples": COPY + LOOP.replace("target(after)", "target(s)"),
    "a mixture of labels and a teacher": COPY + LOOP.replace("r + 0.9 * (1 - done) * target", "0.4 * r + 0.6 * target"),
    "a reference in a penalty": COPY
    + LOOP.replace("goal = r + 0.9 * (1 - done) * target(after).max(1).values", "before = target(s)").replace(
        "loss = F.mse_loss(q(s).gather(1, a).squeeze(1), goal)",
        "loss = -(q(s).gather(1, a).squeeze(1) * r).mean() + 0.9 * F.mse_loss(q(s), before)",
    ),
    "handed to a function of elsewhere": COPY
    + LOOP
    + "    if step > 1000:\n        torch.nn.utils.stateless.renew(q, target)\n",
}


@pytest.mark.parametrize("name", FOUND)
def test_a_target_network_that_stays_as_it_was_is_found_where_it_is_copied(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text))]
    assert ("PL783", 1 + text[: text.index("# here")].count("\n")) in found


@pytest.mark.parametrize("name", RIGHT)
def test_a_copy_that_is_renewed_or_gives_no_later_estimate_is_not(name: str) -> None:
    assert "PL783" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
