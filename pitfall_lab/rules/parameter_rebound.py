"""PL205: an update made a new tensor and gave it the parameter's name. The parameter itself is unchanged."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.rebinding import Rebinding, rebindings
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import OPERATORS, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that should change a parameter (``w = w - lr * w.grad``) and only gave its
    name to a new tensor.
    """
    for rebinding in rebindings(story):
        yield _finding(story, rebinding)


def _finding(story: Story, found: Rebinding) -> Finding:
    program, step = story.program, found.event.step
    span = program.place(found.statement)
    text = program.segment(found.statement.targets[0])
    here, leaf = at_line(story, span), story.tensor(found.leaf) or {}
    recorded = bool((story.tensor(found.result, step) or {}).get("requires_grad"))
    related = [
        story.related("leaf", leaf.get("born"), T(en="the parameter is made here", zh="参数在这里创建")),
        story.related(
            "made", step, T(en=f"a new tensor takes the name `{text}` here", zh=f"新的张量在这里得到名字 `{text}`")
        ),
    ]
    if found.trouble is not None and found.trouble != step:
        trouble = T(en="here the new tensor turns out to be no parameter", zh="在这里可以看到，新的张量并不是参数")
        related.append(story.related("used", found.trouble, trouble))
    failures = [failure for at, failure in story.failures("no-gradient") if at == found.trouble]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} does not change the parameter `{text}`: it computes a new tensor and moves the "
            f"name `{text}` to it.",
            zh=f"{here.zh}没有修改参数 `{text}`，而是算出一个新的张量，再把名字 `{text}` 移到它上面。",
        ),
        _explanation(found, text, recorded=recorded),
        related=related,
        fixes=_fixes(story, found, recorded=recorded),
        facts=[Fact("leaf", found.leaf, story.by(step)), Fact("result", found.result, story.by(step))],
        predicted=any(story.predicted(failure, found.trouble or 0) for failure in failures),
        severity="warning" if found.trouble is None else "error",
    )


def _explanation(found: Rebinding, text: str, *, recorded: bool) -> T:
    if found.trouble is None:
        return T(
            en=f"`{text}` is the name that the loop gives to one parameter after the other. `=` gives the "
            "name to something else, and the next round takes it away again: the new values are lost, and "
            "the model learns nothing.",
            zh=f"`{text}` 是循环依次给每个参数的名字。`=` 把这个名字给了别的东西，下一轮又被拿走：新的值丢失"
            "了，模型什么也没有学到。",
        )
    if recorded:
        return T(
            en=f"The subtraction was recorded, so what is called `{text}` now is a result. The next backward puts its "
            f"gradient into the old tensor at the beginning of the record, and `{text}.grad` is `None`.",
            zh=f"这次减法被记录下来，所以现在叫 `{text}` 的是一个结果。下一次反向传播把梯度放进记录开头的旧张量，"
            f"而 `{text}.grad` 是 `None`。",
        )
    return T(
        en="The new tensor was computed while recording was off, so it does not require gradients. The backward of "
        f"the next loss reaches no parameter there, because the tensor called `{text}` now is not a parameter.",
        zh="新的张量是在关闭记录时算出来的，所以没有谁要求它的梯度。从下一个损失再也回不到参数，因为现在叫 "
        f"`{text}` 的已经不是参数。",
    )


def _fixes(story: Story, found: Rebinding, *, recorded: bool) -> tuple[Fix, ...]:
    program, statement = story.program, found.statement
    text, torch = program.segment(statement.targets[0]), torch_name(program) or "torch"
    value = statement.value
    changed = f"{text}.copy_({program.segment(value)})"
    if isinstance(value, ast.BinOp) and type(value.op) in OPERATORS and program.segment(value.left) == text:
        changed = f"{text} {OPERATORS[type(value.op)]}= {program.segment(value.right)}"
    title = T(en=f"Change the parameter itself: `{changed}`", zh=f"修改参数本身：`{changed}`")
    if found.trouble is None:
        return unique(
            program.text, [Fix(title, _written(story, statement, [changed], torch, guarded=recorded), meaning="later")]
        )
    # the same update in the old way, through .data, shows what was meant
    old = [f"{text}.data = ({program.segment(value)}).detach()", f"{text}.grad = {torch}.zeros_like({text})"]
    reference = _written(story, statement, old, torch, guarded=False)
    cleared = T(en=f"{title.en}, and clear its gradient", zh=f"{title.zh}，并清空它的梯度")
    plain, with_clear = (
        _written(story, statement, lines, torch, guarded=recorded)
        for lines in ([changed], [changed, f"{text}.grad = None"])
    )
    return unique(program.text, [Fix(title, plain, reference=reference), Fix(cleared, with_clear, reference=reference)])


def _written(story: Story, statement: ast.Assign, lines: list[str], torch: str, *, guarded: bool) -> tuple[Edit, ...]:
    """Return edits that replace the statement by ``lines``, with ``guarded`` inside ``with torch.no_grad():``
    (``torch`` is the program's name for the module).

    Empty if the statement shares a line with another one.
    """
    program = story.program
    indent = program.indent(statement)
    if not program.stands_alone(statement):
        return ()
    if guarded:
        lines = [f"with {torch}.no_grad():", *(f"    {line}" for line in lines)]
    return program.replace((statement, f"\n{indent}".join(lines)))


RULE = Rule(
    code="PL205",
    name="parameter-rebound",
    severity="error",
    title=T(en="An update moved the parameter's name to a new tensor", zh="更新只是把参数的名字移到了新的张量上"),
    what=T(
        en="A program computed a parameter's next value and wrote `w = w - …`, which gives the name `w` to a new "
        "tensor. The parameter itself has not changed, and the new tensor is not one: in the next round there is no "
        "gradient, or the model does not learn. Change the parameter in place, under `torch.no_grad()`: `w -= …`.",
        zh="程序算出了参数的下一个值，并写成 `w = w - …`，这只是把名字 `w` 给了一个新的张量。参数本身没有变，而新的张"
        "量不是参数：下一轮就没有梯度，或者模型学不到东西。请在 `torch.no_grad()` 下就地修改参数：`w -= …`。",
    ),
    why=T(
        en="In Python `=` binds a name; it never changes the object that had the name before. A parameter is such an "
        "object: a *leaf*, made with `requires_grad=True`, into whose `.grad` `backward()` puts the gradient. `w - lr "
        "* w.grad` is a result. Recorded, it is no leaf and gets no `.grad`; under `no_grad` it does not require "
        "gradients at all. `for p in model.parameters(): p = …` only moves the loop's own name. `w -= …` writes into "
        "the memory of the leaf; torch wants `no_grad` around it, because the update is no part of the computation. "
        "Optimizers do exactly this.",
        zh="在 Python 中，`=` 只绑定名字，从不改变原来叫这个名字的对象。参数正是这样一个对象：用 "
        "`requires_grad=True` 创建的*叶子*，`backward()` 把梯度放进它的 `.grad`。`w - lr * w.grad` 则是一个结果："
        "被记录时，它不是叶子，也没有 `.grad`；在 `no_grad` 下，它根本不要求梯度。`for p in model.parameters(): p "
        "= …` 只是移动了循环自己的名字。`w -= …` 写入叶子的内存；torch 要求把它放在 `no_grad` 下，因为更新不是计算"
        "的一部分。优化器所做的正是这件事。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)  # leaf
for step in range(3):
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward()  # used
    with torch.no_grad():
        w = w - 0.05 * w.grad  # PL205 made
    print(w.item())
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
for step in range(3):
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.05 * w.grad
        w.grad = None
    print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "    loss.backward()",
            "    loss.requires_grad_()\n    loss.backward()",
            T(
                en="The error goes away, and with it the training: now the loss is the only tensor "
                "that gets a gradient.",
                zh="错误消失了，训练也随之消失：现在只有损失自己得到梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
