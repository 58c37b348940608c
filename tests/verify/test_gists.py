"""Mean and extremes of large tensors, and no warning of ours about them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from pitfall_lab.verify import trace_program
from pitfall_lab.verify.json_values import cells


@pytest.mark.parametrize(
    ("made", "mean"),
    [
        (np.full(100, 3e38, dtype=np.float32), 3e38),
        (np.full(100, 6e4, dtype=np.float16), 6e4),
        (np.full(100, 2**62, dtype=np.int64), 2.0**62),
        (np.full(100, 255, dtype=np.uint8), 255),
    ],
    ids=lambda made: getattr(getattr(made, "dtype", None), "name", ""),
)
def test_numbers_whose_sum_is_large_have_a_mean(made: np.ndarray, mean: float) -> None:
    with np.errstate(all="raise"):
        shown = cells(made, 12)
    assert shown["mean"] == pytest.approx(mean, rel=1e-3)
    assert shown["low"] == shown["high"] == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e308])
def test_where_the_sum_is_not_finite_there_is_none_and_nothing_is_said(value: float) -> None:
    made = np.full(100, value)
    made[3] = -made[3]
    with np.errstate(all="raise"):
        assert "mean" not in cells(made, 12)


def test_a_program_of_huge_numbers_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = trace_program("import torch\nt = torch.full((100,), 3e38)\nu = torch.empty(300)\nv = t * t\n")
    assert trace.outcome.kind == "finished"
