"""What there is in a notebook's namespace: tensors, arrays, modules and optimizers by name, and what lists, dicts and modules hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.object_kinds import Kind, Kinds, inside, tables

ELEMENTS = 256
"""So many elements of one list or dict are looked at."""
DEPTH = 3
MANY = 1000
"""In a namespace with more names than this, those that the last cell has bound come first."""
NOT_SHOWN = frozenset({"In", "Out", "exit", "quit", "open", "get_ipython"})
Path = tuple[str, ...]


class Thing(NamedTuple):
    """Something that a name stands for. ``path`` is the name and the way from there, ``text`` what a program writes for it."""

    path: Path
    text: str
    kind: Kind
    value: Any


@dataclass(slots=True)
class Found:
    """One look at a namespace. It holds what it found, so it must not outlive the look."""

    names: list[Thing] = field(default_factory=list)
    """What has a row, in the order of the names."""
    tensors: list[Thing] = field(default_factory=list)
    """Every tensor that can be reached by name; parameters are apart."""
    arrays: list[Thing] = field(default_factory=list)
    modules: list[Thing] = field(default_factory=list)
    optimizers: list[Thing] = field(default_factory=list)
    parameters: list[Thing] = field(default_factory=list)
    """Parameters and buffers of modules, each once, by the first way that leads to it."""
    more: int = 0
    """Names that were not looked at."""
    hidden: bool = False
    """Whether some object might hold more than was looked at."""


def find(namespace: Mapping[str, Any], first: Iterable[str], budget: Budget) -> Found:
    """Look through a namespace; ``first`` are the names to begin with, where there are many."""
    search, looked = _Search(budget), set()
    urgent = [each for each in first if each in namespace] if len(namespace) > MANY else []
    for name in [*urgent, *(name for name in list(namespace) if type(name) is str)]:
        if name in looked:
            continue
        if not budget.goes_on():
            search.found.more = max(len(namespace) - len(looked), 0)
            break
        looked.add(name)
        if is_shown(name):
            search.name(name, namespace.get(name))
    return search.found


def is_shown(name: str) -> bool:
    """Whether a name is the notebook's own, and not IPython's or a private one."""
    return not name.startswith("_") and name not in NOT_SHOWN


class _Search:
    """One look, while it lasts."""

    def __init__(self, budget: Budget) -> None:
        self.found = Found()
        self._budget, self._kinds, self._seen = budget, Kinds(), dict[int, bool]()

    def name(self, name: str, value: Any) -> None:
        """Note what a name stands for."""
        kind = self._kinds.of(value)
        if kind and self._enter(thing := Thing((name,), name, kind, value), DEPTH) and kind != "object":
            self.found.names.append(thing)

    def _enter(self, thing: Thing, depth: int) -> bool:
        """Note a thing and what it holds; returns whether it is, or holds, something of interest."""
        place = {"tensor": self.found.tensors, "array": self.found.arrays, "optimizer": self.found.optimizers}.get(thing.kind)
        if place is not None:
            place.append(thing)
            return True
        if id(thing.value) in self._seen:
            return self._seen[id(thing.value)]
        self._seen[id(thing.value)] = thing.kind == "module"  # of a list, until it is known what it holds
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
        """A module's parameters and buffers, those of its parts, and the tensors that it keeps beside them (a hidden state)."""
        work = [thing]
        for module in work:  # grows while it is read
            if not self._budget.goes_on():
                self.found.hidden = True
                return
            parameters, buffers, children = tables(module.value)
            beside = list(islice(list(inside(module.value, "module").items()), ELEMENTS))
            for name, value in (*parameters.items(), *buffers.items(), *children.items()):
                kind = self._kinds.of(value) if type(name) is str and id(value) not in self._seen else ""
                part = Thing((*module.path, name), f"{module.text}.{name}", kind, value)
                if kind in ("tensor", "module"):
                    self._seen[id(value)] = True
                    (self.found.parameters if kind == "tensor" else work).append(part)
            for name, value in beside:
                if type(name) is str and self._kinds.of(value) == "tensor":
                    self.found.tensors.append(Thing((*module.path, name), f"{module.text}.{name}", "tensor", value))


def parts(thing: Thing, kinds: Kinds) -> Iterator[Thing]:
    """What a list, a dict or an object of the notebook's own class holds, as far as it is of interest."""
    value, path, text = thing.value, thing.path, thing.text
    if type(value) is dict:
        items = [(key, each) for key, each in islice(list(value.items()), ELEMENTS)]
        named = [(_key(key, at), f"{text}[{_key(key, at)}]", each) for at, (key, each) in enumerate(items)]
    elif type(value) is list or type(value) is tuple:
        named = [(str(at), f"{text}[{at}]", each) for at, each in enumerate(value[:ELEMENTS])]
    else:
        table = inside(value, thing.kind)
        named = [(key, f"{text}.{key}", each) for key, each in islice(list(table.items()), ELEMENTS) if type(key) is str]
    for key, shown, each in named:
        kind = kinds.of(each)
        if kind:
            yield Thing((*path, key), shown, kind, each)


def _key(key: Any, at: int) -> str:
    """A key of a dict in a text; keys of foreign classes are counted, for their ``repr`` would be run."""
    return repr(key)[:60] if any(type(key) is each for each in (str, int, bool, float)) else f"#{at}"
