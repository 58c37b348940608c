"""PL994: the weight of a class cancels, as each loss is divided by the weight of its only target."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, Span, T

LOSSES = {"cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss"}
"""Losses whose mean is divided by the weights of the targets, with the layer of each."""
FEWEST = 2


@dataclass(frozen=True, slots=True)
class OneTarget:
    """``event`` is the call (``Event``) of a weighted mean loss of one target; ``target`` is the class of the target,
    ``weight`` the weight of that class.
    """

    event: Event
    target: int
    weight: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with at least ``FEWEST`` weighted mean losses, all of one target each, of classes
    with different weights.

    Only if a backward goes through one of them.
    """
    lines: dict[Span, list[Event]] = defaultdict(list)
    for event in story.calls(*LOSSES) if story.backwards() else ():
        if event.error is None and event.span is not None and event.results and len(event.operands) > 1:
            lines[event.span].append(event)
    for span, events in lines.items():
        if len(events) < FEWEST or not any(_ran(story, event) for event in events):
            continue
        losses = [_single(story, event) for event in events]
        known = [each for each in losses if each is not None]
        if len(known) == len(losses) and not _are_equal([each.weight for each in known]):
            yield _finding(story, span, known)


def _ran(story: Story, event: Event) -> bool:
    node = story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn")) or {}
    return node.get("ran") is not None


def _are_equal(weights: list[float]) -> bool:
    return isclose(min(weights), max(weights), rel_tol=1e-4)


def _single(story: Story, event: Event) -> OneTarget | None:
    """The loss, if it is the weighted mean over one target given as a class; else None."""
    label = event.operands[1].label
    given = next((o.label for o in event.operands if o.name == "weight"), None)
    if given is None or label is None or prod(story.shape(label, event.step) or ()) != 1:
        return None
    if (argument(event, "reduction") or "'mean'").strip("'") != "mean" or float(
        argument(event, "label_smoothing") or 0
    ):
        return None
    if not str((story.tensor(label, event.step) or {}).get("dtype")).startswith(("int", "uint")):
        return None
    target = next((value for _, value in Elements(story, label, event.step).known()), None)
    weight = Elements(story, given, event.step).at((int(target),)) if target is not None and target >= 0 else None
    return OneTarget(event, int(target), weight) if weight and target is not None else None


def _finding(story: Story, span: Span, losses: list[OneTarget]) -> Finding:
    least, most = min(losses, key=lambda each: each.weight), max(losses, key=lambda each: each.weight)
    here, step = at_line(story, span), losses[0].event.step
    weights = number(least.weight, 3), number(most.weight, 3)
    came = next((value for _, value in Elements(story, most.event.results[0], most.event.step).known()), None)
    example = T(en="", zh="")
    if came is not None:
        shown = number(came, 3), number(came * most.weight, 3)
        example = T(
            en=f" One loss of class {most.target} is {shown[0]}, as without weights; {shown[1]} was meant.",
            zh=f"类别 {most.target} 的一个损失是 {shown[0]}，与不加权时一样；本来应是 {shown[1]}。",
        )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} weights a loss of one target, and its mean divides by the same weight: an example "
            f"of class {most.target} (weight {weights[1]}) counts as much as one of class {least.target} "
            f"(weight {weights[0]}).",
            zh=f"{here.zh}给只有一个目标的损失加权，而求平均又除以同一个权重：类别 {most.target}（权重 {weights[1]}）的"
            f"样本与类别 {least.target}（权重 {weights[0]}）的样本分量相同。",
        ),
        T(
            en="With `weight=`, the mean is not a sum divided by the number of targets, but by the sum of their "
            f"weights. With a single target that sum is its own weight, and it cancels.{example.en} Gradients of "
            "several such losses that are added up before a step are those of a loss without weights. With "
            '`reduction="sum"` the weight stays.',
            zh="给出 `weight=` 时，平均值不是总和除以目标的个数，而是除以权重之和。只有一个目标时，这个和就是它自己"
            f"的权重，于是抵消了。{example.zh}在一步之前累加几个这样的损失的梯度，得到的是没有权重的损失的梯度。用 "
            '`reduction="sum"` 时权重会保留。',
        ),
        fixes=_fixes(story, most.event),
        facts=[
            Fact("weights", (least.weight, most.weight), story.by(step)),
            Fact("loss", came, story.by(step)),
        ],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that sum instead of averaging, which leaves the weight of the one target in the loss: where the loss is
    called, or where its layer is made.
    """
    program = story.program
    node = program.at(story.span(event.step))
    calls = [node] if isinstance(node, ast.Call) and call_name(node) == event.name else []
    made = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == LOSSES[event.name]]
    title = T(en='Keep the weight: `reduction="sum"`', zh='保留权重：`reduction="sum"`')
    fixes = []
    for call in calls or made:
        kept = [program.segment(k) for k in call.keywords if k.arg != "reduction"]
        inside = ", ".join([*map(program.segment, call.args), *kept, 'reduction="sum"'])
        text = f"{program.segment(call.func)}({inside})"
        fixes.append(Fix(title, program.replace((call, text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL994",
    name="weight-divided-away",
    severity="warning",
    title=T(
        en="The weight of a class cancels: each loss has a single target",
        zh="类别的权重被抵消：每个损失只有一个目标",
    ),
    what=T(
        en="A program gives rare classes a larger weight, and computes the loss of one example at a time. That loss is "
        "a weighted mean: it is divided by the weights again, and with one example nothing of the weight remains, so "
        'all classes count alike. Use `reduction="sum"`, or batches of several examples.',
        zh="程序给少见的类别较大的权重，并且一次只计算一个样本的损失。这个损失是加权平均，会再除以权重；只有一个样本时，权"
        '重就什么也不剩，所有类别的分量相同。请使用 `reduction="sum"`，或者每批用几个样本。',
    ),
    why=T(
        en="`cross_entropy(x, y, weight=w)` is `sum(w[y] * loss) / sum(w[y])`, so that large weights do not make the "
        "step longer. In a batch of many, a heavy example then counts more than the others. In a batch of one there "
        "are no others: `w[y] * loss / w[y]`. Adding up the gradients of 32 such losses is not the same as one batch "
        'of 32. With `reduction="sum"`, or with `reduction="none"` and `.mean()`, the weight stays.',
        zh="`cross_entropy(x, y, weight=w)` 是 `sum(w[y] * loss) / sum(w[y])`，这样大的权重不会使步长变长。在有许多样本"
        "的批次里，权重大的样本比别的更重要；只有一个样本时没有别的：`w[y] * loss / w[y]`。累加 32 个这样的损失的梯度"
        '，与一个 32 个样本的批次不同。用 `reduction="sum"`，或者 `reduction="none"` 再 `.mean()`，权重会保留。',
    ),
    bad="""import torch
import torch.nn.functional as F

w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.5)
weight = torch.tensor([1.0, 3.0])
for _ in range(40):
    opt.zero_grad()
    for y in torch.tensor([0, 0, 0, 1]):
        loss = F.cross_entropy(w[None], y[None], weight=weight)  # PL994
        (loss / 4).backward()
    opt.step()
print(f"share of the rare class {w.softmax(0)[1]:.2f}, balanced 0.50")
""",
    good="""import torch
import torch.nn.functional as F

w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.5)
weight = torch.tensor([1.0, 3.0])
for _ in range(40):
    opt.zero_grad()
    for y in torch.tensor([0, 0, 0, 1]):
        loss = F.cross_entropy(w[None], y[None], weight=weight, reduction="sum")
        (loss / 4).backward()
    opt.step()
print(f"share of the rare class {w.softmax(0)[1]:.2f}, balanced 0.50")
""",
    find=find,
    traps=(
        Trap(
            "torch.tensor([1.0, 3.0])",
            "torch.tensor([1.0, 30.0])",
            T(en="A larger weight cancels just the same.", zh="更大的权重同样会被抵消。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
