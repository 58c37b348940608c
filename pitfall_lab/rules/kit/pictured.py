"""Facts that are drawn as the picture of a finding: which positions attend to which (and which should), and which rows
meet in an operation (and which should).

Both are small: of many rows and columns only the first ones and the last one are given. There is no fact if what was
observed is what was expected, or if it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pitfall_lab.rules.kit.finding import Fact
from pitfall_lab.trace import T

MOST = 8
"""How many rows and columns are drawn at most."""
PAIRS = 6
"""How many pairs of rows are drawn at most."""

Answer = bool | None
"""Whether a position is attended to; None if unknown."""


def looks(
    size: tuple[int, int],
    seen: Callable[[int, int], Answer],
    meant: Callable[[int, int], Answer],
    *,
    examples: bool = False,
) -> list[Fact]:
    """Return a list with the one fact that shows which positions attend to which, in an attention of ``size`` (query
    rows × key columns); empty if no cell is wrongly attended to or wrongly left out.

    ``seen`` (observed) and ``meant`` (expected) answer for a row and a column: True, False or None (unknown). Of more
    than ``MOST`` rows or columns, they are asked only for the first ones and the last. A row is a position or, with
    ``examples``, all positions of an example. Each cell is ``"+"`` (rightly attended to), ``"x"`` (wrongly attended
    to), ``"o"`` (should be attended to, but is not), ``"."`` (rightly not attended to) or ``"?"`` (unknown). Rows and
    columns of which nothing is known are left out.
    """
    rows, columns = (_shown(length) for length in size)
    found = {(r, c): _cell(seen(r, c), meant(r, c)) for r in rows for c in columns}
    if not {"x", "o"} & set(found.values()):
        return []
    rows = tuple(r for r in rows if any(found[r, c] != "?" for c in columns))
    columns = tuple(c for c in columns if any(found[r, c] != "?" for r in rows))
    cells = tuple("".join(found[r, c] for c in columns) for r in rows)
    return [Fact("looks", {"of": size, "rows": rows, "columns": columns, "cells": cells, "examples": examples})]


def everything(*_: int) -> bool:
    """Return True for any position: the answer of an attention without a mask, or with a mask that hides nothing."""
    return True


def _cell(seen: Answer, meant: Answer) -> str:
    if seen is None or meant is None:
        return "?"
    return ("+" if meant else "x") if seen else ("o" if meant else ".")


def _shown(length: int) -> tuple[int, ...]:
    return tuple(range(length)) if length <= MOST else (*range(MOST - 1), length - 1)


def pairs(one: T, other: T, rows: Sequence[tuple[Any, Any, Any]], total: int | None = None) -> list[Fact]:
    """Return a list with the one fact that shows which rows met in an operation; empty if each met the expected one.

    Each of ``rows`` consists of a row's name, what it met, and what it should have met. ``one`` and ``other`` are the
    headings of the first two columns. At most ``PAIRS`` rows are kept, among them the first wrong one; ``total`` is the
    number of all rows if ``rows`` are only some of them.
    """
    texts = [tuple(str(each) for each in row) for row in rows]
    wrong = next((at for at, (_, met, meant) in enumerate(texts) if met != meant), None)
    if wrong is None:
        return []
    first = max(0, wrong - PAIRS + 1)
    heads = tuple({"en": head.en, "zh": head.zh} for head in (one, other))
    shown = tuple(texts[first : first + PAIRS])
    return [Fact("pairs", {"heads": heads, "rows": shown, "more": max(0, (total or len(rows)) - len(shown))})]
