"""PL840: two lengths of an overlap are multiplied where both are negative, and the area of no overlap is positive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from math import inf, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import key, made_by
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul", in_place=True)
DIFFERENCES = spellings("sub", in_place=True)
SMALLER, LARGER = {"minimum", "min", "fmin"}, {"maximum", "max", "fmax"}
"""Calls that give the smaller, and the larger, of two ends."""
VIEWS = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous", "clone", "detach", "to", "float", "double",
         "cpu", "__getitem__", "select", "unbind", "chunk", "split", "stack", "cat", "transpose", "permute", "t", "T",
         "expand", "narrow", "unflatten", "tensor_split", "movedim", "identity"}  # fmt: skip
"""Calls whose result consists of values of their operands."""
SHIFTS = spellings("add", "div", "mul", "sub")
"""With a plain number: the pixel that some boxes count in (``right - left + 1``), or another unit."""
JOINS = {"stack", "cat"}
CHECKS = (
    spellings("ge", "gt", "le", "lt") | spellings("clamp", "clamp_min", "masked_fill", "relu", in_place=True)
    | {"sign", "signbit", "threshold", "where"}
)  # fmt: skip
"""Calls by which a program may see to the boxes that lie apart in its own way."""
FURTHER, MOST = 40, 64
ANY = (-inf, inf)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an overlap: ``difference`` is the call (``Event``) that subtracted the larger of two beginnings from
    the smaller of two ends, and ``last`` the call that returned this length, perhaps with a constant added to it.

    ``seen`` are the labels of the tensors on the way to the length.
    """

    difference: Event
    last: Event
    seen: frozenset[str]


@dataclass(frozen=True, slots=True)
class Area:
    """``event`` is the call (``Event``) that multiplied the lengths ``sides`` of an overlap; ``known`` are the lengths
    of one pair of boxes (two or three), an even number of which are negative.

    Where ``exact`` is False, ``known`` are the largest numbers that these lengths can be.
    """

    event: Event
    sides: tuple[Side, ...]
    known: tuple[float, ...]
    exact: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies the lengths of an overlap, an even number of which are known to
    be negative, so that the product is positive.

    Not where the program compares or limits these lengths, or the ends that they lie between.
    """
    if not any(True for _ in story.calls(*SMALLER)):
        return
    told = set()
    for event in story.calls(*PRODUCTS, "prod"):
        place = story.span(event.step)
        area = _area(story, event) if place not in told and event.error is None and event.results else None
        if area is not None:
            told.add(place)
            yield _finding(story, area)


def _area(story: Story, event: Event) -> Area | None:
    """The data of the finding if a product multiplies lengths of overlaps that are negative and comes out positive.

    None if it does not, or if the program compares or limits these lengths, or the ends that they lie between.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != (1 if event.name == "prod" else 2):
        return None
    if len({key(story, label, event.step) for label in labels}) < len(labels):
        return None  # a square
    known, exact = next(_negative(story, event, labels), None), True
    if known is None:
        known, exact = next(_below(story, event, labels), None), False
    if known is None:
        return None
    sides = tuple(side for label in labels for side in _sides(story, label, event.step))
    if not sides or len(sides) < len(labels):
        return None
    seen = {label for side in sides for label in side.seen}
    checked = any(use.name in CHECKS for label in seen for use in story.uses(label))
    return None if checked else Area(event, sides, known, exact)


def _negative(story: Story, event: Event, labels: list[str]) -> Iterator[tuple[float, ...]]:
    """Yield the known lengths whose product is positive although some of them are negative."""
    before = event.step - 1
    if event.name != "prod":
        one, other = (Elements(story, label, before) for label in labels)
        if one.shape != other.shape:
            return
        pairs: list[tuple[float | None, ...]] = [(value, other.at(index)) for index, value in one.known()]
    else:
        elements = Elements(story, labels[0], before)
        axis = whole(argument(event, "dim", 1))
        if axis is None or not elements.shape:
            return
        axis %= len(elements.shape)
        rows: dict[Index, list[float | None]] = {}
        for index, _ in elements.known():
            row = index[:axis] + index[axis + 1 :]
            rows.setdefault(
                row, [elements.at((*row[:axis], i, *row[axis:])) for i in range(min(elements.shape[axis], 4))]
            )
        pairs = [tuple(row) for row in rows.values() if elements.shape[axis] in (2, 3)]
    for pair in pairs:
        values = [value for value in pair if value is not None]
        if len(values) == len(pair) and min(values) < 0 < prod(values):
            yield tuple(values)


def _below(story: Story, event: Event, labels: list[str]) -> Iterator[tuple[float, ...]]:
    """For lengths whose values are not in the trace: the largest numbers that the two lengths of a pair can be, for
    each pair near the ends of all axes (:func:`_ends`) for which both are negative.
    """
    before = event.step - 1
    shape = story.shape(labels[0], before) or ()
    if event.name != "prod":
        if story.shape(labels[1], before) != shape or any(Elements(story, labels[0], before).known()):
            return
        pairs = ([(label, at) for label in labels] for at in _ends(shape))
    else:
        axis = whole(argument(event, "dim", 1))
        if axis is None or not shape or shape[axis] != len("xy") or any(Elements(story, labels[0], before).known()):
            return
        axis %= len(shape)
        rest = shape[:axis] + shape[axis + 1 :]
        pairs = ([(labels[0], (*at[:axis], i, *at[axis:])) for i in range(shape[axis])] for at in _ends(rest))
    for pair in pairs:
        most = tuple(_limits(story, label, at, before)[1] for label, at in pair)
        if max(most) < 0:
            yield most


def _ends(shape: Index) -> Iterator[Index]:
    """The indices whose number is, along each axis, among the first two or the last two; at most ``MOST``."""
    near = [dict.fromkeys(i for i in (0, length - 1, 1, length - 2) if 0 <= i < length) for length in shape]
    yield from islice(product(*near), MOST)


def _limits(story: Story, label: str | None, index: Index, step: int, depth: int = 0) -> tuple[float, float]:
    """The smallest and the largest number that an element can be, by what the trace has of those that it comes from.

    They are equal where it is known, and infinite where nothing is. Past views, differences, and the smaller or the
    larger of two.
    """
    known = Elements(story, label, step).at(index)
    if known is not None:
        return float(known), float(known)
    made = made_by(story, label, step) if depth < FURTHER else None
    given = [o.label for o in made.operands if o.label is not None] if made is not None else []
    if made is None or label is None or not given:
        return ANY
    if made.name in DIFFERENCES | SMALLER | LARGER and len(given) == len("xy"):
        places = [_broadcast(index, story.shape(each, made.step) or ()) for each in given]
        (least, most), (low, high) = (
            _limits(story, each, place, made.step, depth + 1) for each, place in zip(given, places, strict=True)
        )
        if made.name in DIFFERENCES:
            return least - high, most - low
        function = min if made.name in SMALLER else max
        return function(least, low), function(most, high)
    own, base = (story.tensor(each, made.step) or {} for each in (label, given[0]))
    if made.name not in VIEWS or own.get("storage") != base.get("storage") or len(given) > 1:
        return ANY
    at = _place_in(own, base, index)
    return _limits(story, given[0], at, made.step, depth + 1) if at is not None else ANY


def _broadcast(index: Index, shape: Index) -> Index:
    """The index of the element of an operand of this shape that is combined into the element ``index`` of the
    result.
    """
    own = index[len(index) - len(shape) :]
    return tuple(0 if length == 1 else i for i, length in zip(own, shape, strict=True))


def _place_in(own: Record, base: Record, index: Index) -> Index | None:
    """The index in ``base`` of an element of a view of it; None if no element of the base is known to be at this
    position of the storage.
    """
    stride, shape = tuple(base.get("stride") or ()), tuple(base.get("shape") or ())
    rest = int(own.get("offset") or 0) - int(base.get("offset") or 0)
    rest += sum(i * n for i, n in zip(index, own.get("stride") or (), strict=True))
    found = [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda axis: -stride[axis]):
        if stride[axis] > 0 and shape[axis] > 1:
            found[axis], rest = divmod(rest, stride[axis])
    inside = rest == 0 and all(0 <= i < max(length, 1) for i, length in zip(found, shape, strict=True))
    return tuple(found) if inside else None


def _sides(story: Story, label: str | None, step: int) -> list[Side]:
    """The lengths of overlaps (:class:`Side`) that a tensor consists of, also behind views, joins and constants added;
    empty if anything else is in it.
    """
    seen: set[str] = set()
    last = None
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or label is None:
            return []
        seen.add(label)
        given = [o.label for o in made.operands if o.label is not None]
        if made.name in JOINS and len(given) > 1:
            parts = [_sides(story, each, made.step) for each in given]
            return [side for part in parts for side in part] if all(parts) else []
        if made.name in DIFFERENCES and len(given) == 2:
            return _difference(story, made, last or made, seen)
        if len(given) != 1 or given[0] == label or made.name not in VIEWS | SHIFTS:
            return []
        if made.name in SHIFTS and last is None:
            last = made
        label, step = given[0], made.step
    return []


def _difference(story: Story, made: Event, last: Event, seen: set[str]) -> list[Side]:
    """The length that a difference is, as a list of one :class:`Side`, if it subtracts the larger of two tensors from
    the smaller of two; else empty.
    """
    ends = [o.label for o in made.operands if o.label is not None]
    found = []
    for label, names in zip(ends, (SMALLER, LARGER), strict=True):
        step, here = made.step, label
        for _ in range(FURTHER):
            event = made_by(story, here, step)
            given = [o.label for o in event.operands if o.label is not None] if event is not None else []
            seen.add(here)
            if event is None or not given:
                return []
            if event.name in names and len(given) == 2:
                found.append(event)
                break
            if event.name not in VIEWS or given[0] == here:
                return []
            here, step = given[0], event.step
    return [Side(made, last, frozenset(seen))] if len(found) == 2 else []


def _finding(story: Story, area: Area) -> Finding:
    event, first = area.event, area.sides[0].difference
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(first.step))
    numbers = " * ".join(number(value) if value >= 0 else f"({number(value)})" for value in area.known)
    result = number(prod(area.known))
    example = T(en=f"{numbers} gives an area of {result}", zh=f"{numbers} 得到面积 {result}")
    if not area.exact:
        most = " and ".join(number(value) for value in area.known)
        example = T(
            en=f"of one pair they are at most {most}, and the area is {result} or more",
            zh=f"有一对框的边长至多为 {most.replace(' and ', ' 和 ')}，面积至少为 {result}",
        )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} multiplies the sides of what two boxes have in common, and where they lie apart "
            f"both are negative: {example.en}.",
            zh=f"{here.zh}把两个框公共部分的边长相乘，而在两个框分开处，边长都是负的：{example.zh}。",
        ),
        T(
            en=f"The smaller of two ends minus the larger of two beginnings ({there.en}) is the length of the overlap "
            "only where there is one; else it is minus the gap. Two gaps multiplied are positive, so boxes that lie "
            "apart in both directions seem to overlap, the more the further they are apart. Limit each length to at "
            "least 0 before they are multiplied.",
            zh=f"两个终点中较小的减去两个起点中较大的（{there.zh}），只有在有重叠时才是重叠的长度；否则就是间隔的相反数。"
            "两个间隔相乘是正数，于是在两个方向上都分开的框看起来像是重叠的，离得越远越是如此。请在相乘之前把每个长度限制"
            "为至少 0。",
        ),
        related=[story.related("made", first.step, T(en="negative where there is no overlap", zh="没有重叠时为负"))],
        fixes=_fixes(story, area),
        facts=[Fact("sides", list(area.known), story.by(event.step))],
    )


def _fixes(story: Story, area: Area) -> tuple[Fix, ...]:
    """At most one fix, which limits each length to at least 0 where it is computed."""
    program = story.program
    nodes = list(dict.fromkeys(program.at(story.span(side.last.step)) for side in area.sides))
    changes: list[tuple[ast.AST, str]] = []
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            text = program.segment(node.target)
            return unique(
                program.text,
                [Fix(TITLE, program.insert_after(node, f"{text} = {text}.clamp(min=0)"), meaning="later")],
            )
        if not isinstance(node, ast.expr):
            return ()
        changes.append((node, f"{operand(program, node)}.clamp(min=0)"))
    return unique(program.text, [Fix(TITLE, program.replace(*changes), meaning="later")])


TITLE = T(en="Limit the lengths to at least 0: `.clamp(min=0)`", zh="把长度限制为至少 0：`.clamp(min=0)`")
RULE = Rule(
    code="PL840",
    name="negative-sides-multiplied",
    severity="warning",
    title=T(
        en="Negative sides of an overlap are multiplied to a positive area",
        zh="重叠部分的负边长相乘得到正的面积",
    ),
    what=T(
        en="A program computes how much two boxes overlap: the smaller right end minus the larger left one, times the "
        "same from top to bottom. For boxes that lie apart in both directions these two numbers are negative, and "
        "their product is a positive area. Limit them first: `(right_bottom - left_top).clamp(min=0)`.",
        zh="程序计算两个框重叠多少：较小的右端减去较大的左端，再乘以上下方向的同样的差。对于在两个方向上都分开的框，这两个"
        "数是负的，乘积却是正的面积。请先加以限制：`(right_bottom - left_top).clamp(min=0)`。",
    ),
    why=T(
        en="`minimum` and `maximum` take the right corners of the overlap when there is one. When there is none, the "
        "difference is the gap with a minus sign, and nothing in torch knows that it was to be a length. A score like "
        "the intersection over union then is wrong for the boxes that are furthest apart, and a suppression of "
        "duplicates removes boxes of other objects.",
        zh="有重叠时，`minimum` 和 `maximum` 取的正是重叠部分的角。没有重叠时，差就是带负号的间隔，而 torch 并不知道它"
        "本该是长度。于是交并比之类的分数对离得最远的框是错的，去除重复框时会删掉其他物体的框。",
    ),
    bad="""import torch

one = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
other = torch.tensor([[1.0, 1.0, 3.0, 3.0], [7.0, 6.0, 9.0, 9.0]])
side = torch.minimum(one[:, 2:], other[:, 2:]) - torch.maximum(one[:, :2], other[:, :2])  # made
print(side[:, 0] * side[:, 1])  # PL840
""",
    good="""import torch

one = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
other = torch.tensor([[1.0, 1.0, 3.0, 3.0], [7.0, 6.0, 9.0, 9.0]])
side = (torch.minimum(one[:, 2:], other[:, 2:]) - torch.maximum(one[:, :2], other[:, :2])).clamp(min=0)
print(side[:, 0] * side[:, 1])
""",
    find=find,
    traps=(
        Trap(
            "side[:, 0] * side[:, 1]",
            "(side[:, 0] * side[:, 1]).clamp(min=0)",
            T(
                en="The product of two negative numbers is positive already.",
                zh="两个负数的乘积已经是正的了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.clamp.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.minimum.html",
    ),
)
