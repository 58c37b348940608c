"""PL707: a selection of elements was written. A mask or an index tensor selects a copy, so the write is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.copies import LostWrite, assigned_back, lost_writes, whole_expression, written_back
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import root
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import T

SELECTING = ("__getitem__", "index_select", "masked_select", "gather", "take", "take_along_dim")
"""Calls that select elements and may return a copy."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each write into the copy that a mask or an index tensor selects (``x[mask]``), if nothing
    reads the copy afterwards.
    """
    for lost in lost_writes(story, *SELECTING):
        yield _finding(story, lost)


def _finding(story: Story, lost: LostWrite) -> Finding:
    span = story.span(lost.write.step)
    source = _source(lost)
    made = whole_expression(lost)
    text = story.program.segment(made) if made is not None else statement_text(story, story.span(lost.copy.step))
    here = at_line(story, span)
    return RULE.finding(
        span,
        lost.write.step,
        T(
            en=f"{capital(here.en)} changes a copy of some elements of {source.en}; {source.en} itself "
            "keeps its old values.",
            zh=f"{here.zh}修改的是 {source.zh} 中部分元素的副本；{source.zh} 本身的值没有变。",
        ),
        T(
            en=f"`{text}` picks elements by a mask or by a list of positions. They need not be evenly spaced in "
            f"memory, so torch puts them into new memory. `{statement_text(story, span)}` writes there, and nothing "
            "reads that memory afterwards: the change is lost.",
            zh=f"`{text}` 用掩码或位置列表挑选元素。它们在内存中不一定均匀排列，所以 torch 把它们放进新的内存。"
            f"`{statement_text(story, span)}` 写入的是那里，之后没有任何地方读取它：这次修改丢失了。",
        ),
        related=[
            story.related(
                "copied", lost.copy.step, T(en="the selected elements are copied here", zh="选中的元素在这里被复制")
            ),
            story.related("changed", lost.write.step, T(en="only the copy is changed here", zh="这里只修改了副本")),
        ],
        fixes=_fixes(lost, made),
        facts=[
            Fact("source", lost.source, story.by(lost.copy.step)),
            Fact("copy", lost.copy.results[0], story.by(lost.copy.step)),
        ],
    )


def _source(lost: LostWrite) -> T:
    name = called(lost.story, lost.source, None, lost.copy.step)
    made = whole_expression(lost)
    if name.en.startswith("`") or made is None:
        return name
    text = lost.story.program.segment(root(made))
    return T(en=f"`{text}`", zh=f"`{text}`")


def _fixes(lost: LostWrite, made: ast.expr | None) -> tuple[Fix, ...]:
    program, statement = lost.story.program, lost.statement
    if not isinstance(made, ast.Subscript):
        return ()
    text = program.segment(made)
    candidates = [written_back(lost, text)] if lost.name else [assigned_back(lost, made)]
    if (
        lost.name is None
        and isinstance(statement, ast.Assign)
        and isinstance(target := statement.targets[0], ast.Subscript)
    ):
        inner = next((n for n in ast.walk(target) if isinstance(n, ast.Subscript) and n is not target), None)
        if (
            inner is not None
            and program.stands_alone(statement)
            and "part" not in {getattr(n, "id", "") for n in program.nodes}
        ):
            code = program.rewritten(statement, (inner, "part"))
            back = f"{program.segment(inner)} = part"
            title = T(
                en=f"Change the copy under a name and put it back: `{back}`", zh=f"给副本一个名字，修改后写回：`{back}`"
            )
            new = f"\n{program.indent(statement)}".join((f"part = {program.segment(inner)}", code, back))
            candidates.append(Fix(title, program.replace((statement, new)), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL707",
    name="indexed-copy-written",
    severity="warning",
    title=T(
        en="A change of selected elements went into a copy and was lost", zh="对选中元素的修改写进了副本，因而丢失"
    ),
    what=T(
        en="A program picked some elements out of a tensor with a mask or a list of positions, and changed what it "
        "had picked. It had picked a copy: the tensor itself keeps its old values, and there is no error. Write "
        "through the brackets instead, as in `x[mask] = 0` or `x[rows] += 1`.",
        zh="程序用掩码或位置列表从张量中挑出一些元素，并修改了挑出来的东西。挑出来的是副本：张量本身的值没有变，也没有"
        "报错。请通过方括号写入，例如 `x[mask] = 0` 或 `x[rows] += 1`。",
    ),
    why=T(
        en="There are two kinds of indexing. Numbers and slices (`x[0]`, `x[1:3]`, `x[:, None]`) describe evenly "
        "spaced memory; torch returns a *view*, another way to look at the same memory, and `x[1:3].zero_()` changes "
        "`x`. Masks, lists and index tensors (*advanced indexing*) may select any elements in any order; torch copies "
        "them. But an assignment to the brackets is another operation: `x[mask] = 0` calls `x.__setitem__`, which "
        "writes into `x` itself, whatever the index.",
        zh="索引有两种。数字和切片（`x[0]`、`x[1:3]`、`x[:, None]`）描述的是均匀间隔的内存；torch 给出*视图*，即看"
        "同一块内存的另一种方式，`x[1:3].zero_()` 会修改 `x`。掩码、列表和下标张量（*高级索引*）可以按任意次序要求"
        "任意元素；torch 会复制它们。而对方括号赋值是另一种运算：`x[mask] = 0` 调用 `x.__setitem__`，无论什么下"
        "标，都写入 `x` 本身。",
    ),
    bad="""import torch

x = torch.tensor([3.0, -1.0, 2.0, -4.0])
w = torch.tensor(1.0, requires_grad=True)
x[x < 0].zero_()  # PL707 copied changed
loss = (w * x).sum()
loss.backward()
print(x, w.grad)
""",
    good="""import torch

x = torch.tensor([3.0, -1.0, 2.0, -4.0])
w = torch.tensor(1.0, requires_grad=True)
x[x < 0] = 0
loss = (w * x).sum()
loss.backward()
print(x, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "x[x < 0].zero_()",
            "x[x < 0].data.zero_()",
            T(
                en="`.data` leads to the memory of the copy, not to that of `x`.",
                zh="`.data` 通向的是副本的内存，而不是 `x` 的内存。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html",
    ),
)
