"""PL820: large numbers were converted to a dtype in which neighbouring numbers are equal, and the program works with
their differences afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.widening import DIGITS, wider
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Lost, T
from pitfall_lab.trace.operation_facts import spellings

MANY = 0.25
"""The fraction of the neighbours that must have become equal."""
EXTREMES = {"min", "max", "amin", "amax", "median"}
"""Calls whose result is one of their operand's numbers."""
TAKING = spellings("sub", in_place=True, exchanged=True)
DIFFERENCES = {"diff", "cdist", "pdist"}
FURTHER = 300


@dataclass(frozen=True, slots=True)
class Rounded:
    """``event`` is the conversion (``Event``) to a dtype in which neighbouring numbers became equal.

    ``lost`` is the record of how many (:class:`Lost`). ``used`` is a later call that computes differences of the
    converted numbers or, if they were integers and the dtype has 16 bits, any call that computes with them.
    """

    event: Event
    lost: Lost
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a conversion that made at least the fraction ``MANY`` of the neighbouring
    numbers equal, if a later call computes differences of the converted numbers; for integers converted to a dtype of
    16 bits, if any later call computes with them.
    """
    reported = set()
    for lost in story.trace.beside.losses:
        event, place = story.event(lost.step), story.span(lost.step)
        if event is None or lost.sign != "=" or lost.lost < MANY * lost.of or place in reported or not event.results:
            continue
        used = _used(story, event, lost)
        if used is not None:
            reported.add(place)
            yield _finding(story, Rounded(event, lost, used))


def _dtype(story: Story, event: Event) -> str:
    return str((story.tensor(event.results[0], event.step) or {}).get("dtype") or "")


def _used(story: Story, event: Event, lost: Lost) -> Event | None:
    """Return the first call that computes differences of the converted numbers or, for integers in 16 bits, any that
    computes with them; None if there is none among the next ``FURTHER`` events.
    """
    reached, short = (
        {event.results[0]},
        _dtype(story, event) != "float32" and lost.one.is_integer() and lost.other.is_integer(),
    )
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        given = [o.label for o in later.operands if o.label is not None]
        if later.kind != "call" or later.error is not None or not reached & set(given):
            continue
        alone = set(given) <= reached
        if later.name in DIFFERENCES or (later.name in TAKING and alone and len(given) > 1):
            return later
        if later.name in SAME_NUMBERS | EXTREMES:
            reached.update(later.results)
        elif short and later.results:
            return later
    return None


def _finding(story: Story, found: Rounded) -> Finding:
    event, lost, dtype = found.event, found.lost, _dtype(story, found.event)
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.used.step))
    one, other, got = (f"{number:.15g}" for number in (lost.one, lost.other, lost.got))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} makes different numbers equal: {one} and {other} both become {got} in {dtype}, "
            f"and so do {lost.lost} of {lost.of} neighbours; {there.en} computes with what is left.",
            zh=f"{here.zh}把不同的数变成了相同的数：在 {dtype} 中 {one} 和 {other} 都成为 {got}，{lost.of} 对相邻的数"
            f"中有 {lost.lost} 对如此；{there.zh}用剩下的数继续计算。",
        ),
        T(
            en=f"{dtype} keeps {DIGITS[dtype]} binary digits of a number, wherever its point is: large "
            f"numbers get large gaps between them. `{snippet(story, event.span)}` rounds first, so a "
            "difference computed afterwards is one of rounded numbers. Compute differences in float64 or in "
            "whole numbers, and convert them.",
            zh=f"{dtype} 对每个数保留 {DIGITS[dtype]} 个二进制位，与小数点的位置无关：数越大，相邻两数之间的空"
            f"隙越大。`{snippet(story, event.span)}` 先做了舍入，之后算出的差只是舍入后的数之差。请用 float64 "
            "或整数计算差值，再转换。",
        ),
        related=[
            story.related("made", event.step, T(en="the numbers are rounded here", zh="数在这里被舍入")),
            story.related(
                "used", found.used.step, T(en="what distinguishes them is needed here", zh="这里需要的正是它们的差别")
            ),
        ],
        fixes=_fixes(story, found, dtype),
        facts=[Fact("equal", lost.lost), Fact("neighbours", lost.of)],
    )


def _fixes(story: Story, found: Rounded, dtype: str) -> tuple[Fix, ...]:
    """Fixes that convert to float64 first, and the differences to ``dtype``; or to float64 throughout.

    Empty if the program does not show the dtype of the conversion.
    """
    program = story.program
    wide = wider(program, program.at(story.span(found.event.step)))
    difference = program.at(story.span(found.used.step))
    if wide is None:
        return ()
    back = f".to({torch_name(program) or 'torch'}.{dtype})" if dtype != "float32" else ".float()"
    candidates = []
    if isinstance(difference, ast.expr):
        shown = T(en=f"Compute in float64, then convert: `{back}`", zh=f"先用 float64 计算，再转换：`{back}`")
        edits = program.replace(wide, (difference, f"{in_parentheses(program, difference)}{back}"))
        candidates.append(Fix(shown, edits, meaning="later"))
    candidates.append(
        Fix(T(en="Keep the numbers in float64", zh="让数保持 float64"), program.replace(wide), meaning="later")
    )
    return unique(program.text, candidates)


RULE = Rule(
    code="PL820",
    name="difference-of-rounded-numbers",
    severity="warning",
    title=T(en="Large numbers were rounded before their differences were taken", zh="大数先被舍入，再计算它们的差"),
    what=T(
        en="A program converted times such as 1700000000 seconds to float32, where the next number is 128 further, "
        "and subtracted them afterwards. Most differences are 0 or 128. Subtract first, in float64 or in whole "
        "numbers, and convert the differences.",
        zh="程序把 1700000000 秒这样的时间转换成 float32，而在那里下一个数要大 128，之后才相减。大多数差值是 0 或 128。"
        "请先用 float64 或整数相减，再转换差值。",
    ),
    why=T(
        en="A float32 number has 24 binary digits: up to 16777216 every whole number has a place, at 1700000000 only "
        "every 128th, and a bfloat16 with its 8 digits skips numbers from 256 on. A conversion rounds to the nearest "
        "place without a word, and nothing brings back what it dropped. Times in seconds, identification numbers, "
        "distances from a far origin and long positions are such numbers. Subtracting an offset *before* the "
        "conversion leaves small numbers, which keep all their digits.",
        zh="float32 的数有 24 个二进制位：16777216 以内每个整数都有位置，到 1700000000 时每隔 128 才有一个；bfloat16 "
        "只有 8 位，从 256 起就会跳过一些数。转换会默默地舍入到最近的位置，丢掉的部分再也找不回来。以秒计的时间、编"
        "号、离原点很远的坐标、很长的位置序号都是这样的数。在转换*之前*减去偏移量，剩下的小数会保留全部位数。",
    ),
    bad="""import torch

times = torch.tensor([1700000000, 1700000020, 1700000050, 1700000060])
t = times.to(torch.float32)  # PL820 made
gaps = t[1:] - t[:-1]  # used
w = torch.ones(3, requires_grad=True)
loss = (w * gaps).sum()
loss.backward()
print(gaps, w.grad)
""",
    good="""import torch

times = torch.tensor([1700000000, 1700000020, 1700000050, 1700000060])
t = times.to(torch.float64)
gaps = (t[1:] - t[:-1]).float()
w = torch.ones(3, requires_grad=True)
loss = (w * gaps).sum()
loss.backward()
print(gaps, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "gaps = t[1:] - t[:-1]",
            "gaps = t.double()[1:] - t.double()[:-1]",
            T(
                en="The values are rounded already: float64 does not bring their digits back.",
                zh="数已经被舍入：换成 float64，位数也回不来。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html",
    ),
)
