"""PL617: the scheduler sets the learning rate of an optimizer that never steps; the one that steps keeps its rate."""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, number
from pitfall_lab.rules.signals.schedules import call_of, made_as, rate_facts, scheduled
from pitfall_lab.trace import OptimizerMade, Scheduler, T

ROUNDS = 2


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each scheduler that stepped at least ``ROUNDS`` times, although its optimizer never did and
    another one, without a scheduler, did.

    Both optimizers have a parameter in common; the other one made at least ``ROUNDS`` steps, all with one rate.
    """
    optimizers = story.trace.optimizers
    with_one = {scheduler.optimizer for scheduler in story.trace.beside.schedulers}
    for scheduler, idle in scheduled(story):
        if scheduler.steps < ROUNDS or idle.steps:
            continue
        for number_of, other in enumerate(optimizers):
            alike = set(idle.holds) & set(other.holds)
            if number_of not in with_one and other.steps >= ROUNDS and alike and len(other.rates) == 1:
                yield _finding(story, scheduler, idle, other)
                break


def _finding(story: Story, scheduler: Scheduler, idle: OptimizerMade, other: OptimizerMade) -> Finding:
    here, there, step = (at_line(story, span) for span in (idle.span, other.span, scheduler.first[0].span))
    rate = number(other.rates[0][1])
    return RULE.finding(
        scheduler.span,
        scheduler.first[0].step,
        T(
            en=f"The scheduler changes the learning rate of the optimizer made on {here.en}, which never steps; the "
            f"one made on {there.en} makes all {other.steps} steps, with {rate}.",
            zh=f"调度器改变的是{here.zh}创建的优化器的学习率，而它从不更新；全部 {other.steps} 次更新都由{there.zh}创"
            f"建的优化器完成，学习率一直是 {rate}。",
        ),
        T(
            en=f"A scheduler keeps the optimizer that it was given when it was made, and {step.en} writes into "
            "that one's `param_groups`. A new optimizer for the same parameters has groups of its own, also "
            "under the same name.",
            zh=f"调度器保存着创建时得到的优化器，{step.zh}写入的是那个优化器的 `param_groups`。为同样的参数新建的优化"
            "器有自己的参数组，即使名字相同。",
        ),
        related=[
            Related(
                "made", idle.span, None, T(en="the optimizer that the scheduler was given", zh="调度器得到的优化器")
            ),
            Related("step", other.span, None, T(en="the optimizer that steps", zh="真正更新的优化器")),
            Related("used", scheduler.first[0].span, None, T(en="the scheduler steps here", zh="调度器在这里步进")),
        ],
        fixes=_fixes(story, scheduler, other),
        facts=[Fact("rate", other.rates[0][1]), Fact("steps", other.steps), *rate_facts(other)],
    )


def _fixes(story: Story, scheduler: Scheduler, other: OptimizerMade) -> tuple[Fix, ...]:
    """Fixes that make the scheduler with the optimizer that steps, after that one is made.

    Empty unless both are assigned to names in one function.
    """
    program = story.program
    ours, theirs, call = made_as(story, scheduler.span), made_as(story, other.span), call_of(story, scheduler.span)
    if ours is None or theirs is None or call is None:
        return ()
    given = next((k.value for k in call.keywords if k.arg == "optimizer"), call.args[0] if call.args else None)
    if given is None or program.function(ours[0]) is not program.function(theirs[0]):
        return ()
    name = theirs[1]
    title = T(en=f"Make the scheduler for the `{name}` that steps", zh=f"为真正更新的 `{name}` 创建调度器")
    if theirs[0].lineno < ours[0].lineno:
        return unique(program.text, [Fix(title, program.replace((given, name)), meaning="later")])
    place, text = program.place(given), program.segment(ours[0])
    if place.line == place.end_line == ours[0].lineno and program.stands_alone(ours[0]):
        start = place.column - program.place(ours[0]).column
        text = text[:start] + name + text[start + place.end_column - place.column :]
        edits = merge(program.delete(ours[0]), program.insert_after(theirs[0], text))
        return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()
    return ()


RULE = Rule(
    code="PL617",
    name="scheduler-of-another-optimizer",
    severity="warning",
    title=T(en="The scheduler belongs to an optimizer that never steps", zh="调度器属于一个从不更新的优化器"),
    what=T(
        en="A learning-rate scheduler was made for one optimizer, and another one does the training. The schedule "
        "runs, and the learning rate of the training never changes.",
        zh="学习率调度器是为一个优化器创建的，而训练用的是另一个。调度照样进行，训练的学习率却从不改变。",
    ),
    why=T(
        en="`StepLR(optimizer, …)` keeps the optimizer itself, and its `step()` writes `lr` into that optimizer's "
        "`param_groups`. Making the optimizer anew, after unfreezing layers for example, gives the name to another "
        "object; the scheduler still holds the old one. Make the scheduler after the optimizer that steps.",
        zh="`StepLR(optimizer, …)` 保存的是优化器本身，它的 `step()` 把 `lr` 写进那个优化器的 `param_groups`。"
        "重新创建优化器（例如解冻一些层之后）会让这个名字指向另一个对象，而调度器仍持有旧的那个。请在真正更新"
        "的优化器之后创建调度器。",
    ),
    advice=T(
        en="give the scheduler on {line} the optimizer with which the training steps.",
        zh="把训练所用的优化器交给{line}的调度器。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)  # made
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)  # PL617
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # step
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(4):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    schedule.step()  # used
    print(opt.param_groups[0]["lr"])
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)
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
            T(
                en="A steeper schedule changes the rate of the unused optimizer faster, and nothing else.",
                zh="更陡的调度只会更快地改变那个没有用到的优化器的学习率。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",),
)
