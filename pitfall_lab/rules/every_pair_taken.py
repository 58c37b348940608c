"""PL412: an index with one entry for each row was applied to the columns of all rows, so every row was combined with
every entry.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.trace import Event, T

DIAGONALS = {"diagonal", "diag", "trace"}
"""Calls that read the diagonal: the program then needs the table of all pairs."""


@dataclass(frozen=True, slots=True)
class EveryPairTaken:
    """``event`` is the call (``Event``) that indexed the columns of the tensor ``table``, of ``rows`` × ``columns``,
    with the tensor ``index``, which has one entry for each row; both are labels. It returned rows × rows elements.
    """

    event: Event
    table: str
    index: str
    rows: int
    columns: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes rows × rows elements out of a computed matrix that requires grad, by
    an index with one entry for each row and some entry twice.

    Only if a backward ran; nothing if a call reads the diagonal of the result.
    """
    reported = set()
    for event in story.calls("__getitem__", "index_select") if story.backwards() else ():
        place = story.span(event.step)
        if place not in reported and event.error is None and (found := _pairs(story, event)) is not None:
            reported.add(place)
            yield _finding(story, found)


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding about integers used as a mask, if these 0s and 1s
    choose a column for each row; else None.
    """
    event = story.event(general.step)
    found = _pairs(story, event) if event is not None else None
    return _finding(story, found) if found is not None else None


def _pairs(story: Story, event: Event) -> EveryPairTaken | None:
    labels = [operand.label for operand in event.operands if operand.label is not None]
    if len(labels) != 2 or not event.results:
        return None
    table, index = labels
    record = story.tensor(table, event.step) or {}
    shape, entries = story.shape(table, event.step) or (), story.shape(index, event.step)
    if len(shape) != 2 or entries != shape[:1] or story.shape(event.results[0], event.step) != (shape[0], shape[0]):
        return None
    if not record.get("requires_grad") or record.get("is_leaf") or not _repeats(story, index, event.step, shape[1]):
        return None
    if any(use.name in DIAGONALS for use in story.uses(event.results[0])):
        return None
    return EveryPairTaken(event, table, index, shape[0], shape[1])


def _repeats(story: Story, index: str, step: int, columns: int) -> bool:
    """Whether ``index`` has an entry twice, so that it gives each row a column rather than selecting or reordering the
    columns.

    True also if it has more entries than ``columns``; otherwise False if not all entries are known.
    """
    count = (story.shape(index, step) or (0,))[0]
    if count > columns:
        return True
    held = (story.record("storages", (story.tensor(index, step) or {}).get("storage"), step) or {}).get("cells")
    values = [value for _, value in flat(held)]
    return count > 1 and len(values) == count and len(set(values)) < count


def _finding(story: Story, found: EveryPairTaken) -> Finding:
    span, step = story.span(found.event.step), found.event.step
    index, here = expression(story, found.index, step), at_line(story, span)
    one, all_of = f"{found.rows}", f"{found.rows}×{found.rows}"
    uses = [use for use in story.uses(found.event.results[0]) if use.step > step]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} takes {all_of} numbers where {index.en} names one for each of the {one} rows.",
            zh=f"{here.zh}取出了 {all_of} 个数，而 {index.zh} 是为 {one} 行各指定一个。",
        ),
        T(
            en=f"`[:, index]` takes the columns in {index.en} out of *every* row. The result has {found.rows} "
            "numbers for each row, of which only the one on the diagonal belongs to it; the loss then mixes all "
            "rows with each other.",
            zh=f"`[:, index]` 从*每一行*里取出 {index.zh} 中的所有列。结果的每一行有 {found.rows} 个数，其中只有对角线"
            "上的那个属于这一行；损失于是把所有行混在一起。",
        ),
        related=[story.related("used", uses[0].step, T(en="all of them are used here", zh="这里用到了全部"))]
        if uses
        else [],
        fixes=_fixes(story, found),
        facts=[Fact("rows", found.rows, story.by(step)), Fact("columns", found.columns, story.by(step))],
    )


def _fixes(story: Story, found: EveryPairTaken) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
        return ()
    table, index = operand(program, node.value), operand(program, node.slice.elts[1])
    title = T(en="Take one number from each row: `gather`", zh="每一行取一个数：`gather`")
    return unique(
        program.text,
        [Fix(title, program.replace((node, f"{table}.gather(1, {index}.unsqueeze(1)).squeeze(1)")), meaning="shape")],
    )


RULE = Rule(
    code="PL412",
    name="every-pair-taken",
    severity="warning",
    title=T(en="An index takes every column in it from every row", zh="索引从每一行取出了其中的所有列"),
    what=T(
        en="A program wants one number from each row, such as the value of the action that was chosen there, and "
        "writes `values[:, actions]`. That is a square table: each row with the actions of all rows. Write "
        "`values.gather(1, actions.unsqueeze(1)).squeeze(1)`.",
        zh="程序想从每一行取一个数（例如那一行所选动作的价值），写成了 `values[:, actions]`。得到的是一张方表：每一行"
        "配上所有行的动作。请写 `values.gather(1, actions.unsqueeze(1)).squeeze(1)`。",
    ),
    why=T(
        en="An index applies to its own axis. `:` keeps all rows, and a tensor of indices on the second axis selects "
        "columns, the same ones in every row. Only when both axes get a tensor, `values[torch.arange(n), actions]`, "
        "are the two read together, entry by entry; `gather` does the same along one axis. The square result fits a "
        "loss as well: rewards of length n are added to each of its rows, by the rule that stretches missing axes "
        "(*broadcasting*), so nothing is raised.",
        zh="索引只作用于自己的轴。`:` 保留所有行，第二个轴上的索引张量选择列，而且每一行都选同样的列。只有两个轴都给出"
        "张量，即 `values[torch.arange(n), actions]`，两者才会逐项配对；`gather` 沿一个轴做同样的事。方形的结果也能放"
        "进损失：长度为 n 的奖励会按照补齐缺失轴的规则（*广播*）加到每一行上，所以不会报错。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
states, rewards = torch.randn(4, 3), torch.randn(4)
actions = torch.tensor([0, 1, 1, 0])
for _ in range(2):
    values = net(states)
    taken = values[:, actions]  # PL412
    loss = ((taken - rewards) ** 2).mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(taken.shape, loss.item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
states, rewards = torch.randn(4, 3), torch.randn(4)
actions = torch.tensor([0, 1, 1, 0])
for _ in range(2):
    values = net(states)
    taken = values.gather(1, actions.unsqueeze(1)).squeeze(1)
    loss = ((taken - rewards) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(taken.shape, loss.item())
""",
    find=find,
    refines=("PL807",),
    refine=refine,
    traps=(
        Trap(
            "values[:, actions]",
            "values[:, actions].mean(1)",
            T(
                en="The mean has one number for each row, but it is made of the actions of all rows.",
                zh="平均之后每行只有一个数，但它由所有行的动作得来。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.gather.html",
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
    ),
)
