"""PL954: a table of all pairs of one set pairs each element with itself, and the best pair of each
row, or a loss, includes that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.takes import take
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("matmul", "mm") | {"__rmatmul__"}
NEAREST, FARTHEST = ("argmin", "min"), ("argmax", "max")
SCALED = spellings("div", "mul", in_place=True) | {"clone", "contiguous", "detach", "float", "to"}
"""Calls after the product that keep the order of the pairs."""
MASKED = {"masked_fill", "masked_fill_"}
"""A call that may exclude the diagonal, or may mask something else: whether it does shows only
in which entries are the best.
"""
RANKED = ("topk", "argsort", "sort")
"""Calls that give the best pairs."""
LOOKS = ("__getitem__", "index_select", "take", "gather")
"""Calls that pick elements by position."""
FEWEST, MOST, PAIR = 4, 20, 2


@dataclass(frozen=True, slots=True)
class PairsWithItself:
    """``made`` is the call (``Event``) that computed a table of all pairs of one tensor's rows; ``used`` is the call
    that takes the best entries of each row of it, or is a loss of it.

    ``table`` is the label of the table as ``used`` was given it.
    """

    made: Event
    used: Event
    table: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose best pair of a row is the element with itself, or whose cross entropy
    counts such pairs.

    Only tables of all pairs with at least ``FEWEST`` rows, all of which are known to be among the columns; a loss only
    for square tables.
    """
    reported = set()
    for used in story.calls(*NEAREST, *FARTHEST, *RANKED, "cross_entropy"):
        place, table = story.span(used.step), used.operands[0].label if used.operands else None
        shape = story.shape(table, used.step) or ()
        if (
            place in reported
            or used.error is not None
            or table is None
            or len(shape) != 2
            or shape[0] > shape[1]
            or shape[0] < FEWEST
        ):
            continue
        made = _table(story, table, used.step, SCALED if used.name == "cross_entropy" else SCALED | MASKED)
        own = _own(story, made) if made is not None else None
        if made is None or own is None or (used.name == "cross_entropy" and shape[0] != shape[1]):
            continue
        if used.name in RANKED and not _ranks_itself(story, used, own):
            continue
        if used.name in NEAREST + FARTHEST and not _is_itself(story, used, made, own):
            continue
        reported.add(place)
        yield _finding(story, PairsWithItself(made, used, table))


def _table(story: Story, label: str | None, step: int, kept: set[str]) -> Event | None:
    """The product or ``cdist`` of two matrices that ``label`` was computed from by calls named in ``kept``.

    ``None`` if there is none, or if a write by another call than these may have changed its diagonal.
    """
    for _ in range(MOST):
        record = story.tensor(label, step) or {}
        event = story.event(record.get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        if any(story.events[at].name not in kept for at in story.writes(str(record.get("storage")), event.step, step)):
            return None
        given = [o.label for o in event.operands if o.label is not None]
        if event.name in PRODUCTS | {"cdist"} and len(given) == 2:
            return event
        if event.name not in kept or len(given) != (1 if event.name in SCALED else 2) or given[0] == label:
            return None
        label, step = given[0], event.step
    return None


def _own(story: Story, made: Event) -> dict[int, int] | None:
    """For each row, the column of the same element, where it is known.

    None if the rows are not all elements of the tensor whose elements are the columns.
    """
    one, other = (o.label for o in made.operands if o.label is not None)
    left, right = story.tensor(one, made.step) or {}, story.tensor(other, made.step) or {}
    if made.name != "cdist":
        right = {
            **right,
            "shape": list(right.get("shape") or [])[::-1],
            "stride": list(right.get("stride") or [])[::-1],
        }
    if any(len(each.get("shape") or []) != PAIR or each.get("storage") is None for each in (left, right)):
        return None
    if left.get("storage") == right.get("storage"):
        rows, columns = _rows(left), _rows(right)
        is_same = (left["shape"][1], left["stride"][1]) == (right["shape"][1], right["stride"][1])
        return (
            {at: columns.index(row) for at, row in enumerate(rows)} if is_same and set(rows) <= set(columns) else None
        )
    taken = story.event(left.get("born"))
    took = take(story, taken) if taken is not None and one in taken.results else None
    table = story.tensor(took.source, took.event.step) if took is not None else None
    if (
        took is None
        or table is None
        or took.axis != 0
        or right.get("storage") != table.get("storage")
        or _rows(right) != _rows(table)
    ):
        return None
    columns = (right.get("shape") or [0])[0]
    return {
        index[0]: int(value) % columns
        for index, value in Elements(story, took.index, took.event.step, answers=True).known()
    }


def _rows(record: Record) -> list[int]:
    """Where in its storage each row of a matrix begins."""
    start, step = record.get("offset") or 0, record["stride"][0]
    return [start + row * step for row in range(record["shape"][0])]


def _is_itself(story: Story, used: Event, made: Event, own: dict[int, int]) -> bool:
    """Whether the best entry of each row is its own element: by distance, an element is nearest to itself."""
    if used.name not in (NEAREST if made.name == "cdist" else FARTHEST):
        return False
    label = used.results[-1] if used.results else None
    known = [(index, value) for index, value in Elements(story, label, used.step).known() if index and index[0] in own]
    return len(known) >= FEWEST and all(len(index) == 1 and value == own[index[0]] for index, value in known)


def _ranks_itself(story: Story, used: Event, own: dict[int, int]) -> bool:
    """Whether the first of the best entries of each row is the row's own element, and the program reads labels (a
    vector of integers or bools) at these entries, the own one included.

    Without labels, a graph of neighbours may have each element as its own neighbour on purpose.
    """
    label = used.results[-1] if used.results else None
    known = [
        (index, value)
        for index, value in Elements(story, label, used.step).known()
        if index[1:] == (0,) and index[0] in own
    ]
    if label is None or not known or any(value != own[index[0]] for index, value in known):
        return False
    record = story.tensor(label, used.step) or {}
    pending, looked = [label], False
    for here in pending:
        for event in story.uses(here):
            source = event.operands[0].label if event.operands else None
            result = event.results[0] if event.results and event.error is None else None
            if event.name not in LOOKS or source is None or result is None:
                continue
            if source == here:
                part = story.tensor(result, event.step) or {}
                if part.get("storage") == record.get("storage") and part.get("offset") == record.get("offset"):
                    pending.append(result)
                continue
            kind = str((story.tensor(source, event.step) or {}).get("dtype"))
            is_answer = len(story.shape(source, event.step) or ()) == 1 and kind.startswith(("int", "bool"))
            looked = looked or (is_answer and (used.name == "topk" or here != label))
    return looked


def _finding(story: Story, found: PairsWithItself) -> Finding:
    used, made = found.used, found.made
    here, there = at_line(story, story.span(used.step)), at_line(story, story.span(made.step))
    table, count = expression(story, found.table, used.step), (story.shape(found.table, used.step) or (0,))[0]
    what = T(
        en=f"looks for the best in each row of {table.en}, and finds the row's own element in all of them",
        zh=f"在 {table.zh} 的每一行里找最好的，找到的却都是这一行自己",
    )
    if used.name == "cross_entropy":
        what = T(
            en=f"takes {table.en} for scores of {count} classes, among which each element meets itself",
            zh=f"把 {table.zh} 当作 {count} 个类别的分数，其中每个元素也遇到它自己",
        )
    return RULE.finding(
        story.span(used.step),
        used.step,
        T(
            en=f"{capital(here.en)} {what.en}: {there.en} computes all pairs of one set, and the diagonal is each "
            "element with itself.",
            zh=f"{here.zh}{what.zh}：{there.zh}计算同一个集合的所有配对，而对角线是每个元素与它自己。",
        ),
        T(
            en=f"In `{snippet(story, made.span)}` nothing is nearer to an element than itself, so what is "
            "compared with others wins always against them. Leave the diagonal out before the best is taken or "
            "the loss is computed.",
            zh=f"在 `{snippet(story, made.span)}` 中，没有什么比元素自己离自己更近，所以它总是胜过其他元素。请在取最好"
            "的或计算损失之前去掉对角线。",
        ),
        related=[
            story.related(
                "made", made.step, T(en="all pairs of one set, each element with itself too", zh="一个集合的所有配对")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("elements", count, story.by(used.step))],
    )


def _fixes(story: Story, found: PairsWithItself) -> tuple[Fix, ...]:
    """At most one fix: it sets the diagonal to inf where the smallest entry is taken, else to -inf.

    Empty if the program's source does not show the table, or if some row's own element is not on the diagonal.
    """
    program, torch = story.program, torch_name(story.program)
    given = written_as(story, found.used, found.table)
    if given is None or torch is None:
        return ()
    own = _own(story, found.made)
    if own is None or any(row != column for row, column in own.items()):
        return ()
    table, worst = operand(program, given), "inf" if _takes_smallest(found.used) else "-inf"
    square = (story.shape(found.table, found.used.step) or (0, 1))[1] == len(own)
    rows = (
        given.args[0]
        if isinstance(given, ast.Call) and given.args
        else given.left
        if isinstance(given, ast.BinOp)
        else given
    )
    size = f"len({program.segment(rows)})" if square else f"*{table}.shape"
    text = f'{table}.masked_fill({torch}.eye({size}, dtype={torch}.bool), float("{worst}"))'
    title = T(en="Leave the diagonal out", zh="去掉对角线")
    return unique(program.text, [Fix(title, program.replace((given, text)), meaning="later")])


def _takes_smallest(used: Event) -> bool:
    if used.name in RANKED:
        name, position = ("largest", 3) if used.name == "topk" else ("descending", 2)
        return argument(used, name, position) in (("False",) if used.name == "topk" else (None, "False"))
    return used.name in NEAREST


RULE = Rule(
    code="PL954",
    name="pairs-with-itself",
    severity="warning",
    title=T(en="Each element is compared with itself too", zh="每个元素也与它自己比较了"),
    what=T(
        en="A program compares all examples with all others and takes the best for each. In the table of one set each "
        "example is also paired with itself, and it is always its own nearest. Leave the diagonal out.",
        zh="程序把所有样本两两比较，为每个样本取最好的一个。在同一个集合的表里，每个样本也与自己配对，而离它最近的总是"
        "它自己。请去掉对角线。",
    ),
    why=T(
        en="`cdist(x, x)` is 0 on its diagonal, and the diagonal of `z @ z.T` holds the squared lengths: for "
        "normalised rows the largest number that there can be. An accuracy of nearest neighbours computed so is 1, "
        "and a contrastive loss spends its probability on pairs that are no pairs. `masked_fill` with infinity takes "
        "them out of a minimum, a maximum and a softmax.",
        zh="`cdist(x, x)` 的对角线为 0，`z @ z.T` 的对角线是各行长度的平方：对归一化的行，这是可能的最大值。这样算"
        "出的近邻准确率是 1，而对比损失把概率花在了不是配对的配对上。用无穷大做 `masked_fill`，就能把它们从最小"
        "值、最大值和 softmax 中去掉。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(6, 3, requires_grad=True)
distance = torch.cdist(x, x)  # made
nearest = distance.argmin(dim=1)  # PL954
loss = (x - x[nearest]).square().sum()
loss.backward()
print(nearest, loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(6, 3, requires_grad=True)
distance = torch.cdist(x, x)
nearest = distance.masked_fill(torch.eye(6, dtype=torch.bool), float("inf")).argmin(dim=1)
loss = (x - x[nearest]).square().sum()
loss.backward()
print(nearest, loss.item())
""",
    find=find,
    traps=(
        Trap(
            "distance.argmin(dim=1)",
            "distance.argmin(dim=0)",
            T(en="The table is symmetric: its columns are its rows.", zh="这张表是对称的：列就是行。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",),
)
