"""Finds the named tensors and arrays that share memory with a given one (:func:`tied`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path, Thing, find
from pitfall_lab.observe.live.inside import resolve
from pitfall_lab.observe.live.namespace_rows import Table, row_id
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.looking import unseen

MOST = 12
_SECONDS = 0.3


def tied(namespace: Mapping[str, Any], path: Path) -> list[tuple[str, Any]]:
    """Return the notebook's tensor or array at ``path``, then others that share its memory, as (expression, object), at
    most ``MOST`` (12).

    An empty list if there is none at ``path``, or it is a tensor of another class than Tensor and Parameter.
    ``namespace`` has the notebook's names and their objects.
    """
    with unseen():
        thing = resolve(namespace, path)
        if thing is None or thing.kind not in ("tensor", "array") or not _readable(thing):
            return []
        found = find(namespace, (), Budget(_SECONDS))
        table = Table({}, ())
        others = [
            each for each in (*found.tensors, *found.arrays, *found.parameters) if each.path != path and _readable(each)
        ]
        rows = [(each, table.row(each)) for each in (thing, *others)]
        table.share({})
        number = rows[0][1]["storage"]
        same = [
            each
            for each, row in rows[1:]
            if number is not None and row["storage"] == number and row["id"] != row_id(path)
        ]
        return [(each.text, each.value) for each in (thing, *same)][:MOST]


def _readable(thing: Thing) -> bool:
    return thing.kind == "array" or is_own(thing.value)
