"""PL918: numbers with fractions are compared for equality with integers, so no prediction is ever counted as right."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin, values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

EQUAL = spellings("eq", "ne")
LARGEST = {"max": "argmax", "min": "argmin", "amax": "argmax", "amin": "argmin", "topk": "topk", "sort": "sort"}
"""Calls that return the largest or smallest numbers themselves, each with the call that returns their indices."""
LOSSES = {
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
}
"""Losses whose second operand is a target."""
FEWEST = 3


@dataclass(frozen=True, slots=True)
class Unequal:
    """``events`` are the calls (``Event``) of one line that compare computed numbers with integers; ``numbers`` and
    ``labels`` are the labels of the two tensors in the first of them.

    ``maker`` is the call that computed the numbers, ``shown`` are their known values.
    """

    events: list[Event]
    numbers: str
    labels: str
    maker: Event
    shown: list[float]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares computed numbers with labels for equality, if none of the known
    numbers is ever an integer (at least ``FEWEST`` must be known in each call).
    """
    places: dict[object, list[tuple[Event, str, str]]] = defaultdict(list)
    for event in story.calls(*EQUAL):
        pair = _pair(story, event)
        if pair is not None:
            places[story.span(event.step)].append((event, *pair))
    for compared in places.values():
        event, given, labels = compared[0]
        maker = origin(story, given, event.step)
        if maker is not None and all(_no_whole(story, each, there.step) for there, each, _ in compared):
            shown = values(story, given, event.step)
            yield _finding(story, Unequal([e for e, *_ in compared], given, labels, maker, shown))


def _pair(story: Story, event: Event) -> tuple[str, str] | None:
    """Return the operands of a comparison as a pair of computed numbers and labels; None if they are none.

    Labels have an integer dtype, or are the target of a loss.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    if event.error is not None or event.parent is not None or len(labels) != 2:
        return None
    for given, other in (labels, labels[::-1]):
        record, target = story.tensor(given, event.step) or {}, story.tensor(other, event.step) or {}
        whole = str(target.get("dtype")).startswith(("int", "uint")) or _is_target(story, other)
        if str(record.get("dtype")).startswith(("float", "bfloat")) and whole and not _is_target(story, given):
            return given, other
    return None


def _is_target(story: Story, label: str) -> bool:
    return any(
        use.name in LOSSES and len(use.operands) > 1 and use.operands[1].label == label for use in story.uses(label)
    )


def _no_whole(story: Story, label: str, step: int) -> bool:
    """Whether no known value is an integer; False if fewer than :data:`FEWEST` values are known."""
    known = values(story, label, step)
    return len(known) >= FEWEST and all(value % 1 != 0 for value in known)


def _finding(story: Story, found: Unequal) -> Finding:
    event, maker = found.events[0], found.maker
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(maker.step))
    what, labels = expression(story, found.numbers, event.step), expression(story, found.labels, event.step)
    shown = ", ".join(number(value) for value in found.shown[:FEWEST])
    better = LARGEST.get(maker.name)
    why = (
        T(
            en=f"`{maker.name}` on {there.en} gives the largest scores themselves; which class has it is its second "
            f"result, or that of `{'argmax' if better in ('topk', 'sort') else better}`.",
            zh=f"{there.zh}的 `{maker.name}` 给出的是最大的分数本身；是哪个类别，要看它的第二个结果，或者用 "
            f"`{'argmax' if better in ('topk', 'sort') else better}`。",
        )
        if better is not None
        else T(
            en=f"They come from `{maker.name}` on {there.en}. A class comes of them by a threshold, or by `argmax`.",
            zh=f"它们来自{there.zh}的 `{maker.name}`。要得到类别，需要与阈值比较，或者用 `argmax`。",
        )
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} compares {what.en} with the labels {labels.en}, and they are never equal: these "
            f"are numbers with fractions ({shown}).",
            zh=f"{here.zh}把 {what.zh} 与标签 {labels.zh} 比较，两者从不相等：这些是带小数的数（{shown}）。",
        ),
        T(
            en=f"Labels are whole numbers, so a comparison with such numbers counts nothing as right. {why.en}",
            zh=f"标签是整数，与这样的数比较，没有一个会算作正确。{why.zh}",
        ),
        related=[story.related("made", maker.step, T(en="the numbers are computed here", zh="这些数在这里算出"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("numbers", found.shown[:FEWEST], story.by(event.step)),
            Fact("made", maker.name, story.by(maker.step)),
        ],
    )


def _fixes(story: Story, found: Unequal) -> tuple[Fix, ...]:
    program, maker = story.program, found.maker
    node = program.at(story.span(maker.step))
    around = program.parents.get(node) if node is not None else None
    fixes: list[Fix] = []
    title = T(en="Take the positions and not the scores", zh="取位置，而不是取分数")
    if maker.name in LARGEST and isinstance(node, ast.Call):
        if isinstance(around, ast.Subscript) and isinstance(around.slice, ast.Constant) and around.slice.value == 0:
            fixes.append(Fix(title, program.replace((around.slice, "1")), meaning="later"))
        elif isinstance(around, ast.Attribute) and around.attr == "values":
            fixes.append(Fix(title, program.replace((around, f"{program.segment(node)}.indices")), meaning="later"))
        elif call_name(node) in ("amax", "amin") and isinstance(node.func, ast.Attribute):
            new = f"{program.segment(node.func.value)}.{LARGEST[maker.name]}"
            fixes.append(Fix(title, program.replace((node.func, new)), meaning="later"))
        elif (
            isinstance(around, ast.Assign)
            and isinstance(around.targets[0], ast.Tuple)
            and len(around.targets[0].elts) == 2
        ):
            one, other = around.targets[0].elts
            fixes.append(
                Fix(
                    title,
                    program.replace((one, program.segment(other)), (other, program.segment(one))),
                    meaning="later",
                )
            )
    given = written_as(story, found.events[0], found.numbers)
    if given is not None and maker.name == "sigmoid":
        new = f"({operand(program, given)} > 0.5)"
        half = T(en=f"Compare them with one half: `{new}`", zh=f"与一半比较：`{new}`")
        fixes.append(Fix(half, program.replace((given, new)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL918",
    name="fractions-compared-with-labels",
    severity="warning",
    title=T(en="Scores are compared with labels for equality", zh="把分数与标签做相等比较"),
    what=T(
        en="A program counts right answers by comparing scores, and not classes, with the labels. A score such as "
        "2.37 is never equal to a label, so the accuracy stays at 0. Compare the position of the largest score: "
        "`scores.argmax(1) == labels`.",
        zh="程序在统计正确答案时，用分数而不是类别去与标签比较。像 2.37 这样的分数从不等于标签，所以正确率一直是 0。请"
        "比较最大分数所在的位置：`scores.argmax(1) == labels`。",
    ),
    why=T(
        en="`scores.max(dim=1)` returns two tensors: first the largest numbers, then their positions. `[0]`, "
        "`.values`, the first name of `best, _ = scores.max(1)` and `amax` are the numbers. `==` of a float tensor "
        "and a tensor of integers converts the integers and compares element by element, without a warning. The "
        "output of a sigmoid has to be compared with a threshold first.",
        zh="`scores.max(dim=1)` 返回两个张量：先是最大的数，然后是它们的位置。`[0]`、`.values`、`best, _ = "
        "scores.max(1)` 的第一个名字以及 `amax` 得到的都是数本身。float 张量与整数张量用 `==` 比较时，整数会被转换，然"
        "后逐个元素比较，没有警告。sigmoid 的输出要先与阈值比较。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 1, 2])
loss = F.cross_entropy(net(x), y)
loss.backward()
predicted = torch.max(net(x), 1)[0]  # made
accuracy = (predicted == y).float().mean()  # PL918
print(accuracy.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 3, 1, 2])
loss = F.cross_entropy(net(x), y)
loss.backward()
predicted = torch.max(net(x), 1)[1]
accuracy = (predicted == y).float().mean()
print(accuracy.item())
""",
    find=find,
    traps=(
        Trap(
            "torch.max(net(x), 1)[0]",
            "torch.max(net(x), 1)[0].round()",
            T(
                en="A rounded score is a whole number, and still no class.",
                zh="四舍五入后的分数是整数，却仍然不是类别。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.max.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.argmax.html",
    ),
)
