"""PL960: targets are only added to a loss, or subtracted from it, so its gradient is the same whatever they are."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import OPERATORS
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", in_place=True) | spellings("sub", in_place=True, exchanged=True)
PRODUCTS = spellings("div", "mul", "neg") | {"mean", "nanmean", "sum"}
"""Calls that scale all terms of a sum alike, and reductions."""
LINEAR = PRODUCTS | SAME_NUMBERS - spellings("clamp") - {"clamp_min", "data", "detach"}
"""Calls between a target and the loss that are linear in it."""
FILLED = {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
"""What makes the start of a sum, and holds one number only: no data to learn from."""
ROUNDS = 2
LIMIT = 3000


@dataclass(frozen=True, slots=True)
class TargetWithoutInfluence:
    """``event`` is the call (``Event``) that computed ``predicted + target`` (or a difference of the two); both are
    labels. From there to the loss there are only sums, means, factors without a gradient, and calls that keep or join
    the numbers.

    ``backward`` is the backward that starts from this loss.
    """

    event: Event
    predicted: str
    target: str
    backward: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds a tensor of data to a loss, or subtracts it, where the loss depends on
    this data in no other way, so that no gradient depends on it.

    Only if at least ``ROUNDS`` steps of an optimizer are recorded; the first backward is not judged, and tensors of one
    element, or made with one number, are no data.
    """
    found: dict[object, list[TargetWithoutInfluence]] = {}
    before = 0
    for backward in story.backwards() if len(story.trace.optimizer_steps) >= ROUNDS else ():
        if backward.name == "grad" and not _is_of_weights(story, backward):
            continue  # the slope of a result along its input: no addend matters to that
        for added in _added(story, backward):
            if before and not _matters(story, added, before):
                found.setdefault(story.span(added.event.step), []).append(added)
        before = backward.step
    for rounds in found.values():
        yield _finding(story, rounds[0])


def _is_of_weights(story: Story, grad: Event) -> bool:
    """Whether ``autograd.grad`` gives the gradient of something that an optimizer holds."""
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    return any(operand.label in held for operand in grad.operands)


def _added(story: Story, backward: Event) -> Iterator[TargetWithoutInfluence]:
    """Yield the sums with a tensor of data on the way to the loss, as far as only sums, means and factors without a
    gradient follow.
    """
    pending, seen = [backward.operands[0].label] if backward.operands else [], set[str | None]()
    while pending and len(seen) < LIMIT:
        label = pending.pop()
        event = story.event((story.tensor(label, backward.step) or {}).get("born"))
        if (
            label in seen
            or event is None
            or event.kind != "call"
            or event.name not in SUMS | LINEAR
            or label not in event.results
        ):
            continue
        seen.add(label)
        given = [o.label for o in event.operands if o.label is not None]
        trained = [each for each in given if (story.tensor(each, event.step) or {}).get("requires_grad")]
        if event.name in SUMS and len(given) == ROUNDS and len(trained) == 1:
            target = next(each for each in given if each != trained[0])
            if _is_data(story, target, event.step):
                yield TargetWithoutInfluence(event, trained[0], target, backward)
        if event.name in SUMS or len(trained) == 1 or event.name in ("stack", "cat"):
            pending += trained


def _is_data(story: Story, label: str, step: int) -> bool:
    record, made = story.tensor(label, step) or {}, origin(story, label, step)
    return (
        prod(record.get("shape") or ()) > 1
        and record.get("kind") != "parameter"
        and (made is None or made.name not in FILLED)
    )


def _matters(story: Story, added: TargetWithoutInfluence, before: int) -> bool:
    """Whether the loss depends on the target in some other way too: on what it was made of since the
    step ``before``, or copied from.

    True if there are too many calls to tell.
    """
    own, pending = {added.target}, [added.target]
    while pending and len(own) < LIMIT:
        event = story.event((story.tensor(pending.pop(), added.event.step) or {}).get("born"))
        if event is None or event.kind != "call":
            continue
        given = [o.label for o in event.operands if o.label is not None]
        given = (
            given
            if event.step > before and event.name != "__getitem__"
            else given[:1]
            if event.name in SAME_NUMBERS
            else []
        )
        new = [each for each in given if each not in own]
        own.update(new)
        pending += new
    others, seen = deque([added.backward.operands[0].label]), set[str | None]()
    while others and len(seen) < LIMIT:
        label = others.popleft()
        event = story.event((story.tensor(label, added.backward.step) or {}).get("born"))
        if label in seen or event is None or event.kind != "call":
            continue
        seen.add(label)
        reached = [
            o.label
            for o in event.operands
            if o.label is not None and not (event is added.event and o.label == added.target)
        ]
        if own & set(reached):
            return True
        others += reached
    return len(seen) >= LIMIT


def _finding(story: Story, found: TargetWithoutInfluence) -> Finding:
    span, step = story.span(found.event.step), found.event.step
    here, there = at_line(story, span), at_line(story, story.span(found.backward.step))
    target, predicted = expression(story, found.target, step), expression(story, found.predicted, step)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} puts {target.en} into the loss only as an addend: the gradients of the backward "
            f"on {there.en} are the same whatever it is.",
            zh=f"{here.zh}只是把 {target.zh} 作为加数放进损失：无论它是什么，{there.zh}的反向传播给出的梯度都相同。",
        ),
        T(
            en=f"From this line to the loss there are only sums, means and fixed factors. So {predicted.en} is pushed "
            "in one direction by the same amount in every step, and the loss falls without limit while the error "
            "grows. A loss needs the size of a difference: its square or its absolute value.",
            zh=f"从这一行到损失之间只有求和、平均与固定的系数。所以 {predicted.zh} 永远被朝一个方向推动同样的量，损失"
            "会无限下降，而误差却在增大。损失需要的是差的大小：它的平方或绝对值。",
        ),
        related=[
            story.related(
                "backward", found.backward.step, T(en="no gradient here depends on it", zh="这里的梯度都与它无关")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("target", found.target, story.by(step))],
    )


def _fixes(story: Story, found: TargetWithoutInfluence) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.BinOp) or OPERATORS.get(type(node.op)) != "-":
        return ()
    title = T(en="Take the square of the difference", zh="取差的平方")
    return unique(
        program.text, [Fix(title, program.replace((node, f"({program.segment(node)}) ** 2")), meaning="shape")]
    )


RULE = Rule(
    code="PL960",
    name="target-without-influence",
    severity="warning",
    title=T(en="No gradient of a loss depends on its targets", zh="损失的梯度与目标无关"),
    what=T(
        en="A loss is the mean of predictions minus targets, without a square or an absolute value. It gets smaller "
        "when the predictions get smaller, for any targets. Write `((predicted - target) ** 2).mean()`.",
        zh="损失是预测减目标的平均，没有平方，也没有绝对值。不论目标是什么，只要预测变小，它就变小。请写 `((predicted "
        "- target) ** 2).mean()`。",
    ),
    why=T(
        en="The *gradient* of a loss says how it changes with each parameter. A number that is only added does not "
        "change with them, so it vanishes from the gradient: that of `(predicted - target).mean()` is that of "
        "`predicted.mean()`. Differences of both signs cancel in the mean too, so the value is near 0 for a model "
        "that is wrong everywhere. Nothing is raised: a loss may be negative.",
        zh="损失的*梯度*说明它怎样随每个参数变化。仅仅被加上去的数不随参数变化，所以会从梯度中消失：`(predicted - "
        "target).mean()` 的梯度就是 `predicted.mean()` 的梯度。正负差值在平均中还会相互抵消，所以一个处处都错的模型也"
        "可能得到接近 0 的值。不会报错：损失可以是负数。",
    ),
    advice=T(
        en="take the square or the absolute value of the difference on {line} before its mean.",
        zh="在求平均之前，取{line}的差的平方或绝对值。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
y = x.sum(1, keepdim=True)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    predicted = net(x)
    loss = (predicted - y).mean()  # PL960
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(loss.item(), net.bias.grad)
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
y = x.sum(1, keepdim=True)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    predicted = net(x)
    loss = ((predicted - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), net.bias.grad)
""",
    find=find,
    traps=(
        Trap(
            "(predicted - y).mean()",
            "(y - predicted).mean()",
            T(
                en="With the sign turned, predictions grow without end instead.",
                zh="把符号反过来，预测就会无止境地变大。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html",),
)
