"""Finds models that were reset to their first parameters and trained again while the optimizer continues at the lower
learning rate with which the first training ended (:meth:`Beginnings.compare`).

Before an optimizer's first step the checksums of its parameters and its learning rates are stored, as numbers.
Parameters with the same checksums in a later cell were reset, in whatever way; parameters that were all written in a
cell without a step may have been initialized again, which the cell's source has to confirm. A reset within one cell is
found from what exists after it: a name that still holds the first parameters, and an optimizer that is the same and has
continued.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import held_by, inside, is_own
from pitfall_lab.observe.live.sums import Sums
from pitfall_lab.observe.tensor_facts import is_opaque

SUMMED = 1 << 19
"""For how many bytes of parameters the checksums are computed at most after one cell."""
SAMPLED = 64
"""How many parameters of an optimizer are examined at most."""
LOWER = 0.9
"""A learning rate below this fraction of the first one counts as lowered."""
Way = Literal["put-back", "written", "cell", "rounds"]
_Marks = tuple[tuple[tuple[int, ...], int | None], ...]


class BegunAgain(NamedTuple):
    """An optimizer that had trained a model and continued at its lowered learning rate when the model was reset to its
    first parameters and trained again. Cells are given by their numbers.

    ``optimizer`` and ``model`` are expressions (``model`` is empty if no name has it), ``path`` the names and keys that
    lead to the optimizer. Cell ``first`` made the first steps and cell ``again`` trained again, at the rate ``rate``,
    which had been ``begin`` at first; before that the optimizer had counted ``steps`` steps (-1: unknown, 0: it keeps
    no state). ``way`` says how the parameters were reset: ``put-back``: to their first values, in cell ``back``;
    ``written``: all of them were written in cell ``back``; ``cell``: in cell ``again`` itself before it trained;
    ``rounds``: in each iteration of a loop in cell ``again``. The last two must be confirmed by the cell's source
    (``back`` is 0); for them, ``starts`` are the names that still hold the first values.
    """

    optimizer: str
    path: Path
    model: str
    way: Way
    back: int
    again: int
    first: int
    steps: int
    rate: float
    begin: float
    starts: frozenset[str]


class _Begin(NamedTuple):
    """The checksums of the parameters, and the learning rates, before the first step."""

    marks: _Marks
    rates: tuple[float, ...]


class _Seen(NamedTuple):
    """An optimizer after a cell: the ``ids`` of its parameters, the versions and checksums of some, its rates, and
    ``count``: its number of steps, or the id and version of the first tensor that it keeps, or None if it keeps none.

    ``first`` is the cell of the first step (0: none yet), ``back`` the cell that reset the parameters (0: none) and
    ``way`` how.
    """

    ids: tuple[int, ...]
    versions: tuple[int, ...]
    marks: _Marks
    rates: tuple[float, ...]
    count: Any
    begin: _Begin | None = None
    first: int = 0
    back: int = 0
    way: Way = "put-back"


class Beginnings:
    """Remembers, for each optimizer, the checksums of its parameters and its learning rates before its first step."""

    def __init__(self) -> None:
        self._was: dict[int, _Seen] = {}
        self._found: dict[int, BegunAgain] = {}
        self._cell = 0

    def compare(self, found: Found, now: int, budget: Budget) -> list[BegunAgain]:
        """The optimizers found so far, and still existing, that continued at their last learning rate with a model that
        was reset to its first parameters; ``now`` is the number of the last cell.

        An empty list if there are none; the findings of the previous cell if the time limit ``budget`` is exceeded.
        ``found`` is what the notebook's names lead to.
        """
        if now == self._cell:
            return list(self._found.values())
        sums = Sums()
        sums.left = SUMMED
        seen: dict[int, _Seen] = {}
        things: dict[int, Thing] = {}
        for thing in found.optimizers:
            if not budget.goes_on():
                return list(self._found.values())
            at = id(thing.value)
            if at not in things and (read := _read(thing.value, sums)) is not None:
                things[at] = thing
                seen[at] = read
        self._cell = now
        self._found = {at: each for at, each in self._found.items() if at in seen}
        for at, read in seen.items():
            was = self._was.get(at)
            if was is None or was.ids != read.ids:
                self._found.pop(at, None)
                seen[at] = _next_begin(read, now)
                continue
            seen[at], one = _next(was, read, now)
            if _is_anew(was, read) or seen[at].begin is None or not seen[at].first:
                self._found.pop(at, None)
            if one is not None:
                self._found[at] = _named(one, things[at], found, was, budget)
        self._was = seen
        return list(self._found.values())


def _named(one: BegunAgain, thing: Thing, found: Found, was: _Seen, budget: Budget) -> BegunAgain:
    names = {id(each.value): each.path[0] for each in reversed(found.parameters)}
    model = next((names[at] for at in was.ids if at in names), "")
    starts = _starts(found, model, was.begin, budget) if one.way in ("cell", "rounds") else frozenset[str]()
    return one._replace(optimizer=thing.text, path=thing.path, model=model, starts=starts)


def _starts(found: Found, model: str, begin: _Begin | None, budget: Budget) -> frozenset[str]:
    """The names, other than the model's, that hold tensors with all the checksums of the beginning."""
    marks = {each for each in begin.marks if each[1] is not None} if begin is not None else set()
    sums, held = Sums(), defaultdict[str, set[Any]](set)
    for thing in (*found.tensors, *found.parameters):
        if not budget.goes_on():
            break
        if len(thing.path) > 1 and thing.path[0] != model and is_own(thing.value) and not is_opaque(thing.value):
            shape = tuple(thing.value.shape)
            if any(shape == each for each, _ in marks):
                held[thing.path[0]].add((shape, sums.of(thing.value)))
    return frozenset(name for name, each in held.items() if marks and marks <= each)


def _next(was: _Seen, read: _Seen, now: int) -> tuple[_Seen, BegunAgain | None]:
    """The optimizer's state after this cell, and the finding about it (None if there is none)."""
    kept = read._replace(begin=was.begin, first=was.first, back=was.back, way=was.way)
    begin, written = was.begin, was.versions != read.versions or was.marks != read.marks
    # One that keeps nothing has trained where a scheduler moved its rate too: else the parameters were only written.
    moved = was.count != read.count if read.count is not None else written and was.rates != read.rates
    anew = _is_anew(was, read)
    if begin is None or (anew and read.count is None) or not (was.first or moved):
        return _next_begin(read, now), None
    is_back = _is_back(was, read, begin)
    if not was.first:
        lower = _lower(read.rates, begin.rates)
        one = _said("rounds", 0, (now, now), read, lower) if lower else None
        return kept._replace(first=now, back=now if is_back else 0), one
    if moved:
        lower = _lower(was.rates, begin.rates)
        way: Way = was.way if was.back else "cell"
        one = _said(way, was.back, (was.first, now), was, lower) if lower and not anew else None
        return kept._replace(back=now if is_back else 0, way="put-back"), one
    if is_back:
        return kept._replace(back=was.back if was.back and was.way == "put-back" else now, way="put-back"), None
    if written:
        whole = all(one != other for one, other in zip(was.versions, read.versions, strict=True))
        return kept._replace(back=now if whole else was.back if was.way == "written" else 0, way="written"), None
    return kept, None


def _said(way: Way, back: int, cells: tuple[int, int], seen: _Seen, rates: tuple[float, float]) -> BegunAgain:
    """The finding, without names; ``cells`` are those of the first and of the second training."""
    first, again = cells
    steps = seen.count if type(seen.count) is int else 0 if seen.count is None else -1
    return BegunAgain("", (), "", way, back, again, first, steps, *rates, frozenset())


def _next_begin(read: _Seen, now: int) -> _Seen:
    """The optimizer with its present state as its beginning; without a beginning if it has made steps that were not
    seen.
    """
    if read.count not in (None, 0):
        return read._replace(begin=None, first=now)
    return read._replace(begin=_Begin(read.marks, read.rates), first=0)


def _is_anew(was: _Seen, read: _Seen) -> bool:
    """Whether the optimizer's state is empty now, or counts fewer steps than before: it was cleared or replaced."""
    if type(was.count) is int and type(read.count) is int:
        return read.count < was.count
    return was.count is not None and read.count is None


def _lower(rates: Sequence[float], begin: Sequence[float]) -> tuple[float, float] | None:
    """The first learning rate that was lowered, and its value at the beginning; None if there is none."""
    pairs = zip(rates, begin, strict=False)
    return next(((rate, first) for rate, first in pairs if rate < LOWER * first), None)


def _is_back(was: _Seen, read: _Seen, begin: _Begin) -> bool:
    """Whether the cell wrote parameters, and all parameters that can be compared are as at the beginning."""
    known = [at for at, (_, total) in enumerate(begin.marks) if total is not None and read.marks[at][1] is not None]
    written = any(was.marks[at] != read.marks[at] or was.versions[at] != read.versions[at] for at in known)
    return written and all(read.marks[at] == begin.marks[at] for at in known)


def _read(optimizer: Any, sums: Sums) -> _Seen | None:
    table = inside(optimizer, "optimizer")
    held = [each for each in held_by(optimizer) if is_own(each) and not is_opaque(each) and not each.is_inference()]
    groups: Any = table.get("param_groups")
    state: Any = table.get("state")
    if not held or type(groups) is not list or type(state) not in (dict, defaultdict):
        return None
    rates = [group.get("lr") for group in groups if type(group) is dict]
    numbers = tuple(float(each) for each in rates if type(each) is float or type(each) is int)
    some = held[:: -(-len(held) // SAMPLED)]
    marks = tuple((tuple(each.shape), sums.of(each)) for each in some)
    versions = tuple(each._version for each in some)
    return _Seen(tuple(id(each) for each in held), versions, marks, numbers, _count(state, some))


def _count(state: Mapping[Any, Any], held: Sequence[Any]) -> Any:
    """The number of steps that an optimizer has counted; if it counts none, the id and version of a tensor that it
    keeps; None if it keeps none.
    """
    for each in held:
        kept = state.get(each)
        if type(kept) is not dict:
            continue
        step: Any = kept.get("step")
        if type(step) is int or type(step) is float:
            return int(step)
        if is_own(step) and not is_opaque(step) and step.device.type == "cpu" and step.numel() == 1:
            return int(step.item())
        tensors = [one for one in kept.values() if is_own(one) and not one.is_inference()]
        if tensors:
            return id(tensors[0]), tensors[0]._version
    return None
