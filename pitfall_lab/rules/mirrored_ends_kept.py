"""PL984: boxes are mirrored, and the low ends, which have become the high ones, stay in the columns of the low ones."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = spellings("sub") | operations_that("difference_loss")
KEPT = {"clone", "to", "float", "double", "contiguous", "detach", "where", "div", "mul", "view", "reshape", "squeeze",
        "unsqueeze", "index_select", "expand", "__getitem__", "stack", "cat"}  # fmt: skip
"""Calls that columns are followed through: they stay where they are."""
MOVED = {"sort", "flip", "roll", "amin", "amax", "aminmax", "msort", "fliplr"}
"""Calls that may put the ends back in order."""
CHOICES, REARRANGED = (
    {"minimum", "maximum", "min", "max", "where"},
    {"stack", "cat", "__setitem__", "sort", "amin", "amax", "aminmax"},
)
"""Calls that order two ends, and calls that put columns to other places."""
PAIRS = ((0, 2), (1, 3))
COLUMNS, PAIR, FEWEST, LABELS = 4, 2, 2, 40
ENOUGH = 8
"""The number of pairs of ends that have to be known and different: as many pairs of free points are in
one order once in 256 times.
"""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """``event`` is the call (``Event``) that subtracted two columns of boxes, those of the low and the high ends, from
    a constant; ``written`` is the call that put both back in their old columns of the tensor labelled ``result``.

    ``columns`` are the numbers of the two columns. ``source`` is the call that took them out of the boxes; None where
    each column was a tensor of its own before. ``pairs`` are the known numbers in them before the subtraction, each
    minus the constant, the low one first, and ``others`` the known numbers in the two columns that were not mirrored.
    ``use`` is the training's loss that is given the boxes; None if there is none.
    """

    event: Event
    source: Event | None
    written: Event
    result: str
    columns: tuple[int, int]
    pairs: tuple[tuple[float, float], ...]
    others: tuple[tuple[float, float], ...]
    use: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that mirrors both ends of boxes without exchanging them, if a loss is given the
    boxes afterwards.

    Only if in all known boxes the low ends are below the high ones, and enough boxes are known (``FEWEST``,
    ``ENOUGH``).
    """
    places: dict[Span | None, list[Mirrored]] = defaultdict(list)
    for event in story.calls("__setitem__", "stack", "cat"):
        found = _written(story, event) if event.name == "__setitem__" else _joined(story, event)
        if found is not None and event.error is None:
            places[story.span(event.step)].append(found)
    for rounds in places.values():
        ordered = all(a < b for each in rounds for a, b in (*each.pairs, *each.others))
        known = {pair for each in rounds for pair in each.pairs}, {pair for each in rounds for pair in each.others}
        used = next((each for each in rounds if each.use is not None), None)
        if used is not None and ordered and min(map(len, known)) >= FEWEST and sum(map(len, known)) >= ENOUGH:
            yield _finding(story, used)


def _written(story: Story, event: Event) -> Mirrored | None:
    """The data of a write of two mirrored columns, into the columns that they were taken
    from; None for other writes.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    columns = _columns(event)
    shape = story.shape(labels[0], event.step) if len(labels) == PAIR else None
    mirrored = made_by(story, labels[1], event.step) if shape is not None and shape[-1:] == (COLUMNS,) else None
    given = _reflected(story, mirrored) if mirrored is not None else None
    source = made_by(story, given, mirrored.step) if mirrored is not None and given is not None else None
    if mirrored is None or given is None or source is None or columns not in PAIRS:
        return None
    if (
        source.name != "__getitem__"
        or _columns(source) != columns
        or len([o for o in source.operands if o.label is not None]) != 1
    ):
        return None
    table = source.operands[0].label
    if story.shape(table, source.step) != shape:
        return None
    low, high = columns
    after = _rows(Elements(story, labels[1], event.step), 0, 1)
    pairs = [(-a, -b) for a, b in after]
    others = _rows(Elements(story, table, source.step), 1 - low, COLUMNS - 1 - low)
    use = _used(story, str(labels[0]), event.step, columns)
    return Mirrored(mirrored, source, event, str(labels[0]), (low, high), tuple(pairs), tuple(others), use)


def _joined(story: Story, event: Event) -> Mirrored | None:
    """The data of a join of four columns of which two were mirrored, each in its old column; None for other joins."""
    labels = [o.label for o in event.operands if o.label is not None]
    shape = story.shape(event.results[0], event.step) if event.results and len(labels) == COLUMNS else None
    if not shape or shape[-1] != COLUMNS or whole(argument(event, "dim", COLUMNS)) not in (-1, len(shape) - 1):
        return None
    ends = [Elements(story, label, event.step) for label in labels]
    for low, high in PAIRS:
        makers = [made_by(story, labels[each], event.step) for each in (low, high)]
        sources = [_reflected(story, each) if each is not None else None for each in makers]
        rest = [made_by(story, labels[each], event.step) for each in (1 - low, COLUMNS - 1 - low)]
        if None in sources or any(each is not None and _reflected(story, each) is not None for each in rest):
            continue
        after = _pairs(ends[low], ends[high])
        others = _pairs(ends[1 - low], ends[COLUMNS - 1 - low])
        use = _used(story, event.results[0], event.step, (low, high))
        pairs = tuple((-a, -b) for a, b in after)
        return Mirrored(makers[0] or event, None, event, event.results[0], (low, high), pairs, tuple(others), use)
    return None


def _columns(event: Event) -> tuple[int, ...]:
    """The two columns that the index of a call names: ``[0, 2]`` or ``::2``; empty if it names no two."""
    text = next((o.text for o in event.operands if o.label is None), "").replace(" ", "")
    if found := re.search(r",\[(\d),(\d)\]\)$", text):
        return int(found[1]), int(found[2])
    if found := re.search(r",([01]?):4?:2\)$", text):
        start = int(found[1] or 0)
        return start, start + 2
    return ()


def _reflected(story: Story, event: Event) -> str | None:
    """The tensor that a call subtracted from one number; None for other calls."""
    if event.error is not None or len(event.operands) < PAIR:
        return None
    one, other = event.operands[:PAIR]
    number, columns = (other, one) if event.name in ("__rsub__", "rsub") else (one, other)
    if event.name not in spellings("sub", exchanged=True) or columns.label is None:
        return None
    shape = story.shape(number.label, event.step) if number.label is not None else ()
    return columns.label if shape is not None and prod(shape) == 1 else None


def _rows(table: Elements, low: int, high: int) -> list[tuple[float, float]]:
    """The known pairs of numbers in two columns of a table."""
    known = dict(table.known())
    return [
        (value, known[other])
        for index, value in known.items()
        if index[-1] == low and (other := (*index[:-1], high)) in known
    ]


def _pairs(one: Elements, other: Elements) -> list[tuple[float, float]]:
    theirs = dict(other.known())
    return [(value, theirs[index]) for index, value in one.known() if index in theirs]


def _used(story: Story, label: str, since: int, columns: tuple[int, ...]) -> Event | None:
    """The first trained loss that is given the boxes ``label`` as they are after the step ``since``, or boxes copied
    from them; None if there is none, or if ends may be exchanged by another use.
    """
    pending, seen, found = [(label, since)], {label}, None
    while pending and len(seen) < LABELS:
        here, after = pending.pop(0)
        for use in (each for each in story.uses(here) if each.step > after and each.error is None):
            given = [o.label for o in use.operands if o.label is not None]
            if use.name in MOVED or (
                use.name == "__setitem__" and given[0] == here and _columns(use) in (columns, columns[::-1])
            ):
                return None
            if use.name in LOSSES and len(given) == PAIR and _is_trained(story, use):
                found = found or use
                continue
            if use.name == "__getitem__" and _is_of_columns(story, use, here):
                if _columns(use) or any(_exchanges(story, each) for each in story.uses(use.results[0])):
                    return None
                continue
            fresh = [each for each in _kept(story, use, here) if each not in seen]
            seen.update(fresh)
            pending += [(each, use.step) for each in fresh]
    return found


def _kept(story: Story, use: Event, label: str) -> list[str]:
    """The labels of the tensors in which a call puts the boxes of ``label``, each number in its old column; empty if
    there are none.
    """
    given = [o.label for o in use.operands if o.label is not None]
    if use.name == "__setitem__":
        return given[:1] if given[-1] == label and given[0] != label and not _columns(use) else []
    results = use.results if use.name in KEPT else ()
    return [each for each in results if (story.shape(each, use.step) or ())[-1:] == (COLUMNS,)]


def _is_trained(story: Story, loss: Event) -> bool:
    graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn") if loss.results else None
    return (story.record("nodes", graph) or {}).get("ran") is not None


def _is_of_columns(story: Story, event: Event, label: str) -> bool:
    """Whether a call selected only some columns of a table of boxes, or used an index of several axes."""
    before, after = story.shape(label, event.step) or (), story.shape(event.results[0], event.step) or ()
    text = next((o.text for o in event.operands if o.label is None), "")
    return event.name == "__getitem__" and (after[-1:] != before[-1:] or "," in text)


def _exchanges(story: Story, event: Event) -> bool:
    """Whether a call joins columns to a new tensor, or chooses between columns of one storage, as for the lower of two
    ends.
    """
    storages = {(story.tensor(o.label, event.step) or {}).get("storage") for o in event.operands if o.label is not None}
    return event.name in REARRANGED or (event.name in CHOICES and len(storages) == 1)


def _finding(story: Story, found: Mirrored) -> Finding:
    event, use = found.written, found.use or found.written
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(use.step))
    low, high = found.columns
    boxes = shown(story, event, found.result)
    a, b = found.pairs[0]
    ends = f"{-a:.3g} > {-b:.3g}"
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} mirrors columns {low} and {high} of {boxes.en} and leaves each at its place: the "
            "low end of every box is now in the column of the high end.",
            zh=f"{here.zh}把 {boxes.zh} 的第 {low} 列和第 {high} 列做了镜像，却各自留在原来的位置：每个框的低"
            "端现在处于高端的列中。",
        ),
        T(
            en=f"In all boxes whose numbers are known, column {low} was the smaller one before and is the larger one "
            f"after it ({ends} in the first that is known). {capital(there.en)} uses them like this, so the mirrored "
            "boxes have negative widths, and a model learns two kinds of boxes. Taken from a constant, the low end "
            "becomes the high one: exchange the two columns.",
            zh=f"在所有已知数值的框中，第 {low} 列之前较小，之后较大（第一个已知的框：{ends}）。{there.zh}就这样使用它"
            "们，于是镜像后的框宽度为负，模型学到两种框。用常数去减之后，低端变成高端：请交换这两列。",
        ),
        related=[story.related("used", use.step, T(en="the mirrored boxes are used here", zh="镜像后的框在这里使用"))],
        fixes=_fixes(story, found),
        facts=[Fact("low", low, story.by(event.step)), Fact("high", high, story.by(event.step))],
    )


def _fixes(story: Story, found: Mirrored) -> tuple[Fix, ...]:
    """The fix that takes the columns in exchanged order, or exchanges the two expressions in a list of columns."""
    program, (low, high) = story.program, found.columns
    title = T(en="Exchange the two ends", zh="交换两端")
    edits = None
    if found.source is not None:
        node = program.at(story.span(found.source.step))
        last = node.slice.elts[-1] if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) else None
        edits = program.replace((last, f"[{high}, {low}]")) if last is not None else None
    else:
        call = program.at(story.span(found.written.step))
        parts = call.args[0] if isinstance(call, ast.Call) and called(call) in ("stack", "cat") and call.args else None
        if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == COLUMNS:
            one, other = parts.elts[low], parts.elts[high]
            edits = program.replace((one, program.segment(other)), (other, program.segment(one)))
    return unique(program.text, [Fix(title, edits, meaning="later")] if edits is not None else [])


RULE = Rule(
    code="PL984",
    name="mirrored-ends-kept",
    severity="warning",
    title=T(en="Mirrored boxes keep their low ends in the low columns", zh="镜像后的框没有交换低端和高端"),
    what=T(
        en="A program mirrors pictures and the boxes in them: it takes the left and the right end of each box from "
        "the width, and leaves both in their columns. But the mirrored left end is the right one, so the boxes have "
        "negative widths. Exchange the two columns.",
        zh="程序把图片和其中的框做镜像：用宽度分别减去框的左端和右端，两者却留在各自的列中。可是镜像后的左端就是右端，"
        "所以框的宽度成了负数。请交换这两列。",
    ),
    why=T(
        en="From x1 < x2 follows width - x1 > width - x2. The pair (x1, x2) becomes (width - x2, width - x1). A "
        "tensor does not know that its columns are ends, so nothing is raised; a loss on the four numbers is finite "
        "and falls. For half of the pictures the model is taught the ends the wrong way round, and its answers lie "
        "between the two: the boxes shrink to lines.",
        zh="由 x1 < x2 可知 width - x1 > width - x2。(x1, x2) 变成 (width - x2, width - x1)。张量不知道自己的"
        "列是两端，所以不会报错；四个数上的损失是有限的，也会下降。一半图片教给模型的是颠倒的两端，它的回答就"
        "落在两者之间：框缩成了线。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, low = torch.randn(6, 4), 4 * torch.rand(6, 2)
boxes = torch.cat([low, low + 1 + torch.rand(6, 2)], dim=1)
boxes[:, [0, 2]] = 8 - boxes[:, [0, 2]]  # PL984
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.smooth_l1_loss(net(x), boxes)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print((boxes[:, 2:] - boxes[:, :2]).prod(dim=1))
""",
    good="""import torch

torch.manual_seed(0)
x, low = torch.randn(6, 4), 4 * torch.rand(6, 2)
boxes = torch.cat([low, low + 1 + torch.rand(6, 2)], dim=1)
boxes[:, [0, 2]] = 8 - boxes[:, [2, 0]]
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.smooth_l1_loss(net(x), boxes)
    opt.zero_grad()
    loss.backward()
    opt.step()
print((boxes[:, 2:] - boxes[:, :2]).prod(dim=1))
""",
    find=find,
    traps=(
        Trap(
            "8 - boxes[:, [0, 2]]",
            "(8 - boxes[:, [0, 2]]).clamp(0, 8)",
            T(
                en="Numbers within the picture; their order is still the wrong one.",
                zh="数值在图片范围内，但次序仍然是错的。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.fliplr.html",),
)
