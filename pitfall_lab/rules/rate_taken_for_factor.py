"""PL666: a function given to LambdaLR returns learning rates, which are multiplied with
the optimizer's rate once more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, Scheduler, T

FEWEST = 4
CLOSE = 0.02
FUNCTION = 1
"""The position of the argument ``lr_lambda``."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``LambdaLR`` whose highest factor is about the optimizer's own rate, so that this is
    multiplied with itself.

    Only with at least ``FEWEST`` recorded rates, the highest of which is not the last.
    """
    for scheduler, optimizer in scheduled(story):
        base = dict(scheduler.settings).get("base_lr")
        rates = [rate for _, rate in optimizer.rates]
        if scheduler.scheduler != "LambdaLR" or base is None or not 0 < base < 1 or len(rates) < FEWEST:
            continue
        highest = max(rates)
        # A warm-up that the training ended in has its highest rate last, and that one may be any.
        if abs(highest / base - base) <= CLOSE * base and rates.index(highest) < len(rates) - 1:
            yield _finding(story, scheduler, optimizer, base, highest)


def _finding(story: Story, scheduler: Scheduler, optimizer: OptimizerMade, base: float, highest: float) -> Finding:
    call = call_of(story, scheduler.span)
    span = story.program.place(call) if call is not None else scheduler.span
    here, rate, top = at_line(story, span), number(base), number(highest)
    return RULE.finding(
        span,
        scheduler.step,
        T(
            en=f"{capital(here.en)} gives `LambdaLR` a function that returns learning rates: they are multiplied with "
            f"the optimizer's rate {rate} once more, so the highest rate that is used is {top}.",
            zh=f"{here.zh}给 `LambdaLR` 的函数返回的是学习率：它们会再乘以优化器的学习率 {rate}，所以实际用到"
            f"的最高学习率是 {top}。",
        ),
        T(
            en="`LambdaLR` takes a factor: the rate is that of the optimizer times what the function returns. At the "
            f"top of a schedule the factor is 1; here it is {rate}, the rate itself.",
            zh=f"`LambdaLR` 要的是系数：学习率等于优化器的学习率乘以函数的返回值。在调度的最高处系数应为 1，这里却是 "
            f"{rate}，即学习率本身。",
        ),
        fixes=_fixes(story, call, base),
        facts=[Fact("base", base), Fact("highest", highest), *rate_facts(optimizer)],
    )


def _fixes(story: Story, call: ast.Call | None, base: float) -> tuple[Fix, ...]:
    """The fix that divides what the function returns by the optimizer's rate; empty if the
    call does not show one function.
    """
    if call is None:
        return ()
    given = next(
        (k.value for k in call.keywords if k.arg == "lr_lambda"),
        call.args[FUNCTION] if len(call.args) > FUNCTION else None,
    )
    program = story.program
    rate = _written(program, base)
    if isinstance(given, ast.Lambda) and len(given.args.args) == 1:
        body = program.segment(given.body)
        new, place = f"({body}) / {rate}", given.body
    elif isinstance(given, ast.Name | ast.Attribute):
        new, place = f"lambda step: {program.segment(given)}(step) / {rate}", given
    else:
        return ()
    title = T(en=f"Return a factor: divide by the rate {rate}", zh=f"返回系数：除以学习率 {rate}")
    return unique(program.text, [Fix(title, program.replace((place, new)), meaning="later")])


def _written(program: Program, base: float) -> str:
    """The optimizer's rate as the program writes it: the name of the constant if it has one, else the number."""
    constants = {
        node.targets[0].id: node.value.value
        for node in program.nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    stored = [n.id for n in program.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    given = {
        each.value.id
        for node in program.nodes
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == "lr" and isinstance(each.value, ast.Name)
    }
    names = [name for name in given if constants.get(name) == base and stored.count(name) == 1]
    return names[0] if len(names) == 1 else f"{base:g}"


RULE = Rule(
    code="PL666",
    name="rate-taken-for-factor",
    severity="warning",
    title=T(en="LambdaLR is given rates instead of factors", zh="给 LambdaLR 的是学习率而不是系数"),
    what=T(
        en="A program writes a function that returns the learning rate of each step and gives it to `LambdaLR`, which "
        "multiplies it with the optimizer's learning rate. With a rate of 0.05 the training runs at 0.0025 at most. "
        "Return a factor, 1 at the top.",
        zh="程序写了一个返回每一步学习率的函数，并把它交给 `LambdaLR`，而后者会再乘以优化器的学习率。学习率为 0.05 "
        "时，训练最多只用到 0.0025。请返回系数，最高处为 1。",
    ),
    why=T(
        en="A scheduler starts from the rate that the optimizer has when it is made, `base_lrs`. `LambdaLR` computes "
        "`base_lr * f(step)`, so one optimizer may have groups with different rates and one schedule. Nothing is "
        "raised: a rate that is too small only trains slowly.",
        zh="调度器以创建时优化器的学习率（`base_lrs`）为起点。`LambdaLR` 计算 `base_lr * "
        "f(step)`，这样一个优化器的各参数组可以有不同的学习率"
        "而共用一个调度。不会报错：学习率太小只是训练得慢。",
    ),
    bad="""import torch

w = torch.ones(2, requires_grad=True)
rate = 0.05
opt = torch.optim.SGD([w], lr=rate)


def rate_at(step):
    return rate * (step + 1) / 4 if step < 4 else rate * (20 - step) / 16


scheduler = torch.optim.lr_scheduler.LambdaLR(opt, rate_at)  # PL666
for step in range(20):
    loss = (w - 3).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    scheduler.step()
print(w)
""",
    good="""import torch

w = torch.ones(2, requires_grad=True)
rate = 0.05
opt = torch.optim.SGD([w], lr=rate)


def factor_at(step):
    return (step + 1) / 4 if step < 4 else (20 - step) / 16


scheduler = torch.optim.lr_scheduler.LambdaLR(opt, factor_at)
for step in range(20):
    loss = (w - 3).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    scheduler.step()
print(w)
""",
    find=find,
    traps=(
        Trap(
            "LambdaLR(opt, rate_at)",
            "LambdaLR(opt, lambda step: rate_at(step))",
            T(en="The same function, given in another way.", zh="同一个函数，只是换了一种给法。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.LambdaLR.html",),
)
