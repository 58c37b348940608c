"""PL761: the weight of the positive class is the ratio of the classes upside down, so that the rare class counts
even less.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.ratio_scales_both_classes import COUNTS, LOGITS, MODULES, NEAR, OFTEN, storages_of_rows
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

LEAST = 1.2
"""How many times as many one class must have as the other."""
PLACE = {LOGITS: 5, MODULES[LOGITS]: 4}
"""Where the weight is among the arguments without names."""
FEWEST = 20
"""With fewer labels, as in a small batch, a right weight is easily their ratio upside down by chance."""
TABLE = 2


@dataclass(frozen=True, slots=True)
class Inverted:
    """``loss`` is the call (``Event``) of a binary cross-entropy whose ``pos_weight``, the tensor ``label`` (a label),
    is positives / negatives or, with ``share``, positives / all.

    ``weight`` is one of these weights, ``positives`` and ``total`` the numbers of positive and of all labels that the
    call ``count`` counted; of the class ``column`` (from 0) if there are several, else ``column`` is None.
    """

    loss: Event
    label: str
    weight: float
    positives: int
    total: int
    share: bool
    count: Event
    column: int | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a binary cross-entropy whose ``pos_weight`` is the number of positive labels
    divided by that of the negative ones, or of all.

    Only where one class has at least ``LEAST`` times as many labels as the other. The first ``OFTEN`` runs of each line
    are looked at.
    """
    looked: Counter[Span | None] = Counter()
    for loss in story.calls(LOGITS):
        place = story.span(loss.step)
        label = next((o.label for o in loss.operands if o.name == "pos_weight"), None)
        if looked[place] >= OFTEN or label is None or loss.error is not None:
            continue
        looked[place] += 1
        found = _inverted(story, loss, label)
        if found is not None:
            looked[place] = OFTEN
            yield _finding(story, found)


def _inverted(story: Story, loss: Event, label: str) -> Inverted | None:
    weights = [value for _, value in Elements(story, label, loss.step).known()]
    count = prod(story.shape(label, loss.step) or ())
    if not weights or len(weights) != count:
        return None
    made = (story.tensor(label, loss.step) or {}).get("born") or 0
    for positives, total, event in _counts(story, loss, count, made):
        pairs = list(zip(weights, positives, strict=True))
        if total < FEWEST or any(not 0 < ones < total for _, ones in pairs):
            continue
        if all(isclose(weight, (total - ones) / ones, rel_tol=NEAR) for weight, ones in pairs):
            return None
        uneven = [max(ones, total - ones) / min(ones, total - ones) for _, ones in pairs]
        column = max(range(count), key=lambda at: uneven[at])
        if uneven[column] < LEAST:
            continue
        if all(isclose(weight, ones / (total - ones), rel_tol=NEAR) for weight, ones in pairs):
            share = False
        elif all(isclose(weight, ones / total, rel_tol=NEAR) for weight, ones in pairs):
            share = True
        else:
            continue
        return Inverted(
            loss, label, weights[column], positives[column], total, share, event, column if count > 1 else None
        )
    return None


def _counts(story: Story, loss: Event, columns: int, made: int) -> Iterator[tuple[list[int], int, Event]]:
    """For each class that has a weight: how many labels are positive, how many there are, and the call that counted
    them, before the step ``made``, at which the weight was made.
    """
    target = loss.operands[1].label
    own = Elements(story, target, loss.step, answers=True)
    seen = [value for _, value in own.known()]
    if not seen or not set(seen) <= {0, 1}:
        return
    memories = storages_of_rows(story, target, loss.step)
    for event in story.calls(*COUNTS):
        if event.step > made:
            return
        label = event.operands[0].label if event.operands else None
        shape = story.shape(label, event.step) or ()
        if label is None or event.error is not None or not memories & storages_of_rows(story, label, event.step):
            continue
        yield from (
            (ones, total, event)
            for ones, total in _of_count(story, event, shape, columns, rare=2 * sum(seen) < len(seen))
        )


def _of_count(
    story: Story, event: Event, shape: tuple[int, ...], columns: int, *, rare: bool
) -> Iterator[tuple[list[int], int]]:
    """Yield the numbers of positive labels that a call counted, one for each class, and the number of labels.

    ``rare`` is True where the positive labels are the fewer ones: so it is known whether a single count is of them or
    of the others.
    """
    for result in event.results:
        held = [value for _, value in Elements(story, result, event.step).known()]
        if columns > 1 and len(held) == columns and len(shape) == TABLE and shape[1] == columns:
            scale = shape[0] if event.name == "mean" else 1
            yield [round(value * scale) for value in held], shape[0]
        elif columns == 1:
            total = prod(shape)
            for value in held[:4]:
                one = round(value * total) if event.name == "mean" else round(value)
                fewer = min(one, total - one)
                yield [fewer if rare else total - fewer], total


def _finding(story: Story, found: Inverted) -> Finding:
    loss = found.loss
    given = _written(story, found)
    span = story.program.place(given) if given is not None else story.span(loss.step)
    here, negatives = at_line(story, span), found.total - found.positives
    right = negatives / found.positives
    over = T(en="all labels", zh="全部标签") if found.share else T(en="negative ones", zh="负标签")
    which = T(en=",", zh="")
    if found.column is not None:
        which = T(en=f" for class {found.column},", zh=f"（类别 {found.column}）")
    rare = found.positives < negatives
    effect = T(
        en="counts even less than without a weight" if rare else "counts even more than without a weight",
        zh="比不加权时更不重要" if rare else "比不加权时更重要",
    )
    class_of = T(en="rare" if rare else "frequent", zh="稀有" if rare else "多数")
    return RULE.finding(
        span,
        loss.step,
        T(
            en=f"{capital(here.en)} weights the positive class by {found.weight:.4g}{which.en} which is the number of "
            f"positive labels divided by that of {over.en}: the {class_of.en} class {effect.en}.",
            zh=f"{here.zh}给正类的权重{which.zh}是 {found.weight:.4g}，即正标签的个数除以{over.zh}的个数："
            f"{class_of.zh}类{effect.zh}。",
        ),
        T(
            en=f"{found.positives} of {found.total} labels are positive. `pos_weight` multiplies the loss of the "
            f"positive ones, and both classes count alike with negatives / positives, here {right:.4g}. Upside down, "
            "the model is pushed further towards the frequent class.",
            zh=f"{found.total} 个标签中有 {found.positives} 个为正。`pos_weight` 乘在正标签的损失上，取负标签数除以正标"
            f"签数（这里是 {right:.4g}）时两类同样重要。反过来，模型会更偏向多数类。",
        ),
        related=[
            story.related("made", found.count.step, T(en="the labels are counted here", zh="标签在这里计数")),
            *(
                [story.related("used", loss.step, T(en="the loss is computed here", zh="损失在这里计算"))]
                if story.span(loss.step) != span
                else []
            ),
        ],
        fixes=_fixes(story, found, given),
        facts=[Fact("positives", found.positives), Fact("labels", found.total), Fact("weight", found.weight)],
    )


def _written(story: Story, found: Inverted) -> ast.expr | None:
    """What the loss, or its module, is given as the weight in the program's source; None if that is not found."""
    program, name = story.program, found.loss.name
    node = program.at(story.span(found.loss.step))
    calls = [node] if isinstance(node, ast.Call) and call_name(node) == name else []
    calls = calls or [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == MODULES[name]]
    given = [each for call in calls if (each := _weight(call)) is not None]
    around = {*program.ancestors(node)} if node is not None else set[ast.AST]()
    near = [each for each in given if (function := program.function(each)) is None or function in around]
    return next((each[0] for each in (given, near) if len(each) == 1), None)


def _weight(call: ast.Call) -> ast.expr | None:
    place = PLACE[call_name(call)]
    return next(
        (k.value for k in call.keywords if k.arg == "pos_weight"), call.args[place] if len(call.args) > place else None
    )


def _fixes(story: Story, found: Inverted, given: ast.expr | None) -> tuple[Fix, ...]:
    """Fixes that invert the ratio: in each quotient that is found, else where the weight is given. Empty if neither is
    found.
    """
    program = story.program
    candidates: list[tuple[Edit, ...]] = []
    quotients = [node for node in (_quotient(story, found), given) if node is not None]
    for node in quotients if not found.share else ():
        inner = [n for n in ast.walk(node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        if len(inner) == 1:
            turned = f"{operand(program, inner[0].right)} / {operand(program, inner[0].left)}"
            candidates.append(program.replace((inner[0], turned)))
    if given is not None and not candidates:
        text = operand(program, given)
        candidates.append(program.replace((given, f"(1 - {text}) / {text}" if found.share else f"1 / {text}")))
    title = T(
        en="Weight by negatives / positives instead of positives / negatives", zh="用负标签数除以正标签数，而不是相反"
    )
    return unique(program.text, [Fix(title, edits, meaning="later") for edits in candidates])


def _quotient(story: Story, found: Inverted) -> ast.AST | None:
    """The expression of the division, or of the call (such as ``torch.tensor``) that was given its result, from which
    the weight comes; None if there is none.
    """
    label, step = found.label, found.loss.step
    for _ in range(10):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results:
            return None
        if event.name in spellings("as_tensor") | spellings("div", exchanged=True) | {"full", "tensor"}:
            return story.program.at(story.span(event.step))
        labels = [o.label for o in event.operands if o.label is not None]
        if event.name not in SAME_NUMBERS or not labels:
            return None
        label, step = labels[0], event.step
    return None


RULE = Rule(
    code="PL761",
    name="ratio-upside-down",
    severity="warning",
    title=T(
        en="The weight of the positive class is the ratio of the classes upside down",
        zh="正类的权重把两类的数量之比弄反了",
    ),
    what=T(
        en="A program has few positive examples and wants them to count more. It weights them by the number of "
        "positive examples divided by that of the negative ones, a number below 1, which makes them count less. Divide "
        "the negatives by the positives.",
        zh="程序的正样本很少，想让它们更重要。但它用正样本数除以负样本数作为权重，这个数小于 1，反而使它们更不重要。"
        "请用负样本数除以正样本数。",
    ),
    why=T(
        en="`pos_weight` of `BCEWithLogitsLoss` multiplies the loss of each element whose label is 1, and leaves those "
        "of label 0 as they are. With 50 positive and 950 negative labels a weight of 950 / 50 = 19 makes both classes "
        "weigh 950; 50 / 950 makes the positives weigh 2.6. The loss then gets very small without them, and the "
        "model says 0 everywhere. The share of positives, `y.mean()`, is upside down in the same way.",
        zh="`BCEWithLogitsLoss` 的 `pos_weight` 乘在标签为 1 的每个元素的损失上，标签为 0 的保持不变。有 50 个正标签和 "
        "950 个负标签时，权重 950 / 50 = 19 使两类的总权重都是 950；而 50 / 950 使正类只有 2.6。这样不管它们，损失也会"
        "很小，模型处处预测 0。正标签的比例 `y.mean()` 也是同样弄反了。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(40, 3), (torch.arange(40) % 8 == 0).float()
positives = y.sum()  # made
ratio = positives / (len(y) - positives)
criterion = nn.BCEWithLogitsLoss(pos_weight=ratio)  # PL761
net = nn.Linear(3, 1)
loss = criterion(net(x).squeeze(1), y)  # used
loss.backward()
print(loss.item(), net.bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(40, 3), (torch.arange(40) % 8 == 0).float()
positives = y.sum()
ratio = (len(y) - positives) / positives
criterion = nn.BCEWithLogitsLoss(pos_weight=ratio)
net = nn.Linear(3, 1)
loss = criterion(net(x).squeeze(1), y)
loss.backward()
print(loss.item(), net.bias.grad)
""",
    find=find,
    traps=(
        Trap(
            "ratio = positives / (len(y) - positives)",
            "ratio = positives / len(y)",
            T(
                en="The share of the positives is below 1 too: they still count less.",
                zh="正样本的比例也小于 1：它们仍然更不重要。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",),
)
