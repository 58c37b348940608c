"""For a ``DataLoader`` whose workers persist (``persistent_workers=True``), compares the dataset at the start of its
workers with the dataset at the beginning of later passes (:class:`WorkerCopies`).

Workers are separate processes with a copy of the dataset: later changes by the program do not reach them. Only
attributes that are read by the code which creates the samples are compared, by short marks of their contents: nothing
of the dataset is kept.
"""

from __future__ import annotations

import dis
import enum
import functools
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe.data_loading import DEPTH, SAMPLES, codes
from pitfall_lab.trace import Span

ENTRIES = (*SAMPLES, "__call__", "forward")
"""The methods, of a dataset and of the objects that it uses, by which a sample is created."""
LAZY = (*ENTRIES, "__len__")
"""Methods that run in the program's own process too, so that what they store there does not count as a change by the
program.
"""
FILLING = {
    "add", "add_", "append", "appendleft", "clear", "copy_", "discard", "extend", "fill_", "insert", "mul_", "pop",
    "popitem", "popleft", "remove", "setdefault", "update", "zero_",
}  # fmt: skip
"""Methods that change the object on which they are called, of torch and of Python's collections."""
WRITES = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
SCALARS = (type(None), bool, int, float, complex, str, bytes, Path, enum.Enum, np.generic)
SOME, NUMBERS, TEXT, FEW = 48, 64, 40, 8
"""How many elements of a collection and values of an array are compared, how many characters of a value are shown, and
how many elements of a collection are searched or shown, each at most.
"""
LARGE = 1 << 16
"""How many elements a tensor may have that must be copied to be read."""
LOADERS, PASSES = 20, 40
"""How many loaders are followed, and how many passes over each are examined, each at most."""
NESTED, PARTS = 3, 200
"""How deep collections are compared, and how many attributes of a dataset and its objects, each at most."""

_Mark = tuple[object, ...]


class OldCopy(NamedTuple):
    """An attribute of a dataset that has changed since the workers of its loader were started: the dataset's class, the
    attribute's name, and its values as text before and after, empty if they are not short.

    ``started`` is the position of the pass at which the workers were started, ``workers`` their number.
    """

    kind: str
    name: str
    before: str
    after: str
    workers: int
    started: Span | None


class _Part(NamedTuple):
    """The identity of an attribute's value, a mark of its contents, and the value as text (empty if it is long)."""

    identity: int
    mark: _Mark
    text: str
    may_change: bool
    """Whether a change of this object itself comes from the program and not from creating a sample."""


@dataclass(slots=True)
class _Workers:
    loader: weakref.ref[Any]
    parts: dict[str, _Part]
    span: Span | None
    passes: int = 0


@dataclass(slots=True)
class WorkerCopies:
    """Compares the datasets at the beginning of each pass over a loader (:meth:`begins`)."""

    _known: list[_Workers] = field(default_factory=list)

    def begins(self, loader: Any, span: Span | None) -> OldCopy | None:
        """Called before a pass over a loader begins, at ``span``: return the first attribute, used to create samples,
        whose value differs from the workers' copy; None if there is none.

        At the pass that starts the workers the dataset is only remembered. After a finding, and after ``PASSES`` (40)
        passes, a loader is not examined any more.
        """
        held = vars(loader)
        workers, dataset = held.get("num_workers"), held.get("dataset")
        if not held.get("persistent_workers") or not isinstance(workers, int) or workers < 1 or dataset is None:
            return None
        known = next((each for each in self._known if each.loader() is loader), None)
        if held.get("_iterator") is None:  # this pass starts them
            if known is not None:
                self._known.remove(known)
            if len(self._known) < LOADERS:
                self._known.append(_Workers(weakref.ref(loader), dict(_parts(dataset)), span))
            return None
        if known is None or known.passes >= PASSES:
            return None
        known.passes += 1
        for name, now in _parts(dataset):
            before = known.parts.get(name)
            if before is not None and _is_changed(before, now):
                known.passes = PASSES
                return OldCopy(type(dataset).__name__, name, *_texts(before, now), workers, known.span)
        return None


def _texts(before: _Part, now: _Part) -> tuple[str, str]:
    return (before.text, now.text) if before.text and now.text and before.text != now.text else ("", "")


def _is_changed(before: _Part, now: _Part) -> bool:
    is_same = before.identity == now.identity and before.mark[0] == now.mark[0]
    if is_same and not now.may_change:
        return False
    opaque = "object" in (before.mark[0], now.mark[0])
    if opaque and (before.mark[0] != now.mark[0] or before.text == "None" or now.text == "None"):
        return False  # a file, for instance, that is opened when it is needed
    return _differs(before.mark, now.mark)


def _differs(one: object, other: object) -> bool:
    """Whether two marks differ; memory that processes share is the same in all of them."""
    if not isinstance(one, tuple) or not isinstance(other, tuple):
        return one != other
    if "shared" in (one[:1] + other[:1]):
        return False
    return len(one) != len(other) or any(_differs(a, b) for a, b in zip(one, other, strict=True))


def _parts(dataset: Any) -> Iterator[tuple[str, _Part]]:
    """The name and state of each attribute that is used to create the samples of a dataset, also of the objects in
    it.
    """
    if isinstance(dataset, list | dict):
        yield "", _part(dataset, may_change=True)
        return
    for count, each in enumerate(_attributes(dataset, "", set(), set())):
        if count == PARTS:
            return
        yield each


def _attributes(owner: Any, path: str, read: set[str], seen: set[int]) -> Iterator[tuple[str, _Part]]:
    """The attributes of one object, as in :func:`_parts`.

    ``read`` are the names that the objects around this one read, which may include its methods.
    """
    if id(owner) in seen or path.count(".") > DEPTH:
        return
    seen.add(id(owner))
    cls = type(owner)
    uses = _uses(cls, frozenset(read & {n for base in cls.__mro__ for n in vars(base)}))
    held = object.__getattribute__(owner, "__dict__")
    for name in sorted(uses.read - uses.stored):
        value = held.get(name, _of_class(cls, name))
        if value is not _NONE:
            yield path + name, _part(value, may_change=name not in uses.filled)
            for place, each in _objects(path + name, value):
                yield from _attributes(each, place, uses.read, seen)
    if isinstance(owner, torch.nn.Module):
        for name, value in ({**held["_parameters"], **held["_buffers"]}).items():
            yield path + name, _part(value, may_change=True)
        for name, value in held["_modules"].items():
            yield from _attributes(value, f"{path}{name}.", uses.read, seen)


def _objects(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The objects with attributes that an attribute's value is or contains, each with the prefix of their names."""
    if type(value) not in (list, tuple):
        yield from [(f"{name}.", value)] if _has_attributes(value) else []
        return
    for number, each in enumerate(value[:FEW]):
        if _has_attributes(each):
            yield f"{name}[{number}].", each


_NONE = object()


def _of_class(cls: type, name: str) -> Any:
    """The plain value that a class has for an attribute; ``_NONE`` if there is none."""
    value = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), _NONE)
    return value if isinstance(value, SCALARS) else _NONE


def _has_attributes(value: Any) -> bool:
    return (
        not isinstance(value, type | torch.Tensor | FunctionType | MethodType | ModuleType | functools.partial)
        and not isinstance(value, SCALARS)
        and _vars(value) is not None
    )


def _vars(value: Any) -> dict[str, Any] | None:
    """The attributes of an object, read without its methods; None if it has none of its own."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


class _Uses(NamedTuple):
    """The names that the methods which create a sample read, those that they store, and those whose values they may
    change.
    """

    read: set[str]
    stored: set[str]
    filled: set[str]


_KNOWN: weakref.WeakKeyDictionary[type, dict[frozenset[str], _Uses]] = weakref.WeakKeyDictionary()


def _uses(cls: type, more: frozenset[str]) -> _Uses:
    """How the code of a class uses attributes when a sample is created; ``more`` are methods that others call."""
    known = _KNOWN.setdefault(cls, {})
    if more not in known:
        known[more] = _read_uses(cls, more)
    return known[more]


def _read_uses(cls: type, more: frozenset[str]) -> _Uses:
    methods = {name: f for base in reversed(cls.__mro__) for name, f in vars(base).items()}
    uses = _Uses(set(), set(), set())
    around = next((f.__globals__ for f in methods.values() if isinstance(f, FunctionType)), {})
    work, seen = [*LAZY, *more], set[str]()
    while work:
        name = work.pop()
        found = methods.get(name, around.get(name))
        found = _function(found)
        if name in seen or not isinstance(found, FunctionType):
            continue
        seen.add(name)
        for code in codes(found.__code__):
            _add_uses(code, uses, is_read=name != "__len__")
            work += code.co_names
    return uses


def _add_uses(code: CodeType, uses: _Uses, *, is_read: bool) -> None:
    attributes, filling, named = dict[int | None, set[str]](), set[int | None](), set[str]()
    before = ""
    for each in dis.get_instructions(code):
        line = each.positions.lineno if each.positions is not None else None
        name = str(each.argval)
        if each.opname in ("STORE_ATTR", "DELETE_ATTR"):
            uses.stored.add(name)
        if each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.setdefault(line, set()).add(name)
        if each.opname in WRITES or (each.opname in ("LOAD_ATTR", "LOAD_METHOD") and name in FILLING):
            filling.add(line)
        if each.opname.startswith("STORE_FAST") and before:
            named.add(before)  # an attribute under a name
        before = name if each.opname == "LOAD_ATTR" else ""
    for line, names in attributes.items():
        uses.read.update(names if is_read else ())
        uses.filled.update(names if line in filling else ())
    if filling:
        uses.filled.update(named)
    if is_read and {"getattr", "vars", "__dict__"} & set(code.co_names):
        uses.read.update(each for each in code.co_consts if isinstance(each, str) and each.isidentifier())


def _function(found: Any) -> Any:
    """The function of a property, a static method or a class method; anything else unchanged."""
    if isinstance(found, property):
        return found.fget
    if isinstance(found, functools.cached_property):
        return found.func
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _part(value: Any, *, may_change: bool) -> _Part:
    text = repr(value) if isinstance(value, SCALARS) else _short(value)
    return _Part(id(value), _mark(value), text if len(text) <= TEXT else "", may_change)


def _short(value: Any) -> str:
    """A short collection of plain values or a one-element tensor as text; empty for anything else."""
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.numel() == 1 and value.device.type == "cpu":
        return repr(value.item())
    if type(value) in (list, tuple, dict, set) and len(value) <= FEW and all(isinstance(v, SCALARS) for v in value):
        return repr(value)
    return ""


def _mark(value: Any, depth: int = NESTED) -> _Mark:
    """A short value that is equal for equal contents; of large collections and arrays, only some elements are
    included.
    """
    if isinstance(value, SCALARS):
        return "plain", type(value).__name__, repr(value)[:1000]
    if isinstance(value, torch.Tensor):
        return _mark_of_tensor(value)
    if isinstance(value, np.ndarray):
        return _mark_of_array(value)
    if isinstance(value, MethodType):
        return _mark(value.__func__, depth)
    if isinstance(value, FunctionType):
        return "function", value.__module__, value.__qualname__, value.__code__.co_firstlineno
    return _mark_of_collection(value, depth) if depth else ("object", type(value).__qualname__)


def _mark_of_collection(value: Any, depth: int) -> _Mark:
    if type(value) is functools.partial:
        return "partial", *(_mark(part, depth - 1) for part in (value.func, value.args, value.keywords))
    if type(value) in (list, tuple, deque):
        some = range(0, len(value), -(-len(value) // SOME) or 1)
        return "list", len(value), *(_mark(value[place], depth - 1) for place in some)
    if type(value) in (dict, OrderedDict, defaultdict):
        items = [item for _, item in zip(range(SOME), value.items(), strict=False)]
        return "dict", len(value), *((_mark(k, depth - 1), _mark(v, depth - 1)) for k, v in items)
    if type(value) in (set, frozenset):
        return "set", len(value), *(sorted(map(repr, value)) if len(value) <= SOME else ())
    return "object", type(value).__qualname__


def _mark_of_tensor(value: torch.Tensor) -> _Mark:
    known = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if not known or value.device.type != "cpu":
        return "object", type(value).__qualname__
    # memory that is not torch's own may be shared with the workers
    if value.untyped_storage().is_shared() or not value.untyped_storage().resizable():
        return ("shared",)
    head = "tensor", str(value.dtype), tuple(value.shape)
    if not value.is_contiguous() and value.numel() > LARGE:
        return head
    flat = value.detach().reshape(-1)
    return *head, *map(repr, flat[:: max(1, -(-len(flat) // NUMBERS))].tolist())


def _mark_of_array(value: np.ndarray[Any, Any]) -> _Mark:
    root: Any = value
    while isinstance(root, np.ndarray) and root.base is not None:
        root = root.base
    if type(value) is not np.ndarray or type(root) is not np.ndarray:
        return ("shared",)  # a file, or the memory of something else
    head = "array", str(value.dtype), value.shape
    if value.dtype.kind not in "biufcU":
        return head
    step = max(1, -(-value.size // NUMBERS))
    return *head, *(repr(value.flat[place]) for place in range(0, value.size, step))
