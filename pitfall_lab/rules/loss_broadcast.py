"""PL401: a loss or a measure compared ``(N,)`` with ``(N, 1)``, so that every prediction met every target.

Found from shapes in the trace: in a loss function; in ``a - b`` whose result is made positive (squared, ``abs``) and
reduced to one number; in ``a == b`` whose result is counted; in a product (a weight, an advantage) that is reduced to
what backward starts from; in any of these and ``a + b`` whose table is given to a loss function with a tensor of
another shape; and, where the column comes from the positions that ``nonzero`` returns, in any result that is reduced.
Not reported are a difference of everything with everything that is built in the same line, and one of tensors on the
same storage (pairwise distances).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import isfinite

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import apart, at_line, called, capital, flat
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, Paired, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = operations_that("difference_loss")
DIFFERENCES = spellings("sub", exchanged=True)
STRETCHES = {"broadcast_tensors"}  # what torch's own losses do first, where they are seen as their parts
COMPARISONS = {"eq", "ne"}
PRODUCTS = spellings("div", "mul") | {"max", "maximum", "min", "minimum"}
"""What a broadcast can harm although nothing is compared: weights, masks, advantages, ratios."""
SUMS = {"add"}
UNCOUNTED = spellings("bitwise_not") | {"double", "float", "half", "int", "logical_not", "long", "to", "type"}
"""Operations whose result for a boolean table is still a table."""
COUNTS = {"mean", "sum", "count_nonzero", "nanmean"}
"""Reductions that may count, or average, hits."""
POSITIVE = spellings("abs", "pow") | {"dist", "norm", "square", "vector_norm"}
"""Calls whose result has no sign."""
REDUCTIONS = {"mean", "sum", "norm", "vector_norm", "nanmean", "nansum"}
"""Reductions to one number that is a loss or a measure."""
LONGEST = 48
"""The largest number of letters of a call's text that is used in messages as the name of its result."""
FURTHER = 60
"""The largest number of calls after a product that are examined."""
TAKES = {"__getitem__", "index_select", "take"}
"""Calls that pick elements by position."""
POSITIONS = {"nonzero", "argwhere"}
"""Calls that return a position in each row: of a vector, a column."""
OUTER = spellings("expand", "outer") | {"cdist", "expand_as", "meshgrid", "unsqueeze"}
"""Calls by which a program makes all pairs on purpose."""
SHAPED = {"view", "reshape", "arange", "linspace"}
"""Calls that set a shape on purpose."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loss, comparison, difference, sum or product of a tensor of shape ``(N,)`` with one of
    shape ``(N, 1)``, or ``s`` with ``s + (1,)``, whose N × N table was reduced to a loss, a count or another measure,
    or was given to a loss function together with a tensor of another shape.

    At most one for each place in the source and operation; not where the table of all pairs seems intended.
    """
    for event, pair in _comparisons(story):
        yield _finding(story, event, *pair)


def _comparisons(story: Story) -> Iterator[tuple[Event, tuple[str, str]]]:
    places = set()
    for event in story.calls():
        name = _plain(event)
        if event.error is not None or name not in LOSSES | DIFFERENCES | STRETCHES | COMPARISONS | PRODUCTS | SUMS:
            continue
        pair = _mismatch(story, event)
        if pair is None or (event.span, name) in places or _inside_loss(story, event):
            continue
        if name in STRETCHES and not _feeds_loss(story, event):
            continue
        used = name in LOSSES | STRETCHES or (name in DIFFERENCES and _becomes_a_loss(story, event))
        used = (
            used
            or (name in COMPARISONS and _is_counted(story, event))
            or _is_reduced_by_position(story, event, pair[0])
        )
        if not used and name in DIFFERENCES | PRODUCTS | SUMS and _misfits_a_loss(story, event):
            places.add((event.span, name))
            yield event, pair
            continue
        weighs = not used and name in DIFFERENCES | PRODUCTS and _is_trained(story, event)
        if (used and (name in LOSSES | STRETCHES or not _meant(story, event, pair))) or (
            weighs and not _spread_out(story, pair, event)
        ):
            places.add((event.span, name))
            yield event, pair


def _feeds_loss(story: Story, event: Event) -> bool:
    """Whether a loss function is given a result of ``event`` among the next seven events."""
    results = set(event.results)
    return any(
        _plain(later) in LOSSES and results & {operand.label for operand in later.operands}
        for later in story.events[event.step + 1 : event.step + 8]
    )


def _plain(event: Event) -> str:
    return event.name.strip("_")


def _inside_loss(story: Story, event: Event) -> bool:
    """Whether the call is part of one of torch's loss functions, for which there is a finding of its own."""
    parent = story.event(event.parent)
    while parent is not None:
        if _plain(parent) in LOSSES:
            return True
        parent = story.event(parent.parent)
    return False


def _mismatch(story: Story, event: Event) -> tuple[str, str] | None:
    """The labels of the two operands, the column first, if their shapes are ``s + (1,)`` and ``s`` with more than one
    element; else None.

    Also for the shapes ``(n, 1, …)`` and ``(n, …)``, if the first operand was indexed with a column of positions
    (:func:`_positions`).
    """
    labels = [operand.label for operand in event.operands if operand.label is not None][:2]
    if len(labels) < 2:
        return None
    one, other = (story.shape(label, event.step) for label in labels)
    if one is None or other is None:
        return None
    for column, row, tall, short in ((labels[0], labels[1], one, other), (labels[1], labels[0], other, one)):
        if tall == (*short, 1) and _size(short) > 1:
            return column, row
        by_rows = tall == (*short[:1], 1, *short[1:]) and short[:1] > (1,)
        if by_rows and _positions(story, column, event.step) is not None:
            return column, row
    return None


def _positions(story: Story, label: str, step: int) -> Event | None:
    """The ``nonzero`` whose column of positions was the index that took ``label`` out of a
    tensor; None if there is none.
    """
    taken = story.event((story.tensor(label, step) or {}).get("born"))
    index = taken.operands[-1].label if taken is not None and taken.name in TAKES and len(taken.operands) > 1 else None
    made = story.event((story.tensor(index) or {}).get("born")) if taken is not None and index is not None else None
    column = (story.shape(index, step) or ())[1:] == (1,) and (story.shape(label, step) or ())[1:2] == (1,)
    return made if made is not None and column and made.name in POSITIONS and index in made.results else None


def _is_reduced_by_position(story: Story, event: Event, column: str) -> bool:
    """Whether ``column`` was made by indexing with the column of positions that ``nonzero`` returns, and one of the
    next calls reduces the broadcast result of ``event`` to one number.
    """
    if not event.results or _positions(story, column, event.step) is None:
        return False
    table = set(event.results)
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        if later.kind == "call" and later.error is None and later.results and table & {o.label for o in later.operands}:
            shape = story.shape(later.results[0], later.step)
            if _plain(later) in REDUCTIONS | COUNTS and shape is not None and _size(shape) == 1:
                return True
            table.update(later.results)
    return False


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for length in shape:
        total *= length
    return total


def _becomes_a_loss(story: Story, event: Event) -> bool:
    """Whether the difference is made positive (``abs``, a square) and then reduced over all axes to one number."""
    signed: set[str] = set(event.results)
    positive: set[str] = set()
    full = story.shape(event.results[0], event.step) if event.results else None
    for later in story.events[event.step + 1 :]:
        if later.kind != "call" or later.error is not None:
            continue
        labels = [operand.label for operand in later.operands if operand.label is not None]
        touched, name = signed | positive, _plain(later)
        if not touched & set(labels) or not later.results:
            continue
        shape = story.shape(later.results[0], later.step)
        squares = name in POSITIVE or (name in ("mul", "multiply") and len(labels) == 2 and labels[0] == labels[1])
        known_positive = squares or bool(positive & set(labels))
        if name in REDUCTIONS and known_positive and shape is not None and _size(shape) == 1:
            return True
        if shape == full:
            (positive if known_positive else signed).update(later.results)
    return False


def _misfits_a_loss(story: Story, event: Event) -> bool:
    """Whether a loss function was given the table, or a tensor of the same shape computed from it, together with a
    tensor of another shape.

    Only the first loss among the next ``FURTHER`` events is looked at. A tensor of one element does not count as
    another shape.
    """
    table = set(event.results)
    full = story.shape(event.results[0], event.step) if event.results else None
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        labels = (
            [o.label for o in later.operands if o.label is not None]
            if later.kind == "call" and later.error is None
            else []
        )
        if not table & set(labels) or not later.results:
            continue
        if _plain(later) in LOSSES:
            shapes = [story.shape(label, later.step) or () for label in labels[:2]]
            return any(_size(shape) > 1 and shape != full for shape in shapes)
        if story.shape(later.results[0], later.step) == full:
            table.update(later.results)
    return False


def _is_trained(story: Story, event: Event) -> bool:
    """Whether the table is multiplied (or is a product) and then reduced to one number that a
    backward went through, soon after.
    """
    table, weighed = set(event.results), _plain(event) in PRODUCTS
    full = story.shape(event.results[0], event.step) if event.results else None
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        labels = (
            {o.label for o in later.operands}
            if later.kind == "call" and later.error is None and later.results
            else set()
        )
        if not table & labels:
            continue
        shape, record = story.shape(later.results[0], later.step), story.tensor(later.results[0], later.step) or {}
        if _plain(later) in REDUCTIONS and shape is not None and _size(shape) == 1:
            ran = (story.record("nodes", record.get("grad_fn")) or {}).get("ran")
            if weighed and ran is not None:
                return True
        elif shape == full:
            weighed = weighed or _plain(later) in PRODUCTS
            table.update(later.results)
    return False


def _spread_out(story: Story, pair: tuple[str, str], event: Event) -> bool:
    """Whether one operand was made by a call that gives it such a shape (``unsqueeze``, ``view``, ``arange``), or both
    share a storage: then the table of all pairs counts as intended.
    """
    records = [story.tensor(label, event.step) or {} for label in pair]
    makers = (story.event(record.get("born")) for record in records)
    same = records[0].get("storage") is not None and records[0].get("storage") == records[1].get("storage")
    return same or any(maker is not None and (_plain(maker) in SHAPED or _is_outer(story, maker)) for maker in makers)


def _is_outer(story: Story, maker: Event) -> bool:
    """Whether the call makes a table of pairs or inserts an axis (``OUTER``, or an index with ``None``); an index that
    only selects rows does not.

    An index that is a tensor does if such a call made it.
    """
    if maker.name != "__getitem__":
        return _plain(maker) in OUTER
    index = maker.operands[1].label if len(maker.operands) > 1 else None
    if index is not None:
        made = story.event((story.tensor(index, maker.step) or {}).get("born"))
        return made is not None and index in made.results and _is_outer(story, made)
    given, result = (story.shape(label, maker.step) or () for label in (maker.operands[0].label, maker.results[0]))
    return len(result) > len(given) or "None" in maker.operands[1].text if len(maker.operands) > 1 else True


def _is_counted(story: Story, event: Event) -> bool:
    """Whether the table of True and False is summed or averaged over all axes, like an accuracy.

    Only conversions and negations may come in between.
    """
    table = set(event.results)
    for later in story.events[event.step + 1 :]:
        if later.kind == "call" and later.error is None and later.results and table & {o.label for o in later.operands}:
            if _plain(later) in COUNTS:
                shape = story.shape(later.results[0], later.step)
                return shape is not None and _size(shape) == 1
            if _plain(later) not in UNCOUNTED:
                return False
            table.update(later.results)
    return False


def _meant(story: Story, event: Event, pair: tuple[str, str]) -> bool:
    """Whether the outer difference seems intended.

    True if both operands share their storage, or if a call inserted the column's axis and either is on the same line or
    both operands, or neither, require grad.
    """
    column, row = (story.tensor(label, event.step) or {} for label in pair)
    if column.get("storage") is not None and column.get("storage") == row.get("storage"):
        return True
    born = story.event(column.get("born"))
    if born is None or born.span is None or event.span is None or not _is_outer(story, born):
        return False
    same_line = born.span.source == event.span.source and event.span.line <= born.span.line <= event.span.end_line
    both_plain = bool(column.get("requires_grad")) == bool(row.get("requires_grad"))
    return same_line or both_plain


def _finding(story: Story, event: Event, column: str, row: str) -> Finding:
    names = _operand_name(story, event, column), _operand_name(story, event, row)
    shapes = story.shape(column, event.step) or (), story.shape(row, event.step) or ()
    count = _pairs(shapes)
    related = tuple(
        story.related(
            "operand", born, T(en=f"{name.en} has shape {_shown(shape)}", zh=f"{name.zh} 的形状是 {_shown(shape)}")
        )
        for label, name, shape in zip((column, row), names, shapes, strict=True)
        for born in [(story.tensor(label, event.step) or {}).get("born")]
    )
    paired = next((each for each in story.trace.beside.paired if each.step == event.step), None)
    values = _values(story, event, column, row) if paired is None else _of_pairs(story, event, paired)
    facts = [
        Fact("column", column, story.by(event.step)),
        Fact("row", row, story.by(event.step)),
        Fact("pairs", count * count, "modelled"),
    ]
    facts.append(
        Fact("operands", tuple(name.en.removeprefix("the result of ").strip("`") for name in names), "modelled")
    )
    numbers = values if paired is None else (paired.came, paired.meant)
    if numbers and all(map(isfinite, numbers)):
        facts += [Fact("loss", numbers[0], story.by(event.step)), Fact("meant", numbers[1], "modelled")]
    return RULE.finding(
        event.span,
        event.step,
        _message(story, event, names, shapes, values),
        _explanation(names, shapes, _harm(story, event)),
        related=related,
        fixes=_fixes(story, event, column, row),
        facts=facts,
        advice=_advice(story, event, names),
    )


def _advice(story: Story, event: Event, names: tuple[T, T]) -> T:
    line, (column, row) = at_line(story, event.span), names
    return T(
        en=f"Give {column.en} and {row.en} the same shape before {line.en}: `.squeeze(-1)` takes the axis of length 1 "
        "away from the first, or `.unsqueeze(-1)` adds one to the second.",
        zh=f"在{line.zh}之前让 {column.zh} 和 {row.zh} 形状相同：用 `.squeeze(-1)` 去掉前者长度为 1 的轴，"
        "或用 `.unsqueeze(-1)` 给后者加一个轴。",
    )


def _operand_name(story: Story, event: Event, label: str) -> T:
    """The operand's name, or the expression that made it; if another function computed it, the call of that function:
    ``model(x)``.
    """
    born = (story.tensor(label, event.step) or {}).get("born")
    given = written_as(story, event, label)
    if isinstance(given, ast.Name):
        return T(en=f"`{given.id}`", zh=f"`{given.id}`")
    if isinstance(given, ast.Call) and story.name(label, event.step) is None:
        text = " ".join(story.program.segment(given).split())
        if len(text) <= LONGEST and _function(story, born) is not _function(story, event.step):
            return T(en=f"the result of `{text}`", zh=f"`{text}` 的结果")
    return called(story, label, None, event.step, born)


def _function(story: Story, step: int | None) -> ast.AST | None:
    node = story.program.at(story.span(step))
    return story.program.function(node) if node is not None else None


def _pairs(shapes: tuple[tuple[int, ...], ...]) -> int:
    """How many elements of the second operand each element of the first meets, if the first is a column; else how many
    rows.
    """
    return _size(shapes[1]) if len(shapes[0]) > len(shapes[1]) and shapes[0][-1] == 1 else shapes[1][0]


def _shown(shape: tuple[int, ...]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(str(n) for n in shape) + ")"


def _message(
    story: Story,
    event: Event,
    names: tuple[T, T],
    shapes: tuple[tuple[int, ...], ...],
    values: tuple[float, float] | None,
) -> T:
    here, count = at_line(story, event.span), _pairs(shapes)
    numbers = T(en="", zh="")
    shown = apart(*values, percent=_plain(event) in COMPARISONS) if values else None
    if shown and _plain(event) in COMPARISONS:
        numbers = T(
            en=f" (true for {shown[0]} of them, and for {shown[1]} of the pairs that belong together)",
            zh=f"（其中 {shown[0]} 成立，而真正对应的配对里是 {shown[1]}）",
        )
    elif shown and _plain(event) not in LOSSES:
        numbers = T(
            en=f" ({shown[0]} comes out, {shown[1]} was meant)",
            zh=f"（得到 {shown[0]}，本应是 {shown[1]}）",
        )
    elif shown:
        numbers = T(
            en=f" (the loss is {shown[0]}, and should be {shown[1]})",
            zh=f"（损失是 {shown[0]}，本应是 {shown[1]}）",
        )
    combines = _plain(event) in PRODUCTS | SUMS
    each = T(en="element", zh="元素") if count == _size(shapes[1]) else T(en="row", zh="行")
    verb = T(en="combines" if combines else "compares", zh="组合" if combines else "相比")
    return T(
        en=f"{capital(here.en)} {verb.en} every {each.en} of {names[0].en} with every {each.en} of {names[1].en}, "
        f"{count * count} pairs instead of {count}, because their shapes are {_shown(shapes[0])} and "
        f"{_shown(shapes[1])}{numbers.en}.",
        zh=f"{here.zh}把 {names[0].zh} 的每个{each.zh}与 {names[1].zh} 的每个{each.zh}{verb.zh}，共 {count * count} 对"
        f"而不是 {count} 对，因为它们的形状是 {_shown(shapes[0])} 和 {_shown(shapes[1])}{numbers.zh}。",
    )


def _harm(story: Story, event: Event) -> T:
    """What becomes of the table: a loss, a sum of products, a count, or a number that nothing is trained with."""
    if _plain(event) in PRODUCTS:
        return T(
            en="It is still reduced to one number, but most of what goes into it pairs the number of one example "
            "with that of another.",
            zh="它照样被归约成一个数，但其中大部分是把一个样本的数与另一个样本的数配在一起。",
        )
    if _plain(event) in COMPARISONS:
        return T(
            en="What is counted there looks like an accuracy, but most of it compares an example with "
            "the answers of others.",
            zh="在其中数出来的结果看起来像准确率，但大部分是拿一个样本与别的样本的答案相比。",
        )
    if _went_backward(story, event):
        return T(
            en="Its mean is still one number and training still moves, but it pulls every prediction towards the "
            "mean of all targets.",
            zh="它的平均值仍是一个数，训练也在进行，但每个预测都被拉向全部目标的平均值。",
        )
    return T(
        en="Its mean is still one number and looks like an error, but most of it compares the prediction for one "
        "example with the target of another: it is not 0 even where every prediction is right.",
        zh="它的平均值仍是一个数，看起来像误差，但大部分是拿一个样本的预测与另一个样本的目标相比："
        "即使每个预测都对，它也不是 0。",
    )


def _went_backward(story: Story, event: Event) -> bool:
    record = story.tensor(event.results[0], event.step) if event.results else None
    node = story.record("nodes", (record or {}).get("grad_fn")) or {}
    return node.get("ran") is not None


def _explanation(names: tuple[T, T], shapes: tuple[tuple[int, ...], ...], harm: T) -> T:
    outer = (
        _shown((*shapes[1][:-1], shapes[1][-1], shapes[1][-1]))
        if len(shapes[1]) == 1
        else _shown((*shapes[1][:1], *shapes[1]))
    )
    return T(
        en=f"Torch lines shapes up from the right: the last dimension of {names[0].en} has length 1 and is stretched "
        f"to fit {names[1].en}, and {names[1].en} is repeated for every row. The result has shape {outer}. {harm.en}",
        zh=f"torch 从右边对齐形状：{names[0].zh} 的最后一维长度是 1，被拉伸到与 {names[1].zh} 一致，而 {names[1].zh} "
        f"在每一行重复。结果的形状是 {outer}。{harm.zh}",
    )


def _of_pairs(story: Story, event: Event, paired: Paired) -> tuple[float, float] | None:
    """The number that was computed and the number from matching pairs only, both taken from a recording; for ``a == b``
    the shares of pairs for which it holds.

    None if one is not finite, or if the number of a comparison is neither a share nor a count.
    """
    if not (isfinite(paired.came) and isfinite(paired.meant)):
        return None
    if _plain(event) not in COMPARISONS:
        return paired.came, paired.meant
    made = story.event(paired.number)
    counted = _plain(made) if made is not None else ""
    if counted in COUNTS and "mean" in counted:
        return paired.came, paired.meant
    return (paired.came / paired.count**2, paired.meant / paired.count) if counted in COUNTS else None


def _values(story: Story, event: Event, column: str, row: str) -> tuple[float, float] | None:
    """The number that torch computed and the number from matching pairs only: of a mean squared or absolute error the
    loss, of ``a == b`` the share of pairs for which it holds.

    None for other operations, and where the values are not all known.
    """
    if _plain(event) in COMPARISONS:
        left, right = (_cells(story, label, event.step) for label in (column, row))
        if not left or not right or len(left) != len(right):
            return None
        equal = _plain(event) == "eq"
        held = (
            sum((a == b) is equal for a in left for b in right),
            sum((a == b) is equal for a, b in zip(left, right, strict=True)),
        )
        return held[0] / len(left) ** 2, held[1] / len(left)
    power = {"mse_loss": 2, "l1_loss": 1}.get(_plain(event))
    if power is None or not event.results or _size(story.shape(event.results[0], event.step) or (0, 0)) != 1:
        return None
    ours = [_cells(story, label, event.step) for label in (column, row)]
    got = _cells(story, event.results[0], event.step)
    if ours[0] is None or ours[1] is None or not got or len(ours[0]) != len(ours[1]):
        return None
    terms = [abs(a - b) ** power for a, b in zip(ours[0], ours[1], strict=True)]
    outer = [abs(a - b) ** power for a in ours[0] for b in ours[1]]
    if abs(sum(outer) / len(outer) - got[0]) <= 1e-3 * max(1.0, abs(got[0])):
        return got[0], sum(terms) / len(terms)
    return (got[0], sum(terms)) if abs(sum(outer) - got[0]) <= 1e-3 * max(1.0, abs(got[0])) else None


def _cells(story: Story, label: str, step: int) -> list[float] | None:
    """A tensor's values at ``step`` as a flat list; None if it is not contiguous, or if the trace does not hold them
    all as numbers.
    """
    tensor = story.tensor(label, step) or {}
    storage = story.record("storages", tensor.get("storage"), step) or {}
    cells, count = storage.get("cells"), _size(tuple(tensor.get("shape") or ()))
    if not isinstance(cells, list) or any(n not in (0, 1) for n in _gaps(tensor)):
        return None
    start = int(tensor.get("offset") or 0)
    values = [value for _, value in flat(cells)][start : start + count]
    return (
        [float(v) for v in values]
        if len(values) == count and all(isinstance(v, (int, float)) for v in values)
        else None
    )


def _gaps(tensor: Record) -> list[int]:
    """Per dimension, the last one first: 0 if its stride is that of a contiguous tensor or its length is 1, else 2."""
    shape, stride = tuple(tensor.get("shape") or ()), tuple(tensor.get("stride") or ())
    expected, gaps = 1, []
    for length, step in zip(reversed(shape), reversed(stride), strict=False):
        gaps.append(0 if length == 1 or step == expected else 2)
        expected *= int(length)
    return gaps


def _fixes(story: Story, event: Event, column: str, row: str) -> tuple[Fix, ...]:
    if not story.trace.sources:
        return ()
    program = story.program
    node = program.at(event.span) if program.tree else None
    operands = _operand_nodes(node, event)
    labels = [operand.label for operand in event.operands if operand.label is not None][:2]
    if node is None or len(operands) != 2 or len(labels) != 2:
        return ()
    if _plain(event) == "rsub":
        labels.reverse()
    nodes = dict(zip(labels, operands, strict=True))
    candidates = [_reshaped(program, nodes[column], ".squeeze(-1)"), _reshaped(program, nodes[row], ".unsqueeze(-1)")]
    found = _positions(story, column, event.step)
    positions = program.at(story.span(found.step)) if found is not None else None
    if isinstance(positions, ast.Call):
        candidates.insert(0, _reshaped(program, positions, ".squeeze(1)"))
    return unique(program.text, candidates)


def _operand_nodes(node: ast.AST | None, event: Event) -> list[ast.expr]:
    """The two combined expressions: of ``a - b`` or ``a == b``, or the first two arguments of a call.

    A shorter or an empty list if the line does not show both.
    """
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub | ast.Mult | ast.Div) or (
            isinstance(node.op, ast.Add) and _plain(event) in SUMS
        ):
            return [node.left, node.right]
        inner = [n for n in ast.walk(node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub)]
        return [inner[0].left, inner[0].right] if len(inner) == 1 else []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return [node.left, *node.comparators]
    if isinstance(node, ast.Call):
        named = {k.arg: k.value for k in node.keywords}
        values = [*node.args, *(named[k] for k in ("input", "target", "other") if k in named)]
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in spellings("div", "mul", "sub") | {*COMPARISONS}
            and len(values) == 1
        ):
            return [node.func.value, values[0]]
        return values[:2]
    return []


def _reshaped(program: Program, node: ast.expr, text: str) -> Fix:
    shown = " ".join(operand(program, node).split())
    return Fix(
        T(en=f"Give both the same shape: `{shown}{text}`", zh=f"让两者形状相同：`{shown}{text}`"),
        program.replace((node, operand(program, node) + text)),
        meaning="shape",
    )


RULE = Rule(
    code="PL401",
    name="loss-broadcast",
    severity="warning",
    title=T(
        en="A loss or a measure compared every prediction with every target",
        zh="损失或指标把每个预测与每个目标都比了一遍",
    ),
    what=T(
        en="The predictions are a column of N numbers, the targets a plain list of N numbers, and the loss compares "
        "each prediction with *every* target instead of its own: N×N differences instead of N. The loss is still one "
        "number and still falls, so nothing looks broken: the model just learns to predict the mean of all targets. "
        "An accuracy, `(predicted == labels).float().mean()`, goes wrong in the same way.",
        zh="预测值是 N 个数的一列，目标是 N 个数的普通列表，损失把每个预测与*所有*目标相比，而不是只与它自己的目标相"
        "比：得到 N×N 个差值而不是 N 个。损失仍是一个数，也仍在下降，看起来一切正常：模型只是学会了预测全部目标的平均"
        "值。准确率 `(predicted == labels).float().mean()` 也会这样出错。",
    ),
    why=T(
        en="Operations on two tensors accept different *shapes* by *broadcasting*: shapes are lined up from the "
        "right, and a dimension of length 1 is stretched. `(N, 1)` against `(N,)` becomes `(N, 1)` against `(1, N)`, "
        "and both are stretched to `(N, N)`. For a table of all pairs that is just right, so torch cannot refuse. The "
        "loss functions of `torch.nn.functional` print a warning; `((p - y) ** 2).mean()` prints none.",
        zh="两个张量的运算通过*广播*接受不同的*形状*：形状从右边对齐，长度为 1 的维度被拉伸。`(N, 1)` 对 `(N,)` 变成 "
        "`(N, 1)` 对 `(1, N)`，两者都被拉伸成 `(N, N)`。要得到所有配对的表时这正合适，所以 torch 不能拒绝。"
        "`torch.nn.functional` 的损失函数会打印一条警告；`((p - y) ** 2).mean()` 什么也不说。",
    ),
    bad="""import torch
import torch.nn.functional as F

x = torch.tensor([[0.0], [1.0], [2.0]])
target = torch.tensor([1.0, 3.0, 5.0])  # operand
w = torch.tensor([[2.0]], requires_grad=True)
prediction = x @ w + 1  # operand
loss = F.mse_loss(prediction, target)  # PL401
loss.backward()
print(loss)
""",
    good="""import torch
import torch.nn.functional as F

x = torch.tensor([[0.0], [1.0], [2.0]])
target = torch.tensor([1.0, 3.0, 5.0])
w = torch.tensor([[2.0]], requires_grad=True)
prediction = x @ w + 1
loss = F.mse_loss(prediction.squeeze(-1), target)
loss.backward()
print(loss)
""",
    find=find,
    traps=(
        Trap(
            "loss = F.mse_loss(prediction, target)",
            "loss = ((prediction - target) ** 2).mean()",
            T(
                en="The warning is gone, the table of N×N differences is not.",
                zh="警告没有了，N×N 的差值表还在。",
            ),
        ),
        Trap(
            "loss = F.mse_loss(prediction, target)",
            "loss = F.mse_loss(*torch.broadcast_tensors(prediction, target))",
            T(
                en="This does by hand what torch warned about.",
                zh="这等于亲手做了 torch 所警告的事。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html",
    ),
)
