"""PL446: an index for ``gather`` or ``scatter`` has size 1 along another dimension, so only the first entry along that
dimension is ever read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

GATHERS, SCATTERS = (
    ("gather",),
    spellings("scatter", "scatter_add", "scatter_reduce", in_place=True),
)
TENSORS = 2


@dataclass(frozen=True, slots=True)
class FirstOnly:
    """``event`` is the call (``Event``) of ``gather`` or ``scatter`` that reads the tensor ``source`` by the tensor
    ``index`` (both are labels) along the dimension ``dim``.

    ``axis`` is another dimension, along which the index has size 1: of ``count`` entries of the source along it, only
    one is read. Dimensions count from 0.
    """

    event: Event
    source: str
    index: str
    dim: int
    axis: int
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose ``gather`` or ``scatter`` has an index of size 1 along another dimension
    than ``dim``, where the source and the target are larger, so that only the first entry along it is read.
    """
    reported = set()
    for event in story.calls(*GATHERS, *SCATTERS):
        place = story.span(event.step)
        found = _first_only(story, event) if place not in reported and event.error is None and event.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _first_only(story: Story, event: Event) -> FirstOnly | None:
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) < TENSORS or (event.name in SCATTERS and len(labels) == TENSORS):
        return None
    source, index = (labels[0] if event.name in GATHERS else labels[2]), labels[1]
    shape, entries, target = (story.shape(label, event.step) or () for label in (source, index, labels[0]))
    dim = whole(argument(event, "dim", 1))
    if dim is None or len(shape) != len(entries) or len(target) != len(entries):
        return None
    axes = [a for a in range(len(shape)) if a != dim % len(shape) and entries[a] == 1 < min(shape[a], target[a])]
    return (
        FirstOnly(event, source, index, dim % len(shape), axes[0], shape[axes[0]])
        if axes and max(entries) > 1
        else None
    )


def _finding(story: Story, found: FirstOnly) -> Finding:
    event = found.event
    here = at_line(story, story.span(event.step))
    source, index = (expression(story, label, event.step) for label in (found.source, found.index))
    shapes = ["×".join(map(str, story.shape(label, event.step) or ())) for label in (found.source, found.index)]
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} reads 1 of {found.count} entries along axis {found.axis} of {source.en} "
            f"({shapes[0]}): the index {index.en} ({shapes[1]}) has length 1 there.",
            zh=f"{here.zh}沿 {source.zh}（{shapes[0]}）的第 {found.axis} 轴只读取 {found.count} 个中的 1 个：索引 "
            f"{index.zh}（{shapes[1]}）在那里的长度是 1。",
        ),
        T(
            en=f"The index is not stretched: the result has its shape, and along every axis but {found.dim} place `i` "
            f"is read from place `i`. Along axis {found.axis} there is only place 0. Go along that axis, if it holds "
            "what the indices number, or expand the index to its length.",
            zh=f"索引不会被拉伸：结果的形状就是它的形状，除第 {found.dim} 轴之外，每个轴上的位置 `i` 都从位置 "
            f"`i` 读取。第 {found.axis} 轴上只有位置 0。如果索引编号的是那个轴上的内容，请沿那个轴进行；否则请"
            "把索引扩展到那个长度。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(event.step)), Fact("count", found.count, story.by(event.step))],
    )


def _fixes(story: Story, found: FirstOnly) -> tuple[Fix, ...]:
    """Fixes that change ``dim`` to the dimension along which the index has size 1, or that expand the index.

    The first only for a ``gather`` with a literal ``dim`` whose other sizes agree, the second only if the source is a
    variable or attribute.
    """
    program, event = story.program, found.event
    call = program.at(story.span(event.step)) if program.tree is not None else None
    index, source = (written_as(story, event, label) for label in (found.index, found.source))
    if not isinstance(call, ast.Call) or call_name(call) != event.name or index is None:
        return ()
    shape, entries = (story.shape(label, event.step) or () for label in (found.source, found.index))
    candidates = []
    said = next((k.value for k in call.keywords if k.arg == "dim"), None)
    said = said or next(
        (a for a in call.args if isinstance(a, ast.Constant | ast.UnaryOp) and whole(program.segment(a)) is not None),
        None,
    )
    others = all(entries[a] == shape[a] for a in range(len(shape)) if a != found.axis)
    if others and said is not None and event.name in GATHERS:
        title = T(en=f"Go along axis {found.axis}", zh=f"沿第 {found.axis} 轴进行")
        candidates.append(Fix(title, program.replace((said, str(found.axis))), meaning="later"))
    if source is not None and is_name(source):
        sizes = ", ".join(
            f"{program.segment(source)}.size({a})" if a == found.axis else "-1" for a in range(len(shape))
        )
        new = f"{operand(program, index)}.expand({sizes})"
        title = T(en=f"Expand the index: `{new}`", zh=f"扩展索引：`{new}`")
        candidates.append(Fix(title, program.replace((index, new)), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL446",
    name="gathers-first-only",
    severity="warning",
    title=T(en="An index reads only the first entry of an axis", zh="索引只读取了某个轴的第一项"),
    what=T(
        en="A program picks whole vectors by their numbers with `gather`, and gives it an index with a last axis of "
        "length 1. The result has that length too: of each vector only the first number is taken. Expand the index to "
        "the length of the vectors.",
        zh="程序用 `gather` 按编号取出整个向量，给出的索引最后一个轴长度是 1。结果在那里的长度也是 1：每个向量只取了第"
        "一个数。请把索引扩展到向量的长度。",
    ),
    why=T(
        en="`gather` returns a tensor of the shape of its *index*, and axes of length 1 are not stretched as in "
        "arithmetic. `x.gather(1, i)[a, b, c]` is `x[a, i[a, b, c], c]`: where `i` has one `c`, so has the result. In "
        "the same way an index of shape `(n, 1)` with `dim=0` reads the first column alone, in rows that the actions "
        "number. `scatter_add_` adds only those entries of its source that the index has places for. Nothing is "
        "raised, as the index may be smaller.",
        zh="`gather` 返回的张量与*索引*形状相同，长度为 1 的轴不会像算术运算那样被拉伸。`x.gather(1, i)[a, b, c]` "
        "就是 `x[a, i[a, b, c], c]`：`i` 只有一个 `c`，结果也就只有一个。同样，形状为 `(n, 1)` 的索引配上 "
        "`dim=0`，只读取第一列，而且行号是动作的编号。`scatter_add_` 只加上源张量中索引有位置的那些项。因为索引可"
        "以更小，所以不会报错。",
    ),
    bad="""import torch

tokens = torch.arange(24.0).view(2, 4, 3)
best = torch.tensor([[1, 3], [0, 2]])
chosen = tokens.gather(1, best.unsqueeze(-1))  # PL446
print(chosen.sum(-1))
""",
    good="""import torch

tokens = torch.arange(24.0).view(2, 4, 3)
best = torch.tensor([[1, 3], [0, 2]])
chosen = tokens.gather(1, best.unsqueeze(-1).expand(-1, -1, tokens.size(2)))
print(chosen.sum(-1))
""",
    find=find,
    traps=(
        Trap(
            "chosen.sum(-1)",
            "chosen.expand(-1, -1, 3).sum(-1)",
            T(en="Expanded afterwards, the first number is repeated.", zh="之后再扩展，只是重复第一个数。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.gather.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.scatter_add_.html",
    ),
)
