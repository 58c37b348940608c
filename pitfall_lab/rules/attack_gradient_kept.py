"""PL658: a backward that was run for the gradient of an input also filled the parameters' gradients,
and the next update uses them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import joint_updates, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, OptimizerStep, Span, T
from pitfall_lab.trace.operation_facts import spellings

ROUNDS = 2
LIMIT = 4000
SCALES = spellings("div", "mul", in_place=True)


@dataclass(frozen=True, slots=True)
class AttackGradientKept:
    """An optimizer step used a gradient that an earlier backward, run for the gradient of an input, had left in the
    parameters.

    ``update`` is that step and ``parameter`` the label of one of its parameters; ``first`` is the earlier backward (an
    ``Event``). ``given`` is the label of the input whose gradient ``first`` also filled, and ``read`` the first call
    that used that gradient. ``last`` is the backward of the loss that was computed from what ``read`` returned.
    ``places`` are the source positions (``Span``) of all backwards whose gradients the update uses, in order.

    ``alone`` is a backward on the line of ``first`` whose gradient no update used; None if there is none, or none was
    looked for.
    """

    update: OptimizerStep
    parameter: str
    first: Event
    last: Event
    given: str
    read: Event
    places: list[Span | None]
    alone: Event | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a backward that also filled the gradient of an input, from which the input of
    the next loss was made, while the gradients that this backward left in the parameters were used by the next update;
    in at least ``ROUNDS`` iterations.

    The finding is a warning if one update adds up several such backwards (the steps of an attack), or if the same line
    also ran where its gradients of the parameters were not used, in an evaluation, for example. Else it is a note.
    """
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    inputs = {label: moments for label, moments in lives(story).items() if label not in held} if held else {}
    if not inputs:
        return
    flow, told = Flow(story), set()
    filled = {moment.step: label for label, moments in inputs.items() for moment in moments if moment.kind == "added"}
    for label in (each for each in lives(story) if each in held):
        rounds = [found for joint in joint_updates(story, label) if (found := _kept(story, flow, label, filled, joint))]
        place = story.span(rounds[0].first.step) if rounds else None
        if len(rounds) >= ROUNDS and place not in told:
            told.add(place)
            worst = next((each for each in rounds if _is_summed(story, each)), None)
            if worst is None and place not in rounds[0].places[-1:]:
                worst = replace(rounds[0], alone=_alone(story, held, filled, rounds[0]))
            yield _finding(story, worst or rounds[0])


def _kept(
    story: Story, flow: Flow, label: str, filled: dict[int, str], joint: tuple[OptimizerStep, list[Event]]
) -> AttackGradientKept | None:
    """Return the data of the finding if an earlier backward of this update filled the gradient of an input, and the
    last loss was computed from that gradient (:func:`_read`); None if there is no such backward.

    ``filled`` gives the input whose gradient a backward filled, by the step of the backward.
    """
    update, added = joint
    for first in (each for each in added[:-1] if each.step in filled):
        given, last = filled[first.step], added[-1]
        read = _read(story, flow, given, first, last)
        if read is not None:
            return AttackGradientKept(
                update, label, first, last, given, read, [story.span(each.step) for each in added]
            )
    return None


def _read(story: Story, flow: Flow, given: str, first: Event, last: Event) -> Event | None:
    """Return the first call that used the gradient of the input ``given``, if the last loss was computed from that
    gradient and not from ``given``; None if it was not, or if more than ``LIMIT`` steps are between the two backwards.
    """
    start = last.operands[0].label if last.operands else None
    grad = next((moment.grad for moment in lives(story)[given] if moment.step == first.step), None)
    if start is None or grad is None or given in flow.leaves(start, last.step) or last.step - first.step > LIMIT:
        return None
    used, reader = {grad}, None
    for event in story.events[first.step + 1 : last.step]:
        given_to = (
            [operand.label for operand in event.operands if operand.label is not None] if event.kind == "call" else []
        )
        if any(label in used or (story.tensor(label, event.step) or {}).get("storage") in used for label in given_to):
            reader = reader or event
            used.update((*event.results, *event.writes, *(given_to[:1] if event.op.endswith(".data.__set__") else ())))
    return reader if start in used else None


def _alone(story: Story, held: set[str], filled: dict[int, str], found: AttackGradientKept) -> Event | None:
    """Return the first backward on the line of ``found.first`` whose gradient of a parameter was cleared, or left until
    the end, before anything was updated with it or another line's loss was added to it.

    None if there is no such backward, or if the trace has a gap there.
    """
    place, gaps = story.span(found.first.step), [gap.step for gap in story.trace.reach.gaps]
    is_complete = story.trace.stopped is None and story.trace.outcome.kind == "finished"
    for moments in (moments for label, moments in lives(story).items() if label in held):
        for number, moment in enumerate(moments):
            if moment.kind != "added" or moment.step not in filled or story.span(moment.step) != place:
                continue
            then = (each for each in moments[number + 1 :] if each.kind != "changed" and story.span(each.step) != place)
            after = next(then, None)
            until = after.step if after is not None else len(story.events)
            is_left = after is None and is_complete
            if (is_left or (after is not None and after.kind == "cleared")) and not any(
                moment.step < gap <= until for gap in gaps
            ):
                return moment.event
    return None


def _is_summed(story: Story, found: AttackGradientKept) -> bool:
    """Whether the update adds up the steps of an attack: two successive backwards of ``found.first``'s line, which is
    not the line of the last backward, of a loss that was not multiplied or divided by a number.
    """
    place = story.span(found.first.step)
    if place == found.places[-1] or (place, place) not in pairwise(found.places):
        return False
    root = found.first.operands[0].label if found.first.operands else None
    made = story.event((story.tensor(root, found.first.step) or {}).get("born"))
    return made is None or made.name not in SCALES or len([o for o in made.operands if o.label is not None]) > 1


def _finding(story: Story, found: AttackGradientKept) -> Finding:
    here, last = at_line(story, story.span(found.first.step)), at_line(story, found.update.span)
    own, read = at_line(story, story.span(found.last.step)), at_line(story, story.span(found.read.step))
    name, given = (
        called(story, found.parameter, None, found.update.step),
        called(story, found.given, None, found.first.step),
    )
    summed = _is_summed(story, found)
    meant = T(
        en=" If the update is meant to use both losses, nothing is wrong.",
        zh="如果更新本来就要使用两个损失，那就没有错。",
    )
    used = T(
        en="the sum of two gradients, of this loss and of that on", zh="两个梯度之和来更新，一个来自这个损失，一个来自"
    )
    if summed:
        meant, count = T(en="", zh=""), found.places.count(story.span(found.first.step))
        used = T(
            en=f"the sum of {len(found.places)} gradients, of which {count} come from this loss and not from that on",
            zh=f" {len(found.places)} 个梯度的和来更新，其中 {count} 个来自这里，而不是来自",
        )
    elif found.alone is not None:
        meant = T(
            en=f" {capital(here.en)} is meant for the input: it also runs where no update follows.",
            zh=f"{here.zh}是为输入准备的：它也在之后没有更新的地方运行。",
        )
    return RULE.finding(
        story.span(found.first.step),
        found.first.step,
        T(
            en=f"{capital(here.en)} computes the gradient of {given.en} for {read.en}, and adds to the `.grad` of "
            f"{name.en} too: {last.en} updates it with {used.en} {own.en}.",
            zh=f"{here.zh}为{read.zh}计算 {given.zh} 的梯度，同时也加到了 {name.zh} 的 `.grad` 上："
            f"{last.zh}用{used.zh}{own.zh}的损失。",
        ),
        T(
            en="`backward()` adds to the `.grad` of every leaf that the loss was computed from, and nothing clears "
            f"the parameters' gradients before {own.en} adds its own. If only the gradient of {given.en} was wanted, "
            "take it with `torch.autograd.grad`, or name it in `backward(inputs=…)`, or clear the gradients "
            f"afterwards.{meant.en}",
            zh=f"`backward()` 会加到算出这个损失的每个叶子的 `.grad` 上，而在{own.zh}加上自己的梯度之前，没有清零参数"
            f"的梯度。如果只需要 {given.zh} 的梯度，请使用 `torch.autograd.grad`，或者在 `backward(inputs=…)` 中指定"
            f"它，或者在之后清零梯度。{meant.zh}",
        ),
        severity="warning" if summed or found.alone is not None else None,
        related=[
            story.related("read", found.read.step, T(en="uses the gradient of the input", zh="使用输入的梯度")),
            story.related(
                "step", found.update.step, T(en="updates with the sum of both gradients", zh="用两个梯度之和更新")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("parameter", found.parameter, story.by(found.first.step)),
            Fact("input", found.given, story.by(found.first.step)),
        ],
    )


def _fixes(story: Story, found: AttackGradientKept) -> tuple[Fix, ...]:
    """At most one fix: it adds ``inputs=[x]`` to the ``backward``; empty if the input has no name, or the call has
    ``inputs`` or ``**`` already.
    """
    program, name = story.program, story.name(found.given)
    call = program.at(story.span(found.first.step))
    if name is None or not isinstance(call, ast.Call) or any(word.arg in (None, "inputs") for word in call.keywords):
        return ()
    return unique(program.text, [_with_input(program, call, name)])


def _with_input(program: Program, call: ast.Call, name: str) -> Fix:
    before = [program.segment(each) for each in (*call.args, *(word.value for word in call.keywords))]
    named = [
        *before[: len(call.args)],
        *(f"{word.arg}={program.segment(word.value)}" for word in call.keywords),
        f"inputs=[{name}]",
    ]
    text = f"{program.segment(call.func)}({', '.join(named)})"
    title = T(en=f"Fill the gradient of the input alone: `{text}`", zh=f"只填写输入的梯度：`{text}`")
    return Fix(title, program.replace((call, text)), meaning="later")


RULE = Rule(
    code="PL658",
    name="attack-gradient-kept",
    severity="info",
    title=T(
        en="A backward for the gradient of an input is left in the parameters' gradients",
        zh="为输入求梯度的反向传播留在了参数的梯度里",
    ),
    what=T(
        en="A program runs `backward()` to learn how an input changes the loss, as an adversarial attack or a "
        "saliency map does, changes the input by that gradient, and then trains on it. The first backward also filled "
        "the gradients of the parameters, so the update uses two losses. With one such backward it is a note only, "
        "as some programs mean to train on both, unless the same line also runs where nothing is trained. With "
        "several, the update is mostly made of an attack's own steps.",
        zh="程序用 `backward()` 求输入怎样影响损失（例如对抗攻击或显著图），按这个梯度改变输入，然后用它训练。"
        "第一次反向传播也填写了参数的梯度，所以更新使用了两个损失。只有一次这样的反向传播时，这只是一条提示，"
        "因为有的程序本来就要用两者训练，除非同一行也在不训练的地方运行。有多次时，更新主要由攻击自己的各步组成。",
    ),
    why=T(
        en="`backward()` has no list of leaves unless it is given one: every leaf that requires a gradient gets "
        "its part added to `.grad`. `zero_grad()` before the attack does not help, only after it. "
        "`torch.autograd.grad(loss, x)` returns the gradient and adds to no `.grad`; `backward(inputs=[x])` adds "
        "to that of `x` alone.",
        zh="如果不指定叶子，`backward()` 会加到每个需要梯度的叶子的 `.grad` 上。在攻击之前调用 `zero_grad()` 没有"
        "用，之后调用才有用。`torch.autograd.grad(loss, x)` 返回梯度，不加到任何 `.grad`；`backward(inputs=[x])` "
        "只加到 `x` 的 `.grad`。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
for _ in range(3):
    opt.zero_grad()
    x = data.clone().requires_grad_()
    attack = F.cross_entropy(model(x), labels)
    attack.backward()  # PL658
    moved = (x + 0.1 * x.grad.sign()).detach()  # read
    loss = F.cross_entropy(model(moved), labels)
    loss.backward()
    opt.step()  # step
print(model.weight)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
model = torch.nn.Linear(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data, labels = torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
for _ in range(3):
    opt.zero_grad()
    x = data.clone().requires_grad_()
    attack = F.cross_entropy(model(x), labels)
    attack.backward(inputs=[x])
    moved = (x + 0.1 * x.grad.sign()).detach()
    loss = F.cross_entropy(model(moved), labels)
    loss.backward()
    opt.step()
print(model.weight)
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n    x =",
            "    opt.zero_grad(set_to_none=False)\n    x =",
            T(
                en="Clearing before the attack does not clear what the attack adds.",
                zh="在攻击之前清零，清不掉攻击加上的梯度。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",),
)
