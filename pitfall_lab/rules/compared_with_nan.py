"""PL814: a tensor was compared with NaN by `==` or `!=`, which no number equals, NaN itself included."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, Operand, T
from pitfall_lab.trace.operation_facts import spellings

EQUAL, UNEQUAL = spellings("eq", in_place=True), spellings("ne", in_place=True)


@dataclass(frozen=True, slots=True)
class ComparedWithNan:
    """``event`` is the call (``Event``) that compared the tensor ``label`` (a label such as ``"t3"``) with NaN;
    ``missing`` is how many of the known elements of its storage are NaN.
    """

    event: Event
    label: str
    missing: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares, by ``==`` or ``!=``, a tensor whose known values are not all NaN
    with NaN.
    """
    told = set()
    for event in story.calls(*EQUAL, *UNEQUAL):
        place = story.span(event.step)
        found = _compared(story, event) if event.error is None and place not in told else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _compared(story: Story, event: Event) -> ComparedWithNan | None:
    """The data of the finding if one operand is NaN and the other one is a tensor whose known values are not all NaN;
    else None.

    Programs compare NaN with NaN to show that it equals nothing: that gives None.
    """
    for one, other in (event.operands[:2], event.operands[1::-1]) if len(event.operands) > 1 else ():
        if (
            one.label is None
            or one.label == other.label
            or not _is_nan(story, other, event.step)
            or _is_nan(story, one, event.step)
        ):
            continue
        held = story.held(one.label, event.step)
        return ComparedWithNan(event, one.label, sum(_nan(value) for value in held.values()))
    return None


def _is_nan(story: Story, given: Operand, step: int) -> bool:
    """Whether the operand is the number NaN, or a tensor whose known values are all NaN; False if none is known."""
    if given.label is None:
        return given.text == "nan"
    held = story.held(given.label, step)
    return bool(held) and all(map(_nan, held.values()))


def _nan(value: object) -> bool:
    return value == "nan" or (isinstance(value, float) and math.isnan(value))


def _finding(story: Story, found: ComparedWithNan) -> Finding:
    event = found.event
    here, name = at_line(story, story.span(event.step)), expression(story, found.label, event.step)
    always = event.name in UNEQUAL
    answer = T(en="True", zh="True") if always else T(en="False", zh="False")
    missed = (
        T(en=f" {found.missing} of its numbers are NaN.", zh=f"其中有 {found.missing} 个数是 NaN。")
        if found.missing
        else T(en="", zh="")
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} compares {name.en} with NaN: the answer is {answer.en} for every element, "
            f"whatever it holds.{missed.en}",
            zh=f"{here.zh}把 {name.zh} 与 NaN 比较：无论元素是什么，结果都是 {answer.zh}。{missed.zh}",
        ),
        T(
            en="NaN is not a number, so it equals nothing, not even another NaN. `==` finds none of them, and `!=` "
            "lets all of them pass. `torch.isnan` looks at the elements themselves.",
            zh="NaN 表示“不是数”，所以它不等于任何东西，连另一个 NaN 也不等于。`==` 一个也找不到，`!=` 则全部放行。"
            "`torch.isnan` 检查的是元素本身。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("missing", found.missing, story.by(event.step))],
    )


def _fixes(story: Story, found: ComparedWithNan) -> tuple[Fix, ...]:
    """At most one fix: it uses ``torch.isnan(x)``, or its negation; empty if the program does not import torch or the
    line shows no comparison.
    """
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(found.event.step))
    if torch is None or not isinstance(node, ast.Compare | ast.Call):
        return ()
    given = written_as(story, found.event, found.label)
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:  # `nan == x` is torch's `x == nan`
        given = node.comparators[0] if given is not None and "nan" in program.segment(node.left).lower() else node.left
    if given is None:
        return ()
    inside = program.segment(given)
    negated = found.event.name in UNEQUAL
    new = f"~{torch}.isnan({inside})" if negated else f"{torch}.isnan({inside})"
    title = T(en=f"Look for NaN: `{new}`", zh=f"直接检查 NaN：`{new}`")
    parent = program.parents.get(node)
    bare = (
        not negated
        or not isinstance(parent, ast.Attribute | ast.Subscript)
        or in_parentheses(program, node).startswith("(")
    )
    return unique(program.text, [Fix(title, program.replace((node, new if bare else f"({new})")), meaning="later")])


RULE = Rule(
    code="PL814",
    name="compared-with-nan",
    severity="warning",
    title=T(en="A comparison with NaN is never true", zh="与 NaN 的比较永远不成立"),
    what=T(
        en="A program looks for missing values by comparing with NaN. Nothing equals NaN, not even NaN, so it finds "
        "none of them and computes with them. Ask `torch.isnan(x)`.",
        zh="程序通过与 NaN 比较来寻找缺失值。没有任何东西等于 NaN，连 NaN 自己也不等于，所以它一个也找不到，并拿它们去"
        "计算。请用 `torch.isnan(x)`。",
    ),
    why=T(
        en="Floating-point numbers follow a standard (IEEE 754) in which NaN is the result of a computation that has "
        "none, such as 0/0. It has no place in the order of numbers: `<`, `>` and `==` with NaN are False, and `!=` "
        "is True. Python, NumPy and torch all do so. `x != x` is True exactly for NaN; `torch.isnan(x)` says what is "
        "meant, and `torch.isfinite(x)` leaves out infinities as well.",
        zh="浮点数遵循一个标准（IEEE 754），其中 NaN 是没有结果的计算（例如 0/0）的结果。它在数的次序中没有位置：与 "
        "NaN 的 `<`、`>`、`==` 都是 False，`!=` 是 True。Python、NumPy 与 torch 都如此。`x != x` 恰好对 NaN 为 True；"
        "`torch.isnan(x)` 写明了意图，`torch.isfinite(x)` 还会排除无穷大。",
    ),
    bad="""import torch

x = torch.tensor([[1.0, float("nan")], [3.0, 4.0]])
w = torch.ones(2, requires_grad=True)
missing = x == float("nan")  # PL814
x = torch.where(missing, 0.0, x)
loss = (x @ w).square().mean()
loss.backward()
print(w.grad)
""",
    good="""import torch

x = torch.tensor([[1.0, float("nan")], [3.0, 4.0]])
w = torch.ones(2, requires_grad=True)
missing = torch.isnan(x)
x = torch.where(missing, 0.0, x)
loss = (x @ w).square().mean()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            'x == float("nan")',
            "x == torch.nan",
            T(
                en="`torch.nan` is the same number, and equals as little.",
                zh="`torch.nan` 是同一个数，同样不等于任何东西。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.isnan.html",),
)
