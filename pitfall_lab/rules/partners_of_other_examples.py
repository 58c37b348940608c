"""PL456: a contrastive loss pairs each row with a row of another example: the two views are joined in one
order and paired in another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.ramps import POINTWISE_NAMES, SAME_AXES
from pitfall_lab.rules.signals.sequences import CLASSIFIERS, KEEPING
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

VIEWS = 2
"""The number of views of each example."""
FEWEST = 6
"""The smallest number of rows for which the two orders differ in enough places."""
FURTHER = 60
TURNED = spellings("transpose") | {"T", "mT", "permute", "t"}
SCORES = (
    POINTWISE_NAMES | SAME_AXES | spellings("masked_fill", in_place=True)
    | {"cosh", "exp", "fill_diagonal_", "index_put_", "log", "log_softmax", "scatter", "softmax", "where"}
)  # fmt: skip
"""Calls between the products of all rows and the loss that keep the table of pairs."""
MIXING = (
    spellings("cat", "transpose")
    | {"T", "__getitem__", "chunk", "flatten", "mT", "movedim", "narrow", "permute", "reshape", "select", "split",
       "stack", "t", "unbind", "unflatten", "view"}
)  # fmt: skip
"""Calls that may move rows, and are looked at one by one."""
SAME_ROWS = (
    KEEPING
    | spellings("matmul", "mm")
    | {"avg_pool2d", "batch_norm", "clamp_min", "conv2d", "linalg_vector_norm", "max_pool2d", "normalize"}
) - MIXING
"""Calls of which each row of the result is made from the same row of the first operand."""
COMPARING = operations_that("difference_loss") | {"cosine_similarity", "pairwise_distance"}
REPEATING = {"repeat", "repeat_interleave"}
"""Calls that repeat rows; what a reshape folds of them otherwise is found by PL436."""
RESHAPED = {"view", "reshape", "flatten"}
"""Calls that may split or join the axis of the rows."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How the rows of a table of two views of each of ``n`` examples are ordered; ``event`` is the call (``Event``:
    ``cat``, ``repeat``, a reshape) that ordered them.

    With ``beside`` row ``i`` belongs to example ``i // 2``, else to example ``i % n``. ``views`` are the labels of the
    two tensors that ``cat`` or ``stack`` joined; empty where one tensor was repeated or reshaped instead.
    """

    event: Event
    beside: bool
    views: tuple[str, ...] = ()


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that orders two views of a batch in another way (one after the other, or
    alternating row by row) than a contrastive loss pairs its rows.

    Where ``cat`` joined the two views, only if both are known to come from the same rows.
    """
    reported = set()
    paired = ((event, beside, _layout(story, scores, event.step)) for event, scores, beside in _pairings(story))
    for event, beside, layout in (*paired, *_halves(story)):
        place = story.span(layout.event.step) if layout is not None else None
        if (
            layout is not None
            and layout.beside is not beside
            and place not in reported
            and _is_one_batch(story, layout)
        ):
            reported.add(place)
            yield _finding(story, event, layout)


def _pairings(story: Story) -> Iterator[tuple[Event, str, bool]]:
    """Yield the calls that pair each row of a table of pairs with another row: the call, the label of the table, and
    whether the partner is the neighbouring row.

    If the partner is no neighbour, it is the row half of all rows away; other pairings are left out.
    """
    for loss in story.calls(*CLASSIFIERS):
        rows = _square(story, loss.operands[0].label, loss.step) if len(loss.operands) > 1 and loss.error is None else 0
        if rows:
            known = [
                (index[0], int(value))
                for index, value in Elements(story, loss.operands[1].label, loss.step).known()
                if len(index) == 1
            ]
            beside = _kind(known, rows)
            if beside is not None:
                yield loss, str(loss.operands[0].label), beside
    for part in story.calls("diag", "diagonal"):
        rows = _square(story, part.operands[0].label, part.step) if part.operands and part.error is None else 0
        offset = whole(argument(part, "offset", 1) or argument(part, "diagonal", 1))
        if rows and offset is not None and abs(offset) == rows // VIEWS:
            yield part, str(part.operands[0].label), False
    for same in story.calls("eq", "__eq__"):
        rows = _square(story, same.results[0], same.step) if same.results and same.error is None else 0
        beside = _of_labels(story, same, rows) if rows else None
        if beside is not None:
            yield from ((use, label, beside) for use, label in _weighed(story, same, rows))


def _square(story: Story, label: str | None, step: int) -> int:
    """The number of rows of a table of all pairs; 0 if the tensor is none, or too small."""
    shape = story.shape(label, step) or ()
    return shape[0] if len(shape) == VIEWS and shape[0] == shape[1] >= FEWEST and shape[0] % VIEWS == 0 else 0


def _kind(known: list[tuple[int, int]], rows: int) -> bool | None:
    """True if the partner of each row ``i`` is its neighbour ``i ^ 1``, False if it is half of all rows away; None if
    it is neither, or if fewer than ``FEWEST`` partners are known.
    """
    if len(known) < FEWEST:
        return None
    if all(partner == row ^ 1 for row, partner in known):
        return True
    return False if all(partner == (row + rows // VIEWS) % rows for row, partner in known) else None


def _of_labels(story: Story, same: Event, rows: int) -> bool | None:
    """Whether numbers of examples that are compared with themselves are equal for neighbouring rows (True) or for rows
    half of all rows away (False).

    None if neither, if they are not compared with themselves, or if fewer than ``FEWEST`` of the ``rows`` are known.
    """
    storages = {(story.tensor(o.label, same.step) or {}).get("storage") for o in same.operands}
    if len(storages) != 1 or None in storages:
        return None
    held = {place: value for place, value in story.held(same.operands[0].label, same.step).items() if place < rows}
    found = {_kind_of_value(held, place, rows) for place in held} - {None}
    return found.pop() if len(found) == 1 and len(held) >= FEWEST else None


def _kind_of_value(held: dict[int, int], place: int, rows: int) -> bool | None:
    beside, away = (
        held.get(other) == held[place] if other in held else None
        for other in (place ^ 1, (place + rows // VIEWS) % rows)
    )
    if beside is None or away is None:  # the values of large tensors are known in part
        return None
    return True if beside and not away else False if away and not beside else None


def _weighed(story: Story, same: Event, rows: int) -> Iterator[tuple[Event, str]]:
    """The calls that combine a table of equal labels with a table of scores, each with the label of the scores."""
    pending, seen = list(same.results), set[str]()
    while pending and len(seen) < FURTHER:
        label = pending.pop(0)
        seen.add(label)
        for use in story.uses(label):
            others = [
                o.label
                for o in use.operands
                if o.label is not None and o.label not in seen and _square(story, o.label, use.step) == rows
            ]
            yield from ((use, other) for other in others if _product(story, other, use.step) is not None)
            pending += [each for each in use.results if each not in seen and _square(story, each, use.step) == rows]


def _product(story: Story, label: str, step: int) -> tuple[str, int] | None:
    """The rows that were multiplied with themselves to make a table of scores, with the step; None
    if other rows, or none, were.

    Scaling and masking (``SCORES``) may follow the product.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given:
            return None
        if event.name in spellings("matmul", "mm") | {"cosine_similarity", "linear"} and len(given) == VIEWS:
            one, other = (_upright(story, each, event.step) for each in given)
            return (one, event.step) if one == other else None
        if event.name not in SCORES:
            return None
        label, step = given[0] if event.name != "where" else given[1] if len(given) > 1 else given[0], event.step
    return None


def _upright(story: Story, label: str, step: int) -> str:
    """The tensor before a transposition, or before axes of length 1 were inserted;
    ``label`` itself if neither was done.
    """
    event = made_by(story, label, step)
    if event is None or event.operands[0].label is None or event.name not in TURNED | {"unsqueeze", "__getitem__"}:
        return label
    return event.operands[0].label


def _layout(story: Story, scores: str, step: int) -> RowLayout | None:
    """The order of the rows (two views of each example) of which a table of products has all
    pairs; None if it is not known.

    Known after ``cat`` of two tensors, after a repetition to double length, and after a reshape of two axes into one.
    """
    product = _product(story, scores, step)
    return _order(story, *product) if product is not None else None


def _order(story: Story, label: str, step: int, *, again: bool = True) -> RowLayout | None:
    """The order of the rows of a tensor, as :func:`_layout` returns it; with ``again`` False, a join of two parts of
    one tensor is not followed back to it.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given:
            return None
        shape, before = (story.shape(each, event.step) or (0,) for each in (label, given[0]))
        if event.name == "cat":
            return _joined(story, event, given, again=again)
        if event.name in REPEATING and before[0] * VIEWS == shape[0] and shape[1:] == before[1:]:
            return RowLayout(event, beside=event.name == "repeat_interleave")
        if event.name in RESHAPED and shape[0] != before[0]:
            return _folded(story, event, given[0], shape, before)
        if event.name not in SAME_ROWS | RESHAPED or shape[0] != before[0]:
            return None
        label, step = given[0], event.step
    return None


def _joined(story: Story, event: Event, given: list[str], *, again: bool) -> RowLayout | None:
    """The order of the rows after a ``cat``.

    It joins two views one after the other, or the halves, or the even and the odd rows, of one tensor whose order is
    known, or columns to rows whose order is known. None if the order is not known.
    """
    if whole(argument(event, "dim", len(event.operands) - 1)) or 0:
        found = [order for each in given if (order := _order(story, each, event.step, again=again)) is not None]
        return found[0] if len({order.event.step for order in found}) == 1 else None
    if len(given) != VIEWS:
        return None
    source = _divided(story, given[0], given[1], event.step) if again else None
    order = _order(story, source.label, source.step, again=False) if source is not None else None
    if source is None or order is None:
        return RowLayout(event, beside=False, views=tuple(given))
    if source.by_turns:
        return replace(order, beside=False) if order.beside else None
    return order


@dataclass(frozen=True, slots=True)
class RowPart:
    """Half of the rows of the tensor ``label`` at the step ``step``: the first half if ``first``, else the second.

    With ``by_turns``: the even rows if ``first``, else the odd ones. ``folded`` is True where a reshape had made an
    axis of length 2 of the two parts.
    """

    label: str
    step: int
    first: bool
    by_turns: bool
    folded: bool = False


def _divided(story: Story, one: str, other: str, step: int) -> RowPart | None:
    """The first part, if two tensors are made row by row from the two parts of one tensor, in this order; else None."""
    first, second = _part(story, one, step), _part(story, other, step)
    if first is None or second is None or (first.label, first.by_turns) != (second.label, second.by_turns):
        return None
    return first if first.first and not second.first else None


def _part(story: Story, label: str, step: int) -> RowPart | None:
    """The :class:`RowPart` that a tensor is of another one, before calls that compute each row from the same row; None
    if it is none.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        source = event.operands[0].label if event is not None and event.operands else None
        if event is None or source is None:
            return None
        before, after = (story.shape(each, event.step) or (0,) for each in (source, label))
        if event.name in ("chunk", "split", "tensor_split", "unbind", "__getitem__", "select"):
            return _taken(story, event, event.results.index(label), source, before)
        if event.name not in SAME_ROWS or before[0] != after[0]:
            return None
        label, step = source, event.step
    return None


def _taken(story: Story, event: Event, place: int, source: str, before: tuple[int, ...]) -> RowPart | None:
    """The :class:`RowPart` that a call took: by ``chunk``, by a slice, or out of a tensor with an axis of length 2;
    None if it took no half of the rows.
    """
    texts = [o.text for o in event.operands[1:]]
    text, half = ", ".join(texts).strip("()"), before[0] // VIEWS
    if event.name in ("chunk", "split", "tensor_split"):
        axis = whole(argument(event, "dim", 2)) or 0
        return (
            RowPart(source, event.step, place == 0, by_turns=False)
            if len(event.results) == VIEWS and not axis
            else None
        )
    first, second = (f":{half}", f"0:{half}", f":-{half}"), (f"{half}:", f"-{half}:")
    slices = {**dict.fromkeys(first, (True, False)), **dict.fromkeys(second, (False, False)),
              "::2": (True, True), "0::2": (True, True), "1::2": (False, True)}  # fmt: skip
    if event.name == "__getitem__" and text in slices and before[0] % VIEWS == 0:
        return RowPart(source, event.step, *slices[text])
    fold = made_by(story, source, event.step)
    if (
        fold is None
        or fold.name not in {*RESHAPED, "unflatten"}
        or fold.operands[0].label is None
        or len(before) < VIEWS
    ):
        return None
    if (story.shape(fold.operands[0].label, fold.step) or (0,))[0] != before[0] * before[1]:
        return None
    by_turns = text.startswith((":, ", "1, ")) or (event.name == "unbind" and text == "1")
    if before[1 if by_turns else 0] != VIEWS:
        return None
    number = (
        place if event.name == "unbind" else whole(text.split(", ")[-1 if by_turns or event.name == "select" else 0])
    )
    return RowPart(fold.operands[0].label, fold.step, number == 0, by_turns, folded=True) if number in (0, 1) else None


def _halves(story: Story) -> Iterator[tuple[Event, bool, RowLayout]]:
    """Yield the calls that compare the rows of one part of a tensor with those of the other part, whether the two parts
    alternate row by row in it, and the order of its rows.
    """
    for event in story.calls(*COMPARING, "mul", "matmul", "mm", "__matmul__", "__mul__"):
        labels = [o.label for o in event.operands if o.label is not None][:VIEWS]
        if event.error is not None or len(labels) != VIEWS or not event.results or not _is_learned(story, event):
            continue
        if event.name not in COMPARING and not _scores(story, event):
            continue
        is_table = event.name in spellings("matmul", "mm")
        one, other = (_upright(story, each, event.step) if is_table else each for each in labels)
        part = _divided(story, one, other, event.step) or _divided(story, other, one, event.step)
        order = _order(story, part.label, part.step, again=False) if part is not None else None
        if part is not None and order is not None and not (part.folded and order.event.name in REPEATING):
            yield event, part.by_turns, order


def _is_learned(story: Story, event: Event) -> bool:
    return bool((story.tensor(event.results[0], event.step) or {}).get("requires_grad"))


def _scores(story: Story, event: Event) -> bool:
    """Whether a product is one of pairs: summed along its last axis, or a square table that a classification loss is
    given with the index of each row as its target.
    """
    shape = story.shape(event.results[0], event.step) or ()
    label, step = event.results[0], event.step
    if event.name in ("mul", "__mul__"):
        sums = (use for use in story.uses(label) if use.name == "sum")
        return any(whole(argument(use, "dim", 1)) in (-1, len(shape) - 1) for use in sums)
    if not shape or len(shape) != VIEWS or shape[0] != shape[1]:
        return False
    for _ in range(FURTHER):
        uses = [use for use in story.uses(label) if use.step > step and use.results]
        loss = next((use for use in uses if use.name in CLASSIFIERS and len(use.operands) > 1), None)
        if loss is not None:
            known = list(Elements(story, loss.operands[1].label, loss.step).known())
            return len(known) > 1 and all(len(index) == 1 and index[0] == value for index, value in known)
        scaled = next((use for use in uses if use.name in SCORES), None)
        if scaled is None:
            return False
        label, step = scaled.results[0], scaled.step
    return False


def _folded(
    story: Story, event: Event, source: str, shape: tuple[int, ...], before: tuple[int, ...]
) -> RowLayout | None:
    """The order that a reshape made of a table of examples and two views, or of two views and examples.

    None if the two first axes do not become one, or if neither, or both, have length 2.
    """
    if (
        len(before) < VIEWS
        or before[0] * before[1] != shape[0]
        or before[2:] != shape[1:]
        or VIEWS not in before[:2]
        or before[0] == before[1]
    ):
        return None
    stack = made_by(story, source, event.step)
    views = (
        tuple(str(o.label) for o in stack.operands if o.label is not None)
        if stack is not None and stack.name == "stack"
        else ()
    )
    return RowLayout(event, beside=before[1] == VIEWS, views=views)


def _is_one_batch(story: Story, layout: RowLayout) -> bool:
    """Whether the views that were joined come from the same rows, so that they are pairs.

    Of ``cat`` it is tested whether both views were computed from one tensor with these rows; ``stack`` and
    repetitions always join pairs.
    """
    if layout.event.name != "cat":
        return True
    one, other = (set(_rows_before(story, label, layout.event.step)) for label in layout.views)
    return bool(one & other)


def _rows_before(story: Story, label: str, step: int) -> Iterator[str]:
    """Yield the tensor and the tensors that it was computed from, if they have as many rows and are no parameters."""
    count = (story.shape(label, step) or (0,))[0]
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < FURTHER:
        here, until = pending.pop(0)
        yield here
        event = made_by(story, here, until)
        for o in event.operands if event is not None else ():
            record = story.tensor(o.label, until) or {}
            if (
                o.label is not None
                and o.label not in seen
                and record.get("kind") != "parameter"
                and (record.get("shape") or [0])[0] == count
            ):
                seen.add(o.label)
                pending.append((o.label, event.step if event is not None else until))


def _finding(story: Story, event: Event, layout: RowLayout) -> Finding:
    step = layout.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(event.step))
    rows = (story.shape(layout.event.results[0], step) or (0,))[0]
    others = [(row + rows // VIEWS) % rows for row in range(rows)]
    made, paired = (WORDS[kind] for kind in (layout.beside, not layout.beside))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} puts the two views of an example {made.en}, but {there.en} pairs rows that are "
            f"{paired.en}: each row's partner is of another example.",
            zh=f"{here.zh}让同一样本的两个视图{made.zh}，而{there.zh}把{paired.zh}的行配成一对：每一行的搭"
            "档都属于另一个样本。",
        ),
        T(
            en="`torch.cat([a, b])` of n rows each puts the partner of row i at i + n; `torch.stack([a, b], dim=1)` "
            "and a reshape put it beside the row, at 2i and 2i + 1. The shapes are the same. The loss pulls different "
            "examples together, and pushes the two views of one apart.",
            zh="对各 n 行的 a 与 b，`torch.cat([a, b])` 把第 i 行的搭档放在 i + n；`torch.stack([a, b], dim=1)` 再改变"
            "形状则让搭档相邻，在 2i 与 2i + 1。两者形状相同。损失会把不同的样本拉近，而把同一样本的两个视图推开。",
        ),
        related=[story.related("used", event.step, T(en="the rows are paired here", zh="在这里配对"))],
        fixes=_fixes(story, layout),
        facts=[
            Fact("beside", layout.beside, story.by(step)),
            *pairs(
                T(en="row", zh="行"),
                T(en="partner", zh="搭档"),
                [(row, away, row ^ 1) if layout.beside else (row, row ^ 1, away) for row, away in enumerate(others)],
            ),
        ],
    )


WORDS = {True: T(en="next to each other", zh="相邻"), False: T(en="half of all rows apart", zh="相距一半的行数")}


def _fixes(story: Story, layout: RowLayout) -> tuple[Fix, ...]:
    """Fixes that join the views in the other order; empty where the line does not show how."""
    program, torch = story.program, torch_name(story.program) or "torch"
    node = program.at(story.span(layout.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call):
        return ()
    inner = [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and call_name(each) in ("cat", "stack", "repeat", "repeat_interleave")
    ]
    texts = []
    if inner and inner[0].args and call_name(inner[0]) in ("cat", "stack"):
        parts = program.segment(inner[0].args[0])
        texts.append(f"{torch}.cat({parts})" if layout.beside else f"{torch}.stack({parts}, dim=1).flatten(0, 1)")
    elif isinstance(node.func, ast.Attribute):
        owner, rank = (
            in_parentheses(program, node.func.value),
            len(story.shape(layout.event.results[0], layout.event.step) or ()),
        )
        if call_name(node) == "repeat_interleave":
            texts.append(f"{owner}.repeat({', '.join(['2', *['1'] * (rank - 1)])})")
        elif call_name(node) == "repeat":
            texts.append(f"{owner}.repeat_interleave(2, dim=0)")
        else:
            texts.append(f"{owner}.transpose(0, 1).flatten(0, 1)")
    title = (
        T(en=f"Join the views as they are paired: `{text}`", zh=f"按配对的次序连接视图：`{text}`") for text in texts
    )
    return unique(
        program.text,
        [Fix(said, program.replace((node, text)), meaning="shape") for said, text in zip(title, texts, strict=True)],
    )


RULE = Rule(
    code="PL456",
    name="partners-of-other-examples",
    severity="warning",
    title=T(
        en="Two views of each example are joined in one order and paired in another",
        zh="每个样本的两个视图按一种次序连接，却按另一种次序配对",
    ),
    what=T(
        en="A program makes two versions of each example of a batch, and a loss that brings the versions of one "
        "example together. The versions are put into one table in one order, and the loss looks for the partner in "
        "another: it brings different examples together. Join the two versions in the order in which they are paired.",
        zh="程序为一批中的每个样本做出两个版本，并用损失把同一样本的两个版本拉近。两个版本按一种次序放进一张表，损失却"
        "按另一种次序寻找搭档：拉近的是不同的样本。请按配对的次序连接两个版本。",
    ),
    why=T(
        en="A loss such as NT-Xent of SimCLR compares all rows with all others and needs the number of the right one "
        "for each row. With the versions behind each other (`torch.cat`) that is `i + n` or `i - n`; with the "
        "versions side by side (`stack` along a new axis 1, or `repeat_interleave`) it is the neighbour, `i ^ 1`. "
        "Both are common, nothing in the shapes tells them apart, and the loss still falls a little, since any rows "
        "can be learned by heart.",
        zh="像 SimCLR 的 NT-Xent 这样的损失把每一行与其余所有行比较，需要知道每一行的正确搭档是第几行。两个版本前后相"
        "接（`torch.cat`）时，搭档是 `i + n` 或 `i - n`；两个版本并排（沿新的轴 1 `stack`，或 `repeat_interleave`）"
        "时，搭档是相邻的 `i ^ 1`。两种都很常见，形状上看不出区别，而且损失照样会降一点，因为任何行都可以死记硬背。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, net = torch.randn(4, 3), torch.nn.Linear(3, 3)
a, b = net(x + 0.1 * torch.randn(4, 3)), net(x + 0.1 * torch.randn(4, 3))
z = torch.stack([a, b], dim=1).view(8, 3)  # PL456
z = F.normalize(z, dim=1)
scores = (z @ z.t()).masked_fill(torch.eye(8, dtype=torch.bool), float("-inf"))
partners = torch.cat([torch.arange(4, 8), torch.arange(4)])
loss = F.cross_entropy(scores, partners)  # used
loss.backward()
print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, net = torch.randn(4, 3), torch.nn.Linear(3, 3)
a, b = net(x + 0.1 * torch.randn(4, 3)), net(x + 0.1 * torch.randn(4, 3))
z = torch.cat([a, b])
z = F.normalize(z, dim=1)
scores = (z @ z.t()).masked_fill(torch.eye(8, dtype=torch.bool), float("-inf"))
partners = torch.cat([torch.arange(4, 8), torch.arange(4)])
loss = F.cross_entropy(scores, partners)
loss.backward()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "z @ z.t()",
            "z @ z.t() / 0.1",
            T(
                en="Another temperature sharpens the loss; the partners stay those of other examples.",
                zh="换一个温度只会让损失更尖锐，搭档仍是别的样本。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.stack.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.cat.html",
    ),
)
