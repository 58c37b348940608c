"""PL342: intermediates of custom Functions that a second derivative takes for constants; and programs in which nothing
is lost.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.build import plain as without_marks

HEAD = """import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

torch.manual_seed(0)


class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        slope = torch.sigmoid(x)  # PL342 kept
        ctx.save_for_backward(slope)
        return torch.log1p(x.exp())

    @staticmethod
    def backward(ctx, grad):
        (slope,) = ctx.saved_tensors
        return grad * slope  # used


"""
DATA = """
x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
"""
TWICE = """(g,) = torch.autograd.grad(Soft.apply(x * x).sum(), x, create_graph=True)
(h,) = torch.autograd.grad(g.sum(), x)  # backward
print(h)
"""
SAVING = "        slope = torch.sigmoid(x)  # PL342 kept\n        ctx.save_for_backward(slope)\n"
READING = "        (slope,) = ctx.saved_tensors\n        return grad * slope  # used\n"
WRONG = {
    "a gradient of a gradient": HEAD + DATA + TWICE,
    "a Hessian": HEAD
    + DATA
    + """
def energy(x):
    return Soft.apply(x * x).sum()


print(torch.autograd.functional.hessian(energy, x))  # backward
""",
    "a gradient that backward left on the leaf": HEAD
    + DATA
    + """
y = Soft.apply(x * x).sum()
y.backward(create_graph=True)
first = x.grad
x.grad = None
first.square().sum().backward()  # backward
print(x.grad)
""",
    "by a parameter in front of it": HEAD
    + """
layer, out = torch.nn.Linear(2, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*layer.parameters(), *out.parameters()], 0.1)
x = torch.randn(8, 2, requires_grad=True)
for _ in range(2):
    opt.zero_grad()
    (g,) = torch.autograd.grad(out(Soft.apply(layer(x))).sum(), x, create_graph=True)
    (g.norm(dim=1) - 1).square().mean().backward()  # backward
    opt.step()
""",
    "two in a row": HEAD
    + DATA
    + """
(g,) = torch.autograd.grad(Soft.apply(Soft.apply(x * x)).sum(), x, create_graph=True)
(h,) = torch.autograd.grad(g.sum(), x)  # backward
print(h)
""",
    "written in the call": HEAD.replace(SAVING, "        ctx.save_for_backward(torch.sigmoid(x))  # PL342 kept\n")
    + DATA
    + TWICE,
    "once differentiable, with a gradient that has no graph": HEAD.replace(
        "    @staticmethod\n    def backward", "    @staticmethod\n    @once_differentiable\n    def backward"
    )
    + DATA
    + TWICE,
    "kept on ctx": HEAD.replace(
        SAVING, "        ctx.save_for_backward(x)\n        ctx.slope = torch.sigmoid(x)  # PL342 kept\n"
    ).replace(READING, "        (x,) = ctx.saved_tensors\n        return grad * ctx.slope  # used\n")
    + DATA
    + TWICE,
}
NO_FIX = {
    "in functions that forward and backward call": HEAD.replace(
        SAVING, "        slope = rise(x)\n        ctx.save_for_backward(slope)\n"
    )
    .replace("return grad * slope  # used", "return product(grad, slope)")
    .replace(
        "class Soft",
        "def rise(x):\n    return torch.sigmoid(x)  # PL342 kept\n\n\n"
        "def product(a, b):\n    return a * b  # used\n\n\nclass Soft",
    )
    + DATA
    + TWICE,
    "a norm": """import torch


class Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=-1, keepdim=True)  # PL342 kept
        ctx.save_for_backward(x, norm)
        return x / norm

    @staticmethod
    def backward(ctx, grad):
        x, n = ctx.saved_tensors
        y = x / n  # used
        return (grad - y * (grad * y).sum(-1, keepdim=True)) / n


x = torch.tensor([[3.0, 4.0], [1.0, 2.0]], requires_grad=True)
(g,) = torch.autograd.grad(Unit.apply(x).square()[:, 0].sum(), x, create_graph=True)
print(torch.autograd.grad(g.sum(), x))  # backward
""",
}
KEPT = """import torch


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {made}
        ctx.save_for_backward(x, kept)
        return {value}

    @staticmethod
    def backward(ctx, grad):
        x, kept = ctx.saved_tensors
        return {gradient}


x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
(g,) = torch.autograd.grad(Own.apply(x * x - 1).sum(), x, create_graph=True)
print(torch.autograd.grad(g.sum(), x))
"""


def _kept(made: str, value: str, gradient: str) -> str:
    return KEPT.format(made=f"kept = {made}", value=value, gradient=gradient)


PLAIN = without_marks(HEAD)
RIGHT = {
    "computed in backward": PLAIN.replace(
        "        slope = torch.sigmoid(x)\n        ctx.save_for_backward(slope)\n", "        ctx.save_for_backward(x)\n"
    ).replace(
        "        (slope,) = ctx.saved_tensors\n", "        (x,) = ctx.saved_tensors\n        slope = x.sigmoid()\n"
    )
    + DATA
    + without_marks(TWICE),
    "an output": _kept("torch.exp(x)", "kept", "grad * kept"),
    "a mask": _kept("x > 0", "x * kept", "grad * kept"),
    "a mask as numbers": _kept("(x > 0).type_as(x)", "x * kept", "grad * kept"),
    "pieces": _kept("torch.where(x > 0, 1.0, 0.1)", "x * kept", "grad * kept"),
    "a sign": _kept("torch.sign(x)", "x * kept", "grad * kept"),
    "rounding": _kept("torch.round(x, decimals=1)", "x * kept", "grad * kept"),
    "an index": _kept("x.argmax()", "x * (torch.arange(3) == kept)", "grad * (torch.arange(3) == kept)"),
    "cut off on purpose": _kept("torch.exp(x.detach())", "x * kept", "grad * kept"),
    "a shift by the largest value": _kept(
        "x.amax()", "(x - kept).exp().sum().log() + kept", "grad * (x - kept).exp() / (x - kept).exp().sum()"
    ),
    "a shift that cancels": _kept(
        "torch.relu(x)",
        "kept + torch.log(torch.exp(-kept) + torch.exp(x - kept))",
        "grad * torch.exp(x - kept) / (torch.exp(-kept) + torch.exp(x - kept))",
    ),
    "a stand-in for the slope of a step": _kept("1 / (1 + x.abs()) ** 2", "(x > 0).to(x.dtype)", "grad * kept"),
    "a gradient divided by a norm": _kept("x.norm()", "x.view_as(x)", "grad / kept"),
    "first derivatives": PLAIN
    + DATA
    + """
(g,) = torch.autograd.grad(Soft.apply(x * x).sum(), x)
Soft.apply(x * x).sum().backward()
print(g, x.grad)
""",
    "by weights behind it": PLAIN
    + DATA
    + """
w = torch.randn(3, requires_grad=True)
(g,) = torch.autograd.grad((w * Soft.apply(x * x)).sum(), x, create_graph=True)
print(torch.autograd.grad(g.square().sum(), w))
""",
    "a penalty that trains only weights behind it": PLAIN
    + """
out = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(out.parameters(), 0.1)
for _ in range(2):
    x = torch.randn(8, 2, requires_grad=True)
    opt.zero_grad()
    (g,) = torch.autograd.grad(torch.tanh(out(Soft.apply(x))).sum(), x, create_graph=True)
    (g.norm(dim=1) - 1).square().mean().backward()
    opt.step()
""",
    "by another input than that of the intermediate": """import torch


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, w, gate)
        return gate * w * w

    @staticmethod
    def backward(ctx, grad):
        x, w, gate = ctx.saved_tensors
        return grad * gate * (1 - gate) * w * w, grad * 2 * gate * w


x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
(g,) = torch.autograd.grad(Gated.apply(x, w).sum(), w, create_graph=True)
print(torch.autograd.grad(g.sum(), w))
""",
    "an intermediate that only another gradient needs": """import torch


class Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, w, gate)
        return gate * w

    @staticmethod
    def backward(ctx, grad):
        x, w, gate = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * w * s * (1 - s), grad * gate


x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
(g,) = torch.autograd.grad(Gated.apply(x, w).sum(), x, create_graph=True)
print(torch.autograd.grad(g.sum(), x))
""",
    "a backward with a derivative of its own": """import torch


class Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad, x, slope):
        ctx.save_for_backward(grad, slope)
        return grad * slope

    @staticmethod
    def backward(ctx, again):
        grad, slope = ctx.saved_tensors
        return again * slope, again * grad * slope * (1 - slope), None


class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        slope = torch.sigmoid(x)
        ctx.save_for_backward(x, slope)
        return torch.log1p(x.exp())

    @staticmethod
    def backward(ctx, grad):
        x, slope = ctx.saved_tensors
        return Back.apply(grad, x, slope)


x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
(g,) = torch.autograd.grad(Soft.apply(x * x).sum(), x, create_graph=True)
print(torch.autograd.grad(g.sum(), x))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_an_intermediate_taken_for_a_constant_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", NO_FIX)
def test_one_in_another_function_or_formula_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, NO_FIX[case])


@pytest.mark.parametrize("case", RIGHT)
def test_a_program_in_which_nothing_is_lost_is_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
