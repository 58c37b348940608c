"""PL770 where a mask that was computed from sorted numbers is applied to unsorted ones; and masks that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
scores = torch.randn(3, 8)
"""
WRONG = {
    "the smallest half, in a function": HEAD
    + """
def largest(x, share):
    values, places = torch.sort(x.softmax(1), 1, True)
    few = values.cumsum(1) - values > share
    return torch.where(few, torch.zeros_like(x), x)  # PL770
print(largest(scores, 0.7))
""",
    "a nucleus, drawn from afterwards": HEAD
    + """
values, order = scores.sort(dim=-1, descending=True)
drop = values.softmax(-1).cumsum(-1) > 0.8
drop[..., 1:] = drop[..., :-1].clone()
drop[..., 0] = False
kept = scores.masked_fill(drop, float("-inf"))  # PL770
print(torch.multinomial(kept.softmax(-1), 2))
""",
}
RIGHT = {
    "put back, or applied to the sorted ones": HEAD
    + """
values, order = scores.sort(dim=-1, descending=True)
drop = values.softmax(-1).cumsum(-1) - values.softmax(-1) > 0.8
print(scores.masked_fill(drop.scatter(-1, order, drop), float("-inf")))
print(scores.masked_fill(drop.gather(-1, order.argsort(-1)), 0.0), values.masked_fill(drop, 0.0))
""",
    "a limit out of the sorted ones": HEAD
    + """
limit = scores.topk(3, dim=1).values[:, -1:]
print(scores.masked_fill(scores < limit, 0.0), torch.where(scores > scores.sort(1).values[:, 4:5], scores, 0.0))
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mask_of_ranks_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL770",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_masks_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
