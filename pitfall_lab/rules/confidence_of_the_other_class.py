"""PL993: the accuracy of decisions between two classes is compared with the mean probability of one of the classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import key, made_by
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

DIFFERENCES = spellings("sub", exchanged=True) | {"l1_loss", "mse_loss"}
SAME = {"float", "double", "long", "int", "to", "type", "bool", "squeeze", "view", "reshape", "flatten", "detach",
        "cpu", "clone", "contiguous"}  # fmt: skip
"""Calls that a tensor is followed through: its numbers stay the same."""
EQUALS = ("eq", "__eq__")
DECIDES = spellings("ge", "gt", "round")
FURTHER, PAIR, HALF = 20, 2, 0.5


@dataclass(frozen=True, slots=True)
class ProbabilityRows:
    """The entries of the tensor ``label`` that a ``mean`` was taken over: those that ``mask`` selects; all of them if
    ``mask`` is None.

    ``mask`` is the key of the selecting tensor; equal keys select equal entries. ``chosen`` is the call (``Event``)
    that selected the entries or, without a mask, the mean itself; ``given`` is the label of the tensor that it was
    given, which may be ``label`` in another dtype. ``mean`` is the number that was computed.
    """

    label: str
    mask: object
    chosen: Event
    given: str
    mean: float


@dataclass(frozen=True, slots=True)
class ConfidenceOfTheOtherClass:
    """``event`` is the call (``Event``) that compares the share of right decisions, the mean of ``right``, with the
    mean probability of one of two classes, ``sure`` (both are :class:`ProbabilityRows`).

    ``decided`` is the call that decides for this class where its probability is above the number ``limit``, or equal to
    it.
    """

    event: Event
    decided: Event
    right: ProbabilityRows
    sure: ProbabilityRows
    limit: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares the share of right decisions with the mean probability of one class
    over the same entries, where this mean is below the limit from which on the decision is for this class.
    """
    told = set()
    for event in story.calls(*DIFFERENCES):
        place = story.span(event.step)
        found = _compared(story, event) if place not in told and event.error is None else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _compared(story: Story, event: Event) -> ConfidenceOfTheOtherClass | None:
    labels = [o.label for o in event.operands[:PAIR] if o.label is not None]
    if len(labels) < PAIR:
        return None
    sides = [_rows(story, label, event.step) for label in labels]
    for one, other in (sides, sides[::-1]):
        if one is None or other is None or one.mask != other.mask:
            continue
        decided, source, limit = _decision(story, one) or (None, "", 0.0)
        if decided is None or other.mean >= limit or not _is_of(story, other, source, decided):
            continue
        return ConfidenceOfTheOtherClass(event, decided, one, other, limit)
    return None


def _rows(story: Story, label: str, step: int) -> ProbabilityRows | None:
    """Return the tensor whose ``mean`` the number ``label`` is, with the entries that the mean is over; None if
    ``label`` is no ``mean``, or its value is not known.
    """
    mean = made_by(story, label, step)
    value = next((v for _, v in Elements(story, label, step).known()), None)
    source = mean.operands[0].label if mean is not None and mean.name == "mean" and mean.operands else None
    if mean is None or source is None or value is None:
        return None
    before, at = _before(story, source, mean.step)
    chosen = made_by(story, before, at)
    if chosen is None or chosen.name not in ("__getitem__", "masked_select"):
        return ProbabilityRows(before, None, mean, source, value)
    given = [o.label for o in chosen.operands if o.label is not None]
    if len(given) != PAIR:
        return None
    return ProbabilityRows(
        _before(story, given[0], chosen.step)[0], key(story, given[1], chosen.step), chosen, given[0], value
    )


def _before(story: Story, label: str, step: int) -> tuple[str, int]:
    """Return the label of the tensor before conversions and changes of shape (:data:`SAME`), and the step at which the
    first of them was made.
    """
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        source = made.operands[0].label if made is not None and made.name in SAME and made.operands else None
        if made is None or source is None or source == label:
            break
        label, step = source, made.step
    return label, step


def _decision(story: Story, right: ProbabilityRows) -> tuple[Event, str, float] | None:
    """Return the call that compared a probability with a limit, the label of that probability, and the limit, if the
    entries of ``right`` are ``decision == target``; None if they are not.
    """
    equal = made_by(story, right.label, right.chosen.step)
    if equal is None or equal.name not in EQUALS:
        return None
    for each in [o.label for o in equal.operands if o.label is not None]:
        label, step = _before(story, each, equal.step)
        made = made_by(story, label, step)
        if made is None or made.name not in DECIDES or not made.operands or made.operands[0].label is None:
            continue
        numbers = [constant(story, o.label, o.text, made.step) for o in made.operands[1:]]
        limit = HALF if made.name == "round" else next((n for n in numbers if n is not None), None)
        if limit is not None:
            return made, str(made.operands[0].label), limit
    return None


def _is_of(story: Story, sure: ProbabilityRows, source: str, decided: Event) -> bool:
    """Whether the probability ``sure`` is the tensor ``source`` that was compared with the limit, apart from
    conversions.
    """
    one, other = _before(story, sure.label, sure.chosen.step)[0], _before(story, source, decided.step)[0]
    return key(story, one, sure.chosen.step) == key(story, other, decided.step)


def _finding(story: Story, found: ConfidenceOfTheOtherClass) -> Finding:
    step = found.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.decided.step))
    rows = T(en="in one group of the rows", zh="在其中一组行里")
    if found.right.mask is None:
        rows = T(en="over all rows", zh="在全部行上")
    right, sure = number(found.right.mean), number(found.sure.mean)
    own = number(1 - found.sure.mean)
    what = shown(story, found.sure.chosen, found.sure.given)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} compares how often decisions are right with {what.en}, the probability of one "
            f"class, although below {number(found.limit)} the decision is for the other class: {rows.en} the share of "
            f"right decisions, {right}, is compared with a mean probability of {sure}.",
            zh=f"{here.zh}把决定的正确率与 {what.zh}（其中一类的概率）相比，但它低于 {number(found.limit)} 时，决定选"
            f"的是另一类：{rows.zh}，决定的正确率是 {right}，与它相比的却是平均概率 {sure}。",
        ),
        T(
            en=f"{capital(there.en)} decides for the second class where the probability is above "
            f"{number(found.limit)}. Elsewhere it decides for the first, and is sure of that with 1 minus the "
            f"probability, on average {own} here. Either compare the share of right decisions with the probability of "
            "the class that was decided for, or compare the probability with the share of rows of its own class.",
            zh=f"{there.zh}在概率高于 {number(found.limit)} 时选第二类；否则选第一类，对此的把握是 1 减去这个概率，这"
            f"里平均为 {own}。要么把正确率与所选那一类的概率相比，要么把这个概率与它那一类在各行中所占的比例相比。",
        ),
        related=[story.related("used", found.decided.step, T(en="the decision is made here", zh="在这里做出决定"))],
        fixes=_fixes(story, found, what),
        facts=[Fact("right", found.right.mean, story.by(step)), Fact("sure", found.sure.mean, story.by(step))],
    )


def _fixes(story: Story, found: ConfidenceOfTheOtherClass, what: T) -> tuple[Fix, ...]:
    """Fixes that take the probability of the predicted class, where the probability is assigned to its variable, or
    where it is averaged; empty if the limit is not 0.5.
    """
    program, torch = story.program, torch_name(story.program)
    node = written_as(story, found.sure.chosen, found.sure.given)
    if node is None or torch is None or found.limit != HALF:
        return ()
    title = T(
        en=f"Use the larger of {what.en} and 1 minus it: the probability of the predicted class",
        zh=f"取 {what.zh} 与 1 减去它两者中较大的：所预测那一类的概率",
    )
    fixes = []
    given = _given_once(program, node)
    if given is not None and isinstance(given, ast.Name | ast.Attribute):
        fixes.append(Fix(title, program.replace((given, _larger(program, given, torch))), meaning="later"))
    fixes.append(Fix(title, program.replace((node, _larger(program, node, torch))), meaning="later"))
    return unique(program.text, fixes)


def _larger(program: Program, node: ast.expr, torch: str) -> str:
    return f"{torch}.maximum({program.segment(node)}, 1 - {operand(program, node)})"


def _given_once(program: Program, node: ast.expr) -> ast.expr | None:
    """Return the value of the only assignment of a variable in its function; None if there are none or several, or
    ``node`` is not a variable.
    """
    function, found = program.function(node), list[ast.expr]()
    for each in program.nodes:
        if isinstance(each, ast.Assign) and program.function(each) is function and isinstance(node, ast.Name):
            targets, values = [each.targets[0]], [each.value]
            if isinstance(targets[0], ast.Tuple) and isinstance(each.value, ast.Tuple):
                targets, values = targets[0].elts, each.value.elts
            found += [v for t, v in zip(targets, values, strict=False) if isinstance(t, ast.Name) and t.id == node.id]
    return found[0] if len(found) == 1 else None


RULE = Rule(
    code="PL993",
    name="confidence-of-the-other-class",
    severity="warning",
    title=T(
        en="The share of right decisions is compared with the probability of one class",
        zh="把决定的正确率与其中一类的概率相比",
    ),
    what=T(
        en="A program measures how well the probabilities of a classifier of two classes fit. It compares how often "
        "the decision is right with the probability of the second class. Where that is low, the decision is for the "
        "first class and right most of the time, so a good model looks bad. Compare with the probability of the "
        "class that was decided for: `torch.maximum(p, 1 - p)`.",
        zh="程序检验一个二分类器给出的概率是否可信，把决定的正确率与第二类的概率相比。这个概率低时，决定选的是第一类"
        "，而且多半是对的，于是好的模型看起来很差。请与所选那一类的概率相比：`torch.maximum(p, 1 - p)`。",
    ),
    why=T(
        en="With several classes, `probs.max(1)` returns the probability of the class that is decided for, and both "
        "numbers of a calibration curve are about the decision. The single output of a binary classifier is the "
        "probability of class 1, decided for or not: 0.05 means that class 0 was decided for with 0.95. Compared "
        "with the share of ones among the labels, the single output fits as it is.",
        zh="有多个类别时，`probs.max(1)` 返回所选那一类的概率，校准曲线的两个数说的都是这个决定。二分类器的单个输出是"
        "类别 1 的概率，不论选了哪一类：0.05 表示以 0.95 的把握选了类别 0。如果与标签中 1 所占的比例相比，单个输出就"
        "可以直接使用。",
    ),
    bad="""import torch

torch.manual_seed(0)
p = torch.rand(1000)
y = (torch.rand(1000) < p).long()
hit = ((p > 0.5).long() == y).float()
for low in (0.0, 0.25, 0.5, 0.75):
    rows = (p >= low) & (p < low + 0.25)
    print(hit[rows].mean() - p[rows].mean())  # PL993
""",
    good="""import torch

torch.manual_seed(0)
p = torch.rand(1000)
y = (torch.rand(1000) < p).long()
hit = ((p > 0.5).long() == y).float()
for low in (0.0, 0.25, 0.5, 0.75):
    rows = (p >= low) & (p < low + 0.25)
    print(hit[rows].mean() - torch.maximum(p, 1 - p)[rows].mean())
""",
    find=find,
    traps=(
        Trap(
            "(p > 0.5)",
            "(p > 0.6)",
            T(
                en="Another limit moves the decision; what it is compared with is still of one class.",
                zh="换一个界限会改变决定，与它相比的仍是其中一类的概率。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.maximum.html",),
)
