"""Finds objects whose class a cell has defined again, with other methods (:meth:`Classes.compare`).

Such an object keeps the methods of the earlier definition. The methods of each class after each cell are stored as
hashes of their code; the objects are searched only once a class has other methods than before. No code of an object is
run.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, is_shown
from pitfall_lab.observe.live.held_functions import code_mark, entries
from pitfall_lab.observe.live.object_kinds import Kinds, class_origin

DEPTH = 4
SHOWN_ONLY = frozenset({"__repr__", "__str__", "extra_repr"})
"""Methods that compute nothing: a change of one of these does not make an object outdated."""
_OF_DATA = "torch.utils.data."
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_class_name = type.__dict__["__name__"].__get__
_Marks = dict[str, int]


class OutdatedObject(NamedTuple):
    """An object of an earlier definition of the class ``name``. Cells are given by their numbers.

    ``text`` is the expression for the object, ``path`` the names and keys that lead to it, ``roots`` all names from
    which it is reached. Cell ``made`` defined its class (None: unknown), ``since`` was the first that defined the class
    with other ``methods``, ``again`` the last. ``others`` are the expressions of further such objects, ``newer`` the
    paths of objects whose methods are those of the present class. ``is_data``: it is a ``Dataset`` or ``DataLoader``;
    ``is_module``: a ``torch.nn.Module``; ``is_lambda`` is always False (see :class:`HeldFunction`).
    """

    name: str
    text: str
    path: Path
    roots: frozenset[str]
    made: int | None
    since: int
    again: int
    methods: tuple[str, ...]
    others: tuple[str, ...]
    newer: tuple[Path, ...]
    is_data: bool
    is_module: bool
    is_lambda: bool = False


class _FoundObject(NamedTuple):
    """An object of a class of the notebook with the expression and path by which it was reached; holds references, so
    it must not be kept.
    """

    text: str
    path: Path
    value: Any


class Classes:
    """Remembers, as hashes of code, the methods of the notebook's classes after each cell."""

    def __init__(self) -> None:
        self._marks: dict[str, tuple[_Marks, int]] = {}
        """For the name of each class: the marks of its methods, and the cell that defined these."""
        self._replaced: dict[str, tuple[int, int, int]] = {}
        """For the name of each class that was defined anew: the cell of the first definition, of the first that had
        other methods, and of the last.
        """
        self._found: list[OutdatedObject] = []

    def compare(self, found: Found, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[OutdatedObject]:
        """The objects of earlier definitions, one record for each class; ``now`` is the number of the last cell.

        An empty list if there are none; the findings of the previous call if the time limit ``budget`` is exceeded.
        ``namespace`` has the notebook's names and their objects, ``found`` is what they lead to.
        """
        classes = _own_classes(namespace, budget)
        if classes is None:
            return self._found
        for name, cls in classes.items():
            marks, before = _marks(cls), self._marks.get(name)
            if before is not None and _differ(before[0], marks):
                first, since, _ = self._replaced.get(name, (before[1], now, now))
                self._replaced[name] = first, since, now
            same = before is not None and before[0] == marks
            self._marks[name] = marks, before[1] if same and before is not None else now
        if not self._replaced:
            return []
        met = list(_objects(found, namespace, set(self._replaced), budget))
        if budget.spent:
            return self._found
        self._found = [
            each
            for name in self._replaced
            if name in classes and (each := self._outdated(name, classes[name], met)) is not None
        ]
        return self._found

    def _outdated(self, name: str, cls: type, met: list[_FoundObject]) -> OutdatedObject | None:
        old, newer, methods = dict[int, list[_FoundObject]](), list[Path](), tuple[str, ...]()
        marks = self._marks[name][0]
        for each in met:
            own = type(each.value)
            if str(_class_name(own)) != name:
                continue
            differing = () if own is cls else _differ(_marks(own), marks)
            if differing:
                old.setdefault(id(each.value), []).append(each)
                methods = methods or differing
            else:
                newer.append(each.path)
        if not old:
            return None
        shown = [min(places, key=lambda each: len(each.path)) for places in old.values()]
        roots = frozenset(each.path[0] for places in old.values() for each in places)
        first, (made, since, again) = shown[0], self._replaced[name]
        others = tuple(each.text for each in shown[1:])
        bases = _mro(type(first.value))
        is_data = any(each is Dataset or each is DataLoader for each in bases)
        is_module = any(each is torch.nn.Module for each in bases)
        return OutdatedObject(
            name, first.text, first.path, roots, made, since, again, methods, others, tuple(newer), is_data, is_module
        )


def _own_classes(namespace: Mapping[str, Any], budget: Budget) -> dict[str, type] | None:
    """The classes of the notebook, by name; None if the time limit is exceeded."""
    classes: dict[str, type] = {}
    for name in list(namespace):
        if not budget.goes_on():
            return None
        value: Any = namespace.get(name) if type(name) is str and is_shown(name) else None
        # by identity: a metaclass may have an ``__eq__`` of its own
        is_class = any(each is type for each in _mro(type(value)))
        is_class = is_class and _is_main(_class_dict(value).get("__module__"))
        if is_class and _class_name(value) == name:
            classes[name] = value
    return classes


def _is_main(module: Any) -> bool:
    return type(module) is str and module == "__main__"


def _marks(cls: type) -> _Marks:
    """The hash of each method that a class defines itself."""
    return {
        name: code_mark(function)
        for name, each in list(_class_dict(cls).items())
        if type(function := each.__func__ if type(each) is staticmethod or type(each) is classmethod else each)
        is types.FunctionType
    }


def _differ(one: _Marks, other: _Marks) -> tuple[str, ...]:
    """The names of the methods that both have and whose code differs, without those of :data:`SHOWN_ONLY`."""
    return tuple(name for name in one if name not in SHOWN_ONLY and other.get(name, one[name]) != one[name])


def _objects(found: Found, namespace: Mapping[str, Any], names: set[str], budget: Budget) -> Iterator[_FoundObject]:
    """The objects of classes with these names, once for each name of the notebook that leads to them."""
    kinds = Kinds()
    for layer in found.layers:
        if str(_class_name(type(layer.value))) in names:
            yield _FoundObject(layer.text, layer.path, layer.value)
    for name in list(namespace):
        if type(name) is not str or not is_shown(name):
            continue
        seen = set[int]()
        work: list[tuple[Path, str, Any, int]] = [((name,), name, namespace.get(name), DEPTH)]
        for path, text, value, depth in work:  # the list grows during the iteration
            if not budget.goes_on():
                return
            kind = kinds.of(value)
            is_own = kind in ("object", "group") or (not kind and class_origin(value).startswith(_OF_DATA))
            if not is_own or id(value) in seen:
                continue
            seen.add(id(value))
            if kind == "object" and str(_class_name(type(value))) in names:
                yield _FoundObject(text, path, value)
            if depth:
                inner = entries(value, text, is_group=kind == "group")
                work += [((*path, key), shown, each, depth - 1) for key, shown, each in inner]
