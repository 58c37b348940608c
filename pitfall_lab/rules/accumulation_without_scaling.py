"""PL604: gradients of several batches, each of a mean, were added up before one step: the
step is several times longer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

MEANS = (
    operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "mean", "nanmean", "nll_loss"}
)  # fmt: skip
"""Results that are a mean over the batch, unless ``reduction`` says otherwise."""


@dataclass(frozen=True, slots=True)
class Unscaled:
    """One line adds up the gradients of several batches before the first update of a parameter, without dividing them.

    ``backward`` is the first of these backwards (an ``Event``), ``count`` their number before the first update, and
    ``used`` the event of that update. ``divisor`` is the expression ``k`` of the condition ``… % k`` under which the
    update is made.
    """

    backward: Event
    used: Event
    count: int
    divisor: ast.expr


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose backwards add up the gradients of means over several batches before the
    first update of a parameter, where the number of batches is written in the program (``if (i + 1) % k == 0``).

    Nothing for programs that did not finish, or if the gradient is changed (scaled, clipped) before that update.
    """
    if story.program.tree is None or story.trace.outcome.kind != "finished":
        return
    reported = set()
    for moments in lives(story).values():
        found = _unscaled(story, moments)
        if found is not None and story.span(found.backward.step) not in reported:
            reported.add(story.span(found.backward.step))
            yield _finding(story, found)


def _unscaled(story: Story, moments: list[Moment]) -> Unscaled | None:
    added: list[Moment] = []
    for moment in moments:
        if moment.kind == "added":
            added.append(moment)
        elif moment.kind == "used" and added:
            break
        elif moment.kind in ("changed", "frozen"):
            return None  # the gradient may be scaled there
        elif moment.kind == "cleared":
            added = []
    else:
        return None
    if (
        len(added) < 2
        or len({story.span(m.step) for m in added}) != 1
        or not all(_is_mean(story, m.event) for m in added)
    ):
        return None
    divisor = _divisor(story, moment.event)
    return Unscaled(added[0].event, moment.event, len(added), divisor) if divisor is not None else None


def _is_mean(story: Story, backward: Event) -> bool:
    """Whether ``backward`` has no gradient argument and starts at the result of a call in ``MEANS``
    without another ``reduction``.
    """
    start = story.tensor(backward.operands[0].label, backward.step) if backward.operands else None
    made = story.event((start or {}).get("born"))
    if made is None or made.name not in MEANS or len(backward.operands) > 1:
        return False
    return not any(o.name == "reduction" and o.text.strip("'") != "mean" for o in made.operands)


def _divisor(story: Story, used: Event) -> ast.expr | None:
    """Return ``k`` of the first ``… % k`` in the test of an ``if`` around the optimizer's step or around a call that
    led to it; None if there is none.
    """
    for statement in call_chain(story, used):
        for around in story.program.ancestors(statement):
            if isinstance(around, ast.If):
                found = next(
                    (n for n in ast.walk(around.test) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)), None
                )
                if found is not None:
                    return found.right
    return None


def _finding(story: Story, found: Unscaled) -> Finding:
    program, step = story.program, found.backward.step
    span, stepped = story.span(step), at_line(story, story.span(found.used.step))
    here, k = at_line(story, span), program.segment(found.divisor)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} adds up the gradients of {found.count} batches before {stepped.en} uses them, and "
            f"each is a mean of its own: the step is {found.count} times as long as that of one large batch.",
            zh=f"{here.zh}累加了 {found.count} 个批次的梯度，之后{stepped.zh}才使用它们；而每个都是自己批次的平均值："
            f"这一步的长度是一个大批次的 {found.count} 倍。",
        ),
        T(
            en=f"The mean over {found.count} batches together is the sum of their means divided by "
            f"{found.count}. Nothing divides here. That is the same as a learning rate {found.count} times as "
            f"large, and changes with `{k}`.",
            zh=f"{found.count} 个批次合在一起的平均值，是各自平均值之和再除以 {found.count}。这里没有做这个除法。这等"
            f"于把学习率放大到 {found.count} 倍，并且会随 `{k}` 改变。",
        ),
        related=[
            story.related("backward", step, T(en="gradients are added up here", zh="梯度在这里累加")),
            story.related("step", found.used.step, T(en="the sum is used here", zh="它们的和在这里被使用")),
        ],
        fixes=_fixes(program, program.at(span), found.divisor),
        facts=[Fact("batches", found.count, story.by(step))],
    )


def _fixes(program: Program, call: ast.AST | None, divisor: ast.expr) -> tuple[Fix, ...]:
    if not isinstance(call, ast.Call) or call_name(call) != "backward" or not isinstance(call.func, ast.Attribute):
        return ()
    loss, k = call.func.value, operand(program, divisor)
    new = f"({program.segment(loss)} / {k}).backward()"
    title = T(en=f"Divide by the number of batches: `{new}`", zh=f"除以批次的个数：`{new}`")
    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])


RULE = Rule(
    code="PL604",
    name="accumulation-without-scaling",
    severity="info",
    title=T(
        en="Gradients of several batches were added up and not divided", zh="累加了几个批次的梯度，却没有除以批次数"
    ),
    what=T(
        en="A program saved memory by going through several small batches before each step, and added up their "
        "gradients. The sum of several means is not a mean: the step is as many times too long. Divide each loss: "
        "`(loss / 4).backward()`.",
        zh="程序为了节省内存，在每一步之前先处理几个小批次，并累加它们的梯度。几个平均值之和并不是平均值：批次有几个，"
        "步子就长了几倍。请把每个损失除以批次数：`(loss / 4).backward()`。",
    ),
    why=T(
        en="`backward()` adds to `.grad`, so several backwards before one `step()` give the sum of their gradients: "
        "*gradient accumulation*. Losses are means over their batch by default. The mean over all examples of k "
        "equally large batches is the sum of the k means divided by k, so each loss, or the learning rate, has to be "
        'divided by k. With `reduction="sum"` the total number of examples takes the place of k. Adam hides the '
        "factor, since it divides by the size of the gradients; clipping and weight decay do not.",
        zh="`backward()` 会加到 `.grad` 上，所以在一次 `step()` 之前做几次反向传播，得到的是梯度之和：这叫*梯度累"
        "积*。损失默认是对批次求平均。k 个同样大的批次，全部样本的平均值等于 k 个平均值之和除以 k，所以每个损失"
        '（或学习率）都要除以 k。若用 `reduction="sum"`，则除以样本总数。Adam 会掩盖这个倍数，因为它除以梯度的大'
        "小；梯度裁剪和权重衰减则不会。",
    ),
    advice=T(
        en="divide the loss by the number of batches before the backward on {backward}; if each batch was to have an "
        "update of its own, clear the gradients before each.",
        zh="在{backward}的反向传播之前把损失除以批次数；如果每个批次本该各自更新一次，就在每次之前清零。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
w = torch.tensor(0.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
steps = 4
for i in range(8):
    loss = torch.nn.functional.mse_loss(w * x[i], 2 * x[i])
    loss.backward()  # PL604 backward
    if (i + 1) % steps == 0:
        opt.step()  # step
        opt.zero_grad()
        print(f"{w.item():.3f}")
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
w = torch.tensor(0.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
steps = 4
for i in range(8):
    loss = torch.nn.functional.mse_loss(w * x[i], 2 * x[i])
    (loss / steps).backward()
    if (i + 1) % steps == 0:
        opt.step()
        opt.zero_grad()
        print(f"{w.item():.3f}")
""",
    find=find,
    traps=(
        Trap(
            "        opt.step()\n",
            "        loss = loss / steps\n        opt.step()\n",
            T(
                en="The division comes after the gradients: it changes a printed number and not the step.",
                zh="除法来得太晚，梯度已经算好了：它只改变打印的数，不改变步长。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.step.html",
    ),
)
