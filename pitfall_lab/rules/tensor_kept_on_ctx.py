"""PL109: a custom Function kept a tensor as ``ctx.x`` instead of ``save_for_backward``, and it was overwritten before
backward.

Found from the trace: inside the Function's backward a tensor was used that it had not saved, and whose storage was
written after the forward pass, with other numbers (a large tensor: by arithmetic with another tensor). Torch checks
only what is saved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.custom_functions import AssignedValue, Custom, applied, customs, inside
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import MODULES, root
from pitfall_lab.rules.kit.training import cells
from pitfall_lab.rules.kit.wording import at_line, called, capital, differ, flat, numbers, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMBINING = spellings("add", "sub", "mul", "div", in_place=True)
"""Calls of an element-wise arithmetic operation, also those in place."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each result of a custom Function whose backward read a tensor that was kept as an attribute
    of ``ctx`` and whose storage had been written, with other numbers, since forward.

    Only the first tensor that the backward read, and that is not saved, is judged.
    """
    for custom in customs(story.program) if story.program.tree else ():
        kept = custom.kept()
        for forward, node in applied(story, custom) if kept else ():
            for backward, use, label in _uses(story, custom, node, forward):
                attribute = _attribute(story, custom, use, label, kept)
                changed = _changed(story, label, forward.step, backward.step)
                if attribute is not None and changed is not None:
                    yield _finding(story, custom, (forward, changed, backward), attribute, label)
                    break


def _uses(story: Story, custom: Custom, node: str, forward: Event) -> Iterator[tuple[Event, Event, str]]:
    """Yield the backward that ran the node, each call in its ``backward`` with a tensor not saved for
    it, and that tensor's label.
    """
    record = story.record("nodes", node) or {}
    ran = story.event(record.get("ran"))
    backward = story.outer_call(ran.step) if ran is not None else None
    if backward is None:
        return
    saved = {each.get("storage") for each in record.get("saved", ())}
    own = {
        label
        for event in _run(story, custom, forward)
        for label in (*event.results, *(operand.label for operand in event.operands))
    }
    for event in story.events[backward.step + 1 :]:
        if event.parent is None:
            return
        for operand in event.operands if event.kind == "call" and inside(custom, event, "backward") else ():
            tensor = story.tensor(operand.label, forward.step)
            if (
                operand.label in own
                and operand.label is not None
                and tensor is not None
                and tensor.get("storage") not in saved
            ):
                yield backward, event, operand.label


def _run(story: Story, custom: Custom, last: Event) -> Iterator[Event]:
    """Yield, in reverse order, the calls of one execution of the custom Function's forward that ends with ``last``."""
    for event in reversed(story.events[: last.step + 1]):
        if not inside(custom, event, "forward"):
            return
        yield event


def _attribute(story: Story, custom: Custom, use: Event, label: str, kept: dict[str, AssignedValue]) -> str | None:
    """Return the attribute of ctx that the call in backward used: the one written as that operand,
    else the only one that is read.

    None if there is none.
    """
    ctx, names = custom.backward.args.args[0].arg, custom.names()
    place = next((i for i, operand in enumerate(use.operands) if operand.label == label), 0)
    given = _operands(story.program.at(story.span(use.step)))
    for node in given[place : place + 1]:
        here = root(node)
        name = names.get(here.id) if isinstance(here, ast.Name) else None
        if isinstance(here, ast.Attribute) and isinstance(here.value, ast.Name) and here.value.id == ctx:
            name = here.attr
        if name in kept:
            return name
    read = [name for name in kept if custom.read(name)]
    return read[0] if len(read) == 1 else None


def _operands(node: ast.AST | None) -> list[ast.expr]:
    """Return the operands of a call in the source; for a method, the tensor before the dot comes first."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    is_method = isinstance(node.func, ast.Attribute) and not (
        isinstance(node.func.value, ast.Name) and node.func.value.id in MODULES
    )
    return [*([node.func.value] if is_method and isinstance(node.func, ast.Attribute) else []), *node.args]


def _changed(story: Story, label: str, after: int, until: int) -> int | None:
    """Return the first step between the two that wrote the tensor's storage, if its values changed in between; else
    None. Of a large tensor, whose values are not in the trace, the first step that added or multiplied another tensor.
    """
    storage = (story.tensor(label, after) or {}).get("storage")
    steps = story.writes(storage, after, until) if storage else ()
    before, now = (dict(flat(cells(story, storage, step))) for step in (after, until))
    if not before and not now:
        return next((step for step in steps if _combines(story.events[step])), None)
    return steps[0] if steps and differ(before, now) else None


def _combines(event: Event) -> bool:
    """Whether a write adds another tensor to what it overwrites, or multiplies it by one: then its values change."""
    return event.name in COMBINING and any(operand.label for operand in event.operands[1:])


def _finding(story: Story, custom: Custom, events: tuple[Event, int, Event], attribute: str, label: str) -> Finding:
    forward, changed, backward = events
    what = called(story, label, None, backward.step)
    kept = story.program.place(custom.kept()[attribute].statement)
    here, later, keeps = (at_line(story, span) for span in (story.span(changed), story.span(backward.step), kept))
    code = statement_text(story, story.span(changed))
    storage = (story.tensor(label, forward.step) or {}).get("storage")
    old, new = (cells(story, storage, step) for step in (forward.step, backward.step))
    values = (
        T(
            en=f" It held {numbers(old)}, and holds {numbers(new)} when backward reads it.",
            zh=f"它原来是 {numbers(old)}，反向传播读取时是 {numbers(new)}。",
        )
        if old and new
        else T("", "")
    )
    return RULE.finding(
        story.span(changed),
        changed,
        T(
            en=f"{capital(here.en)} overwrites {what.en}, which `{custom.name}` kept as `{custom.ctx}.{attribute}` "
            f"for its backward: the gradient on {later.en} is computed from the new values.",
            zh=f"{here.zh}覆盖了 {what.zh}，而 `{custom.name}` 把它留在 `{custom.ctx}.{attribute}` 里供反向传播使用："
            f"{later.zh}的梯度由新值算出。",
        ),
        T(
            en=f"On {keeps.en} the forward pass keeps the tensor itself as an attribute: its memory, no copy. "
            f"`{code}` on {here.en} writes into that memory.{values.en} What is kept with `save_for_backward` is "
            "checked for such writes; an attribute is not, so there is no error.",
            zh=f"在{keeps.zh}，前向计算把张量本身作为属性留下：是它的内存，不是副本。{here.zh}的 `{code}` 写进了这块内"
            "存。"
            f"{values.zh}用 `save_for_backward` 留下的东西会被检查是否有这样的写入，属性则不会，所以没有报错。",
        ),
        related=[
            Related(
                "kept",
                kept,
                forward.step,
                T(en=f"{what.en} is kept here, unchecked", zh=f"{what.zh} 在这里被留下，不受检查"),
            ),
            story.related(
                "changed", changed, T(en=f"its memory is written here: `{code}`", zh=f"它的内存在这里被写入：`{code}`")
            ),
            story.related(
                "backward", backward.step, T(en="backward reads the new values here", zh="反向传播在这里读到新值")
            ),
        ],
        fixes=_fixes(story, custom, attribute, changed),
        facts=[Fact("tensor", label), Fact("storage", storage)],
    )


def _fixes(story: Story, custom: Custom, attribute: str, changed: int) -> tuple[Fix, ...]:
    """Fixes that save the tensor with ``save_for_backward`` and do not overwrite it, checked against the
    gradients that a copy gives.

    Empty if the write cannot be written otherwise.
    """
    program, kept = story.program, custom.kept()[attribute]
    value = program.segment(kept.value)
    reference = program.replace((kept.value, f"{value}.clone()"))
    saves = any(isinstance(n, ast.Attribute) and n.attr == "save_for_backward" for n in ast.walk(custom.keeper))
    ctx = custom.backward.args.args[0].arg
    saved = program.replace(
        (kept.statement, _saving(program, custom, kept)),
        *((node, f"{ctx}.saved_tensors[0]") for node in custom.read(attribute)),
    )
    found = []
    for fix in changing_repairs(program, story, changed):
        edits = merge(fix.edits, saved) if fix is not None and not saves else None
        if fix is not None and edits:
            title = T(
                en=f"{fix.title.en}, and keep `{value}` with `save_for_backward`, which checks",
                zh=f"{fix.title.zh}，并用会检查的 `save_for_backward` 留下 `{value}`",
            )
            found.append(Fix(title, edits, reference=reference))
        elif fix is not None:
            found.append(Fix(fix.title, fix.edits, reference=reference))
    return unique(program.text, found)


def _saving(program: Program, custom: Custom, kept: AssignedValue) -> str:
    """Code that saves the tensor by ``ctx.save_for_backward``, followed by the other
    assignments of the replaced statement.
    """
    saves = f"{custom.ctx}.save_for_backward({program.segment(kept.value)})"
    targets, values = kept.statement.targets[0], kept.statement.value
    if not isinstance(targets, ast.Tuple | ast.List) or not isinstance(values, ast.Tuple | ast.List):
        return saves
    others = [(one, other) for one, other in zip(targets.elts, values.elts, strict=True) if other is not kept.value]
    sides = (", ".join(program.segment(pair[side]) for pair in others) for side in (0, 1))
    return f"{saves}\n{program.indent(kept.statement)}{' = '.join(sides)}"


RULE = Rule(
    code="PL109",
    name="tensor-kept-on-ctx",
    severity="warning",
    title=T(
        en="A custom Function kept a tensor where torch does not check it",
        zh="自定义 Function 把张量留在 torch 不检查的地方",
    ),
    what=T(
        en="An operation of your own kept one of its tensors for backward as an attribute, and the tensor was "
        "overwritten before `backward()`. The gradient is computed from the new numbers. There is no error, because "
        "only tensors that are kept with `save_for_backward` are checked.",
        zh="你自己写的运算把一个张量作为属性记下来，留给反向传播使用，而这个张量在 `backward()` 之前被覆盖了。梯度由新"
        "的数算出。没有报错，因为只有用 `save_for_backward` 留下的张量才会被检查。",
    ),
    why=T(
        en="The first parameter of `forward` and `backward`, usually called `ctx`, carries what one passes to the "
        "other. Numbers and shapes may be kept as attributes. Tensors belong in `ctx.save_for_backward(…)` and come "
        "back as `ctx.saved_tensors`: torch then remembers their *version*, a number that grows with each write in "
        "place, compares it when they are read again, and frees them after backward. An attribute does none of this: "
        "wrong gradients go unnoticed, and an output kept as an attribute refers back to the graph that holds it, so "
        "its memory is not freed in time.",
        zh="`forward` 和 `backward` 的第一个参数，通常叫 `ctx`，携带前者交给后者的东西。数和形状可以作为属性保留。张量"
        "应该放进 `ctx.save_for_backward(…)`，再由 `ctx.saved_tensors` 取回：这样 torch 会记住它们的*版本*（每次就地写"
        "入就增大的一个数），在取回时比较，并在反向传播之后释放它们。属性什么都不做：错误的梯度不会被发现，而且作为属"
        "性留下的输出会反过来指向持有它的计算图，内存不能及时释放。",
    ),
    advice=T(
        en="keep the tensor of {kept} with `ctx.save_for_backward`, which checks for writes, and do not overwrite "
        "{tensor} on {changed}.",
        zh="用会检查写入的 `ctx.save_for_backward` 保存{kept}的张量，并且不要在{changed}改写 {tensor}。",
    ),
    bad="""import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x  # kept
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.x * gradient


w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
y = Square.apply(h)
h.add_(10)  # PL109 changed
y.sum().backward()  # backward
print(w.grad)
""",
    good="""import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


w = torch.tensor([1.0, 2.0], requires_grad=True)
h = w * 3
y = Square.apply(h)
h = h + 10
y.sum().backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "ctx.x = x",
            "ctx.x = x.detach()",
            T(
                en="`detach()` is the same memory: what is written into `h` is still read by backward.",
                zh="`detach()` 得到的是同一块内存：写进 `h` 的东西照样会被反向传播读到。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-autograd",
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.function.FunctionCtx.save_for_backward.html",
    ),
)
