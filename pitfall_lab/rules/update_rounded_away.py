"""PL818: an optimizer steps with gradients that are not zero, and most of the weights stay as they were:
the updates are rounded away.
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import Moment, cells, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat, number
from pitfall_lab.trace import Event, T

BITS = {"float16": 11, "bfloat16": 8}
"""The number of significant binary digits of each type."""
ROUNDS, FEWEST = 3, 24
MOST = 0.75
"""The part of the known numbers that must stay as they were. A few always do."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """``lost`` of ``known`` elements with a gradient did not change in the updates ``moments`` of one
    line; ``weight`` has one of them.
    """

    moments: list[Moment]
    weight: str
    dtype: str
    known: int
    lost: int
    example: tuple[float, float]


def find(story: Story) -> Iterator[Finding]:
    """One finding for each update of weights in 16 bits that leaves most of them as they were, in several
    iterations.
    """
    lines: dict[object, list[tuple[str, Moment]]] = defaultdict(list)
    for label, moments in lives(story).items():
        if str((story.tensor(label) or {}).get("dtype")) in BITS:
            for moment in moments:
                if moment.kind == "used" and moment.storage is not None:
                    lines[story.span(moment.step)].append((label, moment))
    for used in lines.values():
        found = _stalled(story, used)
        if found is not None:
            yield _finding(story, found)


def _stalled(story: Story, used: list[tuple[str, Moment]]) -> Stalled | None:
    """The finding's data if at least ``MOST`` (a share) of the known changes were rounded away; else None.

    None too if the later half of the updates changes more (a learning rate that warms up), or if too little is known.
    """
    tallies = [_tally(story, label, moment) for label, moment in used]
    known, lost = sum(len(tally) for tally in tallies), sum(map(sum, tallies))
    late = [stays for tally in tallies[len(tallies) // 2 :] for stays in tally]
    rounds = max((sum(each == label for each, _ in used) for label, _ in used), default=0)
    if rounds < ROUNDS or known < FEWEST or lost < MOST * known or sum(late) < MOST * len(late):
        return None
    weight = max(
        {label: 0 for label, _ in used},
        key=lambda label: sum(len(t) for t, (each, _) in zip(tallies, used, strict=True) if each == label),
    )
    dtype = str((story.tensor(weight) or {}).get("dtype"))
    example = next(
        (pair for label, moment in used if label == weight and (pair := _example(story, label, moment)) is not None),
        (0.0, 0.0),
    )
    return Stalled([m for _, m in used], weight, dtype, known, lost, example)


def _tally(story: Story, label: str, moment: Moment) -> list[bool]:
    """Return, for each known element of the weight that has a gradient, whether the update left it unchanged."""
    return [before == after for before, after, _ in _numbers(story, label, moment)]


def _example(story: Story, label: str, moment: Moment) -> tuple[float, float] | None:
    return next(((before, slope) for before, after, slope in _numbers(story, label, moment) if before == after), None)


def _numbers(story: Story, label: str, moment: Moment) -> list[tuple[float, float, float]]:
    """Each known number before and after the update, with its gradient, where that is neither 0 nor infinite."""
    storage = str((story.tensor(label, moment.step) or {}).get("storage"))
    gradient = dict(flat(cells(story, moment.storage, moment.step)))
    before, after = (dict(flat(cells(story, storage, at))) for at in (moment.step - 1, moment.step))
    places = before.keys() & after.keys() & gradient.keys()
    slopes = ((place, gradient[place]) for place in sorted(places))
    return [
        (before[p], after[p], slope)
        for p, slope in slopes
        if isinstance(slope, float) and slope and math.isfinite(slope)
    ]


def _converted(story: Story, weight: str, until: int) -> Event | None:
    """The call that made the tensor last assigned to the weight's ``data`` before ``until``, else the one
    that made the weight; or None.
    """
    made = None
    for event in story.uses(weight):
        if (
            event.step < until
            and event.op.endswith("data.__set__")
            and len(event.operands) > 1
            and event.operands[1].label != weight
        ):
            made = story.event((story.tensor(event.operands[1].label, event.step) or {}).get("born"))
    return made if made is not None else story.event((story.tensor(weight) or {}).get("born"))


def _finding(story: Story, found: Stalled) -> Finding:
    first = found.moments[0]
    converted = _converted(story, found.weight, first.step)
    step = converted.step if converted is not None and story.span(converted.step) is not None else first.step
    here, there, name = (
        at_line(story, story.span(step)),
        at_line(story, story.span(first.step)),
        called(story, found.weight, None, first.step),
    )
    share, digits = f"{100 * found.lost / found.known:.0f} %", BITS[found.dtype]
    value, slope = (number(each) for each in found.example)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} makes weights of {found.dtype}, and {there.en} updates them by too little: "
            f"{share} of the known numbers that have a gradient stay as they were.",
            zh=f"{here.zh}把权重变成 {found.dtype}，而{there.zh}对它们的更新太小：已知的、有梯度的数中"
            f"有 {share} 保持不变。",
        ),
        T(
            en=f"{capital(name.en)} has {digits} binary digits for each number, so what is smaller than about "
            f"1/{2**digits} of a weight is lost when it is added. Here a weight of {value} with a gradient of "
            f"{slope} does not move. Keep the weights in float32, and compute in {found.dtype} with `torch.autocast`.",
            zh=f"{name.zh} 的每个数只有 {digits} 个二进制位，所以比权重的约 1/{2**digits} 还小的更新，加上去"
            f"就丢失了。这里值为 {value}、梯度为 {slope} 的权重没有移动。请让权重保持 float32，用 "
            f"`torch.autocast` 以 {found.dtype} 计算。",
        ),
        related=[story.related("step", first.step, T(en="most numbers stay as they were", zh="大多数的数保持不变"))],
        fixes=_fixes(story),
        facts=[Fact("known", found.known), Fact("unchanged", found.lost)],
    )


def _fixes(story: Story) -> tuple[Fix, ...]:
    """Fixes that use float32 where the program names a shorter dtype, but not for `autocast`, which
    leaves the weights unchanged.

    Empty if the program names none.
    """
    program, changes = story.program, []
    for node in program.nodes:
        if any(isinstance(outer, ast.Call) and call_name(outer) == "autocast" for outer in program.ancestors(node)):
            continue
        if isinstance(node, ast.Attribute) and node.attr in ("half", *BITS):
            is_call = isinstance(parent := program.parents.get(node), ast.Call) and parent.func is node
            new = "float" if is_call else "float32"
            changes.append((node, f"{program.segment(node.value)}.{new}"))
    title = T(en="Keep the numbers in float32", zh="让数保持 float32")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")]) if changes else ()


RULE = Rule(
    code="PL818",
    name="update-rounded-away",
    severity="warning",
    title=T(en="Updates are too small for the number type of the weights", zh="更新太小，权重的数值类型无法容纳"),
    what=T(
        en="A program keeps the weights of a network in 16 bits and trains them with a small rate. Most updates are "
        "smaller than the distance to the next number of that type, so the weights stay as they were and nothing is "
        "learned. Keep the weights in float32.",
        zh="程序用 16 位保存网络的权重，并以很小的学习率训练。大多数更新小于该类型相邻两个数之间的距离，于是权重不变，"
        "训练停滞。请让权重保持 float32。",
    ),
    why=T(
        en="A bfloat16 number has 8 binary digits: next to 1 comes 1.0078, and nothing between. An update of 0.001 is "
        "rounded back to 1, and so is each later one; they do not add up. float16 has 11 digits, and float32 24. "
        "`torch.autocast` keeps the weights in float32 and computes the products in 16 bits.",
        zh="bfloat16 的数有 8 个二进制位：1 的下一个是 1.0078，中间什么也没有。0.001 的更新会被舍入回 1，之后的每"
        "一次也是如此；它们不会累积起来。float16 有 11 位，float32 有 24 位。`torch.autocast` 让权重保持 float32，"
        "而用 16 位计算乘积。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 3).to(torch.bfloat16)  # PL818
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x, y = torch.randn(8, 4), torch.randn(8, 3)
for _ in range(4):
    opt.zero_grad()
    loss = (net(x.to(net.weight.dtype)) - y).square().mean()
    loss.backward()
    opt.step()  # step
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(4, 3).to(torch.float32)
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
x, y = torch.randn(8, 4), torch.randn(8, 3)
for _ in range(4):
    opt.zero_grad()
    loss = (net(x.to(net.weight.dtype)) - y).square().mean()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "torch.bfloat16",
            "torch.float16",
            T(
                en="Three digits more: with this rate the updates are still rounded away.",
                zh="只多三位：以这个学习率，更新仍被舍入掉。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
    ),
)
