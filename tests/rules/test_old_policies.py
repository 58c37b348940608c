"""PL518's remedy for a ratio that is always 1: what belongs to the old weights is computed before the updates."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from tests.rules.build import assert_found
from tests.rules.test_signals import HEAD

POLICY = """
torch.manual_seed(0)
s, a, gain = torch.randn(8, 3), torch.randint(0, 2, (8,)), torch.randn(8)
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
def chance(s, a):
    return F.log_softmax(net(s), 1).gather(1, a.unsqueeze(1)).squeeze(1)
"""
UPDATE = """
        loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
WRONG = {
    "without a graph": POLICY
    + """
def improve(s, a, epochs):
    for _ in range(epochs):
        with torch.no_grad():
            old = chance(s, a)
        ratio = (chance(s, a) - old).exp()  # PL518"""
    + UPDATE
    + "improve(s, a, 4)\nprint(net.weight.sum().item())\n",
    "in the second of two loops": POLICY
    + """
for _ in range(2):
    for _ in range(3):
        new = chance(s, a)
        with torch.no_grad():
            before = F.log_softmax(net(s), 1).gather(1, a.unsqueeze(1)).squeeze(1)
        ratio = torch.exp(new - before)  # PL518"""
    + UPDATE
    + "print(net.weight.sum().item())\n",
}
IN_PARTS = (
    POLICY
    + """
for _ in range(3):
    for _ in range(2):
        given = s.clone()
        with torch.no_grad():
            old = chance(given, a)
        ratio = (chance(given, a) - old).exp()"""
    + UPDATE
)


@pytest.mark.parametrize("name", WRONG)
def test_it_is_computed_once_before_the_updates(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], only=("PL518",), repaired=True)


def test_what_depends_on_the_round_is_not_moved(shop: Workshop) -> None:
    subject = Subject(HEAD + IN_PARTS, "program.py")
    trace = shop.trace(subject)
    assert [(f.rule, f.fixes) for f in tried(shop, subject, trace, find(trace)) if f.rule == "PL518"] == [("PL518", ())]
