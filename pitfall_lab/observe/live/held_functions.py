"""Finds objects that hold a function of the notebook whose name has since been bound to another function
(:meth:`Functions.compare`).

A loader keeps its ``collate_fn``, a data set its transform, a scheduler its lambda, a module its hooks: defining the
function again does not change them. Which function a name had after which cell is stored as numbers (ids and hashes of
its code); the objects are searched only once some name has another function than before.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, OF_MODULES, Found, Path, is_shown
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, class_origin, inside
from pitfall_lab.observe.live.repeated_hooks import hook_tables

DEPTH = 6
WRAPPED = 4
_LAMBDA = "<lambda>"
_PLAIN = frozenset(id(each) for each in (int, float, str, bool, bytes, type(None), torch.Tensor, np.ndarray))
_OF_LIBRARIES = ("torch.utils.data.", "torch.optim.lr_scheduler", "torchvision.", "torchaudio.", "torchtext.")
_mro = type.__dict__["__mro__"].__get__
_Key = tuple[int, int, int]


class HeldFunction(NamedTuple):
    """An object that still holds a function of the notebook whose name has been bound to another function since. Cells
    are given by their numbers.

    ``name`` is the function's name, ``text`` the expression for the attribute or entry that holds it, ``path`` the
    names and keys that lead there, ``roots`` all names from which the object is reached, ``type`` the object's class.
    Cell ``made`` defined the function (None: unknown), ``since`` was the first that bound the name to another one,
    ``again`` the last. ``others`` are the expressions of further holders of the old function, ``newer`` the paths of
    objects that hold the new one. ``is_data``: the holder is a ``DataLoader`` or ``Dataset``. ``is_lambda``: the old
    function is a lambda.
    """

    name: str
    text: str
    path: Path
    roots: frozenset[str]
    type: str
    made: int | None
    since: int
    again: int
    others: tuple[str, ...]
    newer: tuple[Path, ...]
    is_data: bool
    is_lambda: bool


class _Named(NamedTuple):
    """The function to which a name is bound: its key, the hash of its code, and the cell that bound the name to this
    code.
    """

    key: _Key
    code: int
    cell: int


class _Replaced(NamedTuple):
    """The first and the last cell that bound a name to another function, and the functions that it had before: by the
    key of each, the hash of its code and its cell.
    """

    since: int
    again: int
    old: dict[_Key, tuple[int, int]]


class _Slot(NamedTuple):
    """An attribute or entry of an object that holds a function; it holds references, so it must not be kept."""

    text: str
    path: Path
    holder: Any
    function: Any


class Functions:
    """Remembers, as ids and hashes of code, which function each name of a notebook had after which cell."""

    def __init__(self) -> None:
        self._names: dict[str, _Named] = {}
        self._replaced: dict[str, _Replaced] = {}
        self._found: list[HeldFunction] = []

    def compare(self, found: Found, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[HeldFunction]:
        """The objects that still hold a function whose name now has another one, one record for each object and old
        function; ``now`` is the number of the last cell.

        Old functions that another name still has, or whose number of positional arguments differs from the new one's,
        are left out. An empty list if there are none; the findings of the previous cell if the time limit ``budget`` is
        exceeded. ``namespace`` has the notebook's names and their objects, ``found`` is what these lead to.
        """
        functions = own_functions(namespace, budget)
        if functions is None:
            return self._found
        named = {name: each for name, each in functions.items() if each.__code__.co_name in (name, _LAMBDA)}
        self._note(named, now)
        if not self._replaced:
            return []
        slots = list(_HeldSearch(namespace, budget).slots(found))
        if budget.spent:
            return self._found
        kept = {id(each) for each in functions.values()}
        replaced = [name for name in self._replaced if name in named]
        self._found = [each for name in replaced for each in self._held(name, named[name], slots, kept)]
        return self._found

    def _note(self, functions: Mapping[str, types.FunctionType], now: int) -> None:
        """Remember the functions that the names have now, and which names have another function than before."""
        names = {name: self._named(name, each, now) for name, each in functions.items()}
        for name, each in names.items():
            was = self._names.get(name)
            if was is not None and was.code != each.code:
                before = self._replaced.get(name, _Replaced(now, now, {}))
                self._replaced[name] = _Replaced(before.since, now, before.old | {was.key: (was.code, was.cell)})
        self._names = {**{name: each for name, each in self._names.items() if name in self._replaced}, **names}

    def _named(self, name: str, function: types.FunctionType, now: int) -> _Named:
        was, key = self._names.get(name), _key(function)
        if was is not None and was.key == key:
            return was
        code = code_mark(function)
        return _Named(key, code, was.cell if was is not None and was.code == code else now)

    def _held(
        self, name: str, current: types.FunctionType, slots: Sequence[_Slot], kept: set[int]
    ) -> Iterator[HeldFunction]:
        """The holders of old functions of a name, one record for each holder and old function; a name without any
        holder is forgotten.
        """
        replaced, now = self._replaced[name], self._names[name]
        old: dict[int, list[_Slot]] = {}
        newer: list[_Slot] = []
        for slot in slots:
            if slot.function is current:
                newer.append(slot)
                continue
            code = slot.function.__code__
            if code.co_name != name and _key(slot.function) not in replaced.old:
                continue
            mark = code_mark(slot.function)
            if mark == now.code:
                newer.append(slot)
            elif id(slot.function) not in kept and code.co_argcount == current.__code__.co_argcount:
                old.setdefault(mark, []).append(slot)
        if not old:
            del self._replaced[name]
        for mark, some in old.items():
            holders: dict[int, list[_Slot]] = {}
            for slot in some:
                holders.setdefault(id(slot.holder), []).append(slot)
            shown = [min(each, key=lambda slot: len(slot.path)) for each in holders.values()]
            made = next((cell for code, cell in replaced.old.values() if code == mark), None)
            for at, slot in enumerate(shown):
                yield HeldFunction(
                    name, slot.text, slot.path, frozenset(each.path[0] for each in holders[id(slot.holder)]),
                    class_name(slot.holder), made, replaced.since, replaced.again,
                    tuple(each.text for other, each in enumerate(shown) if other != at),
                    tuple(each.path for each in newer), _is_a(slot.holder, (DataLoader, Dataset)),
                    slot.function.__code__.co_name == _LAMBDA,
                )  # fmt: skip


def own_functions(namespace: Mapping[str, Any], budget: Budget) -> dict[str, types.FunctionType] | None:
    """The functions of the notebook to which names are bound, by name (see :func:`own`); None if the time limit
    ``budget`` is exceeded. ``namespace`` has the notebook's names and their objects.
    """
    functions: dict[str, types.FunctionType] = {}
    for name in list(namespace):
        if not budget.goes_on():
            return None
        if type(name) is str and is_shown(name):
            function = own(namespace.get(name), namespace)
            if function is not None:
                functions[name] = function
    return functions


def own(value: Any, namespace: Mapping[str, Any]) -> types.FunctionType | None:
    """The function ``value`` itself, if it is a function that a cell has defined outside other functions and classes;
    else None.

    Decorators that set ``__wrapped__`` (``functools.wraps``) are looked through, at most four. ``namespace`` has the
    notebook's names and their objects.
    """
    for _ in range(WRAPPED):
        if type(value) is types.FunctionType and "__wrapped__" in value.__dict__:
            value = value.__dict__["__wrapped__"]
    if type(value) is not types.FunctionType or value.__globals__ is not namespace:
        return None
    code = value.__code__
    return value if code.co_qualname == code.co_name else None


def _key(function: types.FunctionType) -> _Key:
    code = function.__code__
    return id(function), hash(code.co_filename), code.co_firstlineno


def code_mark(function: types.FunctionType) -> int:
    """A hash of a function's code: equal for the same code on other lines or with another docstring. Default values of
    parameters do not count.
    """
    return hash((_code(function.__code__, function.__doc__), function.__code__.co_argcount))


def _code(code: types.CodeType, doc: str | None = None) -> tuple[Any, ...]:
    """What the code does, without its lines, its file and the function's docstring ``doc``."""
    constants = tuple(
        _code(each) if type(each) is types.CodeType else repr(None if type(each) is str and each == doc else each)
        for each in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


class _HeldSearch:
    """One search for the attributes and entries of objects that hold functions of the notebook."""

    def __init__(self, namespace: Mapping[str, Any], budget: Budget) -> None:
        self._namespace, self._budget, self._kinds = namespace, budget, Kinds()
        self._seen, self._without = set[int](), set[int]()

    def slots(self, found: Found) -> Iterator[_Slot]:
        """Yield each function of the notebook in an attribute, an argument of a partial, an entry of a list in an
        attribute, or a hook.
        """
        groups: list[tuple[str, Any]] = []
        for name in list(self._namespace):
            if not self._budget.goes_on():
                return
            if type(name) is str and is_shown(name):
                value = self._namespace.get(name)
                if self._is_holder(value):
                    self._seen.clear()  # an object is found by each name that leads to it
                    yield from self._inside((name,), name, value, DEPTH, None)
                elif self._kinds.of(value) == "group":
                    groups.append((name, value))
        for layer in found.layers:
            self._seen.clear()
            for key, each in list(islice(inside(layer.value, "module").items(), ELEMENTS)):
                if type(key) is str and key not in OF_MODULES:
                    yield from self._inside((*layer.path, key), f"{layer.text}.{key}", each, DEPTH // 2, layer.value)
        yield from self._hooks(found)
        for name, value in groups:  # the rows of a data set may be many
            self._seen.clear()
            yield from self._inside((name,), name, value, DEPTH, None)

    def _hooks(self, found: Found) -> Iterator[_Slot]:
        for thing, table, hooks in hook_tables(found, self._budget):
            for hook in hooks:
                for value in (hook.function, *_parts_of(hook.function)):
                    function = own(value, self._namespace)
                    if function is not None:
                        yield _Slot(f"{thing.text}.{table}[{hook.key}]", (*thing.path, table), thing.value, function)

    def _is_holder(self, value: Any) -> bool:
        """Whether the attributes of an object are searched for functions."""
        kind = self._kinds.of(value)
        known = kind == "object" or type(value) is functools.partial
        return known or (not kind and class_origin(value).startswith(_OF_LIBRARIES))

    def _inside(self, path: Path, text: str, value: Any, depth: int, holder: Any) -> Iterator[_Slot]:
        """The value itself if it is a function of the notebook and an object (``holder``) has it, or the functions that
        it contains.
        """
        if type(value) is types.FunctionType:
            function = own(value, self._namespace) if holder is not None else None
            if function is not None:
                yield _Slot(text, path, holder, function)
            return
        is_group = self._kinds.of(value) == "group"
        if not depth or id(value) in self._seen or not (is_group or self._is_holder(value)):
            return
        if id(value) in self._without:
            return
        self._seen.add(id(value))
        some = False
        for key, shown, each in entries(value, text, is_group=is_group):
            if not self._budget.goes_on():
                return
            if id(type(each)) not in _PLAIN:
                for slot in self._inside((*path, key), shown, each, depth - 1, holder if is_group else value):
                    some = True
                    yield slot
        if is_group and not some and depth > DEPTH // 2:  # its rows are not searched again for another name
            self._without.add(id(value))


def _parts_of(value: Any) -> tuple[Any, ...]:
    """The function and the arguments of a partial; empty for other values."""
    return (value.func, *value.args, *value.keywords.values()) if type(value) is functools.partial else ()


def entries(value: Any, text: str, *, is_group: bool) -> list[tuple[str, str, Any]]:
    """The key, the expression and the value of the first entries of a list, tuple, dict, partial or object ``value``,
    whose expression is ``text``; of a dict or object only those whose key is a string or an integer.

    For the entries of a partial the expression is ``text`` itself. ``is_group``: ``value`` is a list, tuple or dict.
    """
    if type(value) is functools.partial:
        named = [("func", value.func), *((str(at), each) for at, each in enumerate(value.args))]
        return [(key, text, each) for key, each in (*named, *value.keywords.items())]
    if type(value) is list or type(value) is tuple:
        return [(str(at), f"{text}[{at}]", each) for at, each in enumerate(value[:ELEMENTS])]
    is_dict = type(value) is dict or type(value) is OrderedDict
    items = list(islice((value if is_dict else inside(value, "object")).items(), ELEMENTS))
    plain = [(key, each) for key, each in items if type(key) is str or type(key) is int]
    return [(str(key), f"{text}[{key!r}]" if is_group else f"{text}.{key}", each) for key, each in plain]


def _is_a(value: Any, classes: tuple[type, ...]) -> bool:
    return any(each is one for each in _mro(type(value)) for one in classes)
