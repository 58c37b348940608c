"""Finds the earlier cells that computed what a failed cell uses; recorded together with it, they show where the failure
began (:func:`behind`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.side_effects import side_effects
from pitfall_lab.panel.written_names import changed
from pitfall_lab.trace import T

MOST = 8
"""How many cells are offered at most; with more, running the notebook from its top is better."""
Kind = Callable[[str], str]
"""The kind of the object that a name has now: ``tensor``, ``module``, …; empty for other objects."""


class Behind(NamedTuple):
    """Earlier runs of cells to repeat before a failed cell, oldest first (``cells``), and a sentence, in English and
    Chinese, on what running them again changes (``effects``).
    """

    cells: tuple[Cell, ...]
    effects: T


def behind(failed: Cell, ran: Ran, kind: Kind, known: Iterable[int | None] = ()) -> Behind | None:
    """The earlier runs of cells in ``ran`` to repeat before the failed run ``failed``; None if there are none, or more
    than :data:`MOST`, or if a run in ``known`` is not among them. ``kind`` returns the kind of a name's object.

    ``known`` are the numbers of runs that are known to matter: the one that created a graph, and the one that changed a
    tensor saved in it; None in it is ignored. Runs that are not ``whole`` are left out.
    """
    runs = [each for each in ran.since(0) if each.count != failed.count and each.whole]
    sure = {count for count in known if count is not None and count != failed.count}
    chosen = _back(failed, runs, sure, kind)
    if chosen and not {each.count for each in chosen} >= sure:
        return None
    text = "\n".join(each.text for each in (*chosen, failed))
    chosen = [*_restoring(changed(text), chosen, runs, kind), *chosen] if chosen else []
    if not chosen or len(chosen) > MOST:
        return None
    return Behind(tuple(chosen), side_effects("\n".join(each.text for each in (*chosen, failed))))


def _back(failed: Cell, runs: list[Cell], sure: set[int], kind: Kind) -> list[Cell]:
    """Return the runs that computed the names which the failed cell uses, searched from the last run back to the first
    one in ``sure``.
    """
    wanted, chosen = failed.flow[0], list[Cell]()
    for run in reversed(runs):
        if sure and run.count < min(sure):
            break
        reads = run.flow[0]
        makes = wanted & (run.bound | run.written)
        between = bool(sure) and run.succeeded and (bool(makes) or ".backward(" in run.text)
        computes = (
            run.succeeded
            and any(kind(name) == "tensor" for name in makes)
            and any(kind(name) in _USED for name in reads)
        )
        if run.count in sure or between or computes:
            chosen.insert(0, run)
            wanted = (wanted - run.bound) | reads
    return chosen


_USED = ("tensor", "module")


def _restoring(names: list[str], chosen: list[Cell], runs: list[Cell], kind: Kind) -> list[Cell]:
    """Return the runs that bind the ``names``, which the chosen runs change, so that these start from the same
    values.
    """
    earlier = [run for run in runs if run.count < chosen[0].count and run.succeeded]
    found = {}
    for name in names:
        run = next((each for each in reversed(earlier) if name in each.bound), None)
        if (
            run is not None
            and kind(name) in ("tensor", "")
            and not any(kind(each) in ("module", "optimizer") for each in run.bound)
        ):
            found[run.count] = run
    return [found[count] for count in sorted(found)]
