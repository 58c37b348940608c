"""PL957: the ideal order of what was retrieved; and measures of rankings that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
score, rel = torch.randn(6, 40), torch.randint(0, 4, (6, 40)).float()
def dcg(gains):
    return ((2 ** gains - 1) / torch.log2(torch.arange(gains.size(-1)) + 2.0)).sum(-1)
"""
WRONG = {
    "query by query, by an index": HEAD
    + """
total = 0.0
for s, r in zip(score, rel):
    got = r[s.argsort(descending=True)[:8]]
    most = dcg(torch.sort(got, descending=True)[0])  # PL957
    total += (dcg(got) / most.clamp(min=1e-6)).item()
print(total / 6)
""",
}
RIGHT = {
    "of all": HEAD
    + """
got = rel.gather(1, score.topk(8, dim=1).indices)
print((dcg(got) / dcg(rel.sort(1, descending=True).values[:, :8])).mean(), dcg(got) / dcg(rel.topk(8, dim=1).values))
""",
    "all candidates in another order": HEAD
    + """
first = score.topk(8, dim=1).indices
value = rel.gather(1, first)
again = value.gather(1, torch.randn(6, 8).argsort(1, descending=True))
print(dcg(again) / dcg(value.sort(1, descending=True).values))
whole = rel.gather(1, score.argsort(1, descending=True))
print(dcg(whole) / dcg(whole.sort(1, descending=True).values))
""",
    "a share of the largest": HEAD
    + """
top = score.topk(8, dim=1).values
print(top / top.sort(1).values.sum(1, keepdim=True))
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_the_ideal_of_a_part_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL957",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_measures_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
