"""PL406: ``view`` was given a shape for which a view of this tensor needs other strides than it can have. ``reshape``
would have copied.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.trace import Event, Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``view`` (or ``view_as``) that torch refused although the number of elements is
    right.
    """
    for step, failure in story.failures("shape"):
        event = story.event(step)
        shape = story.shape(failure.tensor, step)
        if (
            event is not None
            and event.name in ("view", "view_as")
            and shape is not None
            and _holds(story, event, math.prod(shape))
        ):
            yield _finding(story, event, failure)


def _holds(story: Story, event: Event, count: int) -> bool:
    """Whether the requested shape has ``count`` elements, or can have by its -1; if not, the mistake is another one.

    False if the text of the sizes cannot be read.
    """
    if event.name == "view_as":
        return math.prod(story.shape(event.operands[1].label, event.step) or ()) == count
    try:
        requested = [ast.literal_eval(o.text) for o in event.operands[1:] if o.label is None]
    except (SyntaxError, ValueError):
        return False
    sizes = [int(n) for part in requested for n in (part if isinstance(part, list | tuple) else [part])]
    known = math.prod(n for n in sizes if n != -1)
    return count % max(known, 1) == 0 if -1 in sizes else known == count


def _finding(story: Story, event: Event, failure: Failure) -> Finding:
    span, record = story.span(event.step), story.tensor(failure.tensor, event.step) or {}
    name, here = expression(story, failure.tensor, event.step), at_line(story, span)
    stride = ", ".join(str(n) for n in record.get("stride") or ())
    shape = tuple(record.get("shape") or ())
    maker = story.line_event(record.get("born"))
    related = [story.related("used", event.step, T(en="torch raises here", zh="torch 在这里报错"))]
    if maker is not None:
        how = f"`{snippet(story, maker.span)}`"
        related.insert(
            0,
            story.related(
                "made", maker.step, T(en=f"{how} gives the memory another order", zh=f"{how} 给了内存另一种次序")
            ),
        )
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} wants to see {name.en} in another shape without copying, but its elements are not "
            "stored in the order that this shape needs.",
            zh=f"{here.zh}想不经复制就以另一种形状来看 {name.zh}，但它的元素在内存中并不按这种形状所需的次序排列。",
        ),
        T(
            en=f"{capital(name.en)} has shape {shape}, and one step along each dimension moves by {stride} elements "
            "of memory. `view` only changes such steps, and no steps visit the elements in the order of the new "
            "shape. `reshape` copies in this case.",
            zh=f"{name.zh} 的形状是 {shape}，沿各维走一步分别跨过内存中的 {stride} 个元素。`view` 只能改变这些步幅，"
            "而没有哪种步幅能按新形状的次序走过这些元素。`reshape` 在这种情况下会复制。",
        ),
        related=related,
        fixes=_fixes(story, event),
        facts=[
            Fact("stride", record.get("stride"), story.by(event.step)),
            Fact("tensor", failure.tensor, story.by(event.step)),
        ],
        predicted=story.predicted(failure, event.step),
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or call_name(node) != event.name:
        return ()
    tensor, arguments = (
        program.segment(node.func.value),
        ", ".join(program.segment(a) for a in [*node.args, *node.keywords]),
    )
    new = "reshape" if event.name == "view" else "reshape_as"
    return unique(program.text, [
        Fix(T(en=f"Let torch copy where it must: `{new}`", zh=f"必要时让 torch 复制：`{new}`"),
            program.replace((node, f"{tensor}.{new}({arguments})"))),
        Fix(T(en="Put the elements in order first: `.contiguous()`", zh="先把元素排好次序：`.contiguous()`"),
            program.replace((node, f"{tensor}.contiguous().{event.name}({arguments})"))),
    ])  # fmt: skip


RULE = Rule(
    code="PL406",
    name="view-on-incompatible-strides",
    severity="error",
    title=T(en="A view in a shape that this memory does not allow", zh="要求了这块内存无法给出的视图"),
    what=T(
        en="A program turned a tensor around, with `t()`, `transpose` or `permute`, and then called `view` for "
        "another shape. The elements are still stored in the old order, and `view` never moves them, so torch "
        "refuses. Use `reshape`, which copies where it must.",
        zh="程序先用 `t()`、`transpose` 或 `permute` 把张量转了方向，再用 `view` 要求另一种形状。元素在内存中仍按原来"
        "的次序排列，而 `view` 从不移动它们，所以 torch 拒绝。请用 `reshape`，它在必要时会复制。",
    ),
    why=T(
        en="A tensor is memory and a rule for walking through it: its shape and its *strides*, how many elements a "
        "step along each dimension moves by. Transposing swaps two strides and touches no number. `view` looks for "
        "strides that walk through the same memory in the new shape; where a new dimension would have to jump "
        "unevenly there are none. `contiguous()` writes the elements into new memory in the order in which they are "
        "read; `reshape` is `view` where that works and a copy where it does not. Slices (`x[:, :2]`) and `expand` "
        "leave memory in such an order too.",
        zh="张量是一块内存加上在其中行走的规则：形状和*步幅*，即沿各维走一步跨过多少个元素。转置只交换两个步幅，不动任"
        "何数。`view` 寻找能以新形状走过同一块内存的步幅；如果新的一维需要不均匀地跳跃，就不存在这样的步幅。"
        "`contiguous()` 按读取的次序把元素写进新的内存；`reshape` 在可行时就是 `view`，不可行时就复制。切片（`x[:, "
        ":2]`）和 `expand` 也会留下这样的次序。",
    ),
    bad="""import torch

x = torch.arange(6.0).reshape(2, 3)
w = torch.arange(6.0, requires_grad=True)
turned = x.t()  # made
flat = turned.view(-1)  # PL406 used
loss = (flat * w).sum()
loss.backward()
print(w.grad)
""",
    good="""import torch

x = torch.arange(6.0).reshape(2, 3)
w = torch.arange(6.0, requires_grad=True)
turned = x.t()
flat = turned.reshape(-1)
loss = (flat * w).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "turned = x.t()",
            "turned = x.view(3, 2)",
            T(
                en="No error, but nothing was turned: `view` cuts the same row of numbers into other pieces, and they "
                "meet the wrong weights.",
                zh="不再报错，但也没有转置：`view` 只是把同一串数切成别的段，它们遇到的是错误的权重。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view.html",
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
    ),
)
