"""PL906: noise, or a dropout mask, was drawn once and used in several iterations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, numbers
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, decimal
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

NORMAL = {"randn", "randn_like", "normal", "normal_"}
"""Calls that draw normal numbers."""
COINS = {"bernoulli", "bernoulli_"}
UNIFORM = {"rand", "rand_like", "uniform_"}
"""Calls that draw numbers between 0 and 1."""
COMPARED = spellings("ge", "gt", "le", "lt")
POSITIVE = spellings("exp", "sqrt", in_place=True) | {"softplus"}
"""What makes a standard deviation of a network's result."""
PRODUCTS = spellings("mul")
QUOTIENTS = spellings("div")
AGAIN = {
    "bool",
    "float",
    "to",
    "double",
    "type",
    "view",
    "reshape",
    "unsqueeze",
    "expand",
    "expand_as",
    "__getitem__",
    "type_as",
}
"""Calls between the random numbers and the factor that they become."""
SUMS = spellings("sub") | spellings("add", in_place=True)
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Reused:
    """``draw`` is the call (``Event``) that drew random numbers; ``label`` is the label of the factor that was made
    from them, which each of the calls ``uses`` multiplied with a trained tensor.

    ``keep``: for a dropout mask, the number by which it was divided; None for noise.
    """

    draw: Event
    label: str
    uses: list[Event]
    keep: float | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each random tensor that was drawn once and that one line uses as noise, or as a dropout
    mask, in at least ``ROUNDS`` iterations, with optimizer steps in between.
    """
    updates = sorted({update.step for update in story.trace.optimizer_steps})
    for event in story.calls(*NORMAL, *COINS, *UNIFORM) if len(updates) >= ROUNDS else ():
        if event.results and event.error is None and (found := _reused(story, event, updates)) is not None:
            yield _finding(story, found)


def _reused(story: Story, draw: Event, updates: list[int]) -> Reused | None:
    kind = "noise" if draw.name in NORMAL else "coin" if draw.name in COINS else "uniform"
    made: dict[str, tuple[str, float | None]] = {draw.results[0]: (kind, None)}
    uses: dict[str, list[Event]] = {}
    pending = [draw.results[0]]
    while pending:
        label = pending.pop()
        kind, keep = made[label]
        for use in story.uses(label):
            if use.error is not None or not use.results or use.step <= draw.step:
                continue
            result = use.results[0]
            other = next((o.label for o in use.operands if o.label is not None and o.label != label), None)
            if (
                use.name in PRODUCTS
                and other is not None
                and _is_trained(story, other, use.step, noise=kind == "noise")
            ):
                if keep is not None or (kind == "noise" and _moves_something(story, result)):
                    uses.setdefault(label, []).append(use)
            elif (new := _becomes(kind, keep, use)) is not None and result not in made and other is None:
                made[result] = new
                pending.append(result)
    for label, found in uses.items():
        rounds = [use for use in found if story.span(use.step) == story.span(found[0].step)]
        between = sum(any(a.step < step < b.step for step in updates) for a, b in pairwise(rounds))
        if between >= ROUNDS - 1:
            return Reused(draw, label, rounds, made[label][1])
    return None


def _moves_something(story: Story, label: str) -> bool:
    """Whether the product is added to, or subtracted from, another tensor, as noise is added to a mean. A product of
    drawn numbers alone may be data.
    """
    return any(use.name in SUMS and all(o.label is not None for o in use.operands[:2]) for use in story.uses(label))


def _becomes(kind: str, keep: float | None, use: Event) -> tuple[str, float | None] | None:
    """The kind of the numbers that a call makes of drawn ones, and the number that a dropout mask was divided by (None
    if it was not).

    A comparison of uniform numbers gives a "coin", and its division a dropout mask, of the same kind. None if the call
    makes anything else than such numbers, or a copy of them.
    """
    if kind == "uniform":
        return ("coin", None) if use.name in COMPARED else ("uniform", None) if use.name in AGAIN else None
    if kind == "coin" and use.name in QUOTIENTS and len(use.operands) > 1 and use.operands[1].label is None:
        share = decimal(use.operands[1].text)
        return ("coin", share) if share is not None and 0 < share < 1 else None
    return (
        (kind, keep)
        if use.name in AGAIN or (kind == "noise" and use.name in SAME_NUMBERS - spellings("cat") - {"stack"})
        else None
    )


def _is_trained(story: Story, label: str, step: int, *, noise: bool) -> bool:
    """Whether the tensor was computed and requires grad; with ``noise``, only if it was also made positive (``exp``,
    ``softplus``, …), as a standard deviation is.
    """
    record = story.tensor(label, step) or {}
    if not record.get("requires_grad") or record.get("is_leaf"):
        return False
    made = story.event(record.get("born"))
    while noise and made is not None and made.name in (*SAME_NUMBERS, "add", "mul", "div") and made.operands:
        earlier = story.event((story.tensor(made.operands[0].label, made.step) or {}).get("born"))
        made = earlier if earlier is not None and earlier.step < made.step else None  # else first seen in use
    return not noise or (made is not None and made.name in POSITIVE)


def _finding(story: Story, found: Reused) -> Finding:
    draw, uses = found.draw, found.uses
    here, there = at_line(story, story.span(draw.step)), at_line(story, story.span(uses[0].step))
    what = expression(story, found.label, uses[0].step)
    held = (story.record("storages", (story.tensor(draw.results[0]) or {}).get("storage"), draw.step) or {}).get(
        "cells"
    )
    noun = T(en="noise", zh="噪声") if found.keep is None else T(en="mask", zh="掩码")
    return RULE.finding(
        story.span(uses[0].step),
        uses[0].step,
        T(
            en=f"{capital(there.en)} uses the same {noun.en} in {len(uses)} rounds: it was drawn once, on "
            f"{here.en}, and never again.",
            zh=f"{there.zh}在 {len(uses)} 轮里使用同样的{noun.zh}：它只在{here.zh}抽取过一次。",
        ),
        T(
            en=f"{capital(what.en)} comes from {numbers(held)}, the same numbers in every round. Noise that "
            "does not change is no noise: the network learns to take it into account, as it would a "
            "constant. Draw it where it is used.",
            zh=f"{what.zh} 来自 {numbers(held)}，每一轮都是同样的数。不变的噪声不是噪声：网络会像对待常数那样学会抵消"
            "它。请在使用的地方抽取。",
        ),
        related=[
            story.related("made", draw.step, T(en="drawn once, here", zh="只在这里抽取一次")),
            story.related("used", uses[-1].step, T(en="the same numbers again", zh="又是同样的数")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rounds", len(uses), story.by(uses[0].step)), Fact("numbers", held, story.by(draw.step))],
    )


def _fixes(story: Story, found: Reused) -> tuple[Fix, ...]:
    program, use = story.program, found.uses[0]
    torch = torch_name(program)
    other = next((o.label for o in use.operands if o.label is not None and o.label != found.label), None)
    node, shape = written_as(story, use, found.label), written_as(story, use, other)
    if node is None or shape is None or torch is None:
        return ()
    text = program.segment(shape)
    mask = (
        f"{torch}.bernoulli({torch}.full_like({text}, {found.keep:g})) / {found.keep:g}"
        if found.keep is not None
        else ""
    )
    new = mask or f"{torch}.randn_like({text})"
    if found.keep is not None and in_parentheses(program, node) == program.segment(node):
        new = f"({new})"
    title = T(en=f"Draw it anew here: `{new}`", zh=f"在这里重新抽取：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL906",
    name="noise-reused",
    severity="warning",
    title=T(en="Noise or a mask was drawn once and used in every round", zh="噪声或掩码只抽取一次，却用在每一轮"),
    what=T(
        en="A program drew its random numbers once, before training, and multiplied with them in every round. They "
        "are then a constant, and the network adapts to it. Draw new ones in each round.",
        zh="程序在训练之前只抽取了一次随机数，每一轮都用它去乘。它们于是成了常数，网络会去适应它。请在每一轮重新抽取。",
    ),
    why=T(
        en="Sampling with a learned spread (`mean + std * noise`) and dropout both need numbers that are independent "
        "of everything learned so far. A tensor that was drawn in a constructor, or before the loop, holds one draw; "
        "using it is not drawing. The gradient then belongs to that one draw: `std` learns to shrink or to grow with "
        "the sign of each number, and what dropout leaves out is left out in every round. `torch.randn_like(std)` and "
        "`nn.Dropout` draw at each call.",
        zh="带有可学习方差的采样（`mean + std * noise`）和 dropout，都需要与已学到的一切无关的随机数。在构造函数里或循"
        "环之前抽取的张量只是一次抽取；使用它并不是抽取。梯度于是只属于那一次抽取：`std` 会按每个数的正负学着变小或变"
        "大，dropout 去掉的单元则永远被去掉。`torch.randn_like(std)` 和 `nn.Dropout` 每次调用都会重新抽取。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
noise = torch.randn(2, 2)  # made
for _ in range(4):
    mean, log_std = net(x).chunk(2, dim=1)
    std = log_std.exp()
    sample = mean + std * noise  # PL906 used
    loss = (sample - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(sample)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
noise = torch.randn(2, 2)
for _ in range(4):
    mean, log_std = net(x).chunk(2, dim=1)
    std = log_std.exp()
    sample = mean + std * torch.randn_like(std)
    loss = (sample - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(sample)
""",
    find=find,
    traps=(
        Trap(
            "    sample = mean + std * noise\n",
            "    torch.manual_seed(0)\n    sample = mean + std * noise\n",
            T(
                en="A seed decides what is drawn next. Nothing is drawn here.",
                zh="随机种子决定接下来抽到什么。而这里什么也没有抽取。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html",
    ),
)
