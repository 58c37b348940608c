"""Finds cached results (in a dict, a list, an attribute, a global name, or by ``functools.cache``) whose module has
other weights now than when they were computed, or whose function has been defined again (:meth:`Caches.compare`).

Which names cache results of which modules and functions is read from the sources of the cells. For the tensors of the
results and for the weights only ids, versions and checksums are stored, for a function a hash of its code. Weights that
were restored to their earlier values count as unchanged.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from torch.nn import Parameter

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS
from pitfall_lab.observe.live.held_functions import code_mark, own
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, class_origin, inside, is_own, tables
from pitfall_lab.observe.live.sums import Sums, mark
from pitfall_lab.observe.tensor_facts import is_opaque

Chain = tuple[str, ...]
SUMMED = 1 << 19
"""For how many bytes of weights the checksums are computed at most after one cell; for the rest the versions are
compared.
"""
MOST = 500
DEPTH = 2
_CODE = "code"
_CACHE: Any = functools._lru_cache_wrapper  # the class of what functools.cache makes
_class_dict = type.__dict__["__dict__"].__get__


class Asked(NamedTuple):
    """A cache found in a cell's source.

    ``holder`` is the name and the attributes that lead to the cache, ``chains`` are those of the modules, or of their
    methods, and of the functions that may compute what it stores. A first name ``self`` stands for each object of class
    ``owner`` (empty: there is none). ``default``: the cache is the default of this parameter of the function (empty: it
    is not).
    """

    holder: Chain
    chains: tuple[Chain, ...]
    owner: str = ""
    default: str = ""


class StaleCache(NamedTuple):
    """A cache with results from older weights, or from an older definition of a function. Cells are given by their
    numbers.

    ``entries`` (expressions) of the cache ``asked`` were filled by cell ``since`` and have not changed; cell ``moved``
    changed the weights of ``module`` (an expression), to which ``chain`` leads, or defined the function of this name
    again (``is_function``). ``hit``: cached results have been read since the entries were filled; None where nothing
    counts the reads. ``filled`` are cells that have added further entries since then.
    """

    asked: Asked
    entries: tuple[str, ...]
    module: str
    chain: Chain
    since: int
    moved: int
    hit: bool | None
    is_function: bool = False
    filled: tuple[int, ...] = ()


class _Kept(NamedTuple):
    """A cache after a cell. A mark is an id, a version and a checksum; for a function cached by ``functools``, its
    counts.

    ``entries`` has the mark of each entry, ``since`` is the cell that added the newest of them, ``weights`` has the
    marks of the weights and functions at that time, ``moved`` the cells that have changed these since then. ``filled``
    are the cells that have added entries since the change, and ``later`` has the marks of the entries that they added.
    ``hits`` is how often results had been read; negative where nothing counts this.
    """

    entries: dict[str, Any]
    since: int
    weights: dict[Chain, tuple[Any, ...]]
    moved: dict[Chain, int]
    hits: int
    filled: tuple[int, ...] = ()
    later: Mapping[str, Any] = {}


class Caches:
    """Remembers ids, versions and checksums of cached results and of the weights from which they were computed, to find
    results that are older than their weights or function.
    """

    def __init__(self) -> None:
        self._was: dict[tuple[Any, ...], _Kept] = {}

    def compare(
        self, namespace: Mapping[str, Any], asked: Sequence[Asked], now: int, budget: Budget
    ) -> list[StaleCache]:
        """The caches of ``asked`` with entries that modules or functions computed, if the weights of the module, or the
        function, have changed since; ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``namespace`` has the notebook's
        names and their objects.
        """
        found, met = list[StaleCache](), dict[tuple[Any, ...], _Kept]()
        sums = Sums()
        sums.left = SUMMED
        for each in asked:
            for name in _names(namespace, each, budget):
                at = name, each.holder, each.default
                entries, hits = _entries(namespace, each, name)
                if entries:
                    met[at] = kept = self._next(at, entries, hits, _modules(namespace, each, name, sums), now)
                    found += _stale(each, name, kept, hits)
            if not budget.goes_on():
                return []
        self._was = met
        return found

    def _next(
        self, at: tuple[Any, ...], entries: dict[str, Any], hits: int, weights: dict[Chain, tuple[Any, ...]], now: int
    ) -> _Kept:
        was = self._was.get(at)
        if was is None or any(was.entries.get(key, each) != each for key, each in entries.items()):
            return _Kept(entries, now, weights, {}, hits)
        moved = {
            chain: was.moved.get(chain, now)
            for chain, each in weights.items()
            if chain in was.weights and _differ(was.weights[chain], each)
        }
        old = {key: each for key, each in entries.items() if key in was.entries}
        if len(old) < len(entries) and not (old and moved):
            return _Kept(entries, now, weights, {}, hits)
        later = {key: each for key, each in entries.items() if key not in old}
        filled = was.filled if later == was.later or now in was.filled else (*was.filled, now)
        return was._replace(entries=old, weights={**weights, **was.weights}, moved=moved, filled=filled, later=later)


def _stale(asked: Asked, name: str, kept: _Kept, hits: int) -> Iterator[StaleCache]:
    """The findings for each module or function, in the order in which these changed."""
    for chain, moved in sorted(kept.moved.items(), key=lambda each: each[1]):
        counted = hits > kept.hits if hits >= 0 else None
        module = ".".join((name, *chain[1:]) if chain[0] == "self" else chain)
        is_function = kept.weights[chain][0][0] == _CODE
        yield StaleCache(
            asked, tuple(kept.entries), module, chain, kept.since, moved, counted, is_function, kept.filled
        )


def _names(namespace: Mapping[str, Any], asked: Asked, budget: Budget) -> Iterator[str]:
    """The names that the first name of a holder stands for: itself, or, for ``self``, those of the objects of its
    class.
    """
    if not asked.owner:
        yield asked.holder[0]
        return
    for name in list(namespace):
        if not budget.goes_on():
            return
        value = namespace.get(name)
        if type(name) is str and class_name(value) == asked.owner and class_origin(value) == "__main__":
            yield name


def _resolve(namespace: Mapping[str, Any], chain: Chain, name: str) -> Any:
    """The object that a name and attributes lead to, read from the dicts of objects alone; ``None`` if there is
    none.
    """
    value = namespace.get(name if chain[0] == "self" else chain[0])
    for step in chain[1:]:
        value = _attribute(value, step)
    return value


def _attribute(value: Any, step: str) -> Any:
    kind = Kinds().of(value)
    if kind == "module":
        parts = (*tables(value), inside(value, "module"))
        return next((part[step] for part in parts if step in part), None)
    if type(value) is types.FunctionType:
        return value.__dict__.get(step)
    if type(value) is type and _class_dict(value).get("__module__") == "__main__":
        return _class_dict(value).get(step)
    return inside(value, "object").get(step) if kind == "object" else None


def _entries(namespace: Mapping[str, Any], asked: Asked, name: str) -> tuple[dict[str, Any], int]:
    """The marks (see :class:`_Kept`) of the entries by their expressions, and how often they were read (-1: nothing
    counts this).
    """
    value, text = _unwrapped(_resolve(namespace, asked.holder, name), asked.default), _text(asked, name)
    if type(value) is _CACHE:
        info = value.cache_info()
        return ({f"{text}(…)": (id(value), info.misses, info.currsize)} if info.currsize else {}), info.hits
    if type(value) is types.FunctionType:
        value = _default(value, asked.default)
    items: list[tuple[str, Any]] = [(text, value)]
    if Kinds().of(value) == "group":
        pairs = enumerate(value[:ELEMENTS]) if isinstance(value, (list, tuple)) else islice(value.items(), ELEMENTS)
        items = [(f"{text}[{_key(key, at)}]", each) for at, (key, each) in enumerate(list(pairs))]
    return {shown: marks for shown, each in items if (marks := _marks(each, DEPTH))}, -1


def _unwrapped(value: Any, default: str) -> Any:
    """The cache itself, with the wrappers of ``functools.wraps`` removed from a decorated function; ``None`` for a
    plain function, unless the cache is a ``default`` of it.
    """
    for _ in range(DEPTH):
        if type(value) is types.FunctionType and "__wrapped__" in value.__dict__:
            value = value.__dict__["__wrapped__"]
    return value if default or type(value) is not types.FunctionType else None


def _default(function: types.FunctionType, name: str) -> Any:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    named = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    return {**named, **(function.__kwdefaults__ or {})}.get(name)


def _text(asked: Asked, name: str) -> str:
    if asked.default:
        return asked.default
    return ".".join((name, *asked.holder[1:]) if asked.holder[0] == "self" else asked.holder)


def _key(key: Any, at: int) -> str:
    if type(key) is tuple and all(type(each) in (str, int, bool, float) for each in key):
        return ", ".join(map(repr, key))[:60]
    return repr(key)[:60] if type(key) in (str, int, bool, float) else f"#{at}"


def _marks(value: Any, depth: int) -> tuple[Any, ...]:
    """The ids, versions and checksums of the tensors and arrays that a value is or contains; empty if there are
    none.
    """
    kind = Kinds().of(value)
    if kind == "tensor":
        if type(value) is Parameter or not is_own(value) or is_opaque(value):
            return ()
        return ((id(value), 0 if value.is_inference() else value._version, mark(value)),)
    if kind == "array":
        return ((id(value), mark(value)),) if type(value) is np.ndarray and value.nbytes <= SUMMED else ()
    if kind == "group" and depth:
        held = value[:ELEMENTS] if isinstance(value, (list, tuple)) else list(islice(value.values(), ELEMENTS))
        return tuple(one for each in held for one in _marks(each, depth - 1))
    return ()


def _modules(namespace: Mapping[str, Any], asked: Asked, name: str, sums: Sums) -> dict[Chain, tuple[Any, ...]]:
    """The marks (see :func:`_weights`) of the module to which the longest possible beginning of each chain leads, and
    those of the notebook's functions among the chains.
    """
    made: dict[Chain, tuple[Any, ...]] = {}
    for chain in asked.chains:
        function = own(namespace.get(chain[0]), namespace) if len(chain) == 1 else None
        if function is not None:
            made[chain] = ((_CODE, 0, code_mark(function)),)
            continue
        for end in range(len(chain), 0, -1):
            part = chain[:end]
            value = _resolve(namespace, part, name)
            if Kinds().of(value) == "module":
                if part not in made and (marks := _weights(value, sums)):
                    made[part] = marks
                break
    return made


def _weights(module: Any, sums: Sums) -> tuple[Any, ...]:
    """The id, version and checksum (None where it is not computed) of each parameter of a module, at most
    :data:`MOST`.
    """
    work, seen, made = [module], {id(module)}, list[Any]()
    for each in work:  # the list grows during the iteration
        parameters, _, children = tables(each)
        for one in list(parameters.values()):
            if is_own(one) and not is_opaque(one) and not one.is_inference() and len(made) < MOST:
                made.append((id(one), one._version, sums.of(one)))
        for child in list(children.values()):
            if Kinds().of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append(child)
    return tuple(made)


def _differ(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    if len(one) != len(other):
        return True
    for (at, version, total), (other_at, other_version, other_total) in zip(one, other, strict=True):
        if total is not None and other_total is not None:
            if total != other_total:
                return True
        elif (at, version) != (other_at, other_version):
            return True
    return False
