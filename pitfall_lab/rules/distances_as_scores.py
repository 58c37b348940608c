"""PL947: distances are given to a softmax, or to a cross entropy, as scores: the nearest class has the smallest
probability.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.distances import Comparisons, comparisons
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.rules.signals.value_origins import whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LOSSES = ("cross_entropy", "nll_loss")
SOFTMAX = {"softmax", "log_softmax"}
PICKS = {"gather", "take_along_dim", "__getitem__"}
"""Calls by which a program selects the entries of the right classes."""
LINEAR = SAME_NUMBERS | {"mean", "sum"}
"""Calls that a loss is followed through, up to where its sign changes."""
BEST = {"argmax", "max", "topk", "softmax", "log_softmax"}
"""Calls that take the largest score as the best."""
FURTHER, FEWEST = 30, 2


@dataclass(frozen=True, slots=True)
class ScoredDistances:
    """``taken`` is the call (``Event``), a softmax or a cross entropy, that takes distances as the scores of ``count``
    classes along the dimension ``axis`` (from 0).

    ``scores`` is the label of the tensor of distances; ``table`` contains the call that computed them, and how
    (:class:`Comparisons`). ``loss`` is the call that computes a loss from the scores; it may be ``taken``.
    """

    taken: Event
    loss: Event
    scores: str
    table: Comparisons
    axis: int
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gives distances, which require grad, as the scores of classes to a loss, or
    to a softmax from which a loss is computed.
    """
    reported = set()
    for event in story.calls(*LOSSES, "log_softmax", "softmax"):
        place = story.span(event.step)
        if place in reported or event.error is not None or not event.operands or not event.results:
            continue
        found = _scored(story, event)
        if found is not None and story.span(found.taken.step) not in reported:
            reported.add(story.span(found.taken.step))
            yield _finding(story, found)


def _scored(story: Story, event: Event) -> ScoredDistances | None:
    """Return the data of the finding for a loss, or for a softmax whose entries of the right classes are selected; None
    if its scores are not distances that require grad, or if the loss enters with a minus.
    """
    taken, loss = event, event
    if event.name == "nll_loss":
        made = _softmax(story, event.operands[0].label, event.step)
        if made is None:
            return None
        taken = made
    elif event.name in SOFTMAX:
        picked = _picked(story, event)
        if picked is None:
            return None
        loss = picked
    elif not _is_whole(story, event.operands[1].label if len(event.operands) > 1 else None, event.step):
        return None
    scores = taken.operands[0].label
    record, shape = story.tensor(scores, taken.step) or {}, story.shape(scores, taken.step) or ()
    table = comparisons(story, scores, taken.step) if record.get("requires_grad") else None
    if scores is None or table is None or table.is_likeness or len(shape) < FEWEST:
        return None
    axis = _axis(taken, len(shape))
    if axis is None or shape[axis] < FEWEST or (loss.name in LOSSES and _sign(story, loss) < 0):
        return None
    return ScoredDistances(taken, loss, scores, table, axis, shape[axis])


def _axis(event: Event, count: int) -> int | None:
    """Return the dimension of the classes, from 0; None if it is not known."""
    if event.name in LOSSES:
        return 1
    text = next((o.text for o in event.operands[1:] if o.name in ("", "dim") and o.label is None), "")
    number = whole(text)
    return number % count if number is not None and -count <= number < count else None


def _is_whole(story: Story, label: str | None, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith("int")


def _softmax(story: Story, label: str | None, step: int) -> Event | None:
    """Return the softmax or log-softmax from which the log-probabilities ``label`` were computed; None if there is
    none.
    """
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands:
            return None
        if made.name in SOFTMAX:
            return made
        if made.name not in SAME_NUMBERS | {"log"}:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _picked(story: Story, event: Event) -> Event | None:
    """Return the call that selects, by integers, the log-probabilities of the right classes, whose negative is then
    used as a loss; None if there is none.
    """
    pending, seen, is_log = [event.results[0]], {event.results[0]}, {event.results[0]: event.name == "log_softmax"}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.operands[0].label != label or use.results[0] in seen:
                continue
            picks = [o.label for o in use.operands[1:] if o.label is not None]
            if use.name in PICKS and picks and all(_is_whole(story, each, use.step) for each in picks):
                if is_log[label] and _sign(story, use) < 0:
                    return use
            elif use.name in SAME_NUMBERS | {"log"}:
                seen.add(use.results[0])
                is_log[use.results[0]] = is_log[label] or use.name == "log"
                pending.append(use.results[0])
    return None


def _sign(story: Story, event: Event) -> int:
    """Return -1 if the result of a call is negated on the way to the loss, else 1."""
    pending, seen = [event.results[0]], {event.results[0]}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.results[0] in seen:
                continue
            plain = [o for o in use.operands if not o.name]
            numbers = [constant(story, o.label, o.text, use.step) for o in plain if o.label != label]
            is_second = len(plain) > 1 and plain[1].label == label
            if (
                use.name in spellings("neg", in_place=True) | spellings("sub", exchanged=True) - spellings("sub")
                or (use.name in spellings("sub") and is_second)
                or (use.name in SCALING and len(numbers) == 1 and (numbers[0] or 0) < 0)
            ):
                return -1
            if use.name in LINEAR or (use.name in SCALING and use.operands[0].label == label):
                seen.add(use.results[0])
                pending.append(use.results[0])
    return 1


def _finding(story: Story, found: ScoredDistances) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (found.taken, found.table.event))
    what = shown(story, found.taken, found.scores)
    shares = _shares(story, found)
    said = T(en="", zh="")
    if shares is not None:
        near, far = (f"{share:.2%}" if share < 0.1 else f"{share:.0%}" for share in shares)
        said = T(
            en=f" In the first row the nearest of {found.count} has a share of {near}, the farthest {far}.",
            zh=f"在第一行，{found.count} 个中最近的份额是 {near}，最远的是 {far}。",
        )
    return RULE.finding(
        story.span(found.taken.step),
        found.taken.step,
        T(
            en=f"{capital(here.en)} takes {what.en} for scores, but these are distances ({there.en}): the nearest "
            f"class is the least probable one.{said.en}",
            zh=f"{here.zh}把 {what.zh} 当作分数，但它们是距离（{there.zh}）：最近的类别概率反而最小。{said.zh}",
        ),
        T(
            en="A softmax gives the largest number the largest share, and a cross entropy raises the number of the "
            "right class. Of distances this moves each example away from its own class. Put a minus before them, so "
            "that near is large.",
            zh="softmax 把最大的份额给最大的数，交叉熵则让正确类别的数变大。对距离来说，这会让每个样本远离"
            "它自己的类别。请在前面加上负号，让近的变大。",
        ),
        related=[story.related("made", found.table.event.step, T(en="the distances", zh="距离"))],
        fixes=_fixes(story, found),
        facts=[Fact("classes", found.count, story.by(found.taken.step)), Fact("shares", shares)],
    )


def _shares(story: Story, found: ScoredDistances) -> tuple[float, float] | None:
    """Return the softmax probabilities of the nearest and the farthest class in the first row; None if its distances
    are not all known.
    """
    table = Elements(story, found.scores, found.taken.step)
    places = [tuple(k if axis == found.axis else 0 for axis in range(len(table.shape))) for k in range(found.count)]
    row = [value for place in places if (value := table.at(place)) is not None]
    if len(row) != found.count:
        return None
    total = sum(exp(value - max(row)) for value in row)
    return exp(min(row) - max(row)) / total, 1 / total


def _fixes(story: Story, found: ScoredDistances) -> tuple[Fix, ...]:
    """At most two fixes: a minus where the scores are used, and one where the distances are computed.

    The second comes first if another call takes the largest score as the best.
    """
    program = story.program
    title = T(en="Put a minus before the distances", zh="在距离前面加上负号")
    fixes = []
    given = written_as(story, found.taken, found.scores)
    if given is not None:
        fixes.append(Fix(title, program.replace((given, f"-{operand(program, given)}")), meaning="later"))
    born = story.event((story.tensor(found.scores, found.taken.step) or {}).get("born"))
    others = {use.name for use in story.uses(found.scores) if use.step != found.taken.step}
    node = program.at(story.span(born.step)) if born is not None else None
    if node is not None and others & BEST and program.place(node) != program.place(given or node):
        text = f"-{operand(program, node)}" if isinstance(node, ast.expr) else ""
        made = Fix(title, program.replace((node, text)), meaning="later") if text else None
        fixes = [*([made] if made is not None else []), *fixes]
    return unique(program.text, fixes)


RULE = Rule(
    code="PL947",
    name="distances-as-scores",
    severity="warning",
    title=T(en="Distances are trained as scores of classes", zh="把距离当作类别的分数来训练"),
    what=T(
        en="A program measures how far an example is from each class, and gives these numbers to a loss that takes the "
        "largest for the best. So the nearest class counts as the least probable, and training moves each example "
        "away from its own class. Put a minus before the distances: `-torch.cdist(z, centres)`.",
        zh="程序测量一个样本离每个类别有多远，却把这些数交给一个以最大者为最好的损失。于是最近的类别被当作最不可能的，"
        "训练让每个样本远离它自己的类别。请在距离前面加上负号：`-torch.cdist(z, centres)`。",
    ),
    why=T(
        en="`cross_entropy` and `softmax` take scores (logits): the larger, the more probable. A distance is the other "
        "way round. The loss falls all the same, as a network can also learn to put each example far from one class; "
        "but the prototypes then mean nothing, and a prediction by `argmin` gets worse. Networks of prototypes use "
        "the negative distance, or its negative square.",
        zh="`cross_entropy` 和 `softmax` 需要的是分数（logits）：越大越可能。距离正好相反。损失照样会下降，因为网络也能"
        "学会让样本远离某一个类别；但这样原型就失去了意义，用 `argmin` 的预测会变差。原型网络使用的是负距离，"
        "或负的距离平方。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
centres = torch.randn(3, 3, requires_grad=True)
distance = torch.cdist(x, centres)  # made
loss = F.cross_entropy(distance, y)  # PL947
loss.backward()
print(loss.item(), centres.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
centres = torch.randn(3, 3, requires_grad=True)
distance = torch.cdist(x, centres)
loss = F.cross_entropy(-distance, y)
loss.backward()
print(loss.item(), centres.grad)
""",
    find=find,
    traps=(
        Trap(
            "F.cross_entropy(distance, y)",
            "F.cross_entropy(distance.square(), y)",
            T(en="A square is large for what is far, too.", zh="平方对远的也是更大的。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.cdist.html",
    ),
)
