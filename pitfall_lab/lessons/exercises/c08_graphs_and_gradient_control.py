"""Exercises of chapter 8: what a backward leaves in ``.grad`` and in the graph, and gradients that
are computed but not followed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pitfall_lab.lessons.attempt import Problem
from pitfall_lab.lessons.exercise import (
    SEEDS,
    Attempt,
    Check,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
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
seen["after two more backwards of one graph (retain_graph=True)"] = gradient()
optimizer.zero_grad()
seen["after zero_grad()"] = gradient()
loss().backward()
optimizer.zero_grad(set_to_none=False)
seen["after a backward and zero_grad(set_to_none=False)"] = gradient()
"""

_SEEN: dict[str, float | None] = {
    "after one backward": -20,
    "after a second forward and backward": -40,
    "after two more backwards of one graph (retain_graph=True)": -80,
    "after zero_grad()": None,
    "after a backward and zero_grad(set_to_none=False)": 0,
}


def _filled(answers: dict[str, object]) -> str:
    rows = "".join(
        f"    {moment!r}: {answer!r},\n".replace("'?'", '"?"') for moment, answer in answers.items()
    ).replace("'", '"')
    return f"# loss = (x * w + b - 14) ** 2 with x = 4, w = 2, b = 1; the gradient of x:\nexpected = {{\n{rows}}}\n"


_PENALISED = "def penalised(function, x):\n    loss = function(x)\n"
_SENSITIVITY = "def sensitivity(model, batch):\n"
_SLOPE = "def slope(function, x):\n"

_LEFT = T(
    en="autograd computed it: where `function` detaches, another slope comes out",
    zh="它是 autograd 算出的：`function` 中有 detach 时，斜率就不同",
)
_from_values = true(
    "abs(hidden - square) < 1e-6",
    _LEFT,
    drive="square, hidden = slope(lambda t: t ** 2, x), slope(lambda t: t.detach() ** 2 + 3 * (t - t.detach()), x)",
)


_NO_NUMBER = T(
    en="it is a tensor, or something else that is not a float",
    zh="它是张量，或别的不是 float 的东西",
)
_ALLOWED = 1e-8


def _of_wave(x: float, pace: float) -> float:
    """Return the derivative of the sine at ``x``."""
    return pace * math.cos(pace * x)


def _near(name: str, meant: Callable[[float, float], float], **run: Any) -> Check:
    """Check slopes at many places: at a single one the difference to one side may be close enough by luck.

    ``meant`` gets a place and the sine's pace. Functions with a wrong gradient do not show how exact a slope is that
    was left to autograd: then this is the reason.
    """
    where = "[place.item() for place in places]"

    def check(attempt: Attempt) -> bool | T:
        attempt.foresee(SEEDS, name, where, "pace", **run)
        for seed in SEEDS:
            seen = attempt.look(name, where, "pace", seed=seed, **run).values
            found = seen[name]
            if isinstance(found, Problem):
                return found.say()
            try:
                off = [
                    abs(float(slope) - meant(place, seen["pace"]))
                    for slope, place in zip(found, seen[where], strict=True)
                ]
            except (TypeError, ValueError):
                return _NO_NUMBER
            if not all(each < _ALLOWED for each in off):
                far = T(
                    en=f"the slope is off by up to {max(off):.1e}; {_ALLOWED:.0e} is allowed",
                    zh=f"斜率的误差最大为 {max(off):.1e}；允许 {_ALLOWED:.0e}",
                )
                return _LEFT if _from_values(attempt) is _LEFT else far
        return True

    return check


EXERCISES = (
    Exercise(
        key="8.1",
        kind="predict",
        title=T(en="What is in .grad?", zh=".grad 里是什么？"),
        task=T(
            en=(
                "What is in `x.grad` at each of the moments that the comments name? Fill in a number or `None`, "
                "**before** you run the cell.\n"
                "\n"
                "```python\n"
                "x, w, b = (torch.tensor(v, requires_grad=True) for v in (4.0, 2.0, 1.0))\n"
                "optimizer = torch.optim.SGD([x, w, b], lr=0.01)\n"
                "\n"
                "def loss():\n"
                "    return (x * w + b - 14) ** 2\n"
                "\n"
                "loss().backward()                        # after one backward\n"
                "loss().backward()                        # after a second forward and backward\n"
                "once = loss()\n"
                "once.backward(retain_graph=True)\n"
                "once.backward()                          # after two more backwards of one graph\n"
                "optimizer.zero_grad()                    # after zero_grad()\n"
                "loss().backward()\n"
                "optimizer.zero_grad(set_to_none=False)   # after a backward and zero_grad(set_to_none=False)\n"
                "```"
            ),
            zh=(
                "在注释所写的每个时刻，`x.grad` 里是什么？在运行单元格**之前**，填写一个数或 `None`。\n\n"
                "```python\n"
                "x, w, b = (torch.tensor(v, requires_grad=True) for v in (4.0, 2.0, 1.0))\n"
                "optimizer = torch.optim.SGD([x, w, b], lr=0.01)\n\n"
                "def loss():\n"
                "    return (x * w + b - 14) ** 2\n\n"
                "loss().backward()                        # after one backward\n"
                "loss().backward()                        # after a second forward and backward\n"
                "once = loss()\n"
                "once.backward(retain_graph=True)\n"
                "once.backward()                          # after two more backwards of one graph\n"
                "optimizer.zero_grad()                    # after zero_grad()\n"
                "loss().backward()\n"
                "optimizer.zero_grad(set_to_none=False)   # after a backward and zero_grad(set_to_none=False)\n"
                "```"
            ),
        ),
        given=_filled(dict.fromkeys(_SEEN, "?")),
        inputs=_LISTING,
        properties=tuple(Property(T(en=m, zh=m), equal(f"expected[{m!r}]", f"seen[{m!r}]", tell=False)) for m in _SEEN),
        hint_for=(1, 2, 2, 3, 3),
        hints=(
            T(
                en="x·w + b − 14 is −5. Outer derivative times inner derivative.",
                zh="x·w + b − 14 等于 −5。外层导数乘以内层导数。",
            ),
            T(
                en="Each backward adds the same number; nothing is reset before the fourth line.",
                zh="每次 backward 加上同一个数；在第四行之前没有任何重置。",
            ),
            T(
                en="2 · (−5) · 2 = −20 each time. zero_grad() takes the gradient away; with set_to_none=False it "
                "fills it with zeros.",
                zh="每次是 2 · (−5) · 2 = −20。zero_grad() 移除梯度；set_to_none=False 时则填零。",
            ),
        ),
        right=(_filled(dict(_SEEN)), f"expected = dict({list(_SEEN.items())!r})\n"),
        wrong=(
            _filled(dict.fromkeys(_SEEN, -20)),
            _filled({**_SEEN, "after zero_grad()": 0}),
            _filled({**_SEEN, "after two more backwards of one graph (retain_graph=True)": -60}),
        ),
    ),
    Exercise(
        key="8.2",
        kind="repair",
        title=T(en="A penalty on the slope", zh="对斜率的惩罚"),
        task=T(
            en=(
                "`penalised(function, x)` returns `function(x)` plus the sum of the squared slopes of `function` at "
                "`x`, a common penalty; `function` returns a 0-dim tensor, and `x` is a leaf of any shape that "
                "requires grad. It stops with an error. Repair it; the value must be right, and so must the gradient "
                "of `x` after a backward from it."
            ),
            zh=(
                "`penalised(function, x)` 返回 `function(x)` 加上 `function` 在 `x` 处斜率的平方和，这是一种常见的惩"
                "罚；`function` 返回零维张量，`x` 是任意形状、需要梯度的叶子。它以错误告终。请修好它：数值要正确，从它"
                "做 backward 之后 `x` 的梯度也要正确。"
            ),
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
                    "x.grad",
                    inputs="x = torch.rand(2, 2, requires_grad=True)",
                    drive="penalised(lambda t: t.sin().prod(), x).backward()",
                ),
            ),
        ),
        hint_for=(0, 1, 2, 2),
        hints=(
            T(en="What type does `torch.autograd.grad` return?", zh="`torch.autograd.grad` 返回什么类型？"),
            T(
                en="Backward has to go through the slope itself, so computing it must be recorded.",
                zh="backward 要穿过斜率本身，所以求斜率的过程必须被记录。",
            ),
            T(
                en="`slopes, = torch.autograd.grad(loss, x, create_graph=True)`.",
                zh="`slopes, = torch.autograd.grad(loss, x, create_graph=True)`。",
            ),
        ),
        right=(
            _PENALISED
            + "    slopes, = torch.autograd.grad(loss, x, create_graph=True)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    slopes = torch.autograd.grad(loss, [x], create_graph=True, retain_graph=True)[0]\n"
            "    return loss + slopes.square().sum()\n",
        ),
        wrong=(
            _PENALISED + "    slopes, = torch.autograd.grad(loss, x)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED
            + "    slopes, = torch.autograd.grad(loss, x, retain_graph=True)\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    slopes = 3 * x ** 2\n    return loss + (slopes ** 2).sum()\n",
            _PENALISED + "    return loss\n",
        ),
    ),
    Exercise(
        key="8.3",
        kind="write",
        title=T(en="Which inputs matter", zh="哪些输入重要"),
        task=T(
            en=(
                "In the middle of a training run, between backward and step, you want to see which inputs matter. "
                "Write `sensitivity(model, batch)`: it returns the gradient of `model(batch).sum()` with respect to "
                "`batch`, a tensor of the shape of `batch` and without a graph. Afterwards the model's mode "
                "(`model.training`), `batch` (which may itself require a gradient, and have one) and all parameters, "
                "with their gradients and their `requires_grad`, must be as before."
            ),
            zh=(
                "在训练途中，backward 与 step 之间，你想看哪些输入重要。编写 `sensitivity(model, batch)`：返回 "
                "`model(batch).sum()` 对 `batch` 的梯度，形状与 `batch` 相同，不带计算图。之后模型的模式"
                "（`model.training`）、`batch`（它自己也可能需要梯度，并已有梯度）与所有参数，连同其梯度和 "
                "`requires_grad`，都必须和之前一样。"
            ),
        ),
        given=_SENSITIVITY
        + "    batch.requires_grad_(True)\n    model(batch).sum().backward()\n    return batch.grad\n",
        inputs=(
            "kind = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.Softplus)[int(torch.randint(4, ()))]\n"
            "model = nn.Sequential(nn.Linear(3, 4), kind(), nn.Linear(4, 1))\n"
            "model(torch.randn(5, 3)).square().sum().backward()\n"
            "kept = [p.grad.clone() for p in model.parameters()]\n"
            "model[2].bias.requires_grad_(False)\n"
            "flags = [p.requires_grad for p in model.parameters()]\n"
            "batch = torch.randn(int(torch.randint(2, 9, ())), 3)"
        ),
        drive="result = sensitivity(model, batch)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the gradient is right", zh="梯度正确"), as_solved("result")),
            Property(
                T(en="it has no graph", zh="它不带计算图"),
                true("not result.requires_grad", T(en="it requires grad", zh="它需要梯度")),
            ),
            Property(
                T(en="the gradients of the parameters are as before", zh="参数的梯度和之前一样"),
                true(
                    "all(p.grad is not None and torch.equal(p.grad, k) for p, k in zip(model.parameters(), kept))",
                    T(en="a gradient in `.grad` was changed, or taken away", zh="某个 `.grad` 里的梯度被改变或清除了"),
                ),
            ),
            Property(
                T(
                    en="`requires_grad` of the parameters and the model's mode are as before",
                    zh="参数的 `requires_grad` 和模型的模式与之前一样",
                ),
                every(
                    true(
                        "[p.requires_grad for p in model.parameters()] == flags",
                        T(
                            en="one that required grad does not any more, or a frozen one does",
                            zh="有参数不再需要梯度，或已冻结的参数又需要梯度",
                        ),
                    ),
                    true(
                        "all(m.training for m in model.modules())",
                        T(
                            en="the model was in training mode, and is now in evaluation mode",
                            zh="模型原来处于训练模式，现在处于评估模式",
                        ),
                    ),
                ),
            ),
            Property(
                T(en="the batch is as before", zh="batch 和之前一样"),
                true(
                    "unchanged('batch') and not batch.requires_grad and batch.grad is None",
                    T(
                        en="its values, its `requires_grad` or its `.grad` changed",
                        zh="它的值、`requires_grad` 或 `.grad` 变了",
                    ),
                ),
            ),
            Property(
                T(
                    en="a batch that requires grad and has a gradient is as before, too",
                    zh="需要梯度且已有梯度的 batch 也和之前一样",
                ),
                true(
                    "unchanged('batch') and batch.requires_grad and batch.is_leaf and batch.grad.eq(7).all()",
                    T(
                        en="its values, its `requires_grad` or its `.grad` changed",
                        zh="它的值、`requires_grad` 或 `.grad` 变了",
                    ),
                    inputs=(
                        "model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))\n"
                        "batch = torch.randn(4, 3, requires_grad=True)\nbatch.grad = torch.full((4, 3), 7.0)"
                    ),
                ),
            ),
        ),
        hint_for=(2, 2, 3, 1, 2, 2, 2),
        hints=(
            T(
                en="`backward()` adds to the `.grad` of *every* leaf. Which call does not?",
                zh="`backward()` 会加到*每个*叶子的 `.grad` 上。哪个调用不会？",
            ),
            T(
                en="The batch needs a twin that requires grad: a leaf of its own, so that the "
                "`requires_grad` of the batch stays.",
                zh="batch 需要一个需要梯度的副本：它是自己的叶子，这样 batch 的 `requires_grad` 不变。",
            ),
            T(
                en="`x = batch.detach().requires_grad_()`, and `torch.autograd.grad(model(x).sum(), x)[0]`.",
                zh="`x = batch.detach().requires_grad_()`，然后 `torch.autograd.grad(model(x).sum(), x)[0]`。",
            ),
        ),
        right=(
            _SENSITIVITY
            + "    x = batch.detach().requires_grad_()\n    return torch.autograd.grad(model(x).sum(), x)[0]\n",
            _SENSITIVITY
            + "    x = batch.clone().requires_grad_()\n    model(x).sum().backward(inputs=[x])\n    return x.grad\n",
            _SENSITIVITY + "    return torch.func.grad(lambda x: model(x).sum())(batch).detach()\n",
            _SENSITIVITY + "    return torch.autograd.functional.jacobian(lambda x: model(x).sum(), batch)\n",
        ),
        wrong=(
            _SENSITIVITY
            + "    x = batch.detach().requires_grad_()\n    model(x).sum().backward()\n    return x.grad\n",
            _SENSITIVITY
            + (
                "    x = batch.clone().requires_grad_()\n"
                "    model(x).sum().backward()\n"
                "    model.zero_grad()\n"
                "    return x.grad\n"
            ),
            _SENSITIVITY
            + "    batch.requires_grad_()\n    result, = torch.autograd.grad(model(batch).sum(), batch)\n"
            + "    batch.requires_grad_(False)\n    return result\n",
            _SENSITIVITY + "    batch.requires_grad_()\n    return torch.autograd.grad(model(batch).sum(), batch)[0]\n",
            _SENSITIVITY
            + (
                "    model.requires_grad_(False)\n"
                "    x = batch.detach().requires_grad_()\n"
                "    model(x).sum().backward()\n"
                "    return x.grad\n"
            ),
            _SENSITIVITY
            + (
                "    x = batch.detach().requires_grad_()\n"
                "    return torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]\n"
            ),
            _SENSITIVITY + "    return torch.ones_like(batch)\n",
            _SENSITIVITY + "    model.eval()\n    x = batch.detach().requires_grad_()\n"
            "    return torch.autograd.grad(model(x).sum(), x)[0]\n",
        ),
    ),
    Exercise(
        key="8.4",
        kind="find-and-fix",
        title=T(en="A bad slope", zh="粗糙的斜率"),
        task=T(
            en=(
                "`slope(function, x)` should return the derivative of `function` at the 0-dim tensor `x` as a Python "
                "number, *from values of the function alone*: it is there to check autograd. Its results are bad. "
                "Repair it. An error up to 1e-8 is allowed, for any `x` of float32 or float64 between 0.5 and 1.5."
            ),
            zh=(
                "`slope(function, x)` 应*只用函数值*返回 `function` 在零维张量 `x` 处的导数，是一个 Python "
                "数：它是用来检查 autograd 的。结果很粗糙。请修好它。`x` 是 0.5 与 1.5 之间的任意 float32 或 "
                "float64，允许误差不超过 1e-8。"
            ),
        ),
        given=_SLOPE + "    h = 1e-9\n    return ((function(x + h) - function(x)) / h).item()\n",
        inputs="x = torch.rand(()) + 0.5",
        # the functions have another gradient than their values say: what is left to autograd has a wrong slope here
        drive=(
            "pace = torch.rand(()).item() + 0.5\n"
            "places = [x, *(torch.rand((), dtype=x.dtype) + 0.5 for _ in range(19))]\n"
            "wrong = torch.rand(()).item() + 3\n"
            "exps = [slope(lambda t: t.detach().exp() - wrong * (t - t.detach()), place) for place in places]\n"
            "waves = [slope(lambda t: (pace * t.detach()).sin() + wrong * (t - t.detach()), place) for place in places]"
        ),
        properties=(
            Property(
                T(
                    en="it comes from values alone: the same where the function is detached",
                    zh="只用函数值：函数被 detach 时结果相同",
                ),
                _from_values,
            ),
            Property(
                T(en="the result is a number", zh="结果是一个数"),
                true("all(isinstance(each, float) for each in exps)", _NO_NUMBER),
            ),
            Property(T(en="exp, for float32 inputs", zh="exp：float32 输入"), _near("exps", lambda x, _: math.exp(x))),
            Property(T(en="a sine", zh="正弦"), _near("waves", _of_wave)),
            Property(
                T(en="float64 inputs", zh="float64 输入"),
                _near("waves", _of_wave, inputs="x = torch.rand((), dtype=torch.float64) + 0.5"),
            ),
        ),
        hint_for=(3, 3, 1, 2, 2),
        hints=(
            T(
                en="float32 has seven digits: what does `x + 1e-9` give there?",
                zh="float32 有七位有效数字：`x + 1e-9` 在其中得到什么？",
            ),
            T(
                en="In float64 a step of 1e-9 is still too small; and from `x` and one point beside it no step is "
                "good enough at every `x`: move to both sides.",
                zh="在 float64 中 1e-9 的步长仍然太小；而只用 `x` 和它旁边的一个点，没有任何步长在每个 `x` 处都足够好："
                "请向两侧移动。",
            ),
            T(
                en="`x = x.double()`, `h = 1e-5`, and `(function(x + h) - function(x - h)) / (2 * h)`: values alone, "
                "without autograd. `.item()` makes a Python number of it.",
                zh="`x = x.double()`，`h = 1e-5`，以及 `(function(x + h) - function(x - h)) / (2 * h)`："
                "只用函数值，不用 autograd。`.item()` 把它变成 Python 数。",
            ),
        ),
        right=(
            _SLOPE + "    x, h = x.double(), 1e-5\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
            _SLOPE
            + (
                "    x, h = x.to(torch.float64), 1e-4\n"
                "    with torch.no_grad():\n"
                "        return float(function(x + h) - function(x - h)) / (2 * h)\n"
            ),
            _SLOPE + "    x, h = torch.tensor(x.item(), dtype=torch.float64), 1e-6\n"
            "    return ((function(x + h) - function(x - h)) / h / 2).item()\n",
            _SLOPE + "    x, h = x.double(), 1e-3\n    f = function\n"
            "    return ((f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h)).item()\n",
        ),
        wrong=(
            _SLOPE + "    h = 1e-5\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
            _SLOPE + "    x, h = x.double(), 1e-5\n    return ((function(x + h) - function(x)) / h).item()\n",
            _SLOPE + "    x, h = x.double(), 1e-8\n    return ((function(x + h) - function(x)) / h).item()\n",
            _SLOPE + "    return torch.exp(x.double()).item()\n",
            _SLOPE
            + (
                "    x = x.detach().to(torch.float64).requires_grad_()\n"
                "    return torch.autograd.grad(function(x), x)[0].item()\n"
            ),
            _SLOPE
            + "    x, h = x.double(), 1e-12\n    return ((function(x + h) - function(x - h)) / (2 * h)).item()\n",
        ),
    ),
)
