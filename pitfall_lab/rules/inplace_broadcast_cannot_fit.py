"""PL403: the result of an in-place operation is larger than the tensor into which it would be written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import METHOD_OPERATORS, OPERATORS, operand
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, Failure, T

Shape = tuple[int, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each in-place operation in which torch raised an error because both operands broadcast to
    another shape than that of the tensor to be written.
    """
    for step, failure in story.failures("shape"):
        event = story.event(step)
        if event is None or event.name not in METHOD_OPERATORS or not event.operands[1:]:
            continue
        shapes = [story.shape(o.label, step) for o in event.operands[:2]]
        if shapes[0] is not None and shapes[1] is not None:
            result = _broadcast(shapes[0], shapes[1])
            if result is not None and result != shapes[0]:
                yield _finding(story, event, failure, (shapes[0], shapes[1], result))


def _broadcast(one: Shape, other: Shape) -> Shape | None:
    """Return the shape to which both broadcast; None if they do not broadcast."""
    length = max(len(one), len(other))
    pairs = zip((1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other, strict=True)
    result = []
    for a, b in pairs:
        if a != b and 1 not in (a, b):
            return None
        result.append(b if a == 1 else a)
    return tuple(result)


def _finding(story: Story, event: Event, failure: Failure, shapes: tuple[Shape, Shape, Shape]) -> Finding:
    step, span = event.step, story.span(event.step)
    here = at_line(story, span)
    born = [(story.tensor(o.label, step) or {}).get("born") for o in event.operands[:2]]
    target, other = (expression(story, o.label, step) for o in event.operands[:2])
    into, added, result = (str(shape) for shape in shapes)
    related = [story.related("read", step, T(en="torch raises here", zh="torch 在这里报错"))]
    for name, at, shape in ((other, born[1], added), (target, born[0], into)):
        if at is not None and at != step:
            text = T(en=f"{name.en} is made here, of shape {shape}", zh=f"{name.zh} 在这里创建，形状是 {shape}")
            related.insert(0, story.related("made", at, text))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} should write a result of shape {result} into {target.en}, which has room "
            f"for shape {into} only.",
            zh=f"{here.zh}要把形状为 {result} 的结果写进 {target.zh}，但它只容得下形状 {into}。",
        ),
        T(
            en=f"{capital(target.en)} has shape {into} and {other.en} has shape {added}. To combine them torch "
            f"stretches both to {result}. An operation in place keeps the memory of its target, and that cannot grow.",
            zh=f"{target.zh} 的形状是 {into}，{other.zh} 的形状是 {added}。为了相互运算，torch 把两者都拉伸到 "
            f"{result}。就地运算沿用目标的内存，而这块内存不能变大。",
        ),
        related=related,
        fixes=_fixes(story, event),
        facts=[Fact("shape", list(shapes[2]), story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that compute a new tensor: ``a = a + b`` for ``a += b`` and ``a.add_(b)``;
    empty for any other statement.
    """
    program = story.program
    statement = program.statement_at(story.span(event.step)) if program.tree else None
    target: ast.expr | None = None
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
        target, value, sign = statement.target, statement.value, OPERATORS[type(statement.op)]
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        call = statement.value
        if call_name(call) not in METHOD_OPERATORS or len(call.args) != 1 or call.keywords:
            return ()
        target, value, sign = statement.value.func.value, call.args[0], METHOD_OPERATORS[call_name(call)]
    if statement is None or not isinstance(target, ast.Name | ast.Attribute):
        return ()
    text = program.segment(target)
    new = f"{text} = {text} {sign} {operand(program, value)}"
    return unique(
        program.text,
        [
            Fix(
                T(en=f"Make a new, larger result: `{new}`", zh=f"得到一个新的、更大的结果：`{new}`"),
                program.replace((statement, new)),
            )
        ],
    )


RULE = Rule(
    code="PL403",
    name="inplace-broadcast-cannot-fit",
    severity="error",
    title=T(en="A result is too large for the tensor it is written into", zh="结果太大，写不进目标张量"),
    what=T(
        en="A tensor was changed with `+=` (or the like), but the result has more numbers than the tensor has room "
        "for. Write `a = a + b` if the result is meant to be larger, or sum the other tensor up first if it is not.",
        zh="用 `+=` 之类修改张量，但结果的数比张量能容纳的多。如果结果本来就该更大，请写 `a = a + b`；否则"
        "请先把另一个张量求和。",
    ),
    why=T(
        en="Two tensors of different *shapes* are combined by *broadcasting*: shapes are lined up from the right, and "
        "a dimension of length 1, or a missing one, is stretched. `a + b` puts the result into new memory of the "
        "stretched shape. `a += b`, `a.add_(b)` and the like write it into the memory of `a`: there `b` may be "
        "stretched, but `a` may not.",
        zh="不同*形状*的两个张量通过*广播*相互运算：形状从右边对齐，长度为 1 或缺少的维度被拉伸。`a + b` 把结果放进拉"
        "伸后形状的新内存。`a += b`、`a.add_(b)` 等则写进 `a` 的内存：这时 `b` 可以被拉伸，`a` 不可以。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)  # made
scores = torch.zeros(2, 1)  # made
scores += w  # PL403 read
loss = (scores**2).sum()
loss.backward()
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
scores = torch.zeros(2, 1)
scores = scores + w
loss = (scores**2).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "scores += w",
            "scores.expand(2, 3).add_(w)",
            T(
                en="`expand` shows the two numbers three times without making room: several results would go to one "
                "place, and torch refuses.",
                zh="`expand` 只是把两个数各显示三次，并没有腾出空间：多个结果要写到同一处，torch 会拒绝。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/notes/broadcasting.html#in-place-semantics",),
)
