"""PL625: a loss was passed to the step of a scheduler that takes it for the number of the epoch."""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, Scheduler, T

BY_METRIC = {"ReduceLROnPlateau", "CosineAnnealingWarmRestarts", "CyclicLR", "SWALR"}
"""These take a metric, or a fraction of an epoch."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each scheduler whose ``step()`` was given a float or a tensor, which it takes for the
    epoch; not for those in ``BY_METRIC``, which take a metric or a part of an epoch.
    """
    for scheduler, optimizer in scheduled(story):
        if scheduler.count in ("float", "Tensor") and scheduler.scheduler not in BY_METRIC and scheduler.first:
            yield _finding(story, scheduler, optimizer)


def _finding(story: Story, scheduler: Scheduler, optimizer: OptimizerMade) -> Finding:
    rates = [rate for _, rate in optimizer.rates]
    first, call = scheduler.first[0], call_of(story, scheduler.first[0].span)
    span = story.program.place(call) if call is not None else first.span
    here, shown = at_line(story, span), ", ".join(number(rate) for rate in rates[:4])
    given = story.program.segment(call.args[0]) if call is not None and call.args else "epoch"
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} passes `{given}` to a `{scheduler.scheduler}`, which takes it for the number of "
            f"the epoch: the rates used are {shown}.",
            zh=f"{here.zh}把 `{given}` 传给 `{scheduler.scheduler}`，它把这当作轮数：实际用到的学习率是 {shown}。",
        ),
        T(
            en="Only `ReduceLROnPlateau` looks at a metric. The `step()` of other schedulers has an old parameter "
            "`epoch`, and computes the rate of that epoch; a loss of 0.7 is epoch 0.7.",
            zh="只有 `ReduceLROnPlateau` 看指标。其他调度器的 `step()` 有一个旧参数 `epoch`，按那一轮计算学习率；损失 "
            "0.7 就成了第 0.7 轮。",
        ),
        related=[Related("made", scheduler.span, None, T(en="the scheduler is made here", zh="调度器在这里创建"))],
        fixes=_fixes(story, scheduler),
        facts=[Fact("rates", rates[:12]), *rate_facts(optimizer)],
    )


def _fixes(story: Story, scheduler: Scheduler) -> tuple[Fix, ...]:
    call = call_of(story, scheduler.first[0].span)
    if call is None:
        return ()
    text = f"{story.program.segment(call.func)}()"
    title = T(en=f"Step without an argument: `{text}`", zh=f"不带参数地步进：`{text}`")
    return unique(story.program.text, [Fix(title, story.program.replace((call, text)), meaning="later")])


RULE = Rule(
    code="PL625",
    name="scheduler-given-a-loss",
    severity="warning",
    title=T(en="A loss was passed to a scheduler that takes it for an epoch", zh="把损失传给了会把它当作轮数的调度器"),
    what=T(
        en="A program calls `scheduler.step(loss)`. Most schedulers take this number for the epoch, so the learning "
        "rate follows the loss in a way that means nothing. Call `scheduler.step()`, or use `ReduceLROnPlateau`.",
        zh="程序调用了 `scheduler.step(loss)`。大多数调度器把这个数当作轮数，于是学习率以毫无意义的方式跟着损失变化。"
        "请调用 `scheduler.step()`，或使用 `ReduceLROnPlateau`。",
    ),
    why=T(
        en="`ReduceLROnPlateau.step(metric)` compares a metric with its best value. The other schedulers have "
        "`step(epoch=None)`, kept from old versions with a warning about the parameter: they set their counter to the "
        "argument and compute the rate for it.",
        zh="`ReduceLROnPlateau.step(metric)` 把指标与最好的值比较。其他调度器是 `step(epoch=None)`，这个从旧版本保留下"
        "来的参数只有一条警告：它们把计数器设成给定的值，再据此计算学习率。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)  # made
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    schedule.step(loss.item())  # PL625
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
            "loss.item()",
            "float(loss)",
            T(
                en="Another way to the same number, which is still taken for an epoch.",
                zh="换一种方式得到同一个数，仍被当作轮数。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html",),
)
