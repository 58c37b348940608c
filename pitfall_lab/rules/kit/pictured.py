"""Facts that are drawn as the picture of a finding: who looks at what beside who should, and which rows meet beside
those that belong together.

Both are small: of many rows and columns only the first ones and the last are said. Nothing is said where what was seen
is what was meant, or where it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pitfall_lab.rules.kit.finding import Fact
from pitfall_lab.trace import T

MOST = 8
"""So many rows and columns are drawn."""
PAIRS = 6
"""So many pairs of rows are drawn."""

Answer = bool | None
"""Whether a position is looked at; None where that is not known."""


def looks(
    size: tuple[int, int],
    seen: Callable[[int, int], Answer],
    meant: Callable[[int, int], Answer],
    *,
    examples: bool = False,
) -> list[Fact]:
    """Return the fact, alone in a list, of who looks at what in an attention of ``size`` (rows that look × columns that
    are looked at); empty if nothing in it is looked at or left out wrongly. Of more than ``MOST`` rows or columns only
    the first ones and the last are asked for.

    ``seen`` and ``meant`` answer for a row and a column: True, False or None (unknown). A row is a position, or with
    ``examples`` all positions of an example. Each cell is one of ``"+"`` (looked at, rightly), ``"x"`` (wrongly),
    ``"o"`` (not, but should be), ``"."`` (rightly not) and ``"?"``. Rows and columns of which nothing is known are left
    out.
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
    """Return True for any place: the answer of an attention without a mask, or with one that hides nothing."""
    return True


def _cell(seen: Answer, meant: Answer) -> str:
    if seen is None or meant is None:
        return "?"
    return ("+" if meant else "x") if seen else ("o" if meant else ".")


def _shown(length: int) -> tuple[int, ...]:
    return tuple(range(length)) if length <= MOST else (*range(MOST - 1), length - 1)


def pairs(one: T, other: T, rows: Sequence[tuple[Any, Any, Any]], total: int | None = None) -> list[Fact]:
    """Return the fact, alone in a list, of what meets; empty if each pair is as it was meant.

    Each of ``rows`` says what it is of, what it met, and what was meant. ``one`` and ``other`` are the heads of the
    first two columns. At most ``PAIRS`` rows are kept, the first wrong one among them; ``total`` is the number of all,
    if ``rows`` are only some of them.
    """
    texts = [tuple(str(each) for each in row) for row in rows]
    wrong = next((at for at, (_, met, meant) in enumerate(texts) if met != meant), None)
    if wrong is None:
        return []
    first = max(0, wrong - PAIRS + 1)
    heads = tuple({"en": head.en, "zh": head.zh} for head in (one, other))
    shown = tuple(texts[first : first + PAIRS])
    return [Fact("pairs", {"heads": heads, "rows": shown, "more": max(0, (total or len(rows)) - len(shown))})]
