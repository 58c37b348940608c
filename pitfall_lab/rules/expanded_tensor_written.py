"""PL404: a tensor made by ``expand`` was written. All its rows are the same elements in its storage."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.overlaps import is_repeated, shared_writes
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, statement_text
from pitfall_lab.rules.kit.writing_repairs import new_value
from pitfall_lab.trace import Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each write into repeated elements (``expand``) in which torch raised an error, or that
    changed more elements than it was given.
    """
    for step, failure in story.failures("overlap"):
        if is_repeated(story.tensor(failure.tensor, step) or {}):
            yield _finding(story, step, failure.tensor, None, failure)
    for found in shared_writes(story):
        if found.changed is not None and is_repeated(story.tensor(found.label, found.event.step) or {}):
            yield _finding(story, found.event.step, found.label, (found.written, found.changed), None)


def _finding(
    story: Story, step: int, label: str | None, counts: tuple[int, int] | None, failure: Failure | None
) -> Finding:
    span, record = story.span(step), story.tensor(label, step) or {}
    name, here = expression(story, label, step), at_line(story, span)
    shape, memory = tuple(record.get("shape") or ()), _numbers(record)
    happens = T(en="torch refuses to write", zh="torch 拒绝写入")
    if counts is not None:
        happens = T(
            en=f"{counts[0]} of them get a value, and {counts[1]} change",
            zh=f"给其中 {counts[0]} 个赋值，却有 {counts[1]} 个改变",
        )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} writes into {name.en}, which shows the same numbers several times: a change of "
            "one of them is a change of all its repetitions.",
            zh=f"{here.zh}写入 {name.zh}，而它是把同样的数重复显示了几次：改变其中一个，就是改变它所有的重复。",
        ),
        T(
            en=f"{capital(name.en)} has shape {shape} but only {memory} numbers in memory, because stretching it "
            f"copied nothing. At `{statement_text(story, span)}` {happens.en}.",
            zh=f"{name.zh} 的形状是 {shape}，但内存中只有 {memory} 个数，因为拉伸时什么也没有复制。在 "
            f"`{statement_text(story, span)}` 这里，{happens.zh}。",
        ),
        related=[
            story.related(
                "made", record.get("born"), T(en="it is stretched here, without a copy", zh="它在这里被拉伸，没有复制")
            ),
            story.related("changed", step, T(en="it is written here", zh="在这里被写入")),
        ],
        fixes=(
            *(_renewed(story, step) if failure is not None else ()),
            *copies(story, record.get("born"), label, later=failure is None),
        ),
        facts=[Fact("tensor", label, story.by(step)), Fact("numbers in memory", memory, story.by(step))],
        predicted=failure is not None and story.predicted(failure, step),
        severity="error" if failure is not None else "warning",
    )


def _numbers(record: Record) -> int:
    """Return the number of different elements in the storage, where a repeated dimension (stride 0) counts once."""
    pairs = zip(record.get("shape") or (), record.get("stride") or (), strict=True)
    return math.prod(length for length, step in pairs if step)


def _renewed(story: Story, step: int) -> tuple[Fix, ...]:
    """Return the fix that creates a new tensor on the line that writes: ``grid = grid + shift``; empty if there is
    none.
    """
    node, statement = story.program.at(story.span(step)), story.program.statement_at(story.span(step))
    fix = new_value(story.program, node, statement) if node is not None and statement is not None else None
    return (fix,) if fix is not None else ()


def copies(story: Story, born: int | None, label: str | None, *, later: bool) -> tuple[Fix, ...]:
    """Return at most one fix that copies the tensor ``label`` where the event at step ``born`` created it or, if that
    event has several results, on the next line, by the tensor's name.

    Empty if neither is possible. ``later`` is True if the copy changes later results, because later writes then change
    only one of the two tensors.
    """
    program = story.program
    node = program.at(story.span(born)) if program.tree else None
    if not isinstance(node, ast.expr):
        return ()
    meaning: Literal["same", "later"] = "later" if later else "same"
    maker, statement = story.event(born), program.statement(node)
    candidates = []
    if maker is not None and len(maker.results) == 1:
        fix = appended(program, (node, ".clone()"))
        candidates.append(Fix(fix.title, fix.edits, meaning=meaning))
    elif statement is not None and (name := story.name(label)):
        title = T(en=f"Give `{name}` memory of its own", zh=f"让 `{name}` 拥有自己的内存")
        candidates.append(Fix(title, program.insert_after(statement, f"{name} = {name}.clone()"), meaning=meaning))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL404",
    name="expanded-tensor-written",
    severity="warning",
    title=T(
        en="One element of an expanded tensor was written, and its repetitions changed too",
        zh="写入了扩展张量的一个元素，它的重复也一起改变",
    ),
    what=T(
        en="A program repeated a row, or a column, with `expand`, and then changed a part of the result. Nothing "
        "had been copied: all rows are the same numbers in memory, and all of them change. Copy first: "
        "`row.expand(2, 3).clone()`.",
        zh="程序用 `expand` 把一行（或一列）重复，然后修改结果的一部分。其实什么也没有复制：所有行都是内存中同样的数，"
        "于是全都改变了。请先复制：`row.expand(2, 3).clone()`。",
    ),
    why=T(
        en="`expand`, `expand_as`, `broadcast_to` and `meshgrid` answer with a *view*: the same memory, walked "
        "through with another rule. For a repeated axis the rule says that a step skips 0 elements (its *stride* is "
        "0), so `table[0, 1]` and `table[1, 1]` are one number. Reading is fine, and costs no memory. Torch refuses "
        "to write the whole tensor in place (*more than one element of the written-to tensor refers to a single "
        "memory location*), but writing one row of it, `fill_` or a mask are let through. `repeat` and `clone()` copy.",
        zh="`expand`、`expand_as`、`broadcast_to` 和 `meshgrid` 给出的是*视图*：同一块内存，用另一种规则走过。对于重复"
        "的轴，规则是走一步跨过 0 个元素（*步幅*为 0），所以 `table[0, 1]` 和 `table[1, 1]` 是同一个数。读取没有问题，"
        "也不占内存。就地写入整个张量会被 torch 拒绝（*more than one element of the written-to tensor refers to a "
        "single memory location*），但写入其中一行、`fill_` 或掩码却会放行。`repeat` 和 `clone()` 会复制。",
    ),
    bad="""import torch

row = torch.tensor([1.0, 2.0, 3.0])
w = torch.ones(2, 3, requires_grad=True)
table = row.expand(2, 3)  # made
table[0] = 0.0  # PL404 changed
loss = (w * table).sum()
loss.backward()
print(table)
""",
    good="""import torch

row = torch.tensor([1.0, 2.0, 3.0])
w = torch.ones(2, 3, requires_grad=True)
table = row.expand(2, 3).clone()
table[0] = 0.0
loss = (w * table).sum()
loss.backward()
print(table)
""",
    find=find,
    traps=(
        Trap(
            "row.expand(2, 3)",
            "row.clone().expand(2, 3)",
            T(
                en="Now `row` is safe, but the rows of `table` are still one row.",
                zh="现在 `row` 安全了，但 `table` 的各行仍是同一行。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.expand.html",
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
    ),
)
