"""PL817: functions of the stored parts of a sparse tensor; and uses of them that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
place = torch.tensor([[0, 1, 1, 2], [1, 0, 0, 2]])
adjacency = torch.sparse_coo_tensor(place, torch.tensor([1.0, 2.0, 3.0, 4.0]), (3, 3))
"""
WRONG = {
    "the largest one, in a function": HEAD
    + """
def largest(sparse):
    return sparse._values().max()  # PL817
print(largest(adjacency))
""",
    "a root, put back": HEAD
    + """
stored = adjacency._values().clone()
root = torch.sparse_coo_tensor(adjacency._indices(), stored.sqrt(), adjacency.shape)  # PL817
print(torch.sparse.mm(root, torch.eye(3)))
""",
}
RIGHT = {
    "added first, or linear": HEAD
    + """
whole = adjacency.coalesce()
print(whole.values().sqrt(), whole._values().max(), adjacency._values().sum(), adjacency._values() * 2)
""",
    "each place once": HEAD
    + """
single = torch.sparse_coo_tensor(place[:, [0, 1, 3]], torch.ones(3), (3, 3))
print(single._values().log1p())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_functions_of_the_parts_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL817",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_uses_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
