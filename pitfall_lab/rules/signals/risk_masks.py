"""Partial likelihoods of survival times with a mask of pairs: which samples the risk set (the sum of hazards) of each
sample contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import key, made_by
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

LESS, MORE = spellings("lt", "le"), spellings("gt", "ge")
SUBTRACTS, MULTIPLIES = spellings("sub", in_place=True), spellings("mul", in_place=True)
ADDS, NEGATES = spellings("add", in_place=True), spellings("neg")
DIVIDES = spellings("div", in_place=True)
FILLS = spellings("masked_fill", in_place=True)
PRODUCTS = spellings("matmul") | {"mm", "mv"}
OPPOSITE = spellings("bitwise_not", "logical_not")
TURNED = {"T", "mT", "t", "transpose"}
"""Calls that swap the two axes of a mask."""
KEEPING = {"bool", "clone", "contiguous", "detach", "double", "expand", "expand_as", "float", "int", "long", "reshape",
           "squeeze", "to", "type", "type_as", "unsqueeze", "view"}  # fmt: skip
"""Calls that keep the order of the elements of a column, or of a mask of pairs."""
PICKS = {"__getitem__", "masked_select"}
PAIR, FEW, FURTHER = 2, 3, 12


@dataclass(frozen=True, slots=True)
class RiskMask:
    """A sum of hazards over risk sets that a mask of pairs defines: ``compared`` is the call (an ``Event``) that
    compares the times of ``count`` samples with each other, ``event`` the call that sums the hazards of each sample's
    risk set.

    ``used`` is the call that subtracts the logarithms of the sums from the scores or, if scores and logarithms are
    summed separately, multiplies the logarithms by the event indicators. ``earlier``: the risk set of a sample contains
    the samples with an earlier time (else with a later one); ``itself``: also those with the same time. ``kept_first``:
    the first operand of the comparison has the times of the samples whose risk sets these are.
    """

    compared: Event
    event: Event
    used: Event
    count: int
    earlier: bool
    itself: bool
    kept_first: bool
    keeps: bool
    """Whether a hazard is in the sum if the comparison is True."""


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A mask of pairs, made by the comparison ``compared``; ``same`` is True if the mask is True (or 1) where the
    comparison is. ``first`` is the axis along which the first operand of the comparison varies.
    """

    compared: Event
    same: bool
    first: int


def risk_masks(story: Story) -> Iterator[RiskMask]:
    """Yield the sums of hazards that are limited by a mask of pairs, in order, if their logarithms are subtracted from
    the scores for those samples that had an event.

    The mask compares a vector of at least ``FEW`` times with itself; the vector must not be the negative of another
    one.
    """
    for event in story.calls("sum", "logsumexp", *PRODUCTS):
        found = _risk_mask(story, event) if event.error is None and event.results and event.operands else None
        if found is not None:
            yield found


def _risk_mask(story: Story, event: Event) -> RiskMask | None:
    masked = _of_product(story, event) if event.name in PRODUCTS else _of_sum(story, event)
    if masked is None:
        return None
    pairs, keeps, axis, hazards = masked
    count = (story.shape(pairs.compared.results[0], pairs.compared.step) or (0,))[-1]
    scores = _scores(story, hazards, event.step, is_logarithm=event.name == "logsumexp")
    used = _used(story, event, scores, count) if scores is not None else None
    if used is None or count < FEW:
        return None
    less, keeps = pairs.compared.name in LESS, keeps == pairs.same
    summed_first = pairs.first == axis
    return RiskMask(
        pairs.compared,
        event,
        used,
        count,
        earlier=(less == keeps) == summed_first,
        itself=(pairs.compared.name in spellings("le", "ge")) == keeps,
        kept_first=not summed_first,
        keeps=keeps,
    )


def _of_sum(story: Story, event: Event) -> tuple[_Pairs, bool, int, str] | None:
    """For a sum along an axis of a matrix: the mask, whether it keeps elements where it is True, the axis that is
    summed, and the label of the hazards (for a ``logsumexp``: of the scores); None for other sums.
    """
    label = event.operands[0].label
    axis = whole((argument(event, "dim") or argument(event, "axis") or argument(event, "dim", 1) or "").strip("(,)[]"))
    if label is None or axis is None or len(story.shape(label, event.step) or ()) != PAIR:
        return None
    axis %= PAIR
    if event.name == "sum":
        made = made_by(story, label, event.step)
        if made is not None and made.name == "exp":  # of scores that are -inf outside of the set
            label = made.operands[0].label
    made = made_by(story, label, event.step)
    for mask, keeps, hazards in _masked(story, made) if made is not None else ():
        pairs = _pairs(story, mask, event.step)
        if pairs is not None and _runs_along(story, hazards, event.step) == axis:
            return pairs, keeps, axis, hazards
    return None


def _masked(story: Story, made: Event) -> Iterator[tuple[str, bool, str]]:
    """Each operand of the call that may be a mask, with whether it keeps elements where it is True, and the label of
    the tensor that it is applied to.
    """
    own = [o.label for o in made.operands if o.label is not None]
    if made.name in MULTIPLIES and len(own) == PAIR:
        yield own[0], True, own[1]
        yield own[1], True, own[0]
    elif made.name in FILLS and len(own) >= PAIR:
        yield own[1], False, own[0]
    elif made.name == "where" and len(own) >= PAIR:
        numbers = [o.label for o in made.operands[1:]]
        wide = [each for each in numbers if each is not None and prod(story.shape(each, made.step) or ()) > 1]
        if len(wide) == 1 and made.operands[0].label is not None:
            yield made.operands[0].label, numbers.index(wide[0]) == 0, wide[0]
    elif made.name in ADDS and len(own) == PAIR:
        for mask, scores in (own, own[::-1]):
            log = made_by(story, mask, made.step)
            if log is not None and log.name == "log" and log.operands[0].label is not None:
                yield log.operands[0].label, True, scores


def _of_product(story: Story, event: Event) -> tuple[_Pairs, bool, int, str] | None:
    """The same as :func:`_of_sum` for a matrix product of a mask of pairs and the hazards, as a vector or a column."""
    own = [o.label for o in event.operands if o.label is not None]
    if len(own) != PAIR:
        return None
    for place, axis in ((0, 1), (1, 0)):
        pairs, other = _pairs(story, own[place], event.step), own[1 - place]
        shape = story.shape(other, event.step) or ()
        if pairs is not None and sum(length != 1 for length in shape) == 1:
            return pairs, True, axis, other
    return None


def _pairs(story: Story, label: str | None, step: int) -> _Pairs | None:
    """The comparison of all pairs of a vector's elements from which the mask was made; None if it is no such mask."""
    same, swapped = True, False
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands:
            return None
        if made.name in LESS | MORE:
            first = _compared(story, made)
            return None if first is None else _Pairs(made, same, 1 - first if swapped else first)
        if made.name in OPPOSITE or _is_rest(made):
            same = not same
        elif made.name in TURNED:
            swapped = not swapped
        elif made.name not in KEEPING:
            return None
        label = next((o.label for o in made.operands if o.label is not None), None)
        step = made.step
    return None


def _is_rest(made: Event) -> bool:
    """Whether a call subtracts a tensor from 1."""
    own = [o for o in made.operands if not o.name]
    if len(own) != PAIR or sum(o.label is not None for o in own) != 1:
        return False
    exchanged = made.name in spellings("sub", exchanged=True) - spellings("sub")
    number = own[1] if exchanged else own[0]
    return (exchanged or made.name in SUBTRACTS) and number.label is None and number.text in ("1", "1.0")


def _compared(story: Story, made: Event) -> int | None:
    """The axis along which the first operand of a comparison varies, if both operands are the same vector along two
    different axes; else None.
    """
    own = [o.label for o in made.operands if o.label is not None]
    if len(own) != PAIR or len(story.shape(made.results[0], made.step) or ()) != PAIR:
        return None
    one, two = (_runs_along(story, label, made.step) for label in own)
    column, other = (_column(story, label, made.step) for label in own)
    if one is None or two is None or one == two or column is None or other is None or column[1] != other[1]:
        return None
    source = made_by(story, column[0], made.step)
    return None if source is not None and _is_turned(story, source) else one


def _is_turned(story: Story, made: Event) -> bool:
    """Whether the elements of a vector are not times but ranks or indices, reciprocals, or the negative of other
    values.
    """
    if made.name in {"argsort", "arange", "sort", "reciprocal"}:
        return True
    if made.name in NEGATES:
        inner = made_by(story, made.operands[0].label, made.step)
        return inner is None or inner.name not in ("log", "log1p")  # -log(u), a drawn time
    return made.name in MULTIPLIES and any(o.text.startswith("-") for o in made.operands if o.label is None)


def _runs_along(story: Story, label: str, step: int) -> int | None:
    """The one axis of a matrix along which a tensor varies after it was broadcast; None if it varies along none or
    both.
    """
    record = story.tensor(label, step) or {}
    shape, stride = record.get("shape") or (), record.get("stride") or ()
    axes = [
        axis
        for axis, (length, along) in enumerate(zip(shape, stride, strict=False), PAIR - len(shape))
        if length != 1 and along != 0
    ]
    return axes[0] if len(axes) == 1 else None


def _column(story: Story, label: str | None, step: int) -> tuple[str, object] | None:
    """The tensor from which a column has its elements, looking back through calls that keep their order, and a key of
    its elements (:func:`key`); None if there is no tensor.
    """
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or len(given) != 1 or given[0] == label:
            break
        whole_column = prod(story.shape(label, made.step) or ()) == prod(story.shape(given[0], made.step) or ())
        if made.name not in KEEPING | TURNED and not (made.name == "__getitem__" and whole_column):
            break
        label, step = given[0], made.step
    return (label, key(story, label, step)) if label is not None else None


def _scores(story: Story, label: str, step: int, *, is_logarithm: bool) -> tuple[str, object] | None:
    """The scores whose exponentials the hazards are, as :func:`_column` returns them; None if no exponential was taken.

    The largest score may have been subtracted before. ``is_logarithm``: the exponential is taken later.
    """
    for _ in range(FURTHER):
        column = _column(story, label, step)
        made = made_by(story, column[0], step) if column is not None else None
        own = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is not None and own and made.name == "exp":
            is_logarithm = True
        elif made is None or not own or made.name not in SUBTRACTS or prod(story.shape(own[-1], step) or ()) > 1:
            return column if is_logarithm else None
        label, step = own[0], made.step
    return None


def _used(story: Story, event: Event, scores: tuple[str, object], count: int) -> Event | None:
    """The call that subtracts the logarithms of the sums from the scores, or multiplies them by the event indicators,
    if only samples with an event count; None if there is none.

    Either the difference is multiplied by, or indexed by, a tensor of event indicators, or both its sides are.
    """
    pending: list[tuple[str, bool, Event | None, str | None]]
    pending, seen = [(event.results[0], event.name == "logsumexp", None, None)], {event.results[0]}
    while pending and len(seen) < 2 * FURTHER:
        label, is_logarithm, met, chosen = pending.pop(0)
        for use in (use for use in story.uses(label) if use.step > event.step and use.results):
            now = (is_logarithm or use.name == "log", met, chosen)
            others = [o.label for o in use.operands if o.label not in (None, label)]
            events = next((each for each in others if _is_events(story, each, use.step, count)), None)
            if use.name in SUBTRACTS and is_logarithm and others:
                side = _chosen_column(story, others[0], use.step)
                if side is None or side[0] != scores[1] or (chosen is None) != (side[1] is None):
                    continue
                now = (True, use, chosen)
            elif use.name in MULTIPLIES | PICKS | {"where"} and is_logarithm and events is not None:
                now = (True, met, events)
                if met is None and (twin := _twin(story, scores, events, use)) is not None:
                    return twin
            elif use.name not in KEEPING | NEGATES | ADDS | DIVIDES | {"log", "clamp", "clamp_min"} and not (
                use.name == "__getitem__" and not others
            ):
                continue
            if now[1] is not None and now[2] is not None:
                return now[1]
            if use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append((use.results[0], *now))
    return None


def _chosen_column(story: Story, label: str, step: int) -> tuple[object, str | None] | None:
    """The key of a column as :func:`_column` returns it, and the label of the event indicators by which its elements
    were selected (None if they were not).
    """
    column = _column(story, label, step)
    made = made_by(story, column[0], step) if column is not None else None
    own = [o.label for o in made.operands if o.label is not None] if made is not None else []
    if made is not None and made.name in PICKS and len(own) == PAIR:
        inner = _column(story, own[0], made.step)
        return (inner[1], own[1]) if inner is not None else None
    return (column[1], None) if column is not None else None


def _twin(story: Story, scores: tuple[str, object], events: str, use: Event) -> Event | None:
    """The call ``use``, if the scores are multiplied by the same event indicators in another call; else None."""
    for other in story.uses(events):
        own = [o.label for o in other.operands if o.label not in (None, events)]
        column = _column(story, own[0], other.step) if other.name in MULTIPLIES and len(own) == 1 else None
        if column is not None and column[1] == scores[1]:
            return use
    return None


def _is_events(story: Story, label: str, step: int, count: int) -> bool:
    """Whether a tensor has one event indicator for each of ``count`` samples: bools, or known zeros and ones."""
    record = story.tensor(label, step) or {}
    if record.get("requires_grad") or prod(story.shape(label, step) or ()) != count:
        return False
    return record.get("dtype") == "bool" or {value for _, value in Elements(story, label, step).known()} == {0, 1}
