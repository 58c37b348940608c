"""PL732: two rows were to be exchanged, but what was put aside was a view, which the
first assignment had overwritten.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, T

Place = tuple[str | None, str | None, str]
"""A tensor's memory and label of the index, and the index as text."""


@dataclass(frozen=True, slots=True)
class Swap:
    """``kept`` is the call (``Event``) that made a view of some elements of a tensor; ``first`` is the write that then
    overwrote these elements, and ``second`` the write of the view into another part of the tensor.
    """

    kept: Event
    first: Event
    second: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that writes a view into another part of its tensor after that part was written
    over the view's elements, as when two rows are exchanged; all swaps of one line together.
    """
    swaps: dict[object, list[Swap]] = defaultdict(list)
    writes = [event for event in story.calls("__setitem__", "copy_") if event.error is None]
    for number, second in enumerate(writes):
        source = _source(story, second)
        if source is None:
            continue
        for first in reversed(writes[:number]):
            other = _source(story, first) if first.step > source.step else None
            if other is None:
                break
            if _place(story, source) == _target(story, first) and _place(story, other) == _target(
                story, second
            ) != _target(story, first):
                swaps[story.span(second.step)].append(Swap(source, first, second))
                break
    for found in swaps.values():
        yield _finding(story, found)


def _source(story: Story, write: Event) -> Event | None:
    """The indexing call that made the value written by ``write``, if that value is a view on the
    storage that is written; else None.
    """
    label = write.operands[-1].label if len(write.operands) > 1 else None
    record = story.tensor(label, write.step) or {}
    event = story.event(record.get("born"))
    if event is not None and event.name in ("detach", "data") and event.operands:
        event = story.event((story.tensor(event.operands[0].label, event.step) or {}).get("born"))
    target = story.tensor(write.operands[0].label, write.step) or {}
    if event is None or event.name not in ("__getitem__", "select"):
        return None
    return event if record.get("storage") == target.get("storage") else None


def _place(story: Story, taken: Event) -> Place:
    index = taken.operands[1]
    storage = (story.tensor(taken.operands[0].label, taken.step) or {}).get("storage")
    return (storage, index.label, ",".join(o.text for o in taken.operands[1:]))


def _target(story: Story, write: Event) -> Place | None:
    """What a call wrote, as its storage and the label and the text of the index in ``x[index] = …``, or of the index
    that made the view which ``copy_`` wrote; None if that view was made otherwise.
    """
    if write.name == "copy_":
        made = story.event((story.tensor(write.operands[0].label, write.step) or {}).get("born"))
        return _place(story, made) if made is not None and made.name in ("__getitem__", "select") else None
    storage = (story.tensor(write.operands[0].label, write.step) or {}).get("storage")
    index = write.operands[1]
    return (storage, index.label, ",".join(o.text for o in write.operands[1:-1]))


def _finding(story: Story, swaps: list[Swap]) -> Finding:
    found, count = swaps[0], len(swaps)
    kept, first, second = found.kept, found.first, found.second
    here, name = at_line(story, story.span(second.step)), expression(story, second.operands[0].label, second.step)
    again = T(en=f", {count} times", zh=f"，共 {count} 次") if count > 1 else T(en="", zh="")
    return RULE.finding(
        story.span(second.step),
        second.step,
        T(
            en=f"{capital(here.en)} does not exchange two parts of {name.en}{again.en}: one of them is there twice "
            "now, and the other is lost.",
            zh=f"{here.zh}没有交换 {name.zh} 的两个部分{again.zh}：其中一个现在出现了两次，另一个丢失了。",
        ),
        T(
            en="Taking a row of a tensor copies nothing: it is a view, a window on the tensor's own memory. The first "
            "assignment writes into that memory, so the row that was to be kept already shows the new numbers when "
            "the second assignment reads it. A list exchanges references and would be right; a tensor needs a copy, "
            "or one index with both rows: `x[[i, j]] = x[[j, i]]`.",
            zh="取出张量的一行并不复制：它是一个视图，是对张量自身内存的一个窗口。第一次赋值写入了这块内存，所以第二次"
            "赋值读取时，本该留下的那一行已经是新的数。列表交换的是引用，所以是对的；张量需要一份副本，或者用一个包含"
            "两行的索引：`x[[i, j]] = x[[j, i]]`。",
        ),
        related=[
            story.related("alias", kept.step, T(en="this is a view, and no copy", zh="这是视图，不是副本")),
            story.related(
                "changed", first.step, T(en="what it shows is overwritten here", zh="它显示的内容在这里被覆盖")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("swaps", count, story.by(second.step))],
    )


def _fixes(story: Story, found: Swap) -> tuple[Fix, ...]:
    """Fixes that copy the part that is kept, or reorder rows by an index in place of Python's shuffle.

    Empty if the line has neither an index, a ``select`` nor a call with one argument.
    """
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(found.kept.step))
    if isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "select"
    ):
        return unique(program.text, [replace(appended(program, (node, ".clone()")), meaning="later")])
    statement = program.parents.get(node) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and isinstance(statement, ast.Expr) and len(node.args) == 1 and torch is not None:
        data = program.segment(node.args[0])
        new = f"{data} = {data}[{torch}.randperm(len({data}))]"
        title = T(en=f"Take the rows in a random order: `{new}`", zh=f"按随机次序取各行：`{new}`")
        return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL732",
    name="swapped-through-views",
    severity="warning",
    title=T(en="Two rows were to be exchanged, and one was lost", zh="想交换两行，却丢了一行"),
    what=T(
        en="A program exchanges two rows of a tensor as one exchanges two entries of a list, or shuffles them "
        "with Python's `random.shuffle`. Afterwards one row is there twice, and the other is gone, because "
        "the row that was put aside was a window on the tensor and not a copy. Copy it with `clone()`, or use "
        "`x[[i, j]] = x[[j, i]]`.",
        zh="程序像交换列表的两项那样交换张量的两行，或用 Python 的 `random.shuffle` 打乱它们。之后其中一行出现"
        "两次，另一行不见了，因为被放到一边的那一行只是对张量的窗口而不是副本。请用 `clone()` 复制，或写 "
        "`x[[i, j]] = x[[j, i]]`。",
    ),
    why=T(
        en="`x[0], x[1] = x[1], x[0]` first makes two views, then runs two assignments. Each assignment copies "
        "numbers into the memory of `x`. The first one changes what the second view shows. Indexing with a list of "
        "rows is different: it collects its rows into new memory before anything is written.",
        zh="`x[0], x[1] = x[1], x[0]` 先建立两个视图，再执行两次赋值。每次赋值都把数复制到 `x` 的内存里。第一次赋值就"
        "改变了第二个视图所显示的内容。用行号列表做索引则不同：它在写入之前就把各行收集到新的内存里。",
    ),
    bad="""import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
w = torch.ones(2, requires_grad=True)
x[0], x[1] = x[1], x[0]  # PL732
loss = (x @ w).square().mean()
loss.backward()
print(x, w.grad)
""",
    good="""import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
w = torch.ones(2, requires_grad=True)
x[0], x[1] = x[1], x[0].clone()
loss = (x @ w).square().mean()
loss.backward()
print(x, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "= x[1], x[0]",
            "= x[1].detach(), x[0].detach()",
            T(
                en="`detach()` is on the same memory too; only `clone()` copies.",
                zh="`detach()` 也在同一块内存上；只有 `clone()` 才复制。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_view.html",),
)
