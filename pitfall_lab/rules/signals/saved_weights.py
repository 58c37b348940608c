"""Weights that were kept at the best moment without a copy, and read as the best ones after they had been trained on:
written to a file, or loaded into another module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.snapshots import BETTER
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event, Span


@dataclass(frozen=True, slots=True)
class SavedWeights:
    """Weights kept by the call ``kept`` (``detach()`` or ``.data``, also that of ``state_dict``) at ``place``, which
    share the memory of the parameter ``parameter`` (a label). They are read at step ``step``, at ``read``: by
    ``torch.save`` if ``is_file``, else by the load into another module. ``changed`` is the step of the first write of
    that memory between the two.
    """

    kept: Event
    place: Span
    parameter: str
    changed: int
    step: int
    read: Span | None
    is_file: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """Tensors read at one place after ``step`` events: pairs of a label, or None, and the label of the storage."""

    step: int
    span: Span | None
    tensors: tuple[tuple[str | None, str], ...]
    is_file: bool = False


def saved(story: Story) -> Iterator[SavedWeights]:
    """Yield one :class:`SavedWeights` for each place that reads weights which an ``if`` with a comparison had kept in a
    loop, as the best so far, if an optimizer wrote their memory in between.
    """
    held = {
        str((story.tensor(label, update.step) or {}).get("storage")): label
        for update in story.trace.optimizer_steps
        for label in update.holds
    }
    keeps = (
        [e for e in story.calls("detach", "data") if e.error is None and e.results and _is_best(story, e)]
        if held
        else []
    )
    if not keeps:
        return
    reads = [_Read(each.step, each.span, each.tensors, True) for each in story.trace.beside.written]
    reads += _loads(story)
    reported = set()
    for read in reads:
        for own, storage in read.tensors:
            if storage in held and read.span not in reported:
                once = sum(each.span == read.span and each.is_file for each in reads) <= 1
                for found in _saved(story, keeps, read, (own, storage, held[storage]), once=once):
                    reported.add(read.span)
                    yield found


def _loads(story: Story) -> Iterator[_Read]:
    """The copies of a tensor into one with other memory."""
    for event in story.calls("copy_"):
        if event.error is None and len(event.operands) > 1 and (label := event.operands[1].label) is not None:
            into, own = (story.tensor(each.label, event.step) or {} for each in event.operands[:2])
            if own.get("storage") and own["storage"] != into.get("storage") and not own.get("requires_grad"):
                yield _Read(event.step, story.span(event.step), ((label, own["storage"]),))


def _saved(
    story: Story, keeps: list[Event], read: _Read, tensor: tuple[str | None, str, str], *, once: bool
) -> Iterator[SavedWeights]:
    """At most one: if the ``tensor`` that is read (its label or None, its storage, the parameter there) was kept as the
    best one.

    What no recorded call made was kept in a round that is not recorded: then the recorded rounds show the line, if
    there is only one, and the place reads only ``once``.
    """
    own, storage, parameter = tensor
    looks = [
        each for each in keeps
        if each.step < read.step and (story.tensor(each.results[0], each.step) or {}).get("storage") == storage
    ]  # fmt: skip
    born = story.event((story.tensor(own) or {}).get("born")) if own is not None else None
    if own is not None and born is not None and own in born.results:
        looks = [each for each in looks if own in each.results]
    elif not once or len({story.span(each.step) for each in looks}) != 1:
        return
    for kept in looks:
        changed = next(iter(story.writes(storage, kept.step, read.step)), None)
        if changed is not None and (place := story.span(kept.step)) is not None:
            yield SavedWeights(kept, place, parameter, changed, read.step, read.span, read.is_file)
            return


def _is_best(story: Story, event: Event) -> bool:
    """Whether a statement around the call assigns in a loop, under an ``if`` that compares by ``<`` or ``>`` numbers
    other than those which count the rounds.
    """
    statements = list(call_chain(story, event))
    if not statements or not isinstance(statements[0], ast.Assign | ast.AnnAssign):
        return False
    around = [each for statement in statements for each in story.program.ancestors(statement)]
    loops = [each for each in around if isinstance(each, ast.For | ast.While)]
    counted = {
        n.id for each in loops if isinstance(each, ast.For) for n in ast.walk(each.target) if isinstance(n, ast.Name)
    }
    tests = [
        n for each in around if isinstance(each, ast.If) for n in ast.walk(each.test) if isinstance(n, ast.Compare)
    ]
    return bool(loops) and any(
        isinstance(each.ops[0], BETTER) and not any(isinstance(n, ast.Name) and n.id in counted for n in ast.walk(each))
        for each in tests
    )
