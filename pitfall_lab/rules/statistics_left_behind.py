"""PL722: the weights of a network were averaged or copied from another one, its running statistics
were not, and it is evaluated.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.modes import LayerCall, Modes
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import values
from pitfall_lab.trace import Event, T

FILLS = {"zero_", "fill_", "zeros_", "ones_", "zeros", "ones", "constant_"}
"""Calls that set a buffer to a constant: statistics at their start."""


@dataclass(frozen=True, slots=True)
class Left:
    """``evaluated`` is a call of a batch norm in evaluation mode (:class:`LayerCall`) whose running mean and variance
    are still 0 and 1.

    ``written`` is the first call (``Event``) after a training began, other than one that fills it with a constant, that
    wrote its weight, labelled ``weight``: as a copy, or an average, for example.
    """

    evaluated: LayerCall
    weight: str
    written: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gave the weight of a batch norm new values (a copy, a running average of
    weights) where the layer is only ever used in evaluation mode, with its first running statistics: mean 0 and
    variance 1.
    """
    updates = story.trace.optimizer_steps
    layers: dict[object, list[LayerCall]] = defaultdict(list)
    for each in Modes(story).passes if updates else ():
        if each.kind == "batch_norm" and each.weight is not None:
            layers[each.layer].append(each)
    held = {label for update in updates for label in update.holds}
    told = set()
    for passes in layers.values():
        found = (
            _left(story, passes[-1], updates[0].step)
            if not any(p.active for p in passes) and passes[0].weight not in held
            else None
        )
        if found is not None and story.span(found.written.step) not in told:
            told.add(story.span(found.written.step))
            yield _finding(story, found)


def _left(story: Story, last: LayerCall, trained: int) -> Left | None:
    """The data of the finding if the weight was written after a training began, but the layer's mean and variance are
    still 0 and 1; else None.
    """
    mean, variance = (last.event.operands[number].label for number in (1, 2))
    if (
        last.weight is None
        or mean is None
        or variance is None
        or _is_moved(story, mean, last)
        or _is_moved(story, variance, last)
    ):
        return None
    storage = str((story.tensor(last.weight) or {}).get("storage"))
    writes = [story.events[step] for step in story.writes(storage, trained, last.event.step)]
    written = next((event for event in writes if event.kind == "call" and event.name not in FILLS), None)
    if written is None:
        return None
    still = (
        values(story, mean, last.event.step),
        values(story, variance, last.event.step),
    )  # last: values are requested
    start = bool(still[0]) and not any(still[0]) and set(still[1]) == {1.0}
    return Left(last, last.weight, written) if start else None


def _is_moved(story: Story, label: str, last: LayerCall) -> bool:
    storage = str((story.tensor(label) or {}).get("storage"))
    return any(story.events[step].name not in FILLS for step in story.writes(storage, -1, last.event.step))


def _finding(story: Story, found: Left) -> Finding:
    written, evaluated = found.written, found.evaluated.event
    here, there = at_line(story, story.span(written.step)), at_line(story, story.span(evaluated.step))
    node = written_as(story, written, found.weight)  # in a loop over pairs, a tensor has had other names before
    weight = T(*2 * (f"`{story.program.segment(node)}`",)) if node is not None else None
    weight = weight or called(story, found.weight, None, written.step)
    return RULE.finding(
        story.span(written.step),
        written.step,
        T(
            en=f"{capital(here.en)} gives {weight.en} new values, and the running statistics of its layer are not "
            f"brought along: {there.en} evaluates it with the mean of 0 and variance of 1 that it was made with.",
            zh=f"{here.zh}给 {weight.zh} 新的值，却没有带上该层的运行统计量：{there.zh}评估时用的仍是创建"
            "时的均值 0 和方差 1。",
        ),
        T(
            en="`parameters()` has the weights only. The running mean and variance of a batch norm are buffers, which "
            "no average over parameters touches, and this network was never run in training mode. Copy the buffers "
            "too, or run some batches through it in training mode (`torch.optim.swa_utils.update_bn`).",
            zh="`parameters()` 只有权重。批归一化的运行均值与方差是缓冲区，对参数求平均不会碰到它们，而这个网络从未在"
            "训练模式下运行过。请把缓冲区也复制过去，或者让它在训练模式下跑几个批次"
            "（`torch.optim.swa_utils.update_bn`）。",
        ),
        related=[
            story.related("changed", written.step, T(en="only the weight is written here", zh="这里只写入了权重")),
            story.related("used", evaluated.step, T(en="evaluated with the first statistics", zh="用最初的统计量评估")),
        ],
        fixes=_fixes(story, written),
        facts=[Fact("weight", found.weight, story.by(written.step)), Fact("mean", 0.0), Fact("variance", 1.0)],
    )


def _fixes(story: Story, written: Event) -> tuple[Fix, ...]:
    """At most one fix: it adds a loop over the buffers of both networks after the program's loop over their parameters.

    Empty if there is no such loop.
    """
    program = story.program
    for statement in call_chain(story, story.line_event(written.step)):
        for loop in (a for a in (statement, *program.ancestors(statement)) if isinstance(a, ast.For)):
            pair = loop.iter.args if isinstance(loop.iter, ast.Call) and call_name(loop.iter) == "zip" else []
            calls = [p.func for p in pair if isinstance(p, ast.Call) and isinstance(p.func, ast.Attribute)]
            owners = [call.value for call in calls if call.attr == "parameters"]
            if len(owners) == 2 and len(pair) == 2:
                mine, other = (program.segment(owner) for owner in owners)
                new = (f"for mine, other in zip({mine}.buffers(), {other}.buffers()):", "    mine.copy_(other)")
                title = T(
                    en=f"Copy the buffers of `{other}` to `{mine}` too", zh=f"也把 `{other}` 的缓冲区复制到 `{mine}`"
                )
                return unique(program.text, [Fix(title, program.insert_after(loop, *new), meaning="later")])
    return ()


RULE = Rule(
    code="PL722",
    name="statistics-left-behind",
    severity="warning",
    title=T(en="An average of weights keeps the statistics it was made with", zh="权重的平均仍带着创建时的统计量"),
    what=T(
        en="A program keeps an average of a network's weights, or copies them to another network, and leaves the "
        "running statistics of the normalizations behind. In evaluation they are still 0 and 1, so the outputs are "
        "wrong. Copy the buffers as well.",
        zh="程序保留网络权重的平均，或者把权重复制到另一个网络，却没有带上归一化层的运行统计量。评估时它们仍是 0 和 "
        "1，所以输出是错的。请把缓冲区也复制过去。",
    ),
    why=T(
        en="A batch norm normalizes by the statistics of the batch in training mode, and by `running_mean` and "
        "`running_var` in evaluation mode. These two are *buffers*: they belong to `state_dict()`, but not to "
        "`parameters()`, and only a forward pass in training mode moves them. A copy that is only averaged and "
        "evaluated never has one. `AveragedModel` of torch keeps the buffers as they were, too: that is what "
        "`update_bn` and `use_buffers=True` are for.",
        zh="批归一化在训练模式下用这一批的统计量，在评估模式下用 `running_mean` 和 `running_var`。这两个是*缓冲"
        "区*：它们属于 `state_dict()`，但不属于 `parameters()`，只有训练模式下的前向计算才会移动它们。只被平均和评"
        "估的副本从来没有这样的前向。torch 的 `AveragedModel` 也让缓冲区保持原样：`update_bn` 和 "
        "`use_buffers=True` 就是为此准备的。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
average = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(8, 2) * 3 + 5
for _ in range(3):
    opt.zero_grad()
    (net(x) - 1).square().mean().backward()
    opt.step()
    with torch.no_grad():
        for mean, now in zip(average.parameters(), net.parameters()):
            mean.lerp_(now, 0.5)  # PL722 changed
average.eval()
print(average(x).flatten())  # used
""",
    good="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
average = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(8, 2) * 3 + 5
for _ in range(3):
    opt.zero_grad()
    (net(x) - 1).square().mean().backward()
    opt.step()
    with torch.no_grad():
        for mean, now in zip(average.parameters(), net.parameters()):
            mean.lerp_(now, 0.5)
        for mine, other in zip(average.buffers(), net.buffers()):
            mine.copy_(other)
average.eval()
print(average(x).flatten())
""",
    find=find,
    traps=(
        Trap(
            "mean.lerp_(now, 0.5)",
            "mean.copy_(now)",
            T(
                en="The weights alone again: the statistics are still those of a new network.",
                zh="仍然只有权重：统计量还是新网络的。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
