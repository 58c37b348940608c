"""The terms of which a value is a sum, each with its exact factor: ``0.5 * a.mean() - b.sum()`` is 0.5/n times ``a``
and -1 times ``b``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from math import prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, Span
from pitfall_lab.trace.operation_facts import spellings

SAME_SHARE = (
    spellings("transpose")
    | {"T", "__getitem__", "alias", "clone", "contiguous", "double", "flatten", "float", "identity", "mT",
       "masked_select", "movedim", "narrow", "permute", "ravel", "reshape", "select", "squeeze", "t", "to",
       "unflatten", "unsqueeze", "view", "view_as"}
)  # fmt: skip
"""Calls of which each element of the result is one element of the tensor."""
ADDING = dict.fromkeys(spellings("sub", exchanged=True), -1.0) | dict.fromkeys(spellings("add", "sub"), 1.0)
"""Sums and differences, with the sign of the first operand."""
OTHERS = dict.fromkeys(spellings("sub", exchanged=True), 1.0) | dict.fromkeys(spellings("sub"), -1.0)
"""Differences, with the sign of the second operand (in sums it is 1)."""
SCALING = dict.fromkeys(spellings("mul"), 1) | dict.fromkeys(spellings("div"), -1)
"""Products and quotients, with the exponent of the factor by which they scale."""
GROWING = {"add_": 1.0, "__iadd__": 1.0, "sub_": -1.0, "__isub__": -1.0}
"""In-place sums and differences, with the sign of what they add."""
ENDS = {"mean", "sum", "logsumexp"}
"""Reductions beyond which a value is not followed to the loss."""
MOST, FURTHER, PAIR = 600, 60, 2


@dataclass(frozen=True, slots=True)
class LinearPart:
    """One term of a value, such as a loss: the derivative of the value with respect to each element of the tensor
    ``label`` (a label) is ``factor``, through this term.

    ``user`` is the call (``Event``) that used the tensor for it; None for the value itself. ``averaged`` is the number
    of elements over which means were taken on the way, ``means`` the calls that took them, ``scaled`` the product of
    the absolute values of the program's constant factors.
    """

    label: str
    factor: float
    user: Event | None
    averaged: float = 1.0
    scaled: float = 1.0
    means: tuple[Event, ...] = ()


def parts(story: Story, label: str | None, step: int, end: Collection[str] = ()) -> Iterator[LinearPart]:
    """Yield the tensors from which the value ``label``, at ``step``, was computed by sums, means, differences,
    selections, joins and constant factors alone, nearest first.

    Each path ends at a call that computes anything else or has one of the names ``end``; a tensor that is used twice is
    yielded twice. At most ``MOST`` calls are followed back. Yields nothing if ``label`` is None.
    """
    pending = deque([(LinearPart(label, 1.0, None), step)] if label is not None else [])
    for _ in range(MOST):
        if not pending:
            return
        here, until = pending.popleft()
        event = story.event((story.tensor(here.label, until) or {}).get("born"))
        known = event is not None and event.kind == "call" and here.label in event.results and event.name not in end
        ways = list(_through(story, event, here)) if known and event is not None else []
        if not ways or event is None:
            yield here
        else:
            pending += [(way, event.step) for way in ways]


def parts_with_written(story: Story, label: str | None, step: int, end: Collection[str] = ()) -> Iterator[LinearPart]:
    """Yield the :func:`parts` of the value ``label``, and those of the tensors that were added in place to one of them
    before it was used.
    """
    for part in parts(story, label, step, end):
        yield part
        until = part.user.step if part.user is not None else step
        for use in story.uses(part.label):
            if use.name not in GROWING or use.step >= until or use.error is not None or len(use.operands) != PAIR:
                continue
            if use.operands[0].label != part.label or use.operands[1].label is None:
                continue
            inner = parts(story, use.operands[1].label, use.step, end)
            for each in inner:
                size, own = (prod(story.shape(one, use.step) or ()) for one in (part.label, use.operands[1].label))
                yield replace(
                    each,
                    factor=part.factor * each.factor * GROWING[use.name] * size / max(own, 1),
                    user=each.user or use,
                    averaged=part.averaged * each.averaged,
                    scaled=part.scaled * each.scaled,
                    means=part.means + each.means,
                )


def constant(story: Story, label: str | None, text: str, step: int) -> float | None:
    """Return the constant that an operand is: the number ``text`` if ``label`` is None, else the value of the tensor
    ``label``, if it has one element, which is known, and does not require grad; None otherwise.
    """
    if label is None:
        try:
            return float(text)
        except ValueError:
            return None
    if prod(story.shape(label, step) or (2,)) != 1 or (story.tensor(label, step) or {}).get("requires_grad"):
        return None
    return next((value for _, value in Elements(story, label, step).known()), None)


def _through(story: Story, event: Event, part: LinearPart) -> Iterator[LinearPart]:
    """Yield the operands of ``event``, whose result is ``part``, each with its factor in the followed value.

    Yields nothing unless the call is a sum, difference, mean, selection, join (``cat``, ``stack``) or multiple by a
    constant.
    """
    given = [o for o in event.operands if o.label is not None]
    size = prod(story.shape(part.label, event.step) or ())

    def share(label: str, by: float = 1.0, *, scaled: float = 1.0) -> LinearPart:
        repeated = max(size / max(prod(story.shape(label, event.step) or ()), 1), 1.0)
        return replace(
            part,
            label=label,
            factor=part.factor * by * repeated,
            user=event,
            scaled=part.scaled * scaled,
        )

    if event.name in ADDING:
        alpha = constant(story, None, argument(event, "alpha") or "1", event.step) or 1.0
        for place, operand in enumerate(o for o in event.operands if o.name != "alpha"):
            if operand.label is not None:
                sign = ADDING[event.name] if place == 0 else OTHERS.get(event.name, 1.0)
                yield share(operand.label, sign * (alpha if place else 1.0))
    elif event.name in ("stack", "cat"):
        yield from (replace(part, label=o.label, user=event) for o in given if o.label is not None)
    elif event.name == "neg" or event.name in SAME_SHARE:
        if given and given[0].label is not None:
            sign = -1.0 if event.name == "neg" else 1.0
            yield replace(part, label=given[0].label, factor=part.factor * sign, user=event)
    elif event.name in ("sum", "mean") and given and given[0].label is not None:
        count = prod(story.shape(given[0].label, event.step) or ()) / max(size, 1)
        by = 1.0 if event.name == "sum" else 1.0 / max(count, 1.0)
        is_mean = event.name == "mean"
        yield replace(
            part,
            label=given[0].label,
            factor=part.factor * by,
            user=event,
            averaged=part.averaged * (count if is_mean else 1.0),
            means=(*part.means, event) if is_mean else part.means,
        )
    elif event.name in SCALING and len(event.operands) == 2 and (scaled := _scaled(story, event)) is not None:
        yield share(*scaled, scaled=abs(scaled[1]))


def _scaled(story: Story, event: Event) -> tuple[str, float] | None:
    """The tensor and the factor by which a product or quotient with a constant multiplies it; None if there is no
    constant, for 0, and for ``1 / x``.
    """
    numbers = [constant(story, o.label, o.text, event.step) for o in event.operands]
    for place, other in ((0, 1), (1, 0)):
        number, label = numbers[other], event.operands[place].label
        if number and label is not None and (SCALING[event.name] == 1 or other == 1):
            return label, number ** SCALING[event.name]
    return None


def summed_into(story: Story, label: str, roots: dict[str, Event]) -> Event | None:
    """Return the backward that starts from a mean, sum or logsumexp of the tensor ``label``, possibly with constant
    factors and other terms added; None if there is none.

    ``roots`` are the backwards of the program by the label of the tensor from which each starts.
    """
    pending, seen, walked = deque([(label, False)]), {label}, 0
    while pending and walked < FURTHER:
        here, reduced = pending.popleft()
        if reduced and here in roots:
            return roots[here]
        for use in story.uses(here):
            walked += 1
            ends = use.name in ENDS
            constants = [
                o for o in use.operands if o.label != here and constant(story, o.label, o.text, use.step) is not None
            ]
            scales = use.name in SCALING and len(constants) == 1
            if (
                use.error is None
                and use.results
                and (ends or scales or use.name in ADDING or use.name == "neg" or use.name in SAME_SHARE)
            ):
                new = use.results[0]
                if new not in seen:
                    seen.add(new)
                    pending.append((new, reduced or ends))
    return None


def losses(story: Story, rounds: int = 3) -> Iterator[Event]:
    """Yield the calls of ``backward`` that are followed, sooner or later, by an optimizer's step; for each line of the
    backward and line of the call that made the loss, the first ``rounds``.
    """
    last = max((update.step for update in story.trace.optimizer_steps), default=-1)
    seen: Counter[tuple[Span | None, Span | None]] = Counter()
    for backward in story.backwards():
        if backward.error is None and backward.step < last and backward.name == "backward" and backward.operands:
            maker = story.event((story.tensor(backward.operands[0].label, backward.step) or {}).get("born"))
            place = (backward.span, maker.span if maker is not None else None)
            seen[place] += 1
            if seen[place] <= rounds:
                yield backward
