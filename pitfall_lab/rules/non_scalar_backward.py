"""PL507: backward was called on more than one number, without saying how the numbers count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Failure, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each backward that torch refused because it started from several numbers without a
    ``gradient``.

    Not for complex ones.
    """
    for step, failure in story.failures("nonscalar-backward"):
        if not str((story.tensor(failure.tensor, step) or {}).get("dtype")).startswith("complex"):
            yield _finding(story, step, failure)


def _finding(story: Story, step: int, failure: Failure) -> Finding:
    span = failure.span or story.span(step)
    shape = story.shape(failure.tensor, step)
    name = called(story, failure.tensor, None, step)
    here = at_line(story, span)
    size = " × ".join(str(n) for n in shape) if shape else ""
    holds = (
        T(en=f"holds {size} numbers", zh=f"有 {size} 个数") if size else T(en="holds several numbers", zh="有多个数")
    )
    born = (story.tensor(failure.tensor, step) or {}).get("born")
    related = [
        story.related(
            "backward", step, T(en="backward starts here, and torch raises", zh="反向传播从这里开始，torch 报错")
        )
    ]
    if born is not None:
        text = T(en=f"{name.en} is computed here: it {holds.en}", zh=f"{name.zh} 在这里算出：它{holds.zh}")
        related.insert(0, story.related("made", born, text))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} computes the gradient of {name.en}, which {holds.en}; a gradient "
            "belongs to one number.",
            zh=f"{here.zh}要求 {name.zh} 的梯度，但它{holds.zh}；梯度属于一个数。",
        ),
        T(
            en=f"A gradient says how one number changes when the inputs change. {capital(name.en)} {holds.en}, and "
            "each has a gradient of its own: torch would have to know how much each of them counts. Their sum or "
            "their mean is one number, and makes that choice visible.",
            zh=f"梯度说的是：输入变化时，一个数如何变化。{name.zh} {holds.zh}，每个都有自己的梯度：torch 需要知道各占"
            "多少。它们的和或平均值是一个数，也把这个选择写明了。",
        ),
        related=related,
        fixes=_fixes(story, step),
        facts=[Fact("shape", list(shape) if shape else None, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _fixes(story: Story, step: int) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(step)) if program.tree else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or call_name(node) != "backward":
        return ()
    start = node.func.value
    if isinstance(start, ast.Name) and start.id == "autograd":
        return ()
    text = operand(program, start)
    total = T(en="Let every number count once: go back from their sum", zh="每个数都算一份：从它们的和出发")
    mean = T(en="Go back from their mean", zh="从它们的平均值出发")
    candidates = [
        Fix(total, program.replace((start, f"{text}.sum()"))),
        Fix(mean, program.replace((start, f"{text}.mean()"))),
    ]
    return unique(program.text, candidates)


RULE = Rule(
    code="PL507",
    name="non-scalar-backward",
    severity="error",
    title=T(en="Backward was started from several numbers at once", zh="从多个数同时开始反向传播"),
    what=T(
        en="Backward was called on a result that holds several numbers. A gradient says how *one* number reacts to "
        "the inputs, so the numbers must be made into one first: their sum, or their mean.",
        zh="对一个含有多个数的结果求了梯度。梯度说的是*一个*数对输入的反应，所以要先把它们合成一个：求和，或求平均。",
    ),
    why=T(
        en="`backward()` computes the product of a row of weights with the derivatives of all outputs (a "
        "vector–Jacobian product). For one output the weight is 1 and need not be said. For several, "
        "`y.backward(weights)` says how much each counts; `y.sum().backward()` is the same as "
        "`y.backward(torch.ones_like(y))`. Sum and mean differ by a factor: with the mean, the size of the gradient "
        "does not depend on the number of examples. A loss that was meant to be one number and is not was often made "
        "with `reduction='none'`.",
        zh="`backward()` 计算一行权重与所有输出的导数之积（向量–雅可比积）。只有一个输出时，权重是 1，不必说明。有多个"
        "输出时，`y.backward(weights)` 说明各占多少；`y.sum().backward()` 等于 `y.backward(torch.ones_like(y))`。和与"
        "平均只差一个倍数：用平均时，梯度的大小与样本数无关。本该是一个数的损失却有多个数，常常是因为写了 "
        "`reduction='none'`。",
    ),
    advice=T(
        en="reduce the loss to one number with `.mean()` or `.sum()` before `backward()` on {backward}.",
        zh="在{backward}的 `backward()` 之前，用 `.mean()` 或 `.sum()` 把损失变成一个数。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = (w - 1.0) ** 2  # made
loss.backward()  # PL507 backward
print(w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = (w - 1.0) ** 2
loss.sum().backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss.backward()",
            "loss[0].backward()",
            T(
                en="Only the first number counts now: the others get a gradient of 0.",
                zh="现在只有第一个数算数：其余的梯度是 0。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.backward.html",
    ),
)
