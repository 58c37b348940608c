"""PL619: a learning-rate scheduler was made and never stepped, so the rate stays unchanged."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of, made_as, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, OptimizerStep, Scheduler, T

ROUNDS = 3


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer that made at least ``ROUNDS`` steps with one rate, though a scheduler was
    made for it and none of its schedulers stepped.

    Nothing if the program has a call of ``step`` that is no recorded step of an optimizer, since it may be the
    scheduler's.
    """
    reported = set()
    stepped = {scheduler.optimizer for scheduler in story.trace.beside.schedulers if scheduler.steps}
    for scheduler, optimizer in scheduled(story):
        number_of = scheduler.optimizer
        if (
            number_of in stepped
            or number_of in reported
            or optimizer.steps < ROUNDS
            or len(optimizer.rates) != 1
            or _may_step(story)
        ):
            continue
        update = next((each for each in story.trace.optimizer_steps if each.made == number_of), None)
        if update is not None:
            reported.add(number_of)
            yield _finding(story, scheduler, optimizer, update)


def _may_step(story: Story) -> bool:
    """Whether the program has a call of ``step`` that is no recorded step of an optimizer: it may be the
    scheduler's.
    """
    steps = [call_of(story, update.span) for update in story.trace.optimizer_steps]
    known = {id(call) for call in steps if call is not None}
    return any(isinstance(n, ast.Call) and called(n) == "step" and id(n) not in known for n in story.program.nodes)


def _finding(story: Story, scheduler: Scheduler, optimizer: OptimizerMade, update: OptimizerStep) -> Finding:
    here, there, rate = at_line(story, scheduler.span), at_line(story, update.span), number(optimizer.rates[0][1])
    return RULE.finding(
        scheduler.span,
        update.step,
        T(
            en=f"{capital(here.en)} makes a scheduler and nothing ever calls its `step()`: all {optimizer.steps} "
            f"steps on {there.en} use the learning rate {rate}.",
            zh=f"{here.zh}创建了调度器，却从来没有调用它的 `step()`：{there.zh}的全部 {optimizer.steps} 次更新"
            f"都使用学习率 {rate}。",
        ),
        T(
            en="A scheduler does not run by itself. Each call of its `step()` computes the next learning rate and "
            "writes it into the optimizer; the optimizer itself never calls the scheduler.",
            zh="调度器不会自己运行。每次调用它的 `step()`，才会算出下一个学习率并写进优化器；优化器对它一无所知。",
        ),
        related=[
            Related(
                "step", update.span, None, T(en="every step here uses one rate", zh="这里的每次更新都用同一个学习率")
            )
        ],
        fixes=_fixes(story, scheduler, update),
        facts=[Fact("rate", optimizer.rates[0][1]), Fact("steps", optimizer.steps), *rate_facts(optimizer)],
    )


def _fixes(story: Story, scheduler: Scheduler, update: OptimizerStep) -> tuple[Fix, ...]:
    """Fixes that add ``step()`` at the end of the outermost loop around the optimizer's
    step in the scheduler's function.

    Empty if there is no such loop, or if the program reads the scheduler's name anywhere.
    """
    program, made = story.program, made_as(story, scheduler.span)
    if made is None:
        return ()
    statement, name = made
    loads = (n for n in program.nodes if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Load))
    used = any(program.segment(n) == name for n in loads)
    chain = list(call_chain(story, story.event(update.step))) or [
        s for s in (program.statement_at(update.span),) if s is not None
    ]
    loops = [a for each in chain for a in program.ancestors(each) if isinstance(a, ast.For | ast.While)]
    seen = [loop for loop in loops if program.function(loop) is program.function(statement)]
    if used or not seen:
        return ()
    title = T(en=f"Step it once in each round: `{name}.step()`", zh=f"每一轮步进一次：`{name}.step()`")
    return unique(
        program.text, [Fix(title, program.insert_after(seen[-1].body[-1], f"{name}.step()"), meaning="later")]
    )


RULE = Rule(
    code="PL619",
    name="scheduler-never-stepped",
    severity="warning",
    title=T(en="A learning-rate scheduler is never stepped", zh="学习率调度器从未步进"),
    what=T(
        en="A program makes a learning-rate scheduler and forgets to call its `step()`. The training runs with the "
        "first learning rate to its end. Call `scheduler.step()` once in each round, after the optimizer's step.",
        zh="程序创建了学习率调度器，却忘了调用它的 `step()`。训练从头到尾都用最初的学习率。请在每一轮里、优化器更新之"
        "后调用一次 `scheduler.step()`。",
    ),
    why=T(
        en="A scheduler is an object of its own: it holds the optimizer and counts its own steps. Making one "
        "writes the first rate; each `step()` writes the next one into `param_groups`. Without these calls "
        "the rate never changes.",
        zh="调度器是优化器之外的一个对象：它持有优化器，并数自己的步数。创建时写入最初的学习率；每次 `step()` 把下一个"
        "写进 `param_groups`。没有这些调用，torch 里没有任何东西会再用到它。",
    ),
    advice=T(
        en="step the scheduler of {line} once in each round, after {step}.",
        zh="每一轮在{step}之后让{line}的调度器前进一步。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)  # PL619
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()  # step
print(opt.param_groups[0]["lr"])
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    schedule.step()
print(opt.param_groups[0]["lr"])
""",
    find=find,
    traps=(
        Trap(
            "gamma=0.5",
            "gamma=0.1",
            T(en="Another factor for steps that never come.", zh="步进从不发生，换一个系数也没有用。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",),
)
