"""PL630: an optimizer steps with gradients of its own loss and of the loss of another
player, added up in its parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import joint_updates, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, OptimizerMade, OptimizerStep, T

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class SteppedWithAnothersGradient:
    """``update`` is an optimizer step that used gradients which two backwards, ``own`` and ``other``, had added to the
    parameter labelled ``parameter``.

    ``detached`` is the call (``Event``) before the loss of ``own`` that detached the other player's result. ``other``
    is the backward of the loss of the other player, whose optimizer is ``player``; None if the creation of that
    optimizer is not known.
    """

    update: OptimizerStep
    parameter: str
    own: Event
    other: Event
    detached: Event
    player: OptimizerMade | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose backward leaves gradients in parameters of another optimizer, which are
    then stepped with these and the gradients of its own loss.

    Only in programs with two sets of parameters in optimizers, and in at least ``ROUNDS`` updates.
    """
    updates = story.trace.optimizer_steps
    players = {frozenset(update.holds) for update in updates}
    if len(players) < ROUNDS:
        return
    flow, told = Flow(story), set()
    for label in lives(story):
        rounds = [
            found
            for update, added in joint_updates(story, label)
            if (found := _mixed(story, flow, label, added, update))
        ]
        place = story.span(rounds[0].other.step) if rounds else None
        if len(rounds) >= ROUNDS and place not in told:
            told.add(place)
            yield _finding(story, rounds[0])


def _mixed(
    story: Story, flow: Flow, label: str, added: list[Event], update: OptimizerStep
) -> SteppedWithAnothersGradient | None:
    """The data of the finding if two of the losses reach this optimizer's parameters, and one of them is another
    player's; else None.

    The player's own loss reaches no other parameters, because it detached a result; the other loss also reaches those
    that this result was computed from.
    """
    mine = set(update.holds)
    reached = {b.step: flow.leaves(b.operands[0].label, b.step) for b in added if b.operands}
    others = [set(u.holds) for u in story.trace.optimizer_steps if not mine & set(u.holds)]
    for own in (b for b in added if reached.get(b.step) and reached[b.step] <= mine):
        for other in (b for b in added if b.step != own.step and reached.get(b.step, set()) & mine):
            theirs = next((held for held in others if held & reached[other.step]), None)
            detached = _detached(flow, own, mine, theirs) if theirs is not None else None
            if theirs is not None and detached is not None:
                player = next((made for made in story.trace.optimizers if set(made.holds) & theirs), None)
                return SteppedWithAnothersGradient(update, label, own, other, detached, player)
    return None


def _detached(flow: Flow, own: Event, mine: set[str], theirs: set[str]) -> Event | None:
    """The call before the loss of ``own`` that detached a result computed from the other player's parameters only.

    None if there is none.
    """
    start = own.operands[0].label if own.operands else None
    for cut in flow.cuts(start, own.step, along_the_graph=True):
        if cut.kind in ("detach", "no_grad"):
            made = flow.leaves(cut.tensor, cut.event.step)
            if made & theirs and not made & mine:  # a trunk that both share learns from both on purpose
                return cut.event
    return None


def _finding(story: Story, found: SteppedWithAnothersGradient) -> Finding:
    other, own = found.other, found.own
    here, there = at_line(story, story.span(other.step)), at_line(story, story.span(own.step))
    last, cut = at_line(story, found.update.span), at_line(story, story.span(found.detached.step))
    name = called(story, found.parameter, None, found.update.step)
    return RULE.finding(
        story.span(other.step),
        other.step,
        T(
            en=f"{capital(here.en)} also adds to the `.grad` of {name.en}, and {last.en} updates it with that sum: the "
            "update mixes two losses that work against each other.",
            zh=f"{here.zh}也会加到 {name.zh} 的 `.grad` 上，而{last.zh}用这个和来更新："
            "这次更新混合了两个互相对抗的损失。",
        ),
        T(
            en=f"The loss of {there.en} is meant for this optimizer: {cut.en} cuts the other network off. The loss of "
            f"{here.en} is meant for the other network, but its backward comes through {name.en} and adds to the same "
            "`.grad`. Step before that backward, with a fresh result for it, or name the parameters that it is for: "
            "`backward(inputs=…)`.",
            zh=f"{there.zh}的损失是为这个优化器准备的：{cut.zh}切断了另一个网络。{here.zh}的损失是为另一个网络准备的，"
            f"但它的反向传播会经过 {name.zh}，加到同一个 `.grad` 上。请在那次反向传播之前更新，并为它重新计算结果；或"
            "者说明它是为哪些参数准备的：`backward(inputs=…)`。",
        ),
        related=[
            story.related("backward", own.step, T(en="the optimizer's own loss", zh="这个优化器自己的损失")),
            story.related(
                "cut", found.detached.step, T(en="the other network is cut off here", zh="在这里切断另一个网络")
            ),
            story.related(
                "step", found.update.step, T(en="updates with the sum of both gradients", zh="用两个梯度之和更新")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("parameter", found.parameter, story.by(other.step))],
    )


def _fixes(story: Story, found: SteppedWithAnothersGradient) -> tuple[Fix, ...]:
    """Fixes that let the other loss fill only the gradients of its own player: ``backward(inputs=…)``.

    Empty if ``inputs`` is given already, or if the line that made the player's optimizer is not known.
    """
    program = story.program
    call, made = (
        program.at(story.span(found.other.step)),
        program.at(found.player.span) if found.player is not None else None,
    )
    given = made.args[0] if isinstance(made, ast.Call) and made.args else None
    if not isinstance(call, ast.Call) or given is None or any(k.arg == "inputs" for k in call.keywords):
        return ()
    text = program.segment(given)
    inside = ", ".join([*map(program.segment, call.args), *map(program.segment, call.keywords), f"inputs=list({text})"])
    title = T(en=f"Fill only its own gradients: `inputs=list({text})`", zh=f"只填写它自己的梯度：`inputs=list({text})`")
    return unique(
        program.text, [Fix(title, program.replace((call, f"{program.segment(call.func)}({inside})")), meaning="later")]
    )


RULE = Rule(
    code="PL630",
    name="stepped-with-anothers-gradient",
    severity="warning",
    title=T(
        en="An update uses gradients that another network's loss left behind", zh="更新用到了另一个网络的损失留下的梯度"
    ),
    what=T(
        en="A program trains two networks against each other, and both losses go backward before either optimizer "
        "steps. The second loss comes through the first network too, and leaves its gradients there. Each update of "
        "the first network then mixes two aims. Step the first one before the second backward.",
        zh="程序让两个网络对抗训练，而两个损失都在任何优化器更新之前反向传播。第二个损失也会经过第一个网络，把梯度留在"
        "那里。于是第一个网络的每次更新都混合了两个目标。请在第二次反向传播之前更新第一个网络。",
    ),
    why=T(
        en="`backward()` adds to the `.grad` of every leaf that it reaches. In a GAN the loss of the generator goes "
        "through the discriminator, which is right: that is how it learns what would look real. But the gradients "
        "that it leaves in the discriminator say how to make the fakes look *more* real, the opposite of what the "
        "discriminator is trained for. `fake.detach()` keeps the discriminator's loss away from the generator, not "
        "the other way round.",
        zh="`backward()` 会加到它到达的每个叶子的 `.grad` 上。在 GAN 中，生成器的损失要经过判别器，这没有错：它由此知"
        "道怎样才像真的。但它留在判别器里的梯度，说的是怎样让假的看起来*更真*，与判别器的训练目标相反。"
        "`fake.detach()` 让判别器的损失不影响生成器，反过来却不行。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
G, D = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
real, zeros, ones = torch.randn(4, 2) + 3, torch.zeros(4, 1), torch.ones(4, 1)
for _ in range(3):
    fake = G(torch.randn(4, 2))
    judged = D(torch.cat([real, fake.detach()]))  # cut
    loss_d = F.binary_cross_entropy_with_logits(judged, torch.cat([ones, zeros]))
    loss_g = F.binary_cross_entropy_with_logits(D(fake), ones)
    opt_d.zero_grad()
    opt_g.zero_grad()
    loss_d.backward()  # backward
    loss_g.backward()  # PL630
    opt_d.step()  # step
    opt_g.step()
    print(loss_d.item(), loss_g.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
G, D = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
opt_g = torch.optim.SGD(G.parameters(), lr=0.1)
opt_d = torch.optim.SGD(D.parameters(), lr=0.1)
real, zeros, ones = torch.randn(4, 2) + 3, torch.zeros(4, 1), torch.ones(4, 1)
for _ in range(3):
    fake = G(torch.randn(4, 2))
    judged = D(torch.cat([real, fake.detach()]))
    loss_d = F.binary_cross_entropy_with_logits(judged, torch.cat([ones, zeros]))
    loss_g = F.binary_cross_entropy_with_logits(D(fake), ones)
    opt_d.zero_grad()
    opt_g.zero_grad()
    loss_d.backward()
    loss_g.backward(inputs=list(G.parameters()))
    opt_d.step()
    opt_g.step()
    print(loss_d.item(), loss_g.item())
""",
    find=find,
    traps=(
        Trap(
            "F.binary_cross_entropy_with_logits(D(fake), ones)",
            "-F.binary_cross_entropy_with_logits(D(fake), zeros)",
            T(
                en="Another loss for the generator leaves gradients in the discriminator as well.",
                zh="换一个生成器损失，同样会在判别器里留下梯度。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",),
)
