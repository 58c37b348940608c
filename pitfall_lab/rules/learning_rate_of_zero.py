"""PL668: an optimizer makes many of its steps with a learning rate of exactly 0, so they change nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import OptimizerMade, Scheduler, T

FEWEST, PART = 2, 0.25
"""The number of steps at the beginning, or the share of all steps, that must be lost: warm-ups
usually begin with one step of 0.
"""


@dataclass(frozen=True, slots=True)
class LearningRateOfZero:
    """``optimizer`` is an optimizer (:class:`OptimizerMade`) that made ``lost`` steps with a learning rate of 0.

    ``late`` is False where they are its first steps, True where they come later. ``scheduler`` is the scheduler of this
    optimizer; None if it has none.
    """

    optimizer: OptimizerMade
    lost: int
    late: bool
    scheduler: Scheduler | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer that made at least ``FEWEST`` steps with a rate of 0 at its beginning, or
    more than ``FEWEST`` later ones, if it has a scheduler and these are at least the share ``PART`` of all its steps.

    Not where the rate 0 is written where the optimizer is made.
    """
    for place, optimizer in enumerate(story.trace.optimizers):
        scheduler = next((each for each in story.trace.beside.schedulers if each.optimizer == place), None)
        found = _still(optimizer, scheduler)
        if found is not None and not _is_meant(story, optimizer):
            yield _finding(story, found)


def _still(optimizer: OptimizerMade, scheduler: Scheduler | None) -> LearningRateOfZero | None:
    ends = [start for start, _ in optimizer.rates[1:]] + [optimizer.steps]
    lengths = [end - start if rate == 0 else 0 for (start, rate), end in zip(optimizer.rates, ends, strict=False)]
    if lengths and lengths[0] >= FEWEST:
        return LearningRateOfZero(optimizer, lengths[0], late=False, scheduler=scheduler)
    late = sum(lengths[1:])
    if scheduler is not None and late > FEWEST and late >= PART * optimizer.steps:
        return LearningRateOfZero(optimizer, late, late=True, scheduler=scheduler)
    return None


def _is_meant(story: Story, optimizer: OptimizerMade) -> bool:
    """Whether the call that makes the optimizer has a rate of 0 written in it."""
    call = call_of(story, optimizer.span)
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "lr")] if call is not None else []
    return any(isinstance(each, ast.Constant) and each.value == 0 for each in given)


def _finding(story: Story, found: LearningRateOfZero) -> Finding:
    optimizer, scheduler = found.optimizer, found.scheduler
    span = scheduler.span if scheduler is not None else optimizer.span
    here, there, kind = at_line(story, span), at_line(story, optimizer.span), optimizer.optimizer
    rates = ", ".join(number(rate) for _, rate in optimizer.rates[:6])
    which = T(en=f"{found.lost} of its {optimizer.steps}", zh=f"{optimizer.steps} 步中的 {found.lost} 步")
    if not found.late:
        every = found.lost == optimizer.steps
        which = T(
            en=f"all of its {optimizer.steps}" if every else f"the first {found.lost} of its {optimizer.steps}",
            zh=f"全部 {optimizer.steps} 步" if every else f"{optimizer.steps} 步中的前 {found.lost} 步",
        )
    made = scheduler.scheduler if scheduler is not None else ""
    setter = T(
        en=f"{capital(here.en)} makes a `{made}` that sets a learning rate of 0" if made else "The learning rate is 0",
        zh=f"{here.zh}创建的 `{made}` 把学习率设为 0" if made else "学习率是 0",
    )
    stepped = next(
        (
            step
            for step in story.trace.optimizer_steps
            if step.made is not None and story.trace.optimizers[step.made] is optimizer
        ),
        None,
    )
    still = T(en="steps with a rate of 0 change nothing", zh="学习率为 0 的步什么也不改变")
    related = [Related("made", optimizer.span, optimizer.step, T(en="the optimizer", zh="优化器"))]
    if stepped is not None:
        related.append(Related("step", stepped.span, stepped.step, still))
    return RULE.finding(
        span,
        scheduler.step if scheduler is not None else optimizer.step,
        T(
            en=f"{setter.en}: the `{kind}` of {there.en} makes {which.en} steps with it, and they change nothing.",
            zh=f"{setter.zh}：{there.zh}的 `{kind}` {which.zh}都用它，什么也没有改变。",
        ),
        T(
            en="A step is the gradient, or what the optimizer makes of it, times the learning rate. The rates were "
            f"{rates}. A factor of 0 comes from a division of whole numbers (`epoch // warmup`), from a warm-up that "
            "counts from 0 and is stepped once in an epoch, or from a schedule that is over before the training.",
            zh=f"每一步是梯度（或优化器由它得到的量）乘以学习率。用过的学习率是 {rates}。系数为 0 的原因可能是整数除法"
            "（`epoch // warmup`）、从 0 数起且每轮才步进一次的预热，或者在训练结束之前就已走完的调度。",
        ),
        related=related,
        fixes=_fixes(story.program, call_of(story, scheduler.span)) if scheduler is not None else (),
        facts=[Fact("lost", found.lost), Fact("steps", optimizer.steps)],
    )


def _fixes(program: Program, call: ast.Call | None) -> tuple[Fix, ...]:
    """Fixes of the function that a scheduler was given: a division that keeps fractions, a count that begins with 1, or
    both.

    Empty if the program's source shows no such function with a division.
    """
    given = [*call.args[1:], *(k.value for k in call.keywords)] if call is not None else []
    names = {each.id for each in given if isinstance(each, ast.Name)}
    functions = [n for n in program.nodes if isinstance(n, ast.FunctionDef) and n.name in names]
    fixes: list[Fix] = []
    made: list[ast.Lambda | ast.FunctionDef] = [*(each for each in given if isinstance(each, ast.Lambda)), *functions]
    for function in made:
        arguments = [a.arg for a in function.args.args]
        body = [
            n
            for part in (function.body if isinstance(function.body, list) else [function.body])
            for n in ast.walk(part)
        ]
        floors = [n for n in body if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv)]
        counted = [
            n.left
            for n in body
            if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div | ast.FloorDiv) and _is(n.left, arguments[:1])
        ]
        later = [(each, f"({program.segment(each)} + 1)") for each in counted]
        kept = [(each, f"{program.segment(each.left)} / {program.segment(each.right)}") for each in floors]
        both = [
            (each, f"({program.segment(each.left)} + 1) / {program.segment(each.right)}")
            for each in floors
            if each.left in counted
        ]
        for edits, title in (
            (kept, T(en="Divide without rounding", zh="做不取整的除法")),
            (later, T(en="Count from 1", zh="从 1 数起")),
            (both, T(en="Divide without rounding, and count from 1", zh="做不取整的除法，并从 1 数起")),
        ):
            if edits:
                fixes.append(Fix(title, program.replace(*edits), meaning="later"))
    return unique(program.text, fixes)


def _is(node: ast.expr, names: list[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


RULE = Rule(
    code="PL668",
    name="learning-rate-of-zero",
    severity="warning",
    title=T(en="An optimizer makes many steps with a learning rate of 0", zh="优化器有许多步的学习率为 0"),
    what=T(
        en="The size of an update is multiplied by a number that a schedule computes, and this number is 0 for a "
        "whole epoch or longer. Nothing is learned there, though the time is spent. Let a warm-up begin above 0.",
        zh="更新的大小要乘以一个由调度算出的数，而这个数在整整一轮或更久的时间里都是 0。时间花了，却什么也没学到。请让"
        "预热从大于 0 的值开始。",
    ),
    why=T(
        en="`LambdaLR` multiplies the optimizer's learning rate by what its function returns for the number of "
        "`step()` calls so far, which begins at 0: `lambda epoch: epoch / 5` gives 0 for the whole first epoch when "
        "the scheduler is stepped once in an epoch, and `//` gives 0 until the division reaches 1. An optimizer steps "
        "with 0 as with any other number.",
        zh="`LambdaLR` 把优化器的学习率乘以其函数的返回值，函数的参数是到目前为止 `step()` 的调用次数，从 0 开始：如果"
        "调度器每轮才步进一次，`lambda epoch: epoch / 5` 在整个第一轮都给出 0；而 `//` 在商达到 1 之前一直给出 0。对优"
        "化器来说，0 和别的数没有区别。",
    ),
    advice=T(
        en="print the learning rate in every epoch, and change what {line} makes so that it begins above 0 and "
        "ends with the training.",
        zh="在每一轮打印学习率，并修改{line}，使它从大于 0 的值开始，与训练一起结束。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)  # made
warm_up = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: min(1.0, epoch / 3))  # PL668
for epoch in range(3):
    for inputs, targets in zip(x.split(4), y.split(4)):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()  # step
    warm_up.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
warm_up = torch.optim.lr_scheduler.LambdaLR(opt, lambda epoch: min(1.0, (epoch + 1) / 3))
for epoch in range(3):
    for inputs, targets in zip(x.split(4), y.split(4)):
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        opt.zero_grad()
        loss.backward()
        opt.step()
    warm_up.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=10.0",
            T(
                en="A hundred times 0 is 0: the first epoch is lost as before, and the others diverge.",
                zh="0 的一百倍还是 0：第一轮照样白费，其余各轮则会发散。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html",),
)
