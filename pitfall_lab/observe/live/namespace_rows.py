"""Makes the rows of the live panel, as plain dicts, one for each tensor, array, module, optimizer and so on in a
namespace (:func:`rows`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.object_kinds import class_name, dispatches, held_by, is_own, tables
from pitfall_lab.observe.live.saved import SavedRow
from pitfall_lab.observe.private import byte_bounds

Row = dict[str, Any]
SEPARATOR = "\x1f"
SAVERS = 20
_ARRAY = {name: vars(np.ndarray)[name].__get__ for name in ("shape", "dtype", "nbytes", "base")}
_BASE = {name: vars(torch.Tensor.__base__)[name].__get__ for name in ("shape", "dtype", "device")}


def row_id(path: Path) -> str:
    """Return the id of a row: the names and keys of its path, joined."""
    return SEPARATOR.join(path)


def blank(thing: Thing) -> Row:
    """Return a row that contains only the id, name, kind and type of an object; all other entries are empty, 0, None or
    False.
    """
    return {
        "id": row_id(thing.path),
        "name": thing.text[:200],
        "kind": thing.kind,
        "type": class_name(thing.value)[:80],
        "shape": None,
        "dtype": "",
        "device": "",
        "bytes": None,
        "storage": None,
        "version": None,
        "grad": "",
        "grad_fn": "",
        "has_grad": None,
        "stale": False,
        "saved_by": [],
        "changed": False,
        "new": False,
        "children": 0,
        "detail": None,
    }


class Table:
    """Makes the rows of the live panel after one cell, one for each tensor, module and so on that the notebook's names
    lead to.

    ``before`` is the attribute ``after`` of the previous table: for each row id the object's id, version, storage and
    so on, to see what has changed since. ``bound`` are the names that the last cell has bound, ``stale`` the ids of the
    rows whose backward would fail or use changed values.
    """

    def __init__(self, before: dict[str, tuple[Any, ...]], bound: Iterable[str], stale: Iterable[str] = ()) -> None:
        self._before, self._bound, self._stale = before, frozenset(bound), frozenset(stale)
        self.after: dict[str, tuple[Any, ...]] = {}
        self._memory: list[tuple[Row, Any, int, int]] = []
        self._by_tensor: dict[int, list[Row]] = {}

    def row(self, thing: Thing) -> Row:
        """Return the row of one object as plain data."""
        row = blank(thing)
        row["stale"] = row["id"] in self._stale
        version = None
        if thing.kind == "tensor":
            version = self._tensor(row, thing.value)
        elif thing.kind == "array":
            self._array(row, thing.value)
        elif thing.kind == "module":
            parameters, buffers, parts = tables(thing.value)
            row["children"] = len(parameters) + len(buffers) + len(parts)
        else:
            row["children"] = _held(thing)
        self._mark(row, thing, version)
        return row

    def _tensor(self, row: Row, tensor: torch.Tensor) -> int | None:
        if not is_own(tensor):
            if not dispatches(tensor):
                row["shape"] = [int(n) for n in _BASE["shape"](tensor)]
                row["dtype"], row["device"] = (
                    tensor_facts.dtype_name(_BASE["dtype"](tensor)),
                    tensor_facts.device_name(_BASE["device"](tensor)),
                )
            return None
        read = tensor_facts.read(tensor, stale=True)
        row["shape"], row["dtype"], row["device"] = list(read.shape), read.dtype, read.device
        if read.storage is None:
            return None
        row["bytes"] = math.prod(read.shape) * read.itemsize
        past = history(tensor, read.version)
        row["grad"] = past.state
        row["grad_fn"] = tensor_facts.node_name(past.node) if past.node is not None else ""
        if past.state == "leaf" or (past.state == "none" and not (read.is_view and read.version)):
            row["has_grad"] = tensor.grad is not None
        elif past.readable:
            row["has_grad"] = tensor.retains_grad and tensor.grad is not None
        self._memory.append((row, ("torch", read.storage), read.pointer, read.pointer + read.nbytes))
        self._by_tensor.setdefault(id(tensor), []).append(row)
        return read.version

    def _array(self, row: Row, array: np.ndarray) -> None:
        row["shape"], row["dtype"] = [int(n) for n in _ARRAY["shape"](array)], str(_ARRAY["dtype"](array))
        row["device"], row["bytes"] = "cpu", int(_ARRAY["nbytes"](array))
        if type(array) is np.ndarray and row["bytes"]:
            low, high = byte_bounds(array)
            owner = array
            while type(base := _ARRAY["base"](owner)) is np.ndarray:
                owner = base
            first, last = byte_bounds(owner)
            self._memory.append((row, ("numpy", id(owner)), min(low, first), max(high, last)))

    def _mark(self, row: Row, thing: Thing, version: int | None) -> None:
        """Mark the row as new or changed since the previous table, and store what the next table compares with."""
        memory = self._memory[-1][1] if self._memory and self._memory[-1][0] is row else None
        now = (id(thing.value), version, memory, tuple(row["shape"] or ()), row["children"], row["has_grad"])
        old = self._before.get(row["id"])
        known = (
            old is not None
            and old[0] == now[0]
            and not (len(thing.path) == 1 and thing.text in self._bound and old[2:4] != now[2:4])
        )
        row["new"] = not known
        row["changed"] = known and old != now
        if version is not None:
            row["version"] = [old[1] if old is not None and known and type(old[1]) is int else version, version]
        self.after[row["id"]] = now

    def share(self, numbers: dict[Any, int], *, unfolded: bool = False) -> None:
        """Give each storage that several rows share a number (``storage`` in the row); a storage that had a number
        keeps it.

        ``numbers`` has the numbers of the previous call, by the key of the storage; they are replaced by the current
        ones. ``unfolded``: the rows are shown inside other rows, whose numbers do not change; a row on the storage of
        one of those gets its number.
        """
        taken = set(numbers.values())
        free = (n for n in count(1) if n not in taken)
        kept = dict(numbers) if unfolded else {}
        for keys, rows in _groups(self._memory):
            known = [numbers[key] for key in keys if key in numbers]
            if len(rows) == 1 and not (unfolded and known):
                continue
            number = next((n for n in known if unfolded or n not in kept.values()), None) or next(free)
            kept.update(dict.fromkeys(keys, number))
            for row in rows:
                row["storage"] = number
        numbers.clear()
        numbers.update(kept)

    def saved(self, held: Sequence[SavedRow]) -> None:
        """Add to each tensor's row, in ``saved_by``, the nodes that have saved the tensor, at most :data:`SAVERS`
        (20).
        """
        for each in held:
            for row in self._by_tensor.get(id(each.kept.tensor), ()):
                if len(row["saved_by"]) < SAVERS:
                    version = each.version if each.version is not None else each.kept.version
                    row["saved_by"].append({"node": each.node, "version": version, "cell": each.made, "line": None})


def _groups(memory: Sequence[tuple[Row, Any, int, int]]) -> list[tuple[list[Any], list[Row]]]:
    """Return the groups of rows with one storage or with overlapping bytes: for each group the keys of its storages,
    and its rows.
    """
    by_key: dict[Any, list[Row]] = {}
    spans: dict[Any, tuple[int, int]] = {}
    for row, key, low, high in memory:
        by_key.setdefault(key, []).append(row)
        if high > low > 0:
            was = spans.get(key, (low, high))
            spans[key] = min(was[0], low), max(was[1], high)
    groups: list[tuple[list[Any], list[Row]]] = []
    end = 0
    for key in sorted(spans, key=lambda key: spans[key]):
        low, high = spans[key]
        if groups and low < end:
            groups[-1][0].append(key)
            groups[-1][1].extend(by_key[key])
        else:
            groups.append(([key], list(by_key[key])))
        end = max(end, high)
    return groups + [([key], rows) for key, rows in by_key.items() if key not in spans]


def _held(thing: Thing) -> int:
    """Return the number of entries of a list, tuple or dict, or of tensors in an optimizer's parameter groups."""
    if thing.kind == "group":
        return len(thing.value)
    return len(held_by(thing.value))


def rows(found: Found, table: Table, budget: Budget, first: int, most: int) -> tuple[list[Row], int]:
    """At most ``most`` rows of ``found.names``, from index ``first`` on, made by ``table`` until the time limit
    ``budget`` is exceeded; and how many names are left after them.

    ``found`` is what the notebook's names lead to.
    """
    made: list[Row] = []
    for thing in found.names[first : first + most]:
        if not budget.goes_on():
            break
        made.append(table.row(thing))
    return made, max(len(found.names) - first - len(made), 0) + found.more
