"""PL818: an optimizer steps with gradients that are not zero, and most numbers of the weights, or nearly all of one
weight, stay unchanged: the updates are rounded away.
"""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

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
MOST, NEARLY_ALL = 0.75, 0.95
"""The part of the known numbers of all weights, or of a single one, that must stay as they were. A few always do."""
CONVERSIONS = {"bfloat16", "half", "to", "type"}
"""Calls that make numbers of another type of given ones."""
OF_ONE_LENGTH = {"Adagrad", "Adam", "Adamax", "AdamW", "NAdam", "RAdam", "RMSprop"}
"""Optimizers whose steps are about as long as the rate, whatever the length of the gradient."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """Updates in the dtype ``dtype`` that changed almost nothing: of ``known`` known elements with a gradient that is
    not zero, ``lost`` did not change in ``moments``, the updates of one line (:class:`Moment`); both numbers are sums
    over the updates.

    ``weight`` is the label of the weight with most of these elements, ``example`` the value of one that did not change
    and its gradient, ``(0.0, 0.0)`` where this weight has none. ``count`` is the number of weights that the updates are
    of, ``of`` that of all 16-bit weights which the line updates.
    """

    moments: list[Moment]
    weight: str
    dtype: str
    known: int
    lost: int
    example: tuple[float, float]
    count: int
    of: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that updates weights in float16 or bfloat16 and leaves most of their numbers
    unchanged in at least ``ROUNDS`` iterations, or nearly all numbers of one of the weights.

    Not where the numbers are copied from a tensor in float32 or float64.
    """
    lines: dict[object, list[tuple[str, Moment]]] = defaultdict(list)
    for label, moments in lives(story).items():
        if str((story.tensor(label) or {}).get("dtype")) in BITS:
            for moment in moments:
                if moment.kind == "used" and moment.storage is not None and not _is_copied(story, moment):
                    lines[story.span(moment.step)].append((label, moment))
    for used in lines.values():
        found = _stalled(story, used) or _stalled(story, _standing(story, used), NEARLY_ALL)
        if found is not None:
            yield _finding(story, replace(found, of=len({label for label, _ in used})))


def _is_copied(story: Story, moment: Moment) -> bool:
    """Whether the update copied the numbers of a tensor in float32 or float64, in which small updates add up."""
    event = moment.event
    if event.name not in ("copy_", "data") or len(event.operands) < len(("weight", "source")):
        return False
    source = event.operands[1].label
    made = story.event((story.tensor(source, event.step) or {}).get("born"))
    given = made.operands[0].label if made is not None and made.name in CONVERSIONS and made.operands else None
    dtypes = [str((story.tensor(label, event.step) or {}).get("dtype")) for label in (source, given) if label]
    return any(dtype in ("float32", "float64") for dtype in dtypes)


def _standing(story: Story, used: list[tuple[str, Moment]]) -> list[tuple[str, Moment]]:
    """The updates of those weights of which nearly all numbers stay unchanged, although all steps together would be
    large enough to change them.
    """
    apart: dict[str, list[tuple[str, Moment]]] = defaultdict(list)
    for label, moment in used:
        apart[label].append((label, moment))
    return [
        each
        for label, own in apart.items()
        if _stalled(story, own, NEARLY_ALL) is not None and _is_far(story, label, own)
        for each in own
    ]


def _is_far(story: Story, weight: str, used: list[tuple[str, Moment]]) -> bool:
    """Whether all steps of the optimizer together, by its rate and the gradients, would move more than half of the
    known numbers of the weight by more than the spacing of its dtype at that number. False if the optimizer is not
    known.
    """
    digits = BITS[str((story.tensor(weight) or {}).get("dtype"))]
    far = []
    for label, moment in used:
        steps = [each for each in story.trace.optimizer_steps if each.step <= moment.step and label in each.holds]
        if not steps or steps[-1].made is None:
            return False
        optimizer = story.trace.optimizers[steps[-1].made]
        rate = max((rate for _, rate in optimizer.rates), default=0.0)
        for before, _, slope in _numbers(story, label, moment):
            step = rate * (1.0 if optimizer.optimizer in OF_ONE_LENGTH else abs(slope))
            far.append(optimizer.steps * step > 2.0 ** (math.frexp(before)[1] - digits))
    return 2 * sum(far) > len(far)


def _stalled(story: Story, used: list[tuple[str, Moment]], most: float = MOST) -> Stalled | None:
    """The data of the finding if at least ``most`` (a share) of the known changes were rounded away; else None.

    None if fewer than ``ROUNDS`` updates of a weight or ``FEWEST`` numbers are known, or if the later half of the
    updates changes more, as when the learning rate warms up.
    """
    tallies = [_tally(story, label, moment) for label, moment in used]
    known, lost = sum(len(tally) for tally in tallies), sum(map(sum, tallies))
    late = [stays for tally in tallies[len(tallies) // 2 :] for stays in tally]
    rounds = max((sum(each == label for each, _ in used) for label, _ in used), default=0)
    if rounds < ROUNDS or known < FEWEST or lost < most * known or sum(late) < most * len(late):
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
    count = len({label for label, _ in used})
    return Stalled([m for _, m in used], weight, dtype, known, lost, example, count, count)


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
    """The call that made the tensor last assigned to the weight's ``data`` before the step ``until``, else the call
    that made the weight; None if neither is known.
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
    which = T(en="them", zh="它们")
    whose = T(en="", zh="")
    if found.count < found.of:
        which = T(en=f"{found.count} of {found.of}", zh=f" {found.of} 个权重中的 {found.count} 个")
        whose = T(en=f" of {name.en}", zh=f" {name.zh} 的")
        if found.count > 1:
            whose = T(en=f" of {name.en} and {found.count - 1} more", zh=f" {name.zh} 等 {found.count} 个权重的")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} makes weights of {found.dtype}, and {there.en} updates {which.en} by too little: "
            f"{share} of the known numbers{whose.en} that have a gradient stay as they were.",
            zh=f"{here.zh}把权重变成 {found.dtype}，而{there.zh}对{which.zh}的更新太小：{whose.zh}已知的、有梯度的数中"
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
        facts=[Fact("known", found.known), Fact("unchanged", found.lost), Fact("weights", (found.count, found.of))],
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
        "rounded back to 1, and so is each later one; they do not add up. The factors of a norm, which begin as 1, "
        "stand still first, while biases near 0 still move. float16 has 11 digits, and float32 24. "
        "`torch.autocast` keeps the weights in float32 and computes the products in 16 bits.",
        zh="bfloat16 的数有 8 个二进制位：1 的下一个是 1.0078，中间什么也没有。0.001 的更新会被舍入回 1，之后的每"
        "一次也是如此；它们不会累积起来。归一化层的系数从 1 开始，最先停住不动，而接近 0 的偏置还会移动。float16 有 11 "
        "位，float32 有 24 位。`torch.autocast` 让权重保持 float32，"
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
