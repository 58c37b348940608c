"""PL341: a result was written in place after ``retain_grad()``, so its ``.grad`` is that of the value after the
write.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, writes
from pitfall_lab.rules.kit.training import BACKWARDS, cells
from pitfall_lab.rules.kit.wording import at_line, capital, differ, expression, flat, numbers_apart, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T

SHIFTS = ("Add", "Sub")
"""Prefixes of the names of graph nodes that do not change the gradient, at least if a number is added."""


@dataclass(frozen=True, slots=True)
class Later:
    """``asked`` is the call (``Event``) of ``retain_grad()`` on the tensor ``label`` (a label), ``write`` the call that
    then wrote the tensor in place, ``backward`` the backward after that, and ``read`` the call that read ``.grad``.

    ``got`` are the numbers of ``.grad``, which is the gradient of the value after the write, ``meant`` those of the
    gradient of the value before it; None if they are unknown.
    """

    label: str
    asked: Event
    write: Event
    backward: Event
    read: Event
    meant: object
    got: object


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that is the first to write a tensor in place after ``retain_grad()`` was called
    on it, if the ``.grad`` that is read differs from the gradient of the value before the write.

    If the trace does not have these numbers, any write other than an addition or subtraction counts. Only if the result
    of the write is used, or assigned to another variable, as if the old tensor were unchanged.
    """
    reported = set()
    for asked in story.calls("retain_grad"):
        label = asked.operands[0].label if asked.operands else None
        found = _later(story, asked, label) if label is not None else None
        if found is not None and (place := story.span(found.write.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding for the line of ``general``, a finding of another rule about a write there; None if
    this rule finds nothing on that line.
    """
    return next((finding for finding in find(story) if finding.span == general.span), None)


def _later(story: Story, asked: Event, label: str) -> Later | None:
    first = (story.tensor(label, asked.step) or {}).get("grad_fn")
    reads = [
        use
        for use in story.uses(label)
        if use.op == "torch.Tensor.grad.__get__" and use.step > asked.step and use.results
    ]
    for read in reads if first is not None else ():
        backward = next((b for b in reversed(story.backwards()) if b.step < read.step and b.op in BACKWARDS), None)
        changes = [
            (step, node) for step, node in story.history("tensors", label, "grad_fn") if asked.step < step < read.step
        ]
        if (
            backward is None
            or not changes
            or changes[0][0] > backward.step
            or (story.tensor(label, read.step) or {}).get("is_leaf")
        ):
            continue
        step, node = changes[0]
        write = story.line_event(step)
        meant = (story.record("nodes", first) or {}).get("gradient")
        got = cells(story, (story.tensor(read.results[0], read.step) or {}).get("storage"), read.step)
        if meant is not None and got is not None:
            harms = bool(differ(dict(flat(meant)), dict(flat(got))))
        else:
            harms = not str((story.record("nodes", node) or {}).get("name")).startswith(SHIFTS)
        if write is not None and harms and _gets_another_name(story, write, label):
            return Later(label, asked, write, backward, read, meant, got)
    return None


def _finding(story: Story, found: Later) -> Finding:
    write, span = found.write, story.span(found.write.step)
    name = expression(story, found.label, found.asked.step)
    here, asked, read = (at_line(story, story.span(e.step)) for e in (write, found.asked, found.read))
    known = found.meant is not None and found.got is not None
    got, meant = numbers_apart(found.got, found.meant)
    values = T(
        en=f" It is {got}; that of the value of {asked.en} is {meant}." if known else "",
        zh=f"它是 {got}；而{asked.zh}的值的梯度是 {meant}。" if known else "",
    )
    return RULE.finding(
        span,
        write.step,
        T(
            en=f"{capital(here.en)} writes into {name.en}, whose gradient {asked.en} retains: `.grad`, read on "
            f"{read.en}, is the gradient of the value after that write.",
            zh=f"{here.zh}写入 {name.zh}，而{asked.zh}要保留的正是它的梯度：{read.zh}读到的 `.grad` 是"
            "写入之后的值的梯度。",
        ),
        T(
            en=f"After `{statement_text(story, span)}` the tensor is the result of that operation, and "
            f"`retain_grad()` follows it: what arrives at {name.en} is recorded before it passes back through the "
            f"operation.{values.en}",
            zh=f"在 `{statement_text(story, span)}` 之后，这个张量就是该运算的结果，`retain_grad()` 也跟着它：记录的是"
            f"传到 {name.zh} 处、还没有经过该运算往回传的梯度。{values.zh}",
        ),
        related=[
            story.related("kept", found.asked.step, T(en="its gradient is to be retained", zh="这里要求保留它的梯度")),
            story.related("changed", write.step, T(en="it is written here", zh="在这里被写入")),
            story.related("read", found.read.step, T(en="the gradient is read here", zh="梯度在这里被读取")),
        ],
        fixes=_fixes(story, write),
        facts=[
            Fact("gradient", found.got, story.by(found.read.step)),
            Fact("meant", found.meant, story.by(found.backward.step)),
        ],
    )


def _gets_another_name(story: Story, write: Event, label: str) -> bool:
    """Whether the result of the write is used or assigned to another variable, as if the old tensor were unchanged.

    False for a statement that only writes, and for one that assigns the result to the old variable.
    """
    program = story.program
    node = program.at(story.span(write.step))
    statement = program.statement(node)
    if node is None or statement is None or isinstance(node, ast.Subscript | ast.stmt):
        return False
    if isinstance(statement, ast.Expr) and statement.value is node:
        return not isinstance(node, ast.Call) or not writes(node)
    names = {
        name for step, given in story.history("tensors", label, "names") if step < write.step for name in given or ()
    }
    targets = assigned(program, statement) if isinstance(statement, ast.Assign) and statement.value is node else set()
    written = written_as(story, write, label)
    return not targets & (names | ({program.segment(written)} if written is not None else set()))


def _fixes(story: Story, write: Event) -> tuple[Fix, ...]:
    """Fixes by which the operation creates a new tensor; empty if its statement cannot be written that way."""
    made = [fix for fix in changing_repairs(story.program, story, write.step) if fix is not None]
    return unique(story.program.text, [Fix(fix.title, fix.edits, meaning="later") for fix in made])


RULE = Rule(
    code="PL341",
    name="gradient-of-later-value",
    severity="warning",
    title=T(
        en="The gradient retained is that of the value after a write in place", zh="保留的梯度属于就地写入之后的值"
    ),
    what=T(
        en="A program wants to know how the loss depends on a result inside a network and calls `retain_grad()` on "
        "it. Then the result is changed in place, by `F.relu(h, inplace=True)` for instance, and `h.grad` answers for "
        "the changed result. Make a new tensor instead of writing into it.",
        zh="程序想知道损失如何依赖网络内部的一个结果，于是对它调用 `retain_grad()`。之后这个结果被就地修改，例如 "
        "`F.relu(h, inplace=True)`，而 `h.grad` 给出的是修改后的结果的梯度。请生成新的张量，不要写入它。",
    ),
    why=T(
        en="A tensor that requires grad has a `grad_fn`, the node of the operation that computed it. A write in "
        "place makes the tensor the result of the writing operation: the same object, with a new `grad_fn`. "
        "`retain_grad()` records the gradient that arrives at the tensor's present `grad_fn`, and moves along. "
        "The gradient of the old value is passed back to the old node and recorded nowhere. A hook of "
        "`register_hook` stays with the old value.",
        zh="需要梯度的张量都有 `grad_fn`，即算出它的运算在计算图中的节点。就地写入使这个张量成为写入运算的结果：还是同"
        "一个对象，`grad_fn` 却换了新的。`retain_grad()` 记录传到张量当前 `grad_fn` 的梯度，并随之移动。旧值的梯度传给"
        "旧节点，不在任何地方记录。而 `register_hook` 的钩子仍属于旧值。",
    ),
    advice=T(
        en="make a new tensor on {changed}, or call `retain_grad()` on a value that is not written.",
        zh="在{changed}生成新的张量，或者对不再写入的值调用 `retain_grad()`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, -2.0, 3.0])
w = torch.tensor([2.0, 2.0, 2.0], requires_grad=True)
h = w * x
h.retain_grad()  # kept
a = torch.nn.functional.relu(h, inplace=True)  # PL341 changed
(a * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(h.grad)  # read
""",
    good="""import torch

x = torch.tensor([1.0, -2.0, 3.0])
w = torch.tensor([2.0, 2.0, 2.0], requires_grad=True)
h = w * x
h.retain_grad()
a = torch.nn.functional.relu(h)
(a * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(h.grad)
""",
    find=find,
    refines=("PL968",),
    refine=refine,
    traps=(
        Trap(
            "print(h.grad)",
            "print(h.grad.clone())",
            T(en="A copy of the same gradient.", zh="只是同一个梯度的副本。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.retain_grad.html",),
)
