"""PL770: an entry is drawn or found in sorted numbers, and its rank is used as if it were
the position before the sort.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.axes import ELEMENTWISE
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SORTS = ("sort", "topk")
FINDS = {"multinomial": None, "argmax": 1, "argmin": 1, "max": 1, "min": 1, "searchsorted": None, "topk": 2}
"""Calls that return positions in a row, each with the place of the argument that says along which
axis; None: along the last one.
"""
IN_PLACE = (
    ELEMENTWISE | spellings("abs", "ge", "gt", "le", "lt", "pow") | spellings("div", "exp", "mul", in_place=True)
    | {"__getitem__", "__rsub__", "add_", "cpu", "cumsum", "log_softmax", "masked_fill_", "normalize", "reshape",
       "softmax", "square", "squeeze", "sub_", "type_as", "unsqueeze", "view", "where"}
)  # fmt: skip
"""Calls that leave each element of a row at its position."""
CARRIES = {"squeeze", "unsqueeze", "view", "reshape", "to", "long", "int", "clone", "detach", "cpu", "__getitem__",
           "cat", "stack", "T", "unbind", "flatten", "expand", "select", "contiguous", "t"}  # fmt: skip
"""Calls that a rank is followed through."""
LOOKS_UP = {
    "gather": (0, 2),
    "__getitem__": (0, None),
    "index_select": (0, 2),
    "take_along_dim": (0, 1),
    "take": (0, 1),
}
"""Calls that take entries by positions: which operands are the table and the positions (None: all operands but the
first).
"""
COMPARES = spellings("eq", "ne")
LEARNED = spellings("matmul") | {"addmm", "bmm", "conv1d", "conv2d", "gru", "linear", "lstm"}
"""Calls that compute with a weight."""
TO_PYTHON = {"item", "tolist", "numpy", "__int__", "__index__"}
"""Calls that return Python numbers, or an array."""
FILLS = spellings("masked_fill", in_place=True)
MASKS = FILLS | {"__setitem__", "where"}
PAIR, UPWARD, FURTHER = 2, 60, 200


@dataclass(frozen=True, slots=True)
class Ranked:
    """``found`` is the call (``Event``) that returned ranks in numbers that the call ``sort`` had put in order;
    ``used`` is the call that uses them as positions in the ``count`` unsorted numbers.
    """

    sort: Event
    found: Event
    used: Event
    count: int


@dataclass(frozen=True, slots=True)
class MaskInSortedOrder:
    """``event`` is the call (``Event``) that applies the mask labelled ``mask``, computed from the sorted values of the
    call ``sort``, to the same numbers in their order before the sort.
    """

    sort: Event
    event: Event
    mask: str


@dataclass(frozen=True, slots=True)
class RankTakenForPosition:
    """``event`` is the call (``Event``) that sorted rows of ``count`` values; ``before`` are the labels of the tensors
    that hold these values in their order before the sort, those included that they were computed from element by
    element.

    ``learned`` is True where these are the result of a layer or require grad.
    """

    event: Event
    before: set[str]
    count: int
    learned: bool

    @property
    def order(self) -> str:
        """The label of the positions before the sort."""
        return self.event.results[1]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that draws or finds a rank in sorted numbers which is then used as
    a position before the sort, and one for each line that applies a mask of sorted numbers to the unsorted ones.
    """
    if not any(True for _ in story.calls(*SORTS)):
        return
    reported = set()
    misplaced = list(_misplaced(story))
    for masked in misplaced:
        yield _mask_finding(story, masked)
    for event in story.calls(*FINDS):
        place = story.span(event.step)
        ranked = _ranked(story, event) if place not in reported and event.error is None and event.results else None
        if ranked is not None and any(each.sort is ranked.sort for each in misplaced):
            continue  # what was drawn from is in the order before the sort, but for its mask
        if ranked is not None:
            reported.add(place)
            yield _finding(story, ranked)


def _misplaced(story: Story) -> Iterator[MaskInSortedOrder]:
    """Yield the calls that apply a mask of sorted numbers to the same numbers before the sort, once for each line."""
    told = set()
    for event in story.calls(*MASKS):
        labels, place = [o.label for o in event.operands if o.label is not None], story.span(event.step)
        masks = [each for each in labels if (story.tensor(each, event.step) or {}).get("dtype") == "bool"]
        if event.error is not None or place in told or len(masks) != 1 or len(labels) < PAIR:
            continue
        sort = _sorted(story, masks[0], event.step)
        before = set(_upward(story, str(sort.operands[0].label), sort.step)) if sort is not None else set[str]()
        if sort is not None and any(each in before for each in labels if each != masks[0]):
            told.add(place)
            yield MaskInSortedOrder(sort, event, masks[0])


def _mask_finding(story: Story, found: MaskInSortedOrder) -> Finding:
    """The finding about a mask that was computed in the order of the sort and is applied to the unsorted numbers."""
    program, event = story.program, found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.sort.step))
    mask, node = shown(story, event, found.mask), written_as(story, event, found.mask)
    count = (story.shape(found.mask, event.step) or (0,))[-1]
    sorting = program.at(story.span(found.sort.step)) if program.tree is not None else None
    assign, fixes = program.parents.get(sorting) if sorting is not None else None, list[Fix]()
    pair = assign.targets[0] if isinstance(assign, ast.Assign) else None
    if node is not None and isinstance(pair, ast.Tuple) and len(pair.elts) == PAIR:
        order = program.segment(pair.elts[1])
        if order != "_" and program.function(node) is program.function(pair):
            new = f"{operand(program, node)}.scatter(-1, {order}, {program.segment(node)})"
            title = T(
                en=f"Put the mask back into the order before the sort: `{new}`", zh=f"把掩码放回排序前的次序：`{new}`"
            )
            fixes.append(Fix(title, program.replace((node, new)), meaning="later"))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} applies {mask.en} to numbers in their own order, and the mask has the order of the "
            f"sort on {there.en}: its entry for the k-th of the {count} sorted numbers is used for the k-th number of "
            "the unsorted ones.",
            zh=f"{here.zh}把 {mask.zh} 用在次序未变的数上，而这个掩码按的是{there.zh}排序后的次序：为排序后 {count} 个"
            "数中的第 k 个所作的决定，用在了未排序的第 k 个数上。",
        ),
        T(
            en="The second result of the sort says where each of the sorted numbers was: `mask.scatter(-1, order, "
            "mask)` puts the mask back. Without that, the mask covers the same entries in each row, whichever are "
            "the largest.",
            zh="排序的第二个结果说明排序后的每个数原来在哪里：`mask.scatter(-1, order, mask)` 把掩码放回去。不这样做"
            "，每一行的掩码都从同样的位置开始，不管最大的是哪些。",
        ),
        related=[story.related("made", found.sort.step, T(en="put in order here", zh="在这里排序"))],
        fixes=unique(program.text, fixes),
        facts=[Fact("entries", count, story.by(event.step))],
    )


def _ranked(story: Story, event: Event) -> Ranked | None:
    """The data of the finding if the event's positions are ranks and are used as positions; else None.

    Only along the last axis.
    """
    label = event.operands[0].label if event.operands else None
    shape, place = story.shape(label, event.step) or (), FINDS[event.name]
    along = -1 if place is None or event.name == "topk" else whole(argument(event, "dim", place))
    if not shape or (len(shape) > 1 and along not in (-1, len(shape) - 1)):
        return None
    sort = _sorted(story, label, event.step)
    if sort is None or sort is event:
        return None
    source = str(sort.operands[0].label)
    before = set(_upward(story, source, sort.step))
    ordered = RankTakenForPosition(sort, before, (story.shape(source, sort.step) or (0,))[-1], _learned(story, before))
    used = _used(story, event, ordered)
    return Ranked(sort, event, used, ordered.count) if used is not None else None


def _used(story: Story, event: Event, ordered: RankTakenForPosition) -> Event | None:
    """The first call that uses the ranks as positions in the unsorted numbers; None if there is none, or if they are
    looked up in the order.

    For a ``multinomial`` of learned scores whose order is not used, a conversion of the ranks to a Python number counts
    too.
    """
    ranks, pending = {event.results[-1]}, [event.results[-1]]
    found: list[Event] = []
    numbers: list[Event] = []
    while pending and len(ranks) < FURTHER:
        here = pending.pop()
        for use in (use for use in story.uses(here) if use.step > event.step and use.error is None):
            kind = _use(story, use, ranks, ordered)
            if kind == "mapped":
                return None
            if kind == "position":
                found.append(use)
            elif use.name in TO_PYTHON:
                numbers.append(use)
            new = _carried(use, here)
            if new is not None and new not in ranks:
                ranks.add(new)
                pending.append(new)
    if (
        not found
        and event.name == "multinomial"
        and ordered.learned
        and not _used_otherwise(story, ordered.order, event.step)
    ):
        found = numbers
    return min(found, key=lambda use: use.step, default=None)


def _carried(use: Event, label: str) -> str | None:
    """The tensor that holds ``label``'s values after this call; None if none does."""
    if use.name == "__setitem__":
        return use.operands[0].label if use.operands[-1].label == label else None
    if use.name == "broadcast_tensors":
        return next((result for o, result in zip(use.operands, use.results, strict=False) if o.label == label), None)
    is_index = use.name == "__getitem__" and use.operands[0].label != label
    return use.results[0] if use.name in CARRIES and use.results and not is_index else None


def _sorted(story: Story, label: str | None, step: int) -> Event | None:
    """The sort whose values ``label`` was computed from, with each element still at its position.

    None if there is none, or if the last sort on the way goes along another axis than the last one.
    """
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < UPWARD:
        here, at = pending.pop()
        made, width = made_by(story, here, at), (story.shape(here, at) or (0,))[-1]
        if made is None:
            continue
        if made.name in SORTS and here == made.results[0] and len(made.results) > 1:
            shape = story.shape(made.operands[0].label, made.step) or ()
            axis = whole(argument(made, "dim", 2 if made.name == "topk" else 1))
            return made if len(shape) == 1 or axis in (None, -1, len(shape) - 1) else None
        if made.name not in IN_PLACE or (
            made.name == "__getitem__" and any(o.label is not None for o in made.operands[1:])
        ):
            continue
        # A mask from the sort leaves numbers that are not sorted at their positions.
        values = made.operands[:1] if made.name in FILLS else made.operands
        for each in [o.label for o in values if o.label is not None]:
            if each not in seen and (
                (story.shape(each, made.step) or (0,))[-1] == width or _begins_it(story, here, each)
            ):
                seen.add(each)
                pending.append((each, made.step))
    return None


def _begins_it(story: Story, part: str | None, label: str | None) -> bool:
    """Whether ``part`` is a view of the first elements of each row of ``label``: the same first element, strides and
    number of axes.
    """
    one, other = (story.tensor(each) or {} for each in (part, label))
    same = one.get("storage") == other.get("storage") and one.get("offset") == other.get("offset")
    return (
        same
        and len(one.get("shape") or ()) == len(other.get("shape") or ())
        and one.get("stride") == other.get("stride")
    )


def _upward(story: Story, label: str, step: int) -> Iterator[str]:
    """The tensor and those that it was computed from with each element still at its position, up to the call that made
    the first one.
    """
    for _ in range(UPWARD):
        yield label
        made = made_by(story, label, step)
        width = (story.shape(label, step) or (0,))[-1:]
        if made is None or made.name not in IN_PLACE or not made.operands or made.operands[0].label in (None, label):
            return
        if (story.shape(made.operands[0].label, made.step) or (0,))[-1:] != width and made.name != "__getitem__":
            return
        label, step = str(made.operands[0].label), made.step


def _use(story: Story, use: Event, ranks: set[str], ordered: RankTakenForPosition) -> str | None:
    """``"mapped"`` if the ranks are looked up in the order of the sort, ``"position"`` if they are
    used for what was not sorted.

    None for every other use.
    """
    given = [o.label for o in use.operands]
    if use.name in LOOKS_UP:
        return _looked_up(story, use, ranks, ordered)
    if use.name in COMPARES:
        other = next((each for each in given[:2] if each is not None and each not in ranks), None)
        is_position = other is not None and _is_position(story, other, use.step, ordered.before)
    elif use.name in ("cross_entropy", "nll_loss"):
        scores = given[0] if given[1] in ranks else None
        is_position = scores is not None and not ordered.before.isdisjoint(_upward(story, scores, use.step))
    elif use.name == "embedding":
        is_position = (
            ordered.learned and given[0] in ranks and (story.shape(given[1], use.step) or (0,))[0] == ordered.count
        )
    else:
        is_position = (
            use.name == "one_hot" and ordered.learned and whole(argument(use, "num_classes", 1)) == ordered.count
        )
    return "position" if is_position else None


def _looked_up(story: Story, use: Event, ranks: set[str], ordered: RankTakenForPosition) -> str | None:
    """What :func:`_use` returns for a call that takes entries of a table by positions: "mapped" if the table is the
    sort's order or follows it, "position" if it is the unsorted one.

    None for other tables, and if the ranks are not the positions.
    """
    place, index = LOOKS_UP[use.name]
    given = [o.label for o in use.operands]
    positions = (
        given[1:] if index is None else [o.label for o in use.operands if o.name == "index"] or given[index : index + 1]
    )
    table = given[place]
    if table is None or ranks.isdisjoint(str(each) for each in positions):
        return None
    tables = set(_upward(story, table, use.step))
    if ordered.order in tables or any(_is_by_order(story, each, use.step, ordered.order) for each in tables):
        return "mapped"
    return "position" if tables & ordered.before and _sorted(story, table, use.step) is None else None


def _is_by_order(story: Story, label: str, step: int, order: str) -> bool:
    """Whether a table was itself put into the order of the sort."""
    made = made_by(story, label, step)
    return made is not None and made.name in LOOKS_UP and order in {o.label for o in made.operands[1:]}


def _is_position(story: Story, label: str, step: int, before: set[str]) -> bool:
    """Whether a tensor holds positions that a call found in the numbers ``before`` the sort.

    Only index and conversion calls may lie between.
    """
    for _ in range(UPWARD):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.operands[0].label in (None, label):
            return False
        if made.name in FINDS and label == made.results[-1]:
            source = str(made.operands[0].label)
            return bool(before & set(_upward(story, source, made.step))) and _sorted(story, source, made.step) is None
        if made.name not in CARRIES:
            return False
        label, step = str(made.operands[0].label), made.step
    return False


def _learned(story: Story, before: set[str]) -> bool:
    """Whether one of the tensors ``before`` the sort requires grad or is the result of a layer, or of any
    other call that was given a parameter (a table of scores that is looked up).
    """
    for label in before:
        made = made_by(story, label, len(story.events))
        given = [story.tensor(o.label) or {} for o in made.operands if o.label is not None] if made else []
        if story.tensors.get(label, {}).get("requires_grad") or (made is not None and made.name in LEARNED):
            return True
        if any(each.get("kind") == "parameter" for each in given):
            return True
    return False


def _used_otherwise(story: Story, order: str, step: int) -> bool:
    """Whether the positions before the sort are used after ``step``, or became Python numbers."""
    return any(use.step > step or use.name in TO_PYTHON for use in story.uses(order))


def _finding(story: Story, ranked: Ranked) -> Finding:
    event, sort, used = ranked.found, ranked.sort, ranked.used
    here, there, by = (at_line(story, story.span(each.step)) for each in (event, sort, used))
    code = snippet(story, story.span(event.step))
    drawn = event.name == "multinomial"
    does = T(en="draws", zh="抽取") if drawn else T(en="finds", zh="找到")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} {does.en} a rank among numbers that {there.en} has sorted, and {by.en} takes it "
            f"for a position among the {ranked.count} unsorted ones.",
            zh=f"{here.zh}在{there.zh}排过序的数中{does.zh}一个名次，而{by.zh}把它当作排序之前 "
            f"{ranked.count} 个数中的位置。",
        ),
        T(
            en=f"`{code}` counts in the order of the sort: 0 is the first of the sorted numbers, whichever it was "
            "before. The second result of the sort says at that rank which one it was: `order.gather(-1, "
            "rank)`. Without it, rank 0 is always taken for entry 0.",
            zh=f"`{code}` 按排序后的次序计数：0 是排序后的第一个数，不管它原来在哪里。它原来的位置在排序的第二个结果中"
            "该名次处：`order.gather(-1, rank)`。不这样做，名次 0 总会被当作第 0 项。",
        ),
        related=[
            story.related("made", sort.step, T(en="put in order here", zh="在这里排序")),
            story.related(
                "used", used.step, T(en="used as a position before the sort here", zh="在这里当作排序之前的位置使用")
            ),
        ],
        fixes=_fixes(story, ranked),
        facts=[Fact("entries", ranked.count, story.by(event.step))],
    )


def _fixes(story: Story, ranked: Ranked) -> tuple[Fix, ...]:
    """At most one fix: it looks the rank up in the order of the sort, ``order.gather(-1, …)``,
    or ``order[…]`` for a vector.

    Empty unless the sort is unpacked into two names in the same function and the positions
    are written as an expression.
    """
    program, event = story.program, ranked.found
    node, sorting = (
        program.at(story.span(each.step)) if program.tree is not None else None for each in (event, ranked.sort)
    )
    outer = program.parents.get(node) if node is not None else None
    is_second = isinstance(outer, ast.Subscript) and outer.value is node and program.segment(outer.slice) == "1"
    if is_second or (isinstance(outer, ast.Attribute) and outer.attr == "indices"):
        node = outer
    several = len(event.results) > 1
    assign = program.parents.get(sorting) if sorting is not None else None
    if not isinstance(node, ast.expr) or (several and node is not outer) or not isinstance(assign, ast.Assign):
        return ()
    pair = assign.targets[0]
    if not isinstance(pair, ast.Tuple) or len(pair.elts) != 2 or program.function(node) is not program.function(assign):
        return ()
    name = program.segment(pair.elts[1])
    used = {each.id for each in program.nodes if isinstance(each, ast.Name)}
    renamed = [(pair.elts[1], "order")] if name == "_" else []
    if renamed and "order" in used:
        return ()
    name = "order" if renamed else name
    table = story.shape(ranked.sort.results[1], ranked.sort.step) or ()
    drawn = isinstance(node, ast.Call) and call_name(node) == "sample"
    drawn = drawn or len(story.shape(event.results[-1], event.step) or ()) < len(table)
    text = program.segment(node)
    if len(table) == 1:
        new = f"{name}[{text}]"
    elif drawn:
        new = f"{name}.gather(-1, {text}.unsqueeze(-1)).squeeze(-1)"
    else:
        new = f"{name}.gather(-1, {text})"
    title = T(en=f"Look up the position before the sort: `{new}`", zh=f"查出排序之前的位置：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new), *renamed), meaning="later")])


RULE = Rule(
    code="PL770",
    name="rank-taken-for-position",
    severity="warning",
    title=T(en="A rank in sorted numbers is taken for a position before the sort", zh="把排序后的名次当作排序前的位置"),
    what=T(
        en="A program sorts the probabilities of all tokens, cuts off the small ones, and draws among the rest. What "
        "it draws is the place in the sorted row, and it takes that for the number of the token. Look it up in the "
        "second result of the sort: `order.gather(-1, drawn)`.",
        zh="程序把所有词元的概率排序，去掉小的，再从其余的里抽取。抽到的是排序后那一行里的位置，程序却把它当作词元的编"
        "号。请在排序的第二个结果里查出来：`order.gather(-1, drawn)`。",
    ),
    why=T(
        en="`values, order = x.sort()` returns the numbers in another order, and for each the position where it was. "
        "`multinomial`, `argmax` and `Categorical.sample` return positions in the row they are given; for `values` "
        "that is a rank. A rank is a whole number in the same range as a position, so nothing is raised, and the "
        "program takes entry 0 whenever the largest one was meant.",
        zh="`values, order = x.sort()` 返回按另一个次序排列的数，以及每个数原来的位置。`multinomial`、`argmax` 和 "
        "`Categorical.sample` 返回的是所给那一行中的位置；对 `values` 来说就是名次。名次与位置是同一范围内的整数，所以"
        "不会报错，而每当应取最大的一项时，程序取的却是第 0 项。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.tensor([[0.1, 0.2, 4.0, 0.3, 3.0]])
values, order = scores.softmax(-1).sort(descending=True)  # made
values = values.masked_fill(values.cumsum(-1) - values > 0.9, 0.0)
token = torch.multinomial(values, 1)  # PL770
print(token, scores.gather(-1, token))  # used
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.tensor([[0.1, 0.2, 4.0, 0.3, 3.0]])
values, order = scores.softmax(-1).sort(descending=True)
values = values.masked_fill(values.cumsum(-1) - values > 0.9, 0.0)
token = order.gather(-1, torch.multinomial(values, 1))
print(token, scores.gather(-1, token))
""",
    find=find,
    traps=(
        Trap(
            "torch.multinomial(values, 1)",
            "torch.multinomial(values / values.sum(-1, keepdim=True), 1)",
            T(en="The shares add up to 1, and the draw is still a rank.", zh="比例加起来为 1 了，但抽到的仍是名次。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.sort.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",
    ),
)
