"""PL947: distances that a loss takes for scores, however they are computed; and scores that rightly have a minus."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(12, 5), torch.arange(12) % 3
net = nn.Linear(5, 4)
z, centres = net(x), nn.Parameter(torch.randn(3, 4))
"""
FOUND = {
    "a network of prototypes": """
means = torch.stack([z[y == c].mean(0) for c in range(3)])
d = torch.cdist(z, means)
loss = nn.CrossEntropyLoss()(d, y)  # here
loss.backward()
print((d.argmin(1) == y).float().mean())
""",
    "squares, added up": """
class Centres(nn.Module):
    def forward(self, z):
        return ((z.unsqueeze(1) - centres) ** 2).sum(2) / 2
F.cross_entropy(Centres()(z), y).backward()  # here
""",
    "a norm, and a logarithm of shares": """
d = (z[:, None] - centres[None]).norm(dim=-1)
share = F.log_softmax(d, dim=1)  # here
F.nll_loss(share, y).backward()
""",
    "the entries of the right classes": """
share = (torch.cdist(z, centres) / 0.5).softmax(1)  # here
loss = -share.log()[torch.arange(12), y].mean()
loss.backward()
""",
}
RIGHT = {
    "a minus": """
d = torch.cdist(z, centres)
(F.cross_entropy(-d, y) + F.cross_entropy(d * -1, y) + F.cross_entropy(-d.pow(2) / 2, y)).backward()
""",
    "shares of the near": """
d = torch.cdist(z, centres)
near = 1 / (1 + d)
F.cross_entropy(near, y).backward()
F.nll_loss((torch.exp(-torch.cdist(net(x), centres)) + 1e-6).log(), y).backward()
""",
    "a square written out": """
s = (z * z).sum(1, keepdim=True) - 2 * z @ centres.T + (centres * centres).sum(1)
F.cross_entropy(2 * z @ centres.T - (centres * centres).sum(1), y).backward()
""",
    "a learned scale": """
scale = nn.Parameter(torch.tensor(-1.0))
F.cross_entropy(scale * torch.cdist(z, centres), y).backward()
""",
    "scores of a layer": """
F.cross_entropy(nn.Linear(4, 3)(z), y).backward()
""",
    "a layer on distances": """
F.cross_entropy(nn.Linear(3, 3)(torch.cdist(z, centres)), y).backward()
""",
    "moved away on purpose": """
(-F.cross_entropy(torch.cdist(z, centres), y)).backward()
""",
    "the farther of two is the other one": """
near, far = (z - centres[0]).norm(dim=1), (z - centres[1]).norm(dim=1)
F.cross_entropy(torch.stack([near, far], 1), torch.ones(12, dtype=torch.long)).backward()
""",
    "weights for hard pairs": """
d = torch.cdist(z, z)
weight = d.detach().softmax(1)
(weight * d).sum(1).mean().backward()
""",
    "similarities": """
F.cross_entropy(F.normalize(z, dim=1) @ F.normalize(centres, dim=1).T / 0.1, y).backward()
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_distances_are_found_where_they_are_scores(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text)) if each.span and each.rule == "PL947"]
    assert found == [("PL947", 1 + text[: text.index("# here")].count("\n"))]


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_resemble_them_draw_nothing(name: str) -> None:
    assert "PL947" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
