"""PL776: numbers are reduced into groups with `scatter_reduce`, and the zeros that the result starts
from are counted as numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SCATTERS = spellings("index_reduce", "scatter_reduce", in_place=True)
ZEROS = {"zeros", "zeros_like", "new_zeros"}
"""Calls that make zeros."""
ALIKE = {"to", "expand", "unsqueeze", "view", "reshape", "clone", "__getitem__", "narrow"}
"""Calls that zeros are followed through."""
REDUCE = 4
"""The position of the argument ``reduce``."""
MOST = 5


@dataclass(frozen=True, slots=True)
class StartCountedInGroups:
    """``event`` is the call (``Event``) of ``scatter_reduce`` or ``index_reduce`` that reduced numbers by ``how``
    ("mean", "amax", …) into groups that start from the zeros which the call ``start`` made.
    """

    event: Event
    start: Event
    how: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a ``scatter_reduce`` or ``index_reduce`` into zeros which it counts as
    numbers: in a mean or product always, in ``amax`` where all known numbers are negative, in ``amin`` where all are
    positive.

    Not where the call says ``include_self``.
    """
    reported = set()
    for event in story.calls(*SCATTERS):
        place = story.span(event.step)
        if place not in reported and event.error is None and (found := _counted(story, event)) is not None:
            reported.add(place)
            yield _finding(story, found)


def _counted(story: Story, event: Event) -> StartCountedInGroups | None:
    """The data of the finding; None if the zeros do no harm, were written before, or are counted because the call says
    so.

    The trace has no arguments that are False: whether ``include_self=False`` was given shows in the program's source
    alone.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    how = (argument(event, "reduce", REDUCE) or "").strip("'\"")
    node = story.program.at(story.span(event.step))
    if len(labels) != 3 or argument(event, "include_self", REDUCE + 1) is not None or not isinstance(node, ast.Call):
        return None
    if any(keyword.arg in ("include_self", None) for keyword in node.keywords) or len(node.args) > REDUCE + 1:
        return None
    start = _zeros(story, labels[0], event.step)
    return (
        StartCountedInGroups(event, start, how)
        if start is not None and _does_harm(story, how, labels[2], event.step)
        else None
    )


def _zeros(story: Story, label: str, step: int) -> Event | None:
    """The call that made zeros which nothing has written since, perhaps before a view or a conversion; None if there is
    none.
    """
    for _ in range(MOST):
        record = story.tensor(label, step) or {}
        made = made_by(story, label, step)
        if made is None or story.writes(str(record.get("storage")), made.step, step):
            return None
        if made.name in ZEROS:
            return made
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in ALIKE or len(given) != 1:
            return None
        label, step = given[0], made.step
    return None


def _does_harm(story: Story, how: str, source: str, step: int) -> bool:
    """Whether a zero more changes each group: always a mean or a product; an extreme only if
    all known numbers lie beyond 0.
    """
    if how in ("mean", "prod"):
        return True
    known = [value for _, value in Elements(story, source, step).known()]
    return bool(known) and ((how == "amax" and max(known) < 0) or (how == "amin" and min(known) > 0))


_SAYS = {
    "mean": T(en="divides by one more than each group has numbers", zh="除数比每组的数的个数多一"),
    "prod": T(en="makes every product 0", zh="使每个乘积都为 0"),
    "amax": T(en="makes 0 the largest of numbers that are all negative", zh="使 0 成为全是负数的各组中的最大值"),
    "amin": T(en="makes 0 the smallest of numbers that are all positive", zh="使 0 成为全是正数的各组中的最小值"),
}
"""What the start does in each reduction."""


def _finding(story: Story, found: StartCountedInGroups) -> Finding:
    event, says = found.event, _SAYS[found.how]
    span, name = story.span(event.step), event.name
    here, there = at_line(story, span), at_line(story, story.span(found.start.step))
    source = expression(story, [o.label for o in event.operands if o.label is not None][2], event.step)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} reduces {source.en} into groups and counts the zeros from {there.en} as one "
            f"number of each group, which {says.en}.",
            zh=f"{here.zh}把 {source.zh} 归约到各组，并把{there.zh}的零也算作每组的一个数，这{says.zh}。",
        ),
        T(
            en=f"`{name}` has `include_self=True` unless `False` is given: what was in the tensor takes part. "
            "With `include_self=False` a group consists of the numbers that are scattered into it, and a group "
            "without any keeps its 0.",
            zh=f"`{name}` 默认 `include_self=True`：张量里原有的数也参加归约。设为 `include_self=False` 时，每组只由散"
            "布进去的数组成，没有数的组保持为 0。",
        ),
        related=[story.related("made", found.start.step, T(en="these zeros are counted", zh="这些零被计入"))],
        fixes=_fixes(story, event),
        facts=[Fact("reduce", found.how, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """At most one fix: it adds ``include_self=False`` to the call. Empty if the program's source shows no call."""
    node = story.program.at(story.span(event.step))
    text = story.program.segment(node).rstrip() if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not text.endswith(")"):
        return ()
    new = f"{text[:-1].rstrip().removesuffix(',')}, include_self=False)"
    title = T(en="Leave the start out: `include_self=False`", zh="不计入初始值：`include_self=False`")
    return unique(story.program.text, [Fix(title, story.program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL776",
    name="start-counted-in-groups",
    severity="warning",
    title=T(en="The zeros that a group starts from are counted", zh="各组的初始零也被计入"),
    what=T(
        en="A program takes the mean of groups with `scatter_reduce`, into a tensor of zeros. The zeros count as one "
        "number more in each group, so every mean is too small. Add `include_self=False`.",
        zh="程序用 `scatter_reduce` 对各组求平均，结果写入一个全零张量。这些零在每组中多算一个数，所以每个平均值都偏"
        "小。请加上 `include_self=False`。",
    ),
    why=T(
        en="A sum does not notice a zero, and that is how most people meet `scatter_add`. A mean divides by the "
        "number of numbers, which is one too many; a product with a zero is 0; a largest number among negative ones "
        "becomes 0. The error of a mean is largest for the smallest groups: with one number half of it is lost. In a "
        "graph network the neighbourhoods are then mixed up with their sizes.",
        zh="求和时多一个零没有影响，而多数人是从 `scatter_add` 开始的。求平均时要除以数的个数，结果多除了一个；与"
        "零相乘得 0；负数中的最大值变成 0。组越小，平均值的误差越大：只有一个数时会丢掉一半。在图网络中，邻域的内"
        "容就与它的大小混在了一起。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(6, 2)
group = torch.tensor([0, 0, 1, 1, 1, 2])
index = group[:, None].expand(-1, 2)
start = torch.zeros(3, 2)  # made
means = start.scatter_reduce(0, index, x, reduce="mean")  # PL776
print(means)
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(6, 2)
group = torch.tensor([0, 0, 1, 1, 1, 2])
index = group[:, None].expand(-1, 2)
start = torch.zeros(3, 2)
means = start.scatter_reduce(0, index, x, reduce="mean", include_self=False)
print(means)
""",
    find=find,
    traps=(
        Trap(
            "torch.zeros(3, 2)",
            "x.new_zeros(3, 2)",
            T(en="Zeros as well, in another spelling.", zh="同样是零，只是写法不同。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.scatter_reduce_.html",),
)
