"""PL838: ``clamp`` has a lower limit above the upper one, and returns the upper one everywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.value_origins import argument, decimal
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

CLAMPS = spellings("clamp", in_place=True)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a ``clamp`` with two plain numbers as limits, of which the lower limit is
    larger.
    """
    reported = set()
    for event in story.calls(*CLAMPS):
        limits = decimal(argument(event, "min", 1)), decimal(argument(event, "max", 2))
        place = story.span(event.step)
        if (
            place not in reported
            and event.error is None
            and limits[0] is not None
            and limits[1] is not None
            and limits[0] > limits[1]
        ):
            reported.add(place)
            yield _finding(story, event, limits[0], limits[1])


def _finding(story: Story, event: Event, least: float, most: float) -> Finding:
    here, what = at_line(story, story.span(event.step)), expression(story, event.operands[0].label, event.step)
    low, high = number(least), number(most)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} limits {what.en} to at least {low} and at most {high}, which no number is: "
            f"all of them become {high}.",
            zh=f"{here.zh}要求 {what.zh} 至少为 {low}、至多为 {high}，没有数能满足：全部变成 {high}。",
        ),
        T(
            en="`clamp` raises what is below the lower limit and then lowers what is above the upper one. With the "
            "limits exchanged the second step reaches everything.",
            zh="`clamp` 先把低于下限的数提高，再把高于上限的数降低。上下限颠倒时，第二步会作用于所有的数。",
        ),
        fixes=_fixes(story, event),
        facts=[Fact("limits", (least, most), story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """At most one fix: it exchanges the limits. Empty if the call's text does not show both."""
    program = story.program
    call = program.at(story.span(event.step)) if program.tree is not None else None
    if not isinstance(call, ast.Call):
        return ()
    named = {k.arg: k.value for k in call.keywords}
    given = [named.get("min"), named.get("max")]
    plain = call.args[-given.count(None) :] if None in given else []
    low, high = (each if each is not None else plain.pop(0) if plain else None for each in given)
    if low is None or high is None:
        return ()
    title = T(en="Exchange the two limits", zh="交换两个界限")
    edits = program.replace((low, program.segment(high)), (high, program.segment(low)))
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL838",
    name="limits-exchanged",
    severity="warning",
    title=T(en="The limits of a clamp are exchanged", zh="clamp 的上下限颠倒了"),
    what=T(
        en="A program keeps numbers between two limits and gives the larger one first. No number is between them, "
        "and all become the second limit. Give the lower limit first: `x.clamp(0, 1)`.",
        zh="程序把数限制在两个界限之间，却先给出了较大的那个。没有数在它们之间，于是全部变成第二个界限。请先给出下"
        "限：`x.clamp(0, 1)`。",
    ),
    why=T(
        en="`torch.clamp` computes `min(max(x, low), high)` for each number, and does not compare the limits with "
        "each other, as they may be tensors. For `low > high` the result is `high` everywhere, and its gradient is 0.",
        zh="`torch.clamp` 对每个数计算 `min(max(x, low), high)`，不会把两个界限互相比较，因为它们可以是张量。当 `low "
        "> high` 时，结果处处是 `high`，梯度为 0。",
    ),
    bad="""import torch

x = torch.tensor([-0.5, 0.2, 0.7, 1.4])
print(x.clamp(1, 0))  # PL838
""",
    good="""import torch

x = torch.tensor([-0.5, 0.2, 0.7, 1.4])
print(x.clamp(0, 1))
""",
    find=find,
    traps=(
        Trap(
            "x.clamp(1, 0)",
            "x.clip(1, 0)",
            T(en="`clip` is another name for the same function.", zh="`clip` 只是同一个函数的另一个名字。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.clamp.html",),
)
