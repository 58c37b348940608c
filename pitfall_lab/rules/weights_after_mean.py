"""PL926: weights or a mask of the examples are multiplied with a loss that is already one
number, so they weigh nothing.

So is the factor of a focal loss, ``(1 - exp(-loss)) ** 2``, if ``loss`` is the mean.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul", in_place=True)
LOSSES = {
    "mse_loss": "MSELoss", "l1_loss": "L1Loss", "smooth_l1_loss": "SmoothL1Loss", "huber_loss": "HuberLoss",
    "nll_loss": "NLLLoss", "cross_entropy": "CrossEntropyLoss", "binary_cross_entropy": "BCELoss",
    "kl_div": "KLDivLoss", "poisson_nll_loss": "PoissonNLLLoss",
    "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
}  # fmt: skip
"""For each loss, the name of its layer's class."""
SUMS = {"mean", "sum"}
SAME = spellings("div", "mul", "neg") | {"float", "reshape", "squeeze", "view"}
"""Calls between the loss and the weights: it stays one number."""
HOPS = 6


@dataclass(frozen=True, slots=True)
class WeightsAfterMean:
    """``product`` is the call (``Event``) that multiplied the tensor ``weight`` (a label), which has a number for each
    element of a loss, with the single number that was left of the loss after the call ``reduced`` took its mean or sum.

    ``total`` is the call that sums or averages the product.
    """

    reduced: Event
    product: Event
    weight: str
    total: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies a loss, already reduced to one number, with weights of its
    elements, which are then summed or averaged, or with the factor of a focal loss.
    """
    told = set()
    for event in story.calls(*PRODUCTS):
        place = story.span(event.step)
        found = _late(story, event) if place not in told and event.error is None and event.results else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)
        elif place not in told and event.error is None and (reduced := _weighed_by_itself(story, event)) is not None:
            told.add(place)
            yield _by_itself(story, event, reduced)


def _weighed_by_itself(story: Story, event: Event) -> Event | None:
    """The call that reduced a loss to the one number that ``event`` multiplies with a power of its own
    exponential, as a focal loss does.

    None if there is none, or if the factor has no gradient: then it only scales the loss.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != 2 or event.parent is not None or not event.results:
        return None
    for one, factor in (labels, labels[::-1]):
        record = story.tensor(factor, event.step) or {}
        if (
            not record.get("requires_grad")
            or prod(record.get("shape") or ()) != 1
            or not _is_power_of_exponential(story, factor, one, event.step)
        ):
            continue
        reduced = _reduced(story, one, event.step)
        rows = (
            story.shape(reduced.operands[0].label, reduced.step) if reduced is not None and reduced.operands else None
        )
        if reduced is not None and reduced.name in LOSSES and rows and rows[0] > 1:
            return reduced
    return None


def _is_power_of_exponential(story: Story, label: str, source: str, step: int) -> bool:
    """Whether ``label`` comes from ``source`` by calls of one tensor each, among them both an ``exp`` and a power:
    ``pow``, ``square`` or ``mul``.
    """
    names: list[str] = []
    for _ in range(HOPS):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        given = (
            {o.label for o in made.operands if o.label is not None}
            if made is not None and label in made.results
            else set()
        )
        if made is None or len(given) != 1:
            return False
        names.append(made.name.strip("_"))
        label, step = str(given.pop()), made.step
        if label == source:
            return "exp" in names and bool({"pow", "square", "mul"} & set(names))
    return False


def _late(story: Story, event: Event) -> WeightsAfterMean | None:
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) != 2 or event.parent is not None:
        return None
    for one, weight in (labels, labels[::-1]):
        shape, record = story.shape(weight, event.step) or (), story.tensor(weight, event.step) or {}
        learned = record.get("requires_grad") or record.get("kind") == "parameter"
        if prod(story.shape(one, event.step) or ()) != 1 or prod(shape) < 2 or learned:
            continue
        reduced = _reduced(story, one, event.step)
        total = next((use for use in story.uses(event.results[0]) if use.step > event.step), None)
        if (
            reduced is None
            or total is None
            or total.name not in SUMS
            or not _is_trained(story, total)
            or not _fits(story, reduced, shape)
        ):
            continue
        if (
            len(set(values(story, weight, event.step))) != 1
        ):  # last: equal weights are no weights, and values are requested for it
            return WeightsAfterMean(reduced, event, weight, total)
    return None


def _reduced(story: Story, label: str, step: int) -> Event | None:
    """The loss, mean or sum that made ``label``, perhaps before calls with one tensor that keep the number or scale it;
    None if there is none.
    """
    for _ in range(HOPS):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        given = (
            [o.label for o in event.operands if o.label is not None]
            if event is not None and label in event.results
            else []
        )
        if event is None or not given:
            return None
        if event.name in LOSSES or event.name in SUMS:
            return event
        if event.name not in SAME or len(given) != 1:
            return None
        label, step = given[0], event.step
    return None


def _is_trained(story: Story, total: Event) -> bool:
    record = story.tensor(total.results[0], total.step) or {} if total.results else {}
    return prod(record.get("shape") or ()) == 1 and bool(record.get("requires_grad"))


def _fits(story: Story, reduced: Event, shape: tuple[int, ...]) -> bool:
    """Whether the weight has one number for each reduced element, or for each row."""
    given = [story.shape(o.label, reduced.step) for o in reduced.operands[:2] if o.label is not None]
    own = shape[:-1] if shape[-1:] == (1,) else shape
    return any(g is not None and len(own) > 0 and (g[: len(own)] == own or g == shape) for g in given)


def _finding(story: Story, found: WeightsAfterMean) -> Finding:
    product, reduced = found.product, found.reduced
    here, there = at_line(story, story.span(product.step)), at_line(story, story.span(reduced.step))
    weight = expression(story, found.weight, product.step)
    size = "×".join(map(str, story.shape(found.weight, product.step) or ()))
    return RULE.finding(
        story.span(product.step),
        product.step,
        T(
            en=f"{capital(here.en)} multiplies {weight.en}, of shape {size}, with a loss that {there.en} has already "
            "made one number: every example still counts alike.",
            zh=f"{here.zh}把形状为 {size} 的 {weight.zh} 与损失相乘，而{there.zh}已经把损失变成了一个数："
            "每个样本仍然同样重要。",
        ),
        T(
            en=f"`{reduced.name}` on {there.en} averages over the elements first. One number times many weights, "
            "added up, is that number times their sum: the weights only scale the whole loss. Keep one loss for each "
            'element (`reduction="none"`), multiply, and average after that.',
            zh=f"{there.zh}的 `{reduced.name}` 先对所有元素求了平均。一个数乘以许多权重再加起来，等于这个数乘以权重之"
            '和：权重只是缩放了整个损失。请保留每个元素的损失（`reduction="none"`），先相乘，再求平均。',
        ),
        related=[
            story.related("made", reduced.step, T(en="becomes one number here", zh="在这里变成一个数")),
            story.related("used", found.total.step, T(en="added up here", zh="在这里加起来")),
        ],
        fixes=_fixes(story, reduced),
        facts=[Fact("shape", size, story.by(product.step)), Fact("reduced", reduced.name, story.by(reduced.step))],
    )


def _by_itself(story: Story, product: Event, reduced: Event) -> Finding:
    """The finding about a factor that was to weigh each example, and is computed from the mean of all."""
    here, there = at_line(story, story.span(product.step)), at_line(story, story.span(reduced.step))
    node = story.program.at(story.span(product.step)) if story.program.tree is not None else None
    mean = (
        story.program.replace((node, f"({story.program.segment(node)}).mean()")) if isinstance(node, ast.BinOp) else ()
    )
    title = T(
        en='Keep one loss for each element (`reduction="none"`), and take the mean at the end',
        zh='保留每个元素的损失（`reduction="none"`），最后求平均',
    )
    merged = [merge(fix.edits, mean) for fix in _fixes(story, reduced)] if mean else []
    fixes = [Fix(title, edits, meaning="shape") for edits in merged if edits is not None]
    return RULE.finding(
        story.span(product.step),
        product.step,
        T(
            en=f"{capital(here.en)} weighs a loss with a factor that is computed from it, but {there.en} has already "
            "made it one number: the factor is the same for all examples.",
            zh=f"{here.zh}用由损失算出的因子给损失加权，而{there.zh}已经把损失变成了一个数：所有样本的因子都相同。",
        ),
        T(
            en=f"`{reduced.name}` on {there.en} averages over the elements first. A power of the mean does not tell "
            'easy examples from hard ones. Keep one loss for each element (`reduction="none"`), weigh each with '
            "its own factor, and average after that.",
            zh=f"{there.zh}的 `{reduced.name}` 先对所有元素求了平均。平均值的幂分不出容易的样本和困难的样本。请保留每"
            '个元素的损失（`reduction="none"`），各自乘以自己的因子，再求平均。',
        ),
        related=[
            story.related("made", reduced.step, T(en="becomes one number here", zh="在这里变成一个数")),
            story.related("used", product.step, T(en="weighed here", zh="在这里加权")),
        ],
        fixes=unique(story.program.text, fixes),
        facts=[Fact("reduced", reduced.name, story.by(reduced.step))],
    )


def _fixes(story: Story, reduced: Event) -> tuple[Fix, ...]:
    """Fixes that keep one loss per element: ``reduction="none"`` where the loss is called or its module made, or no
    ``.mean()``.

    At most two.

    Empty if the call has a ``reduction`` already or the program's source shows no call.
    """
    program, name = story.program, LOSSES.get(reduced.name)
    node = program.at(story.span(reduced.step))
    fixes: list[Fix] = []
    if (
        name is None
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and not node.args
        and not node.keywords
    ):
        text = program.segment(node.func.value)
        title = T(
            en=f"Leave `.{node.func.attr}()` out before the weights", zh=f"在乘以权重之前去掉 `.{node.func.attr}()`"
        )
        fixes.append(Fix(title, program.replace((node, text)), meaning="shape"))
    made = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == name]
    called = [node] if isinstance(node, ast.Call) and call_name(node) == reduced.name else []
    for call in (*called, *made) if name is not None else ():
        if any(k.arg == "reduction" for k in call.keywords):
            continue
        inside = ", ".join([*map(program.segment, call.args), *map(program.segment, call.keywords), 'reduction="none"'])
        title = T(en='Keep one loss for each element: `reduction="none"`', zh='保留每个元素的损失：`reduction="none"`')
        fixes.append(Fix(title, program.replace((call, f"{program.segment(call.func)}({inside})")), meaning="shape"))
    return unique(program.text, fixes[:2])


RULE = Rule(
    code="PL926",
    name="weights-after-mean",
    severity="warning",
    title=T(en="Weights are applied to a loss that is already one number", zh="权重乘在了已经变成一个数的损失上"),
    what=T(
        en="A program has a weight for each example, or a mask, and multiplies it with the loss after the loss has "
        "been averaged. All examples then still count alike. Ask the loss for one number per example with "
        '`reduction="none"`, multiply, and take the mean last.',
        zh="程序给每个样本一个权重（或掩码），却在损失已经求过平均之后才去相乘。于是所有样本仍然同样重要。请用 "
        '`reduction="none"` 得到每个样本的损失，先相乘，最后求平均。',
    ),
    why=T(
        en="Losses reduce by default: `mse_loss(pred, y)` is the mean over all elements, of shape `[]`. The product "
        "of one number with a vector is a vector, so nothing fails, and its mean is the loss times the mean weight. "
        "The gradient of every example is scaled by that one number, whatever its own weight is. The same holds for "
        "`(loss * mask).sum() / mask.sum()`.",
        zh="损失默认会做归约：`mse_loss(pred, y)` 是对所有元素的平均，形状为 `[]`。一个数与一个向量的乘积是向量，所以"
        "不会报错，而它的平均值就是损失乘以权重的平均。每个样本的梯度都被这同一个数缩放，与它自己的权重无关。`(loss * "
        "mask).sum() / mask.sum()` 也是如此。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
weight = torch.tensor([[5.0], [0.0], [0.0], [1.0]])
error = F.mse_loss(net(x), y)  # made
loss = (weight * error).mean()  # PL926 used
loss.backward()
print(loss.item(), net.weight.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
weight = torch.tensor([[5.0], [0.0], [0.0], [1.0]])
error = F.mse_loss(net(x), y, reduction="none")
loss = (weight * error).mean()
loss.backward()
print(loss.item(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "(weight * error).mean()",
            "(weight * error).sum()",
            T(
                en="A sum in place of the mean: one number times all weights again.",
                zh="把平均换成求和：仍是一个数乘以所有权重。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html",
    ),
)
