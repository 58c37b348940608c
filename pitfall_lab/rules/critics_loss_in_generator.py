"""PL656: the discriminator's loss also filled the generator's gradients, and the generator's update used them together
with those of its own loss.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.training import joint_updates, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, OptimizerStep, T

ROUNDS = 2
LIMIT = 500


@dataclass(frozen=True, slots=True)
class Leaked:
    """An optimizer step (``update``) used a gradient that the backward ``first``, of another network's loss, had left
    in its parameter, labelled ``parameter``.

    ``last`` is the backward of the updated network's own loss, ``player`` a step of the optimizer for which ``first``
    ran. ``judged`` is the call (``Event``) that combined the tensor ``made`` (a label), computed from the parameters of
    ``update`` only, with a parameter of ``player``.
    """

    update: OptimizerStep
    parameter: str
    first: Event
    last: Event
    player: OptimizerStep
    judged: Event
    made: str
    is_sure: bool
    """Whether the clearing of the gradients that the second backward left in the parameters of ``player`` was recorded;
    in the last iteration it is not.
    """


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a backward of one network's loss that leaves gradients in another network,
    whose update uses them together with the gradients of its own loss.

    It must have happened in at least ``ROUNDS`` iterations. The networks are distinguished by the optimizers that hold
    their parameters.
    """
    if len({frozenset(update.holds) for update in story.trace.optimizer_steps}) < ROUNDS:
        return
    flow, told = Flow(story), set()
    for label in lives(story):
        rounds = [
            found
            for update, added in joint_updates(story, label)
            if (found := _leaked(story, flow, label, added, update))
        ]
        place = story.span(rounds[0].first.step) if rounds else None
        if len(rounds) >= ROUNDS and any(each.is_sure for each in rounds) and place not in told:
            told.add(place)
            yield _finding(story, rounds[0])


def _leaked(story: Story, flow: Flow, label: str, added: list[Event], update: OptimizerStep) -> Leaked | None:
    """Return the data of the finding if another optimizer (the player's) stepped between the first and the last
    backward of ``added``, both of which reach its parameters; else None.

    The gradients that the last backward leaves in those parameters must be cleared unused, as far as is known.
    """
    first, last, mine = added[0], added[-1], set(update.holds)
    if not first.operands or not last.operands:
        return None
    reached = flow.leaves(first.operands[0].label, first.step) & flow.leaves(last.operands[0].label, last.step)
    for other in story.trace.optimizer_steps:
        theirs = set(other.holds) & reached
        if theirs and not mine & set(other.holds) and _stepped(story, theirs, first.step, last.step):
            unused = _is_unused(story, theirs, last.step)
            judged = _boundary(story, flow, first, mine, set(other.holds)) if unused is not False else None
            if judged is not None:
                return Leaked(update, label, first, last, other, *judged, bool(unused))
    return None


def _stepped(story: Story, labels: set[str], begin: int, end: int) -> bool:
    """Whether an update used a gradient of one of these parameters between the steps ``begin`` and ``end``.

    It is read from the gradients, as the trace has only the first few steps of an optimizer.
    """
    return any(
        moment.kind == "used" and begin < moment.step < end
        for label in labels
        for moment in lives(story).get(label, ())
    )


def _is_unused(story: Story, labels: set[str], step: int) -> bool | None:
    """Whether the gradients of all these parameters are cleared, after the backward at ``step``, before an update uses
    them; None if for one of them neither is recorded.
    """
    later = [
        [m.kind for m in lives(story).get(label, ()) if m.step > step and m.kind in ("cleared", "used")][:1]
        for label in labels
    ]
    if ["used"] in later:
        return False
    return None if [] in later else True


def _boundary(story: Story, flow: Flow, backward: Event, mine: set[str], theirs: set[str]) -> tuple[Event, str] | None:
    """Return the first call, going back from the loss, that has as operands a parameter of ``theirs`` and a tensor
    computed from parameters of ``mine`` alone, with that tensor; None if there is none.
    """
    pending, seen = [operand.label for operand in backward.operands[:1]], set[str]()
    while pending and len(seen) < LIMIT:
        label = pending.pop(0)
        made = story.event((story.tensor(label) or {}).get("born")) if label is not None else None
        if label is None or label in seen or made is None:
            continue
        seen.add(label)
        given = [each.label for each in made.operands if each.label is not None]
        alone = [
            each for each in given if (found := flow.leaves(each, made.step)) and found <= mine and each not in mine
        ]
        if alone and theirs & set(given):
            return made, alone[0]
        pending += given
    return None


def _finding(story: Story, found: Leaked) -> Finding:
    here, meant = at_line(story, story.span(found.first.step)), at_line(story, found.player.span)
    there, last = at_line(story, story.span(found.judged.step)), at_line(story, found.update.span)
    own = at_line(story, story.span(found.last.step))
    name, made = (
        called(story, found.parameter, None, found.update.step),
        called(story, found.made, None, found.judged.step),
    )
    return RULE.finding(
        story.span(found.first.step),
        found.first.step,
        T(
            en=f"{capital(here.en)} also adds to the `.grad` of {name.en}, and {last.en} updates it with that sum: the "
            f"update mixes this loss, which is meant for the step on {meant.en}, with its own.",
            zh=f"{here.zh}也会加到 {name.zh} 的 `.grad` 上，而{last.zh}用这个和来更新：这次更新混合了两个损失，其中"
            f"一个是为{meant.zh}的更新准备的。",
        ),
        T(
            en=f"{made.en} still has its graph when {there.en} uses it, so this loss goes back through it to the "
            f"parameters that made it, and nothing clears their gradients before {own.en} adds those of their own "
            "loss. Detach it for the loss of the other network, or clear the gradients before the second backward.",
            zh=f"{there.zh}使用 {made.zh} 时它仍带着计算图，所以这个损失会经过它回到生成它的参数，而在"
            f"{own.zh}加上它们自己的损失的梯度之前没有清零。请在另一个网络的损失里对它 detach，"
            "或者在第二次反向传播之前清零梯度。",
        ),
        related=[
            story.related(
                "kept", found.judged.step, T(en="the result keeps its graph here", zh="结果在这里仍带着计算图")
            ),
            story.related(
                "step", found.update.step, T(en="updates with the sum of both gradients", zh="用两个梯度之和更新")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("parameter", found.parameter, story.by(found.first.step))],
    )


def _fixes(story: Story, found: Leaked) -> tuple[Fix, ...]:
    """Fixes that detach the generator's result where the discriminator is given it; empty if the program does not show
    it there.
    """
    program = story.program
    call, given = program.at(story.span(found.judged.step)), written_as(story, found.judged, found.made)
    if isinstance(call, ast.Call) and len(call.args) == 1 and not isinstance(call.args[0], ast.Starred):
        given = call.args[0]
    if given is None:
        return ()
    text = f"{operand(program, given)}.detach()"
    title = T(en=f"Detach it for this loss: `{text}`", zh=f"在这个损失里 detach：`{text}`")
    return unique(program.text, [Fix(title, program.replace((given, text)), meaning="later")])


RULE = Rule(
    code="PL656",
    name="critics-loss-in-generator",
    severity="warning",
    title=T(en="A discriminator's loss is left in the generator's gradients", zh="判别器的损失留在了生成器的梯度里"),
    what=T(
        en="A program trains two networks against each other, and the loss of the second goes back into the first, "
        "because the result of the first was not detached. The first is then updated with the sum of two losses that "
        "work against each other. Detach the result for the second network's loss.",
        zh="程序让两个网络对抗训练，而第二个网络的损失会回到第一个网络，因为第一个网络的结果没有 detach。于是第一个"
        "网络用两个互相对抗的损失之和来更新。请在第二个网络的损失里对结果 detach。",
    ),
    why=T(
        en="`backward()` adds to the `.grad` of every leaf that it reaches, whichever optimizer is stepped next. In a "
        "GAN the discriminator learns on samples of the generator; if they keep their graph, its loss also tells the "
        "generator how to be caught. With one `zero_grad()` for both at the top of the round, nothing clears that "
        "before the generator's own loss is added.",
        zh="`backward()` 会加到它到达的每个叶子的 `.grad` 上，不管接下来更新哪个优化器。在 GAN 中，判别器在生成器的样"
        "本上学习；如果样本还带着计算图，它的损失也会告诉生成器怎样被识破。如果一轮开始时才一起 `zero_grad()`，在加上"
        "生成器自己的损失之前就没有清零。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
G, D = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
real, zeros, ones = torch.randn(4, 2) + 3, torch.zeros(4, 1), torch.ones(4, 1)
for _ in range(3):
    opt_d.zero_grad()
    opt_g.zero_grad()
    fake = G(torch.randn(4, 2))
    judged = D(fake)  # kept
    loss_d = F.binary_cross_entropy_with_logits(D(real), ones) + F.binary_cross_entropy_with_logits(judged, zeros)
    loss_d.backward()  # PL656
    opt_d.step()
    F.binary_cross_entropy_with_logits(D(G(torch.randn(4, 2))), ones).backward()
    opt_g.step()  # step
print(G.weight)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
G, D = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
real, zeros, ones = torch.randn(4, 2) + 3, torch.zeros(4, 1), torch.ones(4, 1)
for _ in range(3):
    opt_d.zero_grad()
    opt_g.zero_grad()
    fake = G(torch.randn(4, 2))
    judged = D(fake.detach())
    loss_d = F.binary_cross_entropy_with_logits(D(real), ones) + F.binary_cross_entropy_with_logits(judged, zeros)
    loss_d.backward()
    opt_d.step()
    F.binary_cross_entropy_with_logits(D(G(torch.randn(4, 2))), ones).backward()
    opt_g.step()
print(G.weight)
""",
    find=find,
    traps=(
        Trap(
            "judged = D(fake)",
            "judged = D(fake.clone())",
            T(
                en="A clone keeps the graph of what it copies.",
                zh="clone 的结果仍带着原来的计算图。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",),
)
