"""PL670: a generator's loss moves the discriminator's output for generated examples in the same direction as the
discriminator's own loss.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.loss_slopes import Slope, slopes
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import makers
from pitfall_lab.rules.signals.value_origins import origin, values
from pitfall_lab.trace import Event, OptimizerStep, T
from pitfall_lab.trace.operation_facts import spellings

LOSSES = ("binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss")
"""Losses that are given a discriminator's output and a target."""
LAYERS = spellings("matmul", "mm") | {"addmm", "bilinear", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear"}
"""Layers whose results are looked at on the way from a loss back to the generator."""
CONSTANT = {"ones": 1.0, "ones_like": 1.0, "zeros": 0.0, "zeros_like": 0.0, "new_ones": 1.0, "new_zeros": 0.0}
"""Calls that create a target of ones or of zeros, each with that number."""
OPPOSITE = {
    "zeros": "ones",
    "zeros_like": "ones_like",
    "new_zeros": "new_ones",
    "ones": "zeros",
    "ones_like": "zeros_like",
}
"""For each call that creates a target, the call that creates the opposite one."""
APART = 0.3
FURTHER = 3000


@dataclass(frozen=True, slots=True)
class Push:
    """In which direction minimising a loss moves the discriminator's result, labelled ``label``.

    With ``kind`` ``"target"`` it moves the result towards the number ``value``; with ``"slope"`` it makes the result
    smaller (``value`` 1) or larger (``value`` -1). ``event`` is the loss that was given the result and the target or,
    with ``"slope"``, the layer that computed the result. ``way`` is the path from the loss back to ``event``
    (:class:`Slope`).
    """

    kind: Literal["target", "slope"]
    value: float
    event: Event
    label: str
    way: Slope
    behind: frozenset[str]
    """The parameters that the result was computed from, with or without a graph."""


@dataclass(frozen=True, slots=True)
class GeneratorTaughtToFail:
    """One training step of one of the two networks: ``backward`` is the backward (``Event``), ``update`` the first
    optimizer step after it.

    ``pushes`` are the directions in which minimising the loss moves the results of layers, and the results that a loss
    compares with a constant; results that it moves in both directions are left out.
    """

    backward: Event
    update: OptimizerStep
    pushes: tuple[Push, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a generator's loss that moves the discriminator's output for generated
    examples in the same direction as the discriminator's own loss does.

    Only in programs with two optimizers that hold different parameters.
    """
    if len({update.made for update in story.trace.optimizer_steps}) < 2:
        return
    turns, reported = list(_turns(story)), set()
    for own in turns:
        for other in turns:
            if other.update.made == own.update.made or set(other.update.holds) & set(own.update.holds):
                continue
            found = _wrong(own, other)
            place = story.span(found[0].event.step) if found is not None else None
            if found is not None and place not in reported:
                reported.add(place)
                yield _finding(story, *found)


def _turns(story: Story) -> Iterator[GeneratorTaughtToFail]:
    backwards, updates = (
        [b for b in story.backwards() if b.error is None and len(b.operands) == 1],
        story.trace.optimizer_steps,
    )
    held = {label for update in updates for label in update.holds}
    flow, seen = Flow(story), set[tuple[object, ...]]()
    for backward in backwards:
        update = next((each for each in updates if each.step > backward.step), None)
        reached = frozenset(flow.leaves(backward.operands[0].label, backward.step))
        key = (story.span(backward.step), reached)
        if key in seen:
            continue  # of each optimizer only the first steps are known: later the next one may be the other's
        seen.add(key)
        if update is not None and update.made is not None and reached & set(update.holds):
            yield GeneratorTaughtToFail(backward, update, tuple(_pushes(story, backward, held)))


def _pushes(story: Story, backward: Event, held: set[str]) -> Iterator[Push]:
    for label, ways in slopes(story, backward.operands[0].label, backward.step).items():
        event = story.event((story.tensor(label, backward.step) or {}).get("born"))
        if event is None or len({way.sign for way in ways}) > 1:
            continue
        if event.name in LAYERS:
            yield Push("slope", ways[0].sign, event, label, ways[0], _behind(story, label, event.step, held))
        elif event.name in LOSSES and ways[0].sign > 0 and len(event.operands) > 1:
            guess, target = event.operands[0].label, event.operands[1].label
            value = _constant(story, target, event.step)
            if guess is not None and value is not None:
                yield Push("target", value, event, guess, ways[0], _behind(story, guess, event.step, held))


def _constant(story: Story, label: str | None, step: int) -> float | None:
    """Return the number that all elements of a target are; None if they are not all equal, are not known, or the target
    requires grad.
    """
    if label is None or (story.tensor(label, step) or {}).get("requires_grad"):
        return None
    made = origin(story, label, step)
    if made is not None and made.name in CONSTANT:
        return CONSTANT[made.name]
    known = set(values(story, label, step))
    return known.pop() if len(known) == 1 else None


def _behind(story: Story, label: str, step: int, held: set[str]) -> frozenset[str]:
    """Return those of the parameters ``held`` that a result was computed from, with or without a graph.

    The search does not go beyond a parameter, nor beyond ``FURTHER`` tensors.
    """
    pending, seen, found = deque([(label, step)]), {label}, set()
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        if here in held:
            found.add(here)
            continue
        for event in makers(story, here, at):
            for each in (o.label for o in event.operands):
                if each is not None and each not in seen:
                    seen.add(each)
                    pending.append((each, event.step))
    return frozenset(found)


def _wrong(
    own: GeneratorTaughtToFail, critics: GeneratorTaughtToFail
) -> tuple[Push, Push, GeneratorTaughtToFail, GeneratorTaughtToFail] | None:
    """Return the data of a finding if the generator's loss moves the output for generated examples in the same
    direction as the discriminator's loss; else None.

    The data are a push of the generator, an equal one of the discriminator (of the same ``kind`` and ``value``), and
    both training steps. None also if the discriminator's pushes for generated examples differ, if it does not push the
    output for real examples in the opposite direction, or if a push of the generator has no equal one.
    """
    generator, critic = set(own.update.holds), set(critics.update.holds)
    judged = [push for push in critics.pushes if push.behind & critic]
    fakes, reals = ([p for p in judged if bool(p.behind & generator) is generated] for generated in (True, False))
    wants = [push for push in own.pushes if push.behind & generator and push.behind & critic]
    pairs = [
        (want, fake)
        for want in wants
        for fake in fakes
        if _same(want, fake) and any(_opposite(fake, real) for real in reals)
    ]
    clear = all(_same(fake, other) for fake in fakes for other in fakes)
    return (
        (*pairs[0], own, critics)
        if pairs and clear and {id(want) for want, _ in pairs} == {id(want) for want in wants}
        else None
    )


def _same(one: Push, other: Push) -> bool:
    return one.kind == other.kind and (
        one.value == other.value if one.kind == "slope" else abs(one.value - other.value) < APART
    )


def _opposite(one: Push, other: Push) -> bool:
    return one.kind == other.kind and not _same(one, other)


def _finding(
    story: Story, want: Push, fake: Push, own: GeneratorTaughtToFail, critics: GeneratorTaughtToFail
) -> Finding:
    span = story.span(want.event.step)
    here, there = at_line(story, span), at_line(story, story.span(fake.event.step))
    down = T(en="be small" if want.value > 0 else "be large", zh="变小" if want.value > 0 else "变大")
    what = down
    if want.kind == "target":
        what = T(en=f"be {number(want.value)}", zh=f"是 {number(want.value)}")
    optimizers = [at_line(story, turn.update.span) for turn in (own, critics)]
    return RULE.finding(
        span,
        want.event.step,
        T(
            en=f"{capital(here.en)} wants the discriminator's answer to generated examples to {what.en}, and that is "
            f"what the discriminator's own loss on {there.en} wants: the generator learns to be recognised.",
            zh=f"{here.zh}希望判别器对生成样本的回答{what.zh}，而{there.zh}上判别器自己的损失要的也正是这个：生成器学"
            "到的是如何被认出来。",
        ),
        T(
            en=f"The optimizers of {optimizers[0].en} and {optimizers[1].en} train two networks against each other, "
            "so their losses have to want opposite answers to the same examples. Give the generator's loss the label "
            "of real examples, or turn its sign.",
            zh=f"{optimizers[0].zh}和{optimizers[1].zh}的优化器让两个网络相互对抗，所以对同样的样本，两个损失要的回答"
            "必须相反。请把真实样本的标签交给生成器的损失，或改变它的符号。",
        ),
        related=[
            story.related(
                "used",
                fake.event.step,
                T(en="the discriminator's loss wants the same", zh="判别器的损失要的是同样的回答"),
            ),
            story.related("backward", own.backward.step, T(en="the generator's backward", zh="生成器的反向传播")),
        ],
        fixes=_fixes(story, want, critics),
        facts=[Fact("wanted", want.value, story.by(want.event.step))],
    )


def _fixes(story: Story, want: Push, critics: GeneratorTaughtToFail) -> tuple[Fix, ...]:
    """Fixes that give the loss the opposite constant, or the label of real examples by its variable; for a plain mean,
    a minus before it.

    Empty if the program shows neither a constant nor a variable.
    """
    program, fixes = story.program, []
    if want.kind == "slope":
        event = want.way.event
        node = program.at(story.span(event.step)) if event is not None else None
        if isinstance(node, ast.Call):
            text = f"(-{program.segment(node)})"
            fixes.append(
                Fix(
                    T(en="Turn the sign of the generator's loss", zh="改变生成器损失的符号"),
                    program.replace((node, text)),
                    meaning="later",
                )
            )
        return unique(program.text, fixes)
    title = T(en="Give the generator's loss the label of real examples", zh="把真实样本的标签交给生成器的损失")
    given = written_as(story, want.event, want.event.operands[1].label)
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr in OPPOSITE:
        text = f"{program.segment(given.func.value)}.{OPPOSITE[given.func.attr]}"
        fixes.append(Fix(title, program.replace((given.func, text)), meaning="later"))
    for push in critics.pushes:
        name = written_as(story, push.event, push.event.operands[1].label) if _opposite(push, want) else None
        if isinstance(name, ast.Name) and given is not None:
            fixes.append(Fix(title, program.replace((given, name.id)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL670",
    name="generator-taught-to-fail",
    severity="warning",
    title=T(
        en="A generator is trained in the same direction as its discriminator", zh="生成器朝着判别器想要的方向训练"
    ),
    what=T(
        en="Two networks are to be trained against each other: one makes examples, the other distinguishes them from "
        "real ones. Here both losses fall when the made examples are recognised, so the maker gets worse. Give its "
        "loss the label of real examples.",
        zh="两个网络本应相互对抗：一个生成样本，另一个把它们与真实样本区分开。这里两个损失都希望生成的样本被认出来，于"
        "是生成器越来越差。请把真实样本的标签交给它的损失。",
    ),
    why=T(
        en="The discriminator's loss compares its answers with 1 for real and 0 for generated examples. The "
        "generator's loss goes through the same discriminator and has to pull the other way: 1 for what it generated, "
        "or for a critic without labels minus its mean. Copying the line with zeros runs without an error; both "
        "losses fall, since they agree.",
        zh="判别器的损失把它的回答与 1（真实）和 0（生成）比较。生成器的损失经过同一个判别器，必须往相反的方向拉："
        "对生成的样本用 1；对没有标签的 critic 则用均值的相反数。把带 0 的那一行照抄过来不会报错；两个损失都会下"
        "降，因为它们的目标一致。",
    ),
    advice=T(
        en="give the loss on {line} the opposite target for generated examples from that of the "
        "discriminator's loss on {used}.",
        zh="让{line}的损失对生成样本的要求，与{used}上判别器损失的要求相反。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
real = torch.randn(8, 2) + 3
make, judge = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
make_opt = torch.optim.SGD(make.parameters(), lr=0.1)
judge_opt = torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(3):
    fake = make(torch.randn(8, 3))
    right = F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1))
    wrong = F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(8, 1))  # used
    judge_opt.zero_grad()
    (right + wrong).backward()
    judge_opt.step()
    fooled = F.binary_cross_entropy_with_logits(judge(fake), torch.zeros(8, 1))  # PL670
    make_opt.zero_grad()
    fooled.backward()  # backward
    make_opt.step()
    print(fooled.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
real = torch.randn(8, 2) + 3
make, judge = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
make_opt = torch.optim.SGD(make.parameters(), lr=0.1)
judge_opt = torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(3):
    fake = make(torch.randn(8, 3))
    right = F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1))
    wrong = F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(8, 1))
    judge_opt.zero_grad()
    (right + wrong).backward()
    judge_opt.step()
    fooled = F.binary_cross_entropy_with_logits(judge(fake), torch.ones(8, 1))
    make_opt.zero_grad()
    fooled.backward()
    make_opt.step()
    print(fooled.item())
""",
    find=find,
    traps=(
        Trap(
            "make_opt = torch.optim.SGD(make.parameters(), lr=0.1)",
            "make_opt = torch.optim.SGD(make.parameters(), lr=0.01)",
            T(en="Smaller steps in the wrong direction.", zh="只是往错误方向走得慢一些。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",),
)
