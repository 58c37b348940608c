"""PL810: integers were divided by a larger one with ``//``, so that all quotients are zero, and a network computes with
them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

DIVISIONS = spellings("div", "floor_divide") | {"__ifloordiv__", "__rfloordiv__", "floor_divide_"}
INDEXING = {"__getitem__", "__setitem__", "index_select", "gather", "embedding", "scatter_", "index_add_", "take",
            "one_hot", "index_put_", "scatter_add_", "index_copy_", "bincount"}  # fmt: skip
"""Calls that take integers as positions: rounding down is then intended."""
FEWEST = 3
FURTHER = 200


@dataclass(frozen=True, slots=True)
class Emptied:
    """``events`` are the calls (``Event``) of one line that divided integers with ``//`` by a number and gave only
    zeros.

    ``shown`` are the known numbers that were divided; ``used`` is a call that computes floating-point numbers from the
    zeros.
    """

    events: list[Event]
    shown: list[float]
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose known integer quotients are all zero, although at least ``FEWEST``
    different numbers were divided.

    Only if some quotients of each call are known, and floating-point numbers are computed from one of the results.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*DIVISIONS):
        if event.error is None and event.results and event.parent is None and _is_whole(story, event):
            places[story.span(event.step)].append(event)
    for events in places.values():
        used = next((use for event in events if (use := _quantity(story, event)) is not None), None)
        shown = (
            [value for event in events for value in values(story, event.operands[0].label, event.step)]
            if used is not None
            else []
        )
        if used is None or len(set(shown)) < FEWEST:
            continue
        quotients = [values(story, event.results[0], event.step) for event in events]
        if all(each and not any(each) for each in quotients):
            yield _finding(story, Emptied(events, shown, used))


def _is_whole(story: Story, event: Event) -> bool:
    """Whether the event divides an integer tensor by a number or a tensor of one element and rounds the quotient to
    integers.
    """
    given, result = (story.tensor(label, event.step) or {} for label in (event.operands[0].label, event.results[0]))
    other = event.operands[1] if len(event.operands) > 1 else None
    single = other is not None and (other.label is None or story.shape(other.label, event.step) in ((), (1,)))
    return single and all(str(record.get("dtype")).startswith(("int", "uint")) for record in (given, result))


def _quantity(story: Story, event: Event) -> Event | None:
    """Return the first of the next ``FURTHER`` events that computes floating-point numbers from the quotient; None if
    there is none, or if one of them takes the quotient as an index or an exponent.
    """
    reached, found = set(event.results), None
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        if later.kind != "call" or later.error is not None or not any(o.label in reached for o in later.operands):
            continue
        if later.name in INDEXING and any(o.label in reached for o in later.operands[1:]):
            return None
        base = later.operands[1] if later.name == "__rpow__" else later.operands[0]
        if "pow" in later.name and base.label not in reached:
            return None  # the exponent of a rate that falls in stairs
        if any(
            str((story.tensor(r, later.step) or {}).get("dtype")).startswith(("float", "bfloat")) for r in later.results
        ):
            found = found or later
        elif later.name in SAME_NUMBERS:
            reached.update(later.results)
    return found


def _finding(story: Story, found: Emptied) -> Finding:
    event = found.events[0]
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.used.step))
    what = expression(story, event.operands[0].label, event.step)
    by = event.operands[1].text or "the other"
    low, high = number(min(found.shown)), number(max(found.shown))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} divides {what.en}, numbers from {low} to {high}, and cuts the fractions "
            "off: every result is 0.",
            zh=f"{here.zh}把 {what.zh}（从 {low} 到 {high} 的数）做整除，小数部分被去掉：结果全是 0。",
        ),
        T(
            en=f"`{snippet(story, event.span)}` is a division of whole numbers. All numbers here are smaller "
            f"than {by}, so nothing is left of them, and {there.en} computes with zeros only. For shares "
            "between 0 and 1 use `/`.",
            zh=f"`{snippet(story, event.span)}` 是整数之间的整除。这里所有的数都小于 {by}，所以什么也没有留下，"
            f"{there.zh}只是在用零计算。要得到 0 与 1 之间的比例，请用 `/`。",
        ),
        related=[
            story.related("made", event.step, T(en="only zeros come out here", zh="这里得到的全是零")),
            story.related("used", found.used.step, T(en="computed with here", zh="在这里用来计算")),
        ],
        fixes=_fixes(story, event),
        facts=[Fact("divided", [min(found.shown), max(found.shown)], story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
        return ()
    new = f"{in_parentheses(program, node.left)} / {in_parentheses(program, node.right)}"
    title = T(en=f"Keep the fractions: `{new}`", zh=f"保留小数：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL810",
    name="integer-division",
    severity="warning",
    title=T(en="A division of whole numbers leaves nothing but zeros", zh="整数之间的整除只留下了零"),
    what=T(
        en="A program divides whole numbers by a larger one with `//`, to get shares between 0 and 1. Each result is "
        "0, so what follows always sees the same number. Use `/`, which keeps the fractions.",
        zh="程序用 `//` 把整数除以一个更大的数，想得到 0 与 1 之间的比例。每个结果都是 0，所以后面看到的永远是同一个"
        "数。请用 `/`，它会保留小数。",
    ),
    why=T(
        en="For tensors of integers `a // b` is the floor of the quotient, again an integer. `a / b` converts to "
        "float first. Nothing fails where a network gets the zeros: a time step, a position or a noise level is then "
        "simply not there, and the network learns one answer for all of them.",
        zh="对整数张量，`a // b` 是商的向下取整，仍是整数。`a / b` 会先转换成 float。零继续进入网络时不会报错：时间"
        "步、位置或噪声水平就这样消失了，网络对所有情况只学到同一个答案。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(1, 1)
step = torch.tensor([0, 3, 5, 9])
share = step // 10  # PL810 made
out = net(share.float().unsqueeze(1))  # used
out.square().mean().backward()
print(out.flatten(), net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(1, 1)
step = torch.tensor([0, 3, 5, 9])
share = step / 10
out = net(share.float().unsqueeze(1))
out.square().mean().backward()
print(out.flatten(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "step // 10",
            "(step // 10).float()",
            T(en="The conversion comes after the fractions are gone.", zh="转换来得太晚，小数部分已经没有了。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.floor_divide.html",),
)
