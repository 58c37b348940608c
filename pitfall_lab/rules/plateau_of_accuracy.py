"""PL664: a scheduler that waits for a metric to stop falling was given a share of hits, which should rise."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.flow import converted
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Event, Scheduler, T
from pitfall_lab.trace.operation_facts import spellings

PLATEAU = "ReduceLROnPlateau"
CASTS = spellings("div", "mul") | {"double", "float", "item", "mean", "sum", "to", "type"}
"""Calls between the hits and the share of hits."""
HITS = spellings("eq") | {"isclose"}
FURTHER = 10
NEAR = 1e-8
"""The trace has nine digits of a number."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``ReduceLROnPlateau`` with ``mode="min"`` whose best metric so far was a share of
    hits, such as an accuracy.
    """
    for scheduler in story.trace.beside.schedulers:
        settings = dict(scheduler.settings)
        if scheduler.scheduler == PLATEAU and settings.get("mode") == 0 and "best" in settings and scheduler.first:
            best, last = settings["best"], scheduler.first[-1].step
            shares = [event for event in story.calls("item", "__float__", "tolist") if _is(story, event, best)]
            lowest = shares and (shares[0].step <= last or _is_lowest(story, shares[0], best))
            if lowest and all(_counts_hits(story, event) for event in shares):
                yield _finding(story, scheduler, shares[0], best)


def _is_lowest(story: Story, share: Event, best: float) -> bool:
    """Whether the same line gave other numbers before ``share``, all of them above ``best``.

    False if ``best`` could as well be one minus the highest number of the line: a share of mistakes should fall.
    """
    steps = story.steps_at[share.span, share.op]
    values = [value for step in steps if (value := converted(story, story.events[step])) is not None]
    earlier = [step for step in steps if step < share.step]
    is_of_mistakes = math.isclose(1 - max(values), best, rel_tol=NEAR)
    return bool(earlier) and not is_of_mistakes and min(values[: len(earlier)]) > best


def _is(story: Story, event: Event, best: float) -> bool:
    """Whether the call converted a tensor to the Python number ``best``, up to rounding."""
    value = converted(story, event)
    return value is not None and math.isclose(value, best, rel_tol=NEAR)


def _counts_hits(story: Story, event: Event) -> bool:
    """Whether the number was computed by a mean, a sum, a division or a conversion from a comparison for equality."""
    for _ in range(FURTHER):
        label = event.operands[0].label if event.operands else None
        made = story.event((story.tensor(label, event.step) or {}).get("born"))
        if made is None or made.name in HITS or made.name not in CASTS:
            return made is not None and made.name in HITS
        event = made
    return False


def _finding(story: Story, scheduler: Scheduler, share: Event, best: float) -> Finding:
    step = scheduler.first[0].step
    call, made = call_of(story, scheduler.first[0].span), _creation(story)
    stepped = story.program.place(call) if call is not None else scheduler.first[0].span
    span = story.program.place(made) if made is not None else stepped
    here, there, counted = at_line(story, span), at_line(story, stepped), at_line(story, story.span(share.step))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} waits for a metric to stop falling, but {there.en} gives it the share of hits "
            f"from {counted.en}: it takes {number(best)}, the lowest so far, for the best, and lowers the learning "
            "rate while the accuracy rises.",
            zh=f"{here.zh}等待指标停止下降，但{there.zh}传入的是{counted.zh}算出的命中率：它把到目前为止最低的 "
            f"{number(best)} 当作最好，于是在准确率上升时降低学习率。",
        ),
        T(
            en="`ReduceLROnPlateau` has `mode='min'` unless it is given another: a smaller metric is a better one. A "
            "share of right answers gets better as it grows, so every epoch that learns something counts as one "
            "without progress. Use `mode='max'`, or give it a loss.",
            zh="`ReduceLROnPlateau` 默认是 `mode='min'`：指标越小越好。答对的比例却是越大越好，所以每一轮有进步的训练"
            "都被算作没有进步。请使用 `mode='max'`，或者传入损失。",
        ),
        related=[
            Related("step", stepped, None, T(en="the share of hits is given here", zh="在这里传入命中率")),
            story.related("made", share.step, T(en="it is a share of hits", zh="它是命中率")),
        ],
        fixes=_fixes(story, made),
        facts=[Fact("best", best)],
    )


def _creation(story: Story) -> ast.Call | None:
    """The call that makes the scheduler, if the program has one such call; else None."""
    calls = [node for node in story.program.nodes if isinstance(node, ast.Call) and call_name(node) == PLATEAU]
    return calls[0] if len(calls) == 1 else None


def _fixes(story: Story, made: ast.Call | None) -> tuple[Fix, ...]:
    if (
        made is None
        or any(word.arg is None for word in made.keywords)
        or any(isinstance(each, ast.Starred) for each in made.args)
    ):
        return ()
    program = story.program
    given = next(
        (word.value for word in made.keywords if word.arg == "mode"), made.args[1] if len(made.args) > 1 else None
    )
    if given is not None:
        edit: tuple[ast.expr, str] = (given, "'max'")
    elif made.args:
        edit = (made.args[0], f"{program.segment(made.args[0])}, mode='max'")
    else:
        return ()
    title = T(en="Wait for it to stop rising: `mode='max'`", zh="等待它停止上升：`mode='max'`")
    return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])


RULE = Rule(
    code="PL664",
    name="plateau-of-accuracy",
    severity="warning",
    title=T(en="A scheduler waits for an accuracy to fall", zh="调度器在等待准确率下降"),
    what=T(
        en="A program steps a `ReduceLROnPlateau` with an accuracy and leaves its `mode` at `min`. The "
        "scheduler takes the worst accuracy for the best and lowers the learning rate while the network "
        "learns. Use `mode='max'`.",
        zh="程序用准确率来步进 `ReduceLROnPlateau`，却让它的 `mode` 保持为 `min`。调度器把最差的准确率当作最好的，"
        "在网络有进步时降低学习率。请使用 `mode='max'`。",
    ),
    why=T(
        en="The scheduler compares each metric with the best so far, and after `patience` epochs without a better one "
        "multiplies the rate by `factor`. It cannot know what a metric means: `mode` says whether small or large is "
        "good, and `min` is the default because most programs give it a loss.",
        zh="调度器把每个指标与迄今最好的相比，如果 `patience` 轮都没有更好的，就把学习率乘以 `factor`。它无法知道指标"
        "的含义：`mode` 说明小还是大才是好，默认是 `min`，因为多数程序传入的是损失。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)  # PL664
x = torch.randn(40, 2)
y = (x[:, 0] > x[:, 1]).long()
for _ in range(4):
    opt.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
    share = (model(x).argmax(1) == y).float().mean().item()  # made
    schedule.step(share)  # step
print(opt.param_groups[0]["lr"])
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.5)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode='max', factor=0.5, patience=0)
x = torch.randn(40, 2)
y = (x[:, 0] > x[:, 1]).long()
for _ in range(4):
    opt.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
    share = (model(x).argmax(1) == y).float().mean().item()
    schedule.step(share)
print(opt.param_groups[0]["lr"])
""",
    find=find,
    traps=(
        Trap(
            "patience=0",
            "patience=2",
            T(
                en="More patience makes it wait longer for an accuracy that gets worse.",
                zh="更多耐心，只是更久地等待准确率变差。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.ReduceLROnPlateau.html",),
)
