"""PL969: of a policy's objective and its clipped form the larger one is maximized, so that clipping limits nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.loss_slopes import slopes
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")
CLIPS = {"clamp", "clip"}
LARGER, SMALLER = {"max", "maximum"}, {"min", "minimum"}
SWAPPED = {"max": "min", "maximum": "minimum", "min": "max", "minimum": "maximum"}
"""For each call that chooses one of two numbers the call that chooses the other one."""
PAIR = 2


@dataclass(frozen=True, slots=True)
class Chosen:
    """``event`` is the call (``Event``) that takes the larger or the smaller of two products, ``clip`` the call that
    clips a factor of one of them, and ``loss`` the label of the loss whose backward ran.

    ``falls`` is True where the loss falls when the chosen number rises.
    """

    event: Event
    clip: Event
    loss: str
    falls: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that chooses between a product and the same with one factor clipped, where a loss
    maximizes the larger of the two or, if one factor of the product is negated (a cost), minimizes the smaller one.
    """
    reported = set()
    for event in story.calls(*LARGER, *SMALLER):
        place = story.span(event.step)
        found = _chosen(story, event) if event.error is None and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _chosen(story: Story, event: Event) -> Chosen | None:
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != PAIR or len(event.results) != 1:
        return None
    made = [made_by(story, label, event.step) for label in labels]
    one, two = made
    clip = _clip(story, one, two) or _clip(story, two, one)
    if clip is None:
        return None
    is_cost = any(each.startswith("-") for each in _factors(story, one))
    for back in story.backwards():
        loss = back.operands[0].label if back.operands else None
        ways = slopes(story, loss, back.step).get(event.results[0], []) if back.step > event.step else []
        if loss is not None and ways:
            falls = ways[0].sign < 0
            # Where no factor is turned round, a minus before the whole may be what is missing (PL952).
            wrong = event.name in LARGER if falls else event.name in SMALLER and is_cost
            return Chosen(event, clip, loss, falls) if wrong else None
    return None


def _clip(story: Story, plain: Event | None, clipped: Event | None) -> Event | None:
    """The call that clips a factor of the product ``clipped``, if ``plain`` is the product of that factor before
    clipping and of the same other factors; else None.
    """
    if plain is None or clipped is None or plain.name not in PRODUCTS or clipped.name not in PRODUCTS:
        return None
    free, bound = ([o.label for o in event.operands if o.label is not None] for event in (plain, clipped))
    for factor in bound:
        made = made_by(story, factor, clipped.step)
        if made is None or made.name not in CLIPS or not made.operands or made.operands[0].label not in free:
            continue
        rest = [each for each in bound if each != factor]
        others = [each for each in free if each != made.operands[0].label]
        if rest and _kept(story, rest, clipped) == _kept(story, others, plain):
            return made
    return None


def _factors(story: Story, event: Event | None) -> list[str]:
    """The factors of a product, as :func:`_kept` writes them; empty for None."""
    labels = [o.label for o in event.operands if o.label is not None] if event is not None else []
    return _kept(story, labels, event) if event is not None else []


def _kept(story: Story, labels: list[str], event: Event) -> list[str]:
    """The given labels; for a tensor that ``neg`` computed, a minus and the label of what it negates: ``-t3``."""
    found = []
    for label in labels:
        made = made_by(story, label, event.step)
        negative = made is not None and made.name == "neg"
        found.append(f"-{made.operands[0].label}" if made is not None and negative else label)
    return found


def _finding(story: Story, found: Chosen) -> Finding:
    event, step = found.event, found.event.step
    here, text = at_line(story, story.span(step)), snippet(story, story.span(step))
    which = T(en="larger", zh="较大") if found.falls else T(en="smaller", zh="较小")
    more = T(en="larger", zh="更大") if found.falls else T(en="smaller", zh="更小")
    right = T(en="smaller", zh="较小") if found.falls else T(en="larger", zh="较大")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} takes the {which.en} of an objective and its clipped form, and the loss makes it "
            f"{more.en} still: the clipping limits nothing.",
            zh=f"{here.zh}在目标和它的裁剪形式中取{which.zh}的一个，而损失又让它变得{more.zh}：裁剪什么也没有限制。",
        ),
        T(
            en=f"Where the ratio has left the bounds by a step in the wanted direction, `{text}` takes the product "
            "that is not clipped, whose gradient pushes it on. Where it has left them in the other direction, it takes "
            f"the clipped one, which has no gradient, so nothing brings it back. Take the {right.en} one: the policy "
            "then gains nothing by going beyond the bounds.",
            zh=f"当比值朝着想要的方向越过界限时，`{text}` 取的是没有裁剪的乘积，它的梯度继续推动比值；当比值朝相反方向"
            f"越过界限时，取的是裁剪过的那个，它没有梯度，比值就回不来。请取{right.zh}的一个：这样策略越过界限就得不到"
            "好处。",
        ),
        related=[story.related("made", found.clip.step, T(en="clipped here", zh="在这里裁剪"))],
        fixes=_fixes(story, event),
        facts=[Fact("chosen", event.name, story.by(step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """At most one fix: it replaces ``max`` by ``min``, or the reverse. Empty unless the line has a call such as
    ``torch.max(…)``.
    """
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or called(node) not in SWAPPED:
        return ()
    new = f"{program.segment(node.func.value)}.{SWAPPED[node.func.attr]}"
    title = T(en=f"Take the other one: `{new}`", zh=f"取另一个：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node.func, new)), meaning="later")])


RULE = Rule(
    code="PL969",
    name="larger-objective-taken",
    severity="warning",
    title=T(
        en="Of an objective and its clipped form the wrong one is taken",
        zh="在目标和它的裁剪形式之间取错了一个",
    ),
    what=T(
        en="A program computes the clipped objective of a policy, `ratio * advantage` and the same with a clamped "
        "ratio, and takes the larger of the two where it maximizes (or the smaller where it minimizes). Clipping then "
        "limits nothing: the policy may go as far from the old one as it likes. Take the smaller one of what is "
        "maximized.",
        zh="程序计算策略的裁剪目标：`ratio * advantage` 以及把比值裁剪后的同一乘积，然后在最大化时取两者中较大的（或在"
        "最小化时取较小的）。这样裁剪就不起作用：策略可以任意远离旧策略。对要最大化的量，请取较小的一个。",
    ),
    why=T(
        en="The smaller of both is a lower bound: an update that has moved the ratio beyond the bounds earns nothing "
        "by moving it further, and one that has moved it the wrong way is still corrected. With the larger one both "
        "are turned round. In code that minimizes `-advantage * ratio` the larger one is right, so the two forms "
        "are easily mixed.",
        zh="两者中较小的是下界：已把比值推过界限的更新，再推也得不到好处；推错方向的更新仍会被纠正。取较大的，两者都反"
        "了。在最小化 `-advantage * ratio` 的写法里，较大的才对，所以两种写法容易混淆。",
    ),
    bad="""import torch

torch.manual_seed(0)
scores = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([scores], lr=0.5)
actions, advantage = torch.tensor([0, 1, 2, 0]), torch.tensor([1.0, -1.0, 0.5, -0.2])
old = scores.detach().log_softmax(0)[actions]
for _ in range(20):
    ratio = (scores.log_softmax(0)[actions] - old).exp()
    gain = torch.max(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)  # PL969
    opt.zero_grad()
    (-gain.mean()).backward()
    opt.step()
print(scores.softmax(0))
""",
    good="""import torch

torch.manual_seed(0)
scores = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([scores], lr=0.5)
actions, advantage = torch.tensor([0, 1, 2, 0]), torch.tensor([1.0, -1.0, 0.5, -0.2])
old = scores.detach().log_softmax(0)[actions]
for _ in range(20):
    ratio = (scores.log_softmax(0)[actions] - old).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    opt.zero_grad()
    (-gain.mean()).backward()
    opt.step()
print(scores.softmax(0))
""",
    find=find,
    traps=(
        Trap(
            "torch.max(ratio * advantage",
            "torch.maximum(ratio * advantage",
            T(en="`maximum` takes the larger one, too.", zh="`maximum` 取的也是较大的。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.minimum.html",),
)
