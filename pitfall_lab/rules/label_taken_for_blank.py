"""PL953: a CTC loss takes a class of the targets for the blank, so that this class is never recognised."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, Span, T

LOSSES = {"CTCLoss", "ctc_loss"}
OFTEN, GIVEN, ROWS = 3, 4, 2


@dataclass(frozen=True, slots=True)
class LabelForBlank:
    """``loss`` is the call (``Event``) of a CTC loss over ``classes`` classes whose blank is the class number
    ``blank``; ``count`` of the ``known`` targets that were looked at are this number.

    ``free`` is True where none of them is the last class.
    """

    loss: Event
    blank: int
    classes: int
    count: int
    known: int
    free: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a CTC loss that has its blank among the known targets in one of the first
    ``OFTEN`` calls of this line.
    """
    looked, reported = Counter[Span | None](), set[Span | None]()
    for loss in story.calls("ctc_loss"):
        place = story.span(loss.step)
        if loss.error is not None or place in reported or looked[place] >= OFTEN or len(loss.operands) < 2:
            continue
        looked[place] += 1
        found = _taken(story, loss)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _taken(story: Story, loss: Event) -> LabelForBlank | None:
    """The data of the finding if a known target within the given lengths is the blank of the loss; else None."""
    blank, shape = whole(argument(loss, "blank", GIVEN) or "0"), story.shape(loss.operands[0].label, loss.step)
    if blank is None or not shape:
        return None
    targets = [value for index, value in _within(story, loss)]
    count = sum(value == blank for value in targets)
    if not count:
        return None
    return LabelForBlank(loss, blank, shape[-1], count, len(targets), shape[-1] - 1 not in targets)


def _within(story: Story, loss: Event) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield the index and the value of each known target; of a two-dimensional tensor only those within the known
    length of their row, and none of a row whose length is unknown; of joined rows only those within the sum of the
    known lengths.
    """
    label = loss.operands[1].label
    shape = story.shape(label, loss.step) or ()
    lengths, total = dict[int, float](), math.inf
    given = next((o for o in loss.operands if o.name == "target_lengths"), next(iter(loss.operands[GIVEN - 1 :]), None))
    if given is not None and given.label is not None:
        each = Elements(story, given.label, loss.step)
        lengths = {index[0] if index else 0: value for index, value in each.known()}
        if len(lengths) == math.prod(each.shape):
            total = sum(lengths.values())
    for index, value in Elements(story, label, loss.step).known():
        if index[0] < total if len(shape) < ROWS else index[1] < lengths.get(index[0], 0):
            yield index, value


def _finding(story: Story, found: LabelForBlank) -> Finding:
    loss, blank = found.loss, found.blank
    here = at_line(story, story.span(loss.step))
    targets = expression(story, loss.operands[1].label, loss.step)
    last = found.classes - 1
    free = (
        T(
            en=f" No target looked at is class {last}, the last of the {found.classes}: is that the blank?",
            zh=f"看到的目标中没有第 {last} 类，即 {found.classes} 类中的最后一类：它才是空白吗？",
        )
        if found.free
        else T(
            en=f" The network has {found.classes} outputs, and one more is needed for the blank.",
            zh=f"网络有 {found.classes} 个输出，还需要再加一个给空白。",
        )
    )
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} takes class {blank} for the blank, and {found.count} of the {found.known} targets "
            f"looked at in {targets.en} are class {blank}: it can never be recognised.",
            zh=f"{here.zh}把第 {blank} 类当作空白，而在 {targets.zh} 中看到的 {found.known} 个目标里有 {found.count} "
            f"个是第 {blank} 类：它永远无法被识别。",
        ),
        T(
            en="The blank stands for “no new label at this time”. A decoder leaves it out, and the loss puts one "
            "between any two targets, so a target that is the blank is learned as silence." + free.en,
            zh="空白表示“此刻没有新的标签”。解码时会去掉它，而损失在每两个目标之间都放一个空白，所以等于空白的目标会被学成静"
            "音。" + free.zh,
        ),
        fixes=_fixes(story, found),
        facts=[
            Fact("blank", blank, story.by(loss.step)),
            Fact("targets that are the blank", found.count, story.by(loss.step)),
        ],
    )


def _fixes(story: Story, found: LabelForBlank) -> tuple[Fix, ...]:
    """At most one fix: it makes the last class the blank. Empty if a known target is of that class, or if the program's
    source does not show exactly one call that this loss can come from.
    """
    program, last = story.program, found.classes - 1
    own = program.at(story.span(found.loss.step))
    calls = [node for node in program.nodes if isinstance(node, ast.Call) and called(node) in LOSSES]
    calls = [own] if isinstance(own, ast.Call) and own in calls else calls
    if not found.free or len(calls) != 1:
        return ()
    call, title = calls[0], T(en=f"The last class is the blank: `blank={last}`", zh=f"最后一类是空白：`blank={last}`")
    given = next((each.value for each in call.keywords if each.arg == "blank"), None)
    if given is not None:
        return unique(program.text, [Fix(title, program.replace((given, str(last))), meaning="later")])
    if called(call) == "CTCLoss" and call.args:
        return unique(program.text, [Fix(title, program.replace((call.args[0], str(last))), meaning="later")])
    inner = program.segment(call)[:-1].rstrip().removesuffix(",")
    new = f"{inner}{'' if inner.endswith('(') else ', '}blank={last})"
    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])


RULE = Rule(
    code="PL953",
    name="label-taken-for-blank",
    severity="warning",
    title=T(en="The blank of a CTC loss is one of the labels", zh="CTC 损失的空白是标签之一"),
    what=T(
        en="A CTC loss needs one class that is no label, the blank, and takes class 0 for it unless `blank` says "
        "otherwise. Here the targets have that class: it is trained as silence and never recognised. Give the class "
        "that the program keeps free, such as `blank=len(labels)`, or number the labels from 1.",
        zh="CTC 损失需要一个不是标签的类别，即空白；如果不指定 `blank`，它就用第 0 类。这里的目标中有这一类：它会被当作"
        "静音来训练，永远无法被识别。请指定程序留出的类别，如 `blank=len(labels)`，或让标签从 1 开始编号。",
    ),
    why=T(
        en="The loss sums over all ways to spread the targets over time, with blanks between them. It does not check "
        "that no target is the blank. The loss falls all the same, since every other label can be learned; what shows "
        "it is an error rate that stays at the share of one label.",
        zh="损失对把目标分布到各个时刻的所有方式求和，目标之间可以有空白。它不检查目标中是否有空白。由于其他标签都能学会，"
        "损失照样下降；表现出来的是错误率停在某一个标签所占的比例上。",
    ),
    bad="""import torch
import torch.nn as nn

torch.manual_seed(0)
scores = torch.randn(12, 1, 4, requires_grad=True)  # three letters, and one more class
targets = torch.tensor([0, 2, 1, 0])
loss = nn.CTCLoss()
lengths = torch.tensor([12]), torch.tensor([4])
loss(scores.log_softmax(2), targets, *lengths).backward()  # PL953
print(scores.grad.sum((0, 1)))
""",
    good="""import torch
import torch.nn as nn

torch.manual_seed(0)
scores = torch.randn(12, 1, 4, requires_grad=True)  # three letters, and one more class
targets = torch.tensor([0, 2, 1, 0])
loss = nn.CTCLoss(blank=3)
lengths = torch.tensor([12]), torch.tensor([4])
loss(scores.log_softmax(2), targets, *lengths).backward()
print(scores.grad.sum((0, 1)))
""",
    find=find,
    traps=(
        Trap(
            "nn.CTCLoss()",
            "nn.CTCLoss(zero_infinity=True)",
            T(en="This is about targets that are longer than the input.", zh="这个参数只与比输入更长的目标有关。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",),
)
