"""PL646: gradients of several means are added up with equal weights, and the means are of very different numbers of
targets.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, reads
from pitfall_lab.rules.kit.training import joint_updates, lives
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import SCALING
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import CLASSIFIERS
from pitfall_lab.rules.signals.value_origins import argument, decimal, values, whole
from pitfall_lab.trace import Event, OptimizerStep, Span, T
from pitfall_lab.trace.operation_facts import spellings

COUNTS = {"sum", "count_nonzero"}
KEEPS = {"clamp", "clamp_min", "float", "to", "double", "long"}
"""Calls that keep a count as it is, if it is not 0."""
EACH = spellings("pow") | {"square", "abs", "neg", "log", "exp", "float", "to", "clamp", "smooth_l1_loss"}
"""Calls that compute each number from one of their first operand."""
TABLE = 2
TIMES = 3
"""The largest mean is of at least so many times as many targets as the smallest one."""
FURTHER = 20


@dataclass(frozen=True, slots=True)
class Mean:
    """``event`` is the call (``Event``) that computes a mean over ``count`` targets; a backward starts from ``weight``
    times that mean.

    The mean is a loss that leaves out an ignored target number, or a mean over what a mask selected, so that the count
    differs from batch to batch.
    """

    event: Event
    count: int
    weight: float


@dataclass(frozen=True, slots=True)
class UnequalBatches:
    """``update`` is an optimizer step that used the sum of the gradients of several backwards of one line, the first of
    which is ``backward``.

    ``means`` are the means that these backwards started from, in order, one for each.
    """

    update: OptimizerStep
    backward: Event
    means: tuple[Mean, ...]

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest number of targets."""
        counts = [mean.count for mean in self.means]
        return min(counts), max(counts)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of backward where at least half of the updates with several backwards use the sum
    of gradients of means of which one is over at least ``TIMES`` as many targets as another, all with the same weight.

    All these backwards must be of one line, and each start from a mean that leaves out ignored or masked targets
    (:class:`Mean`).
    """
    told: set[Span | None] = set()
    for label in lives(story):
        groups: dict[Span | None, list[UnequalBatches | None]] = defaultdict(list)
        for update, backwards in joint_updates(story, label):
            place = story.span(backwards[0].step)
            groups[place].append(_unequal(story, update, backwards))
        for place, updates in groups.items():
            found = [each for each in updates if each is not None]
            if place not in told and found and 2 * len(found) >= len(updates):
                told.add(place)
                yield _finding(story, found[0])


def _unequal(story: Story, update: OptimizerStep, backwards: list[Event]) -> UnequalBatches | None:
    if len({story.span(each.step) for each in backwards}) != 1:
        return None
    means = [_mean(story, each) for each in backwards]
    known = tuple(mean for mean in means if mean is not None)
    if len(known) < len(means):
        return None
    found = UnequalBatches(update, backwards[0], known)
    least, most = found.ends
    same = all(isclose(mean.weight, known[0].weight, rel_tol=1e-4) for mean in known)
    return found if same and 0 < TIMES * least <= most else None


def _mean(story: Story, backward: Event) -> Mean | None:
    """The mean over some of a batch's targets from which a backward starts; None if it starts from anything else."""
    if len(backward.operands) != 1 or backward.error is not None:
        return None
    label, step, weight = backward.operands[0].label, backward.step, 1.0
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None:
            return None
        if made.name in CLASSIFIERS:
            return _of_classes(story, made, weight)
        first = made.operands[0].label if made.operands else None
        if made.name == "mean":
            count = prod(story.shape(first, made.step) or ())
            is_masked = len(made.operands) == 1 and _is_masked(story, first, made.step)
            return Mean(made, count, weight) if is_masked else None
        if made.name not in SCALING or len(made.operands) != TABLE:
            return None
        other = made.operands[1]
        if SCALING[made.name] < 0 and (held := _counted(story, other.label, made.step)):
            return Mean(made, held, weight)
        turned = first is None or (story.tensor(first) or {}).get("requires_grad") is False
        label, by = (other.label, made.operands[0]) if turned else (first, other)
        number = _constant(story, by.label, by.text, made.step)
        if number is None or label is None or (turned and SCALING[made.name] < 0):
            return None
        weight, step = weight * abs(number) ** SCALING[made.name], made.step
    return None


def _constant(story: Story, label: str | None, text: str, step: int) -> float | None:
    """The number of a plain operand, or of a tensor with one element that requires no grad; None for others and 0."""
    if label is None:
        return decimal(text) or None
    held = values(story, label, step) if prod(story.shape(label, step) or ()) == 1 else []
    return held[0] or None if len(held) == 1 and not (story.tensor(label, step) or {}).get("requires_grad") else None


def _of_classes(story: Story, loss: Event, weight: float) -> Mean | None:
    if (argument(loss, "reduction") or "'mean'").strip("'") != "mean":
        return None
    if any(o.name == "weight" and o.label is not None for o in loss.operands):
        return None
    kept = next((each for each in story.trace.beside.counted if each.step == loss.step and each.kind == "kept"), None)
    return Mean(loss, kept.count, weight) if kept is not None else None


def _counted(story: Story, label: str | None, step: int) -> int | None:
    """The number of ones of a mask with at least two rows, if the tensor is known to hold that count; None if it does
    not, or if the count is 0.
    """
    value = _constant(story, label, "", step) if label is not None else None
    for _ in range(FURTHER):
        made = made_by(story, label, step) if label is not None else None
        if made is None or not made.operands or made.operands[0].label is None:
            return None
        label, step = made.operands[0].label, made.step
        if made.name in COUNTS:
            break
        if made.name not in KEEPS:
            return None
    shape = story.shape(label, step) or ()
    is_mask = len(shape) >= TABLE and shape[0] > 1 and value is not None and value == int(value)
    return int(value) if is_mask and value is not None and 0 < value <= prod(shape) else None


def _is_masked(story: Story, label: str | None, step: int) -> bool:
    """Whether a mask with at least two rows selected these numbers, or those that they were computed from."""
    made = made_by(story, label, step)
    while made is not None and made.name in EACH:
        made = made_by(story, made.operands[0].label, made.step)
    if made is None or made.name not in ("__getitem__", "masked_select"):
        return False
    masks = [o.label for o in made.operands[1:] if (story.tensor(o.label) or {}).get("dtype") == "bool"]
    shapes = [story.shape(mask, made.step) or () for mask in masks]
    return any(len(shape) >= TABLE and shape[0] > 1 for shape in shapes)


def _finding(story: Story, found: UnequalBatches) -> Finding:
    here, there = at_line(story, story.span(found.backward.step)), at_line(story, found.update.span)
    least, most = found.ends
    mean, step = found.means[0].event, found.backward.step
    is_part = any(step < gap.step <= found.update.step for gap in story.trace.reach.gaps)
    joined = len(found.means)
    count = T(en=f"{'at least ' if is_part else ''}{joined}", zh=f"{'至少' if is_part else ''} {joined} ")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} adds up the gradients of {count.en} means with equal weights for one update, but "
            f"they are means over {least} to {most} targets: a target of a small batch counts up to "
            f"{most / least:.0f} times as much as one of a large batch.",
            zh=f"{here.zh}以相等的权重累加{count.zh}个平均值的梯度，用于一次更新；但它们是 {least} 到 {most} 个目标"
            f"的平均：小批次中一个目标的分量最多是大批次中一个目标的 {most / least:.0f} 倍。",
        ),
        T(
            en="Each loss is a mean over the targets of its own batch that are not left out. The mean over all targets "
            f"before the update of {there.en} is their sum divided by their number. That is the mean of the means only "
            "for batches with equally many targets. So the network learns mostly from the batches in which little is "
            "left.",
            zh="每个损失都是自己批次中没有被忽略的目标的平均。"
            f"{there.zh}的更新之前，全部目标的平均是它们的总和除以总数，而不是各个平均值的平均：只有每个批次的目标一样多"
            "时两者才相等。所以网络主要是从剩下目标很少的批次里学习。",
        ),
        related=[
            story.related("made", mean.step, T(en="each mean is computed here", zh="每个平均值在这里计算")),
            story.related("step", found.update.step, T(en="their sum is used here", zh="它们的和在这里被使用")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("least", least, story.by(step)), Fact("most", most, story.by(step))],
    )


def _fixes(story: Story, found: UnequalBatches) -> tuple[Fix, ...]:
    """At most one fix: it counts the targets of an update's batches before the loop over them, and gives each mean the
    share of its batch.

    Empty unless a loop goes through the batches of one update.
    """
    program, loss = story.program, found.means[0].event
    call = program.at(story.span(loss.step))
    backward, update = program.statement_at(story.span(found.backward.step)), program.at(found.update.span)
    ignored = whole(argument(loss, "ignore_index") or "-100")
    target = written_as(story, loss, loss.operands[1].label) if loss.name in CLASSIFIERS else None
    loop = _innermost(program, backward)
    if not isinstance(call, ast.Call) or target is None or loop is None or update is None or ignored is None:
        return ()
    if loop in program.ancestors(update) or loop not in program.ancestors(call):
        return ()
    inside = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    if not reads(program, target) & inside or not isinstance(loop.iter, ast.Name | ast.Attribute | ast.Subscript):
        return ()
    scaled: ast.expr = call
    parent = program.parents.get(call)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.left is call:
        scaled = parent
    elif not isclose(found.means[0].weight, 1.0):
        return ()
    count = f"({operand(program, target)} != {ignored}).sum()"
    total = f"total = sum({count} for {program.segment(loop.target)} in {program.segment(loop.iter)})"
    new = f"{program.segment(call)} * {count} / total"
    title = T(en="Weight the mean of each batch by its share of the targets", zh="按目标所占的份额给每个平均值加权")
    edits = (*program.replace((scaled, new)), *program.insert_before(loop, total))
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _innermost(program: Program, node: ast.AST | None) -> ast.For | None:
    return next((each for each in program.ancestors(node) if isinstance(each, ast.For)), None) if node else None


RULE = Rule(
    code="PL646",
    name="means-of-unequal-batches",
    severity="warning",
    title=T(
        en="Means over very different numbers of targets are added up as equals",
        zh="目标个数相差很大的平均值以相等的权重相加",
    ),
    what=T(
        en="A program goes through several small batches before each step and adds up their mean losses with equal "
        "weights. But one batch has few words or pixels that count, and another many. Each of the few then counts "
        "many times as much, and the network learns mostly from short texts. Add up sums instead of means, and divide "
        "by the number of all targets of the step.",
        zh="程序在每一步之前处理几个小批次，并以相等的权重累加它们的平均损失。但是有的批次只有很少的词或像素被计入，有"
        "的则很多。于是那很少的几个，每个的分量都大许多倍，网络主要从短文本里学习。请累加总和而不是平均值，再除以这"
        "一步里全部目标的个数。",
    ),
    why=T(
        en="`backward()` adds to `.grad`, so several backwards before one `step()` give the gradient of a sum of "
        'losses. With `reduction="mean"` a cross entropy divides by the number of targets that are not '
        "`ignore_index`, which differs with the lengths of the texts and the padding. Dividing each loss by the number "
        "of batches makes the step as long as that of a mean, but not the mean over all targets. Batches of one size "
        "without padding have equally many targets, and there the two agree.",
        zh="`backward()` 会加到 `.grad` 上，所以一次 `step()` 之前的几次反向传播得到的是损失之和的梯度。"
        '`reduction="mean"` 时，交叉熵除以不等于 `ignore_index` 的目标个数，它随文本的长度和填充而变。把每个损失除以'
        "批次数，会使步长与平均值的相同，但并不是全部目标的平均。大小相同、没有填充的批次，目标一样多，那里两者相等。",
    ),
    advice=T(
        en='use `reduction="sum"` for the loss of {made}, and divide each by the number of targets of all batches that '
        "the update on {step} joins.",
        zh='对{made}的损失使用 `reduction="sum"`，再把每个损失除以{step}的更新所合并的全部批次的目标个数。',
    ),
    bad="""import torch
import torch.nn.functional as F

w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=1.0)
short = torch.tensor([[1, -100, -100, -100], [1, -100, -100, -100]])
long = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]])
batches = [short, long]
for _ in range(20):
    opt.zero_grad()
    for target in batches:
        loss = F.cross_entropy(w.expand(8, 2), target.flatten()) / 2  # made
        loss.backward()  # PL646
    opt.step()  # step
print(f"share of ones {w.softmax(0)[1]:.2f}, in the data 0.30")
""",
    good="""import torch
import torch.nn.functional as F

w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=1.0)
short = torch.tensor([[1, -100, -100, -100], [1, -100, -100, -100]])
long = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]])
batches = [short, long]
for _ in range(20):
    opt.zero_grad()
    total = sum((target.flatten() != -100).sum() for target in batches)
    for target in batches:
        loss = F.cross_entropy(w.expand(8, 2), target.flatten()) * (target.flatten() != -100).sum() / total
        loss.backward()
    opt.step()
print(f"share of ones {w.softmax(0)[1]:.2f}, in the data 0.30")
""",
    find=find,
    traps=(
        Trap(
            "/ 2",
            "/ 4",
            T(en="Both are then smaller by the same factor.", zh="这样两者只是以同样的倍数变小。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
)
