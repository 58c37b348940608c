"""Finds lists whose elements all share one block of memory: the same tensor or array was appended again and again, and
no copy of it (:func:`one_memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.kept_references import address

LEAST = 4
"""How many elements must share one block; fewer may be a coincidence."""


class OneMemory(NamedTuple):
    """A list, tuple or dict with integer keys whose ``length`` elements (of those that were searched) are one block of
    memory, or hold the same block at the same key.

    ``kind`` is what they share: ``tensor`` or ``array``. ``name`` is the expression for the list, ``path`` the names
    and keys that lead to it.
    """

    name: str
    path: Path
    kind: str
    length: int


def one_memory(found: Found, budget: Budget) -> list[OneMemory]:
    """The lists, tuples and dicts with integer keys whose tensors or arrays (at least ``LEAST`` that were found) are
    all one block of memory; at most one for each name.

    A list of tuples or dicts counts if the tensors at one index or key of them are one block of memory. A list of
    tensors that require grad never counts, and one that contains a single tensor object several times only if this was
    written in place. ``found`` is what the notebook's names lead to, ``budget`` the time limit.
    """
    lists: dict[tuple[str, Path], list[Thing]] = {}
    for thing in (*found.tensors, *found.arrays):
        place = next((at for at in range(1, len(thing.path)) if thing.path[at].isdecimal()), 0)
        if place:
            lists.setdefault((thing.path[0], (*thing.path[1:place], "", *thing.path[place + 1 :])), []).append(thing)
    made: dict[str, OneMemory] = {}
    for (name, _), things in lists.items():
        if len(things) >= LEAST and name not in made and budget.goes_on() and _is_one(things):
            at = next(at for at in range(1, len(things[0].path)) if things[0].path[at].isdecimal())
            text = things[0].text[: things[0].text.find(f"[{things[0].path[at]}]")]
            made[name] = OneMemory(text, things[0].path[:at], things[0].kind, len(things))
    return list(made.values())


def _is_one(things: Sequence[Thing]) -> bool:
    """Whether all have one address and shape; a tensor object that occurs several times counts only if it was written
    in place.
    """
    first = things[0]
    where = address(first)
    if not where or any(address(each) != where or each.value.shape != first.value.shape for each in things[1:]):
        return False
    # One tensor that no operation has written into may well be in a list many times.
    return len({id(each.value) for each in things}) == len(things) or first.kind == "array" or first.value._version > 0
