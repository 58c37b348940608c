"""PL819: the nearest rows are found from distances that a matrix product has rounded away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.distances import takes_largest
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Counted, Event, T
from pitfall_lab.trace.operation_facts import spellings

SMALLEST = {"argmin", "min", "amin", "kthvalue", "sort", "argsort", "msort"}
"""Calls that look for small numbers, or sort."""
LARGEST = {"argmax", "max", "amax", "kthvalue", "sort", "argsort", "msort"}
"""Calls that look for large numbers, or sort."""
GROWING = (
    SAME_NUMBERS
    | spellings("add", "exp", "log", "masked_fill", "sqrt", in_place=True)
    | {"__getitem__", "fill_diagonal_", "log1p", "softmax", "square", "where"}
)
"""Calls whose result increases with their first operand."""
FURTHER = 40
RULER = "donot_use_mm_for_euclid_dist"
"""The mode of ``cdist`` that subtracts coordinates."""


@dataclass(frozen=True, slots=True)
class DistancesCancelled:
    """``event`` is the ``cdist`` (``Event``) whose smallest numbers are at the wrong indices, ``counted`` the record of
    how many rows this concerns, and ``used`` the call that looks for them.
    """

    event: Event
    counted: Counted
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a ``cdist`` of which the trace records that the smallest numbers are not
    those of the nearest rows, if a later call looks for the smallest ones.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind != "cancelled" or event is None or event.error is not None or not event.results:
            continue
        used = _used(story, event)
        if used is not None:
            yield _finding(story, DistancesCancelled(event, counted, used))


def _used(story: Story, event: Event) -> Event | None:
    """Return the first call that looks for the smallest distances, or for the largest of their negatives; None if there
    is none.
    """
    pending, seen = [(event.results[0], 1)], {event.results[0]}
    found: list[Event] = []
    while pending and len(seen) < FURTHER:
        label, sign = pending.pop()
        for use in story.uses(label):
            if use.step <= event.step or use.error is not None:
                continue
            if _looks_for_smallest(story, use, sign):
                found.append(use)
            passed = _passed(story, use, label)
            fresh = [(each, sign * passed) for each in use.results if each not in seen] if passed else []
            seen.update(each for each, _ in fresh)
            pending += fresh
    return min(found, key=lambda each: each.step, default=None)


def _looks_for_smallest(story: Story, use: Event, sign: int) -> bool:
    """Whether a call looks for the smallest distances; ``sign`` is -1 if its operand contains negated distances, else
    1.

    A ``topk`` whose direction is not known counts if it returns only zeros.
    """
    if use.name == "topk":
        count = len(story.shape(use.operands[0].label, use.step) or ())
        axis = whole(argument(use, "dim", 2) or "-1")
        is_largest = takes_largest(story, use, axis % count) if axis is not None and count else None
        picked = [value for _, value in Elements(story, use.results[0], use.step).known()]
        return is_largest == (sign < 0) if is_largest is not None else bool(picked) and not any(picked)
    return use.name in (SMALLEST if sign > 0 else LARGEST)


def _passed(story: Story, use: Event, label: str) -> int:
    """Return 1 if the result of a call has the same order as the operand ``label``, -1 if it has the opposite order, 0
    if neither is known.
    """
    first = use.operands[0].label if use.operands else None
    if use.name in spellings("neg", in_place=True):
        return -1
    if use.name in spellings("sub", in_place=True, exchanged=True):
        return 1 if (first == label) != (use.name in ("rsub", "__rsub__")) else -1
    if use.name in SCALING:
        numbers = [constant(story, o.label, o.text, use.step) for o in use.operands if o.label != label and not o.name]
        if len(numbers) != 1 or not numbers[0] or (SCALING[use.name] < 0 and first != label):
            return 0
        return 1 if numbers[0] > 0 else -1
    if use.name in spellings("pow", in_place=True):
        return int((constant(story, use.operands[-1].label, use.operands[-1].text, use.step) or 0) > 0)
    return int(use.name in GROWING)


def _finding(story: Story, found: DistancesCancelled) -> Finding:
    event, counted = found.event, found.counted
    row, taken, came, far, nearest, near, square = counted.numbers
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.used.step))
    one, other = (shown(story, event, o.label) for o in event.operands[:2])
    dtype = str((story.tensor(event.results[0], event.step) or {}).get("dtype") or "float32")
    digits = 7 if dtype == "float32" else 16
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} gets distances so inexact that for {counted.count} of {counted.of} rows of "
            f"{one.en} another row of {other.en} seems the nearest: for row {row:.0f} it is row {taken:.0f}, with the "
            f"distance {number(came)}, really {number(far)}; row {nearest:.0f} is {number(near)} away.",
            zh=f"{here.zh}得到的距离很不准确，{one.zh} 的 {counted.of} 行中有 {counted.count} 行，看起来最近的并不是 "
            f"{other.zh} 中最近的那一行：第 {row:.0f} 行得到的是第 {taken:.0f} 行，距离算成 {number(came)}，其实是 "
            f"{number(far)}；而第 {nearest:.0f} 行的距离是 {number(near)}。",
        ),
        T(
            en="For more than 25 rows, `cdist` computes the squared distance as |a|² + |b|² - 2a·b, with one product "
            f"of matrices. Here |a|² is up to {number(square)}, and {dtype} keeps about {digits} digits of it: the "
            f"difference of such numbers has lost the digits of a small distance. {capital(there.en)} looks for "
            "the smallest ones. Subtracting the coordinates first keeps them.",
            zh=f"超过 25 行时，`cdist` 用一次矩阵乘法，按 |a|² + |b|² - 2a·b 计算距离的平方。这里 |a|² 最大为 "
            f"{number(square)}，而 {dtype} 大约只保留其中 {digits} 位数字：这样的数相减，小距离的数字就丢失了。"
            f"{there.zh}要找的正是最小的距离。先让坐标相减，就能保留它们。",
        ),
        related=[
            story.related("used", found.used.step, T(en="the smallest ones are used here", zh="在这里使用最小的距离"))
        ],
        fixes=_fixes(story, event),
        facts=[Fact("wrong", counted.count, story.by(event.step)), Fact("of", counted.of, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """A fix that lets ``cdist`` subtract coordinates; empty if the call is not in the program itself, or has four
    positional arguments or a ``**``.
    """
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) != "cdist" or not node.args:
        return ()
    mode = f'"{RULER}"'
    given = next((word.value for word in node.keywords if word.arg == "compute_mode"), None)
    last = node.keywords[-1].value if node.keywords else node.args[-1]
    if len(node.args) > len({"x1", "x2", "p"}) or any(word.arg is None for word in node.keywords):
        return ()
    change = (given, mode) if given is not None else (last, f"{program.segment(last)}, compute_mode={mode}")
    title = T(en=f"Subtract first: `compute_mode={mode}`", zh=f"先相减：`compute_mode={mode}`")
    return unique(program.text, [Fix(title, program.replace(change), meaning="later")])


RULE = Rule(
    code="PL819",
    name="distances-cancelled",
    severity="warning",
    title=T(
        en="The nearest neighbours are chosen by distances that rounding has made useless",
        zh="按舍入误差过大的距离选取最近的邻居",
    ),
    what=T(
        en="A program looks for the nearest points with `torch.cdist`, and the coordinates are large compared with the "
        "distances, as positions on a map are. For more than 25 points the small distances that come out are mostly "
        "rounding: 0 for points that are far apart, and other points seem nearest. Give "
        '`compute_mode="donot_use_mm_for_euclid_dist"`, or subtract a common offset from the coordinates first.',
        zh="程序用 `torch.cdist` 寻找最近的点，而坐标与距离相比很大，例如地图上的位置。超过 25 个点时，得到的小距离大多"
        "只是舍入误差：相距很远的点得到 0，看起来最近的成了别的点。请给出 "
        '`compute_mode="donot_use_mm_for_euclid_dist"`，或者先从坐标中减去共同的偏移量。',
    ),
    why=T(
        en="|a - b|² = |a|² + |b|² - 2a·b needs one product of matrices for all pairs, which is fast, and torch takes "
        "this way by default if one of the tables has more than 25 rows. In exact arithmetic both sides are equal. In "
        "float32 the three terms are rounded at their seventh digit; where they cancel, nothing but these errors is "
        "left. With `donot_use_mm_for_euclid_dist` the coordinates are subtracted first, "
        "so a small distance keeps its digits.",
        zh="|a - b|² = |a|² + |b|² - 2a·b 只需对所有点对做一次矩阵乘法，速度快；只要有一个表超过 25 行，torch 默认就这"
        "样算。精确计算时两边相等。在 float32 中，三项都在第七位数字处舍入；它们相消之后，剩下的就只有这些误差。使用 "
        "`donot_use_mm_for_euclid_dist` 时先让坐标相减，小距离的数字就保留下来。",
    ),
    bad="""import torch

torch.manual_seed(0)
before = torch.tensor([5200.0, 8700.0]) + 12 * torch.rand(100, 2)
after = before + 0.02
distance = torch.cdist(before, after)  # PL819
gap, partner = distance.min(dim=1)  # used
print("found again", (partner == torch.arange(100)).sum(), "mean distance", gap.mean())
""",
    good="""import torch

torch.manual_seed(0)
before = torch.tensor([5200.0, 8700.0]) + 12 * torch.rand(100, 2)
after = before + 0.02
distance = torch.cdist(before, after, compute_mode="donot_use_mm_for_euclid_dist")
gap, partner = distance.min(dim=1)
print("found again", (partner == torch.arange(100)).sum(), "mean distance", gap.mean())
""",
    find=find,
    traps=(
        Trap(
            "distance = torch.cdist(before, after)",
            "distance = torch.cdist(before, after).clamp(min=1e-6)",
            T(
                en="The smallest numbers are equal now instead of 0; which point is near is as unknown as before.",
                zh="最小的数从 0 变成了同一个数；哪个点近仍然不知道。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
)
