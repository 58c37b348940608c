"""What came and what was meant are never shown as the same number twice."""

from __future__ import annotations

import re

import pytest

from pitfall_lab.rules import find
from pitfall_lab.rules.kit.wording import apart, numbers_apart
from pitfall_lab.verify.program import trace_program

HEAD = """import torch
import torch.nn.functional as F
{column}
{row}
{loss}
loss.backward()
"""
COLUMN = "p = torch.zeros(3, 1, requires_grad=True)"
ROW = "y = torch.tensor([1.0, 2.0, 3.0])"


def message(loss: str, *, column: str = COLUMN, row: str = ROW) -> str:
    """What PL401 says of a program, in English."""
    program = HEAD.format(column=column, row=row, loss=loss)
    (found,) = [found for found in find(trace_program(program)) if found.rule == "PL401"]
    return found.message.en


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(
    "loss",
    [
        "loss = ((p - y) ** 2).mean()",
        "loss = F.mse_loss(p, y)",
        "loss = 100 * F.l1_loss(p, y)",
        "loss = torch.sqrt(((y - p) ** 2).mean())",
    ],
)
def test_nothing_is_said_of_numbers_that_are_equal_by_chance(loss: str) -> None:
    assert message(loss).endswith("their shapes are (3, 1) and (3,).")


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", ["loss = ((p - y) ** 2).mean()", "loss = F.mse_loss(p, y)"])
@pytest.mark.parametrize("away", [1e-4, 1e-3, 1e-2, 1.0])
def test_numbers_that_differ_little_are_shown_with_more_digits(loss: str, away: float) -> None:
    column = f"p = torch.tensor([[0.0], [0.0], [{away}]], requires_grad=True)"
    said = re.search(r"\(.*?(\d\S*) ?(?:comes out, |, and should be )(\d\S*).*?\)\.", message(loss, column=column))
    assert said is not None
    came, meant = (float(text.strip(",")) for text in said.groups())
    assert came != meant
    assert came == pytest.approx((28 + sum((y - away) ** 2 for y in (1, 2, 3))) / 9, rel=1e-3)
    assert meant == pytest.approx((5 + (3 - away) ** 2) / 3, rel=1e-3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("torch.tensor([1, 1, 0, 0])", "shapes are (4, 1) and (4,)."),
        ("torch.tensor([1, 0, 0, 0])", "(true for 50% of them, and for 75% of the pairs that belong together)."),
    ],
)
def test_shares_of_pairs_are_left_out_where_they_are_equal(row: str, said: str) -> None:
    # of the first, half of all pairs are equal, and half of those that belong together
    column = "p = torch.tensor([[1], [0], [1], [0]])\nw = torch.ones(1, requires_grad=True)"
    loss = "right = (p == y).float().mean()\nprint(right)\nloss = w.sum()"
    assert message(loss, column=column, row=f"y = {row}").endswith(said)


def test_as_many_digits_as_it_takes() -> None:
    assert apart(1.0, 2.0) == ("1", "2")
    assert apart(4.66662, 4.66671) == ("4.6666", "4.6667")
    assert apart(0.5001, 0.5002, percent=True) == ("50.01%", "50.02%")
    assert apart(0.5, 0.5 + 1e-9) is None
    assert apart(0.0, 1e-12) == ("0", "1e-12")
    assert apart("nan", 2.0) == ("nan", "2")
    assert numbers_apart([1.0, 2.00001], [1.0, 2.00002]) == ("[1, 2.00001]", "[1, 2.00002]")
    assert numbers_apart([1.0], [1.0]) == ("[1]", "[1]")
