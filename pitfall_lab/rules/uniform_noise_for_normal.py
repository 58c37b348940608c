"""PL948: noise is drawn uniformly from 0 to 1 where the formula that uses it needs mean 0 and deviation 1."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.trace import Event, Operand, Span, T
from pitfall_lab.trace.operation_facts import spellings

DRAWS = ("rand", "rand_like")
NORMAL = {"rand": "randn", "rand_like": "randn_like"}
SAME = {"to", "float", "double", "unsqueeze", "view", "reshape", "expand", "expand_as", "clone", "__getitem__"}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
PRODUCTS, SUMS = spellings("mul"), spellings("add")
DEVIATIONS = {"exp", "softplus", "sqrt"}
"""Calls that make a standard deviation."""
SCALES = spellings("add", "clamp", "clamp_min", "div", "mul")
MOST, PAIR, CLOSE = 12, 2, 1e-3


@dataclass(frozen=True, slots=True)
class Uniform:
    """Numbers drawn uniformly from 0 to 1 by the call ``draw`` (an ``Event``) were multiplied with ``scale`` (an
    operand: a tensor or a number) and added, by the call ``added``, to something else, as normal noise is.

    ``learned``: the scale and what was added to are learned; else the squares of the two factors add up to 1.
    """

    draw: Event
    added: Event
    scale: Operand
    learned: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws numbers uniformly from 0 to 1 where normal ones belong: multiplied by
    a learned deviation and added to a mean, or mixed with data by factors whose squares add up to 1.
    """
    places: dict[Span | None, list[Uniform]] = defaultdict(list)
    for draw in story.calls(*DRAWS):
        if draw.results and draw.error is None and (found := _uniform(story, draw)) is not None:
            places[story.span(draw.step)].append(found)
    for rounds in places.values():
        yield _finding(story, rounds[0])


def _uniform(story: Story, draw: Event) -> Uniform | None:
    """The data of the finding if the drawn numbers are scaled and then added to a mean or to data, without 0.5
    subtracted from them before; else None.
    """
    pending = [draw.results[0]]
    while pending:
        noise = pending.pop()
        for use in story.uses(noise):
            if use.error is not None or not use.results or use.step <= draw.step:
                continue
            if use.name in SAME and use.operands[0].label == noise and use.results[0] != noise:
                pending.append(use.results[0])
            scale = next((o for o in use.operands[:PAIR] if o.label != noise), None)
            if use.name in PRODUCTS and scale is not None and (found := _added(story, draw, use, scale)) is not None:
                return found
    return None


def _added(story: Story, draw: Event, scaled: Event, scale: Operand) -> Uniform | None:
    for use in story.uses(scaled.results[0]):
        other = next((o.label for o in use.operands[:PAIR] if o.label not in (None, scaled.results[0])), None)
        if use.name not in SUMS or use.error is not None or other is None:
            continue
        if _is_learned(story, other, use.step) and _is_deviation(story, scale.label, scaled.step):
            return Uniform(draw, use, scale, learned=True)
        made = made_by(story, other, use.step)
        if made is not None and made.name in PRODUCTS and _keeps_variance(story, scaled, scale, made):
            return Uniform(draw, use, scale, learned=False)
    return None


def _is_learned(story: Story, label: str | None, step: int) -> bool:
    return bool((story.tensor(label, step) or {}).get("requires_grad"))


def _is_deviation(story: Story, label: str | None, step: int) -> bool:
    """Whether a learned number was made positive by ``exp``, ``softplus`` or a root, and perhaps
    scaled by a number afterwards.
    """
    for _ in range(MOST):
        made = made_by(story, label, step)
        if made is None or label is None or not _is_learned(story, label, step):
            return False
        if made.name in DEVIATIONS:
            return True
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in SAME | SCALES or len(given) != 1:
            return False
        label, step = given[0], made.step
    return False


def _keeps_variance(story: Story, scaled: Event, scale: Operand, other: Event) -> bool:
    """Whether the squares of the noise's factor and of one factor in the ``other`` product add up to 1,
    for all that is known of them.

    A rotation of points that were drawn uniformly has such factors as well: there both products are of drawn numbers.
    """
    mine = _numbers(story, scale, scaled.step)
    if any(_is_drawn(story, factor.label, other.step) for factor in other.operands[:PAIR]):
        return False
    for factor in other.operands[:PAIR]:
        theirs = _numbers(story, factor, other.step)
        both = [(mine[at], theirs[at]) for at in mine if at in theirs]
        if both and all(abs(a * a + b * b - 1) < CLOSE and min(abs(a), abs(b)) > 0 for a, b in both):
            return True
    return False


def _is_drawn(story: Story, label: str | None, step: int) -> bool:
    """Whether a tensor's numbers were drawn by ``rand``, and perhaps shifted or scaled by plain numbers afterwards."""
    for _ in range(MOST):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or made.name in DRAWS:
            return made is not None
        if made.name not in SAME | SCALES | {"sub", "__sub__"} or len(given) != 1:
            return False
        label, step = given[0], made.step
    return False


def _numbers(story: Story, operand: Operand, step: int) -> dict[tuple[int, ...], float]:
    if operand.label is None:
        number = constant(story, None, operand.text, step)
        return {} if number is None else {(): number}
    return dict(Elements(story, operand.label, step).known())


def _finding(story: Story, found: Uniform) -> Finding:
    draw, added = found.draw, found.added
    here, there = at_line(story, story.span(draw.step)), at_line(story, story.span(added.step))
    noise, result = expression(story, draw.results[0], added.step), expression(story, added.results[0], added.step)
    why = T(
        en="The mean and the deviation that are learned are those of the sample only if the noise has mean 0 and "
        "deviation 1; a divergence from a normal distribution, and sampling with `randn` later, count on it too.",
        zh="只有当噪声的均值为 0、标准差为 1 时，学到的均值和标准差才是样本的均值和标准差；与正态分布的散度、以及之后"
        "用 `randn` 采样，也都以此为前提。",
    )
    if not found.learned:
        why = T(
            en="The squares of the two factors add up to 1, which keeps the variance of the data only for "
            "noise with mean 0 and variance 1; what is computed from such a mix, and sampling that starts "
            "with `randn`, count on it.",
            zh="两个系数的平方和为 1，只有当噪声的均值为 0、方差为 1 时，这样混合才能保持数据的方差；由它得到的计算，"
            "以及从 `randn` 开始的采样，都以此为前提。",
        )
    return RULE.finding(
        story.span(draw.step),
        draw.step,
        T(
            en=f"{capital(here.en)} draws {noise.en} between 0 and 1, with mean 0.5 and deviation 0.29; {there.en} "
            f"uses it in {result.en} as noise with mean 0 and deviation 1.",
            zh=f"{here.zh}在 0 与 1 之间抽取 {noise.zh}，均值为 0.5，标准差为 0.29；而{there.zh}在 {result.zh} 中把它"
            "当作均值为 0、标准差为 1 的噪声。",
        ),
        T(
            en=f"{why.en} `rand` and `rand_like` are uniform; `randn` and `randn_like` are normal.",
            zh=f"{why.zh}`rand` 和 `rand_like` 是均匀分布；`randn` 和 `randn_like` 才是正态分布。",
        ),
        related=[story.related("used", added.step, T(en="used as normal noise", zh="当作正态噪声使用"))],
        fixes=_fixes(story, found),
        facts=[Fact("mean", 0.5, story.by(draw.step))],
    )


def _fixes(story: Story, found: Uniform) -> tuple[Fix, ...]:
    """At most one fix: it draws from a normal distribution; empty unless the draw is a call in the program's source."""
    node = story.program.at(story.span(found.draw.step))
    if not isinstance(node, ast.Call) or called(node) not in NORMAL:
        return ()
    function, new = node.func, NORMAL[called(node)]
    text = f"{story.program.segment(function.value)}.{new}" if isinstance(function, ast.Attribute) else f"torch.{new}"
    title = T(en=f"Draw normal noise: `{new}`", zh=f"抽取正态噪声：`{new}`")
    return unique(story.program.text, [Fix(title, story.program.replace((function, text)), meaning="later")])


RULE = Rule(
    code="PL948",
    name="uniform-noise-for-normal",
    severity="warning",
    title=T(en="Uniform noise where normal noise is meant", zh="应为正态噪声的地方用了均匀噪声"),
    what=T(
        en="A program draws noise with `rand` or `rand_like`, whose numbers are between 0 and 1, and puts it into a "
        "formula that needs mean 0 and deviation 1: `mean + deviation * noise`, or the mix of data and noise of a "
        "diffusion model. Use `randn_like`.",
        zh="程序用 `rand` 或 `rand_like` 抽取噪声（数值在 0 与 1 之间），却把它放进需要均值为 0、标准差为 1 的公式："
        "“均值 + 标准差 × 噪声”，或扩散模型中数据与噪声的混合。请用 `randn_like`。",
    ),
    why=T(
        en="One letter apart: `rand` is uniform, `randn` is normal. Nothing is raised, and a network learns something "
        "from either. With uniform noise every sample `mean + deviation * noise` is above `mean`, by half a deviation "
        "on average and never by a whole one; a diffusion model that was trained with it has never seen the normal "
        "noise that sampling starts from.",
        zh="只差一个字母：`rand` 是均匀分布，`randn` 是正态分布。不会报错，网络从两者都能学到些什么。用均匀噪声时，每"
        "个样本都高于均值，平均高出半个标准差，且从不超过一个标准差；用它训练的网络从未见过采样时作为起点的噪声。",
    ),
    bad="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(4, 3)
for _ in range(3):
    mean, log_var = enc(x).chunk(2, dim=1)
    noise = torch.rand_like(mean)  # PL948
    z = mean + torch.exp(0.5 * log_var) * noise  # used
    loss = (dec(z) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight)
""",
    good="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(4, 3)
for _ in range(3):
    mean, log_var = enc(x).chunk(2, dim=1)
    noise = torch.randn_like(mean)
    z = mean + torch.exp(0.5 * log_var) * noise
    loss = (dec(z) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight)
""",
    find=find,
    traps=(
        Trap(
            "torch.rand_like(mean)",
            "torch.rand(mean.shape)",
            T(en="Numbers between 0 and 1 as well, in another spelling.", zh="同样是 0 与 1 之间的数，只是写法不同。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.rand_like.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html",
    ),
)
