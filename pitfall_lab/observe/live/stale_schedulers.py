"""Finds objects that keep changing the learning rate of an optimizer which no longer trains, while a newer optimizer
trains at a learning rate that nothing changes (:meth:`Schedulers.compare`).

Such an object (a scheduler of torch, or of a class of the notebook) holds its optimizer in its attribute ``optimizer``;
binding the optimizer's name to a new one does not change that. Determined from plain numbers alone: in the last cell a
counter of the object or the old optimizer's learning rate changed; none of the parameters that only the old optimizer
has was written; and parameters of another optimizer were, whose learning rate did not change and which no such object
holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, Found, is_shown
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, held_by, inside, is_own, methods_name

_STEPS = 6
"""The version from which on a parameter that did not exist before the cell counts as trained in it."""
_dict = torch.optim.lr_scheduler.LRScheduler.__dict__["__dict__"].__get__
_mro = type.__dict__["__mro__"].__get__


class Stale(NamedTuple):
    """An object that changes the learning rate of an optimizer which trains nothing any more.

    ``name`` is the expression for the object, ``path`` the names and keys that lead to it, ``type`` its class. It was
    found last in cell ``cell`` (a number), where ``optimizer`` (an expression; ``optimizer_path`` leads to it) trained
    at the learning rate ``rate``. ``old`` is the learning rate of the optimizer that the object changes.
    """

    name: str
    path: tuple[str, ...]
    type: str
    optimizer: str
    optimizer_path: tuple[str, ...]
    rate: float
    old: float
    cell: int


class Stepped(NamedTuple):
    """A scheduler that cells have stepped.

    The scheduler with the expression ``name`` (of class ``type``) is at step ``at`` of ``total``; ``cells`` has, for
    each cell that has stepped it, the number of the cell and how many steps it made.
    """

    name: str
    type: str
    at: int
    total: int
    cells: tuple[tuple[int, int], ...]


class _Rates(NamedTuple):
    """An optimizer after a cell: the learning rates of its groups, and the version of each of its parameters by id."""

    rates: tuple[float, ...]
    versions: Mapping[int, int]


class Schedulers:
    """Remembers, after each cell, the learning rates and parameter versions of optimizers and the counters of the
    objects that change their learning rates, to find such objects whose optimizer no longer trains.
    """

    def __init__(self) -> None:
        self._optimizers: dict[int, _Rates] = {}
        self._moved: dict[tuple[int, int], tuple[Any, ...]] = {}
        self._found: dict[tuple[str, ...], tuple[int, int, Stale]] = {}
        self._steps: dict[tuple[int, int], dict[int, int]] = {}
        self._cell = 0

    def compare(self, found: Found, namespace: Mapping[str, Any], now: int, budget: Budget) -> list[Stale]:
        """The schedulers, and other objects with an ``optimizer``, whose optimizer no longer trains and that were
        stepped in a cell in which another optimizer trained; ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``namespace`` has the notebook's
        names and their objects, ``found`` is what these lead to.
        """
        if now == self._cell:
            return [each for _, _, each in self._found.values()]
        drivers = list(_drivers(namespace, budget))
        if budget.spent:
            return []
        self._cell = now
        if not drivers:
            self._optimizers, self._moved, self._found, self._steps = {}, {}, {}, {}
            return []
        things = {id(each.value): each for each in reversed(found.optimizers)}
        held = {id(optimizer) for _, _, optimizer in drivers}
        old = [optimizer for _, _, optimizer in drivers if id(optimizer) not in things]
        optimizers = {id(each): each for each in (*(thing.value for thing in things.values()), *old)}
        seen = {at: _read(each) for at, each in optimizers.items()}
        moved = {(id(each), id(optimizer)): _numbers(each) for _, each, optimizer in drivers}
        current = {path: (id(each), id(optimizer)) for path, each, optimizer in drivers}
        self._found = {path: each for path, each in self._found.items() if current.get(path) == each[:2]}
        self._steps = {
            at: {**(before if max(before.values(), default=0) <= step else {}), now: step}
            for _, each, optimizer in drivers
            if (step := _number(each, "last_epoch")) is not None
            for at in [(id(each), id(optimizer))]
            for before in [self._steps.get(at, {})]
        }
        for path, each, optimizer in drivers:
            ours, at = id(optimizer), (id(each), id(optimizer))
            before, was = self._optimizers.get(ours), self._moved.get(at)
            if before is None or was is None or (was == moved[at] and before.rates == seen[ours].rates):
                continue
            trained = [
                thing
                for other, thing in things.items()
                if other not in held and other != ours and self._trains(other, seen[other])
            ]
            newer = {one for thing in trained for one in seen[id(thing.value)].versions}
            own = {one for one in seen[ours].versions if one not in newer}
            if any(before.versions.get(one) != seen[ours].versions[one] for one in own):
                continue
            # With nothing of its own the newer optimizer has its parameters: if no name has it, none can step with it.
            if trained and (own or ours not in things):
                thing, rates = trained[0], seen[id(trained[0].value)].rates
                self._found[path] = (
                    *at,
                    Stale(
                        _text(path), path, class_name(each), thing.text, thing.path, rates[0] if rates else 0.0,
                        seen[ours].rates[0] if seen[ours].rates else 0.0, now,
                    ),
                )  # fmt: skip
        self._optimizers, self._moved = seen, moved
        return [each for _, _, each in self._found.values()]

    def stepped(self, scheduler: Any, namespace: Mapping[str, Any], budget: Budget) -> Stepped | None:
        """Return which cells before the running one have stepped a scheduler of torch that has an attribute
        ``total_steps``; ``None`` if it has none, no name leads to it, or no cell has stepped it.

        ``namespace`` has the notebook's names and their objects. ``budget`` is the time limit.
        """
        total = _number(scheduler, "total_steps") if _is_scheduler(scheduler) else None
        drivers = _drivers(namespace, budget)
        path, optimizer = next(((path, held) for path, each, held in drivers if each is scheduler), (None, None))
        if path is None or total is None:
            return None
        steps = sorted(self._steps.get((id(scheduler), id(optimizer)), {}).items())
        counted = [(cell, at - was) for (_, was), (cell, at) in zip([(0, 0), *steps], steps, strict=False)]
        moved = tuple((cell, count) for cell, count in counted if count > 0)
        return Stepped(_text(path), class_name(scheduler), steps[-1][1], total, moved) if moved else None

    def _trains(self, at: int, now: _Rates) -> bool:
        """Whether the last cell trained with an optimizer, at a learning rate that did not change."""
        was = self._optimizers.get(at)
        if was is not None and was.rates != now.rates:
            return False
        known = {one: version for each in self._optimizers.values() for one, version in each.versions.items()}
        return any(
            known[one] != version if one in known else was is None and version >= _STEPS
            for one, version in now.versions.items()
        )


def _drivers(namespace: Mapping[str, Any], budget: Budget) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """For each object that changes the learning rate of the optimizer that it holds: its path, the object, and the
    optimizer.
    """
    kinds = Kinds()
    for name in list(namespace):  # of a million names, the names alone are copied ten times faster
        if not budget.goes_on():
            return
        if type(name) is str and is_shown(name):
            value = namespace.get(name)
            yield from _inside((name,), value, kinds, 2)


def _inside(path: tuple[str, ...], value: Any, kinds: Kinds, depth: int) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    kind = kinds.of(value)
    table = inside(value, "object") if kind == "object" else _dict(value) if _is_scheduler(value) else {}
    optimizer = table.get("optimizer") if table else None
    if optimizer is not None and kinds.of(optimizer) == "optimizer" and not _is_trainer(value, kind):
        yield path, value, optimizer
    elif depth and kind in ("group", "object"):
        if type(value) is list or type(value) is tuple:
            items: Sequence[tuple[Any, Any]] = list(enumerate(value[:ELEMENTS]))
        else:
            items = list(islice((value if kind == "group" else table).items(), ELEMENTS))
        for key, each in items:
            if type(key) is int or type(key) is str:
                yield from _inside((*path, str(key)), each, kinds, depth - 1)


def _is_scheduler(value: Any) -> bool:
    return any(each is torch.optim.lr_scheduler.LRScheduler for each in _mro(type(value)))


def _is_trainer(value: Any, kind: str) -> bool:
    """Whether an object of a class of the notebook trains with its optimizer itself."""
    return kind == "object" and any(methods_name(value, each) for each in ("zero_grad", "backward"))


def _text(path: tuple[str, ...]) -> str:
    return path[0] + "".join(f"[{each}]" if each.isdecimal() else f"[{each!r}]" for each in path[1:])


def _numbers(value: Any) -> tuple[Any, ...]:
    """The plain numbers among an object's attributes, which include its counters."""
    table = _dict(value) if _is_scheduler(value) else inside(value, "object")
    return tuple(each for each in list(table.values()) if type(each) is int or type(each) is float)


def _number(value: Any, name: str) -> int | None:
    """The object's own attribute with this name, if it is an integer; else ``None``."""
    table = _dict(value) if _is_scheduler(value) else inside(value, "object")
    number = table.get(name)
    return number if type(number) is int else None


def _read(optimizer: Any) -> _Rates:
    groups = inside(optimizer, "optimizer").get("param_groups")
    rates = [group.get("lr") for group in groups if type(group) is dict] if type(groups) is list else []
    numbers = tuple(float(each) for each in rates if type(each) is float or type(each) is int)
    versions = {id(each): each._version for each in held_by(optimizer) if is_own(each) and not each.is_inference()}
    return _Rates(numbers, versions)
