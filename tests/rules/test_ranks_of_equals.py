"""PL921: numbers made of ranks that equal scores have one after the other, and programs that treat them alike, or whose
numbers do not depend on their order.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
torch.manual_seed(0)
hidden = torch.cat([torch.randn(150), torch.randn(50) + 0.8])
label = torch.cat([torch.zeros(150), torch.ones(50)])
grade = (hidden * 1.5).round()
fine = torch.randn(200) + hidden
"""
WRONG = {
    "ranks written by an index, positives picked": HEAD
    + """
def area(scores, labels):
    order = scores.argsort(stable=True)  # PL921
    ranks = torch.empty_like(scores)
    ranks[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    n = (labels == 1).sum().item()
    return (ranks[labels == 1].sum().item() - n * (n + 1) / 2) / (n * (len(labels) - n))
for name, scores in (("fine", hidden), ("grades", grade)):
    print(name, area(scores, label))
""",
    "a rank sum by weights, of a sort that is sorted again": HEAD
    + """
_, order = torch.sort(grade, stable=True)  # PL921
place = order.sort().indices.float() + 1
total = (place * label).sum()
print((total - 50 * 51 / 2) / (50 * 150))
""",
    "a correlation of two lists of ranks": HEAD
    + """
given = hidden.sort().values
def ranks(x):
    return torch.argsort(torch.argsort(x, stable=True)).double()  # PL921
def spearman(x, y):
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(), b - b.mean()
    return (a * b).sum() / (a.norm() * b.norm())
print(spearman(given, given + 0.3 * torch.randn(200)), spearman((given / 2).round(), given + 0.3 * torch.randn(200)))
""",
    "ranks from the highest on, with a product of matrices": HEAD
    + """
level = grade.long()
order = torch.argsort(-level, stable=True)  # PL921
rank = torch.zeros(200)
rank.scatter_(0, order, torch.arange(200.0))
print(rank @ label / 50)
""",
}
CUMULATED = (
    HEAD
    + """
order = grade.argsort(descending=True, stable=True)  # PL921
hit = label[order]
tp, fp = hit.cumsum(0), (1 - hit).cumsum(0)
print(torch.trapezoid(tp / tp[-1], fp / fp[-1]))
"""
)
RIGHT = {
    "mean ranks": HEAD
    + """
_, group, size = grade.unique(return_inverse=True, return_counts=True)
rank = (size.cumsum(0) - (size - 1) / 2)[group]
print((rank[label == 1].sum() - 50 * 51 / 2) / (50 * 150))
order = grade.argsort()
first = torch.empty(200)
first[order] = torch.arange(1.0, 201)
rank = (torch.zeros(len(size)).index_add(0, group, first) / size)[group]
print((rank * label).sum())
""",
    "no equal scores, or few": HEAD
    + """
few = hidden.clone()
few[:10] = few[10]
for x in (fine, few):
    rank = x.argsort(stable=True).argsort().float() + 1
    print((rank[label == 1].sum() - 50 * 51 / 2) / (50 * 150), (rank * label).sum())
""",
    "positions of tokens in a group, and an order that is undone": HEAD
    + """
expert = torch.randint(0, 4, (200,))
order = expert.argsort(stable=True)
place = torch.empty(200, dtype=torch.long)
place[order] = torch.arange(200)
count = torch.bincount(expert)
within = place - (count.cumsum(0) - count)[expert]
print((within * (within < 40)).sum(), within[expert == 2].float().mean())
lengths = torch.randint(1, 9, (200,))
order = lengths.argsort(descending=True)
sums = fine[order] * 2
print(sums[order.argsort()].sum(), (place[expert == 1].float()).sum())
""",
    "a curve that has a point for each score only": HEAD
    + """
values, order = grade.sort(descending=True)
hit = label[order]
last = torch.cat([(values[1:] != values[:-1]).nonzero()[:, 0], torch.tensor([199])])
tp, fp = hit.cumsum(0)[last], (1 - hit).cumsum(0)[last]
tp, fp = (torch.cat([torch.zeros(1), each / each[-1]]) for each in (tp, fp))
print(torch.trapezoid(tp, fp))
""",
    "a loss in the order of errors, and the highest ones": HEAD
    + """
error = (label - grade).abs()
error, order = error.sort(descending=True)
hit = label[order]
union = hit.sum() + (1 - hit).cumsum(0)
jaccard = 1 - (hit.sum() - hit.cumsum(0)) / union
jaccard[1:] = jaccard[1:] - jaccard[:-1]
print(error @ jaccard)
print(label[grade.argsort(descending=True)[:20]].mean(), fine[grade.argsort()].cumsum(0).mean())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


def test_labels_added_up_in_the_order_of_equal_scores_are_found(shop: Workshop) -> None:
    assert_found(shop, CUMULATED)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
