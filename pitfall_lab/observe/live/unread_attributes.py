"""Finds attributes that were set on parameters, modules and optimizers instead of the ones that torch reads
(:meth:`Attributes.compare`).

Python lets any attribute be set: ``p.require_grad = False`` is a typo, ``net.requires_grad = False`` only stores a flag
on a module, and ``optimizer.lr = 0.01`` a number that no step reads. An attribute is reported only while its value
differs from the one that torch uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, class_origin, inside, is_own, methods_name, tables

REQUIRES = "requires_grad"
NEAR = 0.85
_NUMBERS = (int, float, bool)
_Set = tuple[Thing, str, Any, str, Any]
RATES = {"learning_rate": "lr"}


class Unread(NamedTuple):
    """An attribute that was set on a tensor, module or optimizer (``kind``) and that torch does not read.

    ``name`` is the expression for the object, ``path`` the names and keys that lead to it; ``attribute`` was set to
    ``value``; torch reads ``meant``, whose value is ``present`` (both values as ``repr`` shows them). ``others`` counts
    further such objects, ``made`` is the number of the cell after which the attribute was first seen.
    """

    kind: str
    name: str
    path: Path
    attribute: str
    value: str
    meant: str
    present: str
    others: int
    made: int


class Attributes:
    """Remembers after which cell each attribute was first seen."""

    def __init__(self) -> None:
        self._came: dict[tuple[int, str], int] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> list[Unread]:
        """The attributes that torch does not read and whose values differ from those that it reads, one record for each
        kind of object and attribute; ``now`` is the number of the last cell.

        An empty list if there are none. ``found`` is what the notebook's names lead to, ``budget`` the time limit.
        """
        came: dict[tuple[int, str], int] = {}
        groups: dict[tuple[str, str], list[Unread]] = {}
        for thing, attribute, value, meant, present in _all(found, budget):
            at = id(thing.value), attribute
            if at in came:  # the same object under another name
                continue
            came[at] = self._came.get(at, now)
            one = Unread(thing.kind, thing.text, thing.path, attribute, repr(value), meant, repr(present), 0, came[at])
            groups.setdefault((thing.kind, attribute), []).append(one)
        self._came = came
        return [group[0]._replace(others=len(group) - 1) for group in groups.values()]


def _all(found: Found, budget: Budget) -> Iterator[_Set]:
    for kind, things in (
        (_of_tensor, (*found.parameters, *found.tensors)),
        (_of_module, found.modules),
        (_of_optimizer, found.optimizers),
    ):
        for thing in things:
            if not budget.goes_on():
                return
            yield from kind(thing)


def _of_tensor(thing: Thing) -> Iterator[_Set]:
    tensor = thing.value
    for name, value in _flags(object.__getattribute__(tensor, "__dict__")) if is_own(tensor) else ():
        if value is not tensor.requires_grad:
            yield thing, name, value, REQUIRES, tensor.requires_grad


def _of_module(thing: Thing) -> Iterator[_Set]:
    for module in _modules(thing):
        for name, value in _flags(inside(module.value, "module"), whole=True):
            states = {
                one.requires_grad for each in _modules(module) for one in tables(each.value)[0].values() if is_own(one)
            }
            if (not value) in states and not methods_name(module.value, name):
                yield module, name, value, REQUIRES, not value


def _modules(thing: Thing) -> list[Thing]:
    """A module and those inside it, each once."""
    work, seen = [thing], {id(thing.value)}
    for each in work:  # the list grows during the iteration
        for name, child in list(tables(each.value)[2].items()):
            if type(name) is str and Kinds().of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append(Thing((*each.path, name), f"{each.text}.{name}", "module", child))
    return work


def _of_optimizer(thing: Thing) -> Iterator[_Set]:
    if not class_origin(thing.value).startswith("torch.optim"):
        return
    table = inside(thing.value, "optimizer")
    groups = [each for each in table.get("param_groups") or () if type(each) is dict]
    for name, value in list(table.items()):
        meant = RATES.get(name, name)
        read = [each[meant] for each in groups if meant in each]
        if type(value) in _NUMBERS and read and all(type(each) in _NUMBERS and each != value for each in read):
            yield thing, name, value, meant, read[0]


def _flags(table: dict[str, Any], *, whole: bool = False) -> list[tuple[str, bool]]:
    """The boolean attributes with names similar to ``requires_grad``; with ``whole`` also the one of that name."""
    return [
        (name, value)
        for name, value in list(table.items())
        if type(value) is bool and type(name) is str and _is_near(name, whole=whole)
    ]


def _is_near(name: str, *, whole: bool) -> bool:
    if name == REQUIRES:
        return whole
    return abs(len(name) - len(REQUIRES)) < 5 and SequenceMatcher(None, name.lower(), REQUIRES).ratio() >= NEAR
