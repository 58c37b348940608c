"""Finds the earlier cells to record together with a backward that has not been run yet, but is known to go wrong
(:func:`ahead`).
"""

from __future__ import annotations

import re
from typing import Any

from pitfall_lab.panel.cells_behind import Kind, behind
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.protocol import text

_ROOT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def ahead(root: str, runs: tuple[int | None, ...], ran: Ran, kind: Kind) -> dict[str, Any] | None:
    """Return the offer to record the earlier cells ``runs`` (their execution numbers, None for an unknown one) together
    with ``root.backward()``, as the panel sends it: ``cells`` (each with a number and an id), ``effects`` (what running
    them again changes) and ``root``.

    None if ``root`` is not a plain dotted name, if no cell has run, or if no earlier cells are found. ``kind`` returns
    the kind of a name's object (``tensor``, ``module``).
    """
    last = ran.last
    if last is None or not _ROOT.fullmatch(root):
        return None
    found = behind(Cell(last.count + 1, "", f"{root}.backward()"), ran, kind, runs)
    if found is None:
        return None
    cells = [{"count": each.count, "id": each.id} for each in found.cells]
    return {"cells": cells, "effects": text(found.effects), "root": root}
