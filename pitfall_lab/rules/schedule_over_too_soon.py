"""PL621: a scheduler made for epochs steps at every batch, so its schedule is over long before the training."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import Loop, call_of, loops_around, only_call, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, Scheduler, T

FEWEST = 6
NOTHING = 1e-3
"""A learning rate below this part of the highest one no longer trains."""
RISE = 0.05


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each scheduler stepped in a nested loop whose rate rose again after the schedule's end, or
    was near 0 for half of the optimizer's steps or more.

    Only for optimizers with at least ``FEWEST`` steps.
    """
    for scheduler, optimizer in scheduled(story):
        if optimizer.steps < FEWEST or not scheduler.first:
            continue
        call = call_of(story, scheduler.first[0].span)
        loops = loops_around(story.program, call)
        if call is None or len(loops) < 2:
            continue
        if _rose_again(scheduler, optimizer) and _for_epochs(story, scheduler, loops):
            yield _finding(story, scheduler, optimizer, call, rose=True)
        elif _came_to_nothing(optimizer):
            yield _finding(story, scheduler, optimizer, call, rose=False)


def _rose_again(scheduler: Scheduler, optimizer: OptimizerMade) -> bool:
    """Whether a ``CosineAnnealingLR`` was stepped twice ``T_max`` times or more and the rate rose
    again after its lowest value.
    """
    end = dict(scheduler.settings).get("T_max")
    rates = [rate for _, rate in optimizer.rates]
    if scheduler.scheduler != "CosineAnnealingLR" or end is None or scheduler.steps < 2 * end or not rates:
        return False
    least = rates.index(min(rates))
    return max(rates[least:]) - rates[least] > RISE * max(rates)


def _for_epochs(story: Story, scheduler: Scheduler, loops: list[Loop]) -> bool:
    """Whether the schedule was made for epochs: it is shorter than one pass over the data, exactly as long as the
    number of passes, or written like the outer loop's length.
    """
    end, passes = dict(scheduler.settings).get("T_max", 0), len(story.trace.beside.passes)
    each = Counter(one.dataset for one in story.trace.beside.passes)
    call, outer = call_of(story, scheduler.span), loops[-1]
    given = (
        [story.program.segment(n) for n in [*call.args, *(k.value for k in call.keywords)]] if call is not None else []
    )
    rounds = outer.iter if isinstance(outer, ast.For) else None
    ends = {story.program.segment(a) for a in rounds.args} if isinstance(rounds, ast.Call) else set()
    is_as_long = passes > 1 and (end in each.values() or end < scheduler.steps / passes)
    return bool(ends & set(given)) or is_as_long


def _came_to_nothing(optimizer: OptimizerMade) -> bool:
    """Whether the learning rate was close to 0 in at least half of the steps."""
    highest = max((rate for _, rate in optimizer.rates), default=0.0)
    low = 0
    for (start, rate), following in zip(optimizer.rates, [*optimizer.rates[1:], (optimizer.steps, 0.0)], strict=True):
        low += following[0] - start if rate < NOTHING * highest else 0
    return highest > 0 and 2 * low >= optimizer.steps


def _finding(story: Story, scheduler: Scheduler, optimizer: OptimizerMade, call: ast.Call, *, rose: bool) -> Finding:
    first, rates = scheduler.first[0], [rate for _, rate in optimizer.rates]
    here, end = at_line(story, first.span), dict(scheduler.settings).get("T_max")
    shown = ", ".join(number(rate) for rate in rates[:6])
    what = (
        T(
            en=f"its cosine ends after {number(end)} of them, and then the learning rate rises again.",
            zh=f"余弦曲线在 {number(end)} 步之后就结束了，此后学习率又升上去。",
        )
        if rose
        else T(
            en=f"at least half of the {optimizer.steps} updates have a learning rate of almost nothing (at the end "
            f"{number(rates[-1])}).",
            zh=f"{optimizer.steps} 次更新中至少有一半的学习率几乎为零（最后是 {number(rates[-1])}）。",
        )
    )
    return RULE.finding(
        story.program.place(call),
        first.step,
        T(
            en=f"{capital(here.en)} steps the scheduler at every batch, {scheduler.steps} times: {what.en}",
            zh=f"{here.zh}在每个批次都让调度器步进，共 {scheduler.steps} 次：{what.zh}",
        ),
        T(
            en="A scheduler counts the calls of its own `step()`, whatever they mean. The rates that were used are "
            f"{shown}, …. Where its numbers are epochs, it steps once after each epoch.",
            zh=f"调度器数的是自己的 `step()` 被调用的次数，不管那代表什么。实际用过的学习率是 {shown}……。如果它的参数"
            "以轮（epoch）为单位，就应当每轮之后步进一次。",
        ),
        related=[Related("made", scheduler.span, None, T(en="the schedule is made here", zh="调度在这里创建"))],
        fixes=_fixes(story, call),
        facts=[Fact("steps", scheduler.steps), Fact("rates", rates[:12]), *rate_facts(optimizer)],
    )


def _fixes(story: Story, call: ast.Call) -> tuple[Fix, ...]:
    """Fixes that move the scheduler's step to after the innermost loop or, from the end of a function's body, to after
    the loop around the only call of the function.

    Empty if the step is no statement directly in such a loop or function.
    """
    program, statement = story.program, story.program.statement(call)
    loop = next((a for a in program.ancestors(call) if isinstance(a, ast.For | ast.While)), None)
    if not isinstance(statement, ast.Expr) or not program.stands_alone(statement):
        return ()
    block = program.block(statement)
    title = T(
        en=f"Step after the inner loop: move `{program.segment(call)}` out",
        zh=f"在内层循环之后步进：把 `{program.segment(call)}` 移出去",
    )
    if loop is not None and block is loop.body and len(block) > 1:
        return unique(program.text, [Fix(title, (_moved_out(program, statement, loop),), meaning="later")])
    function = program.function(call)
    if function is None or block is not function.body or len(block) < 2:
        return ()
    edits = _moved_to_the_caller(program, statement, function)
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()


def _moved_to_the_caller(program: Program, statement: ast.Expr, function: Function) -> tuple[Edit, ...] | None:
    """Edits that move a statement of a function to after the innermost loop around the only call of the function; None
    if there is no such loop, or if the statement's names may mean something else there.
    """
    site = only_call(program, function)
    around = next((a for a in program.ancestors(site) if isinstance(a, Loop)), None) if site is not None else None
    place, caller = (program.statement(around), program.function(site)) if around and site is not None else (None, None)
    roots = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    own = {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    first = next(iter(given), "")
    is_method = (
        site is not None
        and caller is not None
        and isinstance(site.func, ast.Attribute)
        and isinstance(site.func.value, ast.Name)
        and site.func.value.id == first == next((each.arg for each in caller.args.args), "")
    )
    local = {*own, *given} - ({first} if is_method else set())
    if place is None or roots & local or not program.stands_alone(place):
        return None
    return merge(program.delete(statement), program.insert_after(place, program.segment(statement)))


def _moved_out(program: Program, statement: ast.stmt, loop: ast.stmt) -> Edit:
    place, last = program.place(statement), program.place(loop).end_line
    rest = "".join(program.lines[place.end_line : last])
    rest += "" if not rest or rest.endswith("\n") else "\n"
    return Edit(place.line, last, f"{rest}{program.indent(loop)}{program.segment(statement)}\n")


RULE = Rule(
    code="PL621",
    name="schedule-over-too-soon",
    severity="warning",
    title=T(en="A schedule made for epochs steps at every batch", zh="以轮为单位的调度在每个批次都步进"),
    what=T(
        en="A learning-rate scheduler whose numbers are epochs was stepped after every batch. Its schedule is "
        "over in the first epochs: the learning rate is almost zero for the rest, or rises again. Step it after "
        "the loop over the batches.",
        zh="参数以轮为单位的学习率调度器在每个批次之后都步进了。它的曲线在头几轮就走完了：剩下的时间学习率几乎为零，或"
        "者又升上去。请在遍历批次的循环之后再步进。",
    ),
    why=T(
        en="`step_size`, `gamma` and `T_max` count calls of `scheduler.step()`. torch does not know what an epoch is. "
        "`ExponentialLR(opt, 0.5)` stepped at each of 100 batches leaves nothing of the rate after the first epoch, "
        "and `CosineAnnealingLR` goes up again after `T_max` calls, as a cosine does.",
        zh="`step_size`、`gamma`、`T_max` 数的是 `scheduler.step()` 的调用次数。torch 不知道什么是一轮。"
        "`ExponentialLR(opt, 0.5)` 在 100 个批次上各步进一次，第一轮之后学习率就所剩无几；`CosineAnnealingLR` 在 "
        "`T_max` 次调用之后会像余弦那样再升上去。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
epochs = 4
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)  # made
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(epochs):
    for part, target in zip(x.split(4), y.split(4)):
        opt.zero_grad()
        loss = (model(part) - target).square().mean()
        loss.backward()
        opt.step()
        schedule.step()  # PL621
    print(opt.param_groups[0]["lr"])
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
epochs = 4
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(epochs):
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
            "lr=0.1",
            "lr=0.4",
            T(en="A higher rate rises and falls in the same wrong rhythm.", zh="更高的学习率仍按同样错误的节奏升降。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.CosineAnnealingLR.html",),
)
