"""Finds hooks that are registered twice on one module or tensor: a cell that registers was run again, or its function
was called again, and the first hook has not been removed (:meth:`Hooks.compare`).

Stored from cell to cell are only the cell after which each hook was first seen, and the name that held its handle.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

from torch.utils.hooks import RemovableHandle

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, Found, Path, Thing, is_shown
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, inside, is_own

OF_MODULES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
OF_TENSORS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_PLAIN = (int, float, str, bool, bytes, type(None))
Alike = Literal["same", "alike", ""]


class Twice(NamedTuple):
    """Hooks with the same code in one ``table`` of hooks (such as ``_forward_hooks``) of a module or tensor; ``times``
    is their number.

    ``name`` is the expression for the module or tensor, ``path`` the names and keys that lead to it, ``type`` its
    class. The first two hooks were registered by the cell runs with the numbers ``first`` and ``again``, which are
    equal if it was one run. ``key`` is the first hook's key in the table. ``lost``: no name holds its handle now.
    ``differ``: the functions have the same code with different values in it, and a name still holds the first hook's
    handle, or none ever held one of either. ``one_function``: both were created by the same line of one function.
    ``others`` counts further tensors on which the same cells registered the same.
    """

    name: str
    path: Path
    type: str
    table: str
    key: int
    times: int
    first: int
    again: int
    lost: bool
    differ: bool
    one_function: bool = False
    others: int = 0


class _Hook(NamedTuple):
    key: int
    function: Any


class Hooks:
    """Remembers after which cell each hook was first seen, and which name held its handle last."""

    def __init__(self) -> None:
        self._came: dict[tuple[int, str, int], int] = {}
        self._held: dict[int, str] = {}

    def compare(self, found: Found, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[Twice]:
        """The hooks that are registered twice on one object, by two cells (on a tensor also by one): one record for
        each table of hooks. ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``namespace`` has the notebook's
        names and their objects, ``found`` is what these lead to.
        """
        came: dict[tuple[int, str, int], int] = {}
        many: list[tuple[Thing, str, list[_Hook]]] = []
        for thing, table, hooks in hook_tables(found, budget):
            for hook in hooks:
                at = id(thing.value), table, hook.key
                came[at] = self._came.get(at, now)
            if len(hooks) > 1:
                many.append((thing, table, hooks))
        if budget.spent:
            return []
        self._came = came
        if not came:
            self._held = {}
            return []
        held = _handles(namespace, budget)
        made = [one for thing, table, hooks in many if (one := self._twice(thing, table, hooks, held)) is not None]
        self._held = {key: name for key, name in (self._held | held).items() if any(key == each for _, _, each in came)}
        return _grouped(made)

    def _twice(self, thing: Thing, table: str, hooks: list[_Hook], held: Mapping[int, str]) -> Twice | None:
        of_tensor = thing.kind == "tensor"
        for at, first in enumerate(hooks):
            cell = self._came[id(thing.value), table, first.key]
            again = [
                (each, alike)
                for each in hooks[at + 1 :]
                if (alike := _alike(first.function, each.function))
                and (
                    self._is_again(first.key, each.key, alike, held, of_tensor=of_tensor)
                    if self._came[id(thing.value), table, each.key] != cell
                    else of_tensor and not {first.key, each.key} & (self._held.keys() | held.keys())
                )
            ]
            if again:
                second, alike = again[0]
                one = {first.key, second.key} & (self._held.keys() | held.keys())
                return Twice(
                    thing.text, thing.path, class_name(thing.value), table, first.key, 1 + len(again), cell,
                    self._came[id(thing.value), table, second.key], first.key not in held,
                    alike == "alike" and (not one or first.key in held), _is_one_function(first, second),
                )  # fmt: skip
        return None

    def _is_again(self, first: int, second: int, alike: Alike, held: Mapping[int, str], *, of_tensor: bool) -> bool:
        """Whether the second hook was registered instead of the first: the name of the first one's handle now has the
        second one's, or the hooks do the same and no name holds the first one's handle.

        If one name holds both handles, in a list, the hooks count if they do the same or are on a tensor, where each of
        them changes the gradient.
        """
        if first in held:
            return (alike == "same" or of_tensor) and held[first] == held.get(second)
        before = self._held.get(first)
        return alike == "same" or before == held.get(second, self._held.get(second))


def _grouped(made: list[Twice]) -> list[Twice]:
    """The findings; of tensors on which the same cells registered hooks in the same table, only the first."""
    found: dict[tuple[Any, ...], Twice] = {}
    for each in made:
        of_tensor = each.table in OF_TENSORS and each.type in ("Tensor", "Parameter")
        key = (each.table, each.first, each.again, each.times) if of_tensor else (each.path, each.table)
        found[key] = found[key]._replace(others=found[key].others + 1) if key in found else each
    return list(found.values())


def _is_one_function(first: _Hook, second: _Hook) -> bool:
    functions = [each.function for each in (first, second) if type(each.function) is types.FunctionType]
    return len(functions) == 2 and functions[0].__code__ is functions[1].__code__


def hook_tables(
    found: Found, budget: Budget, *, modules_only: bool = False
) -> Iterator[tuple[Thing, str, list[_Hook]]]:
    """Yield the tables of hooks that are not empty, of modules and, unless ``modules_only``, of tensors that require
    grad: for each the module or tensor, the name of the table (such as ``_forward_hooks``), and its hooks, each with
    ``key`` and ``function``.

    ``found`` is what the notebook's names lead to, ``budget`` the time limit.
    """
    for thing in found.layers:
        if not budget.goes_on():
            return
        attributes = inside(thing.value, "module")
        for table in OF_MODULES:
            if hooks := _hooks(attributes.get(table)):
                yield thing, table, hooks
    met = set[int]()  # a parameter may have a name of its own as well
    for thing in (*found.parameters, *found.tensors) if not modules_only else ():
        if not budget.goes_on():
            return
        if is_own(thing.value) and thing.value.requires_grad and id(thing.value) not in met:
            met.add(id(thing.value))
            for table in OF_TENSORS:
                if hooks := _hooks(getattr(thing.value, table, None)):
                    yield thing, table, hooks


def _hooks(table: Any) -> list[_Hook]:
    if not table or not (type(table) is OrderedDict or type(table) is dict):
        return []
    return [_Hook(key, function) for key, function in list(table.items()) if type(key) is int]


def _handles(namespace: Mapping[str, Any], budget: Budget) -> dict[int, str]:
    """For the key of each hook whose handle a name holds, that name; the handle may be in a list, tuple or dict, or in
    an object of a class of the notebook.
    """
    kinds, held = Kinds(), dict[int, str]()
    for name, value in list(namespace.items()):
        if not budget.goes_on():
            break
        if type(name) is str and is_shown(name):
            for handle in _inside(value, kinds, depth=2):
                held[object.__getattribute__(handle, "id")] = name
    return held


def _inside(value: Any, kinds: Kinds, depth: int) -> Iterator[Any]:
    if type(value) is RemovableHandle:
        yield value
    kind = kinds.of(value) if depth else ""
    if kind in ("group", "object"):
        if type(value) is list or type(value) is tuple:
            some = value[:ELEMENTS]
        else:
            some = list(islice((value if kind == "group" else inside(value, kind)).values(), ELEMENTS))
        for each in some:
            yield from _inside(each, kinds, depth - 1)


def _alike(one: Any, other: Any) -> Alike:
    """Return ``same`` for hooks that do the same, ``alike`` for those with the same code but other values in it, else
    an empty string.
    """
    if one is other:
        return "same"
    if type(one) is not type(other):
        return ""
    if type(one) is types.MethodType:
        return _alike(one.__func__, other.__func__) if one.__self__ is other.__self__ else ""
    if type(one) is functools.partial:
        inner = _alike(one.func, other.func)
        equal = _are_equal((*one.args, *one.keywords.values()), (*other.args, *other.keywords.values()))
        return inner if equal or not inner else "alike"
    if Kinds().of(one) == "object":
        return "alike"  # two objects of one class of the notebook's own, called as functions
    if type(one) is not types.FunctionType or _code(one.__code__) != _code(other.__code__):
        return ""
    if _numbers(one.__code__) != _numbers(other.__code__):
        return "alike"
    values, others = (_values(each) for each in (one, other))
    return "same" if values is not None and others is not None and _are_equal(values, others) else "alike"


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """What the code does, without its lines, its file and the numbers in it."""
    constants = tuple(
        _code(each) if type(each) is types.CodeType else (type(each), "" if type(each) in (int, float) else repr(each))
        for each in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants


def _numbers(code: types.CodeType) -> tuple[Any, ...]:
    return tuple(_numbers(each) if type(each) is types.CodeType else repr(each) for each in code.co_consts)


def _values(function: types.FunctionType) -> tuple[Any, ...] | None:
    """The values that belong to this function alone: the variables of enclosing functions and the defaults; ``None`` if
    a variable has no value yet.
    """
    try:
        closed = tuple(each.cell_contents for each in function.__closure__ or ())
    except ValueError:
        return None
    return (*closed, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())


def _are_equal(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(
        a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b) for a, b in pairs
    )
