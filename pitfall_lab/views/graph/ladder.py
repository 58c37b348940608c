"""The ladder, for programs too long for cards: a row per step, a lane per storage that is still in use. :func:`ladder`
returns it as plain data.
"""

from __future__ import annotations

import heapq
from typing import Any, NotRequired, TypedDict

from pitfall_lab.views.folds import folds
from pitfall_lab.views.label_history import Facts

LANES = 24


class LoopTurns(TypedDict):
    """A folded loop: its number of iterations (``times``), and the number of events in one of them (``length``)."""

    times: int
    length: int


class Rung(TypedDict):
    """One row: a step with the lanes that it reads and makes.

    The first row of a folded loop has the loop's ``times`` and ``length`` (:class:`LoopTurns`).
    """

    step: int
    line: int | None
    op: str
    code: str
    reads: list[int]
    makes: list[int]
    storages: list[str]
    writes: bool
    error: bool
    times: NotRequired[int]
    length: NotRequired[int]


class Ladder(TypedDict):
    """The rows of the ladder, the number of its lanes, and where each storage and step is.

    ``lane_of`` is the lane of each storage by its label, ``row_of`` the row of each step. ``crowded`` is the number of
    storages without a lane of their own, which share the last one.
    """

    rows: list[Rung]
    lanes: int
    lane_of: dict[str, int]
    row_of: list[int]
    crowded: int


def ladder(facts: Facts) -> Ladder:
    """The ladder as plain data: a row per step, a lane per storage in use.

    A node that a backward runs has no row of its own unless it raised: it belongs to the row before. A storage keeps
    its lane from its first to its last use; then the lane is free for another one, so a program of 5,000 operations
    needs as many lanes as it has storages in use at once. Storages beyond ``LANES`` share the last lane and are counted
    in ``crowded``. A folded loop has only the rows of its first iteration, and ``times`` is the number of iterations.
    """
    trace = facts.trace
    home = {label: [r.get("storage") for _, r in history if r] for label, history in facts.tensors.items()}
    uses = [_uses(event, home) for event in trace.events]
    lane, count, crowded = _lanes(uses)
    hidden, heads = _folded(facts)
    rows: list[Rung] = []
    row_of: list[int] = []
    for event, (reads, makes) in zip(trace.events, uses, strict=True):
        if rows and (event.step in hidden or (event.kind == "node" and not event.error)):
            row_of.append(len(rows) - 1)
            continue
        row_of.append(len(rows))
        row: Rung = {
            "step": event.step,
            "line": facts.line(event.step),
            "op": event.name,
            "code": facts.code(event.step),
            "reads": sorted({lane[s] for s in reads}),
            "makes": sorted({lane[s] for s in makes}),
            "storages": [*makes, *reads][:6],
            "writes": bool(event.writes),
            "error": event.error is not None,
        }
        if event.step in heads:
            row["times"], row["length"] = heads[event.step]["times"], heads[event.step]["length"]
        rows.append(row)
    return {"rows": rows, "lanes": count, "lane_of": lane, "row_of": row_of, "crowded": crowded}


def _uses(event: Any, home: dict[str, list[str | None]]) -> tuple[list[str], list[str]]:
    made = [
        p[1] for e in event.effects if len(p := e.path.split(".")) == 2 and p[0] == "storages" and e.value is not None
    ]
    makes = list(dict.fromkeys([*made, *event.writes]))
    reads = [s for o in event.operands if o.label in home for s in home[o.label][-1:] if s and s not in makes]
    reads += [s for label in event.results for s in home.get(label, [])[-1:] if s and s not in makes]
    return list(dict.fromkeys(reads)), makes


def _lanes(uses: list[tuple[list[str], list[str]]]) -> tuple[dict[str, int], int, int]:
    last = {storage: step for step, (reads, makes) in enumerate(uses) for storage in (*reads, *makes)}
    lane: dict[str, int] = {}
    free: list[int] = []
    ends: list[tuple[int, int]] = []
    count = crowded = 0
    for step, (reads, makes) in enumerate(uses):
        while ends and ends[0][0] < step:
            heapq.heappush(free, heapq.heappop(ends)[1])
        for storage in (*makes, *reads):
            if storage in lane:
                continue
            if not free and count >= LANES:
                lane[storage] = LANES - 1
                crowded += 1
                continue
            if not free:
                heapq.heappush(free, count)
                count += 1
            lane[storage] = heapq.heappop(free)
            heapq.heappush(ends, (last[storage], lane[storage]))
    return lane, count, crowded


def _folded(facts: Facts) -> tuple[set[int], dict[int, LoopTurns]]:
    """The steps that folded loops hide, and for the first step of each fold its number and length of iterations.

    Steps with errors, forecasts or wrong gradients are never hidden.
    """
    hidden: set[int] = set()
    heads: dict[int, LoopTurns] = {}
    for fold in folds(facts.trace):
        first, length, times = fold["first"], fold["length"], fold["times"]
        heads[first] = {"times": times, "length": length}
        for step in range(first + length, first + length * times):
            event = facts.trace.events[step]
            if not event.error and not event.forecasts and not event.harms:
                hidden.add(step)
    return hidden, heads
