"""PL772: a sum over the whole batch is added to a number of each sample, so it counts once for every sample."""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import ADDING, parts, summed_into
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that

SUMS = {"sum", "nansum"}
LOSSES = (
    operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "gaussian_nll_loss", "kl_div",
       "nll_loss"}
)  # fmt: skip
"""Losses that add up the batch with ``reduction="sum"``."""
ROUNDS, UPWARD = 3, 300


@dataclass(frozen=True, slots=True)
class BatchSumInEachSample:
    """``sums`` are the calls (``Event``) that add up all numbers of tensors with one row for each of ``count`` samples.

    ``added`` is the call that adds the one number computed from these sums to a tensor with one number for each sample.
    ``root`` is the backward that starts from a loss computed from the result.
    """

    sums: list[Event]
    added: Event
    count: int
    root: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that sums a loss or a term over a whole batch, where the sum is then added to the
    loss of each sample and a backward starts from the result.

    Only additions of one number to a larger tensor are looked at, the first ``ROUNDS`` of each line.
    """
    roots = {
        label: b
        for b in story.backwards()
        if b.error is None and b.operands and (label := b.operands[0].label) is not None
    }
    reported: set[Span | None] = set()
    passed: Counter[Span | None] = Counter()
    for event in story.calls(*ADDING) if roots else ():
        place = story.span(event.step)
        shapes = [story.shape(o.label, event.step) for o in event.operands if o.label is not None]
        if len(shapes) != 2 or None in shapes or not event.results or passed[place] >= ROUNDS:
            continue
        sizes = [prod(shape) for shape in shapes if shape is not None]
        if min(sizes) != 1 or max(sizes) < 2 or event.error is not None:
            continue
        passed[place] += 1
        found = _summed(story, event, roots)
        if found is not None and not reported & {story.span(each.step) for each in found.sums}:
            reported.update(story.span(each.step) for each in found.sums)
            yield _finding(story, found)


def _summed(story: Story, event: Event, roots: dict[str, Event]) -> BatchSumInEachSample | None:
    """Return the data of the finding if the call ``event`` adds a sum over the batch to a vector with an entry for each
    sample of the batch; else None.

    Only if a backward in ``roots`` starts from the result, the sum requires grad, and the sum is over other numbers of
    the samples that the vector was computed from.
    """
    given = [str(o.label) for o in event.operands if o.label is not None]
    one, each = sorted(given, key=lambda label: prod(story.shape(label, event.step) or ()))
    shape = story.shape(each, event.step) or ()
    count = shape[0]
    if shape not in ((count,), (count, 1)) or not (story.tensor(one, event.step) or {}).get("requires_grad"):
        return None
    root = summed_into(story, event.results[0], roots)
    own = {part.label for part in parts(story, each, event.step)} | {each} if root is not None else set()
    sums = [made for made in _sums(story, one, event.step, count) if root is not None and _is_other(story, made, own)]
    if root is None or not sums:
        return None
    rows = _rows(story, each, event.step, count)
    sums = [made for made in sums if rows & _rows(story, str(made.operands[0].label), made.step, count)]
    return BatchSumInEachSample(sums, event, count, root) if sums else None


def _sums(story: Story, label: str, step: int, count: int) -> Iterator[Event]:
    """Yield the calls that sum a tensor of ``count`` rows over all rows and whose results the number ``label`` consists
    of, unless they were divided by about the number of rows.
    """
    for part in parts(story, label, step, end=SUMS):
        made = made_by(story, part.label, step)
        if made is None or not made.operands or prod(story.shape(part.label, made.step) or ()) != 1:
            continue
        shape = story.shape(made.operands[0].label, made.step) or ()
        is_sum = made.name in SUMS or (made.name in LOSSES and argument(made, "reduction") == "'sum'")
        if is_sum and shape and shape[0] == count and abs(part.factor) * count > 2:
            yield made


def _is_other(story: Story, made: Event, own: set[str]) -> bool:
    """Whether the tensor that ``made`` sums is not among ``own``, the tensors that the sample's own number consists of:
    ``x.sum() - x`` is the sum of all others.
    """
    label = str(made.operands[0].label)
    return own.isdisjoint({part.label for part in parts(story, label, made.step)} | {label})


def _rows(story: Story, label: str, step: int, count: int) -> set[str]:
    """Return the labels of the tensor ``label`` and of the tensors of first size ``count`` that it was computed from,
    through such tensors alone, without parameters.
    """
    pending, seen = deque([(label, step)]), {label}
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        made = made_by(story, here, at)
        for each in [o.label for o in made.operands if o.label is not None] if made is not None else ():
            record = story.tensor(each, at) or {}
            is_weight = record.get("is_leaf") and record.get("requires_grad")
            if each not in seen and not is_weight and (record.get("shape") or (0,))[0] == count:
                seen.add(each)
                pending.append((each, at if made is None else made.step))
    return seen


def _finding(story: Story, found: BatchSumInEachSample) -> Finding:
    first, added, count = found.sums[0], found.added, found.count
    here, there = at_line(story, story.span(first.step)), at_line(story, story.span(added.step))
    what = expression(story, first.operands[0].label, first.step)
    lengths = story.shape(first.operands[0].label, first.step) or ()
    shape = "×".join(map(str, lengths))
    repair = T(en="`sum(1)` gives each sample its own.", zh="`sum(1)` 才是每个样本自己的和。")
    if len(lengths) == 1:
        repair = T(en="Without this sum, each sample has its own.", zh="去掉这个求和，每个样本才是自己的那一项。")
    return RULE.finding(
        story.span(first.step),
        first.step,
        T(
            en=f"{capital(here.en)} adds up {what.en} for all {count} samples, and {there.en} adds this sum to the "
            f"number of each sample, so it counts {count} times.",
            zh=f"{here.zh}把 {what.zh} 对全部 {count} 个样本求和，而{there.zh}又把这个和加到每个样本的数上，所以它"
            f"被计算了 {count} 次。",
        ),
        T(
            en=f"The summed tensor has shape {shape}, with a row for each sample. Without an axis, `sum` returns "
            f"one number for all rows; broadcasting then gives it to each of the {count} numbers, so that each "
            f"sample also has the terms of all others. The mean of them contains {count} times what belongs to "
            f"one sample. {repair.en}",
            zh=f"被求和的张量形状为 {shape}，每个样本一行。不给出轴时，`sum` 返回所有行的总和；广播再把它加到 {count} "
            f"个数中的每一个上，于是每个样本都含有其他样本的项，平均之后是一个样本应有的 {count} 倍。{repair.zh}",
        ),
        related=[
            story.related(
                "used", added.step, T(en="added to the number of each sample here", zh="在这里加到每个样本的数上")
            ),
            story.related("backward", found.root.step, T(en="the loss goes back from here", zh="损失从这里反向传播")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("samples", count, story.by(first.step))],
    )


def _fixes(story: Story, found: BatchSumInEachSample) -> tuple[Fix, ...]:
    """At most one fix: it replaces each of the sums by one over the dimensions other than the batch, ``x.sum(1)`` for
    ``x.sum()``.

    Empty if one of them is written with a ``dim``, a keyword, or not as a call of ``sum``.
    """
    program = story.program
    column = (
        len(story.shape(next(o.label for o in found.added.operands if prod(story.shape(o.label) or ()) > 1)) or ()) > 1
    )
    changes: dict[Span | None, tuple[ast.AST, str]] = {}
    for made in found.sums:
        node = program.at(story.span(made.step)) if program.tree is not None else None
        axes = len(story.shape(made.operands[0].label, made.step) or ())
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.keywords
            or call_name(node) != "sum"
        ):
            return ()
        is_function = len(node.args) == 1 and program.segment(node.func.value) == "torch"
        if not is_function and node.args:
            return ()
        inner = node.args[0] if is_function else node.func.value
        kept = "1, keepdim=True" if column else "1"
        if axes == 1:
            new = operand(program, inner)
        elif axes == 2:
            new = (
                f"torch.sum({program.segment(inner)}, {kept})"
                if is_function
                else f"{operand(program, inner)}.sum({kept})"
            )
        else:
            new = f"{operand(program, inner)}.flatten(1).sum({kept})"
        changes[story.span(made.step)] = node, new
    title = T(en="Sum for each sample: over the other axes alone", zh="对每个样本求和：只沿其他的轴")
    return unique(program.text, [Fix(title, program.replace(*changes.values()), meaning="later")])


RULE = Rule(
    code="PL772",
    name="batch-sum-in-each-sample",
    severity="warning",
    title=T(en="A sum over the whole batch is added to each sample", zh="整个批次的总和被加到每个样本上"),
    what=T(
        en="A program computes a loss for each sample and adds a term to it, but has summed that term over all "
        "samples as well. Each sample gets the sum of all of them, so with 256 samples the term counts 256 times. Sum "
        "over the other axes alone: `term.sum(1)`.",
        zh="程序为每个样本算出一个损失，再加上一项，但这一项连同所有样本一起求了和。每个样本都得到全部样本的总和，所以"
        "有 256 个样本时，这一项被计算 256 次。请只沿其他的轴求和：`term.sum(1)`。",
    ),
    why=T(
        en="`x.sum()` reduces all axes, the one of the samples included, to one number. Added to a vector with an "
        "entry for each sample, that number is broadcast to all of them: a result of the right shape, without an "
        "error. A log-determinant, a divergence or an entropy belongs to one sample; a penalty of the weights has no "
        "samples, and may be added to each.",
        zh="`x.sum()` 把所有的轴，包括样本所在的轴，归约为一个数。把它加到每个样本一项的向量上时，这个数会广播给每一"
        "项：结果形状正确，不会报错。对数行列式、散度或熵属于单个样本；权重的惩罚项与样本无关，可以加到每一项上。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(64, 4)
scale = torch.zeros(4, requires_grad=True)
net = torch.nn.Linear(4, 4)
s = torch.tanh(net(x) * scale + 0.1)
z = x * s.exp()
log_det = s.sum()  # PL772
loss = (0.5 * (z * z).sum(1) - log_det).mean()  # used
loss.backward()  # backward
print(loss.item(), scale.grad)
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(64, 4)
scale = torch.zeros(4, requires_grad=True)
net = torch.nn.Linear(4, 4)
s = torch.tanh(net(x) * scale + 0.1)
z = x * s.exp()
log_det = s.sum(1)
loss = (0.5 * (z * z).sum(1) - log_det).mean()
loss.backward()
print(loss.item(), scale.grad)
""",
    find=find,
    traps=(
        Trap(
            "s.sum()",
            "s.sum(0).sum()",
            T(en="In two steps it is the same sum over all samples.", zh="分两步做，仍是对所有样本的总和。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.sum.html",
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
    ),
)
