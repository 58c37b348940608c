"""PL408: a softmax normalizes along one axis, and its result is used along another: the numbers that belong together do
not add up to 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, flat, number, snippet
from pitfall_lab.rules.signals.axes import Use, against, dimension, uses_of_axis
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SOFTMAX = ("softmax", "log_softmax", "gumbel_softmax")
CONTRACTIONS = spellings("matmul", "mm") | {"bmm", "einsum"}
MATRIX = 2
UPWARD = 20


@dataclass(frozen=True, slots=True)
class WrongAxis:
    """``event`` is the call (``Event``) of a softmax along the axis ``axis`` (from 0) of a tensor of shape ``shape``;
    ``use`` is the use of its result along another axis (:class:`Use`).

    ``use`` may be None where ``axis`` has one element. ``summed`` is the axis of the result along which a weighted sum
    is taken, if ``axis`` has one element; else None.
    """

    event: Event
    axis: int
    shape: tuple[int, ...]
    use: Use | None
    summed: int | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each softmax whose result is only ever used along another axis, or that is taken along a
    last axis of one element.

    Also one for each cross entropy, whose softmax is taken along axis 1, of scores that have the classes on the last
    axis.
    """
    by_place: dict[object, list[WrongAxis | None]] = {}
    for event in story.calls(*SOFTMAX):
        axis = dimension(story, event) if event.error is None and event.results and event.operands else None
        shape = story.shape(event.results[0], event.step) if axis is not None else None
        if axis is None or shape is None or len(shape) < MATRIX:
            continue
        found, right = _judged(story, event, axis, shape)
        by_place.setdefault(story.span(event.step), []).extend(
            [None] if right else [found] if found is not None else []
        )
    for judged in by_place.values():
        wrong = [each for each in judged if each is not None]
        if wrong and len(wrong) == len(judged):
            yield _finding(story, wrong[0])
    told = set()
    for event in story.calls("cross_entropy"):
        place = story.span(event.step)
        other = (
            _classes_elsewhere(story, event) if place not in told and event.error is None and event.operands else None
        )
        if other is not None:
            told.add(place)
            yield _of_loss(story, event, other)


def _classes_elsewhere(story: Story, loss: Event) -> Event | None:
    """The call that shows that the classes are on the last axis and not on axis 1; None if there is none.

    It compares the layer's results along the last axis, or it looked up one token for each index of axis 1. Only for
    three axes, of which the last two are equally long, returned by a linear layer.
    """
    shape, target = (story.shape(o.label, loss.step) or () for o in loss.operands[:2])
    if len(shape) != MATRIX + 1 or len(target) != MATRIX or shape[1] != shape[2]:
        return (
            None  # with other numbers of positions and classes torch refuses, or the axes say themselves what they are
        )
    layer = origin(story, loss.operands[0].label, loss.step)
    if layer is None or layer.name != "linear" or not _is_laid_out_alike(story, loss, layer):
        return None
    same = [use for use in story.uses(layer.operands[1].label) if use.name == "linear" and use.results]
    for each in same:
        axis = len(story.shape(each.results[0], each.step) or ()) - 1
        for use in uses_of_axis(story, each.results[0], axis, each.step):
            if use.axis == use.followed and use.event.name in ("argmax", "max", "topk"):
                return use.event
    return _tokens(story, layer, target)


def _is_laid_out_alike(story: Story, loss: Event, layer: Event) -> bool:
    """Whether the axes of the tensor that the loss got are still where the layer returned them."""
    given, made = (story.tensor(each, loss.step) or {} for each in (loss.operands[0].label, layer.results[0]))
    return given.get("shape") == made.get("shape") and given.get("stride") == made.get("stride")


def _tokens(story: Story, layer: Event, target: tuple[int, ...]) -> Event | None:
    """Return the embedding look-up of one token per target from which the layer's input was computed,
    axes unchanged; None if none.
    """
    label, step = layer.operands[0].label, layer.step
    for _ in range(UPWARD):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results or not event.operands:
            return None
        if event.name == "embedding":
            return event if story.shape(event.operands[0].label, event.step) == target else None
        if event.name in ("transpose", "permute", "reshape", "view", "movedim", "flatten", "unflatten") or not _keeps(
            story, event, label
        ):
            return None
        label, step = event.operands[0].label, event.step
    return None


def _keeps(story: Story, event: Event, label: str | None) -> bool:
    """Whether the first operand and the result have three axes each and agree in the lengths of axes 0 and 1."""
    before, after = (story.shape(each, event.step) or () for each in (event.operands[0].label, label))
    return len(before) == len(after) == MATRIX + 1 and before[:2] == after[:2]


def _of_loss(story: Story, loss: Event, other: Event) -> Finding:
    program, span = story.program, story.span(loss.step)
    here, there = at_line(story, span), at_line(story, story.span(other.step))
    size = "×".join(map(str, story.shape(loss.operands[0].label, loss.step) or ()))
    given = written_as(story, loss, loss.operands[0].label)
    new = f"{operand(program, given)}.transpose(1, 2)" if given is not None else ""
    title = T(en=f"Put the classes on axis 1: `{new}`", zh=f"把类别放到第 1 轴：`{new}`")
    return RULE.finding(
        span,
        loss.step,
        T(
            en=f"{capital(here.en)} takes axis 1 of {size} for the classes, and the classes are on the last axis, "
            f"as {there.en} shows.",
            zh=f"{here.zh}把 {size} 的第 1 轴当作类别，而类别其实在最后一个轴上，{there.zh}可以看出这一点。",
        ),
        T(
            en="`cross_entropy` wants the classes on axis 1 and the positions behind them. Here there are as many "
            "positions as classes, so nothing fails: the shares of different positions are made to add up to 1, and "
            "each target picks a position in place of a class.",
            zh="`cross_entropy` 要求类别在第 1 轴，位置在其后。这里位置数与类别数恰好相同，所以没有报错：加起来为 1 的"
            "是不同位置的份额，每个目标选出的是位置而不是类别。",
        ),
        related=[
            story.related("made", loss.step, T(en="adds up to 1 along axis 1", zh="沿第 1 轴加起来为 1")),
            story.related("used", other.step, T(en="shows which axis has the classes", zh="说明类别在哪个轴上")),
        ],
        fixes=unique(
            program.text, [Fix(title, program.replace((given, new)), meaning="shape")] if given is not None else []
        ),
        facts=[Fact("axis", 1, story.by(loss.step)), Fact("shape", size, story.by(loss.step))],
    )


def _judged(story: Story, event: Event, axis: int, shape: tuple[int, ...]) -> tuple[WrongAxis | None, bool]:
    """A pair: the data of the finding, or None; and whether the result is used along the softmax's own
    axis (then the first is None).

    The data name the first use of the result along another axis, or a softmax along a last axis of one element.
    """
    if shape[axis] == 1:
        maker = origin(story, event.operands[0].label, event.step - 1)
        single = axis == len(shape) - 1 and prod(shape) > 1 and maker is not None and maker.name == "linear"
        if single or axis == len(shape) - 1:
            return (_single(story, event, axis, shape) if single else None), False
    use, right = against(story, event.results[0], axis, event.step)
    return (WrongAxis(event, axis, shape, use) if use is not None else None), right


def _single(story: Story, event: Event, axis: int, shape: tuple[int, ...]) -> WrongAxis:
    """The data of a softmax along an axis of one element, with the weighted sum along another axis that uses its
    result, if there is one.
    """
    for other in (place for place, size in enumerate(shape) if size > 1):
        for use in uses_of_axis(story, event.results[0], other, event.step):
            wide = (story.shape(use.label, event.step) or (1,))[-1] > 1
            summed = use.event.name == "sum" and use.weighted and (wide or other > 0)
            if use.axis == use.followed and (summed or use.event.name in CONTRACTIONS):
                return WrongAxis(event, axis, shape, use, other)
    return WrongAxis(event, axis, shape, None)


def _finding(story: Story, found: WrongAxis) -> Finding:
    event, use = found.event, found.use
    span = story.span(event.step)
    here, code = at_line(story, span), snippet(story, span)
    size = "×".join(map(str, found.shape))
    if use is None:
        return RULE.finding(
            span,
            event.step,
            T(
                en=f"{capital(here.en)} takes a softmax along an axis of one element: every result is 1, "
                "whatever the scores are.",
                zh=f"{here.zh}沿着只有一个元素的轴做 softmax：无论分数是多少，结果都是 1。",
            ),
            T(
                en=f"The result of `{code}` has shape {size}. A softmax divides by the sum along its axis, and "
                "that is the number itself. No gradient comes through it. For one score per example use a "
                "sigmoid, or a loss with logits.",
                zh=f"`{code}` 的结果形状是 {size}。softmax 除以沿该轴的总和，而总和就是这个数本身。梯度也无法通过它。"
                "每个样本只有一个分数时，请用 sigmoid 或接受 logits 的损失。",
            ),
            related=[story.related("made", event.step, T(en="every result is 1 here", zh="这里的结果全是 1"))],
            fixes=_sigmoid(story, event),
            facts=[Fact("axis", found.axis, story.by(event.step)), Fact("shape", size, story.by(event.step))],
        )
    there, right = at_line(story, story.span(use.event.step)), _right(found)
    example, other = _example(story, found), right % len(found.shape)
    if found.summed is not None:
        why = T(
            en=f"`{code}` divides by the sum along axis {found.axis}, which has one element: every result is 1, "
            f"whatever the scores are, and no gradient comes through. `{use.event.name}` on {there.en} adds up along "
            f"axis {other}: there the shares belong.",
            zh=f"`{code}` 除以沿第 {found.axis} 轴的总和，而该轴只有一个元素：无论分数是多少，结果都是 1，梯度也无法通"
            f"过。{there.zh}的 `{use.event.name}` 沿第 {other} 轴相加：份额应属于那个轴。",
        )
    else:
        why = T(
            en=f"`{code}` makes the numbers along axis {found.axis} add up to 1, so each result depends on the other "
            f"examples or rows there.{example.en} `{use.event.name}` on {there.en} goes along axis {right}.",
            zh=f"`{code}` 让沿第 {found.axis} 轴的数加起来为 1，于是每个结果都取决于那里的其他样本或行。"
            f"{example.zh}{there.zh}的 `{use.event.name}` 沿着第 {right} 轴。",
        )
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} takes a softmax along axis {found.axis} of {size}, but {there.en} uses the result "
            f"along axis {other}, where the numbers do not add up to 1.",
            zh=f"{here.zh}沿着 {size} 的第 {found.axis} 轴做 softmax，而{there.zh}沿着第 {other} 轴使用结果，那里"
            "的数加起来并不是 1。",
        ),
        why,
        related=[
            story.related(
                "made", event.step, T(en=f"adds up to 1 along axis {found.axis}", zh=f"沿第 {found.axis} 轴加起来为 1")
            ),
            story.related(
                "used", use.event.step, T(en=f"is used along axis {other} here", zh=f"在这里沿第 {other} 轴使用")
            ),
        ],
        fixes=_fixes(story, found, right),
        facts=[Fact("axis", found.axis, story.by(event.step)), Fact("used", right, story.by(use.event.step))],
    )


def _right(found: WrongAxis) -> int:
    """The axis of the softmax's own result along which the result is used; -1 for the last one of at least three
    axes.
    """
    if found.summed is not None:
        return found.summed
    last = len(found.shape) - 1
    axis = min(found.use.axis, last) if found.use is not None else last
    return -1 if axis == last and last > 1 else axis


def _example(story: Story, found: WrongAxis) -> T:
    """A sentence with the sum of the first row's elements, for a softmax along axis 0 of a matrix.

    Empty for others or if some are not known.
    """
    record = story.tensor(found.event.results[0], found.event.step) or {}
    cells = [v for _, v in flat((story.record("storages", record.get("storage"), found.event.step) or {}).get("cells"))]
    right = len(found.shape) == MATRIX and found.axis == 0 and found.event.name == "softmax"
    if not right or len(cells) != found.shape[0] * found.shape[1] or not all(isinstance(v, float) for v in cells):
        return T(en="", zh="")
    total = number(sum(cells[: found.shape[1]]))
    return T(en=f" The numbers of the first row add up to {total} here.", zh=f"这里第一行的数加起来是 {total}。")


def _fixes(story: Story, found: WrongAxis, right: int) -> tuple[Fix, ...]:
    """Fixes that write the axis ``right`` where the call, or any softmax layer of the program, has a
    literal axis; empty if none has.
    """
    program = story.program
    node = program.at(story.span(found.event.step))
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)] if node is not None else []
    calls += [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in ("Softmax", "LogSoftmax")]
    candidates: list[Fix | None] = []
    for call in calls if program.tree is not None else ():
        if call_name(call) not in (*SOFTMAX, "Softmax", "LogSoftmax"):
            continue
        given = next((k.value for k in call.keywords if k.arg == "dim"), call.args[-1] if call.args else None)
        text = program.segment(given) if given is not None else ""
        if given is not None and text.lstrip("-").isdigit():
            title = T(en=f"Take the softmax along axis {right}", zh=f"沿第 {right} 轴做 softmax")
            candidates.append(Fix(title, program.replace((given, str(right))), meaning="shape"))
    return unique(program.text, candidates)


def _sigmoid(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    title = T(en="Use a sigmoid: there is one score for each example", zh="改用 sigmoid：每个样本只有一个分数")
    candidates: list[Fix | None] = []
    node = program.at(story.span(event.step))
    if isinstance(node, ast.Call) and call_name(node) == "softmax" and isinstance(node.func, ast.Attribute):
        module = program.segment(node.func.value)
        function = bool(node.args) and module in ("torch", "F", "nn.functional", "torch.nn.functional")
        argument = program.segment(node.args[0]) if function else module
        candidates.append(Fix(title, program.replace((node, f"({argument}).sigmoid()")), meaning="shape"))
    for call in (n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "Softmax"):
        text = program.segment(call.func)
        new = f"{text.rpartition('.')[0]}.Sigmoid()" if "." in text else "Sigmoid()"
        candidates.append(Fix(title, program.replace((call, new)), meaning="shape"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL408",
    name="softmax-over-wrong-axis",
    severity="warning",
    title=T(en="A softmax went along another axis than the one that is used", zh="softmax 沿着的轴不是后来使用的轴"),
    what=T(
        en="A program turned scores into shares that add up to 1, but along the wrong axis: over the examples of a "
        "batch and not over the classes of each example. The results of one example then depend on the others. Give "
        "`softmax` the axis of the classes, mostly `dim=-1`.",
        zh="程序把分数变成加起来为 1 的份额，但沿错了轴：是在一批样本之间，而不是在每个样本的类别之间。于是一个样本的"
        "结果取决于其他样本。请把类别所在的轴交给 `softmax`，通常是 `dim=-1`。",
    ),
    why=T(
        en="`softmax(x, dim=d)` divides `exp(x)` by its sum along axis `d`; the shape stays the same, so nothing "
        "fails when it is another axis than the one that is meant. In a batch of shape (examples, classes) axis 0 "
        "counts the examples. In attention, scores have the keys on the last axis, and the product with the values "
        "sums over it. `nll_loss` and `cross_entropy` take axis 1 for the classes. Along an axis of one element a "
        "softmax is always 1.",
        zh="`softmax(x, dim=d)` 用 `exp(x)` 除以它沿第 `d` 轴的总和；形状不变，所以即使轴不对也不会报错。形状为（样"
        "本，类别）的一批数据里，第 0 轴是样本。在注意力中，分数的最后一轴是键，与值相乘时正是沿它求和。`nll_loss` 和 "
        "`cross_entropy` 把第 1 轴当作类别。沿着只有一个元素的轴，softmax 永远是 1。",
    ),
    advice=T(
        en="take the softmax of {made} along the axis over which {used} adds up or chooses; for scores of classes "
        "that is mostly `dim=-1`.",
        zh="{made}的 softmax 应沿着{used}求和或选择的那个轴；对类别得分大多是 `dim=-1`。",
    ),
    bad="""import torch
import torch.nn.functional as F

x = torch.tensor([[3.0, 0.0], [1.0, 2.0]], requires_grad=True)
target = torch.tensor([0, 1])
log_p = F.log_softmax(x, dim=0)  # PL408 made
loss = F.nll_loss(log_p, target)  # used
loss.backward()
print(loss.item(), x.grad)
""",
    good="""import torch
import torch.nn.functional as F

x = torch.tensor([[3.0, 0.0], [1.0, 2.0]], requires_grad=True)
target = torch.tensor([0, 1])
log_p = F.log_softmax(x, dim=1)
loss = F.nll_loss(log_p, target)
loss.backward()
print(loss.item(), x.grad)
""",
    find=find,
    traps=(
        Trap(
            "F.log_softmax(x, dim=0)",
            "F.softmax(x, dim=0).log()",
            T(
                en="The same numbers, along the same axis.",
                zh="同样的数，同样的轴。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html",
    ),
)
