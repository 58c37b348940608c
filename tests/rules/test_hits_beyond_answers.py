"""PL981: recalls above 1, since one answer is found by several candidates; and counts that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
truth = torch.arange(5.0) * 10
seen = truth.repeat_interleave(4) + torch.rand(20)
score = torch.rand(20)
gap = (seen[:, None] - truth[None]).abs()
order = score.argsort(descending=True)
"""
WRONG = {
    "all at once, fractions of truth values": HEAD
    + """
hit = (gap.min(1).values < 2)[order].float()
tp = hit.cumsum(0)
precision = tp / torch.arange(1, len(tp) + 1)
recall = tp / len(truth)  # PL981
print(torch.trapezoid(precision, recall))
""",
    "a tensor with the number of answers, and whole numbers": HEAD
    + """
hits = torch.cumsum((gap.amin(1) < 2)[order], dim=0)
positives = torch.tensor(5.0)
curve = torch.stack([hits / positives, hits / torch.arange(1, 21)])  # PL981
""",
}
RIGHT = {
    "each answer once": HEAD
    + """
near = gap.min(1)
hit, taken = torch.zeros(20), set()
for i in order.tolist():
    if near.values[i] < 2 and near.indices[i].item() not in taken:
        taken.add(near.indices[i].item())
        hit[i] = 1
tp = (hit > 0)[order].cumsum(0)
print(tp / torch.arange(1, 21), tp / len(truth))
""",
    "a running mean, scaled, and counts per group": HEAD
    + """
many = (seen > 20)[order].cumsum(0)
print(many / torch.arange(1, 21), many / 20)
odds = score.cumsum(0)
print(odds / torch.arange(1, 21), odds / 2)
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_recall_above_one_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL981",))


@pytest.mark.parametrize("name", RIGHT)
def test_counts_that_end_in_time_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
