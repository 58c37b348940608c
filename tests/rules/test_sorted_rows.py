"""PL853: binary searches through numbers that are not sorted; and searches that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
x = torch.rand(40)
grid = torch.linspace(0, 1, 6)
"""
WRONG = {
    "event times": HEAD
    + """
print(len(x) - torch.searchsorted(x, grid))  # PL853
""",
    "boundaries, by name": HEAD
    + """
edges = torch.tensor([0.5, 0.1, 0.9])
print(torch.bucketize(x, boundaries=edges))  # PL853
""",
    "falling": HEAD
    + """
print(torch.bucketize(x, grid.flip(0)))  # PL853
""",
    "one row of several": HEAD
    + """
rows = torch.stack([grid, grid[[0, 2, 1, 3, 4, 5]]])
print(torch.searchsorted(rows, torch.rand(2, 3)))  # PL853
""",
    "only once unsorted": HEAD
    + """
for first in (0.0, 0.5):
    edges = torch.tensor([first, 0.2, 0.9])
    print(torch.bucketize(0.3, edges))  # PL853
""",
}
RIGHT = {
    "sorted": HEAD
    + """
print(torch.searchsorted(x.sort().values, grid), torch.bucketize(x, grid))
""",
    "with the order": HEAD
    + """
print(torch.searchsorted(x, grid, sorter=x.argsort()))
""",
    "equal numbers, and one": HEAD
    + """
print(torch.bucketize(x, torch.tensor([0.2, 0.2, 0.7])), torch.bucketize(x, torch.tensor([0.2])))
""",
    "a cumulated distribution": HEAD
    + """
print(torch.searchsorted(x.softmax(0).cumsum(0), torch.rand(5)))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_search_through_unsorted_numbers_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_a_search_through_sorted_numbers_is_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
