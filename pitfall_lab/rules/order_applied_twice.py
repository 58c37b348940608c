"""PL440: rows that were put in an order are to be brought back, by the same order once more and not by its inverse."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.takes import TAKES, Take, maker, positions, take
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

ORDERS = {"sort", "argsort", "randperm", "topk", "msort"}
"""Calls that give an order."""
PACKS, UNPACKS = "_pack_padded_sequence", "_pad_packed_sequence"
PUTS = spellings("index_copy", in_place=True) | {"__setitem__"}
FEWEST, UPWARD = 3, 400


@dataclass(frozen=True, slots=True)
class OrderAppliedTwice:
    """``first`` is the call that took all rows in an order (:class:`Take`); ``event`` is the call (``Event``) that
    takes, or where ``puts`` is True writes, the rows labelled ``rows``, computed from them, by the index labelled
    ``index``.

    The index is the same order where rows are taken, and its inverse where they are written.
    """

    first: Take
    event: Event
    rows: str
    index: str
    puts: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that applies an order of rows a second time to rows computed from
    the ordered ones, instead of its inverse.

    Not where applying the order twice is known to give the old rows, as with a plain reversal.
    """
    firsts = [
        found for event in story.calls(*TAKES) if (found := take(story, event)) is not None and _is_order(story, found)
    ]
    by_memory: dict[object, list[Take]] = {}
    for found in firsts:
        by_memory.setdefault(_memory(story, found.index), []).append(found)
    reported = set()
    for again in (*_taken(story, firsts, by_memory), *_put(story, by_memory)):
        place = story.span(again.event.step)
        if (
            place not in reported
            and place != story.span(again.first.event.step)
            and not _undoes_itself(story, again.first)
        ):
            reported.add(place)
            yield _finding(story, again)


def _memory(story: Story, label: str | None) -> object:
    return (story.tensor(label) or {}).get("storage")


def _is_order(story: Story, found: Take) -> bool:
    """Whether a take selects, by a vector of integers, as many rows as its source has, and these are at least
    ``FEWEST``.
    """
    rows = (story.shape(found.source, found.event.step) or ())[found.axis]
    kind = str((story.tensor(found.index, found.event.step) or {}).get("dtype"))
    return rows >= FEWEST and story.shape(found.index, found.event.step) == (rows,) and kind.startswith("int")


def _taken(story: Story, takes: list[Take], by_memory: dict[object, list[Take]]) -> Iterator[OrderAppliedTwice]:
    for found in takes:
        for first in by_memory[_memory(story, found.index)]:
            if first.event.step < found.event.step and _follows(story, found.source, found.event.step, first):
                yield OrderAppliedTwice(first, found.event, found.source, found.index, puts=False)
                break


def _put(story: Story, by_memory: dict[object, list[Take]]) -> Iterator[OrderAppliedTwice]:
    """Yield the writes (``PUTS``) of rows by the inverse of the order in which ``by_memory`` records that they were
    taken, each write once.
    """
    for event in story.calls(*PUTS) if by_memory else ():
        given = [o.label for o in event.operands if o.label is not None]
        if len(given) != FEWEST or event.error is not None or len(story.shape(given[1], event.step) or ()) != 1:
            continue
        made = maker(story, given[1], event.step)
        order = (
            made.operands[0].label if made is not None and made.name in ("argsort", "sort") and made.operands else None
        )
        for first in by_memory.get(_memory(story, order), ()) if order is not None else ():
            if first.event.step < event.step and _follows(story, given[2], event.step, first):
                yield OrderAppliedTwice(first, event, given[2], given[1], puts=True)
                break


def _follows(story: Story, label: str, step: int, first: Take) -> bool:
    """Whether the rows of ``label`` were computed, row by row and not by views alone, from those that ``first`` took.

    The order must come from a sort or be drawn, or the rows were packed as sequences of falling length on the way.
    """
    rows = (story.shape(first.result, first.event.step) or ())[first.axis]
    made = maker(story, first.index, first.event.step)
    ordered = made is not None and made.name in ORDERS
    pending, seen = deque([(label, step, False)]), {label}
    while pending and len(seen) < UPWARD:
        here, at, computed = pending.popleft()
        if here == first.result:
            return computed and ordered
        event = story.event((story.tensor(here, at) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results or event.step < first.event.step:
            continue
        packs = event.name == PACKS and event.operands[0].label == first.result
        if packs or (event.name in operations_that("recurrent") and _is_packed(story, event, first)):
            return True
        is_part = (story.shape(here, at) or ()).count(rows) != 1
        for each in event.operands[:1] if is_part or event.name == UNPACKS else event.operands:
            has_rows = (story.shape(each.label, event.step) or ()).count(rows) == 1
            follows = has_rows or is_part or event.name in ("cat", UNPACKS)
            if each.label is not None and each.label not in seen and follows and not _is_weight(story, each.label):
                seen.add(each.label)
                pending.append((each.label, event.step, computed or event.name not in SAME_NUMBERS))
    return False


def _is_packed(story: Story, layer: Event, first: Take) -> bool:
    """Whether a recurrent layer was given the rows that ``first`` took, packed by their lengths."""
    event = story.event((story.tensor(layer.operands[0].label, layer.step) or {}).get("born"))
    return event is not None and event.name == PACKS and event.operands[0].label == first.result


def _is_weight(story: Story, label: str) -> bool:
    record = story.tensor(label) or {}
    return record.get("kind") == "parameter" or bool(record.get("is_leaf") and record.get("requires_grad"))


def _undoes_itself(story: Story, first: Take) -> bool:
    """Whether the order is known, and applying it twice gives the rows as they were: a plain reversal, for instance."""
    order = positions(story, first.index, first.event.step)
    return (
        order is not None
        and all(0 <= p < len(order) for p in order)
        and [order[p] for p in order] == list(range(len(order)))
    )


def _finding(story: Story, again: OrderAppliedTwice) -> Finding:
    first, event = again.first, again.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(first.event.step))
    rows, order = expression(story, again.rows, event.step), expression(story, first.index, first.event.step)
    held = positions(story, first.index, first.event.step)
    example = T(en="", zh="")
    if held is not None and (row := next((i for i, p in enumerate(held) if held[p] != i), None)) is not None:
        got = held[held[row]]
        example = T(en=f" Row {row} is now that of example {got}.", zh=f"第 {row} 行现在是第 {got} 个样本的。")
    way = T(en=f"takes the rows of {rows.en} by {order.en} once more", zh=f"再次按 {order.zh} 取 {rows.zh} 的各行")
    if again.puts:
        way = T(
            en=f"writes the rows of {rows.en} to the places of the inverse of {order.en}",
            zh=f"把 {rows.zh} 的各行写到 {order.zh} 的逆所指的位置",
        )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} {way.en}, although {there.en} had put them into that order: this does not bring "
            f"them back.{example.en}",
            zh=f"{here.zh}{way.zh}，而{there.zh}已经按这个次序排过：这样并不能恢复原来的次序。{example.zh}",
        ),
        T(
            en="`x[order]` puts row `order[i]` into place `i`. To bring it back, row `i` must go to place `order[i]`: "
            "that is the inverse permutation, `order.argsort()`. The same indices once more give a third order.",
            zh="`x[order]` 把第 `order[i]` 行放到位置 `i`。要恢复，第 `i` 行必须回到位置 `order[i]`：那是逆排列 "
            "`order.argsort()`。用同样的索引再取一次，得到的是第三种次序。",
        ),
        related=[
            story.related("made", first.event.step, T(en="the rows are put in order here", zh="各行在这里排成次序"))
        ],
        fixes=_fixes(story, again),
        facts=[
            Fact("order", held, story.by(first.event.step)),
            *pairs(
                T(en="row", zh="行"),
                T(en="is of example", zh="属于样本"),
                [(row, held[place], row) for row, place in enumerate(held or ())] if held is not None else [],
            ),
        ],
    )


def _fixes(story: Story, again: OrderAppliedTwice) -> tuple[Fix, ...]:
    """At most one fix: it takes the rows by the inverse order, or writes them by the order itself.

    Empty if the program's source shows no index and, for rows that are written, unless the index is
    ``order.argsort()``.
    """
    program = story.program
    node = program.at(story.span(again.event.step)) if program.tree is not None else None
    if again.puts:
        index = _index(node.targets[0] if isinstance(node, ast.Assign) else node)
        if (
            isinstance(index, ast.Call)
            and isinstance(index.func, ast.Attribute)
            and not index.args
            and index.func.attr == "argsort"
        ):
            new = program.segment(index.func.value)
            title = T(en=f"Put them back to where they came from: `{new}`", zh=f"放回它们原来的位置：`{new}`")
            return unique(program.text, [Fix(title, program.replace((index, new)), meaning="later")])
        return ()
    index = _index(node)
    if index is None:
        return ()
    new = f"{operand(program, index)}.argsort()"
    title = T(en=f"Take them by the inverse order: `{new}`", zh=f"按逆次序来取：`{new}`")
    return unique(program.text, [Fix(title, program.replace((index, new)), meaning="later")])


def _index(node: ast.AST | None) -> ast.expr | None:
    """The expression of the index of ``x[index]``, ``x[:, index]`` or ``x.index_select(0,
    index)``; None if it is not found.
    """
    if isinstance(node, ast.Subscript):
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return next((each for each in places if not isinstance(each, ast.Slice | ast.Constant)), None)
    if isinstance(node, ast.Call):
        return next((k.value for k in node.keywords if k.arg == "index"), node.args[-1] if node.args else None)
    return None


RULE = Rule(
    code="PL440",
    name="order-applied-twice",
    severity="warning",
    title=T(
        en="An order is applied once more where its inverse was meant", zh="本应使用逆次序，却再次使用了同一个次序"
    ),
    what=T(
        en="A program sorts its rows, computes something for each, and wants the results in the old order. It takes "
        "them by the same indices again, which gives neither the old order nor the sorted one: most results belong to "
        "other rows then. Take them by `order.argsort()`.",
        zh="程序给各行排序，为每一行算出结果，再想恢复原来的次序。它又用同样的索引取了一次，得到的既不是原来的次序，也"
        "不是排好的次序：多数结果于是归到了别的行。请用 `order.argsort()` 来取。",
    ),
    why=T(
        en="An index says for each place of the result from where it is taken. The order `[2, 0, 1]` moves row 2 to "
        "the front; applied again, it brings row 1 there, and only the third time everything is back. The inverse "
        "says for each row where it went, and sorting the indices gives just that. Only for orders that exchange "
        "pairs, such as a reversal, are the two the same.",
        zh="索引说明结果的每个位置从哪里取。次序 `[2, 0, 1]` 把第 2 行移到最前；再用一次，移到最前的是第 1 行，用三次"
        "才全部恢复。逆次序说明每一行去了哪里，对索引排序得到的正是它。只有成对交换的次序（例如倒序）两者才相同。",
    ),
    bad="""import torch

lengths = torch.tensor([2, 1, 5, 4, 3])
x = torch.arange(10.0).view(5, 2)
order = lengths.argsort(descending=True)
total = x[order].sum(1)  # made
back = total[order]  # PL440
print(back, x.sum(1))
""",
    good="""import torch

lengths = torch.tensor([2, 1, 5, 4, 3])
x = torch.arange(10.0).view(5, 2)
order = lengths.argsort(descending=True)
total = x[order].sum(1)
back = total[order.argsort()]
print(back, x.sum(1))
""",
    find=find,
    traps=(
        Trap(
            "total[order]",
            "total[lengths.argsort()]",
            T(en="The opposite order is not the inverse one.", zh="相反的次序并不是逆次序。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.argsort.html",),
)
