"""PL709: a batch that holds one row several times is no list of one tensor that a loop writes."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

RIGHT = {
    "rows drawn with replacement from data that two lines of a function changed": """
import torch
def draw():
    x = torch.randn(6, 3)
    x[:, 0] += 2.0
    x[:, 0] += 1.0
    return x
data = [draw() for _ in range(2)]
for x in data:
    print(torch.stack([x[i] for i in (0, 4, 0, 2)]).sum())
""",
}
WRONG = {
    "a new view of the buffer for each entry": """
import torch
buffer, kept = torch.zeros(3), []
for i in range(4):
    buffer += i  # PL709
    kept.append(buffer[:])
print(torch.stack(kept).sum())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_one_tensor_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name].strip() + "\n", only=("PL709",))


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name].strip() + "\n")
