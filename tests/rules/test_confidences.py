"""PL993: the share of right decisions beside the probability of one class; and measures that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(300, 2)
y = (torch.rand(300) < torch.sigmoid(2 * x[:, 0])).float()
prob = torch.sigmoid(nn.Linear(2, 1)(x).squeeze(1) * 0 + 2 * x[:, 0]).detach()
"""
WRONG = {
    "in bins, in a function": HEAD
    + """
def calibration(p, target, bins=5):
    sure, right = p, p.round().eq(target)
    place = (sure * bins).long().clamp(max=bins - 1)
    total = 0.0
    for b in range(bins):
        here = place == b
        gap = (sure[here].mean() - right[here].double().mean()).abs()  # PL993
        total += here.float().mean() * gap
    return total
print(calibration(prob, y))
""",
    "over all rows": HEAD
    + """
low = prob * 0.6
accuracy = ((low >= 0.5) == y.bool()).float().mean()
print((accuracy - low.mean()).abs())  # PL993
""",
}
RIGHT = {
    "the probability of the decision, and the share of the class": HEAD
    + """
hit = ((prob > 0.5) == y.bool()).float()
sure = torch.where(prob > 0.5, prob, 1 - prob)
both = torch.stack([1 - prob, prob], 1)
best, pick = both.max(1)
for b in range(4):
    here = (prob * 4).long() == b
    print(hit[here].mean() - sure[here].mean(), y[here].mean() - prob[here].mean())
    print((pick == y).float()[here].mean() - best[here].mean())
""",
    "other rows, another number": HEAD
    + """
hit = ((prob > 0.5) == y.bool()).float()
print(hit[prob > 0.5].mean() - prob[prob > 0.5].mean(), hit[:50].mean() - hit[50:].mean(), hit.mean() - y.mean())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_probability_of_one_class_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL993",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_measures_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
