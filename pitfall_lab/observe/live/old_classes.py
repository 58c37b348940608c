"""Finds the object because of which a cell failed: its class has been defined again since the object was created
(:func:`old_object`).

The object's methods are those of the earlier definition, while the name of the class refers to the new one. No code of
the object is run: its class and attributes are read by Python's descriptors.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import DEPTH, Found, Thing, find, is_shown, parts
from pitfall_lab.observe.live.object_kinds import Kinds, held_by, inside, tables

_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_ANOTHER = re.compile(r"not the same object as __main__\.(\w+)")
_ARGUMENTS = re.compile(r"^(\w+)\.(\w+)\(\) (?:takes|got|missing)")
Why = Literal["super", "attribute", "pickle", "arguments"]


class OldObject(NamedTuple):
    """An object of an earlier definition of a class.

    ``name`` is the expression for the object, ``root`` the name with which it begins; both are empty if no name leads
    to it. ``cls`` is the name of the class. ``why`` is what failed: ``super`` (``super()`` with the new class),
    ``attribute`` (one that only the new class has), ``pickle``, or ``arguments`` (the two definitions of a method have
    different parameters); ``member`` is that attribute or method, else empty. ``through`` are classes of the object
    that have not been defined again and derive from the earlier ``cls``. ``optimizers`` are the names of the optimizers
    that hold its parameters; ``is_module``: it is a ``torch.nn.Module``.
    """

    name: str
    root: str
    cls: str
    why: Why
    member: str
    through: tuple[str, ...]
    optimizers: tuple[str, ...]
    is_module: bool


class _Met(NamedTuple):
    """An object, the earlier and the new definition of one of its classes; holds references, so it must not be kept."""

    value: Any
    old: type
    new: type
    through: tuple[str, ...]


def old_object(
    error: BaseException, namespace: Mapping[str, Any], read: Iterable[str], budget: Budget
) -> OldObject | None:
    """Return the object whose outdated class is the cause of the error ``error`` of a failed cell; ``None`` if there is
    none, or the error is none of those listed under ``why`` in :class:`OldObject`.

    ``read`` are the names that the failed cell reads. ``namespace`` has the notebook's names and their objects.
    ``budget`` is the time limit.
    """
    found = _reason(error, namespace, read, budget)
    if found is None:
        return None
    met, why, member = found
    things = find(namespace, (), budget)
    thing = next((each for each in _things(namespace, budget, things) if each.value is met.value), None)
    held = {id(each) for each in _parameters(met.value)}
    optimizers = tuple(
        each.text
        for each in things.optimizers
        if len(each.path) == 1 and any(id(one) in held for one in held_by(each.value))
    )
    name, root = (thing.text, thing.path[0]) if thing is not None else ("", "")
    is_module = Kinds().of(met.value) == "module"
    return OldObject(name, root, str(_qualname(met.old)), why, member, met.through, optimizers, is_module)


def _reason(
    error: BaseException, namespace: Mapping[str, Any], read: Iterable[str], budget: Budget
) -> tuple[_Met, Why, str] | None:
    words = str(error)
    if isinstance(error, TypeError) and "super(type, obj)" in words:
        last = list(_first_arguments(error))[-1:]
        return next(((met, "super", "") for each in last for met in _replaced(each, namespace)), None)
    if isinstance(error, AttributeError) and isinstance(error.name, str):
        names = error.name
        return next(
            (
                (met, "attribute", names)
                for met in _replaced(error.obj, namespace)
                if _mentions(met.new, names) and not _mentions(met.old, names)
            ),
            None,
        )
    if another := _ANOTHER.search(words):
        things = _things({name: namespace[name] for name in read if name in namespace}, budget)
        candidates = [*_first_arguments(error), *(each.value for each in things)]
        mets = (met for each in candidates for met in _replaced(each, namespace))
        return next(((met, "pickle", "") for met in mets if _qualname(met.old) == another[1]), None)
    if isinstance(error, TypeError) and (arguments := _ARGUMENTS.search(words)):
        things = _things({name: namespace[name] for name in read if name in namespace}, budget)
        candidates = [*_first_arguments(error), *(each.value for each in things)]
        return next(
            (
                (met, "arguments", arguments[2])
                for each in candidates
                for met in _replaced(each, namespace)
                if _qualname(met.old) == arguments[1] and _takes(met.old, arguments[2]) != _takes(met.new, arguments[2])
            ),
            None,
        )
    return None


def _first_arguments(error: BaseException) -> Iterator[Any]:
    """The first argument of each function that the error passed through; the innermost function comes last."""
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_argcount and code.co_varnames[0] in step.tb_frame.f_locals:
            yield step.tb_frame.f_locals[code.co_varnames[0]]
        step = step.tb_next


def _replaced(value: Any, namespace: Mapping[str, Any]) -> Iterator[_Met]:
    """The classes of an object, defined in the notebook, whose names the notebook now binds to another class."""
    through: tuple[str, ...] = ()
    for each in _mro(type(value)):
        name = str(_qualname(each))
        now = namespace.get(name) if _class_dict(each).get("__module__") == "__main__" else None
        if now is each:
            through = (*through, name)
        elif (
            now is not None
            and any(one is type for one in _mro(type(now)))
            and _class_dict(now).get("__module__") == "__main__"
        ):
            yield _Met(value, each, now, through)


def _mentions(cls: type, name: str) -> bool:
    """Whether a class of the notebook, or a base class from there, has the attribute, or a method that mentions it."""
    own = [each for each in _mro(cls) if _class_dict(each).get("__module__") == "__main__"]
    return any(name in _class_dict(each) or any(name in code for code in _codes(each)) for each in own)


def _codes(cls: type) -> Iterator[tuple[Any, ...]]:
    """For each method's code, and each function nested in it, the names and strings in it."""
    work = [each.__code__ for each in list(_class_dict(cls).values()) if type(each) is types.FunctionType]
    for code in work:  # the list grows during the iteration
        texts = tuple(each for each in code.co_consts if type(each) is str)
        yield (*code.co_names, *texts)
        work += [each for each in code.co_consts if type(each) is types.CodeType]


def _takes(cls: type, method: str) -> Any:
    """What a method accepts: its parameters' names and kinds, and the number of its defaults; None if it is no plain
    function.
    """
    function = next((table[method] for each in _mro(cls) if method in (table := _class_dict(each))), None)
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    return code.co_varnames[:count], code.co_kwonlyargcount, code.co_flags & 0x0C, len(function.__defaults__ or ())


def _things(namespace: Mapping[str, Any], budget: Budget, found: Found | None = None) -> Iterator[Thing]:
    """The modules and the objects of classes of the notebook, also those inside lists, tuples, dicts and each other."""
    kinds, seen = Kinds(), set[int]()
    work = [
        (Thing((name,), name, kind, value), DEPTH)
        for name, value in list(namespace.items())
        if type(name) is str and is_shown(name) and (kind := kinds.of(value)) in ("module", "object", "group")
    ]
    for thing, depth in work:  # the list grows during the iteration
        if not budget.goes_on():
            return
        if id(thing.value) in seen:
            continue
        seen.add(id(thing.value))
        if thing.kind != "group":
            yield thing
        if depth and thing.kind != "module":
            inner = parts(thing, kinds)
            work += [(each, depth - 1) for each in inner if each.kind in ("module", "object", "group")]
    yield from (found if found is not None else find(namespace, (), budget)).layers


def _parameters(value: Any) -> Iterator[Any]:
    """The parameters of a module; for another object, those of the modules among its attributes."""
    kinds, seen = Kinds(), set[int]()
    work = [value]
    for each in work:  # the list grows during the iteration
        kind = kinds.of(each)
        if id(each) in seen or kind not in ("module", "object"):
            continue
        seen.add(id(each))
        if kind == "object":
            work += [one for one in list(inside(each, kind).values()) if kinds.of(one) == "module"]
            continue
        parameters, _, children = tables(each)
        yield from parameters.values()
        work += children.values()
