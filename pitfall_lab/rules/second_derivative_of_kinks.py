"""PL515: a second derivative is zero everywhere, because the network is made of straight pieces."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.trace import Event, T

KINKS = {"Relu": "ReLU", "LeakyRelu": "LeakyReLU", "Hardtanh": "Hardtanh", "Threshold": "Threshold", "Abs": "abs",
         "PreluKernel": "PReLU", "Rrelu": "RReLU", "RreluWithNoise": "RReLU", "ClampMin": "clamp", "ClampMax": "clamp",
         "Clamp": "clamp", "Hardshrink": "Hardshrink", "Softshrink": "Softshrink"}  # fmt: skip
"""The beginnings of the names of nodes whose function is made of straight pieces, and what programs call it."""
STRAIGHT = ("AccumulateGrad", "Addmm", "Mm", "Bmm", "Mv", "Dot", "Add", "Sub", "Mul", "Div", "Neg", "T", "Transpose",
            "Permute", "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Cat", "Slice", "Select",
            "Sum", "Mean", "Convolution", "Index", "Clone", "ToCopy", "Stack", "Split", "Unbind", "Alias")  # fmt: skip
"""The beginnings of the names of nodes that add up multiples."""
SMOOTH = "Tanh"
FURTHER, FEW = 8, 3


@dataclass(frozen=True, slots=True)
class ZeroSecondDerivative:
    """``second`` is the call (``Event``) of ``autograd.grad`` that differentiates the result of another such call,
    ``first``, with respect to the same input once more, and returns zeros.

    ``calls`` calls at its place in the source returned only zeros; ``kink`` is the function with a kink in the network
    ("ReLU", for example).
    """

    second: Event
    first: Event
    calls: int
    kink: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a second derivative (``autograd.grad``) all of whose known numbers were zero
    in every call, because the network is made of straight pieces.
    """
    reported = set()
    grads = [each for each in story.calls("grad") if each.op == "torch.autograd.grad" and each.error is None]
    for second in grads:
        place = story.span(second.step)
        found = _flat(story, second, grads) if place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _flat(story: Story, second: Event, grads: list[Event]) -> ZeroSecondDerivative | None:
    """The data of the finding for a second derivative that was zero in every call, as far as it is known.

    None if ``second`` is no second derivative, if some of it is not zero, or if the network has a function that bends
    everywhere, or none with a kink.
    """
    first = _first(story, second)
    if first is None or not all(_is_zero(story, each) for each in second.results):
        return None
    kink = _kink(story, first.operands[0].label, first.step)
    alike = [each for each in grads if story.span(each.step) == story.span(second.step)]
    alike = [each for each in alike if _first(story, each) is not None]
    if kink is None or not all(_is_zero(story, result) for each in alike for result in [each.results[0]]):
        return None
    return ZeroSecondDerivative(second, first, len(alike), kink)


def _first(story: Story, second: Event) -> Event | None:
    """The call of ``autograd.grad`` that returned what ``second`` differentiates, with respect to the same input; None
    if there is none, or if that input is a parameter.
    """
    if not second.operands or not second.results:
        return None
    inputs = {o.label for o in second.operands[1:] if o.label is not None}
    label, step = second.operands[0].label, second.step
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.operands[0].label is None:
            return None
        if made.name == "grad" and made.op == "torch.autograd.grad":
            same = inputs & {o.label for o in made.operands[1:]}
            return made if same and not any(_is_parameter(story, each, made.step) for each in same) else None
        if made.name not in ("__getitem__", "sum", "select", "squeeze", "unbind", "split", "chunk"):
            return None
        label, step = made.operands[0].label, made.step
    return None


def _is_parameter(story: Story, label: str | None, step: int) -> bool:
    return (story.tensor(label, step) or {}).get("kind") == "parameter"


def _is_zero(story: Story, label: str) -> bool:
    """Whether at least ``FEW`` numbers of a tensor are known, and all of them are zero."""
    known = [value for _, value in Elements(story, label, len(story.events)).known()]
    return len(known) >= FEW and not any(known)


def _kink(story: Story, label: str | None, step: int) -> str | None:
    """The first function with a kink ("ReLU", for example) in what computed a tensor; None if there is none, or if some
    function is not made of straight pieces.
    """
    found = None
    for node in story.behind((story.tensor(label, step) or {}).get("grad_fn")):
        name = str((story.record("nodes", node) or {}).get("name")).rstrip("0123456789").removesuffix("Backward")
        if name in KINKS:
            found = found or KINKS[name]
        elif name not in STRAIGHT:
            return None
    return found


def _finding(story: Story, found: ZeroSecondDerivative) -> Finding:
    step = found.second.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.first.step))
    by = shown(story, found.second, next(o.label for o in found.second.operands[1:] if o.label is not None))
    calls = T(en=f"in all {found.calls} calls looked at", zh=f"在看到的全部 {found.calls} 次调用中")
    if found.calls == 1:
        calls = T(en="in the call that was looked at", zh="在看到的这次调用中")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} differentiates by {by.en} a second time and gets 0 everywhere, {calls.en}: between "
            f"the kinks of {found.kink} the network is a straight line.",
            zh=f"{here.zh}对 {by.zh} 求第二次导数，{calls.zh}得到的处处是 0：在 {found.kink} 的折点之间，网络是一条"
            "直线。",
        ),
        T(
            en=f"The first derivative, of {there.en}, is constant on each piece, and the second is 0 there; at the "
            "kinks it does not exist, and torch takes 0 too. A term made of it trains nothing: the equation is left "
            "with its other terms. A function that bends everywhere (tanh, SiLU, softplus, sin) has a second "
            "derivative.",
            zh=f"{there.zh}的一阶导数在每一段上是常数，二阶导数在那里是 0；在折点处它不存在，torch 也取 0。由它构成的项"
            "什么也不训练：方程只剩下其他各项。处处弯曲的函数（tanh、SiLU、softplus、sin）才有二阶导数。",
        ),
        related=[story.related("made", found.first.step, T(en="the first derivative", zh="一阶导数"))],
        fixes=_fixes(story, found),
        facts=[Fact("calls with zeros only", found.calls, story.by(step))],
    )


def _fixes(story: Story, found: ZeroSecondDerivative) -> tuple[Fix, ...]:
    """At most one fix: tanh in place of each function with kinks. Empty if the program's source does not name it."""
    program, changes = story.program, list[tuple[ast.AST, str]]()
    for call in (node for node in program.nodes if isinstance(node, ast.Call)):
        name = called(call)
        if name == found.kink and isinstance(call.func, ast.Attribute):
            changes.append((call, f"{program.segment(call.func.value)}.{SMOOTH}()"))
        elif name == found.kink and isinstance(call.func, ast.Name):
            changes.append((call, "torch.nn.Tanh()"))
        elif name == found.kink.lower() and isinstance(call.func, ast.Attribute):
            changes.append((call.func, "torch.tanh" if call.args else f"{program.segment(call.func.value)}.tanh"))
    title = T(en="Use tanh, which bends everywhere", zh="使用处处弯曲的 tanh")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="shape")] if changes else [])


RULE = Rule(
    code="PL515",
    name="second-derivative-of-kinks",
    severity="warning",
    title=T(
        en="The second derivative of a network of straight pieces is zero",
        zh="由直线段构成的网络，二阶导数为零",
    ),
    what=T(
        en="A program puts the second derivative of a network into its loss, as for a differential equation. The "
        "network has ReLU, so it consists of straight pieces, and its second derivative is 0 at every point: that "
        "term is not there. Use an activation that bends everywhere, such as `nn.Tanh()`.",
        zh="程序把网络的二阶导数放进损失，例如为了求解微分方程。网络使用 ReLU，因而由直线段构成，二阶导数处处为 0："
        "这一项等于不存在。请使用处处弯曲的激活函数，如 `nn.Tanh()`。",
    ),
    why=T(
        en="`autograd.grad` gives the derivative of the function that was computed. ReLU passes a gradient on or stops "
        "it; which of the two does not change with a small step of the input, so the derivative of the derivative "
        "is 0. torch raises nothing, because the first derivative has a graph: it depends on the weights.",
        zh="`autograd.grad` 给出所计算函数的导数。ReLU 让梯度通过或把它挡住；"
        "输入的微小变化不改变是哪一种，所以导数的导数是 0。torch 不会报错，因为一阶导数有计算图：它依赖权重。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1))
x = torch.rand(5, 1, requires_grad=True)
u = net(x)
(u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)  # made
(u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)  # PL515
loss = (u_xx + u).pow(2).mean()
loss.backward()
print(u_xx.abs().max(), loss)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.rand(5, 1, requires_grad=True)
u = net(x)
(u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
(u_xx,) = torch.autograd.grad(u_x.sum(), x, create_graph=True)
loss = (u_xx + u).pow(2).mean()
loss.backward()
print(u_xx.abs().max(), loss)
""",
    find=find,
    traps=(
        Trap(
            "nn.ReLU()",
            "nn.LeakyReLU()",
            T(en="Its two pieces are straight lines as well.", zh="它的两段也都是直线。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html",
    ),
)
