"""Finds the tensors, arrays, modules and optimizers in a notebook's namespace, also inside lists, dicts and modules
(:func:`find`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.object_kinds import Kind, Kinds, inside, tables

ELEMENTS = 256
"""How many elements of one list or dict are searched at most."""
DEPTH = 3
MANY = 1000
"""In a namespace with more names than this, the names that the last cell has bound are searched first."""
OF_MODULES = frozenset(vars(torch.nn.Module()))
"""The attributes that torch gives to each module."""
NOT_SHOWN = frozenset({"In", "Out", "exit", "quit", "open", "get_ipython"})
Path = tuple[str, ...]


class Thing(NamedTuple):
    """An object that was found: ``value``. ``path`` are its name in the namespace and the keys or attributes that lead
    from there to it, as strings; ``text`` is the expression for it. ``kind`` is ``tensor``, ``array``, ``module``,
    ``optimizer``, ``group`` (a list, tuple or dict) or ``object`` (of a class of the notebook).
    """

    path: Path
    text: str
    kind: Kind
    value: Any


@dataclass(slots=True)
class Found:
    """The result of one search. It holds references to the objects, so it must not be kept.

    ``arrays``, ``modules`` and ``optimizers`` are those that were found by a name, or in a list, tuple, dict or object;
    a module that was found inside another one is only in ``layers``. ``tensors`` and ``arrays`` may contain an object
    several times, under different paths.
    """

    names: list[Thing] = field(default_factory=list)
    """The values of names that get a row, in the order of the names."""
    tensors: list[Thing] = field(default_factory=list)
    """Every tensor that was found, without the parameters and buffers of modules."""
    arrays: list[Thing] = field(default_factory=list)
    modules: list[Thing] = field(default_factory=list)
    layers: list[Thing] = field(default_factory=list)
    """The modules and those inside them, each once, with the first path that leads to it."""
    optimizers: list[Thing] = field(default_factory=list)
    parameters: list[Thing] = field(default_factory=list)
    """Parameters and buffers of modules, each once, with the first path that leads to it."""
    more: int = 0
    """How many names were not searched."""
    hidden: bool = False
    """Whether some object may contain more objects than were searched."""


def find(namespace: Mapping[str, Any], first: Iterable[str], budget: Budget) -> Found:
    """Search a namespace until the time limit ``budget`` is exceeded; ``first`` are the names to begin with if there
    are more than :data:`MANY`. Names that begin with ``_``, and IPython's own, are left out.
    """
    search = _Search(budget)
    looked: set[str] = set()
    urgent = [each for each in first if each in namespace] if len(namespace) > MANY else []
    urgent.sort(
        key=lambda name: search.is_deep(namespace[name])
    )  # one list with much in it must not take the others' time
    for name in chain(urgent, list(namespace)):
        if type(name) is not str or name in looked:
            continue
        if not budget.goes_on():
            search.found.more = max(len(namespace) - len(looked), 0)
            break
        looked.add(name)
        if is_shown(name):
            search.name(name, namespace.get(name))
    return search.found


def is_shown(name: str) -> bool:
    """Whether a name is the notebook's own: not private, and not one of IPython's."""
    return not name.startswith("_") and name not in NOT_SHOWN


class _Search:
    """One search of a namespace: what it has found so far (``found``), and which objects it has visited."""

    def __init__(self, budget: Budget) -> None:
        self.found = Found()
        self._budget, self._kinds, self._seen = budget, Kinds(), dict[int, bool]()

    def is_deep(self, value: Any) -> bool:
        """Whether the object may contain many others: a list, a dict, or an object of the notebook's own classes."""
        return self._kinds.of(value) in ("group", "object")

    def name(self, name: str, value: Any) -> None:
        """Search the value of a name, and add it to the rows if it is, or contains, an object that is shown."""
        kind = self._kinds.of(value)
        if kind and self._enter(thing := Thing((name,), name, kind, value), DEPTH) and kind != "object":
            self.found.names.append(thing)

    def _enter(self, thing: Thing, depth: int) -> bool:
        """Search an object; return whether it is, or contains, an object that is shown."""
        place = {"tensor": self.found.tensors, "array": self.found.arrays, "optimizer": self.found.optimizers}.get(
            thing.kind
        )
        if place is not None:
            place.append(thing)
            return True
        if id(thing.value) in self._seen:
            return self._seen[id(thing.value)]
        self._seen[id(thing.value)] = thing.kind == "module"  # for a list, until its elements have been searched
        if thing.kind == "module":
            self.found.modules.append(thing)
            self._module(thing)
            return True
        if depth == 0:
            self.found.hidden = True
            return False
        any_inside = False
        for inner in parts(thing, self._kinds):
            if not self._budget.goes_on():
                self.found.hidden = True
                break
            any_inside |= self._enter(inner, depth - 1)
        self._seen[id(thing.value)] = any_inside
        return any_inside

    def _module(self, thing: Thing) -> None:
        """Search a module for its parameters, buffers and submodules, and for tensors among its other attributes (a
        hidden state).
        """
        work = [thing]
        for module in work:  # the list grows during the iteration
            if not self._budget.goes_on():
                self.found.hidden = True
                return
            self.found.layers.append(module)
            parameters, buffers, children = tables(module.value)
            beside = [
                pair
                for pair in list(islice(inside(module.value, "module").items(), ELEMENTS))
                if pair[0] not in OF_MODULES
            ]
            for name, value in (*parameters.items(), *buffers.items(), *children.items()):
                kind = self._kinds.of(value) if type(name) is str and id(value) not in self._seen else ""
                part = Thing((*module.path, name), f"{module.text}.{name}", kind, value)
                if kind in ("tensor", "module"):
                    self._seen[id(value)] = True
                    (self.found.parameters if kind == "tensor" else work).append(part)
            for name, value in beside:
                if type(name) is str and (kind := self._kinds.of(value)) in ("tensor", "group"):
                    self._attribute(Thing((*module.path, name), f"{module.text}.{name}", kind, value), DEPTH - 1)

    def _attribute(self, thing: Thing, depth: int) -> None:
        """Search a module's attribute for tensors: one, or a tuple or list of them (the hidden state of an LSTM);
        parameters are not added again.
        """
        if thing.kind == "tensor":
            if id(thing.value) not in self._seen:
                self.found.tensors.append(thing)
        elif depth and id(thing.value) not in self._seen and self._budget.goes_on():
            self._seen[id(thing.value)] = True
            for inner in parts(thing, self._kinds):
                if inner.kind in ("tensor", "group"):
                    self._attribute(inner, depth - 1)


def parts(thing: Thing, kinds: Kinds) -> Iterator[Thing]:
    """The objects that have a kind (see :class:`Thing`) in a list, tuple or dict, or among the attributes of an object
    of the notebook's own classes; only the first :data:`ELEMENTS` entries are searched.
    """
    value, path, text = thing.value, thing.path, thing.text
    if type(value) is dict or type(value) is OrderedDict:
        items = list(islice(value.items(), ELEMENTS))  # of a vocabulary of a million words no more than that is copied
        named = [(_key(key, at), f"{text}[{_key(key, at)}]", each) for at, (key, each) in enumerate(items)]
    elif type(value) is list or type(value) is tuple:
        named = [(str(at), f"{text}[{at}]", each) for at, each in enumerate(value[:ELEMENTS])]
    else:
        table = inside(value, thing.kind)
        named = [
            (key, f"{text}.{key}", each) for key, each in list(islice(table.items(), ELEMENTS)) if type(key) is str
        ]
    for key, shown, each in named:
        kind = kinds.of(each)
        if kind:
            yield Thing((*path, key), shown, kind, each)


def _key(key: Any, at: int) -> str:
    """The text of a dict's key; a key of any other class than str, int, bool and float is shown by its position, as its
    ``repr`` may run the program's code.
    """
    return repr(key)[:60] if any(type(key) is each for each in (str, int, bool, float)) else f"#{at}"
