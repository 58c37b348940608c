"""Finds which indices a failed embedding lookup was given, and the names of its table and indices
(:func:`rows_asked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import find
from pitfall_lab.observe.live.object_kinds import is_own

MOST = 1 << 24
"""In how many indices the smallest and largest are searched at most."""


class RowsAsked(NamedTuple):
    """The range of the indices of a failed lookup, ``low`` to ``high``, and the number of rows of the table.

    ``numbers`` and ``table`` are the expressions for the tensor of indices and for the table, empty if no name leads to
    them.
    """

    low: int
    high: int
    rows: int
    numbers: str
    table: str


def rows_asked(namespace: Mapping[str, Any], numbers: Any, table: Any, budget: Budget) -> RowsAsked | None:
    """Return the range of the indices that a failed call was given for a lookup in a table, and the table's number of
    rows; ``None`` if all indices are in range, there are none or too many, or they cannot be read (as on a GPU).

    ``numbers`` (the indices, integers of any shape) and ``table`` (rows, length of a row) are the tensors of the failed
    call. ``namespace`` has the notebook's names and their objects. ``budget`` is the time limit of the search for
    names.
    """
    if not (is_own(numbers) and is_own(table)) or numbers.device.type != "cpu" or numbers.is_floating_point():
        return None
    if not 0 < numbers.numel() <= MOST or table.dim() < 1 or numbers.is_inference():
        return None
    values = numbers.numpy()
    low, high, rows = int(values.min()), int(values.max()), int(table.shape[0])
    if low >= 0 and high < rows:
        return None
    found = find(namespace, (), budget)
    named = (*found.tensors, *found.parameters)
    texts = {id(each.value): each.text for each in reversed(named)}
    return RowsAsked(low, high, rows, texts.get(id(numbers), ""), texts.get(id(table), ""))
