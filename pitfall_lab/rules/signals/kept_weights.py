"""Weights that were kept without a copy and later copied onto themselves: where they were kept, and what changed
them.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.name_origins import given
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, reads
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, Span

ROUNDS = 3
"""How many loads of one tensor on one line are examined at most."""


@dataclass(frozen=True, slots=True)
class RestoredWeights:
    """A tensor that was copied onto itself, as it had been kept without a copy: ``load`` is the call (``Event``) that
    copied it, ``place`` the span in the source where it had been kept.

    ``kept`` is the step of the ``detach()`` or ``.data`` there; None if a container of the parameters themselves was
    kept, whose expression is ``value`` (else None). ``changed`` is the step of a write to that storage after it was
    kept: the first one, possibly in an earlier iteration; for a container, the last one before the load. ``is_newest``:
    in this run nothing was written between the last time it was kept and the load.
    """

    load: Event
    place: Span
    kept: int | None
    changed: int
    value: ast.expr | None = None
    is_newest: bool = False


@lru_cache(maxsize=1)
def restored(story: Story) -> tuple[RestoredWeights, ...]:
    """Return the copies of tensors onto themselves that were supposed to restore weights kept earlier and changed
    since, in order; of each line and tensor only the first ``ROUNDS``.
    """
    looks: dict[str, list[Event]] = defaultdict(list)
    for event in story.calls("detach", "data"):
        if (
            event.error is None
            and event.results
            and (storage := (story.tensor(event.results[0], event.step) or {}).get("storage"))
        ):
            looks[storage].append(event)
    rounds = Counter[tuple[Span | None, str | None]]()
    loads = []
    for event in story.calls("copy_"):
        if event.error is None and len(event.operands) > 1 and _is_onto_itself(story, event):
            place = story.span(event.step), event.operands[0].label
            rounds[place] += 1
            loads += [event] if rounds[place] <= ROUNDS else []
    found = (_restored(story, load, looks, loads) for load in loads)
    return tuple(each for each in found if each is not None)


def _is_onto_itself(story: Story, event: Event) -> bool:
    """Whether the source of the copy is the same elements as its target; False for the scalar int64 counter that a
    batch norm copies onto itself when it loads a state without one.
    """
    record, other = (story.tensor(o.label, event.step) or {} for o in event.operands[:2])
    if (
        event.operands[0].label == event.operands[1].label
        and record.get("shape") == []
        and record.get("dtype") == "int64"
    ):
        return False
    return same_piece(record, other)


def _restored(story: Story, load: Event, looks: dict[str, list[Event]], loads: list[Event]) -> RestoredWeights | None:
    """What was found for one load; None if nothing was written since the tensor was kept, or if the source does not
    show where it was kept.
    """
    label = load.operands[1].label
    record = story.tensor(label, load.step) or {}
    storage, born = str(record.get("storage")), story.event(record.get("born"))
    if record.get("kind") == "parameter" or label == load.operands[0].label:
        return _of_container(story, load, storage)
    if born is None:
        return None
    before = [
        e for e in looks[storage] if e.step < load.step and same_piece(story.tensor(e.results[0], e.step), record)
    ]
    if label not in born.results:  # it was made in a round that is not recorded: a recorded round shows the same line
        kept = _other_rounds(story, load, before)
        changed = _changed(story, storage, kept[0].step, load, loads) if kept else None
        return _at(story, load, kept[0], changed)
    place = story.span(born.step)
    if place == story.span(load.step):
        return None
    if changes := story.bumps(record.get("counter"), born.step, load.step - 1):
        return _at(story, load, born, changes[0])
    for earlier in (e for e in before if e.step < born.step and story.span(e.step) == place):
        changed = _changed(story, storage, earlier.step, born, loads)
        if changed is not None:
            return _at(story, load, born, changed, is_newest=True)
    return None


def _at(
    story: Story, load: Event, kept: Event, changed: int | None, *, is_newest: bool = False
) -> RestoredWeights | None:
    place = story.span(kept.step)
    return (
        RestoredWeights(load, place, kept.step, changed, None, is_newest)
        if changed is not None and place is not None
        else None
    )


def _of_container(story: Story, load: Event, storage: str) -> RestoredWeights | None:
    """What was found for a parameter copied onto itself that comes from a list or dictionary of the parameters
    themselves.

    None if the source shows no such container, or if no write may have come after it.
    """
    node = story.program.at(story.span(load.step))
    source = given(story.program, node.args[0]) if isinstance(node, ast.Call) and node.args else None
    if source is None or not isinstance(source.value, ast.Call | ast.ListComp | ast.DictComp):
        return None
    place, read = story.program.place(source.statement), story.span(load.step)
    for step in reversed(story.writes(storage, -1, load.step)):
        here = story.span(step)
        if here is not None and here != read and _may_follow(story, here, source.statement):
            return RestoredWeights(load, place, None, step, source.value)
    return None


def _may_follow(story: Story, here: Span, kept: ast.stmt) -> bool:
    """Whether a write at ``here`` may have happened after the statement ``kept``: its line is below it, in a loop
    around it or in another function.
    """
    program = story.program
    node = program.at(here)
    if node is None or here.line > kept.lineno or program.function(node) is not program.function(kept):
        return True
    around = {id(a) for a in program.ancestors(node)}
    return any(isinstance(a, ast.For | ast.While) and id(a) in around for a in program.ancestors(kept))


def _changed(story: Story, storage: str, kept: int, until: Event, loads: list[Event]) -> int | None:
    """The first write between two steps; None if there is none, or if one of ``loads`` wrote the storage between them:
    then each iteration uses its own copy.
    """
    written = next(iter(story.writes(storage, kept, until.step)), None)
    brought_back = {e.step for e in loads if kept < e.step < until.step and storage in e.writes}
    return None if written is None or brought_back else written


def _other_rounds(story: Story, load: Event, looks: list[Event]) -> list[Event]:
    """The calls of the one line that keeps the tensor which ``load`` reads; empty if there is no such line, or several
    are possible.

    Only calls whose result is still alive when another statement runs; of several lines, the one that assigns a name
    that the load reads.
    """
    places: dict[Span, list[Event]] = defaultdict(list)
    for event in looks:
        place = story.span(event.step)
        if place is not None and place != story.span(load.step) and _outlives_its_line(story, event):
            places[place].append(event)
    if len(places) > 1:
        read = set[str]().union(*(_last(reads(story.program, s)) for s in call_chain(story, load)))
        places = {place: events for place, events in places.items() if _names(story, events[0]) & read}
    return next(iter(places.values())) if len(places) == 1 else []


def _names(story: Story, event: Event) -> set[str]:
    statement = story.program.statement_at(story.span(event.step))
    return _last(assigned(story.program, statement)) if statement is not None else set()


def _last(names: set[str]) -> set[str]:
    """The last part of each dotted name: an attribute may be read through another name of its object."""
    return {name.rsplit(".", 1)[-1] for name in names}


def _outlives_its_line(story: Story, event: Event) -> bool:
    """Whether the tensor that a call returned was still alive when a call of another statement ran."""
    died = next(
        (step for step, alive in story.history("tensors", event.results[0], "alive") if not alive), len(story.events)
    )
    other = next((step for step in _on_other_lines(story, event)), None)
    return other is not None and other < died


def _on_other_lines(story: Story, event: Event) -> Iterator[int]:
    here = story.program.statement_at(story.span(event.step))
    for later in story.events[event.step + 1 :]:
        if later.kind == "call" and _statement(story, later) is not here:
            yield later.step


def _statement(story: Story, event: Event) -> ast.stmt | None:
    return story.program.statement_at(story.span(event.step))
