"""PL952: log-probabilities, or a policy's clipped objective, enter a loss with plus, so
each step makes them smaller.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.signals.loss_slopes import slopes
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SAME_SIGN = SAME_NUMBERS | {"mean", "sum", "gather", "take_along_dim", "index_select"}
"""Calls that keep the sign of what they are given."""
LOGARITHMS = ("log_softmax", "logsigmoid")
MOST = 30
PRODUCTS = spellings("mul")
DRAWS = ("multinomial", "normal", "bernoulli")
Kind = Literal["plain", "hits", "weights", "clipped"]
"""Logarithms alone · times a share of hits · times weights of which nothing is known · the smaller of a
product and its clipped form.
"""


@dataclass(frozen=True, slots=True)
class Minimised:
    """The loss of ``backward`` (an ``Event``) grows with what the call ``made`` computed, so that minimising it makes
    probabilities smaller.

    ``place`` is the place of ``made`` in the source. ``kind`` says what it computed: "plain" log-probabilities, their
    product with a weight ("weights", or "hits" where the weight comes from a comparison for equality), or the minimum
    of a "clipped" objective.
    """

    backward: Event
    made: Event
    place: Span | None
    kind: Kind = "plain"


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes log-probabilities of which a loss is the mean or the sum without a
    minus, or their product with weights, or a clipped objective, with which a loss grows.

    Only if an optimizer steps afterwards, and not in programs with the word ``maximize``.
    """
    reported = set()
    steps = [update.step for update in story.trace.optimizer_steps]
    if "maximize" in story.program.text:
        return
    for backward in story.backwards():
        if backward.error is not None or len(backward.operands) != 1 or not any(s > backward.step for s in steps):
            continue
        made = _logarithms(story, backward.operands[0].label, backward.step)
        found = Minimised(backward, made, story.span(made.step)) if made is not None else _weighted(story, backward)
        if found is not None and found.place not in reported:
            reported.add(found.place)
            yield _finding(story, found) if found.kind == "plain" else _of_policy(story, found)


def _weighted(story: Story, backward: Event) -> Minimised | None:
    """The data of the finding if the loss grows with the product of a weight and an action's log-probability, or with a
    clipped objective.

    None if it does not, or if the program makes no draw (``DRAWS``) by which actions could be chosen.
    """
    if not any(True for _ in story.calls(*DRAWS)):
        return None
    for label, ways in slopes(story, backward.operands[0].label, backward.step).items():
        event = story.event((story.tensor(label, backward.step) or {}).get("born"))
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or len(given) != 2 or {way.sign for way in ways} != {1}:
            continue
        trained = [bool((story.tensor(each, event.step) or {}).get("requires_grad")) for each in given]
        if event.name in ("min", "minimum") and all(trained) and _is_clipped(story, event, given):
            return Minimised(backward, event, story.span(event.step), "clipped")
        if event.name in PRODUCTS and sorted(trained) == [False, True]:
            weight, own = given[trained.index(False)], given[trained.index(True)]
            if prod(story.shape(weight, event.step) or ()) == 1 < prod(story.shape(own, event.step) or ()):
                continue  # one factor for all, such as the temperature of an entropy
            if _logarithms(story, own, event.step) is not None:
                kind: Kind = "hits" if _counts_hits(story, weight, event.step) else "weights"
                return Minimised(backward, event, story.span(event.step), kind)
    return None


def _is_clipped(story: Story, event: Event, sides: list[str]) -> bool:
    """Whether both sides are products with a common factor, and the other factor of one side is that of the other side,
    clamped.
    """
    made = [story.event((story.tensor(each, event.step) or {}).get("born")) for each in sides]
    factors = [
        {o.label for o in each.operands if o.label is not None} if each is not None and each.name in PRODUCTS else set()
        for each in made
    ]
    clamps = [call for call in story.calls("clamp", "clip") if set(call.results) & (factors[0] ^ factors[1])]
    return bool(factors[0] & factors[1]) and any(
        {o.label for o in call.operands} & (factors[0] ^ factors[1]) for call in clamps
    )


def _counts_hits(story: Story, label: str | None, step: int) -> bool:
    """Whether a weight was computed from the result of a comparison for equality (``eq``), by calls that keep the sign,
    shift, scale or convert it.
    """
    for _ in range(MOST):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results or event.name in ("eq", "__eq__"):
            return event is not None and event.name in ("eq", "__eq__")
        if event.name not in SAME_SIGN | {"sub", "add", "div", "long", "int"} or event.operands[0].label is None:
            return False
        label, step = event.operands[0].label, event.step
    return False


def _logarithms(story: Story, label: str | None, step: int) -> Event | None:
    """The call that computed the logarithms of which the tensor ``label`` is a mean or a sum: ``log_prob``,
    ``logsigmoid`` or ``log_softmax``.

    None if there is no such call, if there is a minus between them, or if no entries were chosen out of the result of
    ``log_softmax``.
    """
    chosen = False
    for _ in range(MOST):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        node = story.program.at(event.span)
        if isinstance(node, ast.Call) and called(node) == "log_prob":
            return event
        if event.name in LOGARITHMS:
            return event if chosen else None
        if event.name not in SAME_SIGN:
            return None
        chosen = (
            chosen
            or event.name in ("gather", "__getitem__", "take_along_dim", "index_select")
            or event.name == LOGARITHMS[1]
        )
        given = [o.label for o in event.operands if o.label is not None]
        if not given or given[0] == label or (event.name in ("stack", "cat") and len(given) == 0):
            return None
        label, step = given[0], event.step
    return None


def _finding(story: Story, found: Minimised) -> Finding:
    here, there = at_line(story, found.place), at_line(story, story.span(found.backward.step))
    step = found.made.step
    return RULE.finding(
        found.place,
        step,
        T(
            en=f"The loss on {there.en} is made of the logarithms of probabilities on {here.en} as they are, without "
            "a minus: the optimizer makes it smaller, and with it the probability of what was observed.",
            zh=f"{there.zh}的损失直接由{here.zh}的对数概率组成，没有负号：优化器使它变小，也就使观"
            "察到的结果的概率变小。",
        ),
        T(
            en="A logarithm of a probability grows with the probability. An optimizer goes down, so what is to become "
            "probable has to enter the loss with a minus: the negative log-likelihood.",
            zh="概率越大，它的对数越大。优化器是往下走的，所以想让什么变得更可能，它就必须带着负号进入"
            "损失：即负对数似然。",
        ),
        related=[
            story.related("backward", found.backward.step, T(en="the loss is made smaller", zh="损失在这里被减小"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("made", found.made.name, story.by(step))],
    )


def _of_policy(story: Story, found: Minimised) -> Finding:
    here, there = at_line(story, found.place), at_line(story, story.span(found.backward.step))
    product = T(en="a log-probability times a weight", zh="对数概率与权重的乘积")
    if found.kind == "clipped":
        product = T(en="the clipped objective of a policy", zh="策略的截断目标")
    said = T(
        en=f"The loss on {there.en} rises with {product.en} on {here.en}: training makes actions with a large "
        "weight less probable.",
        zh=f"{there.zh}的损失随{here.zh}上{product.zh}而增大：训练会使权重大的动作变得更不可能。",
    )
    why = T(
        en="A policy gradient goes up in the weighted log-probability, and `step()` goes down in the "
        "loss, so the product enters with a minus. As it is, it is right only for weights that say how "
        "bad an action was, such as costs.",
        zh="策略梯度要使加权的对数概率变大，而 `step()` 使损失变小，所以这个乘积要带负号。现在这样写，只有当权重表示动"
        "作有多坏（例如代价）时才是对的。",
    )
    if found.kind == "clipped":
        why = T(
            en="The smaller of a product and its clipped form is a lower bound of a gain, to be made large; for a "
            "cost it would be the larger one. `step()` makes the loss smaller, so the bound enters with a minus.",
            zh="取乘积与其截断形式中较小的一个，是收益的下界，应当变大；若是代价，则应取较大的一个。`step()` 使损失变"
            "小，所以这个下界要带负号。",
        )
    return RULE.finding(
        found.place,
        found.made.step,
        said,
        why,
        related=[
            story.related("backward", found.backward.step, T(en="the loss is made smaller", zh="损失在这里被减小"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("made", found.made.name, story.by(found.made.step))],
        severity="info" if found.kind == "weights" else "warning",
    )


def _fixes(story: Story, found: Minimised) -> tuple[Fix, ...]:
    """At most one fix: it puts a minus before the logarithms or the product.

    Empty if the source at this place is no expression or, for plain logarithms, no call.
    """
    program = story.program
    node = program.at(found.place)
    if not isinstance(node, ast.Call if found.kind == "plain" else ast.expr):
        return ()
    title = (
        T(en="Take the negative logarithm", zh="取负的对数")
        if found.kind == "plain"
        else T(en="Put a minus before it", zh="在前面加上负号")
    )
    return unique(program.text, [Fix(title, program.replace((node, f"(-{program.segment(node)})")), meaning="later")])


RULE = Rule(
    code="PL952",
    name="likelihood-minimised",
    severity="warning",
    title=T(en="A loss is a log-probability without a minus", zh="损失是没有负号的对数概率"),
    what=T(
        en="A program takes the logarithm of the probability of its data as the loss. Training makes a loss smaller, "
        "so the data become less and less probable. Put a minus before it.",
        zh="程序把数据的对数概率当作损失。训练使损失变小，于是数据变得越来越不可能。请在它前面加上负号。",
    ),
    why=T(
        en="`log_prob` and `log_softmax` return numbers that are larger where something is more probable. `step()` "
        "always goes against the gradient. `nll_loss` and `cross_entropy` contain the minus; a loss that is written "
        "out needs it: `-dist.log_prob(y).mean()`. Without it the loss falls without end, which looks like progress. "
        "A policy gradient contains the log-probability of an action times its advantage, or the smaller of a ratio's "
        "two products with it: both enter with a minus too.",
        zh="越可能的事，`log_prob` 和 `log_softmax` 返回的数越大。`step()` 总是沿梯度的反方向走。`nll_loss` "
        "和 `cross_entropy` 已含负号；自己写出的损失需要加上它：`-dist.log_prob(y).mean()`。没有负号时，损失会"
        "无止境地下降，看上去像是进步。策略梯度含有动作的对数概率与其优势的乘积，或者比值的两种乘积中较小的一"
        "个：它们也都要带负号。",
    ),
    bad="""import torch

torch.manual_seed(0)
y = torch.tensor([1.0, 2.0, 3.0])
mean = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    loss = torch.distributions.Normal(mean, 1.0).log_prob(y).mean()  # PL952
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item(), mean.item())
""",
    good="""import torch

torch.manual_seed(0)
y = torch.tensor([1.0, 2.0, 3.0])
mean = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([mean], lr=0.1)
for _ in range(3):
    loss = -torch.distributions.Normal(mean, 1.0).log_prob(y).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), mean.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.001",
            T(en="Smaller steps in the wrong direction.", zh="只是往错误方向走得慢一些。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html",),
)
