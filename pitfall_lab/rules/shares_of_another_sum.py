"""PL464: softmax written by hand, ``x.exp() / x.exp().sum()``, adds up to 1 over all elements, or along another axis
than the one along which the result is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.axes import Use, against, uses_of_axis
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

QUOTIENTS = spellings("div", in_place=True)
MATMULS = operations_that("matrix_product")
BOTH = 2


@dataclass(frozen=True, slots=True)
class Shares:
    """``event`` is the call (``Event``) that divided exponentials by the sum that the call ``total`` took along
    ``axis`` (from 0; None: of all elements).

    ``use`` is a later use of the quotient along another axis (:class:`Use`).
    """

    event: Event
    total: Event
    axis: int | None
    use: Use


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides exponentials by their sum, where a product uses the result along
    another axis than that of the sum.
    """
    reported = set()
    for event in story.calls(*QUOTIENTS):
        place = story.span(event.step)
        found = _shares(story, event) if place not in reported and event.error is None and event.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _shares(story: Story, event: Event) -> Shares | None:
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != BOTH:
        return None
    made = [story.event((story.tensor(label, event.step) or {}).get("born")) for label in labels]
    powers, total = made
    shape = story.shape(labels[0], event.step) or ()
    if (
        powers is None
        or total is None
        or powers.name != "exp"
        or total.name != "sum"
        or len(shape) < BOTH
        or labels[1] not in total.results
    ):
        return None
    summed = story.event((story.tensor(total.operands[0].label, total.step) or {}).get("born"))
    if summed is None or summed.name != "exp" or story.shape(total.operands[0].label, total.step) != shape:
        return None
    said = argument(total, "dim", 1)
    axis = whole(said)
    if said is None or said == "None":
        uses = uses_of_axis(story, event.results[0], 0, event.step)
        use = next(
            (use for use in uses if use.event.name in MATMULS and use.event.operands[0].label == use.label), None
        )
        return Shares(event, total, None, use) if use is not None and shape[0] > 1 else None
    if axis is None:
        return None
    use, _ = against(story, event.results[0], axis % len(shape), event.step)
    return Shares(event, total, axis % len(shape), use) if use is not None else None


def _finding(story: Story, found: Shares) -> Finding:
    event, use = found.event, found.use
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(use.event.step))
    size = "×".join(map(str, story.shape(event.results[0], event.step) or ()))
    what = T(en=f"all numbers of {size} together", zh=f"{size} 的所有数") if found.axis is None else T(
        en=f"the numbers along axis {found.axis} of {size}", zh=f"{size} 沿第 {found.axis} 轴的数")  # fmt: skip
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} makes {what.en} add up to 1, but {there.en} uses them along axis "
            f"{use.axis}, where they do not.",
            zh=f"{here.zh}使{what.zh}加起来为 1，而{there.zh}沿第 {use.axis} 轴使用它们，那里加起来并不是 1。",
        ),
        T(
            en="The sum decides over what the shares are taken. `sum()` without an axis adds up every row, and "
            "`sum(0)` each column; a sum for each row is `sum(-1, keepdim=True)`, a column that divides row by row. "
            "`softmax(dim=-1)` does it in one call.",
            zh="份额在什么范围内分配，由求和决定。不带轴的 `sum()` 把所有行都加起来，`sum(0)` 是每列的和；每行的和是 "
            "`sum(-1, keepdim=True)`，它是一列，逐行去除。`softmax(dim=-1)` 一次完成。",
        ),
        related=[
            story.related("made", found.total.step, T(en="the sum is taken here", zh="在这里求和")),
            story.related(
                "used", use.event.step, T(en=f"used along axis {use.axis} here", zh=f"在这里沿第 {use.axis} 轴使用")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(event.step)), Fact("used", use.axis, story.by(use.event.step))],
    )


def _fixes(story: Story, found: Shares) -> tuple[Fix, ...]:
    """At most one fix: it takes the sum along the axis on which the shares are used.

    Empty unless the line calls ``sum``.
    """
    program = story.program
    call = program.at(story.span(found.total.step)) if program.tree is not None else None
    if not isinstance(call, ast.Call) or call_name(call) != "sum":
        return ()
    method = isinstance(call.func, ast.Attribute) and not (
        isinstance(call.func.value, ast.Name) and call.func.value.id in ("torch", "np")
    )
    given = [] if method else [program.segment(call.args[0])] if call.args else []
    axis = found.use.axis if found.use.label == found.event.results[0] else -1
    new = f"{program.segment(call.func)}({', '.join([*given, f'dim={axis}', 'keepdim=True'])})"
    title = T(en=f"Sum along axis {axis}: `{new}`", zh=f"沿第 {axis} 轴求和：`{new}`")
    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="shape")])


RULE = Rule(
    code="PL464",
    name="shares-of-another-sum",
    severity="warning",
    title=T(en="Shares by hand are divided by the sum of something else", zh="手写的份额除以了别的总和"),
    what=T(
        en="A program turns scores into shares by hand, and divides by the sum of all of them, or along the wrong "
        "axis. The shares of one row then add up to less or more than 1, and what is weighed with them is scaled by "
        "that. Sum along the row: `sum(dim=-1, keepdim=True)`.",
        zh="程序手写代码把分数变成份额，却除以了全部的总和，或沿错误的轴求和。于是一行的份额加起来小于或大于 1，用它们"
        "加权的结果也随之缩放。请沿行求和：`sum(dim=-1, keepdim=True)`。",
    ),
    why=T(
        en="`e / e.sum()` is one distribution over all entries of a matrix; a row of it has the probability of "
        "that row, not 1. In a product `weights @ values` each row is expected to add up to 1. `e.sum(0)` and "
        "`e.sum(1)` have one axis less, and broadcasting lines a vector up with the columns; `keepdim=True` keeps "
        "it where it was summed.",
        zh="`e / e.sum()` 是整个矩阵所有元素上的一个分布；其中一行的和是那一行的概率，而不是 1。在 `weights @ values` "
        "这样的乘积里，每一行应当加起来为 1。`e.sum(0)` 和 `e.sum(1)` 少一个轴，而广播会把向量与列对齐；"
        "`keepdim=True` 让它留在求和的位置。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores, values = torch.randn(3, 4), torch.ones(4, 2)
weights = scores.exp() / scores.exp().sum()  # PL464 made
print(weights @ values)  # used
""",
    good="""import torch

torch.manual_seed(0)
scores, values = torch.randn(3, 4), torch.ones(4, 2)
weights = scores.exp() / scores.exp().sum(dim=1, keepdim=True)
print(weights @ values)
""",
    find=find,
    traps=(
        Trap(
            "scores.exp().sum()",
            "scores.exp().sum(0)",
            T(
                en="The columns add up to 1 now, and the product goes along the rows.",
                zh="现在每列加起来为 1，而乘积沿着行进行。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html",),
)
