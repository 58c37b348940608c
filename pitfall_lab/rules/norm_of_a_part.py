"""PL684: a penalty wants the gradient of each example to have length 1, and takes the length of a
part of it, or of all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import MODULES
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

NORMS = {"norm", "vector_norm"}
VIEWS = {"view", "reshape", "flatten", "squeeze", "contiguous", "clone"}
"""Views, and copies with the same elements, that a tensor is followed through."""
SQUARES = spellings("mul", "pow", "square")
ROOTS = spellings("pow", "sqrt")
OFFSETS = spellings("add", "clamp", "clamp_min")
AWAY = spellings("add") | spellings("sub", exchanged=True)
BENDING = spellings("abs", "clamp", "mul", "pow") | {
    "clamp_min",
    "huber_loss",
    "mse_loss",
    "relu",
    "smooth_l1_loss",
    "square",
}
"""Functions by which a distance from 1 becomes a penalty."""


@dataclass(frozen=True, slots=True)
class Length:
    """``grad`` is the call (``Event``) of ``autograd.grad`` for ``count`` results, one for each example; ``reduction``
    is the call that made ``lengths`` lengths of the gradient that it returned.
    """

    grad: Event
    reduction: Event
    count: int
    lengths: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a gradient penalty (a length minus a number, squared or made positive) that
    takes lengths of other pieces than the whole gradient of each one example.
    """
    reported = set()
    for grad in story.backwards():
        count = _examples(story, grad) if grad.name == "grad" and grad.error is None and grad.results else None
        for reduction, kept in _lengths(story, grad) if count is not None else ():
            shape = story.shape(reduction.operands[0].label, reduction.step) or ()
            place = story.span(reduction.step)
            is_right = kept == (0,) and shape[0] == count
            if not is_right and place not in reported and count is not None:
                reported.add(place)
                yield _finding(story, Length(grad, reduction, count, prod(shape[axis] for axis in kept)))


def _examples(story: Story, grad: Event) -> int | None:
    """The number of results that were differentiated, if it is more than one and equals the number of rows of the
    input; else None. Results that were summed or averaged to one number before count one by one.
    """
    label = grad.operands[0].label
    maker = made_by(story, label, grad.step) if label is not None else None
    if maker is not None and maker.name in ("sum", "mean") and not story.shape(label, grad.step):
        label = maker.operands[0].label
    count, shape = prod(story.shape(label, grad.step) or ()), story.shape(grad.results[0], grad.step) or ()
    return count if len(shape) > 1 and 1 < count == shape[0] else None


def _lengths(story: Story, grad: Event) -> Iterator[tuple[Event, tuple[int, ...]]]:
    """Yield the calls that reduce the gradient to lengths and whose distance to a number is penalised, each with the
    axes that the reduction leaves.

    Such a call is a norm, or a ``sum`` of squares.
    """
    pending, seen = [(grad.results[0], False)], {grad.results[0]}
    while pending:
        label, squared = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            kept = _kept(story, use) if (use.name == "sum" and squared) or (use.name in NORMS and not squared) else None
            if kept is not None:
                if _is_penalised(story, use, rooted=use.name in NORMS):
                    yield use, kept
            elif use.results[0] not in seen and (
                use.name in VIEWS or (use.name in SQUARES and not squared and _is_square(use, label))
            ):
                seen.add(use.results[0])
                pending.append((use.results[0], squared or use.name in SQUARES))


def _is_square(event: Event, label: str) -> bool:
    texts = [o.text for o in event.operands if o.label is None]
    return event.name == "square" or texts in (["2"], ["2.0"]) or [o.label for o in event.operands] == [label, label]


def _kept(story: Story, event: Event) -> tuple[int, ...] | None:
    """Return the axes of its operand over which the call does not reduce; None if its ``dim`` is not known."""
    count = len(story.shape(event.operands[0].label, event.step) or ())
    place = {"sum": 1, "norm": 2, "vector_norm": 2}[event.name]
    text = argument(event, "dim", place) or ""
    if text in ("", "None"):
        return ()
    axes = [int(number) for number in re.findall(r"-?\d+", text)]
    if not axes or any(not -count <= axis < count for axis in axes):
        return None
    return tuple(axis for axis in range(count) if axis not in {each % count for each in axes})


def _is_penalised(story: Story, reduction: Event, *, rooted: bool) -> bool:
    """Whether the reduction becomes a penalty: a root, minus a number, then squared or made positive,
    and a backward ran through it.

    With ``rooted``, the reduction is the root already.
    """
    pending = [(reduction.results[0], rooted, False)]
    for _ in range(20):
        if not pending:
            return False
        label, root, away = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
            if (story.record("nodes", graph) or {}).get("ran") is None:
                continue
            alone = len([o for o in use.operands if o.label is not None]) == 1
            if root and (away or use.name.endswith("_loss")) and use.name in BENDING:
                return True
            if root and not away and use.name in AWAY and alone:
                pending.append((use.results[0], True, True))
            elif not root and use.name in ROOTS:
                pending.append((use.results[0], use.name == "sqrt" or "0.5" in {o.text for o in use.operands}, False))
            elif use.name in OFFSETS | VIEWS and not away and alone:
                pending.append((use.results[0], root, False))
    return False


def _finding(story: Story, found: Length) -> Finding:
    step, span = found.reduction.step, story.span(found.reduction.step)
    here, there = at_line(story, span), at_line(story, story.span(found.grad.step))
    size = "×".join(map(str, story.shape(found.grad.results[0], found.grad.step) or ()))
    several = T(
        en=f"{found.lengths} lengths of the gradient on {there.en}, of parts of it"
        if found.lengths > 1
        else f"one length of the whole gradient on {there.en}",
        zh=f"{there.zh}的梯度的 {found.lengths} 个长度，都只属于其中的一部分"
        if found.lengths > 1
        else f"{there.zh}的整个梯度的一个长度",
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} takes {several.en}, but there are {found.count} examples with one result each, "
            "and a length belongs to each of them.",
            zh=f"{here.zh}取了{several.zh}，但有 {found.count} 个样本，各有一个结果，长度应属于每个样本。",
        ),
        T(
            en=f"The gradient has the shape {size}: the first axis counts the examples, and all the others together "
            "are the gradient of one of them. A penalty on its length holds how fast the result may change in any "
            "direction; a length of a part, or of several examples, holds something else.",
            zh=f"梯度的形状是 {size}：第一个轴数的是样本，其余各轴合起来是一个样本的梯度。对它的长度的惩罚限制结果沿任"
            "何方向变化的快慢；只取一部分的长度，或取若干样本合起来的长度，限制的就是别的东西。",
        ),
        related=[story.related("gradient", found.grad.step, T(en="the gradient of the examples", zh="各样本的梯度"))],
        fixes=_fixes(story, found.reduction),
        facts=[
            Fact("lengths", found.lengths, story.by(step)),
            Fact("examples", found.count, story.by(found.grad.step)),
        ],
    )


def _fixes(story: Story, reduction: Event) -> tuple[Fix, ...]:
    """At most one fix: it makes one row of each example's gradient before the length is taken,
    ``g.flatten(1).norm(dim=1)``.

    Empty if the line is no call of a norm or of ``sum``.
    """
    program, node = story.program, story.program.at(story.span(reduction.step))
    if not isinstance(node, ast.Call) or call_name(node) not in NORMS | {"sum"}:
        return ()
    function = node.func
    is_method = isinstance(function, ast.Attribute) and not _is_module(function.value)
    owner = function.value if is_method and isinstance(function, ast.Attribute) else node.args[0] if node.args else None
    if owner is None:
        return ()
    rest = node.args if is_method else node.args[1:]
    order = rest[:1] if call_name(node) != "sum" else []
    given = [program.segment(each) for each in order]
    given += [f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k.arg not in ("dim", "axis", "keepdim")]
    flat = len(story.shape(reduction.operands[0].label, reduction.step) or ()) == 2
    rows = program.segment(owner) if flat else f"{in_parentheses(program, owner)}.flatten(1)"
    if is_method:
        new = f"{in_parentheses(program, owner) if flat else rows}.{call_name(node)}({', '.join([*given, 'dim=1'])})"
    else:
        new = f"{program.segment(function)}({', '.join([rows, *given, 'dim=1'])})"
    title = T(en=f"Take one length for each example: `{new}`", zh=f"每个样本取一个长度：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


def _is_module(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in MODULES


RULE = Rule(
    code="PL684",
    name="norm-of-a-part",
    severity="warning",
    title=T(en="A penalty takes the length of a part of the gradient", zh="惩罚项取的是梯度一部分的长度"),
    what=T(
        en="A penalty is to keep the slope of a network near 1. For that it needs, for each picture, the length of "
        "all its numbers together; the program takes the length along one axis only, such as the colours of a single "
        "pixel. The penalty then holds each pixel near 1, and the slope becomes many times larger. Flatten first: "
        "`grad.flatten(1).norm(2, dim=1)`.",
        zh="惩罚项要使网络的斜率接近 1。为此，每张图片需要它所有数合起来的长度；而程序只沿一个轴取长度，例如单个像素的"
        "各颜色。于是惩罚使每个像素接近 1，斜率却大了许多倍。请先展平：`grad.flatten(1).norm(2, dim=1)`。",
    ),
    why=T(
        en="`norm(dim=1)` reduces axis 1 and leaves the others. For rows of features that is one length for each "
        "example. For pictures of shape (examples, channels, height, width) it leaves a length for each pixel, and "
        "`.mean()` over them is a number as well. `norm()` without an axis takes all examples together.",
        zh="`norm(dim=1)` 归约第 1 轴，保留其余各轴。对按行排列的特征，得到每个样本一个长度。对形状为（样"
        "本，通道，高，宽）的图片，它给每个像素留下一个长度，再取 `.mean()` 也是一个数。不指定轴的 "
        "`norm()` 则把所有样本合在一起。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(4, 2, 3, requires_grad=True)
critic = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(3):
    grad, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)  # gradient
    loss = ((grad.norm(2, dim=1) - 1) ** 2).mean()  # PL684
    opt.zero_grad()
    loss.backward(inputs=list(critic.parameters()))
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(4, 2, 3, requires_grad=True)
critic = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(3):
    grad, = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    loss = ((grad.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
    opt.zero_grad()
    loss.backward(inputs=list(critic.parameters()))
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "grad.norm(2, dim=1)",
            "grad.norm(2, dim=2)",
            T(en="The other axis alone is a part as well.", zh="只取另一个轴，同样只是一部分。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.norm.html",),
)
