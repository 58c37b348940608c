"""Finds kept state dicts of optimizers whose tensors a training has changed in place (:meth:`KeptStates.compare`).

``state_dict()`` of an optimizer returns its own tensors, and ``load_state_dict`` uses those that need no conversion, so
a kept state may be changed by the steps before it is loaded, or by those after. For each kept state the ids and
checksums of some tensors are stored, as numbers.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, Found, Path, is_shown
from pitfall_lab.observe.live.object_kinds import inside, is_own
from pitfall_lab.observe.live.sums import Sums
from pitfall_lab.observe.tensor_facts import is_opaque

SUMMED = 1 << 19
"""For how many bytes of states the checksums are computed at most after one cell."""
SAMPLED = 8
"""Of how many tensors of a state the checksums are stored at most."""


class KeptState(NamedTuple):
    """A ``state_dict()`` of an optimizer that the notebook keeps. ``text`` is the expression for it, ``path`` the names
    and keys that lead to it, ``optimizer`` the name of the optimizer whose tensors it has or had (empty if unknown).

    ``since`` is the number of the cell after which it was first seen with these tensors, ``moved`` that of the first
    later cell that changed them (None: none did). ``shared``: at the end of cell ``since`` its tensors were those of
    the live optimizer.
    """

    text: str
    path: Path
    optimizer: str
    since: int
    moved: int | None
    shared: bool


class _SeenState(NamedTuple):
    """A kept state after a cell: ids and checksums of its tensors, and the record of it."""

    ids: tuple[int, ...]
    sums: tuple[int | None, ...]
    said: KeptState


class KeptStates:
    """Remembers ids and checksums of the tensors in optimizers' state dicts that the notebook keeps, to find states
    that a later training has changed.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, _SeenState] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> list[KeptState]:
        """The kept states that were changed, or that share the tensors of an optimizer; ``now`` is the number of the
        last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        sums, seen = Sums(), dict[Path, _SeenState]()
        sums.left = SUMMED
        owners: dict[int, str] | None = None
        for path, text, state in _kept(found):
            tensors = list(islice(_tensors(state), SAMPLED))
            if not tensors or not budget.goes_on():
                continue
            if owners is None:
                owners = _owners(found, budget)
            ids = tuple(id(each) for each in tensors)
            marks = tuple(sums.of(each) for each in tensors)
            optimizer = next((owners[at] for at in ids if at in owners), "")
            was = self._seen.get(path)
            if was is None or was.ids != ids:
                seen[path] = _SeenState(ids, marks, KeptState(text, path, optimizer, now, None, bool(optimizer)))
                continue
            said = was.said._replace(optimizer=optimizer or was.said.optimizer)
            if said.moved is None and was.sums != marks:
                said = said._replace(moved=now)
            seen[path] = _SeenState(ids, marks, said)
        if budget.spent:
            return []
        self._seen = seen
        return [each.said for each in seen.values() if each.said.moved is not None or each.said.shared]


def _kept(found: Found) -> Iterator[tuple[Path, str, Any]]:
    """The state dicts of optimizers that names hold, themselves or as an entry of a dict: path, expression and the
    ``"state"`` entry.
    """
    for thing in found.names:
        if thing.kind != "group" or not _is_dict(thing.value) or not is_shown(thing.path[0]):
            continue
        if _is_state(thing.value):
            yield thing.path, thing.text, thing.value["state"]
            continue
        for key, each in list(islice(thing.value.items(), ELEMENTS)):
            if type(key) is str and _is_state(each):
                yield (*thing.path, repr(key)), f"{thing.text}[{key!r}]", each["state"]


def _is_dict(value: Any) -> bool:
    return type(value) is dict or type(value) is OrderedDict


def _is_state(value: Any) -> bool:
    return (
        _is_dict(value)
        and _is_dict(value.get("state"))
        and type(value.get("param_groups")) is list
        and all(type(each) is int for each in list(islice(value["state"], SAMPLED)))
    )


def _tensors(state: Any) -> Iterator[Any]:
    """The tensors that a state has for its parameters."""
    for kept in list(state.values()):
        for each in list(kept.values()) if _is_dict(kept) else ():
            if is_own(each) and not is_opaque(each) and not each.is_inference():
                yield each


def _owners(found: Found, budget: Budget) -> dict[int, str]:
    """The names of the live optimizers, by the id of each tensor of their state."""
    owners: dict[int, str] = {}
    for thing in found.optimizers:
        state: Any = inside(thing.value, "optimizer").get("state")
        if budget.goes_on() and type(state) in (dict, defaultdict):
            owners |= dict.fromkeys((id(each) for each in _tensors(state)), thing.text)
    return owners
