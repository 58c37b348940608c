"""PL432: the largest score was taken along the examples, or of the whole table, and compared with the labels."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument, origin, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PICKS = ("argmax", "max", "topk")
"""Calls that give the place of the largest number."""
EQUAL = spellings("eq", "ne", "sub") | {"equal"}
KEEP = {
    "float",
    "long",
    "int",
    "to",
    "type",
    "squeeze",
    "view",
    "reshape",
    "flatten",
    "cpu",
    "detach",
    "type_as",
    "numpy",
    "view_as",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
SQUASHING = {"softmax", "log_softmax", "sigmoid", "exp"}
"""Functions that keep the order of the scores."""
MATRIX = 2


@dataclass(frozen=True, slots=True)
class PredictedOverExamples:
    """``pick`` is the call (``Event``) that took the largest of the scores labelled ``label`` along ``axis``, which is
    0 or -2; over everything if ``axis`` is None.

    ``compared`` is the call that compares the result with the tensor ``labels`` (a label). ``loss`` is the
    classification loss of the same layer's scores.
    """

    pick: Event
    label: str
    axis: int | None
    compared: Event
    labels: str
    loss: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes the largest score over the examples, or over everything, although the
    classes are on axis 1, and compares it with labels.

    Only for scores of a layer that a classification loss was given too.
    """
    losses = _losses(story)
    told = set()
    for pick in story.calls(*PICKS) if losses else ():
        place = story.span(pick.step)
        found = (
            _picked(story, pick, losses)
            if place not in told and pick.error is None and pick.results and pick.operands
            else None
        )
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _losses(story: Story) -> dict[object, Event]:
    """For each layer, the last classification loss of its scores of shape (N, C); keys are those of :func:`_layer`.

    Losses of scores that no call with parameters computed are left out; empty if none is left.
    """
    found: dict[object, Event] = {}
    for loss in story.calls("cross_entropy", "nll_loss"):
        shape = (
            story.shape(loss.operands[0].label, loss.step) if loss.error is None and len(loss.operands) > 1 else None
        )
        layer = _layer(story, loss.operands[0].label, loss.step) if shape is not None and len(shape) == MATRIX else None
        if layer is not None:
            found[layer] = loss
    return found


def _layer(story: Story, label: str | None, step: int) -> object:
    """A key for the layer that computed the scores: the name of the call and the labels of its parameters.

    None if no call with parameters computed them. A softmax, sigmoid or exp after the layer is skipped.
    """
    made = origin(story, label, step)
    while made is not None and made.name in SQUASHING and made.operands:
        made = origin(story, made.operands[0].label, made.step)
    if made is None:
        return None
    weights = [o.label for o in made.operands if (story.tensor(o.label, made.step) or {}).get("kind") == "parameter"]
    return (made.name, tuple(weights)) if weights else None


def _picked(story: Story, pick: Event, losses: dict[object, Event]) -> PredictedOverExamples | None:
    label = pick.operands[0].label
    shape = story.shape(label, pick.step) or ()
    if len(shape) != MATRIX or min(shape) < MATRIX or label is None:
        return None
    text = argument(pick, "dim", 2 if pick.name == "topk" else 1)
    axis = whole(text)
    if (axis is None and (text not in (None, "None") or pick.name != "argmax")) or (
        axis is not None and axis % MATRIX != 0
    ):
        return None
    loss = losses.get(_layer(story, label, pick.step))
    met = _compared(story, pick.results[-1], pick.step) if loss is not None else None
    if loss is None or met is None:
        return None
    compared, labels = met
    length = story.shape(labels, compared.step) or ()
    known = Elements(story, labels, compared.step)
    numbered = all(
        value == index[0] for index, value in known.known()
    )  # which example goes with which: both axes have a meaning
    return (
        PredictedOverExamples(pick, label, axis, compared, labels, loss)
        if length == shape[:1] and not numbered
        else None
    )


def _compared(story: Story, label: str, step: int) -> tuple[Event, str] | None:
    """The comparison of predictions with a vector of integers, and the label of that vector; None if there is none."""
    pending, seen = [label], set[str]()
    while pending and len(seen) < 20:
        here = pending.pop()
        seen.add(here)
        for use in (use for use in story.uses(here) if use.step > step and use.error is None):
            others = [o.label for o in use.operands if o.label is not None and o.label != here]
            if use.name in EQUAL and len(others) == 1:
                dtype = str((story.tensor(others[0], use.step) or {}).get("dtype"))
                if dtype.startswith("int") and len(story.shape(others[0], use.step) or ()) == 1:
                    return use, others[0]
            if use.name in KEEP:
                pending += [result for result in use.results if result not in seen]
    return None


def _finding(story: Story, found: PredictedOverExamples) -> Finding:
    pick, loss = found.pick, found.loss
    here, there, met = (at_line(story, story.span(each.step)) for each in (pick, loss, found.compared))
    what, labels = expression(story, found.label, pick.step), expression(story, found.labels, found.compared.step)
    rows, columns = (story.shape(found.label, pick.step) or (0, 0))[:2]
    how = T(
        en=f"takes the largest score along axis 0, that is, among {rows} examples",
        zh=f"沿第 0 轴取最大的分数，也就是在 {rows} 个样本之间取",
    ) if found.axis is not None else T(
        en=f"takes the largest score of the whole table of {rows} examples", zh=f"取整张表（{rows} 个样本）中最大的分数"
    )  # fmt: skip
    return RULE.finding(
        story.span(pick.step),
        pick.step,
        T(
            en=f"{capital(here.en)} {how.en}, and {met.en} compares that with the labels.",
            zh=f"{here.zh}{how.zh}，而{met.zh}把它与标签比较。",
        ),
        T(
            en=f"{capital(what.en)} has one row for each of {rows} examples and one column for each of {columns} "
            f"classes, as the loss on {there.en} takes them. The position of the largest score in a column is the "
            f"number of an example, and {labels.en} has numbers of classes. The class of each example is the "
            "position along axis 1.",
            zh=f"{what.zh} 的每一行是一个样本（共 {rows} 个），每一列是一个类别（共 {columns} 个），"
            f"{there.zh}的损失就是这样使用的。一列中最大分数的位置是样本的编号，而 {labels.zh} 里是类别的编"
            "号。每个样本的类别是沿第 1 轴的位置。",
        ),
        related=[
            story.related("used", found.compared.step, T(en="compared with the labels here", zh="在这里与标签比较")),
            story.related("forward", loss.step, T(en="the classes are on axis 1 here", zh="在这里，类别在第 1 轴")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(pick.step)), Fact("classes", columns, story.by(pick.step))],
    )


def _fixes(story: Story, found: PredictedOverExamples) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.pick.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call):
        return ()
    title = T(en="Take the largest score of each example: `dim=1`", zh="取每个样本最大的分数：`dim=1`")
    named = [k.value for k in node.keywords if k.arg in ("dim", "axis")]
    last = [a for a in node.args if isinstance(a, ast.Constant | ast.UnaryOp)]
    if named or last:
        return unique(program.text, [Fix(title, program.replace(((named or last)[-1], "1")), meaning="later")])
    text = program.segment(node)[:-1].rstrip()
    new = f"{text}dim=1)" if not node.args and not node.keywords else f"{text}, dim=1)"
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL432",
    name="predicted-over-examples",
    severity="warning",
    title=T(
        en="A prediction is the largest score among the examples, not among the classes",
        zh="预测取的是样本之间、而不是类别之间最大的分数",
    ),
    what=T(
        en="A table of scores has a row for each example and a column for each class. The program looks for the "
        "largest score down the columns, or in the whole table, and compares its place with the labels. Look along "
        "each row: `scores.argmax(dim=1)`.",
        zh="分数表的每一行是一个样本，每一列是一个类别。程序却沿着列、或者在整张表里找最大的分数，再把它的位置与标签比"
        "较。请沿着每一行找：`scores.argmax(dim=1)`。",
    ),
    why=T(
        en="`argmax(dim=0)` removes axis 0: what is left is one number for each class, between 0 and the number of "
        "examples. It can be compared with the labels where a batch has as many examples as there are classes. "
        "Without `dim`, `argmax` returns one position in the flattened table, which broadcasts against any labels. "
        "Torch refuses neither; the accuracy is that of a guess.",
        zh="`argmax(dim=0)` 去掉第 0 轴：剩下的是每个类别一个数，介于 0 和样本数之间。批次的样本数恰好等于类别数"
        "时，它就能与标签比较。不给 `dim` 时，`argmax` 返回展平的表中的一个位置，可以与任何标签广播。torch 都不会"
        "拒绝；准确率与瞎猜相当。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 3), torch.tensor([2, 0, 1, 3])
for _ in range(2):
    scores = net(x)
    loss = F.cross_entropy(scores, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    predicted = scores.argmax(dim=0)  # PL432
    print((predicted == y).float().mean().item())  # used
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 3), torch.tensor([2, 0, 1, 3])
for _ in range(2):
    scores = net(x)
    loss = F.cross_entropy(scores, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    predicted = scores.argmax(dim=1)
    print((predicted == y).float().mean().item())
""",
    find=find,
    traps=(
        Trap(
            "scores.argmax(dim=0)",
            "scores.softmax(1).argmax(dim=0)",
            T(en="Probabilities are still compared down the columns.", zh="概率仍然是沿着列比较的。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.argmax.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.max.html",
    ),
)
