"""PL514: a target, or an advantage, was computed by the network that it trains, with its
graph: the gradient moves it too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

DIFFERENCES = spellings("sub", exchanged=True)
LOSSES = spellings("sub", exchanged=True) | operations_that("difference_loss")
SUMS = {"add", "__radd__"}
SCALES = (
    spellings("clamp", "div", "mul", "neg")
    | {"__getitem__", "clone", "flatten", "masked_fill", "reshape", "select", "squeeze", "unsqueeze", "view", "where"}
)  # fmt: skip
"""Calls that a target is followed through: it is scaled, or a part of it is taken."""
PICKS = {"max", "amax", "gather", "min", "amin", "minimum", "maximum", "logsumexp", "take_along_dim", "sum", "mean"}
"""Calls that make a target of the numbers of a network."""
LAYERS = spellings("matmul", "mm") | {"addmm", "bilinear", "conv1d", "conv2d", "embedding", "linear"}
"""Layers with a weight: the target was computed by a network."""
DEPTH = 12


@dataclass(frozen=True, slots=True)
class TargetNotDetached:
    """``loss`` is the call (``Event``) that compares the tensor ``prediction`` with the tensor ``target``. The target
    is the result of the call ``made``, or a part or a multiple of it; ``made`` added given numbers and the tensor
    ``estimate``, which a network computed and a discount was multiplied with.

    All three are labels; all require grad.
    """

    loss: Event
    prediction: str
    target: str
    made: Event
    estimate: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares a prediction with the sum of given numbers and an estimate, scaled
    by a discount (0.5 to below 1), that has its graph and was computed by some of the same parameters.

    Also one for each line that multiplies a trained tensor by the difference between given numbers and an estimate with
    its graph (an advantage), if a loss of the two, or the square of their difference, trains the estimate. Nothing
    unless an optimizer stepped; of the first kind, one of the parameters must be an optimizer's.
    """
    reported = set()
    trained = {label for update in story.trace.optimizer_steps for label in update.holds}
    for weighed in _weighed(story) if trained else ():
        place = story.span(weighed.product.step)
        if place not in reported:
            reported.add(place)
            yield _of_weight(story, weighed)
    for event in story.calls(*LOSSES) if trained else ():
        place = story.span(event.step)
        if place not in reported and event.error is None and (found := _moving(story, event, trained)) is not None:
            reported.add(place)
            yield _finding(story, found)


@dataclass(frozen=True, slots=True)
class Weighed:
    """``product`` is the call (``Event``) that multiplies a trained tensor with the result of ``difference``, the call
    that subtracted given numbers and the tensor ``estimate`` (a label) from each other, as for an advantage.

    ``fit`` is the call that fits the estimate to the same numbers: a loss of the two, or the square of a difference of
    the two.
    """

    product: Event
    difference: Event
    estimate: str
    fit: Event


def _weighed(story: Story) -> Iterator[Weighed]:
    """Yield products of a trained tensor with ``given - estimate``, where a loss fits the estimate to the given
    numbers.

    The other factor must not come from the estimate, so that the estimate learns nothing from the product.
    """
    for difference in story.calls("sub", "__rsub__", "subtract"):
        labels = [o.label for o in difference.operands[:2]]
        if difference.error is not None or len(labels) < 2 or None in labels or not difference.results:
            continue
        grads = [
            label for label in labels if label and (story.tensor(label, difference.step) or {}).get("requires_grad")
        ]
        given = [label for label in labels if label and label not in grads]
        if len(grads) != 1 or len(given) != 1:
            continue
        fit = _fit(story, grads[0], given[0], difference)
        for product in story.uses(difference.results[0]) if fit is not None else ():
            others = [o.label for o in product.operands if o.label is not None and o.label != difference.results[0]]
            trained = [o for o in others if (story.tensor(o, product.step) or {}).get("requires_grad")]
            weighs = product.name in spellings("mul") and trained and _apart(story, trained[0], grads[0], product.step)
            if fit is not None and weighs:
                yield Weighed(product, difference, grads[0], fit)


def _fit(story: Story, estimate: str, given: str, difference: Event) -> Event | None:
    """The loss that trains ``estimate`` towards ``given``: a loss of these two, or the square of their difference, also
    if computed again.

    None if there is none.
    """
    differences = [difference]
    for use in story.uses(estimate):
        if given in [o.label for o in use.operands] and use.name in LOSSES:
            if use.name not in DIFFERENCES:
                return use
            differences.append(use)
    squares = (
        use
        for each in differences
        if each.results
        for use in story.uses(each.results[0])
        if _is_square(use, each.results[0])
    )
    return next(squares, None)


def _is_square(use: Event, label: str) -> bool:
    """Whether the call raises ``label`` to a power (``pow``, ``square``), or multiplies it by itself."""
    twice = use.name in ("mul", "__mul__") and [o.label for o in use.operands].count(label) > 1
    return use.name in spellings("pow", "square") or twice


def _apart(story: Story, one: str, other: str, step: int) -> bool:
    """Whether the graph of ``one`` does not contain ``other``."""
    node = (story.tensor(other, step) or {}).get("grad_fn")
    return node is not None and node not in set(story.behind((story.tensor(one, step) or {}).get("grad_fn")))


def _of_weight(story: Story, found: Weighed) -> Finding:
    product, difference = found.product, found.difference
    here, fit = (at_line(story, story.span(event.step)) for event in (product, found.fit))
    weight, estimate = (
        expression(story, difference.results[0], product.step),
        expression(story, found.estimate, difference.step),
    )
    return RULE.finding(
        story.span(product.step),
        product.step,
        T(
            en=f"{capital(here.en)} weighs with {weight.en}, with its gradient: training changes {estimate.en} to "
            f"make this product smaller, and not only to fit it on {fit.en}.",
            zh=f"{here.zh}用 {weight.zh} 加权，并且带着它的梯度：训练会为了减小这个乘积而改变 {estimate.zh}，而不"
            f"只是在{fit.zh}拟合它。",
        ),
        T(
            en=f"{capital(weight.en)} says how much better than {estimate.en} something was. {capital(estimate.en)} "
            f"is trained on {fit.en}; in the product it only counts as a number, so `detach()` the weight.",
            zh=f"{weight.zh} 说的是比 {estimate.zh} 好多少。{estimate.zh} 由{fit.zh}训练；在这个乘积里它只应算作一个"
            "数，所以请对权重用 `detach()`。",
        ),
        related=[
            story.related(
                "made",
                difference.step,
                T(en="the weight is made here, with its history", zh="权重在这里算出，带着它的历史"),
            ),
            story.related(
                "used",
                product.step,
                T(
                    en="backward goes on from here into both factors: the weight and the other",
                    zh="反向传播从这里同时进入两个因子：权重与另一个",
                ),
            ),
        ],
        fixes=_detached(
            story,
            [(product, difference.results[0])],
            difference,
            whole=found.fit.operands[0].label != difference.results[0],
        ),
        facts=[
            Fact("weight", difference.results[0], story.by(product.step)),
            Fact("estimate", found.estimate, story.by(product.step)),
        ],
    )


def _moving(story: Story, event: Event, trained: set[str]) -> TargetNotDetached | None:
    labels = [o.label for o in event.operands[:2]]
    if len(labels) < 2 or any(not (story.tensor(label, event.step) or {}).get("requires_grad") for label in labels):
        return None
    for target, prediction in (labels[::-1], labels):
        made = _bootstrapped(story, target, event.step)
        if (
            made is None
            or prediction is None
            or target is None
            or _bootstrapped(story, prediction, event.step) is not None
        ):
            continue
        own = _leaves(story, prediction, event.step) & trained
        estimate = next(
            (
                o.label
                for o in made.operands
                if o.label and (story.tensor(o.label, made.step) or {}).get("requires_grad")
            ),
            None,
        )
        if estimate is not None and own & _leaves(story, estimate, made.step) and _is_minimised(story, event):
            return TargetNotDetached(event, prediction, target, made, estimate)
    return None


def _bootstrapped(story: Story, label: str | None, step: int) -> Event | None:
    """The sum that made ``label`` from given values and a multiple of what a network computed:
    ``r + gamma * q(s2).max(1)``.

    None if there is none.
    """
    for _ in range(DEPTH):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results:
            return None
        given = [o.label for o in event.operands if o.label is not None]
        grads = [g for g in given if (story.tensor(g, event.step) or {}).get("requires_grad")]
        if event.name in SUMS and len(given) == 2 and len(grads) == 1:
            plain = next(g for g in given if g not in grads)
            return event if _is_share(story, grads[0], event.step) and _is_data(story, plain, event.step) else None
        if event.name not in SCALES or len(grads) != 1:
            return None
        label, step = grads[0], event.step
    return None


def _is_share(story: Story, label: str | None, step: int) -> bool:
    """Whether the tensor is a network's result times a number that can be a discount (0.5 to below 1);
    only masks and the like besides.
    """
    discounted = False
    for _ in range(DEPTH):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or label not in event.results:
            return False
        grads = [
            o.label
            for o in event.operands
            if o.label and (story.tensor(o.label, event.step) or {}).get("requires_grad")
        ]
        if event.name in spellings("mul"):
            discounted = discounted or any(o.label is None and _is_discount(o.text) for o in event.operands)
        elif event.name in PICKS or event.name in LAYERS:
            return discounted
        if event.name not in SCALES or not grads:
            return False
        label, step = grads[0], event.step
    return False


def _is_discount(text: str) -> bool:
    try:
        return 0.5 <= float(text) < 1
    except ValueError:
        return False


def _is_data(story: Story, label: str, step: int) -> bool:
    """Whether the tensor requires no grad and is no parameter."""
    record = story.tensor(label, step) or {}
    return not record.get("requires_grad") and record.get("kind") != "parameter"


def _leaves(story: Story, label: str, step: int) -> set[str]:
    nodes = (
        story.record("nodes", node) or {} for node in story.behind((story.tensor(label, step) or {}).get("grad_fn"))
    )
    return {str(node["output"]) for node in nodes if node.get("name") == "AccumulateGrad" and node.get("output")}


def _is_minimised(story: Story, event: Event) -> bool:
    """Whether the call is a loss itself, or a difference that is squared, made positive or given to a loss.

    A difference that is only a weight is none of these.
    """
    if event.name not in spellings("sub", exchanged=True):
        return True
    return any(
        use.name in spellings("abs", "pow") | {"huber_loss", "mse_loss", "smooth_l1_loss", "square"}
        or (use.name in ("mul", "__mul__") and [o.label for o in use.operands].count(event.results[0]) > 1)
        for use in story.uses(event.results[0])
    )


def _finding(story: Story, found: TargetNotDetached) -> Finding:
    loss, made = found.loss, found.made
    here, there = at_line(story, story.span(loss.step)), at_line(story, story.span(made.step))
    prediction, target = expression(story, found.prediction, loss.step), expression(story, found.target, loss.step)
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} compares {prediction.en} with {target.en}, which the same parameters computed on "
            f"{there.en}, with their gradient: training moves the target towards the prediction too.",
            zh=f"{here.zh}把 {prediction.zh} 与 {target.zh} 比较，而后者由同样的参数在{there.zh}算出，并且带着梯度：训"
            "练也会把目标推向预测。",
        ),
        T(
            en=f"{capital(target.en)} is made of given numbers and of a share of the network's own estimate. It "
            "is what the prediction should become, so it has to stay where it is: compute it under "
            "`torch.no_grad()`, or `detach()` it.",
            zh=f"{target.zh} 由给定的数和网络自己估计值的一部分组成。它代表预测应该成为的样子，所以必须保持不动：请在 "
            "`torch.no_grad()` 中计算它，或者用 `detach()`。",
        ),
        related=[
            story.related(
                "made", made.step, T(en="the target is made here, with its history", zh="目标在这里算出，带着它的历史")
            ),
            story.related(
                "used",
                loss.step,
                T(
                    en="backward goes on from here into both: the prediction and the target",
                    zh="反向传播从这里同时进入两者：预测与目标",
                ),
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("target", found.target, story.by(loss.step)),
            Fact("prediction", found.prediction, story.by(loss.step)),
        ],
    )


def _fixes(story: Story, found: TargetNotDetached) -> tuple[Fix, ...]:
    return _detached(story, [(found.loss, found.target)], found.made, whole=True)


def _detached(story: Story, uses: list[tuple[Event, str]], made: Event, *, whole: bool) -> tuple[Fix, ...]:
    """Fixes that append ``.detach()`` where the value is used; with ``whole``, first where it is assigned:
    nothing else learns from it.
    """
    program = story.program
    statement = program.statement_at(story.span(made.step))
    places = [statement.value] if whole and isinstance(statement, ast.Assign) and len(statement.targets) == 1 else []
    places += [node for event, label in uses if (node := written_as(story, event, label)) is not None]
    title = T(en="Keep it still: `.detach()`", zh="让它保持不动：`.detach()`")
    return unique(
        program.text, [Fix(title, appended(program, (place, ".detach()")).edits, meaning="later") for place in places]
    )


RULE = Rule(
    code="PL514",
    name="target-not-detached",
    severity="warning",
    title=T(en="The target of a loss moves with the prediction", zh="损失的目标随着预测一起移动"),
    what=T(
        en="A program computes with its network what a prediction should become (a reward plus a share of the next "
        "estimate), and takes the difference. Training then changes both sides, and the two meet somewhere else than "
        "wanted. Keep the target still: `target = (reward + 0.9 * estimate).detach()`.",
        zh="程序用自己的网络算出预测应该成为的值（奖励加上下一个估计值的一部分），再取二者之差。训练于是同时改变两边，"
        "它们会在别处相遇。请让目标保持不动：`target = (reward + 0.9 * estimate).detach()`。",
    ),
    why=T(
        en="A loss is symmetric to backward: whatever requires a gradient behind either argument gets one. "
        "Q-learning, temporal differences and fitted values mean something else, a *semi-gradient*: the target counts "
        "as a constant of this step, although the network has computed it. Torch cannot know that. With its history "
        "the target is pulled down where the prediction is below it, estimates of later states are changed to fit "
        "earlier ones, and learning is slow or goes wrong. An advantage (`returns - value`) that weighs "
        "log-probabilities is the same: the value is trained by a loss of its own.",
        zh="对反向传播来说，损失是对称的：两个参数背后凡是需要梯度的都会得到梯度。而 Q 学习、时序差分和价值拟合指的是"
        "另一回事，即*半梯度*：目标虽由网络算出，在这一步里却算作常数。torch 无法知道这一点。带着历史的目标，会在预测"
        "偏低时被往下拉，后面状态的估计会被改来迁就前面的，学习变慢甚至出错。用来给对数概率加权的优势值（`returns - "
        "value`）也是一样：value 由它自己的损失训练。",
    ),
    advice=T(
        en="compute the target on {made} without a graph: inside `torch.no_grad()`, or with `.detach()` at its end.",
        zh="在{made}计算目标时不要计算图：放进 `torch.no_grad()`，或在末尾加 `.detach()`。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
state, after, reward = torch.randn(4, 2), torch.randn(4, 2), torch.ones(4, 1)
value = net(state)
target = reward + 0.9 * net(after)  # made
loss = torch.nn.functional.mse_loss(value, target)  # PL514 used
loss.backward()
print(net.weight.grad)
opt.step()
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
state, after, reward = torch.randn(4, 2), torch.randn(4, 2), torch.ones(4, 1)
value = net(state)
target = (reward + 0.9 * net(after)).detach()
loss = torch.nn.functional.mse_loss(value, target)
loss.backward()
print(net.weight.grad)
opt.step()
""",
    find=find,
    traps=(
        Trap(
            "target = reward + 0.9 * net(after)",
            "target = (reward + 0.9 * net(after)).clone()",
            T(
                en="A copy has other memory and the same history.",
                zh="副本有另外的内存，历史却是同样的。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
    ),
)
