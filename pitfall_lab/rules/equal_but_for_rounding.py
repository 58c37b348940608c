"""PL836: fractions are compared for equality, and what should be equal differs by rounding alone."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name, with_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, Operand, T

COMPARED = ("eq", "__eq__")
DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
STEPS = 4
"""Numbers count as equal but for rounding if they are at most this many steps of their dtype apart."""
MOST = 4096


@dataclass(frozen=True, slots=True)
class Near:
    """``event`` is the comparison (``Event``) of two numbers, ``one`` and ``other``, which differ by rounding only;
    ``types`` are the dtypes of the two operands (a plain number has that of the other one).
    """

    event: Event
    one: float
    other: float
    types: tuple[str, str]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares floating-point numbers by ``==`` or ``eq``, not with a Python
    integer, and never finds two equal, although some differ by at most ``STEPS`` roundings.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*COMPARED):
        if event.error is None and event.results and len(event.operands) > 1 and _kinds(story, event) is not None:
            places[story.span(event.step)].append(event)
    for events in places.values():
        near = [found for event in events if (found := _near(story, event)) is not None]
        if near and not any(_any_equal(story, event) for event in events):
            yield _finding(story, near[0])


def _kinds(story: Story, event: Event) -> tuple[str, str] | None:
    """Return the dtypes of both operands if they are floating-point and no operand is a Python number without fraction;
    else None.

    A Python number has the dtype of the other operand.
    """
    kinds = [
        str((story.tensor(o.label, event.step) or {}).get("dtype")) if o.label is not None else ""
        for o in event.operands[:2]
    ]
    first, second = (kind or next(k for k in kinds if k) for kind in kinds)
    plain = next((o.text for o in event.operands[:2] if o.label is None), "0.5")
    try:
        return (first, second) if first in DIGITS and second in DIGITS and not float(plain).is_integer() else None
    except ValueError:
        return None


def _any_equal(story: Story, event: Event) -> bool:
    """Whether a known result of the comparison is True; True also if none is known."""
    held = list(Elements(story, event.results[0], event.step, answers=True).known())
    return not held or any(value for _, value in held)


def _near(story: Story, event: Event) -> Near | None:
    """Return two numbers that the call compared and that differ by at most ``STEPS`` roundings of the dtype with fewer
    digits, but are not equal.

    None if there are none among the first ``MOST`` known indices.
    """
    kinds = _kinds(story, event) or ("", "")
    shape = story.shape(event.results[0], event.step) or ()
    sides = [Elements(story, o.label, event.step) if o.label is not None else float(o.text) for o in event.operands[:2]]
    step = 2.0 ** (1 - min(DIGITS[kind] for kind in kinds)) * STEPS
    indices = {index for index, _ in Elements(story, event.results[0], event.step, answers=True).known()}
    for index in sorted(indices)[:MOST] if shape else product():
        one, other = (side if isinstance(side, float) else side.at(index) for side in sides)
        if one is None or other is None or not one or one == other:
            continue
        if abs(one - other) <= step * abs(one):
            return Near(event, one, other, kinds)
    return None


def _finding(story: Story, found: Near) -> Finding:
    event = found.event
    here = at_line(story, story.span(event.step))
    names = [_name(story, event, o) for o in event.operands[:2]]
    one, other = f"{found.one:.9g}", f"{found.other:.17g}" if found.types[0] != found.types[1] else f"{found.other:.9g}"
    kinds = T(en="", zh="")
    if found.types[0] != found.types[1]:
        kinds = T(en=f" ({found.types[0]} beside {found.types[1]})", zh=f"（{found.types[0]} 与 {found.types[1]}）")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} asks whether {names[0].en} is equal to {names[1].en}, and finds nothing equal: "
            f"{one} and {other} differ by rounding alone{kinds.en}.",
            zh=f"{here.zh}检查 {names[0].zh} 是否等于 {names[1].zh}，却没有一个相等：{one} 与 {other} 只差"
            f"在舍入上{kinds.zh}。",
        ),
        T(
            en="Fractions such as 0.1 have no exact binary form. Each type, and each way to compute them, rounds in "
            "its own way, so numbers that are equal on paper differ in the last digits, and `==` compares all digits. "
            "Compare whole numbers, or with a tolerance.",
            zh="像 0.1 这样的小数没有精确的二进制表示。每种类型、每种计算方式都以自己的方式舍入，所以纸面上相等的数在"
            "最后几位上不同，而 `==` 比较所有位。请比较整数，或者带容差地比较。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("one", found.one, story.by(event.step)), Fact("other", found.other, story.by(event.step))],
    )


def _name(story: Story, event: Event, given: Operand) -> T:
    node = written_as(story, event, given.label) if given.label is not None else None
    text = story.program.segment(node) if node is not None else given.text
    return T(en=f"`{text}`", zh=f"`{text}`") if text else expression(story, given.label, event.step)


def _fixes(story: Story, found: Near) -> tuple[Fix, ...]:
    """At most one fix: it compares both in the dtype with fewer digits or, if both have one dtype, with ``isclose``.

    Empty if the line shows no single comparison, or the program does not import torch.
    """
    program, event, torch = story.program, found.event, torch_name(story.program)
    node = program.at(story.span(event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or torch is None:
        return ()
    sides = [node.left, node.comparators[0]]
    candidates = []
    if found.types[0] != found.types[1]:
        long = max((0, 1), key=lambda place: DIGITS[found.types[place]])
        given = written_as(story, event, event.operands[long].label) or sides[long]
        new = f"{operand(program, given)}.to({torch}.{found.types[1 - long]})"
        title = T(en=f"Compare in one type: `{new}`", zh=f"用同一种类型比较：`{new}`")
        candidates.append(Fix(title, program.replace((given, new)), meaning="later"))
    else:
        one, other = (program.segment(side) for side in sides)
        if event.operands[0].label is None:
            one = f"{torch}.tensor({one})"
        if event.operands[1].label is None:
            other = f"{torch}.tensor({other})"
        new = f"{torch}.isclose({one}, {other})"
        title = T(en=f"Compare with a tolerance: `{new}`", zh=f"带容差地比较：`{new}`")
        candidates.append(Fix(title, program.splice((with_parentheses(program, node), new)), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL836",
    name="equal-but-for-rounding",
    severity="warning",
    title=T(
        en="Fractions are compared for equality, and rounding makes them differ",
        zh="对小数做相等比较，而舍入使它们不同",
    ),
    what=T(
        en="A program looks for numbers that are equal to a given fraction. The numbers were computed, or "
        "have another type, and differ from it in the last digit, so that nothing is found. Compare with a "
        "tolerance: `torch.isclose`.",
        zh="程序寻找与某个小数相等的数。这些数是算出来的，或者是别的类型，最后一位与它不同，于是什么也找不到。请带容差"
        "地比较：`torch.isclose`。",
    ),
    why=T(
        en="0.1 is stored as the nearest fraction of a power of two: 24 binary digits in float32, 53 in float64, and "
        "the two are not the same number. Ten times 0.1 added is not 1, since each sum is rounded. Torch compares "
        "float32 with float64 in float64, so a float32 0.1 is never equal to NumPy's 0.1. Only fractions with few "
        "binary digits, such as 0.5 or 0.25, are exact in all types.",
        zh="0.1 存储为最接近的、分母为 2 的幂的分数：float32 有 24 个二进制位，float64 有 53 个，两者不是同一个数。把 "
        "0.1 加十次得不到 1，因为每次求和都要舍入。torch 用 float64 来比较 float32 与 float64，所以 float32 的 0.1 永"
        "远不等于 NumPy 的 0.1。只有二进制位数很少的小数（如 0.5、0.25）在所有类型中都精确。",
    ),
    bad="""import torch

levels = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)
x = torch.tensor([0.2, 0.1, 0.4])
print((x[:, None] == levels).float().argmax(1))  # PL836
""",
    good="""import torch

levels = torch.tensor([0.1, 0.2, 0.4], dtype=torch.float64)
x = torch.tensor([0.2, 0.1, 0.4])
print((x[:, None] == levels.to(torch.float32)).float().argmax(1))
""",
    find=find,
    traps=(
        Trap(
            "x = torch.tensor([0.2, 0.1, 0.4])",
            "x = torch.tensor([0.2, 0.1, 0.4]).round(decimals=1)",
            T(
                en="Rounded to one decimal, each is the nearest float32 again.",
                zh="舍入到一位小数，得到的仍是最接近的 float32。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.isclose.html",),
)
