"""Tensors of distances and of similarities: the call that computed them, looking back through calls that keep their
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, before, made_by
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

NORMS = {"norm", "vector_norm"}
SUMS = {"sum", "mean"}
SQUARES = spellings("abs", "pow") | {"square"}
GROWING = {"sqrt", "square", "log1p"}
"""Increasing functions of a distance."""
PRODUCTS = operations_that("matrix_product") | {"__rmatmul__", "einsum"}
PAIR, FURTHER = 2, 20


@dataclass(frozen=True, slots=True)
class Comparisons:
    """A call that computed distances or, if ``is_likeness`` is True, similarities.

    ``event`` is the call (``Event``), ``label`` the label of its result; the tensor that was asked for has the same
    order.
    """

    event: Event
    label: str
    is_likeness: bool


def comparisons(story: Story, label: str | None, step: int) -> Comparisons | None:
    """Return the distances, or the similarities of normalised vectors, whose order the tensor ``label`` has at
    ``step``.

    None if it is something else, has the opposite order, or was written since it was computed. At most ``FURTHER``
    calls are followed back.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        if event is None or label is None or event.error is not None:
            return None
        if story.writes(str((story.tensor(label, step) or {}).get("storage")), event.step, step):
            return None
        if event.name in ("cdist", "cosine_similarity") or _is_norm_of_pairs(story, event):
            return Comparisons(event, label, event.name == "cosine_similarity")
        if event.name in PRODUCTS:
            given = [o.label for o in event.operands if o.label is not None]
            is_likeness = len(given) == PAIR and all(_is_normalised(story, each, event.step) for each in given)
            return Comparisons(event, label, is_likeness=True) if is_likeness else None
        source = _source(story, event, label)
        if source is None:
            return None
        label, step = source, event.step
    return None


def takes_largest(story: Story, event: Event, axis: int) -> bool | None:
    """Return whether a ``topk`` along the axis ``axis`` took the largest values, as far as its results show it (a trace
    does not have arguments that are False); None if they do not show it.
    """
    picked, table = Elements(story, event.results[0], event.step), Elements(story, event.operands[0].label, event.step)
    rows: dict[tuple[int, ...], list[tuple[int, float]]] = {}
    for index, value in picked.known():
        rows.setdefault(index[:axis] + index[axis + 1 :], []).append((index[axis], value))
    for row in rows.values():
        ordered = [value for _, value in sorted(row)]
        if ordered[0] != ordered[-1]:
            return ordered[0] > ordered[-1]
    for index, value in table.known():
        for _, other in rows.get(index[:axis] + index[axis + 1 :], ()):
            if value != other:
                return other > value
    return None


def _source(story: Story, event: Event, label: str) -> str | None:
    """The operand whose order the result of a call has; None if there is none."""
    source = event.operands[0].label if event.operands else None
    if event.name in SAME_NUMBERS:
        return before(event, label)
    if event.name in GROWING:
        return source
    plain = [o for o in event.operands if not o.name]
    if len(plain) != PAIR:
        return None
    numbers = [constant(story, o.label, o.text, event.step) for o in plain]
    place = next((place for place, number in enumerate(numbers) if number is None), None)
    number = numbers[1 - place] if place is not None else None
    if number is None or place is None:
        return None
    keeps = (
        (event.name in spellings("pow") and place == 0 and number > 0)
        or (event.name in spellings("add"))
        or (event.name in spellings("sub") and place == 0)
        or (event.name in SCALING and (place == 0 or SCALING[event.name] == 1) and 0 < number < inf)
    )
    return plain[place].label if keeps else None


def _is_norm_of_pairs(story: Story, event: Event) -> bool:
    """Whether a call computes norms of differences of all pairs: one operand of the difference has length 1, or stride
    0, along an axis where the other does not.
    """
    source = event.operands[0].label if event.operands else None
    if source is None or not event.results or event.name not in NORMS | SUMS:
        return False
    if event.name in SUMS:
        square = made_by(story, source, event.step)
        if square is None or not square.operands or not _is_square(square):
            return False
        source, step = square.operands[0].label, square.step
    else:
        step = event.step
    made = made_by(story, source, step)
    given = [o.label for o in made.operands if o.label is not None] if made is not None else []
    if made is None or made.name not in spellings("sub", exchanged=True) or len(given) != PAIR:
        return False
    whole, result = story.shape(source, step) or (), story.shape(event.results[0], event.step) or ()
    if len(result) not in (len(whole) - 1, len(whole)) or not result or result == whole:
        return False
    return any(_repeated(story, each, made.step, whole) for each in given)


def _is_square(event: Event) -> bool:
    """Whether a call returns squares (or fourth powers), or absolute values."""
    given = [o.label for o in event.operands if o.label is not None]
    if event.name in spellings("mul"):
        return len(given) == PAIR and given[0] == given[1]
    if event.name in spellings("pow"):
        return event.operands[-1].text in ("2", "2.0", "4") and len(given) == 1
    return event.name in SQUARES


def _repeated(story: Story, label: str, step: int, whole: tuple[int, ...]) -> bool:
    """Whether an operand of a difference is repeated along an axis other than the last."""
    record = story.tensor(label, step) or {}
    shape, stride = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    own = (1,) * (len(whole) - len(shape)) + shape
    steps = (0,) * (len(whole) - len(stride)) + stride
    return any(n > 1 and (m == 1 or by == 0) for n, m, by in zip(whole[:-1], own[:-1], steps[:-1], strict=True))


def _is_normalised(story: Story, label: str, step: int) -> bool:
    """Whether the rows of a tensor were divided by their norms."""
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        if event is None or not event.operands or event.operands[0].label is None:
            return False
        if event.name in ("normalize", "__getitem__"):
            if event.name == "normalize":
                return True
        elif event.name in spellings("div", in_place=True):
            length = event.operands[1].label if len(event.operands) > 1 else None
            return length is not None and _is_length(story, length, event)
        elif event.name not in SAME_NUMBERS:
            return False
        label, step = event.operands[0].label, event.step
    return False


def _is_length(story: Story, label: str, event: Event) -> bool:
    """Whether a tensor holds the norms of the rows of the tensor that the call ``event`` divides."""
    made = made_by(story, label, event.step)
    while (
        made is not None and made.name in SAME_NUMBERS and made.operands and made.operands[0].label not in (None, label)
    ):
        label = str(made.operands[0].label)
        made = made_by(story, label, made.step)
    return made is not None and made.name in NORMS and made.operands[0].label == event.operands[0].label
