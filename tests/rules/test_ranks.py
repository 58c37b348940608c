"""Positions of a sort that are added up as ranks: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch

torch.manual_seed(0)
features = torch.randn(30, 3)
labels = (features[:, 0] > 0).long()
scores = features @ torch.tensor([2.0, 0.5, -1.0])
relevance = torch.randint(0, 4, (30,)).float()
"""
WRONG = {
    "picked by labels": HEAD
    + """
def auc(scores, labels):
    ranks = scores.argsort().float() + 1  # PL920
    n = labels.sum()
    return (ranks[labels.bool()].sum() - n * (n + 1) / 2) / (n * (len(labels) - n))  # used
print(auc(scores, labels))
""",
    "weighed by labels": HEAD
    + """
ranks = torch.argsort(scores, dim=0) + 1  # PL920
rank_sum = (ranks * labels).sum()  # used
print(rank_sum.item())
""",
    "a mean of two groups": HEAD
    + """
_, ranks = scores.sort()  # PL920
high = ranks[labels == 1].float().mean()  # used
print(high)
""",
    "discounts by rank": HEAD
    + """
place = scores.argsort(descending=True)  # PL920
dcg = (relevance / torch.log2(place + 2)).sum()  # used
print(dcg)
""",
    "where": HEAD
    + """
ranks = scores.argsort().float()  # PL920
print(torch.where(labels == 1, ranks, torch.zeros(())).sum())  # used
""",
}
RIGHT = {
    "ranks": HEAD
    + """
ranks = scores.argsort().argsort().float() + 1
print(ranks[labels.bool()].sum())
""",
    "the labels are sorted": HEAD
    + """
order = scores.argsort()
hits = labels[order]
print((torch.arange(1, 31) * hits).sum())
""",
    "positions of what is large": HEAD
    + """
values, order = scores.sort(descending=True)
print(order[values > 1.0].float().mean())
""",
    "the first ones": HEAD
    + """
order = scores.argsort(descending=True)
print(order[torch.arange(30) < 5].float().mean())
""",
    "they are looked up": HEAD
    + """
order = scores.argsort()
kept = order[torch.tensor([True, False] * 15)]
print(features[kept].sum())
""",
    "a random order": HEAD
    + """
place = torch.rand(30).argsort().float()
print(place[labels.bool()].sum())
""",
    "in order already": """
import torch

scores = torch.tensor([0.1, 0.2, 0.3, 0.9])
labels = torch.tensor([0, 0, 1, 1])
print((scores.argsort() * labels).sum())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
