"""What optimizers were given, against what got gradients: one that never steps, and one that holds what was replaced since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.trace import Event, OptimizerMade, OptimizerStep

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class NeverStepped:
    """``made`` was never told to step, although ``parameters``, which it holds, got gradients in round after round.

    ``instead`` is the step of another optimizer that followed the last of these ``backward``s of its line.
    """

    made: OptimizerMade
    parameters: tuple[str, ...]
    backward: Event
    instead: OptimizerStep


@dataclass(frozen=True, slots=True)
class Replaced:
    """The parameter ``new`` came into use after ``made``, which goes on holding ``old``, and got a gradient that no update uses."""

    made: OptimizerMade
    new: str
    old: str
    added: Moment


def never_stepped(story: Story) -> Iterator[NeverStepped]:
    """Optimizers whose parameters are trained by nobody, while another optimizer steps."""
    trace = story.trace
    stepped = {step.made for step in trace.optimizer_steps}
    if trace.stopped is not None or trace.outcome.kind != "finished" or not stepped or None in stepped:
        return
    elsewhere = {label for number in stepped if number is not None for label in trace.optimizers[number].holds}
    for number, made in enumerate(trace.optimizers):
        if number in stepped or not made.holds or elsewhere & set(made.holds):
            continue
        moments = {label: lives(story).get(label, []) for label in made.holds}
        if any(m.kind in ("used", "frozen") for each in moments.values() for m in each):
            continue
        waiting = {label: [m.event for m in each if m.kind == "added"] for label, each in moments.items()}
        waiting = {label: backwards for label, backwards in waiting.items() if len(backwards) >= ROUNDS}
        for backward in next(iter(waiting.values()), [])[-1:]:
            same = {b.step for each in waiting.values() for b in each if b.span == backward.span}
            after = [step for step in trace.optimizer_steps if any(b < step.step for b in same)]
            if after:
                first = next(event for event in next(iter(waiting.values())) if event.span == backward.span)
                instead = next((step for step in after if step.step > first.step), after[0])
                yield NeverStepped(made, tuple(waiting), first, instead)


def replaced(story: Story) -> list[Replaced]:
    """Parameters that took the place of others which an optimizer holds and steps over; the first of each optimizer first."""
    trace, found = story.trace, []
    held = {label for made in trace.optimizers for label in made.holds} | {label for step in trace.optimizer_steps for label in step.holds}
    for number, made in enumerate(trace.optimizers):
        last = max((step.step for step in trace.optimizer_steps if step.made == number), default=-1)
        used = (m.step for old in made.holds for m in lives(story).get(old, ()) if m.kind == "used")
        last = max([last, *used])  # only the first steps are noted
        for new, moments in lives(story).items() if last >= 0 else ():
            added = moments[0]
            if new in held or added.kind != "added" or any(m.kind in ("used", "frozen") for m in moments) or last <= added.step:
                continue
            if _since(story, new) >= made.step:
                olds = [old for old in made.holds if _is_alike(story, old, new) and _gone(story, old, new, added.step)]
                found += [Replaced(made, new, old, added) for old in olds[:1]]
    return found


def _since(story: Story, label: str) -> int:
    """When the memory of a parameter was first seen."""
    storage = (story.tensor(label) or {}).get("storage")
    return min((r["born"] for _, r in story.tensors_on(storage) if r.get("born") is not None), default=-1)


def _is_alike(story: Story, old: str, new: str) -> bool:
    """Are both parameters, or tensors that the program calls alike?"""
    kinds = {(story.tensor(label) or {}).get("kind") for label in (old, new)}
    return kinds == {"parameter"} or (story.name(old) is not None and story.name(old) == story.name(new))


def _gone(story: Story, old: str, new: str, step: int) -> bool:
    """Did ``old`` have the place of ``new``, and has nothing used it since ``new`` is there?"""
    one, other = story.tensor(old) or {}, story.tensor(new) or {}
    if not one.get("requires_grad") or len(one.get("shape") or ()) != len(other.get("shape") or ()):
        return False
    uses, fresh = ([use for use in story.uses(label) if not _is_machinery(use)] for label in (old, new))
    first = min((use.step for use in fresh if not use.writes), default=step)
    if any(use.step >= first for use in uses):
        return False
    places = {(use.span, _place(use, old)) for use in uses if not use.writes and use.name != "detach"}  # not `state_dict`
    return not places or any((use.span, _place(use, new)) in places for use in fresh)


def _place(use: Event, label: str) -> int:
    return next((number for number, operand in enumerate(use.operands) if operand.label == label), -1)


def _is_machinery(use: Event) -> bool:
    """Is it a look at, or a change of, ``.grad`` and the like, which an optimizer makes of all that it holds?"""
    return use.op.endswith(("__get__", "__set__")) or bool(use.writes)
