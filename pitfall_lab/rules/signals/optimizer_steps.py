"""Compares the parameters that optimizers hold with those that get gradients: finds optimizers that never step, or hold
parameters that were replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.trace import Event, OptimizerMade, OptimizerStep

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class NeverStepped:
    """An optimizer, ``made``, that never steps although its ``parameters`` (labels) get gradients from at least
    ``ROUNDS`` backwards.

    ``backward`` is the first call of a line whose backwards gave such gradients; ``instead`` is a step of another
    optimizer after one of these backwards.
    """

    made: OptimizerMade
    parameters: tuple[str, ...]
    backward: Event
    instead: OptimizerStep


@dataclass(frozen=True, slots=True)
class Replaced:
    """A parameter, ``new``, that replaced the parameter ``old`` (both labels) after the optimizer ``made`` was created
    with ``old``.

    ``added`` is the moment at which ``new`` first got a gradient, which no update uses.
    """

    made: OptimizerMade
    new: str
    old: str
    added: Moment


def never_stepped(story: Story) -> Iterator[NeverStepped]:
    """Yield the optimizers of a finished program that never step, and whose parameters no stepping optimizer holds and
    nothing else updates or freezes.

    Another optimizer must step after a backward, and at least one of the parameters must get a gradient from at least
    ``ROUNDS`` backwards. Yields nothing if an optimizer stepped whose creation was not recorded.
    """
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
    """Return the parameters that replaced others held by an optimizer: no optimizer holds the new ones and no update
    uses their gradients, while the optimizer still steps or the old ones are still updated. Empty if there are none.
    """
    trace, found = story.trace, []
    held = {label for made in trace.optimizers for label in made.holds} | {
        label for step in trace.optimizer_steps for label in step.holds
    }
    for number, made in enumerate(trace.optimizers):
        last = max((step.step for step in trace.optimizer_steps if step.made == number), default=-1)
        used = (m.step for old in made.holds for m in lives(story).get(old, ()) if m.kind == "used")
        last = max([last, *used])  # only the first steps are noted
        for new, moments in lives(story).items() if last >= 0 else ():
            added = moments[0]
            if (
                new in held
                or added.kind != "added"
                or any(m.kind in ("used", "frozen") for m in moments)
                or last <= added.step
            ):
                continue
            if _since(story, new) >= made.step:
                olds = [old for old in made.holds if _is_alike(story, old, new) and _gone(story, old, new, added.step)]
                found += [Replaced(made, new, old, added) for old in olds[:1]]
    return found


def copied_from(story: Story, label: str) -> tuple[str, int] | None:
    """Return the label of the parameter of which the parameter ``label`` was created as a copy, as by ``copy.deepcopy``
    of a module, and the step of the copy; None if there is none.
    """
    since = _since(story, label)
    event = story.event(since if since >= 0 else None)
    if event is None or event.name != "clone" or not event.operands:
        return None
    source = (story.tensor(event.operands[0].label, event.step) or {}).get("storage")
    found = next(
        (each for each, r in story.tensors_on(source) if r.get("kind") == "parameter" and r.get("is_leaf")), None
    )
    return (found, event.step) if found is not None else None


def _since(story: Story, label: str) -> int:
    """Return the step at which a tensor on the parameter's storage was first created; -1 if unknown."""
    storage = (story.tensor(label) or {}).get("storage")
    return min((r["born"] for _, r in story.tensors_on(storage) if r.get("born") is not None), default=-1)


def _is_alike(story: Story, old: str, new: str) -> bool:
    """Whether both tensors are ``nn.Parameter``, or have the same name in the program."""
    kinds = {(story.tensor(label) or {}).get("kind") for label in (old, new)}
    return kinds == {"parameter"} or (story.name(old) is not None and story.name(old) == story.name(new))


def _gone(story: Story, old: str, new: str, step: int) -> bool:
    """Whether ``new`` is used where ``old`` was used, and ``old`` is not used from the first use of ``new`` on, other
    than by the optimizer.
    """
    one, other = story.tensor(old) or {}, story.tensor(new) or {}
    if not one.get("requires_grad") or len(one.get("shape") or ()) != len(other.get("shape") or ()):
        return False
    uses, fresh = ([use for use in story.uses(label) if not _is_machinery(use)] for label in (old, new))
    first = min((use.step for use in fresh if not use.writes), default=step)
    if any(use.step >= first for use in uses) or _is_copied_again(story, old, new):
        return False
    places = {
        (use.span, _place(use, old)) for use in uses if not use.writes and use.name != "detach"
    }  # not `state_dict`
    return not places or any((use.span, _place(use, new)) in places for use in fresh)


def _is_copied_again(story: Story, old: str, new: str) -> bool:
    """Whether ``new`` is one of several copies of ``old`` made by one line: then each iteration starts again from
    ``old``.
    """
    copied = copied_from(story, new)
    if copied is None or copied[0] != old:
        return False
    storage, place = (story.tensor(old) or {}).get("storage"), story.span(copied[1])
    copies = [
        e for e in story.calls("clone") if (story.tensor(e.operands[0].label, e.step) or {}).get("storage") == storage
    ]
    return sum(story.span(copy.step) == place for copy in copies) > 1


def _place(use: Event, label: str) -> int:
    return next((number for number, operand in enumerate(use.operands) if operand.label == label), -1)


def _is_machinery(use: Event) -> bool:
    """Whether the call only reads or sets an attribute such as ``.grad``, or writes: optimizers
    do that for every parameter.
    """
    return use.op.endswith(("__get__", "__set__")) or bool(use.writes)
