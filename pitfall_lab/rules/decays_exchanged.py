"""PL654: an optimizer of Adam's family was given its two betas in swapped order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import sqrt

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.value_origins import argument, decimal
from pitfall_lab.trace import Event, T

NEAR = 12
"""The largest number of calls between the two averages of one parameter's step."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that makes a step of an optimizer of Adam's family whose average of gradients is
    slower than its average of their squares: ``beta1 > sqrt(beta2)``.
    """
    told = set()
    for squares in story.calls("addcmul_"):
        place = story.span(squares.step)
        decays = _decays(story, squares) if place not in told and squares.error is None else None
        if decays is not None and decays[0] > sqrt(decays[1]) + 1e-6:
            told.add(place)
            yield _finding(story, squares, *decays)


def _decays(story: Story, squares: Event) -> tuple[float, float] | None:
    """Return ``beta1`` and ``beta2``: the factors of the old value in the average of a gradient, and in that of its
    squares.

    None if they are not known, or if no ``lerp_`` with this gradient on the same line comes shortly before.
    """
    given = [o.label for o in squares.operands if o.label is not None]
    share = decimal(argument(squares, "value", 3))
    if share is None or len(given) != 3 or given[1] != given[2]:
        return None
    for event in reversed(story.events[max(0, squares.step - NEAR) : squares.step]):
        if (
            event.name == "lerp_"
            and len(event.operands) > 1
            and event.operands[1].label == given[1]
            and event.span == squares.span
        ):
            first = decimal(argument(event, "weight", 2))
            return (1 - first, 1 - share) if first is not None and 0 < first < 1 and 0 < share < 1 else None
    return None


def _finding(story: Story, event: Event, first: float, second: float) -> Finding:
    here, one, other = at_line(story, story.span(event.step)), number(round(first, 6)), number(round(second, 6))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} steps with decays of {one} for the gradients and {other} for their squares: "
            "the order is exchanged.",
            zh=f"{here.zh}更新时，梯度的衰减是 {one}，梯度平方的衰减是 {other}：顺序反了。",
        ),
        T(
            en=f"The optimizer averages the gradients over about {1 / (1 - first):.0f} steps and their squares over "
            f"about {1 / (1 - second):.0f}. It divides one by the root of the other, so a direction that is long out "
            "of date is divided by the size of the newest gradients: the steps become large when gradients become "
            "small, and the training swings. `betas` are (gradients, squares), by default (0.9, 0.999).",
            zh=f"优化器对梯度的平均大约跨 {1 / (1 - first):.0f} 步，对梯度平方的平均大约跨 {1 / (1 - second):.0f} 步，"
            "并用前者除以后者的平方根。于是早已过时的方向除以最新梯度的大小：梯度变小时步子反而变大，训练来回摆动。"
            "`betas` 的顺序是（梯度，平方），默认 (0.9, 0.999)。",
        ),
        related=[],
        fixes=_fixes(story, first, second),
        facts=[Fact("gradients", first, story.by(event.step)), Fact("squares", second, story.by(event.step))],
    )


def _fixes(story: Story, first: float, second: float) -> tuple[Fix, ...]:
    program, fixes = story.program, []
    for call in [n for n in program.nodes if isinstance(n, ast.Call)] if program.tree is not None else []:
        for pair in [
            k.value
            for k in call.keywords
            if k.arg == "betas" and isinstance(k.value, ast.Tuple) and len(k.value.elts) == 2
        ]:
            one, other = pair.elts
            known = [(n.value, meant) for n, meant in ((one, first), (other, second)) if isinstance(n, ast.Constant)]
            if all(isinstance(value, int | float) and abs(value - meant) < 1e-6 for value, meant in known):
                text = f"({program.segment(other)}, {program.segment(one)})"
                title = T(en=f"Exchange the decays: `betas={text}`", zh=f"交换两个衰减：`betas={text}`")
                fixes.append(Fix(title, program.replace((pair, text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL654",
    name="decays-exchanged",
    severity="warning",
    title=T(en="An optimizer has its two decays in exchanged order", zh="优化器的两个衰减顺序反了"),
    what=T(
        en="Adam keeps an average of the gradients and a slower one of their squares. A program gave the slow number "
        "to the gradients, so the steps follow directions that are out of date, with sizes of the moment. Exchange "
        "them: `betas=(0.9, 0.999)`.",
        zh="Adam 保存梯度的平均，以及更慢的梯度平方的平均。程序把慢的那个数给了梯度，于是步子跟着早已过时的方向走，大"
        "小却取决于此刻。请交换：`betas=(0.9, 0.999)`。",
    ),
    why=T(
        en="The step is `lr * average / sqrt(average of squares)`. Its size stays about `lr` only while the squares "
        "remember at least as long as the gradients: the first decay must be below the root of the second. Any "
        "numbers from 0 to 1 are accepted. For GANs the first one is often 0.5 or 0, which is fine.",
        zh="一步是 `lr * 平均 / sqrt(平方的平均)`。只有当平方至少记得与梯度一样久时，步子的大小才大致是 `lr`：第一个衰"
        "减必须小于第二个的平方根。0 到 1 之间的数都会被接受。GAN 的第一个衰减常取 0.5 或 0，这没有问题。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.1, betas=(0.999, 0.9))
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # PL654
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.1, betas=(0.9, 0.999))
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.01",
            T(en="Smaller steps swing less, and in the same order.", zh="步子小一些，摆动也小一些，但顺序仍然是反的。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html",),
)
