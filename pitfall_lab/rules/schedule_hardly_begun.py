"""PL674: a schedule made for as many steps as there are updates was stepped once for many of them, so it
has hardly begun at the end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, OptimizerStep, Scheduler, T

LENGTHS = {
    "OneCycleLR": "total_steps",
    "CosineAnnealingLR": "T_max",
    "LinearLR": "total_iters",
    "PolynomialLR": "total_iters",
}
"""The number of steps after which a schedule is over, by the name of the setting."""
FEWEST = 6


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each schedule made for exactly as many steps as the optimizer made, whose scheduler was
    stepped at most half as often and not after each of these steps.
    """
    for scheduler, optimizer in scheduled(story):
        planned = dict(scheduler.settings).get(LENGTHS.get(scheduler.scheduler, ""))
        if (
            planned is None
            or not optimizer.rates
            or len(scheduler.first) < 2
            or optimizer.steps != planned
            or planned < FEWEST
        ):
            continue
        one, other = scheduler.first[:2]
        if other.after - one.after > 1 and 2 * scheduler.steps <= planned:
            yield _finding(story, scheduler, optimizer, other.after - one.after)


def _finding(story: Story, scheduler: Scheduler, optimizer: OptimizerMade, between: int) -> Finding:
    first, updates, rates = scheduler.first[0], _updates(story, scheduler)[:1], [rate for _, rate in optimizer.rates]
    call = call_of(story, first.span)
    span = story.program.place(call) if call is not None else first.span
    here, there, last = at_line(story, span), at_line(story, scheduler.span), number(rates[-1])
    return RULE.finding(
        span,
        updates[0].step if updates else first.step,  # from the first update on another rate is right
        T(
            en=f"{capital(here.en)} steps the scheduler once for {between} updates, {scheduler.steps} times in all; "
            f"{there.en} made it for {optimizer.steps} steps, one for each update.",
            zh=f"{here.zh}每 {between} 次更新才让调度器步进一次，总共 {scheduler.steps} 次；{there.zh}是按 "
            f"{optimizer.steps} 步创建的，每次更新一步。",
        ),
        T(
            en=f"A scheduler counts the calls of its own `step()`, whatever they mean. After {scheduler.steps} of "
            f"{optimizer.steps} steps the schedule is still at its beginning: the rate was {number(rates[0])} at "
            f"first, and is {last} at the end of the training.",
            zh=f"调度器数的是自己的 `step()` 被调用的次数，不管那代表什么。{optimizer.steps} 步只走了 "
            f"{scheduler.steps} 步，调度仍停在开头：学习率起初是 {number(rates[0])}，训练结束时是 {last}。",
        ),
        related=[
            Related("made", scheduler.span, None, T(en="the schedule is made here", zh="调度在这里创建")),
            *(Related("step", each.span, each.step, T(en="an update here", zh="这里更新一次")) for each in updates),
        ],
        fixes=_fixes(story, scheduler, call),
        facts=[
            Fact("steps", scheduler.steps),
            Fact("planned", optimizer.steps),
            Fact("rates", rates[:12]),
            *rate_facts(optimizer),
        ],
    )


def _updates(story: Story, scheduler: Scheduler) -> list[OptimizerStep]:
    return [update for update in story.trace.optimizer_steps if update.made == scheduler.optimizer]


def _fixes(story: Story, scheduler: Scheduler, call: ast.Call | None) -> tuple[Fix, ...]:
    """Fixes that move the scheduler's step to after the optimizer's step; empty unless both are statements of one
    function.
    """
    program, updates = story.program, _updates(story, scheduler)
    statement, update = program.statement(call), program.statement_at(updates[0].span) if updates else None
    if not isinstance(statement, ast.Expr) or statement.value is not call or call is None or update is None:
        return ()
    if program.function(statement) is not program.function(update) or not program.stands_alone(update):
        return ()
    edits = merge(program.delete(statement), program.insert_after(update, program.segment(call)))
    title = T(
        en=f"Step after each update: `{program.segment(call)}`", zh=f"每次更新之后都步进：`{program.segment(call)}`"
    )
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL674",
    name="schedule-hardly-begun",
    severity="warning",
    title=T(
        en="A schedule made for all updates steps once in many of them",
        zh="按全部更新次数创建的调度，许多次更新才步进一次",
    ),
    what=T(
        en="A learning-rate schedule was made for as many steps as the training has updates, but its `step()` was "
        "called once in each epoch. At the end of the training it has hardly begun: the rate is still that of the "
        "warm-up, or has not fallen. Step it after each update.",
        zh="学习率调度是按训练的全部更新次数创建的，但每轮只调用一次 `step()`。训练结束时它才刚刚开始：学习率仍处在预"
        "热阶段，或者还没有下降。请在每次更新之后步进。",
    ),
    why=T(
        en="`OneCycleLR(total_steps=epochs * len(loader))`, `CosineAnnealingLR(T_max=…)` and others count calls of "
        "`scheduler.step()`. torch does not know what an epoch is, and does not say at the end that steps are left. "
        "One cycle starts at a rate far below `max_lr`, so training stays slow.",
        zh="`OneCycleLR(total_steps=epochs * len(loader))`、`CosineAnnealingLR(T_max=…)` 等数的是 "
        "`scheduler.step()` 的调用次数。torch 不知道什么是一轮，结束时也不会说还剩多少步。OneCycle 从远低于 "
        "`max_lr` 的学习率开始，所以训练一直很慢。",
    ),
    advice=T(
        en="call the scheduler's `step()` after each update, not on {line}.",
        zh="请在每次更新之后调用调度器的 `step()`，而不是在{line}。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.5, total_steps=3 * 4)  # made
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(3):
    for part, target in zip(x.split(4), y.split(4)):
        opt.zero_grad()
        loss = (model(part) - target).square().mean()
        loss.backward()
        opt.step()  # step
    schedule.step()  # PL674
    print(opt.param_groups[0]["lr"])
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.5, total_steps=3 * 4)
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(3):
    for part, target in zip(x.split(4), y.split(4)):
        opt.zero_grad()
        loss = (model(part) - target).square().mean()
        loss.backward()
        opt.step()
        schedule.step()
    print(opt.param_groups[0]["lr"])
""",
    find=find,
    traps=(
        Trap(
            "max_lr=0.5",
            "max_lr=5.0",
            T(en="A higher peak is not reached either.", zh="更高的峰值同样到不了。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html",),
)
