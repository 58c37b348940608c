"""PL950: a prediction ends in a function with a limited range, and many of the targets of its
loss are outside of that range.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import Compared, Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

RANGES = {
    "relu": (0.0, math.inf),
    "relu_": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "softmax": (0.0, 1.0),
    "relu6": (0.0, 6.0),
    "hardsigmoid": (0.0, 1.0),
    "hardtanh": (-1.0, 1.0),
    "binary_cross_entropy": (0.0, 1.0),
    "binary_cross_entropy_with_logits": (0.0, 1.0),
}
"""The range of each function's result; of a loss, that of its target."""
PROBABILITIES = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
"""Losses of probabilities: whatever they are given, no target outside of 0 to 1 can be met."""
LOSSES = {*PROBABILITIES, *operations_that("difference_loss")}
"""These, and losses of the difference between prediction and target."""
SIZES = spellings("abs", "pow", "square") | {"norm", "vector_norm"}
"""What is taken of a difference in a loss that is written out."""
FEWEST, PART, MARGIN = 3, 0.25, 0.05
FAR, SOME = 20.0, 0.02
"""Of targets so far outside of a range, a smaller part is enough: most pixels of a picture may be 0."""
PIXELS = 255
FURTHER = 200


@dataclass(frozen=True, slots=True)
class Beyond:
    """``outside`` of the ``known`` known targets of ``loss`` (an ``Event``), the tensor labelled ``target``, are
    clearly beyond ``low`` or ``high``, between which all predictions are that the call ``bound`` returns (a sigmoid,
    for example). For a loss of probabilities, ``bound`` is ``loss`` itself.

    ``example`` is the target that is farthest outside, where all were counted; else that of the largest size.
    ``numbers`` are the counts that were made while the program ran (:class:`Compared`), None where the targets' values
    in the trace were counted.
    """

    loss: Event
    bound: Event
    target: str
    low: float
    high: float
    outside: int
    known: int
    example: float
    numbers: Compared | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares what a function of limited range returned, or whatever is given to
    a loss of probabilities, with targets of which at least ``FEWEST``, and the share ``PART``, are outside of the
    range; if there is one of size ``FAR`` or more, the share ``SOME`` is enough.

    Losses, and differences of which only the size is used. Prediction and target must have one shape, and only the
    prediction may require grad. Not where no backward went through the loss, or its gradients are only looked at.
    """
    reported = set()
    for loss in story.calls(*LOSSES, *spellings("sub", exchanged=True)):
        place = story.span(loss.step)
        if place in reported or loss.error is not None or (loss.name not in LOSSES and not _is_sized(story, loss)):
            continue
        found = _beyond(story, loss)
        if found is not None and not _is_compared_only(story, loss):
            reported.add(place)
            yield _finding(story, found)


def _is_sized(story: Story, event: Event) -> bool:
    """Whether all uses of the difference are its absolute value, its square or its norm."""
    uses = story.uses(event.results[0]) if event.results else []
    return bool(uses) and all(
        use.name in SIZES and ("pow" not in use.name or use.operands[-1].text == "2") for use in uses
    )


def _is_compared_only(story: Story, loss: Event) -> bool:
    """Whether no backward went through the loss; or ``torch.autograd.grad`` did, and its gradients change no parameter:
    they are compared with others, for example.
    """
    graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn") if loss.results else None
    grad = story.outer_call((story.record("nodes", graph) or {}).get("ran"))
    if grad is None:
        return True
    if grad.name != "grad":
        return False
    pending, seen = list(grad.results), set(grad.results)
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if any((story.tensor(o.label, use.step) or {}).get("requires_grad") for o in use.operands if o.label):
                return False
            pending += [each for each in use.results if each not in seen]
            seen.update(use.results)
    return True


def _beyond(story: Story, loss: Event) -> Beyond | None:
    labels = [o.label for o in loss.operands if o.label is not None][:2]
    if len(labels) < 2 or story.shape(labels[0], loss.step) != story.shape(labels[1], loss.step):
        return None
    for one, target in (labels, labels[::-1]):
        predicted = bool((story.tensor(one, loss.step) or {}).get("requires_grad"))
        if not predicted or (story.tensor(target, loss.step) or {}).get("requires_grad"):
            continue
        bound = loss if loss.name in PROBABILITIES else origin(story, one, loss.step)
        if bound is None or bound.name not in RANGES:
            continue
        numbers = next((each for each in story.trace.beside.compared if each.step == loss.step), None)
        found = _known(story, loss, bound, target) if numbers is None else _ranged(loss, bound, target, numbers)
        if found.outside >= FEWEST and found.outside >= (PART if abs(found.example) < FAR else SOME) * found.known:
            return found
    return None


def _ranged(loss: Event, bound: Event, target: str, numbers: Compared) -> Beyond:
    """The finding's data from counts of all targets, which were made while the program ran."""
    low, high = RANGES[bound.name]
    outside = sum(count for end, count in numbers.beyond if end in (low, high))
    example = numbers.most if numbers.most - high > low - numbers.least else numbers.least
    return Beyond(loss, bound, target, low, high, outside, numbers.of, example, numbers)


def _known(story: Story, loss: Event, bound: Event, target: str) -> Beyond:
    """The finding's data from the targets' values in the trace."""
    low, high = RANGES[bound.name]
    known = [
        value
        for _, value in Elements(story, target, loss.step).known()
        if isinstance(value, int | float) and math.isfinite(value)
    ]
    outside = [value for value in known if value < low - MARGIN or value > high + MARGIN]
    return Beyond(loss, bound, target, low, high, len(outside), len(known), max(outside, key=abs, default=0.0))


def _finding(story: Story, found: Beyond) -> Finding:
    loss, bound = found.loss, found.bound
    here, there = at_line(story, story.span(loss.step)), at_line(story, story.span(bound.step))
    target, function = expression(story, found.target, loss.step), bound.name.strip("_")
    end = T(en=f"{found.low:g} and more", zh=f"{found.low:g} 及以上")
    if math.isfinite(found.high):
        end = T(en=f"{found.low:g} to {found.high:g}", zh=f"{found.low:g} 到 {found.high:g}")
    counted = T(
        en=f"{found.outside} of the {found.known} known targets are outside, such as {number(found.example)}.",
        zh=f"已知的 {found.known} 个目标中有 {found.outside} 个在范围之外，例如 {number(found.example)}。",
    )
    said = T(
        en=f"{capital(here.en)} compares numbers that end in `{function}` ({there.en}), which returns {end.en}, with "
        f"{target.en}: {counted.en}",
        zh=f"{here.zh}把以 `{function}` 结尾的数（{there.zh}，它只返回 {end.zh}）与 {target.zh} 比较：{counted.zh}",
    )
    if bound is loss:
        said = T(
            en=f"{capital(here.en)} gives `{function}` {target.en} for probabilities, which are {end.en}: {counted.en}",
            zh=f"{here.zh}把 {target.zh} 当作概率交给 `{function}`，而概率在 {end.zh} 之间：{counted.zh}",
        )
    limited = T(en="the prediction is limited here", zh="预测在这里被限制")
    return RULE.finding(
        story.span(loss.step), loss.step, said, _why(story, found),
        related=[story.related("made", bound.step, limited)] if bound is not loss else [],
        fixes=(*_scaled(story, found), *(_fixes(story, bound) if bound is not loss else ())),
        facts=[Fact("outside", found.outside, story.by(loss.step)), Fact("known", found.known, story.by(loss.step))],
    )  # fmt: skip


def _why(story: Story, found: Beyond) -> T:
    if found.bound is found.loss:
        return T(
            en="This loss is smallest where the predicted probability equals the target. With a target above 1 or "
            "below 0 there is no such place: the loss falls without end, below 0, while the scores grow. Bring the "
            "targets into the range of 0 to 1.",
            zh="预测的概率等于目标时，这个损失最小。目标大于 1 或小于 0 时，没有这样的位置：分数不断增大，损失无止境地"
            "下降，直到小于 0。请把目标变换到 0 到 1 的范围内。",
        )
    return T(
        en=f"No weights make `{snippet(story, found.bound.span)}` return such a number, so the loss has a part that "
        "training cannot reduce, and it pushes the function to its end, where its slope is 0. Leave the last "
        "function out, or bring the targets into its range.",
        zh=f"无论权重如何，`{snippet(story, found.bound.span)}` 都不会返回这样的数，所以损失中有一部分训练无法减小，而"
        "且它把函数推到斜率为 0 的一端。请去掉最后这个函数，或把目标变换到它的范围内。",
    )


def _scaled(story: Story, found: Beyond) -> tuple[Fix, ...]:
    """At most one fix: it brings pixels of 0 to 255, or labels of -1 and 1, into the range.

    Empty unless the target's numbers were seen to be such, and the range is one that ends at 1.
    """
    program, numbers, given = story.program, found.numbers, written_as(story, found.loss, found.target)
    if numbers is None or given is None or not numbers.whole or found.high != 1:
        return ()
    target = operand(program, given)
    if numbers.least >= 0 and numbers.most <= PIXELS and numbers.of >= PIXELS:
        text = f"({target} / 255)" if found.low == 0 else f"({target} / 127.5 - 1)"
    elif found.low == 0 and (numbers.least, numbers.most) == (-1, 1):
        text = f"(({target} + 1) / 2)"
    else:
        return ()
    title = T(en=f"Bring the targets into the range: `{text[1:-1]}`", zh=f"把目标变换到范围内：`{text[1:-1]}`")
    return unique(program.text, [Fix(title, program.replace((given, text)), meaning="later")])


def _fixes(story: Story, bound: Event) -> tuple[Fix, ...]:
    """Fixes that leave the last function out; empty if the line does not call it itself."""
    program = story.program
    node = program.at(story.span(bound.step))
    given = written_as(story, bound, bound.operands[0].label) if bound.operands else None
    if not isinstance(node, ast.Call) or given is None:
        return ()
    title = T(en=f"Leave `{bound.name}` out", zh=f"去掉 `{bound.name}`")
    return unique(program.text, [Fix(title, program.replace((node, operand(program, given))), meaning="later")])


RULE = Rule(
    code="PL950",
    name="target-out-of-reach",
    severity="warning",
    title=T(en="Predictions end in a function that cannot reach the targets", zh="预测以一个达不到目标的函数结尾"),
    what=T(
        en="A network that is to predict numbers of any size ends in a ReLU, a sigmoid or a tanh. Such a "
        "function returns only a part of all numbers, and the targets outside of it are never met. Leave it "
        "out, or scale the targets.",
        zh="一个要预测任意大小数值的网络以 ReLU、sigmoid 或 tanh 结尾。这样的函数只能返回一部分数，范围之外的目标永远"
        "达不到。请去掉它，或缩放目标。",
    ),
    why=T(
        en="`relu` returns no negative number, `sigmoid` only 0 to 1, `tanh` only -1 to 1. A loss of differences such "
        "as `mse_loss` compares shapes and types, not ranges. The gradient of an example whose target is out of reach "
        "always points beyond the end of the function: outputs are driven there, where the slope is 0, and a ReLU "
        "that is negative for all examples learns nothing more. Pixels of 0 to 255 as targets of a sigmoid are the "
        "usual case; `binary_cross_entropy` takes them too, and its loss falls below 0.",
        zh="`relu` 不返回负数，`sigmoid` 只返回 0 到 1，`tanh` 只返回 -1 到 1。`mse_loss` 这类求差的损失只检查形状和类"
        "型，不检查范围。目标达不到的样本，其梯度总是指向函数的端点之外：输出被推到斜率为 0 的地方；对所有样本都为负"
        "的 ReLU 再也学不到东西。最常见的是把 0 到 255 的像素当作 sigmoid 的目标；`binary_cross_entropy` 也接受它们，"
        "它的损失会降到 0 以下。",
    ),
    advice=T(
        en="leave the function on {made} out, or bring the targets on {line} into its range.",
        zh="去掉{made}的函数，或把{line}的目标变换到它的范围内。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
y = x.sum(1, keepdim=True)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    predicted = torch.relu(net(x))  # made
    loss = torch.nn.functional.mse_loss(predicted, y)  # PL950
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
y = x.sum(1, keepdim=True)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    predicted = net(x)
    loss = torch.nn.functional.mse_loss(predicted, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "torch.relu(net(x))",
            "torch.tanh(net(x))",
            T(
                en="The range is another one, and the targets beyond 1 are still out of reach.",
                zh="只是换了范围，大于 1 的目标仍然达不到。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.mse_loss.html",),
)
