"""Each storage as its flat cells, and each tensor or NumPy array as a brush over them. :func:`project` returns them as
plain data.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NotRequired, TypedDict

from pitfall_lab.trace import T, Trace
from pitfall_lab.trace.state_types import Cell
from pitfall_lab.views.label_history import Facts, at, gather
from pitfall_lab.views.tabs import Tab

TAB = Tab(2, T(en="Storage", zh="存储"))

MAIN = 12
"""The number of storages that are drawn at first; "show all" draws the rest."""
BRUSHES = 40
"""The largest number of tensors drawn over one storage; the picture gives the number of those left out."""
SENT = 500
"""The largest number of storages sent to the browser; the picture gives the number of those left out."""
COLUMNS = 16
ENUMERATED = 4096
"""The largest number of elements of a tensor for which a brush names every index that reads a cell (at most
``LABELS``); for a larger one it names one.
"""
HISTORY = 400
LABELS = 4


class Cover(TypedDict):
    """Which cells of a storage a tensor reads.

    ``shape``, ``stride`` and ``offset`` are the tensor's (in elements). ``cover`` has, for each cell of the storage
    that is drawn, the indices of the tensor that read it, as texts; empty if none does.
    """

    shape: list[int]
    stride: list[int]
    offset: int
    cover: list[list[str]]


class Stroke(Cover):
    """Which cells of a storage a tensor reads from a step on; with ``gone``, none any more."""

    step: int
    gone: NotRequired[bool]
    counter: str | None
    alive: bool


class Brush(TypedDict):
    """A tensor or array over a storage."""

    tensor: str
    kind: str
    base: str | None
    history: list[Stroke]


class Values(TypedDict):
    """The drawn cells after a step that changed them."""

    step: int
    cells: list[Cell | None]


class Write(TypedDict):
    """A step that wrote a storage: which of the drawn cells it wrote (positions in ``columns``), ``by`` which tensor
    (its label; None if not known), and on which line.
    """

    step: int
    cells: list[int]
    by: str | None
    line: int | None


class Store(TypedDict):
    """A storage; ``columns`` are the flat indices that are drawn."""

    id: str
    size: int
    dtype: str
    nbytes: int | None
    born: int
    died: int | None
    columns: list[int]
    values: list[Values]
    writes: list[Write]
    brushes: list[Brush]
    left_out: int
    counters: list[str]
    main: bool


class StorageScene(TypedDict):
    """The storages in the order of their birth, of which ``main`` are drawn at first."""

    storages: list[Store]
    main: int
    left_out: int


def project(trace: Trace, facts: Facts | None = None) -> StorageScene:
    """The storages in order of creation, as plain data.

    A storage has ``columns``: the flat indices that are drawn (a gap between two of them means cells left out),
    ``values``: its cells after each step that changed them (in the columns' order), ``writes``: which columns each step
    wrote, and ``brushes``: for each tensor, what it covers from which step on. At most ``SENT`` storages are returned,
    those that matter most; ``left_out`` is the number of the others.
    """
    facts = facts or gather(trace)
    storages = [_storage(facts, label) for label in facts.storages]
    order = sorted(range(len(storages)), key=lambda i: _dullness(facts, storages[i]))
    for place in order[:MAIN]:
        storages[place]["main"] = True
    kept = [storages[place] for place in sorted(order[:SENT])]
    return {"storages": kept, "main": MAIN, "left_out": len(storages) - len(kept)}


def _dullness(facts: Facts, storage: Store) -> tuple[Any, ...]:
    """The sort key of a storage, lowest for the most interesting ones.

    First come those with a colour, then those with several tensors, those that were written, those with a name; then by
    creation.
    """
    named = any(facts.tensor(b["tensor"]).get("name") for b in storage["brushes"])
    return (
        storage["id"] not in facts.palette,
        len(storage["brushes"]) < 2,
        not storage["writes"],
        not named,
        storage["born"],
    )


def _storage(facts: Facts, label: str) -> Store:
    history = facts.storages[label]
    record: dict[str, Any] = next((r for _, r in reversed(history) if r), {})
    size = int(record.get("size") or 0)
    columns = _columns(size, history)
    brushes = [brush for t in facts.of_storage(label)[:BRUSHES] if (brush := _brush(facts, t, label, columns))]
    values = _values(history, columns)
    return {
        "id": label,
        "size": size,
        "dtype": record.get("dtype", "?"),
        "nbytes": record.get("nbytes"),
        "born": history[0][0],
        "died": next((s for s, r in history if r and r.get("alive") is False), None),
        "columns": columns,
        "values": values,
        "writes": _writes(facts, label, columns, brushes, values),
        "brushes": brushes,
        "left_out": len(facts.of_storage(label)) - len(facts.of_storage(label)[:BRUSHES]),
        "counters": list(dict.fromkeys(counter for b in brushes if (counter := b["history"][-1]["counter"]))),
        "main": False,
    }


def _columns(size: int, history: list[tuple[int, Any]]) -> list[int]:
    """The flat indices to draw, at most twice ``COLUMNS``.

    All of a small storage; else those whose values the trace has; else the first six and the last two.
    """
    if size <= COLUMNS:
        return list(range(size))
    kept = {i for _, r in history if r and isinstance(r.get("cells"), dict) for i, _ in r["cells"].get("shown", ())}
    kept = {i for i in kept if isinstance(i, int) and 0 <= i < size} or {*range(6), *range(size - 2, size)}
    return sorted(kept)[: 2 * COLUMNS]


def begins(storage: Store, offset: int, *, zh: bool = False) -> str:
    """A phrase for where a tensor begins on a storage: at this ``offset``, in elements. ``zh``: in Chinese.

    If a NumPy array is on the storage, it says "from cell" instead of "offset": a tensor on NumPy's memory has a
    storage of its own in torch, which may begin in the middle of the array, and its own offset counts from there.
    """
    if any(brush["kind"] == "array" for brush in storage["brushes"]):
        return f"从单元 {offset} 起" if zh else f"from cell {offset}"
    return f"offset {offset}"


def _values(history: list[tuple[int, Any]], columns: list[int]) -> list[Values]:
    """The drawn cells after each step that changed them, for the first ``HISTORY`` entries; None for an unknown
    cell.
    """
    out: list[Values] = []
    for step, record in history[:HISTORY]:
        cells = (record or {}).get("cells")
        known = dict(cells.get("shown", ())) if isinstance(cells, dict) else dict(enumerate(cells or ()))
        now = [known.get(i) for i in columns]
        if not out or out[-1]["cells"] != now:
            out.append({"step": step, "cells": now})
    return out


def _brush(facts: Facts, tensor: str, storage: str, columns: list[int]) -> Brush | None:
    history: list[Stroke] = []
    for step, record in facts.tensors[tensor]:
        here = bool(record) and record.get("storage") == storage
        if here:
            over, alive = _cover(record, columns), bool(record.get("alive", True))
            entry: Stroke = {
                "step": step,
                "shape": over["shape"],
                "stride": over["stride"],
                "offset": over["offset"],
                "cover": over["cover"],
                "counter": record.get("counter"),
                "alive": alive,
            }
        else:
            entry = {
                "step": step,
                "gone": True,
                "shape": [],
                "stride": [],
                "offset": 0,
                "cover": [],
                "counter": None,
                "alive": False,
            }
        if not history or {**history[-1], "step": step} != entry:
            history.append(entry)
    while history and history[0].get("gone"):
        history.pop(0)
    if not history:
        return None
    last = next(r for _, r in reversed(facts.tensors[tensor]) if r and r.get("storage") == storage)
    return {"tensor": tensor, "kind": last.get("kind", "tensor"), "base": last.get("base"), "history": history}


def _cover(record: dict[str, Any], columns: list[int]) -> Cover:
    """The drawn columns that a tensor reads, and by which indices.

    None of them if the tensor has another number of strides than of dimensions: its elements are not cells of this
    storage.
    """
    shape, stride, offset = (
        list(record.get("shape") or ()),
        list(record.get("stride") or ()),
        int(record.get("offset") or 0),
    )
    if len(stride) != len(shape):  # its elements are no cells of this storage
        return {"shape": shape, "stride": stride, "offset": offset, "cover": [[] for _ in columns]}
    cover = _indices(tuple(shape), tuple(stride), offset, tuple(columns))
    return {"shape": shape, "stride": stride, "offset": offset, "cover": cover}


@lru_cache(maxsize=4096)  # a step's gradients and moments all lie as their parameters do
def _indices(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, columns: tuple[int, ...]) -> list[list[str]]:
    """For each drawn column the indices that read it (at most ``LABELS``, then "…"); empty if the tensor does not read
    it.

    If no two indices read one cell, or the tensor has more than ``ENUMERATED`` elements, one index for each column.
    """
    if 0 in shape:
        return [[] for _ in columns]
    if not _overlap(shape, stride) or prod(shape) > ENUMERATED:
        return [[] if (found := _solve(shape, stride, column - offset)) is None else [found] for column in columns]
    readers: dict[int, list[str]] = {}
    for index in product(*(range(n) for n in shape)):
        cell = offset + sum(i * s for i, s in zip(index, stride, strict=True))
        names = readers.setdefault(cell, [])
        if len(names) < LABELS:
            names.append(_index(index))
        elif len(names) == LABELS:
            names.append("…")
    return [readers.get(c, []) for c in columns]


def _overlap(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two indices may read one cell: a stride is not larger than the extent of all axes with smaller
    strides.
    """
    reach = 0
    for step, n in sorted((abs(s), n) for s, n in zip(stride, shape, strict=True) if n > 1):
        if step <= reach:
            return True
        reach += step * (n - 1)
    return False


def _index(index: tuple[int, ...]) -> str:
    return str(index[0]) if len(index) == 1 else ",".join(map(str, index)) if index else "()"


def _solve(shape: tuple[int, ...], stride: tuple[int, ...], distance: int) -> str | None:
    """The index that reads the element ``distance`` elements after the tensor's first one; None if none does.

    It is found from the largest stride down, which is exact for tensors without overlap.
    """
    index = [0] * len(shape)
    # A negative stride is the same walk from the other end.
    distance -= sum((n - 1) * s for n, s in zip(shape, stride, strict=True) if s < 0)
    for d in sorted(range(len(shape)), key=lambda d: -abs(stride[d])):
        if stride[d]:
            steps = min(distance // abs(stride[d]), shape[d] - 1) if distance >= 0 else 0
            distance -= steps * abs(stride[d])
            index[d] = steps if stride[d] > 0 else shape[d] - 1 - steps
    return _index(tuple(index)) if distance == 0 else None


def _writes(facts: Facts, storage: str, columns: list[int], brushes: list[Brush], values: list[Values]) -> list[Write]:
    """For each of the first ``HISTORY`` writes, the drawn columns that it wrote.

    They are those that the writing tensor reads or, for an indexed write, those that changed. All columns if the
    writing tensor is not known.
    """
    out: list[Write] = []
    for step in facts.writes.get(storage, [])[:HISTORY]:
        event = facts.trace.events[step]
        writer = next(
            (o.label for o in event.operands if o.label and facts.tensor(o.label, step).get("storage") == storage), None
        )
        brush = next((b for b in brushes if b["tensor"] == writer), None)
        entry = _entry(brush, step)
        read = entry.get("cover", []) if entry is not None else []
        covered = [i for i, names in enumerate(read) if names] if brush else list(range(len(columns)))
        if (
            event.name in ("__setitem__", "index_put_", "masked_fill_", "index_fill_", "scatter_")
            or event.kind == "write"
        ):
            covered = _changed(values, step) or covered
        span = event.span
        out.append({"step": step, "cells": covered, "by": writer, "line": span.line if span else None})
    return out


def _entry(brush: Brush | None, step: int) -> Stroke | None:
    return at([(h["step"], h) for h in brush["history"]], step) if brush else None


def _changed(values: list[Values], step: int) -> list[int]:
    place = next((i for i, v in enumerate(values) if v["step"] == step), None)
    if not place:
        return []
    return [
        i for i, (a, b) in enumerate(zip(values[place - 1]["cells"], values[place]["cells"], strict=True)) if a != b
    ]
