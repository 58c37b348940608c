"""PL458: a model is trained to predict later elements of a sequence, and its convolutions read these very elements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.receptive_fields import SLICES, WINDOWS, Field, fields
from pitfall_lab.rules.signals.sequences import CLASSIFIERS, written_forms
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = {*operations_that("difference_loss"), *spellings("sub"), "gaussian_nll_loss", *CLASSIFIERS}
"""The losses, and the difference, that compare a prediction with its target."""
FLATTENED = {"flatten", "reshape", "view"}
"""Calls that may change the shape before the loss."""
FEWEST, FEWEST_KINDS = 6, 3
"""The least number of values, and of different values, that have to agree before a target counts as a later part of an
input.
"""
PAIR = 2


@dataclass(frozen=True, slots=True)
class ConvolutionSeesItsTarget:
    """``loss`` is the call (``Event``) that compares a prediction with the tensor labelled ``target``, whose numbers
    are those of an input ``ahead`` positions later.

    ``field`` contains the positions of that input from which the prediction was computed; the target's are among them.
    ``placed`` is None if the convolution is part of the model; else it is the position, relative to its own row, at
    which a feature computed before the model is put into the input.
    """

    loss: Event
    target: str
    field: Field
    ahead: int
    placed: int | None = None
    """The position, relative to its row, at which a feature computed before the model is put into the input; None
    inside of a model.
    """

    @property
    def blamed(self) -> Event:
        """The call (``Event``) that looks ahead: the slice or padding that shifted the positions furthest, or else the
        convolution itself.

        For a feature (``placed`` is not None) it is the padding in front of its window, or else the window itself.
        """
        if self.placed is not None:
            windows = [each for each in self.field.shifts if each[0].name in ("pad", *WINDOWS)]
            return next((each for each in windows if each[0].name == "pad"), windows[0])[0]
        moving = [each for each in self.field.shifts if each[0].name != "conv1d" and each[1] > 0]
        return max(moving or self.field.shifts, key=lambda each: (each[1], -each[0].step))[0]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line by which a convolution, or a window over the data, reads the number that the
    model is trained to predict.

    Nothing if no backward ran.
    """
    reported = set()
    for loss in story.calls(*LOSSES) if story.backwards() and any(story.calls(*WINDOWS)) else ():
        found = _seen(story, loss) if loss.error is None and len(loss.operands) >= PAIR else None
        place = story.span(found.blamed.step) if found is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _seen(story: Story, loss: Event) -> ConvolutionSeesItsTarget | None:
    guess, target = (o.label for o in loss.operands[:2])
    records = [story.tensor(label, loss.step) or {} for label in (guess, target)]
    if [bool(each.get("requires_grad")) for each in records] != [True, False]:
        return None
    targets = list(written_forms(story, target, loss.step))
    for label, step, axis, length in _sequences(story, str(guess), str(targets[-1][0]), loss) if targets else ():
        for field in fields(story, label, step, axis):
            windows = [each[0] for each in field.shifts if each[0].name in WINDOWS]
            if max(field.offsets) < 1 or not windows:
                continue
            placed = (
                sum(by for each, by in field.shifts if each.name in SLICES) if _is_feature(story, windows) else None
            )
            if placed is None and any(each.name != "conv1d" for each in windows):
                continue
            ahead = next((n for one, at in targets if (n := _ahead(story, one, at, field)) is not None), None)
            if ahead is None or ahead not in field.offsets:
                continue
            if ahead < length if placed is None else placed < ahead:
                return ConvolutionSeesItsTarget(loss, str(target), field, ahead, placed)
    return None


def _is_feature(story: Story, windows: list[Event]) -> bool:
    """Whether none of the windows' results requires grad: they are then computed before a model, from numbers and
    weights that are not trained.
    """
    return not any((story.tensor(each.results[0], each.step) or {}).get("requires_grad") for each in windows)


def _sequences(story: Story, guess: str, target: str, loss: Event) -> Iterator[tuple[str, int, int, int]]:
    """Yield the prediction, or the tensor that was flattened to it, with the step at which it is looked at, a dimension
    (negative) that may number its positions, and the size of that dimension.
    """
    shape, wanted = story.shape(guess, loss.step) or (), story.shape(target, loss.step) or ()
    made = story.event((story.tensor(guess, loss.step) or {}).get("born"))
    step = loss.step
    if shape != wanted and made is not None and made.name in FLATTENED and made.operands[0].label is not None:
        before = story.shape(made.operands[0].label, made.step) or ()
        if len(before) > len(shape):
            guess, step, shape = made.operands[0].label, made.step, before
    for axis in range(-len(shape), 0):
        if shape[axis] > PAIR and shape[axis] in wanted and (shape != wanted or shape[axis] > 1):
            yield guess, step, axis, shape[axis]


def _ahead(story: Story, target: str, at: int, field: Field) -> int | None:
    """Return by how many positions along the dimension of ``field`` the target begins later than the input; None if it
    is not known to be a later part of the input.

    Of a target with a storage of its own, only the distance 1 is recognised.
    """
    later, given = story.tensor(target, at) or {}, story.tensor(field.label, field.step) or {}
    one, other = list(later.get("shape") or ()), list(given.get("shape") or ())
    if (
        len(one) != len(other)
        or len(one) < -field.axis
        or any(n != m for i, (n, m) in enumerate(zip(one, other, strict=True)) if i != len(one) + field.axis)
    ):
        return None
    stride = (given.get("stride") or [0])[field.axis]
    if later.get("storage") == given.get("storage") and later.get("stride") == given.get("stride") and stride:
        ahead, rest = divmod((later.get("offset") or 0) - (given.get("offset") or 0), stride)
        return ahead if rest == 0 and 0 < ahead < other[field.axis] else None
    return 1 if later.get("storage") != given.get("storage") and _is_next(story, target, at, field) else None


def _is_next(story: Story, target: str, at: int, field: Field) -> bool:
    """Whether all known values of the target are those of the input one position later; False if fewer than ``FEWEST``
    of them, or ``FEWEST_KINDS`` different ones, are known.
    """
    wanted = Elements(story, target, at)
    axis = len(wanted.shape) + field.axis
    pairs = [
        (value, found)
        for index, value in Elements(story, field.label, field.step).known()
        if index[axis] > 0 and (found := wanted.at((*index[:axis], index[axis] - 1, *index[axis + 1 :]))) is not None
    ]
    return (
        len(pairs) >= FEWEST
        and len({value for value, _ in pairs}) >= FEWEST_KINDS
        and all(value == found for value, found in pairs)
    )


def _finding(story: Story, found: ConvolutionSeesItsTarget) -> Finding:
    event, loss = found.blamed, found.loss
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(loss.step))
    target, given = expression(story, found.target, loss.step), expression(story, found.field.label, found.field.step)
    far, ahead = max(found.field.offsets), found.ahead
    if found.placed is not None:
        return _feature(story, found, target, given)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} lets each position of the result see {given.en} up to {far} {_steps(far)} "
            f"ahead, and the target {target.en} on {there.en} is {given.en} {ahead} {_steps(ahead)} ahead: the "
            "answer is among the inputs.",
            zh=f"{here.zh}让结果的每个位置看到 {given.zh} 往后多达 {far} 步的内容，而{there.zh}的目标 {target.zh} 正"
            f"是 {given.zh} 往后 {ahead} 步的内容：答案就在输入里。",
        ),
        T(
            en="A convolution that is padded on both sides has its window centered; cutting off the beginning of the "
            "result moves the window towards later positions, cutting off the end leaves only earlier ones in it. "
            "With the answer in the window the loss falls to almost nothing, and a forecast, where the later numbers "
            "do not exist yet, fails.",
            zh="两侧都填充的卷积，窗口居中；切掉结果的开头会把窗口移向后面的位置，切掉结尾则窗口里只剩前面的位置。窗口"
            "里有答案时，损失几乎降到零，而预测时后面的数还不存在，模型就失败了。",
        ),
        related=[
            story.related(
                "used", loss.step, T(en="the later numbers are the targets here", zh="在这里，目标是后面的数")
            )
        ],
        fixes=_fixes(story, event),
        facts=[Fact("ahead", ahead, story.by(loss.step)), Fact("seen", far, story.by(event.step))],
    )


def _feature(story: Story, found: ConvolutionSeesItsTarget, target: T, given: T) -> Finding:
    """Return the finding about a feature whose window reaches as far as the target."""
    event, loss = found.blamed, found.loss
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(loss.step))
    placed = found.placed or 0
    far, ahead = max(found.field.offsets) - placed, found.ahead - placed
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} lets each number of a feature see {given.en} up to {far} {_steps(far)} ahead of "
            f"its place, and the target {target.en} on {there.en} is {given.en} {ahead} {_steps(ahead)} ahead: the "
            "answer is among the inputs.",
            zh=f"{here.zh}让特征的每个数看到 {given.zh} 在它的位置之后多达 {far} 步的内容，而{there.zh}的目标 "
            f"{target.zh} 正是 {given.zh} 往后 {ahead} 步的内容：答案就在输入里。",
        ),
        T(
            en="A window that is padded on both sides is centered: half of it comes after the position of its "
            "result. As a description of the past that is harmless, as an input of a forecast it hands over the "
            "future, also in the rows that the forecast is measured with. Pad the beginning only: then a window ends "
            "at the position of its result.",
            zh="两侧都填充的窗口是居中的：它有一半在结果所写位置的后面。用来描述过去没有害处，而作为预测的输入，它就"
            "交出了未来，用来测量预测的行也一样。请只填充开头：这样窗口就在结果所在的位置结束。",
        ),
        related=[
            story.related(
                "used", loss.step, T(en="the later numbers are the targets here", zh="在这里，目标是后面的数")
            )
        ],
        fixes=_fixes(story, event),
        facts=[Fact("ahead", ahead, story.by(loss.step)), Fact("seen", far, story.by(event.step))],
    )


def _steps(count: int) -> str:
    return "step" if count == 1 else "steps"


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that slice off the end instead of the beginning, or pad the beginning only; empty if the program is written
    in another way.
    """
    program = story.program
    node = program.at(story.span(event.step)) if program.tree is not None else None
    candidates: list[Fix] = []
    parts = [each for each in ast.walk(node) if isinstance(each, ast.Slice)] if isinstance(node, ast.Subscript) else []
    cut = [each for each in parts if each.lower is not None and each.upper is None and each.step is None]
    if len(cut) == 1 and cut[0].lower is not None:
        text = f":-{in_parentheses(program, cut[0].lower)}"
        title = T(en=f"Cut off the end: `{text}`", zh=f"切掉结尾：`{text}`")
        candidates.append(Fix(title, program.replace((cut[0], text)), meaning="later"))
    convolutions = [
        each for each in program.nodes if isinstance(each, ast.Call) and call_name(each) in ("Conv1d", "conv1d")
    ]
    padded = [(each, word.value) for each in convolutions for word in each.keywords if word.arg == "padding"]
    if event.name == "conv1d" and isinstance(node, ast.Call) and len(padded) == 1:
        size = story.shape(event.operands[1].label, event.step) or (0,)
        dilation = next((program.segment(word.value) for word in padded[0][0].keywords if word.arg == "dilation"), "1")
        width = f"{size[-1] - 1}" if dilation == "1" else f"({size[-1] - 1} * {dilation})"
        text = f"{program.segment(node)}[..., :-{width}]"
        title = T(
            en=f"Pad the whole width, and cut off the end: `[..., :-{width}]`",
            zh=f"按整个宽度填充，并切掉结尾：`[..., :-{width}]`",
        )
        if node is padded[0][0]:
            text = text.replace(f"padding={program.segment(padded[0][1])}", f"padding={width}")
            candidates.append(Fix(title, program.replace((node, text)), meaning="later"))
        else:
            edits = merge(program.replace((padded[0][1], width)), program.replace((node, text)))
            candidates += [Fix(title, edits, meaning="later")] if edits is not None else []
    sides = (
        next((each for each in ast.walk(node) if isinstance(each, ast.Tuple) and len(each.elts) == PAIR), None)
        if node is not None
        else None
    )
    if event.name == "avg_pool1d" and isinstance(node, ast.Call) and call_name(node) == event.name:
        candidates += _pooled_behind(story, node)
    if sides is not None and event.name == "pad":
        one, other = (program.segment(each) for each in sides.elts)
        whole = other if one == "0" else f"{one} + {other}"
        title = T(en=f"Pad the beginning only: `({whole}, 0)`", zh=f"只填充开头：`({whole}, 0)`")
        candidates.append(Fix(title, program.replace((sides, f"({whole}, 0)")), meaning="later"))
    return unique(program.text, candidates)


def _pooled_behind(story: Story, node: ast.Call) -> list[Fix]:
    """Return a fix that pads the beginning of the pooling's input instead of both ends; an empty list if the call does
    not show the padding and the kernel size.
    """
    program = story.program
    words = {k.arg: k.value for k in node.keywords}
    padding = words.get("padding") or (node.args[3] if len(node.args) > PAIR + 1 else None)
    size = words.get("kernel_size") or (node.args[1] if len(node.args) > 1 else None)
    torch = torch_name(program)
    if padding is None or size is None or torch is None or not node.args:
        return []
    pad = f"{torch}.nn.functional.pad({program.segment(node.args[0])}, ({in_parentheses(program, size)} - 1, 0))"
    title = T(en="Pad the beginning only, before the window", zh="在窗口之前只填充开头")
    return [Fix(title, program.replace((node.args[0], pad), (padding, "0")), meaning="later")]


RULE = Rule(
    code="PL458",
    name="convolution-sees-its-target",
    severity="warning",
    title=T(en="A convolution reads the numbers that it is trained to predict", zh="卷积读到了它要预测的数"),
    what=T(
        en="A model learns to predict the next numbers of a sequence, and the window of its convolution reaches over "
        "them. So it copies the answer and learns nothing that helps where the next numbers do not exist yet. Pad the "
        "beginning of the sequence only, or cut off the end of the result.",
        zh="模型学习预测序列接下来的数，而卷积的窗口已经覆盖了这些数。于是它照抄答案，学不到在后面的数还不存在时有用的"
        "东西。请只填充序列的开头，或者切掉结果的结尾。",
    ),
    why=T(
        en="`nn.Conv1d` knows no direction of time: `padding=p` adds p zeros on both sides, so position t of the "
        "result reads t - p to t - p + (k - 1)·d. A causal convolution pads (k - 1)·d and drops that many positions "
        "at the end, `y[..., :-pad]`, or pads the beginning alone, `F.pad(x, (pad, 0))`. `y[..., pad:]` has the same "
        "shape and reads t to t + (k - 1)·d, the future.",
        zh="`nn.Conv1d` 不知道时间的方向：`padding=p` 在两侧各加 p 个零，所以结果的位置 t 读取 t - p 到 t - p + (k - "
        "1)·d。因果卷积填充 (k - 1)·d 再去掉结尾同样多的位置（`y[..., :-pad]`），或者只填充开头（`F.pad(x, (pad, "
        "0))`）。`y[..., pad:]` 形状相同，读的却是 t 到 t + (k - 1)·d，即未来。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
series = torch.randn(4, 1, 9)
x, y = series[:, :, :-1], series[:, :, 1:]
conv = torch.nn.Conv1d(1, 1, 3, padding=2)
guess = conv(x)[:, :, 2:]  # PL458
loss = F.mse_loss(guess, y)  # used
loss.backward()
print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
series = torch.randn(4, 1, 9)
x, y = series[:, :, :-1], series[:, :, 1:]
conv = torch.nn.Conv1d(1, 1, 3, padding=2)
guess = conv(x)[:, :, :-2]
loss = F.mse_loss(guess, y)
loss.backward()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "[:, :, 2:]",
            "[:, :, 1:-1]",
            T(
                en="A centered window still reaches one position ahead, and there is the answer.",
                zh="居中的窗口仍向后看一个位置，答案就在那里。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv1d.html",),
)
