"""PL936: a map of class numbers was resized by averaging, which gives class indices that were not there."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand_text
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import CLASSIFIERS
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

MODES = {"interpolate": 3, "grid_sample": 2}
"""Calls that resize, and the position of the mode among their arguments."""
NUMBERED = ("bilinear", "nearest", "bicubic")
AVERAGING = ("linear", "cubic", "area")
CAST = SAME_NUMBERS | spellings("round", in_place=True) | {"floor", "half", "int", "long", "type", "type_as"}
"""Conversions and changes of shape, before and after the averaging."""
JOINS = ("cat", "stack")
TABLES = ("embedding", "one_hot", "bincount")
"""Calls that take each integer as a class."""
WHOLE = ("int", "uint")
FURTHER, MANY = 60, 2
MAP = 2
"""The number of dimensions of a map: height and width."""


@dataclass(frozen=True, slots=True)
class ClassesAveraged:
    """``event`` is the call (``Event``) that resized a map of class numbers by averaging, in the mode ``mode``
    (``"bilinear"``); ``source`` is the label of the integer tensor with the class numbers. ``used`` is the call that
    takes the result, converted to integers again, as class numbers.

    ``stacked`` is the call that joined the map with other tensors before, and the map's index among them (from 0); None
    if the map was not joined.
    """

    event: Event
    source: str
    mode: str
    used: Event
    stacked: tuple[Event, int] | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that resizes or samples a map of integers by averaging (a mode of ``AVERAGING``),
    where a later call takes the result, converted to integers, as class numbers.
    """
    reported = set()
    for event in story.calls("interpolate", "grid_sampler"):
        place, mode = story.span(event.step), _mode(event)
        if (
            place in reported
            or event.error is not None
            or not event.results
            or not any(word in mode for word in AVERAGING)
        ):
            continue
        source, used = _whole_before(story, event), _classes_after(story, event)
        if source is not None and used is not None:
            reported.add(place)
            yield _finding(story, ClassesAveraged(event, source[0], mode, used, source[1]))


def _mode(event: Event) -> str:
    if event.name == "grid_sampler":
        return NUMBERED[int(argument(event, "interpolation_mode", 2) or 0)]
    return (argument(event, "mode", MODES["interpolate"]) or "nearest").strip("'\"")


def _is_whole(story: Story, label: str | None, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith(WHOLE)


def _whole_before(story: Story, event: Event) -> tuple[str, tuple[Event, int] | None] | None:
    """Return the integer tensor whose numbers, converted or reshaped (``CAST``), are in the input of the call, and the
    call that joined it with other tensors with its index among them (None if it was not joined); None if there is no
    such tensor.
    """
    pending: deque[tuple[str | None, int, tuple[Event, int] | None]] = deque(
        [(event.operands[0].label, event.step, None)]
    )
    for _ in range(FURTHER):
        label, step, stacked = pending.popleft() if pending else (None, 0, None)
        if label is None:
            return None
        if _is_whole(story, label, step):
            return label, stacked
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results or made.name not in CAST or not made.operands:
            continue
        given = [operand.label for operand in made.operands if operand.label is not None]
        if made.name in JOINS and len(given) > 1:
            pending.extend((each, made.step, (made, place)) for place, each in enumerate(given))
        else:
            pending.append((made.operands[0].label, made.step, stacked))
    return None


def _classes_after(story: Story, event: Event) -> Event | None:
    """Return the call that takes the resized numbers, as integers, as classes: a loss of more than two classes,
    ``embedding``, ``one_hot`` or ``bincount``; None if there is none.
    """
    pending, seen = deque([event.results[0]]), {event.results[0]}
    while pending and len(seen) < FURTHER:
        label = pending.popleft()
        for use in story.uses(label):
            whole = _is_whole(story, label, use.step)
            places = [place for place, operand in enumerate(use.operands) if operand.label == label]
            if whole and use.name in CLASSIFIERS and 1 in places:
                scores = story.shape(use.operands[0].label, use.step) or ()
                return use if len(scores) > 1 and scores[1] > MANY else None
            if whole and use.name in TABLES and 0 in places:
                return use
            if use.name in CAST and use.results and use.results[0] not in seen and use.error is None:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _finding(story: Story, found: ClassesAveraged) -> Finding:
    event, used = found.event, found.used
    span, here, there = (
        story.span(event.step),
        at_line(story, story.span(event.step)),
        at_line(story, story.span(used.step)),
    )
    name = expression(story, found.source, event.step)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} resizes {name.en} with mode `{found.mode}`, which averages neighbours, and "
            f"{there.en} takes the result for numbers of classes.",
            zh=f"{here.zh}用 `{found.mode}` 模式缩放 {name.zh}，它会对相邻的数取平均，"
            f"而{there.zh}把结果当作类别的编号。",
        ),
        T(
            en="The number of a class is a name and no quantity. Half way between class 1 and class 3 the "
            "average is 2, so every border between two classes gets a rim of others that are not there. "
            "`nearest` takes a number that exists.",
            zh="类别的编号是名字，不是数量。类别 1 与类别 3 的中间，平均值是 2，于是两个类别的每条边界都会镶上一圈并不"
            "存在的类别。`nearest` 取的是实际存在的编号。",
        ),
        related=[story.related("used", used.step, T(en="taken for classes here", zh="在这里被当作类别"))],
        fixes=_apart(story, found) or _fixes(story, event),
        facts=[Fact("mode", found.mode, story.by(event.step))],
    )


def _apart(story: Story, found: ClassesAveraged) -> tuple[Fix, ...]:
    """Return the fix for a map that was stacked with other tensors: the map is resized by a call of its own where the
    resized map is read by its index (``both[1]``).

    Empty if the map was not stacked, or the program is written in another way.
    """
    program, call = story.program, story.program.at(story.span(found.event.step))
    if found.stacked is None or found.stacked[0].name != "stack" or not isinstance(call, ast.Call):
        return ()
    stack, place = found.stacked
    given = [operand.label for operand in stack.operands if operand.label is not None]
    part = written_as(story, stack, given[place])
    for read in (node for node in program.nodes if isinstance(node, ast.Subscript)):
        index, whole = read.slice, read.value
        if not isinstance(index, ast.Constant) or index.value != place or not isinstance(whole, ast.Name):
            continue
        if part is None or program.function(read) is not program.function(part) or read.lineno <= call.lineno:
            continue
        if len(story.shape(given[place], stack.step) or ()) == MAP:
            text = (
                f"{program.segment(call.func)}({operand_text(program.segment(part))}[None, None], "
                f'size=tuple({whole.id}.shape[-2:]), mode="nearest-exact")[0, 0]'
            )
            title = T(
                en='Resize the class numbers alone: `mode="nearest-exact"`',
                zh='单独缩放类别编号：`mode="nearest-exact"`',
            )
            return unique(program.text, [Fix(title, program.replace((read, text)), meaning="later")])
    return ()


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that write ``mode="nearest"`` (``"nearest-exact"`` for ``interpolate``) into the call; empty if the call is
    written in another way.
    """
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) not in MODES or any(k.arg is None for k in node.keywords):
        return ()
    place = MODES[call_name(node)]
    nearest = "nearest" if call_name(node) == "grid_sample" else "nearest-exact"
    left = ("mode",) if call_name(node) == "grid_sample" else ("mode", "align_corners", "antialias")
    given = [program.segment(a) for a in node.args[:place]]
    given += [f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k.arg not in left]
    text = f'{program.segment(node.func)}({", ".join(given)}, mode="{nearest}")'
    title = T(en=f'Take the nearest number: `mode="{nearest}"`', zh=f'取最近的编号：`mode="{nearest}"`')
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="later")])


RULE = Rule(
    code="PL936",
    name="classes-averaged",
    severity="warning",
    title=T(en="A map of class numbers was resized by averaging", zh="对类别编号的图做了取平均的缩放"),
    what=T(
        en="A program makes a map of labels smaller or larger like a photograph, by averages of neighbouring numbers. "
        "Between two classes there are then numbers of other classes, which the labels do not contain. Use "
        '`mode="nearest"` for labels.',
        zh="程序像缩放照片那样缩放标签图：对相邻的数取平均。于是两个类别之间出现了没有标注过的其他类别。标签请"
        '用 `mode="nearest"`。',
    ),
    why=T(
        en="`interpolate` with `bilinear`, `bicubic` or `area`, and `grid_sample` by default, compute weighted means, "
        "and `.long()` cuts off what comes after the point. They need floats, so a map of labels is converted first, "
        "which is the moment to think of the mode. `nearest` and `nearest-exact` copy values. One-hot maps of floats "
        "may be averaged: then each class has a share.",
        zh="`interpolate` 的 `bilinear`、`bicubic`、`area` 模式，以及默认的 `grid_sample`，计算的是加权平均，而 "
        "`.long()` 又去掉小数部分。它们需要浮点数，所以标签图要先转换，这正是该想到模式的时候。`nearest` 与 "
        "`nearest-exact` 复制数值。浮点的 one-hot 图可以取平均：那样每个类别得到一个份额。",
    ),
    advice=T(en='resize the labels on {line} with `mode="nearest"`.', zh='在{line}用 `mode="nearest"` 缩放标签。'),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(2, 3, 4, 4)
labels = torch.randint(0, 5, (2, 8, 8))
net = torch.nn.Conv2d(3, 5, 1)
small = F.interpolate(labels.unsqueeze(1).float(), size=(4, 4), mode="bilinear")  # PL936
loss = F.cross_entropy(net(image), small.squeeze(1).long())  # used
loss.backward()
print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(2, 3, 4, 4)
labels = torch.randint(0, 5, (2, 8, 8))
net = torch.nn.Conv2d(3, 5, 1)
small = F.interpolate(labels.unsqueeze(1).float(), size=(4, 4), mode="nearest-exact")
loss = F.cross_entropy(net(image), small.squeeze(1).long())
loss.backward()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "small.squeeze(1).long()",
            "small.squeeze(1).round().long()",
            T(
                en="A rounded average of two classes is still a third one.",
                zh="两个类别的平均值四舍五入后仍是第三个类别。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html",),
)
