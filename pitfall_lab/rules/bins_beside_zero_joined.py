"""PL848: coordinates of both signs were truncated towards zero and used as the indices of cells."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, with_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, number, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Lost, T
from pitfall_lab.trace.operation_facts import spellings

ON_THE_WAY = (
    SAME_NUMBERS | spellings("cat", "floor_divide", "remainder") | spellings("add", "mul", in_place=True)
    | spellings("sub", in_place=True, exchanged=True)
    | {"clamp_", "clamp_max", "clamp_min_", "getitem", "long", "maximum", "meshgrid", "minimum", "stack", "tolist"}
)  # fmt: skip
"""Calls that may lie between the conversion to integers and the call that uses them as cells."""
PLACES = (
    spellings("index_add", "index_put", "scatter", "scatter_add", "scatter_reduce", in_place=True)
    | {"bincount", "embedding", "gather", "index_select", "one_hot", "take", "unique", "unique_consecutive"}
)  # fmt: skip
"""Calls that take integers as positions, or count equal ones."""
ENTRIES = {"getitem", "setitem"}
WHOLE = ("int", "uint")
FURTHER = 60


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that converts fractions of both signs to integers by truncating them towards 0,
    where the integers are used as positions in a table or as groups.
    """
    reported = set()
    for lost in story.trace.beside.losses:
        event, place = story.event(lost.step), story.span(lost.step)
        if lost.sign != "cut" or event is None or place in reported or event.error is not None or not event.results:
            continue
        used = _used(story, event)
        if used is not None:
            reported.add(place)
            yield _finding(story, event, lost, used)


def _used(story: Story, event: Event) -> Event | None:
    """The call that uses the integers as positions or as groups; None if none is found within ``FURTHER`` tensors."""
    pending, seen = deque(event.results[:1]), set(event.results[:1])
    while pending and len(seen) < FURTHER:
        label = pending.popleft()
        for use in story.uses(label):
            if use.step <= event.step or use.error is not None:
                continue
            name, given = use.name.strip("_"), [o.label for o in use.operands]
            if use.name in PLACES or (name in ENTRIES and label in given[1:]):
                return use
            dtypes = [str((story.tensor(each, use.step) or {}).get("dtype") or "") for each in use.results]
            if name in ON_THE_WAY and all(dtype.startswith(WHOLE) for dtype in dtypes):
                fresh = [each for each in use.results if each not in seen]
                seen.update(fresh)
                pending += fresh
    return None


def _finding(story: Story, event: Event, lost: Lost, used: Event) -> Finding:
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(used.step))
    one, other = number(lost.one), number(lost.other)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} cuts fractions off towards 0: all numbers from {one} to {other} become 0, and "
            f"{there.en} uses the whole numbers as cells. The cell of 0 gets the numbers of two cells.",
            zh=f"{here.zh}向 0 的方向截去小数：从 {one} 到 {other} 的数都变成 0，而{there.zh}把这些整数当作格子的编号。"
            "0 号格子得到了两格的数据。",
        ),
        T(
            en=f"A conversion to whole numbers (`{snippet(story, story.span(event.step))}`) drops what is behind the "
            f"point. Above 0 that rounds down, below 0 it rounds up: {lost.lost} of {lost.of} numbers between -1 and 0 "
            "belong to cell -1, and every negative cell is one too high. `floor()` rounds down on both sides.",
            zh=f"转换成整数（`{snippet(story, story.span(event.step))}`）会去掉小数点后面的部分。大于 0 时这是向下"
            f"取整，小于 0 时却是向上取整：{lost.of} 个数中有 {lost.lost} 个在 -1 和 0 之间，本属于 -1 号格子；"
            "所有负的格子都偏高一格。`floor()` 在两侧都向下取整。",
        ),
        related=[story.related("used", used.step, T(en="the whole numbers are cells here", zh="整数在这里当作格子"))],
        fixes=_fixes(story, event),
        facts=[Fact("from", lost.one, story.by(event.step)), Fact("to", lost.other, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """At most one fix: it rounds down (``floor``) before the conversion; empty if the program does not show the
    converted tensor.
    """
    program = story.program
    node = program.at(story.span(event.step))
    source = written_as(story, event, event.operands[0].label)
    if not isinstance(node, ast.Call) or not isinstance(source, ast.expr) or called(node) == "tensor":
        return ()
    text = f"{operand(program, source)}.floor()"
    title = T(en="Round down first: `floor()`", zh="先向下取整：`floor()`")
    return unique(
        program.text, [Fix(title, program.splice((with_parentheses(program, source), text)), meaning="later")]
    )


RULE = Rule(
    code="PL848",
    name="bins-beside-zero-joined",
    severity="warning",
    title=T(
        en="Coordinates of both signs were cut off towards 0 to number cells", zh="正负坐标被向 0 截断后用作格子编号"
    ),
    what=T(
        en="A program turns coordinates into the numbers of cells by dropping what is behind the point. Left of 0 that "
        "goes up and right of 0 down, so the cells -1 and 0 are counted as one, and all cells left of it are one off.",
        zh="程序去掉坐标的小数部分来得到格子的编号。在 0 的左边这是向上，在右边是向下，于是 -1 号和 0 号格子被算作一"
        "个，左边所有的格子也都错了一格。",
    ),
    why=T(
        en="`.long()`, `.int()` and `.to(torch.int64)` cut towards 0, as C does: -0.7 and 0.7 both become 0. Whether "
        "two points are in one cell of a grid is decided by `floor`: -0.7 is in cell -1. Nothing is raised, since all "
        "numbers are cells of the table.",
        zh="`.long()`、`.int()` 和 `.to(torch.int64)` 与 C 一样向 0 截断：-0.7 和 0.7 都变成 0。两个点是否在网"
        "格的同一格里，要看 `floor`：-0.7 在 -1 号格子。不会有错误，因为所有编号都在表里。",
    ),
    advice=T(
        en="round down with `floor()` before the conversion on {line}.", zh="在{line}转换之前先用 `floor()` 取整。"
    ),
    bad="""import torch

x = torch.linspace(-2.75, 2.75, 12)
cell = x.long() + 3  # PL848
count = torch.bincount(cell, minlength=6)  # used
print(count)
""",
    good="""import torch

x = torch.linspace(-2.75, 2.75, 12)
cell = x.floor().long() + 3
count = torch.bincount(cell, minlength=6)
print(count)
""",
    find=find,
    traps=(
        Trap(
            "x.long()",
            "x.to(torch.int32)",
            T(en="A smaller type cuts the same way.", zh="更小的类型也一样截断。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.floor.html",),
)
