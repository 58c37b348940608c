"""PL801: ``requires_grad`` was set for an integer tensor. Torch raises an error at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, statement_text
from pitfall_lab.trace import Event, Failure, T

SWITCHES = {"requires_grad", "requires_grad_"}
FACTORIES = {
    "tensor",
    "arange",
    "ones",
    "zeros",
    "full",
    "randint",
    "empty",
    "ones_like",
    "zeros_like",
    "full_like",
    "as_tensor",
}
"""Calls that accept ``requires_grad`` and may create integers."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call that sets ``requires_grad`` and in which torch raised an error because of the
    tensor's dtype.
    """
    for step, failure in story.failures("dtype"):
        event = story.event(step)
        if event is not None and _switches_on(event):
            yield _finding(story, event, failure)


def _switches_on(event: Event) -> bool:
    """Whether the call sets ``requires_grad``: by the attribute or the method, or by ``requires_grad=True`` of a
    factory function.
    """
    given = any(o.name == "requires_grad" and o.text == "True" for o in event.operands)
    return event.name in SWITCHES or (event.name in FACTORIES and given)


def _finding(story: Story, event: Event, failure: Failure) -> Finding:
    span = failure.span or story.span(event.step)
    tensor = story.tensor(failure.tensor, event.step)
    dtype = str((tensor or {}).get("dtype") or "")
    here = at_line(story, span)
    kind = T(en=f" of type `{dtype}`", zh=f"（类型 `{dtype}`）") if dtype else T(en="", zh="")
    related = [story.related("read", event.step, T(
        en=f"`{statement_text(story, span)}` sets `requires_grad`, and torch raises",
        zh=f"`{statement_text(story, span)}` 要求梯度，torch 报错",
    ))]  # fmt: skip
    born = (tensor or {}).get("born")
    if born is not None and born != event.step:
        related.insert(0, story.related("made", born, T(en="the whole numbers are made here", zh="整数张量在这里创建")))
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} sets `requires_grad` for integers{kind.en}; only floating-point and complex "
            "tensors can have a gradient.",
            zh=f"{here.zh}要求整数{kind.zh}的梯度；只有带小数的数才能有梯度。",
        ),
        T(
            en="A gradient says what happens when a number changes by a very small amount. Whole numbers cannot "
            "change by a small amount, so torch refuses. Python's `1` and `2` become a tensor of whole numbers; `1.0` "
            "and `2.0` become one of floating point numbers.",
            zh="梯度说的是：一个数变化一点点时会发生什么。整数不能只变化“一点点”，所以 torch 拒绝。Python 的 `1` 和 "
            "`2` 会变成整数张量，`1.0` 和 `2.0` 才会变成浮点张量。",
        ),
        related=related,
        fixes=_fixes(story, event),
        facts=[Fact("dtype", dtype or None, story.by(event.step))],
        predicted=story.predicted(failure, event.step),
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    name = torch_name(program) if program.tree else None
    node = program.at(story.span(event.step)) if program.tree else None
    if node is None or name is None:
        return ()
    return unique(program.text, [_typed(program, node, name), _converted(program, node)])


def _typed(program: Program, node: ast.AST, torch: str) -> Fix | None:
    """Return a fix that writes ``dtype=torch.float32`` where the tensor is created; None if that call has neither
    ``dtype`` nor ``requires_grad``, or only sets ``requires_grad``.
    """
    if not isinstance(node, ast.Call) or called(node) in SWITCHES:
        return None
    title = T(en="Make floating point numbers from the start", zh="一开始就创建浮点数")
    given = next((k for k in node.keywords if k.arg == "dtype"), None)
    if given is not None:
        return Fix(title, program.replace((given.value, f"{torch}.float32")))
    switch = next((k for k in node.keywords if k.arg == "requires_grad"), None)
    if switch is None:
        return None
    return Fix(title, program.replace((switch, f"dtype={torch}.float32, {program.segment(switch)}")))


def _converted(program: Program, node: ast.AST) -> Fix | None:
    """Return a fix that converts first: ``x = x.float().requires_grad_()``, or ``x.float().requires_grad_()`` in an
    expression; None for any other form.
    """
    statement = program.statement(node)
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        target = statement.targets[0].value
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        target = statement.value.func.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) == "requires_grad_":
        return Fix(_TITLE, program.replace((node.func.value, f"{program.segment(node.func.value)}.float()")))
    if statement is None or target is None or not isinstance(target, ast.Name):
        return None
    return Fix(_TITLE, program.replace((statement, f"{target.id} = {target.id}.float().requires_grad_()")))


_TITLE = T(en="Convert to floating point first", zh="先转换成浮点数")

RULE = Rule(
    code="PL801",
    name="integer-requires-grad",
    severity="error",
    title=T(en="`requires_grad` was set for integers", zh="对整数要求了梯度"),
    what=T(
        en="`requires_grad` was set for a tensor of integers. A gradient measures the effect of a very small change, "
        "and `1`, `2`, `3` cannot change a little. Write `1.0, 2.0, 3.0`, or convert the numbers first.",
        zh="对没有小数部分的数要求了梯度。梯度衡量极小变化的影响，而 `1`、`2`、`3` 不能只变一点点。请写成 `1.0, 2.0, "
        "3.0`，或先转换类型。",
    ),
    why=T(
        en="The type of a tensor (its `dtype`) is taken from what it is made of: Python integers give `int64`, and so "
        "do `torch.arange(3)`, `torch.randint(...)` and an index. Only floating point and complex types can have "
        "`requires_grad=True`. The same holds for what is computed: casting to an integer type (`x.long()`) ends the "
        "graph silently, because no gradient can pass through it.",
        zh="张量的类型（`dtype`）取自创建它的数据：Python 整数得到 `int64`，`torch.arange(3)`、`torch.randint(...)` 和"
        "下标也是。只有浮点和复数类型才能设置 `requires_grad=True`。计算中也一样：转换成整数类型（`x.long()`）会悄悄切"
        "断计算图，因为梯度无法通过它。",
    ),
    bad="""import torch

w = torch.tensor([1, 2, 3], requires_grad=True)  # PL801 read
loss = (w * w).sum()
loss.backward()
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = (w * w).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.tensor([1, 2, 3], requires_grad=True)",
            "torch.tensor([1, 2, 3])",
            T(
                en="Without the request the line runs, but then nothing is recorded: backward finds "
                "no graph and raises.",
                zh="去掉这个要求，这一行可以运行，但什么也不会被记录：反向传播找不到计算图而报错。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch-dtype",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad_.html",
    ),
)
