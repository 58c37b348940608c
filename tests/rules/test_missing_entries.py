"""Statistics over a few missing entries: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import numpy as np
import torch

torch.manual_seed(0)
rng = np.random.default_rng(0)
table = rng.normal(3, 2, (30, 4)).astype(np.float32)
table[3, 0] = table[7, 2] = np.nan
"""
WRONG = {
    "scaled and filled in NumPy": HEAD
    + """
centre = table.mean(axis=0)  # PL813
x = torch.tensor(np.nan_to_num(table - centre))
print(x[:2])
""",
    "filled by where, in a function": HEAD
    + """
def prepare(rows, low, high):
    x = torch.from_numpy((rows - low) / (high - low))
    return torch.where(torch.isnan(x), torch.zeros(()), x)
low, high = np.min(table, 0), np.max(table, 0)  # PL813
print(prepare(table, low, high)[:2])
""",
    "in a class": HEAD
    + """
class Scaler:
    def __call__(self, rows):
        spread = np.std(rows, axis=0)  # PL813
        x = torch.from_numpy(rows / spread)
        x[x.isnan()] = 0.0
        return x
print(Scaler()(table)[:2])
""",
    "tensors": HEAD
    + """
rows = torch.from_numpy(table)
mean, std = rows.mean(0), rows.std(0)  # PL813
x = (rows - mean) / std
x = x.masked_fill(x.isnan(), 0.0)
print(x[:2])
""",
    "the fill itself is NaN": HEAD
    + """
rows = torch.tensor(table)
means = torch.mean(rows, dim=0, keepdim=True)  # PL813
filled = torch.where(rows.isnan(), means, rows) - means
print(filled.nan_to_num(0.5)[:2])
""",
}
RIGHT = {
    "missing entries are left out": HEAD
    + "mean = np.nanmean(table, 0)\nprint(torch.nan_to_num(torch.from_numpy(table - mean)))\n",
    "filled first": HEAD + "rows = torch.from_numpy(table).nan_to_num(3.0)\nmean = rows.mean(0)\nprint(rows - mean)\n",
    "a column without any number": HEAD
    + """
table[:, 1] = np.nan
mean = np.nanmean(table[:, [0, 2, 3]], 0)
print(torch.nan_to_num(torch.from_numpy(table)))
""",
    "rows with missing entries are dropped": HEAD
    + """
mean = table.mean(0)
kept = table[~np.isnan(table).any(1)]
print(mean, torch.from_numpy(kept - kept.mean(0)))
""",
    "columns with missing entries are dropped": HEAD
    + """
mean = table.mean(0)
x = torch.from_numpy((table - mean)[:, ~np.isnan(mean)])
print(torch.nan_to_num(x))
""",
    "a column of ones": HEAD
    + """
mean = table.mean(0)
x = torch.ones(30, 4)
x[:, 1:] = torch.from_numpy(np.nan_to_num(table))[:, 1:]
print(mean, x)
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
