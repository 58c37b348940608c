"""PL468: numbers were left out by making them zero, by a mask or an index, and the zero is then the smallest or the
largest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from math import copysign, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.kit.wording import number as shown
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.rules.signals.written_zeros import SIGNED, is_given, written_zeros
from pitfall_lab.trace import Counted, Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul", in_place=True)
FILLS = {"masked_fill", "masked_fill_"}
WRITES = spellings("index_fill", "index_put", "scatter", in_place=True) | {"fill_diagonal_"}
"""Calls that write one number to chosen places, like an assignment to an index."""
EXTREMA = {"min": 1, "max": 1, "amin": 1, "amax": 1, "argmin": 1, "argmax": 1, "topk": 2, "sort": 1, "argsort": 1}
"""Calls that take the smallest or the largest, each with the place of the argument that says along which axes."""
SORTS = {"sort", "argsort"}
"""Of these only those with the largest first count: of others either end may be meant."""
SMALLEST = {"min", "amin", "argmin"}
"""Calls that look for the smallest."""
PLACES = {"argmin", "argmax", "argsort"}
"""Of these the result says where the extremum is, and not what."""
RANKED = {"topk", "sort"}
"""Of these the first result says what is first, second and so on along the axis."""
VIEWS = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous", "clone", "detach", "to", "float", "double",
         "cpu"}  # fmt: skip
"""Calls that leave the values and their order."""
SUMS = spellings("matmul") | {"bmm", "count_nonzero", "mean", "nansum", "sum"}
"""Further uses of masked numbers for which zero is right."""
CONVERSIONS = (
    spellings("bitwise_not", "expand", "transpose")
    | {"T", "__getitem__", "__rsub__", "bool", "clone", "cpu", "detach", "double", "expand_as", "float", "half", "int",
       "logical_not", "long", "reshape", "rsub", "squeeze", "t", "to", "type", "type_as", "unsqueeze", "view"}
)  # fmt: skip
"""Calls whose result is a mask where their operand is one; ``1 - mask`` among them."""
POSITIVE = {"cdist", "norm", "pairwise_distance", "exp", "softmax", "sigmoid", "sqrt", "square", "softplus", "var",
            "std", "vector_norm", "linalg_norm", "abs", "rand", "rand_like"}  # fmt: skip
"""Calls whose result is never below zero."""
NEGATIVE = {"log_softmax", "logsigmoid"}
WEIGHED = spellings("matmul", "mul") | spellings("ge", "gt", "le", "lt", "ne") | {"bmm", "einsum", "relu"}
"""Uses of the numbers that were taken for which a zero may be meant: a weight of 0, and a test for what is left."""
INVERTS = spellings("bitwise_not") | {"__rsub__", "rsub", "logical_not"}
"""Calls that make a mask of what a mask leaves."""
EMPTY = {"zeros": True, "zeros_like": True, "new_zeros": True, "ones": False, "ones_like": False, "new_ones": False}
"""Calls that make a mask before anything is marked in it, and whether what is marked is then true."""
FURTHER, FEWEST = 12, 3
TIMES = 2
"""How many times as many entries as are wanted have to be left on average, where the rows that are masked vary."""
MOST, SHOWN = 4096, 6
"""The longest row that is looked at, and how many of the first and of the last rows."""


@dataclass(frozen=True, slots=True)
class Mask:
    """``event`` is the call (``Event``) that made entries of the tensor ``label`` zero by the tensor ``mask``, which is
    a mask or an index; ``result`` is the tensor with the zeros. All three are labels; ``mask`` is empty where no
    tensor is known that says which entries.

    ``keeps`` is True where the entries at which the mask is false became zero, False where those at which it is true,
    or those that the index names.
    """

    event: Event
    label: str
    mask: str
    keeps: bool
    result: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes the smallest or largest of numbers (``min``, ``max``, ``topk``,
    ``sort``, …) and gets a zero that a mask or an index had put there to leave the number out.
    """
    told = set()
    for event in story.calls(*PRODUCTS, *FILLS, "where", "__setitem__"):
        mask = _mask(story, event) if event.error is None else None
        for taken in _extrema(story, mask) if mask is not None else ():
            place = story.span(taken.step)
            wins = (_wins, _picked, _outranks)
            if mask is not None and place not in told and any(each(story, mask, taken) for each in wins):
                told.add(place)
                yield _finding(story, mask, taken)
    for counted in (each for each in story.trace.beside.counted if each.kind == "zeroed"):
        taken = story.events[counted.step]
        mask = _written(story, counted) if taken.name in EXTREMA else None
        if mask is not None and story.span(taken.step) not in told:
            told.add(story.span(taken.step))
            yield _finding(story, mask, taken, counted)


def _written(story: Story, counted: Counted) -> Mask | None:
    """The :class:`Mask` of the last call that wrote the zeros which a ranking puts first, if they stand for numbers
    that are left out.

    None if their index was computed from the numbers themselves, if zero is an extremum of numbers of this kind, if
    what was taken is a weight or is compared, or if the numbers have another use for which zero may be right.
    """
    taken, found = story.events[counted.step], written_zeros(story, counted)
    if found is None or not _is_of_kind(found.source.name, _is_least(story, taken)):
        return None
    ranked = taken.results[0] if len(taken.results) > 1 else None
    if any(use.name in WEIGHED for use in (story.uses(ranked) if ranked is not None else ())):
        return None
    mask = Mask(found.write, found.label, found.index, False, found.result)
    return mask if any(each.step == taken.step for each in _extrema(story, mask)) else None


def _mask(story: Story, event: Event) -> Mask | None:
    """The :class:`Mask` of a call that makes entries of a floating-point tensor zero by a mask that was not computed
    from that tensor; None for other calls.
    """
    labels = [o.label for o in event.operands]
    result = event.results[0] if event.results else labels[0] if labels else None
    if result is None:
        return None
    first, second = [*labels, None, None][:2]
    found = None
    if event.name in PRODUCTS and first is not None and second is not None and len(labels) == 2:
        is_mask = [_is_mask(story, each, event.step) for each in (first, second)]
        if is_mask.count(True) == 1:
            number, mask = (first, second) if is_mask[1] else (second, first)
            found = Mask(event, number, mask, True, result)
    elif event.name in FILLS and first is not None and second is not None and _is_zero(story, event, 2):
        found = Mask(event, first, second, False, result)
    elif event.name == "__setitem__" and len(labels) == 3 and first and second and _is_zero(story, event, 2):
        found = Mask(event, first, second, False, result) if _is_mask(story, second, event.step, truth=True) else None
    elif event.name == "where":
        found = _chosen(story, event, result)
    if found is None or not (story.tensor(found.label, event.step) or {}).get("dtype", "").startswith(("float", "bfl")):
        return None
    return found if is_given(story, found.mask, found.label, event.step) else None


def _chosen(story: Story, event: Event, result: str) -> Mask | None:
    """The :class:`Mask` of a ``where`` with a zero for one of its two choices; None if neither choice is zero."""
    labels = [o.label for o in event.operands]
    if len(labels) != 3:
        return None
    if event.op.startswith("torch.Tensor."):  # x.where(mask, 0)
        labels, places = [labels[1], labels[0], labels[2]], (0, 2)
    else:
        places = (1, 2)
    for number, zero, keeps in ((1, 2, True), (2, 1, False)):
        label, mask = labels[number], labels[0]
        if label is not None and mask is not None and _is_zero(story, event, places[zero - 1]):
            return Mask(event, label, mask, keeps, result)
    return None


def _is_zero(story: Story, event: Event, place: int) -> bool:
    """Whether an operand is the number zero, or a tensor of one zero or of nothing but zeros."""
    given = event.operands[place] if place < len(event.operands) else None
    if given is None:
        return False
    if given.label is None:
        return given.text in ("0", "0.0", "-0.0", "0.")
    made = made_by(story, given.label, event.step)
    if made is not None and made.name in ("zeros", "zeros_like", "new_zeros"):
        return True
    return not story.shape(given.label, event.step) and Elements(story, given.label, event.step).at(()) == 0


def _is_mask(story: Story, label: str, step: int, *, truth: bool = False) -> bool:
    """Whether a tensor marks entries: it is bool, was converted from a bool tensor, or its known values are 0 and 1."""
    if (story.tensor(label, step) or {}).get("dtype") == "bool":
        return True
    if truth or (story.tensor(label, step) or {}).get("requires_grad"):
        return False
    known = {value for _, value in Elements(story, label, step, answers=True).known()}
    if known and not known <= {0, 1}:
        return False
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or made.name not in CONVERSIONS or made.operands[0].label is None:
            break
        label, step = made.operands[0].label, made.step
        if (story.tensor(label, step) or {}).get("dtype") == "bool":
            return True
    return known == {0, 1}


def _extrema(story: Story, mask: Mask) -> Iterator[Event]:
    """Yield the calls that take an extremum of the masked numbers, before these are next written.

    Nothing if the numbers also have a use other than reshapes, copies and sums, for which zero may be right.
    """
    pending, seen = [mask.result], {mask.result}
    found, storage = [], str((story.tensor(mask.result, mask.event.step) or {}).get("storage"))
    until = min(story.writes(storage, mask.event.step, len(story.events)), default=len(story.events))
    while pending and len(seen) < FURTHER:
        for use in (use for use in story.uses(pending.pop()) if mask.event.step < use.step < until):
            tensors = [o.label for o in use.operands if o.label is not None]
            if use.name in EXTREMA and len(tensors) == 1 and use.error is None and use.results:
                found += [use] if use.name not in SORTS or _falls(use) else []
            elif use.name in VIEWS and use.results:
                new = [each for each in use.results if each not in seen]
                seen.update(new)
                pending += new
            elif use.name not in SUMS:
                return
    yield from found


def _axes(event: Event, count: int) -> tuple[int, ...] | None:
    """The axes along which the extremum is taken; None where they are not known.

    Where none is given, these are the last axis for ``topk``, ``sort`` and ``argsort``, and all axes for other calls.
    """
    text = argument(event, "dim", EXTREMA[event.name])
    if event.name in RANKED | SORTS and text in (None, "None"):
        return (count - 1,)
    if text in (None, "None", "()"):
        return tuple(range(count))
    try:
        given = ast.literal_eval(str(text))
    except (ValueError, SyntaxError):
        return None
    axes = given if isinstance(given, tuple | list) else (given,)
    return tuple(int(axis) % count for axis in axes) if count and all(isinstance(a, int) for a in axes) else None


def _falls(event: Event) -> bool:
    """Whether a call of :data:`SORTS` puts the largest first."""
    return "True" in (argument(event, "descending"), argument(event, "descending", 2))


def _is_least(story: Story, event: Event) -> bool:
    """Whether a call takes the smallest numbers: ``min``, ``amin``, ``argmin``, or a ``topk`` whose known results rise
    along the last axis.
    """
    if event.name != "topk":
        return event.name in SMALLEST
    taken = Elements(story, event.results[0], event.step)
    known = dict(taken.known())
    return any(value < known.get((*at[:-1], taken.shape[-1] - 1), value) for at, value in known.items() if at)


def _wins(story: Story, mask: Mask, taken: Event) -> bool:
    """Whether a call takes a masked zero for the extremum of a row in which other entries are not masked.

    This is known either from the entries that are not masked, if all of them are on the other side of zero, or from the
    result, if it is zero although numbers of this kind hardly ever are.
    """
    shape = story.shape(mask.result, mask.event.step) or ()
    along, there = _axes(taken, len(shape)), story.shape(taken.operands[0].label, taken.step) or ()
    if there != shape and _axes(taken, len(there)) == tuple(range(len(there))) and prod(there) == prod(shape):
        along, there = tuple(range(len(shape))), shape  # all of them, in another shape
    own = story.shape(mask.mask, mask.event.step) or ()
    if not shape or along is None or there != shape:
        return False
    of = prod(shape[axis] for axis in along)
    if not 2 <= of <= MOST or not any(own[axis - len(shape)] > 1 for axis in along if len(shape) - axis <= len(own)):
        return False
    flags = Elements(story, mask.mask, mask.event.step - 1, answers=True)
    numbers = Elements(story, mask.label, mask.event.step - 1)
    least, several = _is_least(story, taken), taken.name == "topk"
    plain = taken.name not in PLACES and _has_no_zero(story, mask, numbers, least)
    results = Elements(story, taken.results[0], taken.step)
    zeros, seen = 0, 0
    for row in _rows(shape, along):
        entries = [(flags.at(index), numbers.at(index)) for index in _within(row, shape, along)]
        kept = [number for flag, number in entries if flag is not None and bool(flag) == mask.keeps]
        known = all(flag is not None for flag, _ in entries)
        if known and len(kept) in (0, of):
            continue
        best = [number for number in kept if number is not None]
        if known and len(best) == len(kept):
            count = min(whole(argument(taken, "k", 1)) or 1, len(best)) if several else 1
            if (sorted(best)[count - 1] > 0) if least else (sorted(best)[-count] < 0):
                return True
            continue
        at = results.at(row if len(results.shape) == len(shape) else _without(row, along)) if plain else None
        if at == 0 and known:
            return True
        zeros, seen = zeros + (at == 0), seen + (at is not None)
    return (
        plain
        and zeros == seen
        and (_are_zeros(results, along[0]) if taken.name in RANKED else seen >= min(FEWEST, _results_of(shape, along)))
    )


def _are_zeros(results: Elements, axis: int) -> bool:
    """Whether all known results among the first ``SHOWN`` along an axis are zeros: at least ``FEWEST`` of them, or all
    results if there are fewer.
    """
    ranked = [value for index, value in results.known() if index and index[axis] < SHOWN]
    return len(ranked) >= min(FEWEST, prod(results.shape)) and not any(ranked)


def _picked(story: Story, mask: Mask, taken: Event) -> bool:
    """Whether the first index that a call returns for some row is known to be that of a masked entry, and another entry
    of this row is known not to be masked.
    """
    shape = story.shape(mask.result, mask.event.step) or ()
    along = _axes(taken, len(shape))
    if (
        along is None
        or len(along) != 1
        or shape[along[0]] > MOST
        or taken.name in ("amin", "amax")
        or story.shape(taken.operands[0].label) != shape
    ):
        return False
    if not _has_no_zero(story, mask, Elements(story, mask.label, mask.event.step - 1), _is_least(story, taken)):
        return False
    places = Elements(story, taken.results[-1], taken.step)
    flags = Elements(story, mask.mask, mask.event.step - 1, answers=True)
    for row in _rows(shape, along):
        at = places.at(row if len(places.shape) == len(shape) else _without(row, along))
        counts = [
            flag if flag is None else bool(flag) == mask.keeps for flag in map(flags.at, _within(row, shape, along))
        ]
        if at is not None and 0 <= at < len(counts) and counts[int(at)] is False and True in counts:
            return True
    return False


def _outranks(story: Story, mask: Mask, taken: Event) -> bool:
    """Whether masked zeros are among the results of a ``topk`` for the largest, although at least ``k`` entries of each
    row are not masked.

    For rows too long to be known entry by entry: a zero with a minus sign comes from a masked number below zero, and
    how many entries are masked is known from the calls that marked them.
    """
    shape = story.shape(mask.result, mask.event.step) or ()
    along, there = _axes(taken, len(shape)), story.shape(taken.operands[0].label, taken.step)
    places = whole(argument(taken, "k", 1))
    if taken.name != "topk" or along is None or there != shape or places is None or mask.event.name not in PRODUCTS:
        return False
    known = [value for _, value in Elements(story, taken.results[0], taken.step).known()]
    zeros = [value for value in known if value == 0]
    if len(zeros) < min(FEWEST, len(known)) or not any(copysign(1, value) < 0 for value in zeros):
        return False
    if _is_least(story, taken) or not _has_no_zero(
        story, mask, Elements(story, mask.label, mask.event.step - 1), False
    ):
        return False
    masked = _masked_of(story, mask, along[0])
    return masked is not None and shape[along[0]] - masked >= places


def _masked_of(story: Story, mask: Mask, axis: int) -> float | None:
    """How many entries of a row along an axis are masked at most; None if that is not known.

    It is known where the mask was created empty and then marked by calls that did not run repeatedly. If they marked
    indices anywhere in the tensor, ``TIMES`` the average for a row is returned.
    """
    label, marked, step = mask.mask, not mask.keeps, mask.event.step
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or story.shape(label, step) != story.shape(mask.result, mask.event.step):
            return None
        if made.name in EMPTY:
            storage = str((story.tensor(label, step) or {}).get("storage"))
            marks = [story.events[at] for at in story.writes(storage, made.step, mask.event.step)]
            counts = [_marks(story, each, label, axis) for each in marks] if EMPTY[made.name] == marked else []
            return sum(each for each in counts if each is not None) if counts and None not in counts else None
        if made.name not in CONVERSIONS:
            return None
        marked = marked != (made.name in INVERTS)
        label, step = next((o.label for o in made.operands if o.label is not None), label), made.step
    return None


def _marks(story: Story, write: Event, label: str, axis: int) -> float | None:
    """How many entries of a row along ``axis`` a call writes at most, or ``TIMES`` the average for a row if it writes
    at indices of all axes; None if that is not known.
    """
    shape = story.shape(label, write.step) or ()
    indexes = [
        story.shape(o.label, write.step) or ()
        for o in write.operands[1:]
        if o.label is not None and str((story.tensor(o.label, write.step) or {}).get("dtype")).startswith("int")
    ]
    if len(story.steps_at[write.span, write.op]) > 1 or not indexes or write.operands[0].label is None:
        return None
    if write.name == "scatter_":
        dim = whole(argument(write, "dim", 1))
        return indexes[0][axis] if dim is not None and dim % len(shape) == axis and indexes[0] else None
    if write.name in ("__setitem__", "index_put_") and len(indexes) == len(shape):
        return TIMES * max(prod(each) for each in indexes) * shape[axis] / prod(shape)
    return None


def _rows(shape: Index, along: Index) -> list[Index]:
    """A few rows along the axes ``along``, at most ``SHOWN`` from the beginning and as many from the end, each by the
    index of its first entry.
    """
    lengths = [range(1 if axis in along else length) for axis, length in enumerate(shape)]
    first = list(islice(product(*lengths), SHOWN))
    last = list(islice(product(*(each[::-1] for each in lengths)), SHOWN))
    return list(dict.fromkeys([*first, *reversed(last)]))


def _within(row: Index, shape: Index, along: Index) -> Iterator[Index]:
    return product(*(range(length) if axis in along else (row[axis],) for axis, length in enumerate(shape)))


def _without(row: Index, along: Index) -> Index:
    return tuple(place for axis, place in enumerate(row) if axis not in along)


def _results_of(shape: Index, along: Index) -> int:
    return prod(length for axis, length in enumerate(shape) if axis not in along)


def _has_no_zero(story: Story, mask: Mask, numbers: Elements, least: bool) -> bool:
    """Whether no known number is zero, and the numbers are of a kind (:func:`_is_of_kind`) among which a zero that a
    mask puts there can be the extremum.

    Zeros on the diagonal of a square matrix, the distances to oneself, do not count.
    """
    if any(value == 0 for index, value in numbers.known() if len(index) < 2 or index[-1] != index[-2]):
        return False
    source = same_numbers(story, mask.label, mask.event.step)
    made = made_by(story, source, mask.event.step)
    negated = False
    while made is not None and made.name in ("neg", "__neg__") and made.operands[0].label is not None:
        negated = not negated
        made = made_by(story, same_numbers(story, made.operands[0].label, made.step), made.step)
    return made is not None and _is_of_kind(made.name, least, negated=negated)


def _is_of_kind(name: str, least: bool, *, negated: bool = False) -> bool:
    """Whether the results of the call ``name`` have both signs, or are positive if ``least``, or negative if not: a
    zero among such numbers can be the smallest (``least``) or the largest.

    With ``negated``, the results had their signs reversed.
    """
    positive, negative = name in POSITIVE, name in NEGATIVE
    if negated:
        positive, negative = negative, positive
    return name in SIGNED or (positive and least) or (negative and not least)


def _finding(story: Story, mask: Mask, taken: Event, counted: Counted | None = None) -> Finding:
    if counted is not None:
        return _counted_finding(story, mask, taken, counted)
    least, is_product = _is_least(story, taken), mask.event.name in PRODUCTS
    here, there = at_line(story, story.span(taken.step)), at_line(story, story.span(mask.event.step))
    data, flags = (expression(story, each, mask.event.step) for each in (mask.label, mask.mask))
    kind = T(en="smallest", zh="最小") if least else T(en="largest", zh="最大")
    limit = "inf" if least else "-inf"
    does = T(en="a product with", zh="的乘积") if is_product else T(en="a fill by", zh="的填充")
    beyond = T(en="greater", zh="大") if least else T(en="smaller", zh="小")
    ranked = (
        [value for _, value in Elements(story, taken.results[0], taken.step).known()] if taken.name == "topk" else []
    )
    zeros = ranked.count(0)
    share = (
        T(
            en=f" Of {len(ranked)} places that are known, {zeros} went to such zeros.",
            zh=f"已知的 {len(ranked)} 个名次中，有 {zeros} 个被这样的零占据。",
        )
        if zeros
        else T(en="", zh="")
    )
    return RULE.finding(
        story.span(taken.step),
        taken.step,
        T(
            en=f"{capital(here.en)} takes the {kind.en} number, and what comes is a zero that {there.en} put in place "
            "of an entry that is masked.",
            zh=f"{here.zh}取{kind.zh}的数，得到的却是{there.zh}在被遮住的位置上填的零。",
        ),
        T(
            en=f"Only some entries of {data.en} are to be compared, and the others were made zero by {does.en} "
            f"{flags.en}. Zero is a number like any other: where the entries that count are all {beyond.en} than "
            f'zero, it wins.{share.en} Fill the others with what can never win: `masked_fill(..., float("{limit}"))`.',
            zh=f"{data.zh} 中只有一些项该参与比较，其余的通过与 {flags.zh} {does.zh}变成了零。零也是数：该参与比较"
            f"的项都比零{beyond.zh}时，零就会胜出。{share.zh}请给其余的项填上永远不会胜出的数："
            f'`masked_fill(..., float("{limit}"))`。',
        ),
        related=[story.related("masked", mask.event.step, T(en="made zero here", zh="在这里变成零"))],
        fixes=_fixes(story, mask, taken, limit),
        facts=[Fact("extremum", taken.op, story.by(taken.step)), *([Fact("zeros", zeros)] if zeros else [])],
    )


def _counted_finding(story: Story, mask: Mask, taken: Event, counted: Counted) -> Finding:
    least = _is_least(story, taken)
    here, there = at_line(story, story.span(taken.step)), at_line(story, story.span(mask.event.step))
    data, best = expression(story, mask.label, mask.event.step), shown(counted.numbers[0])
    kind = T(en="smallest", zh="最小") if least else T(en="largest", zh="最大")
    beyond = T(en="greater", zh="大") if least else T(en="smaller", zh="小")
    limit = "inf" if least else "-inf"
    return RULE.finding(
        story.span(taken.step),
        taken.step,
        T(
            en=f"{capital(here.en)} takes the {kind.en} numbers, and {counted.count:,} of {counted.of:,} places go to "
            f"zeros that {there.en} put where {data.en} was to be left out.",
            zh=f"{here.zh}取{kind.zh}的数，而 {counted.of:,} 个名次中有 {counted.count:,} 个给了{there.zh}写入的零，"
            f"它们代替了 {data.zh} 中要排除的项。",
        ),
        T(
            en=f"Zero is a number like any other. {capital(data.en)} has numbers {beyond.en} than zero, such as "
            f"{best}, and a zero comes before them although it stands for what is left out. Write what can never win: "
            f'`float("{limit}")`.',
            zh=f"零也是数。{data.zh} 中有比零{beyond.zh}的数，例如 {best}，而零代表要排除的项，却排在它们前面。"
            f'请写入永远不会胜出的数：`float("{limit}")`。',
        ),
        related=[story.related("masked", mask.event.step, T(en="made zero here", zh="在这里变成零"))],
        fixes=_fixes(story, mask, taken, limit),
        facts=[
            Fact("extremum", taken.op, story.by(taken.step)),
            Fact("zeros", counted.count),
            Fact("places", counted.of),
        ],
    )


def _fixes(story: Story, mask: Mask, taken: Event, limit: str) -> tuple[Fix, ...]:
    """Fixes that put an infinity at the masked positions: in place of the zero, or just before the extremum is taken.

    Empty where the program's source does not show the masked numbers and the mask.
    """
    program, event = story.program, mask.event
    node, call = program.at(story.span(event.step)), program.at(story.span(taken.step))
    numbers, flags = written_as(story, event, mask.label), written_as(story, event, mask.mask)
    if node is None or call is None:
        return ()
    infinite = f'float("{limit}")'
    changes: list[tuple[ast.AST, str]] = []
    zero = zero_in(story, event)
    if zero is not None:
        changes.append((zero, infinite))
    elif numbers is not None and flags is not None and event.name in PRODUCTS:
        new = f"{operand(program, numbers)}.masked_fill({_inverted(story, mask, flags)}, {infinite})"
        changes.append((node, f"{program.segment(numbers)} = {new}" if isinstance(node, ast.AugAssign) else new))
    fixes = []
    title = T(en=f"Fill what is masked with {limit}", zh=f"用 {limit} 填充被遮住的项")
    if changes:
        fixes.append(Fix(title, program.replace(*changes), meaning="later"))
    source = written_as(story, taken, taken.operands[0].label)
    same = program.function(node) is program.function(call)
    is_flags = isinstance(flags, ast.Name | ast.Attribute) and _is_mask(story, mask.mask, event.step)
    if isinstance(source, ast.Name) and flags is not None and is_flags and same:
        out = _inverted(story, mask, flags) if mask.keeps else program.segment(flags)
        fixes.append(
            Fix(title, program.replace((source, f"{source.id}.masked_fill({out}, {infinite})")), meaning="later")
        )
    return unique(program.text, fixes)


def zero_in(story: Story, event: Event) -> ast.expr | None:
    """Return the expression for the zero in the call that ``event`` recorded, or in its assignment to an index; None if
    the program's source shows none there.
    """
    node = story.program.at(story.span(event.step))
    if isinstance(node, ast.Call) and event.name in {*FILLS, *WRITES, "where"}:
        said = [k.value for k in node.keywords if k.arg not in ("dim", "index", "mask")]
        given = [*said, *reversed(node.args)]
        return next((each for each in given if _says_zero(story.program.segment(each))), None)
    if isinstance(node, ast.Assign | ast.Subscript) and event.name == "__setitem__":
        statement = story.program.statement(node)
        if isinstance(statement, ast.Assign) and _says_zero(story.program.segment(statement.value)):
            return statement.value
    return None


def _says_zero(text: str) -> bool:
    return text in ("0", "0.0", "0.", "-0.0") or text.startswith(("torch.zeros", "torch.tensor(0"))


def _inverted(story: Story, mask: Mask, flags: ast.expr) -> str:
    """An expression that is true where the mask of a product is false or zero."""
    program = story.program
    if isinstance(flags, ast.UnaryOp) and isinstance(flags.op, ast.Invert):
        return program.segment(flags.operand)
    is_bool = (story.tensor(mask.mask, mask.event.step) or {}).get("dtype") == "bool"
    return f"~{operand(program, flags)}" if is_bool else f"{operand(program, flags)} == 0"


RULE = Rule(
    code="PL468",
    name="masked-zero-wins",
    severity="warning",
    title=T(
        en="A zero in place of masked numbers is taken for the smallest or the largest",
        zh="代替被遮住的数的零被当作最小或最大的数",
    ),
    what=T(
        en="A program looks for the smallest of some numbers, and multiplies with a mask to leave out the others. "
        "These are then 0, and 0 is the smallest of all. Fill them with a number that never wins: "
        '`x.masked_fill(~mask, float("inf")).min()`.',
        zh="程序在一些数中寻找最小的，并乘以一个掩码来排除其余的数。这些数就变成了 0，而 0 正是最小的。请给它们填上永远"
        '不会胜出的数：`x.masked_fill(~mask, float("inf")).min()`。',
    ),
    why=T(
        en="A product with a mask of zeros and ones leaves nothing out: the tensor keeps its shape, and what is masked "
        "is the number 0. For a sum that is right. For an extremum 0 takes part like any other number, so the smallest "
        "of positive numbers, or the largest of negative ones, is always a masked entry, and no gradient goes to those "
        "that count. The same holds for zeros that are written by an index: `scores.scatter_(1, seen, 0.0)`. `inf` is "
        "never the smallest while there is another, and `-inf` never the largest.",
        zh="与由零和一组成的掩码相乘并没有排除任何东西：张量的形状不变，被遮住的就是数字 0。对求和来说这是对的。求最值"
        "时 0 和其他数一样参与比较，所以正数中最小的、负数中最大的，总是被遮住的项，而该起作用的项得不到梯度。用索引"
        "写入的零也是如此：`scores.scatter_(1, seen, 0.0)`。只要还有别的数，`inf` 就永远不是最小的，`-inf` 也永远不是"
        "最大的。",
    ),
    bad="""import torch

torch.manual_seed(0)
points = torch.randn(4, 3)
label = torch.tensor([0, 0, 1, 1])
distance = torch.cdist(points, points)
other = label[:, None] != label[None, :]
nearest = (distance * other).min(1).values  # PL468 masked
print(nearest)
""",
    good="""import torch

torch.manual_seed(0)
points = torch.randn(4, 3)
label = torch.tensor([0, 0, 1, 1])
distance = torch.cdist(points, points)
other = label[:, None] != label[None, :]
nearest = distance.masked_fill(~other, float("inf")).min(1).values
print(nearest)
""",
    find=find,
    traps=(
        Trap(
            "(distance * other)",
            "(distance * other + 1e-6)",
            T(
                en="What is masked is 0.000001 now, and still the smallest.",
                zh="被遮住的项现在是 0.000001，仍是最小的。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.masked_fill_.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.min.html",
    ),
)
