"""Finds the rows of a tensor that a program selects by a NumPy array or a list, whose values a trace does not have
(:class:`Picks`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe.recorder import Call

PICKING = "torch.Tensor.__getitem__"
PLAIN = (torch.Tensor, torch.nn.Parameter)
KEPT = 128
"""How many rows of a table are considered at most: of a longer one, only every second, third … row."""
MOST = 1 << 20
"""How many entries an index may have to be examined."""
FOUND = 300


class PickedRows(NamedTuple):
    """Rows of a tensor that were selected by an index.

    ``steps`` are the steps of the calls that selected them; ``rows`` the selected rows, from 0, without repetition;
    only rows that are multiples of ``every`` are included (1: all).
    """

    steps: tuple[int, ...]
    every: int
    rows: tuple[int, ...]


@dataclass(slots=True)
class Picks:
    """Receives calls after they ran, and stores which rows of a tensor they selected: of the first ``FOUND`` (300)
    different selections.
    """

    _steps: dict[tuple[int, tuple[int, ...]], list[int]] = field(default_factory=dict)

    def after(self, call: Call, step: int) -> None:
        """Store the rows that the call at ``step`` has selected, if it is ``tensor[index]`` with an array or a list of
        integers (no uint8), or of one boolean for each row.

        Other calls are ignored, and so is an index of more than ``MOST`` (2^20) entries.
        """
        if call.name != PICKING or call.dispatching or len(call.args) != len(("table", "index")):
            return
        table, index = call.args
        if type(index) not in (np.ndarray, list) or type(table) not in PLAIN or not table.dim():
            return
        rows = _rows(index, len(table))
        if rows is None:
            return
        every = -(-len(table) // KEPT)
        kept = tuple(np.unique(rows[rows % every == 0]).tolist())
        if len(self._steps) < FOUND or (every, kept) in self._steps:
            self._steps.setdefault((every, kept), []).append(step)

    def finished(self) -> list[PickedRows]:
        """Return the selected rows, in the order of the first steps; an empty list if none were found."""
        return [PickedRows(tuple(steps), every, rows) for (every, rows), steps in self._steps.items()]


def _rows(index: Any, count: int) -> np.ndarray[Any, np.dtype[Any]] | None:
    """The selected rows, from 0; None if the index is neither a vector of integers nor one of a boolean for each
    row.
    """
    if not 0 < len(index) <= MOST or (type(index) is list and type(index[0]) not in (int, bool, np.int64)):
        return None
    given = np.asarray(index) if type(index) is np.ndarray or all(type(x) is type(index[0]) for x in index) else None
    if given is None or given.ndim != 1:
        return None
    if given.dtype.kind == "b":
        return np.flatnonzero(given) if len(given) == count else None
    is_whole = given.dtype.kind in "iu" and given.dtype != np.uint8  # which torch takes for truth values
    return np.where(given < 0, given + count, given) if is_whole else None
