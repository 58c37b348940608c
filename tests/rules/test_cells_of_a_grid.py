"""Whole numbers made by cutting fractions off: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch

torch.manual_seed(0)
points = torch.rand(60, 2) * 8 - 4
table = torch.zeros(9, 9)
"""
WRONG = {
    "entries of a table": HEAD + "i = points.long() + 4  # PL848\ntable[i[:, 0], i[:, 1]] = 1.0\n",
    "in a function, to another type": HEAD
    + """
def cell(p):
    return (p / 1.5).to(torch.int32)  # PL848
print(torch.unique(cell(points), dim=0).shape)
""",
    "one after the other": HEAD
    + """
counts = torch.zeros(9, dtype=torch.long)
flat = points[:, 0].int() + 4  # PL848
counts.scatter_add_(0, flat.long(), torch.ones(60, dtype=torch.long))
""",
    "looked up": HEAD
    + """
rows = torch.nn.Embedding(9, 2)
print(rows(points[:, 1].clamp(-4, 4).long() + 4).sum())  # PL848
""",
}
RIGHT = {
    "rounded down": HEAD + "i = points.floor().long() + 4\ntable[i[:, 0], i[:, 1]] = 1.0\n",
    "moved first": HEAD + "i = (points + 4).long()\ntable[i[:, 0], i[:, 1]] = 1.0\n",
    "rounded": HEAD + "i = points.round().long() + 4\ntable[i[:, 0], i[:, 1]] = 1.0\n",
    "a number of cents, no place": HEAD + "cents = (points * 100).long()\nprint(cents.sum(), cents.float().mean())\n",
    "only written out": HEAD + "print(points[:4].long().tolist())\n",
    "one sign": HEAD + "print(torch.bincount(points.abs()[:, 0].long()))\n",
    "whole numbers": HEAD + "w = torch.arange(-4, 5).float()\nprint(table[w.long() + 4].sum())\n",
    "classes by their sign": HEAD + "print(torch.bincount(points[:, 0].sign().long() + 1))\n",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
