"""PL590: a custom backward does not return the derivative of what forward computed: it returns values in swapped
positions, or values of another formula.

The calls of forward and of backward are read as formulas, element by element, and these are evaluated at chosen
numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from pitfall_lab.rules.kit.custom_functions import (
    Custom,
    applied,
    customs,
    identified,
    inside,
    returned,
    returned_label,
)
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.formulas import Formula, formula
from pitfall_lab.trace import Event, T

POINTS = 10
ENOUGH = 4
"""The smallest number of points at which all formulas must have a value."""
EQUAL, APART = 1e-3, 0.1
"""Relative differences: the largest between values of two formulas that are the same, and the smallest between values
of formulas one of which does not approximate the other.
"""
MOST = 4
"""The largest number of inputs."""
TRIED = 20
"""The number of runs of one Function that are looked at, until one can be judged."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one run of the backward of a custom ``autograd.Function`` returns at several points, and the true
    derivatives there.

    ``custom`` is the Function's class in the program, ``node`` the label of its graph node, ``backward`` the call
    (``Event``) that ran the node. ``points`` are the values of the inputs that were tried, one tuple for each point;
    ``returned`` are the numbers that backward returns there for each input when the incoming gradient is 1; ``slopes``
    are the derivatives of forward with respect to each input there.
    """

    custom: Custom
    node: str
    backward: Event
    values: tuple[ast.expr, ...]
    """The returned expressions other than ``None``."""
    names: tuple[str, ...]
    """The parameters of forward whose gradients these expressions are."""
    points: tuple[tuple[float, ...], ...]
    returned: tuple[tuple[float, ...], ...]
    slopes: tuple[tuple[float, ...], ...]
    plain: bool
    """Whether backward computes without Python numbers and without a change of sign."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each custom ``autograd.Function`` whose backward returns the derivatives with respect to
    its inputs in swapped positions, or a value clearly different from the derivative of its forward.

    Only where forward and backward are formulas, element by element, that can be evaluated; one run of backward is
    judged.
    """
    for custom in customs(story.program) if story.program.tree else ():
        for _, (forward, node) in zip(range(TRIED), applied(story, custom), strict=False):
            judged = _judged(story, custom, forward, node)
            if judged is not None:
                yield from _findings(story, judged)
                break


def _judged(story: Story, custom: Custom, forward: Event, node: str) -> Judged | None:
    """Return what one run of backward computed, with the derivatives of forward to compare it with.

    None if the node did not run, has more than ``MOST`` inputs, has a formula that is not known, or returns values that
    are not linear in the incoming gradient.
    """
    record = story.record("nodes", node) or {}
    inputs = [(story.record("nodes", each) or {}).get("output") for each in record.get("next") or ()]
    backward, calls = story.outer_call(record.get("ran")), _backward_calls(story, custom, node)
    values = returned(custom)
    if backward is None or not calls or not 0 < len(inputs) <= MOST or None in inputs or len(set(inputs)) < len(inputs):
        return None
    own = [(name, value) for name, value in zip(custom.inputs, values, strict=False) if not _is_none(value)]
    if len(values) != len(custom.inputs) or len(own) != len(inputs):
        return None
    run, known = _run(story, custom, forward), {str(label) for label in inputs}
    same, given = identified(story, run, calls, known)
    labels = [returned_label(story, custom, calls, value) for _, value in own]
    value = formula(story, run, forward.results[0], {}, known)
    if value is None or not value.calls or given is None or None in labels:
        return None
    gradients = [formula(story, [*run, *calls], str(label), same, known | {given}) for label in labels]
    if any(gradient is None for gradient in gradients):
        return None
    found = _at_points(value, [g for g in gradients if g is not None], [str(label) for label in inputs], given)
    if found is None:
        return None
    numbers = any(o.label is None for event in calls for o in event.operands) or any(
        event.name in ("neg", "rsub") for event in calls
    )
    return Judged(custom, node, backward, tuple(v for _, v in own), tuple(n for n, _ in own), *found, plain=not numbers)


Columns = tuple[tuple[float, ...], ...]


def _at_points(
    value: Formula, gradients: list[Formula], inputs: list[str], given: str
) -> tuple[Columns, Columns, Columns] | None:
    """Return, for each point, the inputs, the values that backward returns for the incoming gradient 1, and the
    derivatives of forward.

    None if these are known at fewer than ``ENOUGH`` points, or if doubling the incoming gradient does not double the
    values.
    """
    rows: list[tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]] = []
    for k in range(POINTS):
        sign = -1 if k % 2 else 1
        point = {
            label: sign * (0.2 + 1.4 * ((k * len(inputs) + i + 1) * 0.618034 % 1)) for i, label in enumerate(inputs)
        }
        returned = [gradient.at({**point, given: 1.0}) for gradient in gradients]
        twice = [gradient.at({**point, given: 2.0}) for gradient in gradients]
        slopes = [value.slope(point, label) for label in inputs]
        if any(number is None for number in (*returned, *twice, *slopes)):
            continue
        ones, twos = [n for n in returned if n is not None], [n for n in twice if n is not None]
        if not all(_near(2 * one, two) for one, two in zip(ones, twos, strict=True)):
            return None
        rows.append((tuple(point.values()), tuple(ones), tuple(n for n in slopes if n is not None)))
    if len(rows) < ENOUGH:
        return None
    points, returned_rows, slope_rows = zip(*rows, strict=True)
    return points, returned_rows, slope_rows


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= EQUAL * max(abs(one), abs(other)) + 1e-6


def _run(story: Story, custom: Custom, last: Event) -> list[Event]:
    """Return the calls of the run of forward whose last call is ``last``, in order."""
    found = [last]
    for step in range(last.step - 1, -1, -1):
        if not inside(custom, story.events[step], "forward"):
            break
        found.append(story.events[step])
    return found[::-1]


def _backward_calls(story: Story, custom: Custom, node: str) -> list[Event]:
    """Return the calls of the run of backward for the node ``node``; empty if the node did not run, or if the calls of
    all runs do not divide evenly among the nodes of that Function.
    """
    name, ran = f"{custom.name}Backward", (story.record("nodes", node) or {}).get("ran")
    outer = story.outer_call(ran)
    if outer is None:
        return []
    calls, nodes = [], []
    for event in story.events[outer.step + 1 :]:
        if story.outer_call(event.step) is not outer:
            break
        if event.kind == "call" and inside(custom, event, "backward"):
            calls.append(event)
        elif event.kind == "node" and event.op == name:
            nodes.append(event.step)
    size = len(calls) // len(nodes) if nodes else 0
    if ran not in nodes or not size or any(call.span != calls[place % size].span for place, call in enumerate(calls)):
        return []
    place = nodes.index(ran) * size
    return calls[place : place + size] if len(calls) == size * len(nodes) else []


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _findings(story: Story, judged: Judged) -> Iterator[Finding]:
    count = len(judged.values)
    rows = list(zip(judged.returned, judged.slopes, strict=True))
    if all(_near(row[k], slopes[k]) for row, slopes in rows for k in range(count)):
        return
    for order in permutations(range(count)):
        if order != tuple(range(count)) and all(
            _near(row[k], slopes[order[k]]) for row, slopes in rows for k in range(count)
        ):
            if not _is_steady([slopes[0] for slopes in judged.slopes]) or not _is_steady(
                [slopes[-1] for slopes in judged.slopes]
            ):
                yield _exchanged(story, judged, order)
            return
    for k in range(count):
        pairs = [(row[k], slopes[k]) for row, slopes in rows]
        curved = not _is_steady([slope for _, slope in pairs]) and all(abs(slope) > EQUAL for _, slope in pairs)
        width = APART * max(abs(slope) for _, slope in pairs)
        if curved and 2 * sum(abs(one - slope) > width for one, slope in pairs) >= len(pairs):
            ratios = [slope / one if one else 0.0 for one, slope in pairs]
            if judged.plain or not _is_steady(ratios):
                yield _other(story, judged, k, ratios[0] if _is_steady(ratios) else None)
                return


def _is_steady(numbers: list[float]) -> bool:
    return all(_near(one, numbers[0]) for one in numbers)


def _exchanged(story: Story, judged: Judged, order: tuple[int, ...]) -> Finding:
    program = story.program
    texts = [program.segment(value) for value in judged.values]
    k = next(k for k, source in enumerate(order) if source != k)
    name, other = judged.names[k], judged.names[order[k]]
    span = program.place(judged.values[k])
    here = at_line(story, span)
    en = (
        f"{capital(here.en)} returns the gradient of `{other}` in the place of `{name}`: the values of "
        f"`{judged.custom.name}.backward` are "
    )
    zh = f"{here.zh}在 `{name}` 的位置返回了 `{other}` 的梯度：`{judged.custom.name}.backward` 的返回值次序与 "
    changes = [(judged.values[k], texts[order.index(k)]) for k in range(len(order)) if order[k] != k]
    title = T(en="Return them in the order of forward's arguments", zh="按 forward 参数的次序返回")
    return RULE.finding(
        span,
        judged.backward.step,
        T(en=f"{en}not in the order of forward's arguments.", zh=f"{zh}forward 的参数次序不一致。"),
        T(
            en="Torch gives the first returned value to the first argument of `forward`, and so on; the shapes "
            f"agree, so nothing is raised. {_compared(judged, k).en} That is the derivative by `{other}`.",
            zh="torch 把第一个返回值给 `forward` 的第一个参数，依此类推；因为形状相同，所以不会报错。"
            f"{_compared(judged, k).zh}那是对 `{other}` 的导数。",
        ),
        related=_related(story, judged),
        fixes=unique(program.text, [Fix(title, program.replace(*changes), meaning="later")]),
        facts=[Fact("order", list(order), story.by(judged.backward.step))],
    )


def _other(story: Story, judged: Judged, k: int, ratio: float | None) -> Finding:
    program, value, name = story.program, judged.values[k], judged.names[k]
    span = program.place(value)
    here = at_line(story, span)
    factor = round(ratio) if ratio is not None and _near(ratio, round(ratio)) else None
    fixes = []
    if factor:
        text = f"{factor} * {operand(program, value)}" if factor != -1 else f"-{operand(program, value)}"
        title = T(en=f"Multiply by {factor}", zh=f"乘以 {factor}")
        fixes = [Fix(title, program.replace((value, text)), meaning="later")]
    compared = _compared(judged, k)
    return RULE.finding(
        span,
        judged.backward.step,
        T(
            en=f"What {here.en} returns for `{name}` is not the derivative of what "
            f"`{judged.custom.name}.forward` computes.",
            zh=f"{here.zh}为 `{name}` 返回的值不是 `{judged.custom.name}.forward` 所算结果的导数。",
        ),
        T(
            en=f"{compared.en} Torch does not compare the two: everything in front of it gets a wrong gradient.",
            zh=f"{compared.zh}torch 不会比较两者：它前面的一切都得到错误的梯度。",
        ),
        related=_related(story, judged),
        fixes=unique(program.text, fixes),
        facts=[
            Fact("returned", judged.returned[0][k], story.by(judged.backward.step)),
            Fact("derivative", judged.slopes[0][k]),
        ],
    )


def _compared(judged: Judged, k: int) -> T:
    """Return a sentence with the numbers at the point where the returned value and the derivative differ most."""
    row = max(range(len(judged.points)), key=lambda i: abs(judged.returned[i][k] - judged.slopes[i][k]))
    there = " and ".join(
        f"`{name}` = {number(value)}" for name, value in zip(judged.names, judged.points[row], strict=True)
    )
    one, other = number(judged.returned[row][k]), number(judged.slopes[row][k])
    name = judged.names[k]
    return T(
        en=f"At {there}, with an incoming gradient of 1, the calls in `backward` give {one} for `{name}`; by the "
        f"calls in `forward`, the result changes {other} times as much as `{name}`.",
        zh=f"在 {there.replace(' and ', '、')} 处，传入的梯度为 1 时，`backward` 中的调用为 `{name}` 给出 {one}；而按 "
        f"`forward` 中的调用，结果的变化是 `{name}` 变化的 {other} 倍。",
    )


def _related(story: Story, judged: Judged) -> list[Related]:
    born = (story.record("nodes", judged.node) or {}).get("born")
    name = judged.custom.name
    return [
        story.related("used", born, T(en=f"`{name}` is applied here", zh=f"`{name}` 在这里被使用")),
        story.related(
            "backward", judged.backward.step, T(en="its backward is run from here", zh="从这里运行它的 backward")
        ),
    ]


RULE = Rule(
    code="PL590",
    name="backward-returns-another-derivative",
    severity="warning",
    title=T(
        en="A custom backward does not return the derivative of its forward",
        zh="自定义的 backward 返回的不是 forward 的导数",
    ),
    what=T(
        en="A program wrote an operation of its own, and what it returns as the derivative does not belong to what it "
        "computes: two values are in each other's place, or the formula is another one. Return one gradient for each "
        "argument of `forward`, in their order, and test it with `torch.autograd.gradcheck`.",
        zh="程序写了一个自己的运算，而它作为导数返回的值与它的计算不相符：两个值换了位置，或者公式不对。请按 "
        "`forward` 参数的次序，为每个参数返回一个梯度，并用 `torch.autograd.gradcheck` 检验。",
    ),
    why=T(
        en="For a `torch.autograd.Function` torch does not derive anything: the gradients are what `backward` "
        "returns, the first one for the first argument of `forward`. Torch checks their number and shapes, no values. "
        "`gradcheck` compares them with small differences of `forward`, in double precision. What is returned on "
        "purpose is not reported: a gradient that is reversed or scaled, and one that goes straight through a step "
        "that has no derivative.",
        zh="对于 `torch.autograd.Function`，torch 不会求导：梯度就是 `backward` 返回的值，第一个给 `forward` 的第一个"
        "参数。torch 只检查它们的个数和形状，不检查数值。`gradcheck` 用双精度把它们与 `forward` 的微小差分比较。有意返"
        "回的不会报告：反转或缩放的梯度，以及直接穿过没有导数的步骤的梯度。",
    ),
    bad="""import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left, right):
        ctx.save_for_backward(left, right)
        return left * right**2

    @staticmethod
    def backward(ctx, grad_output):
        left, right = ctx.saved_tensors
        for_left = grad_output * right**2
        for_right = grad_output * 2 * left * right
        return for_right, for_left  # PL590


left = torch.tensor([3.0], requires_grad=True)
right = torch.tensor([5.0], requires_grad=True)
loss = Scaled.apply(left, right).sum()  # used
loss.backward()  # backward
print(left.grad, right.grad)
""",
    good="""import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, left, right):
        ctx.save_for_backward(left, right)
        return left * right**2

    @staticmethod
    def backward(ctx, grad_output):
        left, right = ctx.saved_tensors
        for_left = grad_output * right**2
        for_right = grad_output * 2 * left * right
        return for_left, for_right


left = torch.tensor([3.0], requires_grad=True)
right = torch.tensor([5.0], requires_grad=True)
loss = Scaled.apply(left, right).sum()
loss.backward()
print(left.grad, right.grad)
""",
    find=find,
    traps=(
        Trap(
            "Scaled.apply(left, right)",
            "Scaled.apply(left=left, right=right)",
            T(
                en="`apply` takes no keywords, and the names of arguments have no part in it: only their order counts.",
                zh="`apply` 不接受关键字参数，参数的名字也不起作用：只有次序才算数。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/extending.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html",
    ),
)
