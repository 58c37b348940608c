"""PL414: examples and their labels were put into different orders, so each example is taught the label of another."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.joins import JOINS, is_used_again, joined_by, left_to_packing, taken_apart
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = (
    spellings("sub") | operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "multi_margin_loss", "nll_loss",
       "poisson_nll_loss", "soft_margin_loss"}
)  # fmt: skip
"""The losses, and the difference, that compare rows with labels."""
DRAWN = {"randperm", "randint", "multinomial"}
SORTED = {"sort", "argsort"}
TAKES = {"__getitem__", "index_select"}
PLAIN = SAME_NUMBERS | {"long", "int", "half", "squeeze", "div", "mul", "add", "sub", "one_hot", "type"} - {
    "stack",
    "cat",
}
"""Calls on labels that keep their order."""
CONVERSIONS = {
    "float",
    "double",
    "long",
    "int",
    "half",
    "to",
    "type",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "flatten",
    "contiguous",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
EQUALITIES = spellings("eq", "ne")
MEASURES = (*EQUALITIES, *LOSSES)
DECIDED = SAME_NUMBERS - spellings("cat") - {"stack"} | {
    "argmax", "max", "gt", "ge", "lt", "le", "long", "int", "bool", "round", "sigmoid", "softmax", "log_softmax",
}  # fmt: skip
"""Calls between drawn rows and a measure that keep one result for each row."""
UPWARD = 400


@dataclass(frozen=True, slots=True)
class RowsInDifferentOrder:
    """One order in which rows were taken: ``event`` is the call (``Event``) that took the rows of the tensor ``source``
    in the order of the tensor ``index``, which the call ``made`` (a draw or a sort) returned; both are labels.

    Where rows were joined in that order one by one, ``source`` is the first of them. A finding is about two such
    orders, or about that of the examples where the labels kept their old order.
    """

    event: Event
    source: str
    index: str
    made: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that orders labels otherwise than the examples that a loss, or a
    measure, compares them with, or these alone; for a loss only if a backward ran.

    For a loss the examples must have been ordered exactly once, the labels once or never, the choice of a batch aside.
    """
    reported = set()
    taken = [
        order
        for event in story.calls(*TAKES, *JOINS)
        if (order := _order(story, event, _given(story, event))) is not None
    ]
    for loss in story.calls(*LOSSES) if taken and story.backwards() else ():
        pair = _sides(story, loss)
        if pair is None or loss.error is not None:
            continue
        labels = _orders(story, pair[1], loss.step, plain=True)
        examples = _orders(story, pair[0], loss.step, plain=False) if labels is None or len(labels) < 2 else None
        if labels is None and _is_sorted(examples) and _orders(story, pair[1], loss.step, plain=False) == []:
            labels = []  # computed from rows that nothing has put into another order
        if labels and examples is not None:
            labels, examples = _within_batch(story, labels[0], examples)
        if labels is None or examples is None or len(examples) != 1:
            continue
        place = story.span((labels or examples)[0].event.step)
        if place not in reported and (
            _apart(story, examples[0], labels[0]) if labels else _left(story, examples[0], pair, loss)
        ):
            reported.add(place)
            yield (
                _finding(story, examples[0], labels[0], loss)
                if labels
                else _left_behind(story, examples[0], pair[1], loss)
            )
    for event in story.calls(*MEASURES) if any(story.calls(*DRAWN)) else ():
        drawn = _measured(story, event)
        if drawn is not None and (place := story.span(drawn[1].event.step)) not in reported:
            reported.add(place)
            yield _finding(story, *drawn, event, measured=True)


def _measured(story: Story, event: Event) -> tuple[RowsInDifferentOrder, RowsInDifferentOrder] | None:
    """The draws of a model's answers and of the labels that a measure without a gradient compares, if each side was
    drawn independently (a bootstrap whose pairs do not belong together); else None.

    Differences count only where the program compares both sources row by row elsewhere: two samples may be independent
    on purpose.
    """
    labels = [o.label for o in event.operands[:2] if o.label is not None]
    if len(labels) != 2 or event.error is not None:
        return None
    if any((story.tensor(label, event.step) or {}).get("requires_grad") for label in labels):
        return None
    found = [order for label in labels if (order := _drawn(story, label, event.step)) is not None]
    if len(found) != 2 or not _apart(story, *found):
        return None
    taught = [_is_predicted(story, each.source, each.event.step) for each in found]
    if taught.count(True) != 1:
        return None
    answers, truth = found if taught[0] else found[::-1]
    pair = {answers.source, truth.source}
    whole = event.name in EQUALITIES or any(
        {o.label for o in use.operands[:2]} == pair for use in story.uses(truth.source) if use.name in MEASURES
    )
    return (answers, truth) if whole else None


def _drawn(story: Story, label: str, step: int) -> RowsInDifferentOrder | None:
    """The last draw of rows that a tensor consists of, or was decided from row by row; None if there is none."""
    for _ in range(UPWARD):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        given = _given(story, event)
        order = _order(story, event, given, several=True)
        if order is not None:
            return order if order.made.name in DRAWN else None
        if event.name not in DECIDED or len(given) != 1 or given[0] == label:
            return None
        label, step = given[0], event.step
    return None


def _is_predicted(story: Story, label: str, step: int) -> bool:
    """Whether a tensor was computed with a parameter."""
    pending, seen = deque([label]), {label}
    while pending and len(seen) < UPWARD:
        here = pending.popleft()
        event = story.event((story.tensor(here, step) or {}).get("born"))
        for each in (
            [o.label for o in event.operands if o.label is not None]
            if event is not None and event.kind == "call" and here in event.results
            else ()
        ):
            if (story.tensor(each) or {}).get("kind") == "parameter":
                return True
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False


def _is_sorted(orders: list[RowsInDifferentOrder] | None) -> bool:
    return bool(orders) and all(order.made.name in SORTED for order in orders or ())


def _within_batch(
    story: Story, chosen: RowsInDifferentOrder, examples: list[RowsInDifferentOrder]
) -> tuple[list[RowsInDifferentOrder], list[RowsInDifferentOrder]]:
    """The orders of the labels and of the examples, without those by which a batch was chosen, if the rows of a batch
    are sorted after that.

    ``chosen`` are the indices that selected the batch out of all labels. The examples may have been chosen by the same
    indices, or one by one.
    """
    rest = [order for order in examples if order.index != chosen.index]
    rows = story.shape(chosen.index, chosen.event.step) or (0,)
    is_batch = rows[0] < (story.shape(chosen.source, chosen.event.step) or (0,))[0]
    sorts = [
        order
        for order in rest
        if order.made.name in SORTED and (story.shape(order.index, order.event.step) or ())[:1] == rows
    ]
    return ([], sorts) if is_batch and sorts == rest else ([chosen], examples)


def _sides(story: Story, loss: Event) -> tuple[str, str] | None:
    """The prediction and the target of a loss: the operand that requires grad, and the one that does not.

    None unless it has one of each.
    """
    labels = [operand.label for operand in loss.operands[:2] if operand.label is not None]
    if len(labels) != 2:
        return None
    wanted = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
    return (
        (labels[0], labels[1])
        if wanted == [True, False]
        else (labels[1], labels[0])
        if wanted == [False, True]
        else None
    )


def _orders(story: Story, label: str, step: int, *, plain: bool) -> list[RowsInDifferentOrder] | None:
    """The different orders in which rows were indexed in the calls that ``label`` was computed
    from; empty if there are none.

    None if ``plain`` is True and something other than a conversion or a view was computed from the rows after that.
    """
    found: dict[str, RowsInDifferentOrder] = {}
    pending, seen = deque([(label, plain)]), {label}
    while pending and len(seen) < UPWARD:
        here, bare = pending.popleft()
        event = story.event((story.tensor(here, step) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results:
            continue
        given = _given(story, event)
        order = _order(story, event, given)
        if order is not None:
            if order.index not in found or order.source not in [
                o.label for o in order.made.operands[:1]
            ]:  # not the sorted lengths
                found[order.index] = order
            given, bare = given[:1], False
        elif (
            (bare and (len(given) > 1 or (given and event.name not in PLAIN)))
            or (event.name in TAKES and len(given) > 1)
            or taken_apart(story, event)
        ):
            return None  # computed, or rows were chosen in some other way
        for each in given:
            if each not in seen:
                seen.add(each)
                pending.append((each, bare))
    return list(found.values())


def _given(story: Story, event: Event) -> list[str]:
    """The tensors that a call was given, without parameters."""
    return [
        o.label
        for o in event.operands
        if o.label is not None and (story.tensor(o.label) or {}).get("kind") != "parameter"
    ]


def _order(story: Story, event: Event, given: list[str], *, several: bool = False) -> RowsInDifferentOrder | None:
    """The order in which ``event`` took rows; None if it is no such call. ``several``: a table of indices counts
    too.
    """
    sort = joined_by(story, event)
    if sort is not None:
        return RowsInDifferentOrder(event, given[0], sort.results[-1], sort)
    if event.name not in TAKES or len(given) != 2 or event.error is not None:
        return None
    source, index = given
    rows, entries, result = (story.shape(label, event.step) or () for label in (source, index, event.results[0]))
    dtype = str((story.tensor(index, event.step) or {}).get("dtype"))
    if (
        (len(entries) != 1 and not several)
        or not rows
        or not dtype.startswith("int")
        or result != (*entries, *rows[1:])
    ):
        return None
    made = _maker(story, index, event.step)
    return (
        RowsInDifferentOrder(event, source, index, made) if made is not None and made.name in DRAWN | SORTED else None
    )


def _maker(story: Story, index: str, step: int) -> Event | None:
    """The call that returned the indices, before views and slices of them; None if it is not found."""
    for _ in range(10):
        made = story.event((story.tensor(index, step) or {}).get("born"))
        if (
            made is None
            or made.name not in SAME_NUMBERS
            or not made.operands
            or made.operands[0].label in (None, index)
        ):
            return made
        index, step = str(made.operands[0].label), made.step
    return None


def _apart(story: Story, one: RowsInDifferentOrder, other: RowsInDifferentOrder) -> bool:
    """Whether the rows of two data sets of one length were taken in two orders that were drawn separately.

    False for fewer than 3 rows, and for orders that are alike.
    """
    lengths = {(story.shape(each.source, each.event.step) or (0,))[0] for each in (one, other)}
    if one.made.step == other.made.step or one.source == other.source or len(lengths) != 1 or max(lengths) < 3:
        return False
    return {one.made.name, other.made.name} <= DRAWN and not _alike(story, one, other)


def _left(story: Story, examples: RowsInDifferentOrder, pair: tuple[str, str], loss: Event) -> bool:
    """Whether all examples were shuffled, or sorted by integers (their lengths), and the targets, of the same number,
    were not.

    Shuffled examples count only if a backward went through the loss; sorted ones only if the targets were made before
    the sort, or computed from the unsorted rows, and are not all equal.
    """
    target, joined = pair[1], examples.event.name in JOINS
    rows = story.shape(examples.index if joined else examples.source, examples.event.step) or ()
    if examples.made.name == "randperm":
        whole = _whole(story, target, loss.step, rows[0])
        graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn") if loss.results else None
        trained = (story.record("nodes", graph) or {}).get("ran") is not None
        all_rows = story.shape(examples.index, examples.event.step) == rows[:1]
        return trained and all_rows and whole and not _reaches(story, pair[0], loss.step, examples)
    by = examples.made.operands[0].label if examples.made.operands else None
    dtype = str((story.tensor(by, examples.made.step) or {}).get("dtype"))
    count = story.shape(target, loss.step) or ()
    born = _born(story, target, loss.step)
    same = rows[:1] == count[:1] == story.shape(examples.index, examples.event.step)
    old = (born is not None and born < examples.made.step) or _comes_from(story, target, loss.step, examples.source)
    alike = len(set(story.held(target, loss.step).values())) == 1
    kept = same and old and not alike and not is_used_again(story, examples.made, examples.event, loss.step)
    return examples.made.name in SORTED and dtype.startswith("int") and by not in (examples.source, target) and kept


def _born(story: Story, label: str, step: int) -> int | None:
    """The step at which a target was made, before conversions and other shapes of it; None if it is not known."""
    for _ in range(10):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        given = (
            [o.label for o in made.operands if o.label is not None]
            if made is not None and label in made.results
            else []
        )
        if made is None or made.name not in CONVERSIONS or len(given) != 1 or given[0] == label:
            break
        label, step = given[0], made.step
    born = (story.tensor(label, step) or {}).get("born")
    return int(born) if born is not None else None


def _comes_from(story: Story, label: str, step: int, source: str, past: AbstractSet[str] = frozenset()) -> bool:
    """Whether ``label`` was computed from ``source`` or from another tensor on its storage, not only through the
    tensors ``past``.
    """
    memory, pending, seen = (story.tensor(source) or {}).get("storage"), deque([label]), {label, *past}
    while pending and len(seen) < UPWARD:
        here = pending.popleft()
        if (story.tensor(here) or {}).get("storage") == memory:
            return True
        event = story.event((story.tensor(here, step) or {}).get("born"))
        for each in (
            _given(story, event) if event is not None and event.kind == "call" and here in event.results else ()
        ):
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False


def _whole(story: Story, label: str, step: int, rows: int) -> bool:
    """Whether a target, or what it is a view or conversion of, has ``rows`` as its first length."""
    for _ in range(10):
        if (story.shape(label, step) or (0,))[0] == rows:
            return True
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if (
            made is None
            or made.name not in PLAIN
            or label not in made.results
            or not made.operands
            or made.operands[0].label is None
        ):
            return False
        label, step = made.operands[0].label, made.step
    return False


def _reaches(story: Story, label: str, step: int, examples: RowsInDifferentOrder) -> bool:
    """Whether a prediction was also computed from the examples in their old order: as a mixture, or as pairs that do
    not belong together on purpose.
    """
    return _comes_from(story, label, step, examples.source, past={examples.event.results[0]})


def _left_behind(story: Story, examples: RowsInDifferentOrder, target: str, loss: Event) -> Finding:
    span = story.span(examples.event.step)
    here, there = at_line(story, span), at_line(story, story.span(loss.step))
    y = expression(story, target, loss.step)
    x = (
        T(en="a list", zh="列表")
        if examples.event.name in JOINS
        else expression(story, examples.source, examples.event.step)
    )
    rows = _rows(story, examples)
    verb = T(en="sorts", zh="排序") if examples.made.name in SORTED else T(en="shuffles", zh="打乱")
    return RULE.finding(
        span,
        examples.event.step,
        T(
            en=f"{capital(here.en)} {verb.en} the rows of {x.en}, and {there.en} compares them with {y.en}, whose "
            "rows stayed where they were.",
            zh=f"{here.zh}{verb.zh}了 {x.zh} 的各行，而{there.zh}把它们与 {y.zh} 比较，后者的各行没有动。",
        ),
        T(
            en="Labels and examples belong together by their place. Take the labels by the same indices, or bring "
            "the results back into the old order; for sequences `pack_padded_sequence(…, enforce_sorted=False)` "
            "does both by itself.",
            zh="标签与样本靠位置对应。请用同样的索引来取标签，或者把结果恢复成原来的次序；`pack_padded_sequence(…, "
            "enforce_sorted=False)` 会自己完成这两件事。",
        ),
        related=[story.related("used", loss.step, T(en="compared row by row here", zh="在这里逐行比较"))],
        fixes=_same_indices(story, examples, target, loss),
        facts=_pairs(x, y, rows, {place: place for place in rows}),
    )


def _rows(story: Story, order: RowsInDifferentOrder) -> dict[int, int]:
    """For each row, the index of the row of the source that it was taken from, as far as the indices are known; empty
    if the index tensor is not one-dimensional.
    """
    known = Elements(story, order.index, order.event.step)
    return {index[0]: int(value) for index, value in known.known()} if len(known.shape) == 1 else {}


def _pairs(x: T, y: T, examples: dict[int, int], labels: dict[int, int]) -> list[Fact]:
    """Facts that compare, for each row of ``x``, the row of ``y`` that it met with its own one."""
    one, other = (T(en=f"row of {each.en}", zh=f"{each.zh} 的行") for each in (x, y))
    places = sorted(examples.keys() & labels.keys())
    return pairs(one, other, [(examples[at], labels[at], examples[at]) for at in places], max(places, default=-1) + 1)


def _same_indices(story: Story, examples: RowsInDifferentOrder, target: str, loss: Event) -> tuple[Fix, ...]:
    """Fixes that index the target in the call of the loss, or leave a sort to the packing.

    The first is offered only if the examples' index is a plain name and both lines are in the same function.
    """
    program = story.program
    first = program.at(story.span(examples.event.step)) if program.tree is not None else None
    given = written_as(story, loss, target)
    packed = unique(program.text, [left_to_packing(story, examples.event)]) if examples.made.name in SORTED else ()
    if not isinstance(first, ast.Subscript) or not isinstance(first.slice, ast.Name) or given is None:
        return packed
    if program.function(first) is not program.function(given):
        return packed
    title = T(en="Take the labels by the same indices", zh="标签也用同样的索引来取")
    if isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Slice):
        given = given.value
    return unique(
        program.text,
        [
            Fix(title, program.replace((given, f"{operand(program, given)}[{first.slice.id}]")), meaning="shape"),
            *packed,
        ],
    )


def _alike(story: Story, one: RowsInDifferentOrder, other: RowsInDifferentOrder) -> bool:
    held = [
        [
            value
            for _, value in flat(
                (story.record("storages", (story.tensor(e.index) or {}).get("storage"), e.event.step) or {}).get(
                    "cells"
                )
            )
        ]
        for e in (one, other)
    ]
    return bool(held[0]) and held[0] == held[1]


def _finding(
    story: Story, examples: RowsInDifferentOrder, labels: RowsInDifferentOrder, loss: Event, *, measured: bool = False
) -> Finding:
    span = story.span(labels.event.step)
    here, there = at_line(story, span), at_line(story, story.span(examples.event.step))
    y, x = (
        shown(story, each.event, each.source) if measured else expression(story, each.source, each.event.step)
        for each in (labels, examples)
    )
    apart = T(
        en=f"{capital(here.en)} takes the rows of {y.en} in another order than {there.en} took those of {x.en}: each "
        "example gets the label of another.",
        zh=f"{here.zh}取 {y.zh} 各行的次序与{there.zh}取 {x.zh} 各行的次序不同：每个样本得到的是别的样本的标签。",
    )
    twice = T(
        en=f"{capital(here.en)} ran once for the examples and once for the labels, and put them into two different "
        "orders: each example gets the label of another.",
        zh=f"{here.zh}对样本和标签各执行了一次，得到两种不同的次序：每个样本得到的是别的样本的标签。",
    )
    draws = T(
        en=f"{capital(here.en)} draws rows of {y.en} anew after {there.en} drew those of {x.en}: each answer is "
        "measured against the label of another example.",
        zh=f"{here.zh}重新抽取 {y.zh} 的行，而{there.zh}已另外抽取过 {x.zh} 的行：每个回答都与别的样本的标签比较。",
    )
    both = T(
        en=f"{capital(here.en)} draws rows of {x.en} and of {y.en} apart: each answer is measured against the label of "
        "another example.",
        zh=f"{here.zh}分别抽取 {x.zh} 与 {y.zh} 的行：每个回答都与别的样本的标签比较。",
    )
    if measured:
        at = at_line(story, story.span(loss.step))
        return RULE.finding(
            span,
            labels.event.step,
            both if here == there else draws,
            T(
                en=f"The comparison on {at.en} goes by the place in both, and two draws give two different rows at one "
                "place. The measure is that of answers given blindly, and the interval around it says nothing about "
                "the model. Draw the indices once, and take answers and labels by them.",
                zh=f"{at.zh}的比较按位置进行，而两次抽取在同一位置给出不同的行。得到的是瞎猜的成绩，它的区间也与模型"
                "无关。请只抽取一次索引，回答与标签都按它来取。",
            ),
            related=[
                story.related("made", examples.event.step, T(en="the answers are drawn here", zh="回答在这里抽取")),
                story.related("used", loss.step, T(en="compared row by row here", zh="在这里逐行比较")),
            ],
            fixes=_fixes(story, examples, labels),
        )
    return RULE.finding(
        span,
        labels.event.step,
        twice if span == story.span(examples.event.step) else apart,
        T(
            en=f"Two calls drew two orders, and the loss on {at_line(story, story.span(loss.step)).en} "
            "compares the rows as they come. Labels and examples belong together by their place, so both "
            "must be taken by the same indices.",
            zh=f"两次调用抽取了两种次序，而{at_line(story, story.span(loss.step)).zh}的损失按位置逐行比较。标签与样本"
            "靠位置对应，所以两者必须用同样的索引来取。",
        ),
        related=[
            story.related("made", examples.event.step, T(en="the examples are put in order here", zh="样本在这里排序")),
            story.related("used", loss.step, T(en="compared row by row here", zh="在这里逐行比较")),
        ],
        fixes=_fixes(story, examples, labels),
        facts=_pairs(x, y, _rows(story, examples), _rows(story, labels)),
    )


def _fixes(story: Story, examples: RowsInDifferentOrder, labels: RowsInDifferentOrder) -> tuple[Fix, ...]:
    """Fixes that index the labels as the examples are; the index gets a name if it has none.

    Empty unless both are indexed in the program's source; without a name for the index, also unless both are on
    different lines of one block.
    """
    program = story.program
    if program.tree is None:
        return ()
    first, second = (_index(program.at(story.span(each.event.step))) for each in (examples, labels))
    if first is None or second is None or first is second:
        return ()
    title = T(en="Take both by the same indices", zh="两者用同样的索引来取")
    if isinstance(first, ast.Name):
        return unique(program.text, [Fix(title, program.replace((second, first.id)), meaning="later")])
    statement = program.statement(first)
    words = {n.id for n in program.nodes if isinstance(n, ast.Name)}
    name = next((n for n in ("order", "indices", "row_order") if n not in words), None)
    if (
        statement is None
        or name is None
        or program.block(statement) is not program.block(program.statement(second) or statement)
    ):
        return ()
    other = program.statement(second)
    if other is not statement and statement.lineno == getattr(other, "lineno", 0):
        return ()
    made = f"{name} = {program.segment(first)}"
    place = program.place(statement)
    start = type(place)(place.line, place.column, place.line, place.column)
    edits = program.splice(
        (start, f"{made}\n{program.indent(statement)}"),
        (program.place(first), name),
        (program.place(second), name),
    )
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _index(node: ast.AST | None) -> ast.expr | None:
    """The expression of the indices by which rows are taken: ``i`` of ``x[i]`` and of ``x.index_select(0, i)``; None
    for another expression.
    """
    if isinstance(node, ast.Subscript):
        return node.slice
    if isinstance(node, ast.Call) and called(node) == "index_select" and len(node.args) > 1:
        return node.args[-1]
    return None


RULE = Rule(
    code="PL414",
    name="rows-in-different-order",
    severity="warning",
    title=T(en="Examples and labels are shuffled in two different orders", zh="样本与标签以两种不同的次序打乱"),
    what=T(
        en="A program shuffles its examples and its labels, each with an order of its own, so every example is taught "
        "the label of some other one. Draw one order and take both by it.",
        zh="程序把样本与标签各自打乱，用的是两种次序，于是每个样本学到的是别的样本的标签。请只抽取一种次"
        "序，两者都按它来取。",
    ),
    why=T(
        en="A tensor of examples and a tensor of labels are tied by nothing but the number of the row. "
        "`x[torch.randperm(n)]` makes a new tensor with the rows in a new order; a second `torch.randperm(n)` "
        "draws other numbers. Shapes and types fit, the loss falls to that of guessing by the frequency of "
        "labels, and no error is raised.",
        zh="样本张量与标签张量之间只靠行号对应。`x[torch.randperm(n)]` 生成一个行序不同的新张量；第二个 "
        "`torch.randperm(n)` 抽取的是另一组数。形状与类型都对得上，损失会降到按标签频率猜测的水平，而不会报错。",
    ),
    advice=T(
        en="draw one order before {made}, `order = torch.randperm(n)`, and take the rows of the examples and "
        "of the labels by it.",
        zh="在{made}之前只抽取一个次序 `order = torch.randperm(n)`，样本和标签都按它取行。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, 2)
y = (x[:, 0] > 0).float().unsqueeze(1)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(3):
    inputs = x[torch.randperm(6)]  # made
    targets = y[torch.randperm(6)]  # PL414
    loss = F.binary_cross_entropy_with_logits(net(inputs), targets)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, 2)
y = (x[:, 0] > 0).float().unsqueeze(1)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(3):
    order = torch.randperm(6)
    inputs = x[order]
    targets = y[order]
    loss = F.binary_cross_entropy_with_logits(net(inputs), targets)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "    inputs = x[torch.randperm(6)]\n",
            "    torch.manual_seed(1)\n    inputs = x[torch.randperm(6)]\n",
            T(
                en="A seed before the first order fixes both orders; they still differ from each other.",
                zh="在第一次抽取前设定种子会固定两种次序，但它们彼此仍然不同。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.randperm.html",),
)
