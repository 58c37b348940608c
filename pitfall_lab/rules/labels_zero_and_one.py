"""PL930: a loss that wants targets of 1 and -1 was given 0 and 1."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T

TARGETS = {"cosine_embedding_loss": 2, "margin_ranking_loss": 2, "soft_margin_loss": 1, "hinge_embedding_loss": 1}
"""The losses, and the positions of their targets among the arguments."""
EFFECTS = {
    "cosine_embedding_loss": T(
        en="a pair with target 0 has no loss and no gradient at all", zh="目标为 0 的一对既没有损失，也没有梯度"
    ),
    "margin_ranking_loss": T(
        en="with target 0 the difference is multiplied by 0, so such a pair has no gradient",
        zh="目标为 0 时差值乘以 0，这样的一对没有梯度",
    ),
    "soft_margin_loss": T(
        en="with target 0 the score is multiplied by 0, so each such example costs log 2 and has no gradient",
        zh="目标为 0 时分数乘以 0，于是每个这样的样本的损失都是 log 2，没有梯度",
    ),
    "hinge_embedding_loss": T(
        en="with target 0 it adds both what is meant for 1 and what is meant for -1, and their gradients "
        "cancel below the margin",
        zh="目标为 0 时，为 1 准备的和为 -1 准备的两项都会加上，在间隔以内它们的梯度相互抵消",
    ),
}
"""What each of these losses does with a target of 0."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a loss for targets of 1 and -1 whose known targets, over all its calls, are
    0 and 1 or all 0.
    """
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*TARGETS):
        if event.error is None and event.results and len(event.operands) > TARGETS[event.name]:
            places[story.span(event.step)].append(event)
    for events in places.values():
        known = {value for event in events for value in _targets(story, event)}
        if known in ({0.0}, {0.0, 1.0}):
            yield _finding(story, events)


def _targets(story: Story, event: Event) -> list[float]:
    """Return the known values of the targets; True and False count as 1 and 0. A NaN is added where their storage has
    one, or has an infinity.
    """
    label = event.operands[TARGETS[event.name]].label
    known = [float(value) for _, value in Elements(story, label, event.step, answers=True).known()]
    others = [value for value in story.held(label, event.step).values() if not isinstance(value, int | float)]
    return [*known, *([float("nan")] if others else [])]


def _finding(story: Story, events: list[Event]) -> Finding:
    event = events[0]
    here = at_line(story, story.span(event.step))
    label = event.operands[TARGETS[event.name]].label
    target, effect = expression(story, label, event.step), EFFECTS[event.name]
    zeros = sum(value == 0 for each in events for value in _targets(story, each))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} gives `{event.name}` targets of 0 and 1, and it wants 1 and -1: {effect.en}.",
            zh=f"{here.zh}交给 `{event.name}` 的目标是 0 和 1，而它需要 1 和 -1：{effect.zh}。",
        ),
        T(
            en=f"The targets {target.en} hold no -1. The loss multiplies by the target, or compares it with 1 and "
            "with -1, and refuses no other number. So the negative examples teach nothing, and everything may become "
            "alike. `2 * target - 1` makes -1 of 0.",
            zh=f"目标 {target.zh} 里没有 -1。这个损失会乘以目标，或者把目标与 1 和 -1 比较，但不会拒绝其他数。于是负样"
            "本什么也教不了，所有样本可能都变得一样。`2 * target - 1` 把 0 变成 -1。",
        ),
        related=[],
        fixes=_fixes(story, event),
        facts=[Fact("zeros", zeros, story.by(event.step)), Fact("loss", event.name, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program, label = story.program, event.operands[TARGETS[event.name]].label
    given = written_as(story, event, label) if program.tree is not None else None
    if given is None or isinstance(given, ast.Starred):
        return ()
    text = f"2 * {operand(program, given)} - 1"
    if (story.tensor(label, event.step) or {}).get("dtype") == "bool":
        text = f"2 * {operand(program, given)}.float() - 1"
    return unique(
        program.text,
        [
            Fix(
                T(en=f"Targets of 1 and -1: `{text}`", zh=f"目标为 1 和 -1：`{text}`"),
                program.replace((given, text)),
                meaning="shape",
            )
        ],
    )


RULE = Rule(
    code="PL930",
    name="labels-zero-and-one",
    severity="warning",
    title=T(en="A loss that wants targets of 1 and -1 has 0 and 1", zh="损失需要 1 和 -1 的目标，却得到了 0 和 1"),
    what=T(
        en="Some losses say *alike* with 1 and *different* with -1. A program marks different pairs with 0, and the "
        "loss does nothing with them. Make the targets 1 and -1: `2 * target - 1`.",
        zh="有些损失用 1 表示“相同”，用 -1 表示“不同”。程序却用 0 标记不同的一对，损失对它们什么也不做。请把目标变成 "
        "1 和 -1：`2 * target - 1`。",
    ),
    why=T(
        en="`cosine_embedding_loss`, `margin_ranking_loss`, `soft_margin_loss` and `hinge_embedding_loss` come from "
        "the mathematics of margins, where the target is a sign. They multiply by it, or pick one of two terms where "
        "it equals 1 or -1. `binary_cross_entropy` comes from probabilities, where the target is 0 or 1. None of them "
        "looks whether the targets are of its kind.",
        zh="`cosine_embedding_loss`、`margin_ranking_loss`、`soft_margin_loss` 和 `hinge_embedding_loss` 来自间隔的数"
        "学，那里目标是一个符号。它们乘以目标，或者在目标等于 1 或 -1 时从两项中选一项。`binary_cross_entropy` 来自概"
        "率，那里目标是 0 或 1。它们都不检查目标是不是自己那一类。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
left, right = torch.randn(4, 3), torch.randn(4, 3)
alike = torch.tensor([1, 0, 1, 0])
for _ in range(2):
    loss = F.cosine_embedding_loss(net(left), net(right), alike)  # PL930
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
left, right = torch.randn(4, 3), torch.randn(4, 3)
alike = torch.tensor([1, 0, 1, 0])
for _ in range(2):
    loss = F.cosine_embedding_loss(net(left), net(right), 2 * alike - 1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "alike)",
            "alike, margin=0.5)",
            T(
                en="A margin belongs to pairs with target -1, and there are still none.",
                zh="间隔只用于目标为 -1 的一对，而这里仍然没有。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CosineEmbeddingLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MarginRankingLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.SoftMarginLoss.html",
    ),
)
