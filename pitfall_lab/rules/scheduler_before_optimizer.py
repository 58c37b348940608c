"""PL623: in each iteration the scheduler steps before the optimizer, so the first learning rate is never used."""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.reordering import meeting
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, OptimizerStep, Scheduler, T

ROUNDS = 2


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each scheduler that made its first steps just before the first steps of its optimizer, one
    before each.

    Not in programs with a ``GradScaler``, which may skip the optimizer's first step.
    """
    for scheduler, optimizer in scheduled(story):
        in_turn = [each.after for each in scheduler.first] == list(range(len(scheduler.first)))
        if (
            not in_turn
            or len(scheduler.first) < ROUNDS
            or optimizer.steps < ROUNDS
            or "GradScaler" in story.program.text
        ):
            continue  # a gradient scaler may skip the first step of the optimizer
        update = next((each for each in story.trace.optimizer_steps if each.made == scheduler.optimizer), None)
        if update is not None:
            yield _finding(story, scheduler, update, optimizer)


def _finding(story: Story, scheduler: Scheduler, update: OptimizerStep, optimizer: OptimizerMade) -> Finding:
    rate = optimizer.rates[0][1] if optimizer.rates else None
    span = scheduler.first[0].span
    here, there = at_line(story, span), at_line(story, update.span)
    used = T(
        en=f" The first update uses {number(rate)}." if rate is not None else "",
        zh=f"第一次更新用的是 {number(rate)}。" if rate is not None else "",
    )
    return RULE.finding(
        span,
        scheduler.first[0].step,
        T(
            en=f"{capital(here.en)} steps the scheduler before {there.en} steps the optimizer, so the first learning "
            "rate of the schedule is never used.",
            zh=f"{here.zh}在{there.zh}更新之前就让调度器步进，所以调度的第一个学习率从未使用。",
        ),
        T(
            en="Making a scheduler writes the first rate into the optimizer, and each `step()` the next "
            f"one.{used.en} The whole schedule is shifted by one step. The optimizer steps first.",
            zh=f"创建调度器时写入第一个学习率，每次 `step()` 写入下一个。{used.zh}整个调度被提前了一"
            "步。应当先让优化器更新。",
        ),
        related=[
            Related("step", update.span, None, T(en="the optimizer steps here, afterwards", zh="优化器在这之后才更新"))
        ],
        fixes=_fixes(story, scheduler, update),
        facts=[Fact("rate", rate), *rate_facts(optimizer)],
    )


def _fixes(story: Story, scheduler: Scheduler, update: OptimizerStep) -> tuple[Fix, ...]:
    program = story.program
    early, late = program.statement_at(scheduler.first[0].span), program.statement_at(update.span)
    pair = meeting(program, [early], [late]) if early is not None and late is not None else None
    if pair is None or pair[0].lineno > pair[1].lineno or not program.stands_alone(pair[0]) or pair[0] is not early:
        return ()
    text = program.segment(pair[0])
    edits = merge(program.insert_after(pair[1], text), program.delete(pair[0]))
    title = T(en=f"Move `{text}` after the optimizer's step", zh=f"把 `{text}` 移到优化器更新之后")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL623",
    name="scheduler-before-optimizer",
    severity="warning",
    title=T(en="The scheduler steps before the optimizer", zh="调度器在优化器更新之前步进"),
    what=T(
        en="In each round the learning-rate scheduler steps before the optimizer does. The first learning rate is "
        "skipped, and every later one comes a step too soon. Call `optimizer.step()` first, then `scheduler.step()`.",
        zh="每一轮里，学习率调度器都在优化器更新之前步进。第一个学习率被跳过，之后的每一个都早了一步。请先调用 "
        "`optimizer.step()`，再调用 `scheduler.step()`。",
    ),
    why=T(
        en="A scheduler writes the first rate when it is made, for the first update. Its `step()` writes the "
        "rate for the next one. torch warns once where the scheduler came first, since this order was the "
        "right one before version 1.1.",
        zh="调度器在创建时写入第一个学习率，供第一次更新使用；它的 `step()` 写入下一次的。如果调度器先步进，torch 会警"
        "告一次，因为在 1.1 版之前，这个顺序才是对的。",
    ),
    advice=T(
        en="step the scheduler on {line} after the update on {step}, not before it.",
        zh="让{line}的调度器在{step}的更新之后前进，而不是之前。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    schedule.step()  # PL623
    opt.step()  # step
    print(loss.item())
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
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    opt.zero_grad(set_to_none=False)\n",
            T(en="How gradients are cleared has no part in it.", zh="怎样清空梯度与此无关。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",),
)
