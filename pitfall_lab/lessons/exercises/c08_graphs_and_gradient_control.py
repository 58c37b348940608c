"""Chapter 8: what a backward leaves behind, and the four ways to control it."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_solved,
    equal,
    finds_nothing,
    runs,
    true,
)
from pitfall_lab.trace import T

_LISTING = """\
x = torch.tensor(4.0, requires_grad=True)
w = torch.tensor(2.0, requires_grad=True)
b = torch.tensor(1.0, requires_grad=True)
optimizer = torch.optim.SGD([x, w, b], lr=0.01)


def loss():
    return (x * w + b - 14) ** 2


def gradient():
    return None if x.grad is None else x.grad.item()


seen = {}
loss().backward()
seen["after one backward"] = gradient()
loss().backward()
seen["after a second forward and backward"] = gradient()
once = loss()
once.backward(retain_graph=True)
once.backward()
seen["after two more backward calls on one graph"] = gradient()
optimizer.zero_grad()
seen["after zero_grad()"] = gradient()
loss().backward()
optimizer.zero_grad(set_to_none=False)
seen["after a backward and zero_grad(set_to_none=False)"] = gradient()
"""

_SEEN: dict[str, float | None] = {
    "after one backward": -20,
    "after a second forward and backward": -40,
    "after two more backward calls on one graph": -80,
    "after zero_grad()": None,
    "after a backward and zero_grad(set_to_none=False)": 0,
}


def _filled(answers: dict[str, object]) -> str:
    rows = "".join(f"    {moment!r}: {answer!r},\n".replace("'?'", '"?"') for moment, answer in answers.items()).replace("'", '"')
    return f"# loss = (x * w + b - 14) ** 2 with x = 4, w = 2, b = 1; the gradient of x:\nexpected = {{\n{rows}}}\n"


_PENALISED = "def penalised(function, x):\n    loss = function(x)\n"
_SLOPE = "def slope(function, x):\n"

_INEXACT = T(en="the slope is off by more than 1e-8", zh="斜率的误差超过 1e-8")

EXERCISES = (
    Exercise(
        key="8.1",
        kind="predict",
        title=T(en="What is in .grad?", zh=".grad 里是什么？"),
        task=T(
            en="Fill in what `x.grad` holds at each of these moments, one after the other: a number, or `None`.",
            zh="依次填写每个时刻 `x.grad` 的内容：一个数，或 `None`。",
        ),
        given=_filled(dict.fromkeys(_SEEN, "?")),
        inputs=_LISTING,
        properties=tuple(Property(T(en=m, zh=m), equal(f"expected[{m!r}]", f"seen[{m!r}]", tell=False)) for m in _SEEN),
        hints=(
            T(en="x·w + b − 14 is −5. Outer derivative times inner derivative.", zh="x·w + b − 14 等于 −5。外层导数乘以内层导数。"),
            T(
                en="Each backward adds the same number; nothing is reset before the fourth line.",
                zh="每次 backward 加上同一个数；在第四行之前没有任何重置。",
            ),
            T(
                en="2 · (−5) · 2 = −20 each time. zero_grad() takes the gradient away; with set_to_none=False it fills it with zeros.",
                zh="每次是 2 · (−5) · 2 = −20。zero_grad() 移除梯度；set_to_none=False 时则填零。",
            ),
        ),
        right=(_filled(dict(_SEEN)), f"expected = dict({list(_SEEN.items())!r})\n"),
        wrong=(
            _filled(dict.fromkeys(_SEEN, -20)),
            _filled({**_SEEN, "after zero_grad()": 0}),
            _filled({**_SEEN, "after two more backward calls on one graph": -60}),
        ),
    ),
    Exercise(
        key="8.2",
        kind="repair",
        title=T(en="A penalty on the slope", zh="对斜率的惩罚"),
        task=T(
            en="`penalised` adds the squared slope of the loss to the loss. Repair it: value and gradients must be right.",
            zh="`penalised` 把损失斜率的平方加到损失上。请修好它：数值和梯度都要正确。",
        ),
        given=_PENALISED + "    slopes = torch.autograd.grad(loss, x)\n    return loss + (slopes ** 2).sum()\n",
        setup="def cubes(x):\n    return (x ** 3).sum()\n",
        inputs="x = torch.randn(3, requires_grad=True)",
        drive="total = penalised(cubes, x)\ntotal.backward()",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the value is right", zh="数值正确"), as_solved("total")),
            Property(T(en="the gradient is right", zh="梯度正确"), as_solved("x.grad")),
            Property(
                T(en="for another function too", zh="换一个函数也正确"),
                as_solved(
                    "x.grad", inputs="x = torch.rand(2, 2, requires_grad=True)", drive="penalised(lambda t: t.sin().prod(), x).backward()"
                ),
            ),
        ),
        hints=(
            T(en="What type does `torch.autograd.grad` return?", zh="`torch.autograd.grad` 返回什么类型？"),
            T(
                en="And afterwards: backward has to go through the slope itself, so computing it must be recorded.",
                zh="然后：backward 要穿过斜率本身，所以求斜率的过程必须被记录。",
            ),
            T(
                en="`slopes, = torch.autograd.grad(loss, x, create_graph=True)`.",
                zh="`slopes, = torch.autograd.grad(loss, x, create_graph=True)`。",
            ),
        ),
        right=(
            _PENALISED + "    slopes, = torch.autograd.grad(loss, x, create_graph=True)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    slopes = torch.autograd.grad(loss, [x], create_graph=True, retain_graph=True)[0]\n"
            "    return loss + slopes.square().sum()\n",
        ),
        wrong=(
            _PENALISED + "    slopes, = torch.autograd.grad(loss, x)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    slopes, = torch.autograd.grad(loss, x, retain_graph=True)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    slopes = 3 * x ** 2\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    return loss\n",
        ),
    ),
    Exercise(
        key="8.3",
        kind="write",
        title=T(en="Frozen means frozen", zh="冻结就要冻住"),
        task=T(
            en="Complete `freeze(module)`: afterwards no optimizer step moves any of its parameters, whatever gradients and momentum there were. "
            "Gradients still pass through the module.",
            zh="补全 `freeze(module)`：此后任何优化器步骤都不能移动它的参数，无论此前有何梯度与动量；梯度仍能穿过该模块。",
        ),
        given="def freeze(module):\n    module.requires_grad_(False)\n",
        inputs=(
            "net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))\n"
            "optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)\nx = torch.randn(5, 2)\n"
            "net(x).square().mean().backward()\noptimizer.step()\nkept = net[2].weight.detach().clone(), net[2].bias.detach().clone()\n"
            "start = net[0].weight.detach().clone()"
        ),
        drive=(
            "freeze(net[2])\nfor _ in range(2):\n    optimizer.zero_grad(set_to_none=False)\n    net(x).square().mean().backward()\n    optimizer.step()"
        ),
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(
                T(en="the frozen weight has not moved", zh="冻结的权重没有移动"),
                true("torch.equal(net[2].weight, kept[0])", T(en="it moved", zh="它移动了")),
            ),
            Property(
                T(en="the frozen bias has not moved", zh="冻结的偏置没有移动"),
                true("torch.equal(net[2].bias, kept[1])", T(en="it moved", zh="它移动了")),
            ),
            Property(
                T(en="it does not require grad", zh="它不需要梯度"),
                true(
                    "not any(p.requires_grad for p in net[2].parameters())", T(en="one of its parameters does", zh="它有一个参数仍需要梯度")
                ),
            ),
            Property(T(en="the layer before it goes on learning", zh="前面的层继续学习"), as_solved("net[0].weight")),
        ),
        hints=(
            T(
                en="Which parameters does an optimizer skip? It is not the flag that decides.",
                zh="优化器会跳过哪些参数？起决定作用的不是那个标志。",
            ),
            T(
                en="It skips those whose gradient is `None`. A gradient of zero is not enough.",
                zh="它跳过梯度为 `None` 的参数。梯度为零还不够。",
            ),
            T(
                en="For each parameter: `p.requires_grad_(False)` and `p.grad = None`.",
                zh="对每个参数：`p.requires_grad_(False)`，并且 `p.grad = None`。",
            ),
        ),
        right=(
            "def freeze(module):\n    for p in module.parameters():\n        p.requires_grad_(False)\n        p.grad = None\n",
            "def freeze(module):\n    module.requires_grad_(False)\n    module.zero_grad(set_to_none=True)\n",
        ),
        wrong=(
            "def freeze(module):\n    module.requires_grad_(False)\n    module.zero_grad(set_to_none=False)\n",
            "def freeze(module):\n    for p in module.parameters():\n        p.grad = None\n",
            "def freeze(module):\n    module.eval()\n",
            "def freeze(module):\n    module.forward = lambda x: x.sum(dim=1, keepdim=True).detach()\n    module.requires_grad_(False)\n"
            "    module.zero_grad()\n",
        ),
    ),
    Exercise(
        key="8.4",
        kind="find-and-fix",
        title=T(en="A poor slope", zh="粗糙的斜率"),
        task=T(
            en="`slope` differentiates the scalar `function` at the 0-dim tensor `x`, and its results are poor. There are two faults. Fix them; "
            "it must work for any function and dtype, and return a Python number.",
            zh="`slope` 在零维张量 `x` 处对标量函数 `function` 求导，结果很粗糙。其中有两处错误，请修好；它应适用于任何函数和 dtype，并返回 Python 数。",
        ),
        given=_SLOPE + "    h = 1e-9\n    return ((function(x + h) - function(x)) / h).item()\n",
        inputs="x = torch.rand(()) + 0.5",
        drive="exp, cube = slope(torch.exp, x), slope(lambda t: t ** 3, x)",
        properties=(
            Property(
                T(en="exp, to eight digits, from a float32 input", zh="exp：float32 输入，精确到八位"),
                true("abs(exp - math.exp(x.item())) < 1e-8", _INEXACT),
            ),
            Property(T(en="a cube", zh="立方"), true("abs(cube - 3 * x.item() ** 2) < 1e-8", _INEXACT)),
            Property(
                T(en="a float64 input", zh="float64 输入"),
                true("abs(exp - math.exp(x.item())) < 1e-8", _INEXACT, inputs="x = torch.rand((), dtype=torch.float64) + 0.5"),
            ),
            Property(
                T(en="the result is a number", zh="结果是一个数"),
                true(
                    "isinstance(exp, float)",
                    T(en="it is a tensor, or something else that is not a float", zh="它是张量，或别的不是 float 的东西"),
                ),
            ),
            Property(T(en="no rule finds anything", zh="没有规则发现问题"), finds_nothing()),
        ),
        setup="import math\n",
        hints=(
            T(en="Look at the picture of section 7: where does 1e-9 lie, in float32?", zh="看第 7 节的图：在 float32 中 1e-9 落在哪里？"),
            T(
                en="One fault is the dtype together with the step, the other is that only one side is used.",
                zh="一处错误是 dtype 与步长，另一处是只用了一侧。",
            ),
            T(
                en="`x = x.double()`, `h = 1e-5`, and `(function(x + h) - function(x - h)) / (2 * h)`.",
                zh="`x = x.double()`，`h = 1e-5`，以及 `(function(x + h) - function(x - h)) / (2 * h)`。",
            ),
        ),
        right=(
            _SLOPE + "    x, h = x.double(), 1e-5\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
            _SLOPE + "    x = x.detach().to(torch.float64).requires_grad_()\n    return torch.autograd.grad(function(x), x)[0].item()\n",
        ),
        wrong=(
            _SLOPE + "    h = 1e-5\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
            _SLOPE + "    x, h = x.double(), 1e-5\n    return ((function(x + h) - function(x)) / h).item()\n",
            _SLOPE + "    return torch.exp(x.double()).item()\n",
            _SLOPE + "    x, h = x.double(), 1e-12\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
        ),
    ),
)
