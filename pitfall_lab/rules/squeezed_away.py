"""PL462: ``squeeze()`` also removes the axis of the examples when there is one example, and what
follows works along another axis.
"""

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
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.axes import ELEMENTWISE, PRODUCTS
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

ALONG = {"mean": 1, "sum": 1, "std": 1, "var": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "median": 1, "argmax": 1,
         "argmin": 1, "softmax": 1, "log_softmax": 1, "cumsum": 1, "flip": 1, "sort": 1, "prod": 1, "logsumexp": 1,
         "quantile": 2, "topk": 2, "norm": 2, "select": 1, "unbind": 1}  # fmt: skip
"""Calls that work along an axis, each with the position of that argument."""
KEEPING = ELEMENTWISE | PRODUCTS | {"div", "square", "pow", "exp", "abs", "sqrt"}
"""Calls of one operand after which the axes are the same."""
UPWARD = 40


@dataclass(frozen=True, slots=True)
class Squeezed:
    """``event`` is the call (``Event``) of ``squeeze()`` on a batch of one example that also removed axis 0, the one of
    the examples; ``usual`` is a call on the same line with more examples, which kept it.

    ``used`` is a later call that works along axis 0 of the result of ``event``.
    """

    event: Event
    usual: Event
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a ``squeeze()`` that removes the first axis where there is one example and
    keeps it where there are more, if a later call works along the first axis of what is left.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls("squeeze"):
        if (
            event.error is None
            and event.results
            and len(event.operands) == 1
            and story.shape(event.operands[0].label, event.step)
        ):
            places[story.span(event.step)].append(event)
    for events in places.values():
        found = _squeezed(story, events) if len(events) > 1 else None
        if found is not None:
            yield _finding(story, found)


def _squeezed(story: Story, events: list[Event]) -> Squeezed | None:
    """The data of the finding if ``squeeze`` also removed the axis of the examples where there was one example, and a
    later call works along the first axis of the result.

    None if not, or if none of the other ``events`` kept that axis.
    """
    shapes = {
        event.step: (_shape(story, event.operands[0].label, event), _shape(story, event.results[0], event))
        for event in events
    }
    usual = next(
        (e for e in events if shapes[e.step][0][0] > 1 and shapes[e.step][1][:1] == shapes[e.step][0][:1]), None
    )
    if usual is None:
        return None
    for event in events:
        before, after = shapes[event.step]
        same = before[0] == 1 and before[1:] == shapes[usual.step][0][1:] and after == shapes[usual.step][1][1:]
        used = _used(story, event) if same else None
        if used is not None:
            return Squeezed(event, usual, used)
    return None


def _shape(story: Story, label: str | None, event: Event) -> tuple[int, ...]:
    return story.shape(label, event.step) or ()


def _used(story: Story, event: Event) -> Event | None:
    """The first call that works along axis 0 of the squeezed tensor, which now has the values of one example; None if
    none does.
    """
    pending, seen = [event.results[0]], {event.results[0]}
    while pending and len(seen) < UPWARD:
        here = pending.pop(0)
        for use in story.uses(here):
            if use.step <= event.step or use.error is not None:
                continue
            first = use.operands[0].label == here
            axis = whole(argument(use, "dim", ALONG[use.name])) if use.name in ALONG else None
            if first and (
                axis == 0
                or (use.name == "__getitem__" and len(use.operands) > 1 and whole(use.operands[1].text) is not None)
            ):
                return use
            for result in use.results if use.name in KEEPING else ():
                if result not in seen:
                    seen.add(result)
                    pending.append(result)
    return None


def _finding(story: Story, found: Squeezed) -> Finding:
    event, used = found.event, found.used
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(used.step))
    what = expression(story, event.operands[0].label, event.step)
    shown = [
        "×".join(map(str, _shape(story, label, each)))
        for each in (event, found.usual)
        for label in (each.operands[0].label, each.results[0])
    ]
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} removes the axis of the examples as well when there is one: {what.en} goes from "
            f"{shown[0]} to {shown[1]} (but {shown[2]} becomes {shown[3]}), and {there.en} then works along the "
            "numbers of that example.",
            zh=f"只有一个样本时，{here.zh}连样本的轴也去掉了：{what.zh} 从 {shown[0]} 变成 {shown[1]}（而 {shown[2]} "
            f"变成 {shown[3]}），{there.zh}于是沿这个样本的各个数进行。",
        ),
        T(
            en="Without an axis `squeeze` removes every axis of length 1, and which ones these are depends on the "
            "data. The last batch, or a class with a single example, then has one axis less than all others. Name the "
            "axes that are to go.",
            zh="不指定轴时，`squeeze` 会去掉所有长度为 1 的轴，而哪些轴长度为 1 取决于数据。最后一个批次，或只有一个样"
            "本的类别，就比其他的少一个轴。请写明要去掉哪些轴。",
        ),
        related=[story.related("used", used.step, T(en="works along axis 0", zh="沿第 0 轴进行"))],
        fixes=_fixes(story, found),
        facts=[Fact("shape", shown[1], story.by(event.step)), Fact("usual", shown[3], story.by(found.usual.step))],
    )


def _fixes(story: Story, found: Squeezed) -> tuple[Fix, ...]:
    """At most one fix: it names the axis which the other calls remove, or flattens if there are several.

    Empty unless the call is a ``squeeze`` without keywords, and the results of the other calls are vectors or tables.
    """
    program = story.program
    call = program.at(story.span(found.event.step)) if program.tree is not None else None
    if (
        not isinstance(call, ast.Call)
        or call_name(call) != "squeeze"
        or not isinstance(call.func, ast.Attribute)
        or call.keywords
    ):
        return ()
    source = call.args[0] if call.args else call.func.value
    before, after = (
        _shape(story, label, found.usual) for label in (found.usual.operands[0].label, found.usual.results[0])
    )
    gone = [axis for axis in range(1, len(before)) if before[axis] == 1]
    text = operand(program, source)
    new = (
        f"{text}.squeeze({gone[0]})"
        if len(gone) == 1
        else f"{text}.flatten(1)"
        if len(after) == len(("rows", "columns"))
        else ""
    )
    title = T(en=f"Say which axis goes: `{new}`", zh=f"写明去掉哪个轴：`{new}`")
    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")]) if new else ()


RULE = Rule(
    code="PL462",
    name="squeezed-away",
    severity="warning",
    title=T(en="squeeze removed the axis of a single example", zh="squeeze 去掉了唯一样本的轴"),
    what=T(
        en="A program removes axes of length 1 with `squeeze()`, and one of its batches has a single example. There "
        "the axis of the examples is removed as well, and the mean over the examples becomes a mean over the numbers "
        "of that one. Name the axis: `squeeze(1)`, or `flatten(1)`.",
        zh="程序用 `squeeze()` 去掉长度为 1 的轴，而其中一个批次只有一个样本。这时样本的轴也被去掉了，对样本求的均值变"
        "成了对这个样本的各个数求均值。请写明轴：`squeeze(1)` 或 `flatten(1)`。",
    ),
    why=T(
        en="The number of axes of `x.squeeze()` depends on the lengths, which come from the data. `(4, 8, 1, "
        "1)` becomes `(4, 8)`, and `(1, 8, 1, 1)` becomes `(8,)`. `mean(0)` is defined for both: in one it is "
        "the mean of four vectors, in the other one number. Broadcasting then stretches that number wherever "
        "a vector was expected.",
        zh="`x.squeeze()` 的轴数取决于各轴的长度，而长度来自数据。`(4, 8, 1, 1)` 变成 `(4, 8)`，`(1, 8, 1, "
        "1)` 则变成 `(8,)`。两者都可以求 `mean(0)`：前者是四个向量的均值，后者只是一个数。之后凡是需要向量的地"
        "方，广播会把这个数拉伸。",
    ),
    bad="""import torch

torch.manual_seed(0)
pool = torch.nn.AdaptiveAvgPool2d(1)
classes = [torch.rand(3, 4, 2, 2), torch.rand(1, 4, 2, 2)]
for pictures in classes:
    vectors = pool(pictures).squeeze()  # PL462
    print(vectors.mean(0))  # used
""",
    good="""import torch

torch.manual_seed(0)
pool = torch.nn.AdaptiveAvgPool2d(1)
classes = [torch.rand(3, 4, 2, 2), torch.rand(1, 4, 2, 2)]
for pictures in classes:
    vectors = pool(pictures).flatten(1)
    print(vectors.mean(0))
""",
    find=find,
    traps=(
        Trap(
            "vectors.mean(0)",
            "vectors.mean(0, keepdim=True)",
            T(en="The axis that is kept is the one of the numbers.", zh="保留的是各个数所在的轴。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html",),
)
