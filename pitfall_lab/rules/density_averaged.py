"""PL475: a term of a log-likelihood is averaged over dimensions over which another term is summed."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.densities import scaled_numbers, square_of
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, before, made_by
from pitfall_lab.rules.signals.linear_parts import LinearPart, losses, parts_with_written
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.rules.signals.ramps import POINTWISE_NAMES
from pitfall_lab.trace import Event, Span, T

SELECTING = ("__getitem__", "select", "narrow", "masked_select")
"""Calls that select some elements: the sum of these does not include the others."""
PARTS = {"cat", "chunk", "flip", "index_select", "roll", "split", "stack", "unbind", *SELECTING}
"""Calls that join tensors or select elements: each number of the result is one of their operands' numbers."""
PAIR, UPWARD, NEAR = 2, 400, 1e-3


@dataclass(frozen=True, slots=True)
class Averaged:
    """``mean`` is the call (``Event``) that averages one term of a log-likelihood over ``of`` numbers of each example.

    ``axis`` is the first dimension (from 0) of these numbers; ``other`` is the call that used another term, which is
    summed over all of them. ``is_square`` is True if the averaged term is the squares of the density, False if it is
    the logarithms of the scales. ``product`` is the call that multiplied a number by its scale, ``backward`` the
    backward of the loss.
    """

    mean: Event
    of: int
    axis: int
    other: Event
    product: Event
    backward: Event
    is_square: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that averages a term of a normal log-likelihood over dimensions over which
    another term of it is summed.

    Only the first backward from the loss of each line is looked at.
    """
    reported: set[Span | None] = set()
    for backward in losses(story, rounds=1):
        found = _averaged(story, backward)
        if found is not None and story.span(found.mean.step) not in reported:
            reported.add(story.span(found.mean.step))
            yield _finding(story, found)


def _averaged(story: Story, backward: Event) -> Averaged | None:
    """Return the data of the finding for the loss of one backward; None if there is none.

    The logarithm of a normal density is a square with the factor 1/2. A change of variables, and an entropy, add the
    logarithm of each scale by which the number under the square was multiplied, with the factor 1. For a density the
    ratio of the two factors is fixed, whatever the loss is multiplied with.
    """
    terms = list(parts_with_written(story, backward.operands[0].label, backward.step, end=SELECTING))
    if not any(term.means for term in terms):
        return None
    squares = [square for term in terms if (square := square_of(story, term, backward.step)) is not None]
    scales = [
        (term, products)
        for term in (terms if squares else ())
        if (story.tensor(term.label) or {}).get("requires_grad")
        and (products := list(scaled_numbers(story, term.label, backward.step)))
    ]
    for square in squares if scales else ():
        behind = _numbers_behind(story, square.root, square.step)
        counted: list[tuple[float, LinearPart, Event]] = []
        for term, products in scales:
            found = [(p, k) for p, k in products if behind & set(p.results)]
            if found:
                product, times = found[0]
                size = max(prod(story.shape(term.label, backward.step) or ()), 1)
                each = prod(story.shape(product.results[0], product.step) or ()) / size
                if not each or not term.factor or square.times * term.factor * times > 0:
                    return None
                counted.append((abs(square.times * each * times / term.factor), term, product))
        if counted and all(isclose(share, counted[0][0], rel_tol=NEAR) for share, _, _ in counted):
            share, term, product = counted[0]
            one, other = (square.part, term) if share < 1 else (term, square.part)
            mean = _mean(story, one, [t for _, t, _ in counted] if share < 1 else [other], min(share, 1 / share))
            if mean is not None and other.user is not None:
                return Averaged(*mean, other.user, product, backward, is_square=share < 1)
    return None


def _numbers_behind(story: Story, label: str, step: int) -> set[str]:
    """Return the labels of the tensor ``label`` and of the tensors that it was computed from element by element."""
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        made = made_by(story, here, at)
        if made is None:
            continue
        given = [o.label for o in made.operands if o.label is not None]
        if made.name in SAME_NUMBERS:
            given = [source for source in (before(made, here),) if source is not None]
        elif made.name not in POINTWISE_NAMES | PARTS:
            continue
        for each in given:
            if each not in seen:
                seen.add(each)
                pending.append((each, made.step))
    return seen


def _mean(story: Story, part: LinearPart, others: list[LinearPart], share: float) -> tuple[Event, int, int] | None:
    """Return the mean that gives ``part`` the weight ``share`` relative to ``others``, the count of numbers of each
    example that it averages over, and the first of their dimensions; None if there is no such mean that the others do
    not have too.
    """
    shape = story.shape(part.label) or ()
    for axis in range(len(shape)):
        of = prod(shape[axis:])
        if of < PAIR or not isclose(share * of, 1, rel_tol=NEAR):
            continue
        for mean in part.means:
            given, made = (story.shape(label, mean.step) for label in (mean.operands[0].label, mean.results[0]))
            is_own = all(mean not in other.means for other in others)
            if given == shape and made is not None and is_own and prod(shape) // max(prod(made), 1) % of == 0:
                return mean, of, axis
    return None


def _finding(story: Story, found: Averaged) -> Finding:
    mean, of = found.mean, found.of
    here, there = at_line(story, story.span(mean.step)), at_line(story, story.span(found.other.step))
    what = shown(story, mean, mean.operands[0].label)
    rows = T(en="of each example", zh="每个样本的") if found.axis else T(en="in it", zh="其中的")
    density, scales = T(en="the log-density", zh="对数密度"), T(en="the logarithms of the scales", zh="缩放系数的对数")
    one, other = (density, scales) if found.is_square else (scales, density)
    return RULE.finding(
        story.span(mean.step),
        mean.step,
        T(
            en=f"{capital(here.en)} takes the mean of {what.en} over the {of} numbers {rows.en} too, and {there.en} "
            f"sums {other.en} of the same numbers: {one.en} counts 1/{of} as much.",
            zh=f"{here.zh}对 {what.zh} 求平均时，把{rows.zh} {of} 个数也平均了，而{there.zh}对同样这些数的{other.zh}求"
            f"的是和：{one.zh}只计了 1/{of}。",
        ),
        T(
            en=f"The probability of several numbers is a product, so their logarithms are added. With a mean over {of} "
            "numbers in one term and a sum in another, the total is the logarithm of no density: training settles at "
            "other scales than the data have. Sum over the numbers of an example first, then average over examples.",
            zh=f"几个数的概率是乘积，所以它们的对数要相加。一项对 {of} 个数求平均，另一项求和，总和就不是任何密度的对数"
            "：训练得到的尺度与数据不符。请先对一个样本的各个数求和，再对样本求平均。",
        ),
        related=[
            story.related("made", found.other.step, T(en="the other term is summed here", zh="另一项在这里求和")),
            story.related("used", found.product.step, T(en="the scale multiplies here", zh="缩放在这里相乘")),
            story.related(
                "backward", found.backward.step, T(en="the loss goes back from here", zh="损失从这里反向传播")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("numbers", of, story.by(mean.step))],
    )


def _fixes(story: Story, found: Averaged) -> tuple[Fix, ...]:
    """At most one fix: it sums the numbers of an example before the mean; empty if the program shows neither a mean of
    all numbers nor a mean of an example's numbers alone.
    """
    program, mean = story.program, found.mean
    node = program.at(story.span(mean.step)) if program.tree is not None else None
    label = mean.operands[0].label
    given, made = (story.shape(each, mean.step) or () for each in (label, mean.results[0]))
    text = written_as(story, mean, label)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or text is None:
        return ()
    if prod(made) * found.of == prod(given) and found.axis:
        own = program.segment(node.func)
        new = f"{own.removesuffix('mean')}sum{program.segment(node)[len(own) :]}" if own.endswith("mean") else ""
    else:
        summed = ".sum()" if not found.axis else ".sum(dim=-1).mean()"
        first = f".flatten({found.axis})" if 0 < found.axis < len(given) - 1 else ""
        new = f"{operand(program, text)}{first}{summed}" if not made else ""
    title = T(en="Sum over the numbers of an example, then average", zh="先对一个样本的各个数求和，再求平均")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")] if new else [])


RULE = Rule(
    code="PL475",
    name="density-averaged",
    severity="warning",
    title=T(
        en="One term of a log-likelihood is averaged over the dimensions, another is summed",
        zh="对数似然的一项对各维求平均，另一项求和",
    ),
    what=T(
        en="A log-likelihood has several terms for the same numbers, such as a log-density and the logarithms of "
        "scales. One of them is averaged over the numbers of an example, the other is summed, so the first counts too "
        "little and the fitted scales are wrong. Sum both: `log_prob(z).sum(dim=-1).mean() + log_det.mean()`.",
        zh="对数似然对同样的数有几项，比如对数密度和缩放系数的对数。其中一项对一个样本的各个数求了平均，另一项求了和，"
        "于是前者计得太少，拟合出的尺度是错的。请两项都求和：`log_prob(z).sum(dim=-1).mean() + log_det.mean()`。",
    ),
    why=T(
        en="`Normal(loc, scale)` with vectors is one distribution for each dimension: `log_prob(z)` has shape (n, D), "
        "and `.mean()` divides by n times D. `Independent(Normal(loc, scale), 1)` sums the D logarithms itself and "
        "returns one number for each example. A loss that is divided by D as a whole, as in bits per dimension, is "
        "the same likelihood.",
        zh="用向量构造的 `Normal(loc, scale)` 对每一维是一个分布：`log_prob(z)` 的形状是 (n, D)，`.mean()` 除以的是 n "
        "乘 D。`Independent(Normal(loc, scale), 1)` 自己把 D 个对数加起来，每个样本返回一个数。如果整个损失除以 D（如每"
        "维比特数），它仍是同一个似然。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
x = torch.randn(64, 3) * 2
log_scale = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([log_scale], lr=0.3)
base = Normal(torch.zeros(3), torch.ones(3))
for _ in range(20):
    z = x * log_scale.exp()  # used
    log_det = log_scale.sum()  # made
    loss = -(base.log_prob(z).mean() + log_det)  # PL475
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(z.std().item())
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
x = torch.randn(64, 3) * 2
log_scale = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([log_scale], lr=0.3)
base = Normal(torch.zeros(3), torch.ones(3))
for _ in range(20):
    z = x * log_scale.exp()
    log_det = log_scale.sum()
    loss = -(base.log_prob(z).sum(dim=-1).mean() + log_det)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(z.std().item())
""",
    find=find,
    traps=(
        Trap(
            "base.log_prob(z).mean()",
            "base.log_prob(z).mean(1).mean()",
            T(en="Two means in a row divide by both lengths.", zh="连续两次求平均，仍然除以两个长度。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#independent",),
)
