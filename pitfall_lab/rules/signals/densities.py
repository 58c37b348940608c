"""The parts of a log-density: squares, and the tensors that a scale multiplies, found from the scale's logarithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by, same_numbers, unscaled
from pitfall_lab.rules.signals.linear_parts import SAME_SHARE, SCALING, LinearPart, constant
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

LOGARITHMS = ("log", "log_")
EXCHANGED = spellings("div", exchanged=True) - spellings("div")
"""Divisions in which the tensor is the divisor."""
SIZES = (
    dict.fromkeys(spellings("abs", "expand") | {"expand_as"}, 1.0)
    | {"reciprocal": -1.0, "rsqrt": -0.5, "sqrt": 0.5}
)  # fmt: skip
"""Calls that make a scale from a scale, each with the factor by which its logarithm changes."""
POWERS = spellings("pow")
PAIR, UPWARD = 2, 400


@dataclass(frozen=True, slots=True)
class Square:
    """A term of a loss that is a square or an absolute value: the term ``part`` is a multiple of the square of the
    tensor ``root`` (a label), or of its absolute value, possibly divided by a scale.

    ``step`` is the step of the call that squared it. ``times`` is the factor in the loss, doubled for a square: 1 for
    ``0.5 * x ** 2``, and for ``x.abs()``.
    """

    part: LinearPart
    root: str
    step: int
    times: float


def scaled_numbers(story: Story, label: str, step: int) -> Iterator[tuple[Event, float]]:
    """Yield the products and quotients, before ``step``, of a tensor with ``exp(k * x)``, where ``x`` is the tensor
    ``label``, each with its ``k``.

    If ``x`` is a logarithm, also those with the tensor whose logarithm it is (or with that before ``abs``). If ``x``
    was expanded, or multiplied by a mask of zeros and ones, also those of the tensor before that.
    """
    label = same_numbers(story, label, step)
    begun = [(label, False, 1.0), *((each, False, 1.0) for each in _masked_from(story, label, step))]
    begun += [(each, True, 1.0) for each in _logarithm_of(story, label, step)]
    pending, seen = deque(begun), set[tuple[str, bool]]()
    while pending and len(seen) < UPWARD:
        here, is_scale, times = pending.popleft()
        if (here, is_scale) in seen:
            continue
        seen.add((here, is_scale))
        for use in story.uses(here):
            if use.step >= step or use.error is not None or not use.results:
                continue
            plain = [o for o in use.operands if o.label != here]
            number = constant(story, plain[0].label, plain[0].text, use.step) if len(plain) == 1 else None
            exponent = SCALING.get(use.name, -1 if use.name in EXCHANGED else 0)
            under = exponent < 0 and (use.name in EXCHANGED or use.operands[0].label != here)
            if exponent and is_scale and number is None:
                yield use, -times if under else times
            elif is_scale or not under:
                new = _exponent(use.name, times, is_scale=is_scale, under=under, factor=number)
                if new is not None:
                    pending.append((use.results[0], *new))


def _exponent(
    name: str, times: float, *, is_scale: bool, under: bool, factor: float | None
) -> tuple[bool, float] | None:
    """Whether the result of a call is ``exp(k * x)``, and ``k``; if it is not, the ``k`` for which its exponential
    would be that.

    ``factor`` is the number by which the call multiplies or divides or, with ``under``, which it divides by its tensor.
    None if the call computes anything else.
    """
    if name in ("exp", "exp_"):
        return True, 1.0 if is_scale else times
    if name == "neg":
        return is_scale, times if is_scale else -times
    if name in SAME_SHARE:
        return is_scale, times
    if factor and (name in SCALING or name in EXCHANGED):
        by = factor ** SCALING.get(name, -1)
        return is_scale, (-times if under else times) if is_scale else times * by
    return (True, times * SIZES[name]) if is_scale and name in SIZES else None


def _masked_from(story: Story, label: str, step: int) -> list[str]:
    """A list of the tensor that was multiplied by a mask of zeros and ones to give ``label``; empty if there is
    none.
    """
    made = made_by(story, label, step)
    if made is None or made.name not in spellings("mul"):
        return []
    given = [o.label for o in made.operands if o.label is not None]
    learned = [each for each in given if (story.tensor(each, made.step) or {}).get("requires_grad")]
    masks = [each for each in given if each not in learned]
    if len(learned) != 1 or len(masks) != 1:
        return []
    known = {value for _, value in Elements(story, masks[0], made.step).known()}
    return learned if known and known <= {0, 1} else []


def _logarithm_of(story: Story, label: str, step: int) -> list[str]:
    """The tensor whose logarithm ``label`` is, and the tensor before ``abs`` if there is one; empty if it is no
    logarithm.
    """
    made = made_by(story, label, step)
    source = made.operands[0].label if made is not None and made.name in LOGARITHMS else None
    if made is None or source is None:
        return []
    inner = made_by(story, source, made.step)
    signed = inner.operands[0].label if inner is not None and inner.name in spellings("abs") else None
    return [each for each in (source, signed) if each is not None]


def square_of(story: Story, part: LinearPart, step: int) -> Square | None:
    """Return the square, or the absolute value, of which the term ``part`` of a loss is a multiple; None if it is
    neither, or its shape is unknown.
    """
    label, by = unscaled(story, part.label, step)
    made = made_by(story, label, step)
    shape = story.shape(part.label, step)
    if made is None or not shape:
        return None
    given = [o.label for o in made.operands if o.label is not None]
    ways: list[tuple[str, str | None]] = [(label, None)]
    if made.name in SCALING and len(given) == PAIR and given[0] != given[1]:
        ways = [(given[0], given[1]), *([(given[1], given[0])] if SCALING[made.name] == 1 else [])]
    for above, beside in ways:
        square, times = unscaled(story, above, made.step if beside is not None else step)
        if beside is not None:
            times *= unscaled(story, beside, made.step)[1] ** SCALING[made.name]
        event = made_by(story, square, step)
        power = _power(story, event) if event is not None and story.shape(square, step) == shape else None
        if event is not None and power:
            return Square(part, str(event.operands[0].label), event.step, part.factor * by * times * power)
    return None


def _power(story: Story, event: Event) -> int:
    """2 for a call that squares, 1 for an absolute value, 0 for every other call."""
    given = [o.label for o in event.operands]
    if not given or given[0] is None:
        return 0
    if event.name in spellings("abs"):
        return 1
    if event.name in POWERS and len(given) == PAIR and given[1] is None:
        return PAIR if constant(story, None, event.operands[1].text, event.step) == PAIR else 0
    is_square = event.name == "square" or (event.name in spellings("mul") and len(given) == PAIR and len({*given}) == 1)
    return PAIR if is_square else 0
