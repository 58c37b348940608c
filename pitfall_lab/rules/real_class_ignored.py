"""PL996: a loss ignores a class number that the program's own score counts as a class."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.sequences import CLASSIFIERS, SAME_TOKENS, written_forms
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

COMPARES = ("eq", "__eq__")
PICKS = {"argmax": 1, "max": 1}
"""Calls that return the predicted class, each with the place of the argument that says along which axis."""
TOGETHER = spellings("bitwise_and", "mul") | {"__rand__", "logical_and"}
KEEPING = {"float", "double", "int", "long", "to", "view", "reshape", "flatten", "squeeze", "type"}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
COUNTS = {"sum", "mean", "count_nonzero", "item"}
"""Calls that make a score of hits."""
TAKES = {"__getitem__", "masked_select"}
LOSSES = {"CrossEntropyLoss", "NLLLoss", *CLASSIFIERS}
FILLS = {"pad_sequence": "padding_value", "full": "fill_value", "new_full": "fill_value", "pad": "value"}
UNKNOWN = -100
OFTEN, FURTHER = 3, 20


@dataclass(frozen=True, slots=True)
class RealClassIgnored:
    """``loss`` is the call (``Event``) of a loss that ignores the class ``number`` (``ignore_index``); ``ignored`` of
    the ``known`` targets whose values are known are of this class.

    ``compared`` is a comparison of predicted and true classes that counts this class as right or wrong, ``counted``
    times among the elements that are known.
    """

    loss: Event
    number: int
    ignored: int
    known: int
    compared: Event
    counted: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a loss whose ``ignore_index`` is a class that a comparison of predicted and
    true classes counts.

    Not where the comparison is of whole padded rows, or of what a mask leaves without that class.
    """
    looked, told = Counter[Span | None](), set[Span | None]()
    losses = [event for event in story.calls(*CLASSIFIERS) if event.error is None and len(event.operands) > 1]
    for loss in losses:
        place, number = story.span(loss.step), whole(argument(loss, "ignore_index") or str(UNKNOWN))
        shape = story.shape(loss.operands[0].label, loss.step) or ()
        classes = shape[1 if len(shape) > 1 else 0] if shape else 0
        if number is None or not 0 <= number < classes or looked[place] >= OFTEN or place in told:
            continue
        if not (story.tensor(loss.results[0], loss.step) or {}).get("requires_grad"):
            continue
        looked[place] += 1
        targets = [value for _, value in Elements(story, loss.operands[1].label, loss.step).known()]
        ignored = sum(value == number for value in targets)
        scored = _scored(story, number, classes) if ignored else None
        if scored is not None:
            told.add(place)
            yield _finding(story, RealClassIgnored(loss, number, ignored, len(targets), *scored))


def _scored(story: Story, number: int, classes: int) -> tuple[Event, int] | None:
    """The comparison of predicted with true classes that counts the class ``number``, and how often among the known
    elements; None if there is none.
    """
    looked = Counter[Span | None]()
    for event in story.calls(*COMPARES):
        place = story.span(event.step)
        given = [o.label for o in event.operands if o.label is not None]
        if len(given) != 2 or event.error is not None or looked[place] >= OFTEN or not event.results:
            continue
        true = next((b for a, b in (given, given[::-1]) if _predicted(story, a, event.step) == classes), None)
        if true is None:
            continue
        looked[place] += 1
        counted = _counted(story, event, true, number)
        if counted:
            return event, counted
    return None


def _predicted(story: Story, label: str | None, step: int) -> int | None:
    """The number of classes among which a tensor has the index of the largest score; None if it is no such tensor."""
    for form, at in written_forms(story, label, step):
        made = made_by(story, form, at)
        if made is not None and made.name == "__getitem__" and made.operands[0].label is not None:
            return _predicted(story, made.operands[0].label, made.step)
        if made is not None and made.name in PICKS and form == made.results[-1]:
            shape = story.shape(made.operands[0].label, made.step) or ()
            axis = whole(argument(made, "dim", PICKS[made.name]))
            return shape[axis] if axis is not None and -len(shape) <= axis < len(shape) else None
    return None


def _counted(story: Story, event: Event, true: str, number: int) -> int:
    """How many known elements that a comparison counts have the true class ``number``.

    0 if they may be padding: labels of one for each example, or chosen by an index, count unless a mask is applied to
    the comparison; others count only where all masks applied to it are True.
    """
    numbers = Elements(story, true, event.step)
    places = [index for index, value in numbers.known() if value == number]
    forms = list(written_forms(story, true, event.step))
    last = made_by(story, *forms[-1])
    chosen = last is not None and last.name in TAKES and len(last.operands) > 1
    if all(len(story.shape(form, at) or ()) == 1 for form, at in forms) or chosen:
        return 0 if _masks(story, event) else len(places)
    masks = _masks(story, event)
    known = [Elements(story, label, step, answers=True) for label, step in masks]
    return sum(all(mask.at(place) for mask in known) for place in places) if known else 0


def _masks(story: Story, event: Event) -> list[tuple[str, int]]:
    """The masks that select results of a comparison before these are counted, each with the step of its use."""
    label, masks, shape = event.results[0], list[tuple[str, int]](), story.shape(event.results[0], event.step)
    for _ in range(FURTHER):
        use = next(
            (use for use in story.uses(label) if use.error is None and use.name in TOGETHER | TAKES | KEEPING), None
        )
        if use is None or not use.results:
            break
        others = [o.label for o in use.operands if o.label is not None and o.label != label]
        for other in others:
            form = next((pair for pair in _before(story, other, use.step) if story.shape(*pair) == shape), None)
            if form is not None:
                masks.append(form)
        if use.name in TAKES:
            break
        label = use.results[0]
    return masks


def _before(story: Story, label: str, step: int) -> Iterator[tuple[str, int]]:
    """Yield a mask, and the tensors that it was converted from, each with the step of its use."""
    for _ in range(FURTHER):
        yield label, step
        made = made_by(story, label, step)
        if made is None or made.name not in KEEPING | SAME_TOKENS or made.operands[0].label is None:
            return
        label, step = made.operands[0].label, made.step


def _finding(story: Story, found: RealClassIgnored) -> Finding:
    loss, number, compared = found.loss, found.number, found.compared
    here, there = at_line(story, story.span(loss.step)), at_line(story, story.span(compared.step))
    target = expression(story, loss.operands[1].label, loss.step)
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} leaves class {number} out of the loss: of the {found.known} targets looked at in "
            f"{target.en}, {found.ignored} train nothing. {capital(there.en)} counts this class as right or wrong.",
            zh=f"{here.zh}把第 {number} 类排除在损失之外：在 {target.zh} 中看到的 {found.known} 个目标里，有 "
            f"{found.ignored} 个什么也不训练。{there.zh}却把这一类算作对或错。",
        ),
        T(
            en=f"`ignore_index={number}` leaves out every target that is {number}, whether it is padding or the real "
            f"class of that number. Of the numbers that {there.en} compares, {found.counted} of those looked at have "
            f"the true class {number}, so it is a class. Mark padding with a number that is no class: -100, which is "
            "what losses ignore by default.",
            zh=f"`ignore_index={number}` 排除每个等于 {number} 的目标，不管它是填充，还是编号为 {number} 的真实类别。在"
            f"{there.zh}比较的数中，看到的有 {found.counted} 个真实类别是 {number}，所以它是一个类别。请用不是类别的数"
            "来标记填充：-100，这也是损失函数默认忽略的数。",
        ),
        related=[
            story.related(
                "used", compared.step, T(en=f"class {number} is counted here", zh=f"在这里计入了第 {number} 类")
            )
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("class", number, story.by(loss.step)),
            Fact("ignored", found.ignored, story.by(loss.step)),
            Fact("targets", found.known, story.by(loss.step)),
        ],
    )


def _fixes(story: Story, found: RealClassIgnored) -> tuple[Fix, ...]:
    """At most one fix: the loss ignores -100, and padding of the targets, where a call filled it in, is -100.

    Empty if the program's source shows no ``ignore_index``.
    """
    program = story.program
    calls = [n for n in program.nodes if isinstance(n, ast.Call)]
    losses = [n for n in calls if call_name(n) in LOSSES and any(k.arg == "ignore_index" for k in n.keywords)]
    own = program.at(story.span(found.loss.step))
    given = [k.value for n in ([own] if own in losses else losses) for k in n.keywords if k.arg == "ignore_index"]
    changes: list[tuple[ast.AST, str]] = [(value, str(UNKNOWN)) for value in given]
    form, step = list(written_forms(story, found.loss.operands[1].label, found.loss.step))[-1]
    made = made_by(story, form, step)
    filled = program.at(story.span(made.step)) if made is not None and made.name in FILLS else None
    if isinstance(filled, ast.Call) and made is not None:
        value = next((k.value for k in filled.keywords if k.arg == FILLS[made.name]), None)
        if value is not None:
            changes.append((value, str(UNKNOWN)))
        elif made.name == "pad_sequence" and filled.args and found.number == 0:
            last = max(
                [*filled.args, *(k.value for k in filled.keywords)],
                key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0),
            )
            changes.append((last, f"{program.segment(last)}, padding_value={UNKNOWN}"))
    title = T(en="Ignore -100, which is no class, and nothing else", zh="只忽略 -100，它不是任何类别")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if given else [])


RULE = Rule(
    code="PL996",
    name="real-class-ignored",
    severity="warning",
    title=T(en="The number that a loss ignores is a class", zh="损失忽略的编号是一个真实的类别"),
    what=T(
        en="A program tells its loss to leave out one number, the one for padding, and a real class has the same "
        "number. No example of that class is ever trained on, so the program never predicts it, and the loss looks "
        "fine. Mark padding with -100 and ignore that.",
        zh="程序让损失忽略一个编号，即填充的编号，而一个真实的类别也用了这个编号。这一类的样本从不参与训练，所以程序从不"
        "预测它，而损失看上去正常。请用 -100 标记填充，并忽略它。",
    ),
    why=T(
        en="`ignore_index` compares numbers and knows nothing of padding: each target with that number has weight 0, "
        "in the sum and in the divisor. A vocabulary often keeps number 0 for padding, and so `ignore_index=0` is "
        "right for a loss over its words; labels that begin at 0 (`O`, background, the first class) have a class "
        "there. The default -100 can be no class.",
        zh="`ignore_index` 只比较数字，并不知道什么是填充：每个等于它的目标权重都是 0，在求和与除数中都是如此。词表常把"
        "编号 0 留给填充，所以对词的损失用 `ignore_index=0` 是对的；而从 0 开始编号的标签（`O`、背景、第一类）在那里有"
        "一个类别。默认值 -100 不可能是类别。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(30, 4)
y = (x[:, 0] > 0).long()
w = torch.zeros(4, 2, requires_grad=True)
for _ in range(20):
    loss = F.cross_entropy(x @ w, y, ignore_index=0)  # PL996
    (g,) = torch.autograd.grad(loss, w)
    with torch.no_grad():
        w -= 0.5 * g
print(((x @ w).argmax(1) == y).float().mean())  # used
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(30, 4)
y = (x[:, 0] > 0).long()
w = torch.zeros(4, 2, requires_grad=True)
for _ in range(20):
    loss = F.cross_entropy(x @ w, y, ignore_index=-100)
    (g,) = torch.autograd.grad(loss, w)
    with torch.no_grad():
        w -= 0.5 * g
print(((x @ w).argmax(1) == y).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "F.cross_entropy(x @ w, y, ignore_index=0)",
            "F.cross_entropy(x @ w, y, ignore_index=1)",
            T(en="Then the other class trains nothing.", zh="那样另一个类别就什么也不训练。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
