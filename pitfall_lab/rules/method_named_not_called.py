"""PL609: ``loss.backward`` without parentheses names a method and does not call it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import T

LOST = {
    "backward": T(en="no gradient is computed", zh="没有计算任何梯度"),
    "step": T(en="nothing is updated", zh="什么都没有更新"),
    "zero_grad": T(en="the old gradients stay", zh="旧的梯度留着"),
    "eval": T(en="the model stays in training mode", zh="模型仍处在训练模式"),
    "train": T(en="the model keeps its mode", zh="模型的模式没有改变"),
    "requires_grad_": T(en="`requires_grad` is not switched on", zh="没有要求记录任何东西"),
    "detach_": T(en="nothing is cut off", zh="什么都没有断开"),
}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that only names a method of ``LOST`` whose call is needed (such as
    ``loss.backward``), where a statement of the same block ran.
    """
    program = story.program
    for node in program.nodes if program.tree is not None else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) and node.value.attr in LOST:
            block = program.block(node)
            later = block[block.index(node) + 1 :]
            ran = next((events[0].step for other in (*later, *block) if (events := story.within(other))), None)
            if ran is not None:
                yield _finding(story, node.value, ran)


def _finding(story: Story, named: ast.Attribute, step: int) -> Finding:
    program, place = story.program, story.program.place(named)
    text, here, lost = program.segment(named), at_line(story, place), LOST[named.attr]
    title = T(en=f"Call it: `{text}()`", zh=f"调用它：`{text}()`")
    return RULE.finding(
        place,
        step,
        T(
            en=f"{capital(here.en)} names `{text}` and does not call it: {lost.en}.",
            zh=f"{here.zh}只写出了 `{text}` 的名字，没有调用它：{lost.zh}。",
        ),
        T(
            en=f"A method runs when parentheses follow its name. `{text}` alone is the method itself: a value that "
            "this line computes and drops.",
            zh=f"方法名后面有括号才会执行。单独的 `{text}` 是这个方法本身：这一行算出这个值，随即丢掉。",
        ),
        related=[story.related("used", step, T(en="this ran without it", zh="这里在少了它的情况下执行"))],
        fixes=unique(program.text, [Fix(title, program.replace((named, f"{text}()")), meaning="later")]),
        facts=[Fact("named", text, story.by(step))],
    )


RULE = Rule(
    code="PL609",
    name="method-named-not-called",
    severity="warning",
    title=T(en="A step of the training is named and not called", zh="训练中的一步只写了名字，没有调用"),
    what=T(
        en="A line such as `loss.backward` has no parentheses, so it does nothing. Python does not complain, and the "
        "training continues without that step.",
        zh="像 `loss.backward` 这样的一行没有括号，所以什么也不做。Python 不会抱怨，训练就少了这一步继续进行。",
    ),
    why=T(
        en="Any expression may be a statement: Python computes it and drops the value. `loss.backward` is the method, "
        "bound to `loss`; only `loss.backward()` runs it. Without a backward pass every `.grad` stays `None`, and "
        "`step()` passes over parameters without a gradient in silence. Without `zero_grad()` gradients pile up; "
        "without `eval()` dropout and batch normalisation work as in training.",
        zh="任何表达式都可以单独成一条语句：Python 计算它，然后丢掉结果。`loss.backward` 是绑定在 `loss` 上的方法，只"
        "有 `loss.backward()` 才执行它。没有反向传播，每个 `.grad` 都一直是 `None`，而 `step()` 会默默跳过没有梯度的参"
        "数。没有 `zero_grad()`，梯度会堆积；没有 `eval()`，dropout 和批归一化会像训练时那样继续工作。",
    ),
    advice=T(
        en="add parentheses on {line}: {code} only names the method, and does not call it.",
        zh="请在{line}加上括号：{code} 只写了方法的名字，没有调用它。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward  # PL609
    opt.step()
    print(loss.item())  # used
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "    opt.step()\n",
            "    opt.step()\n    opt.step()\n",
            T(
                en="More updates change nothing: there is no gradient that they could use.",
                zh="多更新几次也没有用：没有可用的梯度。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",),
)
