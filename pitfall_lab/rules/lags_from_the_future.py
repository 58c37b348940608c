"""PL998: the columns that a forecast is made from were rolled the wrong way, and hold what comes after the target."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.element_origins import Origins
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.series_forecasts import LOSSES, inputs, is_trained, places_of_row
from pitfall_lab.trace import Event, T

ROWS, MOST, TRIES, FEWEST = 16, 256, 2, 4
PAIR = 2


@dataclass(frozen=True, slots=True)
class Ahead:
    """``loss`` is the call (``Event``) that compares the tensor ``target`` with what was computed from the tensor
    ``given`` (both are labels), whose columns the calls ``rolls`` took from later in the series than the target.

    ``used`` is the step at which ``given`` is used, and ``first`` the index of the first target in the series. ``by``
    has the distances, in time steps after the target, of the numbers in a row, in rising order without repetitions.
    """

    loss: Event
    target: str
    given: str
    used: int
    rolls: tuple[Event, ...]
    by: tuple[int, ...]
    first: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a ``roll`` if all inputs that a trained loss takes from the series of its own
    target come from after that target, looked for in the first ``TRIES`` losses of each line.

    Only if a row has at least two such numbers.
    """
    tries, told = dict[object, int](), set[object]()
    for loss in story.calls(*LOSSES) if any(story.calls("roll")) and story.backwards() else ():
        place = story.span(loss.step)
        if loss.error is not None or tries.get(place, 0) >= TRIES or not is_trained(story, loss):
            continue
        tries[place] = tries.get(place, 0) + 1
        found = _ahead(story, loss)
        where = story.span(found.rolls[0].step) if found is not None else None
        if found is not None and where not in told:
            told.add(where)
            yield _finding(story, found)


def _ahead(story: Story, loss: Event) -> Ahead | None:
    labels = [o.label for o in loss.operands[:PAIR]]
    taught = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
    if len(labels) < PAIR or None in labels or taught.count(True) != 1:
        return None
    target, guess = str(labels[taught.index(False)]), str(labels[taught.index(True)])
    shape = story.shape(target, loss.step) or ()
    count = shape[0] if shape else 0
    if count < FEWEST or prod(shape[1:]) > MOST:
        return None
    rows = range(min(count, ROWS))
    wants = Origins(story)
    wanted = [places_of_row(wants, (target, loss.step), 0, row) for row in rows]
    if not all(wanted):
        return None
    series = wanted[0][0][0]
    first = next(iter(story.tensors_on(series)), None)
    unit = ((first[1].get("stride") or [1]) if first is not None else [1])[0] or 1
    for label, step in inputs(story, guess, loss.step):
        has = Origins(story)
        times = _times(has, (label, step), series, rows, count)
        if not times or has.supposed != wants.supposed:
            continue
        by = [
            sorted({at // unit - max(t for _, t in own) // unit for at in row})
            for row, own in zip(times, wanted, strict=True)
        ]
        rolls = tuple(sorted((e for e in has.trail if e.name == "roll"), key=lambda e: e.step))
        # one lag alone may be another example of a batch, as for pairs that do not belong together
        if rolls and len(by[0]) >= PAIR and by[0][0] > 0 and all(each == by[0] for each in by):
            return Ahead(loss, target, label, step, rolls, tuple(by[0]), wanted[0][0][1] // unit)
    return None


def _times(origins: Origins, used: tuple[str, int], series: str, rows: range, count: int) -> list[list[int]] | None:
    """For each row, the indices in ``series`` that its elements come from; None if a row has no such element, if no
    axis of the tensor ``used`` has ``count`` entries, or if a row has more than ``MOST`` elements.

    Columns that come from elsewhere, such as the hour of the day, are left out.
    """
    shape = origins.story.shape(*used) or ()
    axis = next((axis for axis, length in enumerate(shape) if length == count), None)
    if axis is None or prod(shape) // count > MOST:
        return None
    found = list[list[int]]()
    for row in rows:
        around = (*(range(n) for n in shape[:axis]), (row,), *(range(n) for n in shape[axis + 1 :]))
        places = [origins.place(used[0], index, used[1]) for index in product(*around)]
        found.append([place[1] for place in places if place is not None and place[0] == series])
    return found if all(found) else None


def _finding(story: Story, found: Ahead) -> Finding:
    roll = found.rolls[0]
    here, there = at_line(story, story.span(roll.step)), at_line(story, story.span(found.loss.step))
    target, given = shown(story, found.loss, found.target), shown(story, story.events[found.used], found.given)
    steps = ", ".join(str(each) for each in found.by)
    return RULE.finding(
        story.span(roll.step),
        roll.step,
        T(
            en=f"{capital(here.en)} rolls a series to the left, so {given.en} has the numbers {steps} steps after the "
            f"one that {there.en} wants to forecast from them.",
            zh=f"{here.zh}把序列向左移动，于是 {given.zh} 中是{there.zh}要由它们预测的那个数之后 {steps} 步的数。",
        ),
        T(
            en="`torch.roll(y, -k)` puts at place i what stood at i + k: the future of that place. The values of "
            f"earlier times are `torch.roll(y, k)`. The model learns to compute {target.en} from what follows it, and "
            "looks good on rows that were prepared in the same way; when it has to forecast, these numbers do not "
            "exist yet, and what it is given has another meaning.",
            zh="`torch.roll(y, -k)` 在第 i 位放的是原来第 i + k 位的数，即这一位的未来。更早的值是 `torch.roll(y, k)`。"
            f"模型学会由之后的数计算 {target.zh}，在用同样方式准备的行上看起来不错；真正预测时，这些数还不存在，传给它"
            "的数含义也不同。",
        ),
        related=[story.related("used", found.loss.step, T(en="the forecast is taught here", zh="在这里教它预测"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("ahead", list(found.by), story.by(roll.step)),
            *pairs(
                T(en="target at index", zh="目标的位置"),
                T(en="input from index", zh="输入的位置"),
                [(found.first, found.first + each, found.first - each) for each in found.by],
            ),
        ],
    )


def _fixes(story: Story, found: Ahead) -> tuple[Fix, ...]:
    """At most one fix: it reverses the sign of the shift in each of the ``roll`` calls. Empty if one of them, or its
    shift, is not found in the program's source.
    """
    program, changes = story.program, list[tuple[ast.AST, str]]()
    for node in dict.fromkeys(program.at(story.span(roll.step)) for roll in found.rolls):
        if not isinstance(node, ast.Call) or called(node) != "roll" or not isinstance(node.func, ast.Attribute):
            return ()
        place = 1 if program.segment(node.func.value) == torch_name(program) else 0
        shift = next((k.value for k in node.keywords if k.arg == "shifts"), None)
        shift = shift or (node.args[place] if len(node.args) > place else None)
        if shift is None:
            return ()
        is_minus = isinstance(shift, ast.UnaryOp) and isinstance(shift.op, ast.USub)
        text = program.segment(shift.operand) if isinstance(shift, ast.UnaryOp) and is_minus else None
        changes.append((shift, text if text is not None else f"-{operand(program, shift)}"))
    title = T(en="Roll the other way, to earlier values", zh="反方向移动，取更早的值")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="shape")])


RULE = Rule(
    code="PL998",
    name="lags-from-the-future",
    severity="warning",
    title=T(
        en="The columns that a forecast is made from hold what comes after it",
        zh="用来预测的各列是目标之后的数",
    ),
    what=T(
        en="A program wants to forecast each number of a series from the ones before it, and moves the series to bring "
        "them beside it. It moves it the wrong way, so that the later numbers come to stand there. To have the value "
        "of k steps earlier, roll by k: `torch.roll(y, k)`, not `-k`.",
        zh="程序想用序列中前面的数预测每一个数，于是移动序列，让前面的数与它并排。但移动的方向反了，并排的是后面的数。要得"
        "到 k 步之前的值，请移动 k：`torch.roll(y, k)`，而不是 `-k`。",
    ),
    why=T(
        en="A positive shift moves the elements towards higher indices, so that place i has what stood at i - k. All "
        "shapes fit with either sign, and the error in a test is as small as it should be, since a series is often as "
        "easy to continue backwards. The mistake shows only in use. `roll` also brings the end round to the beginning: "
        "leave out the first k rows.",
        zh="正的移动量把元素移向更大的下标，于是第 i 位是原来第 i - k 位的数。两种符号形状都对得上，测试误差也正常，因"
        "为序列往往倒过来也一样容易延续。错误只在使用时才显现。`roll` 还会把末尾绕到开头：请去掉前 k 行。",
    ),
    bad="""import torch

torch.manual_seed(0)
y = torch.randn(40).cumsum(0)
past = torch.stack([torch.roll(y, -k) for k in (1, 2)], dim=1)  # PL998
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    loss = (net(past[2:-2]).squeeze(1) - y[2:-2]).square().mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net(torch.stack([y[-1], y[-2]])))
""",
    good="""import torch

torch.manual_seed(0)
y = torch.randn(40).cumsum(0)
past = torch.stack([torch.roll(y, k) for k in (1, 2)], dim=1)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    loss = (net(past[2:-2]).squeeze(1) - y[2:-2]).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net(torch.stack([y[-1], y[-2]])))
""",
    find=find,
    traps=(
        Trap(
            "torch.roll(y, -k)",
            "torch.roll(y, -k).clone()",
            T(en="A copy has the same numbers in the same places.", zh="拷贝在同样的位置上有同样的数。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.roll.html",),
)
