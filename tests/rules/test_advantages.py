"""PL514 and advantages: the weight of a policy's loss, whose estimate has a loss of its
own, however that is written.
"""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
body, pi, v = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)
opt = torch.optim.Adam([*body.parameters(), *pi.parameters(), *v.parameters()], lr=0.01)
x, actions, returns, mask = torch.randn(16, 6), torch.randint(0, 3, (16,)), torch.randn(16), (torch.rand(16) > 0.2).float()
for _ in range(3):
    h = torch.tanh(body(x))
    logp = F.log_softmax(pi(h), 1).gather(1, actions[:, None]).squeeze(1)
    value = v(h).squeeze(1)
"""  # noqa: E501
TAIL = """
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ATTACHED = {
    "squared anew": "    adv = returns - value\n    loss = -(logp * adv).mean() + ((returns - value) ** 2).mean()",
    "squared anew, the other way round": (
        "    adv = returns - value\n    loss = -(logp * adv).mean() + (value - returns).pow(2).mean()"
    ),
    "multiplied with itself": "    adv = returns - value\n    loss = -(logp * adv).mean() + (adv * adv).mean()",
    "masked": (
        "    adv = returns - value\n    loss = -(logp * adv * mask).sum() + ((returns - value).square() * mask).sum()"
    ),
    "a loss of torch": "    adv = returns - value\n    loss = -(logp * adv).mean() + F.smooth_l1_loss(value, returns)",
}
RIGHT = {
    "detached": (
        "    adv = (returns - value).detach()\n    loss = -(logp * adv).mean() + ((returns - value) ** 2).mean()"
    ),
    "detached where it is used": (
        "    adv = returns - value\n    loss = -(logp * adv.detach()).mean() + adv.square().mean()"
    ),
    "weighted errors": (
        "    err = returns - value\n"
        "    loss = (mask * err).pow(2).mean() + (returns - value).abs().mean() - logp.mean()"
    ),
    "without a loss of its own": "    adv = returns - value\n    loss = -(logp * adv).mean()",
}


def rules(body: str) -> list[str]:
    return [finding.rule for finding in find(trace_program(HEAD + body + TAIL))]


@pytest.mark.parametrize("body", ATTACHED.values(), ids=list(ATTACHED))
def test_an_advantage_with_its_graph_is_found(body: str) -> None:
    assert "PL514" in rules(body)


@pytest.mark.parametrize("body", RIGHT.values(), ids=list(RIGHT))
def test_what_looks_like_one_is_not(body: str) -> None:
    assert "PL514" not in rules(body)
