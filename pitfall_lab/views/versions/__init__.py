"""One track per version counter: its bumps, what was saved at which version, and what a bump broke. :func:`project`
returns the tracks as plain data.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Any, TypedDict

from pitfall_lab.trace import T, Trace
from pitfall_lab.views.encoding import cut, width_of
from pitfall_lab.views.label_history import Facts, at, gather
from pitfall_lab.views.tabs import Tab

TAB = Tab(4, T(en="Versions", zh="版本"))

MAIN = 12
SENT = 500
"""The largest number of tracks sent to the browser; the picture gives the number of those left out."""
COLUMN = 44.0
"""A column's width in px."""
COLUMNS = 60
"""The largest number of steps with a column each; longer programs show only the steps that increase a
version, save, write or raise.
"""


class Pin(TypedDict):
    """A tensor that a node saved at a version of a counter.

    ``stale``, ``freed``, ``broken`` and ``wrong`` are the steps at which its version changed, the node freed it, torch
    refused it, and it was used with a wrong value (None: never); ``changed`` is the write behind a wrong value.
    """

    step: int
    node: str
    changed: int | None
    title: str
    slot: str
    tensor: str | None
    version: int
    stale: int | None
    freed: int | None
    broken: int | None
    wrong: int | None
    level: int


Bump = TypedDict("Bump", {"step": int, "from": int, "to": int})
"""A step that increased a version."""


class Track(TypedDict):
    """One version counter, with the tensors that count with it and its storage: ``bumps`` are the steps that increased
    it, ``pins`` the saved tensors that remember one of its versions, and ``silent`` the steps that wrote its storage
    without increasing it.
    """

    counter: str
    storage: str | None
    tensors: list[str]
    born: int
    start: int
    bumps: list[Bump]
    pins: list[Pin]
    silent: list[int]
    shared: list[str]
    arrays: bool
    end: int | None
    main: bool


class VersionsScene(TypedDict):
    """The version counters, and the steps that have a column."""

    tracks: list[Track]
    columns: list[int]
    steps: int
    left_out: int


def project(trace: Trace, facts: Facts | None = None) -> VersionsScene:
    """The tracks of version counters in order of creation, as plain data.

    ``columns`` are the steps that have a column on the time axis. A track has ``bumps`` (step, from, to), ``pins``
    (saved tensors: step, version, and the steps at which each became ``stale``, was freed, was refused (``broken``) or
    used ``wrong``) and ``silent``: steps that wrote its storage without increasing the counter while a tensor or node
    used it. At most ``SENT`` tracks are returned, those that matter most; ``left_out`` is the number of the others.
    """
    facts = facts or gather(trace)
    pins = _pins(facts)
    tracks = [
        _track(facts, counter, pins.get(counter, []))
        for counter in facts.counters
        if facts.counters[counter][-1][1] is not None
    ]
    telling = sum(1 for t in tracks if t["bumps"] or t["pins"] or t["silent"])
    order = sorted(range(len(tracks)), key=lambda i: _dullness(tracks[i], facts))
    for place in order[: min(MAIN, telling or 4)]:
        tracks[place]["main"] = True
    kept = [tracks[place] for place in sorted(order[:SENT])]
    columns = _columns(facts, kept)
    for track in kept:
        _stack(track["pins"], columns)
    return {"tracks": kept, "columns": columns, "steps": len(trace.events), "left_out": len(tracks) - len(kept)}


def _stack(pins: list[Pin], columns: list[int]) -> None:
    """Set each pin's ``level`` above the track, so that the labels of neighbouring pins do not overlap."""
    ends: list[float] = []
    for pin in pins:
        half = width_of(pin_text(pin), 12) / COLUMN / 2 + 0.1
        middle = bisect_right(columns, pin["step"]) - 1
        level = next((i for i, end in enumerate(ends) if end <= middle - half), len(ends))
        ends[level : level + 1] = [middle + half]
        pin["level"] = level


def pin_text(pin: Pin) -> str:
    """The label of a saved tensor in a counter's track: the node, the name of the slot, and the version at saving.

    >>> pin_text({"node": "n2", "slot": "result", "version": 0})  # type: ignore[typeddict-item]
    'n2.result v0'
    """
    return f"{pin['node']}.{cut(str(pin['slot']), 10)} v{pin['version']}"


def _dullness(track: Track, facts: Facts) -> tuple[Any, ...]:
    broken = any(p["broken"] is not None or p["wrong"] is not None for p in track["pins"])
    return (
        not broken,
        not (track["bumps"] or track["silent"]),
        not track["pins"],
        track["storage"] not in facts.palette,
        track["born"],
    )


def _pins(facts: Facts) -> dict[str, list[Pin]]:
    pins: dict[str, list[Pin]] = {}
    for label, history in facts.nodes.items():
        seen: set[tuple[Any, ...]] = set()
        for step, record in history:
            for slot in (record or {}).get("saved", ()):
                key = (slot.get("name"), slot.get("counter"), slot.get("version"))
                if slot.get("counter") and key not in seen:
                    seen.add(key)
                    pins.setdefault(slot["counter"], []).append(_pin(facts, label, step, slot, history))
    return pins


def _pin(facts: Facts, node: str, step: int, slot: dict[str, Any], history: list[tuple[int, Any]]) -> Pin:
    bumps = facts.counters.get(slot["counter"], [])
    record = history[-1][1] or {}
    wrong = facts.wrong.get((node, str(slot.get("name"))))
    return {
        "step": step,
        "node": node,
        "changed": next((s for s in facts.writes.get(slot.get("storage") or "", []) if s > step), None)
        if wrong is not None
        else None,
        "title": record.get("name", node),
        "slot": str(slot.get("name")),
        "tensor": slot.get("tensor"),
        "version": int(slot.get("version") or 0),
        "stale": next((s for s, v in bumps if s > step and v != slot.get("version")), None),
        "freed": next((s for s, r in history if r and r.get("freed")), None),
        "broken": facts.broken.get((node, str(slot.get("name")))),
        "wrong": wrong,
        "level": 0,
    }


def _track(facts: Facts, counter: str, pins: list[Pin]) -> Track:
    history = facts.counters[counter]
    bumps: list[Bump] = [{"step": s, "from": old, "to": new} for (_, old), (s, new) in pairwise(history) if new != old]
    tensors = facts.of_counter(counter)
    storage = next(
        (r["storage"] for t in tensors for _, r in reversed(facts.tensors[t]) if r and r.get("counter") == counter),
        None,
    )
    bumped = {b["step"] for b in bumps}
    silent = [
        s
        for s in facts.writes.get(storage or "", [])
        if s not in bumped and s > history[0][0] and _minds(facts, counter, tensors, pins, s)
    ]
    others = {
        r.get("counter") for t in (facts.of_storage(storage) if storage else []) for _, r in facts.tensors[t] if r
    }
    return {
        "counter": counter,
        "storage": storage,
        "tensors": tensors,
        "born": history[0][0],
        "start": history[0][1],
        "bumps": bumps,
        "pins": pins,
        "silent": silent,
        "shared": sorted(str(c) for c in others - {counter, None}),
        "arrays": None in others,
        "end": at(history),
        "main": False,
    }


def _minds(facts: Facts, counter: str, tensors: list[str], pins: list[Pin], step: int) -> bool:
    """Whether an uncounted write at ``step`` concerns this counter: a living tensor has it, or a node saved one and is
    not freed.
    """
    if any(pin["step"] < step and (pin["freed"] is None or pin["freed"] > step) for pin in pins):
        return True
    return any((record := facts.tensor(t, step)).get("alive") and record.get("counter") == counter for t in tensors)


def _columns(facts: Facts, tracks: list[Track]) -> list[int]:
    events = facts.trace.events
    errors = [e.step for e in events if e.error]
    shown = {s for t in tracks for s in _steps_of(t)} | set(errors)
    calls = [e.step for e in events if e.kind != "node" or e.step in shown]
    if len(calls) <= COLUMNS:
        return calls
    if len(shown) < COLUMNS // 2:  # a quiet program: the births and pins of the tracks that are drawn
        extra = sorted({s for t in tracks if t["main"] for s in (t["born"], *(p["step"] for p in t["pins"]))} - shown)
        shown |= set(extra[: COLUMNS - len(shown)]) | {len(events) - 1}
    return sorted(s for s in shown if 0 <= s < len(events))


def _steps_of(track: Track) -> set[int]:
    steps = {b["step"] for b in track["bumps"]} | set(track["silent"])
    for pin in track["pins"]:
        if track["bumps"] or track["silent"]:
            steps |= {s for s in (pin["step"], pin["broken"], pin["wrong"]) if s is not None}
    return steps


def marks(track: Track) -> set[int]:
    """The steps at which a track has something to draw."""
    steps = {b["step"] for b in track["bumps"]} | set(track["silent"]) | {p["step"] for p in track["pins"]}
    return steps | {step for p in track["pins"] for step in (p["broken"], p["wrong"]) if step is not None}
