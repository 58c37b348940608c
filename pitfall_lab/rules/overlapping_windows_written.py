"""PL405: windows that overlap were written, or one was read while another was written. They share elements."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.expanded_tensor_written import copies
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.overlaps import SharedWrite, is_repeated, shared_writes
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, statement_text
from pitfall_lab.trace import Event, Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each write into windows of one storage that share elements, and for each write that torch
    refused because it reads what it writes.

    Not for elements repeated by ``expand``: another rule reports these.
    """
    for step, failure in story.failures("overlap"):
        event = story.event(step)
        if event is not None and not is_repeated(story.tensor(failure.tensor, step) or {}):
            yield _refused(story, event, failure)
    for found in shared_writes(story):
        if not is_repeated(story.tensor(found.label, found.event.step) or {}):
            yield _finding(story, found)


def _refused(story: Story, event: Event, failure: Failure) -> Finding:
    span, step = story.span(event.step), event.step
    storage = (story.tensor(failure.tensor, step) or {}).get("storage")
    given = [o.label for o in event.operands if o.label and o.label != failure.tensor]
    read = next((label for label in given if (story.tensor(label, step) or {}).get("storage") == storage), None)
    born = (story.tensor(read, step) or {}).get("born")
    name, here = expression(story, read or failure.tensor, step), at_line(story, span)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} reads {name.en} and writes the same memory in another order or place: what is "
            "still to be read would be overwritten.",
            zh=f"{here.zh}一边读取 {name.zh}，一边以另外的次序或位置写入同一块内存：还没有读到的数会先被覆盖。",
        ),
        T(
            en=f"`{statement_text(story, span)}` goes through both at once, element by element. They are parts of "
            "one memory that overlap without being the same, so the result would depend on which element comes "
            "first. Torch refuses.",
            zh=f"`{statement_text(story, span)}` 逐个元素地同时走过两者。它们是同一块内存中互相重叠却不相同的两部分，"
            "结果会取决于谁先谁后。torch 拒绝这样做。",
        ),
        related=[
            story.related("alias", born, T(en="this part is read", zh="读取的是这一部分")),
            story.related("changed", step, T(en="torch raises here", zh="torch 在这里报错")),
        ],
        fixes=_read_copy(story, event, born),
        facts=[Fact("tensor", failure.tensor, story.by(step))],
        predicted=story.predicted(failure, step),
        severity="error",
    )


def _read_copy(story: Story, event: Event, born: int | None) -> tuple[Fix, ...]:
    """Fixes that read from a copy: ``a[1:] += a[:-1].clone()``."""
    program = story.program
    node, statement = (
        (program.at(story.span(born)), program.statement_at(story.span(event.step))) if program.tree else (None, None)
    )
    candidates = []
    if isinstance(node, ast.expr):
        candidates.append(appended(program, (node, ".clone()")))
    if isinstance(statement, ast.Assign | ast.AugAssign):
        candidates.append(appended(program, (statement.value, ".clone()")))
    return unique(program.text, candidates)


def _reached(found: SharedWrite) -> T:
    """The end of a sentence: what the write changes besides the elements that it should change."""
    if found.changed is None or found.places is None:
        return T(
            en=", which share places in memory: such a place is written several times.",
            zh="，它们共用内存中的位置：这样的位置会被写入好几次。",
        )
    if found.places < found.written:
        return T(
            en=f", which share {found.places} places in memory: a place is written once for each element that is "
            "there.",
            zh=f"，它们在内存中只占 {found.places} 个位置：一个位置上有几个元素，就会被写入几次。",
        )
    return T(
        en=f"; {found.changed} change, because others lie in the same places.",
        zh=f"；改变的却有 {found.changed} 个，因为其他元素也在这些位置上。",
    )


def _finding(story: Story, found: SharedWrite) -> Finding:
    step = found.event.step
    span, record = story.span(step), story.tensor(found.label, step) or {}
    name, here = expression(story, found.label, step), at_line(story, span)
    reached = _reached(found)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} writes into {name.en}, whose windows overlap: one place in memory is an element "
            "of several of them, and is changed for all, or several times.",
            zh=f"{here.zh}写入 {name.zh}，而它的各个窗口互相重叠：内存中的一处同时是好几个窗口的元素，会为所有窗口一起"
            "改变，或者改变好几次。",
        ),
        T(
            en=f"{capital(name.en)} has shape {tuple(record.get('shape') or ())}, but one step along each dimension "
            f"moves by only {', '.join(map(str, record.get('stride') or ()))} elements, so windows share elements. "
            f"`{statement_text(story, span)}` writes {found.written} elements{reached.en} Torch does not notice.",
            zh=f"{name.zh} 的形状是 {tuple(record.get('shape') or ())}，但沿各维走一步只跨过 "
            f"{', '.join(map(str, record.get('stride') or ()))} 个元素，所以窗口共用元素。"
            f"`{statement_text(story, span)}` 写入 {found.written} 个元素{reached.zh}torch 不会察觉。",
        ),
        related=[
            story.related(
                "made", record.get("born"), T(en="the overlapping windows are made here", zh="互相重叠的窗口在这里创建")
            ),
            story.related("changed", step, T(en="they are written here", zh="在这里被写入")),
        ],
        fixes=copies(story, record.get("born"), found.label, later=True),
        facts=[Fact("tensor", found.label, story.by(step)), Fact("stride", record.get("stride"), story.by(step))],
    )


RULE = Rule(
    code="PL405",
    name="overlapping-windows-written",
    severity="warning",
    title=T(en="Windows that share elements were written", zh="写入了共用元素的窗口"),
    what=T(
        en="A program cut a sequence into overlapping windows and changed them. The windows are not copies: "
        "neighbours share elements, so each element is changed as often as it is seen, and the numbers come out wrong "
        "without an error. Copy the windows first: `x.unfold(0, 3, 1).clone()`.",
        zh="程序把序列切成互相重叠的窗口，并修改它们。这些窗口并不是副本：相邻的窗口共用元素，每个元素被看到几次就被修"
        "改几次，结果是错的，却没有报错。请先复制窗口：`x.unfold(0, 3, 1).clone()`。",
    ),
    why=T(
        en="`unfold` and `as_strided` answer with a *view*: the same memory, walked through with another rule. With "
        "windows of length 3 at every position, the rule for both axes is one element per step, and `windows[0, 1]` "
        "and `windows[1, 0]` are the same place. An operation in place visits it twice. Torch recognises a repeated "
        "row and refuses to write it, and it refuses `a[1:] += a[:-1]`, where one operand is the target shifted "
        "(*some elements of the input tensor and the written-to tensor refer to a single memory location*); whether "
        "windows overlap it does not work out.",
        zh="`unfold` 和 `as_strided` 给出的是*视图*：同一块内存，用另一种规则走过。每个位置都取长度为 3 的窗口时，两个"
        "轴的规则都是走一步跨过一个元素，`windows[0, 1]` 和 `windows[1, 0]` 就是同一处。就地运算会访问它两次。torch 能"
        "认出重复的行并拒绝写入，也会拒绝 `a[1:] += a[:-1]`（一个操作数就是错开的目标：*some elements of the input "
        "tensor and the written-to tensor refer to a single memory location*）；但它不会去推算窗口是否重叠。",
    ),
    bad="""import torch

x = torch.arange(6.0)
w = torch.ones(4, 3, requires_grad=True)
windows = x.unfold(0, 3, 1)  # made
windows *= torch.tensor([0.5, 1.0, 0.5])  # PL405 changed
loss = (w * windows).sum()
loss.backward()
print(windows)
""",
    good="""import torch

x = torch.arange(6.0)
w = torch.ones(4, 3, requires_grad=True)
windows = x.unfold(0, 3, 1).clone()
windows *= torch.tensor([0.5, 1.0, 0.5])
loss = (w * windows).sum()
loss.backward()
print(windows)
""",
    find=find,
    traps=(
        Trap(
            "windows = x.unfold(0, 3, 1)",
            "windows = x.clone().unfold(0, 3, 1)",
            T(
                en="Now `x` keeps its values, but the windows still share elements with each other.",
                zh="现在 `x` 的值不变了，但各窗口之间仍然共用元素。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.unfold.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.as_strided.html",
    ),
)
