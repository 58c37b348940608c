"""Chapter 17: custom Functions, what they save and what they owe."""

from __future__ import annotations

from collections.abc import Mapping

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    gradient_as_solved,
    runs,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_SCALE = """\
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, factor, power):
        ctx.t, ctx.factor, ctx.power = t, factor, power
        return factor * t**power

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * ctx.power * ctx.t ** (ctx.power - 1)
"""

_SCALED = """\
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, factor, power):
        ctx.save_for_backward(t)
        ctx.factor, ctx.power = factor, power
        return factor * t**power

    @staticmethod
    def backward(ctx, gradient):
        (t,) = ctx.saved_tensors
        return gradient * ctx.factor * ctx.power * t ** (ctx.power - 1), None, None
"""

_CHANGED = """\
out, kept, refused = Scale.apply(h, 3.0, 2), h.detach().clone(), False
h.mul_(2)
try:
    (out * weights).sum().backward()
except RuntimeError as error:
    refused = "modified by an inplace operation" in str(error)
"""

_ROUNDED = """\
def rounded(t):
    return torch.round(t)
"""

_FAKE = """\
class Fake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t**3

    @staticmethod
    def backward(ctx, gradient):
        (t,) = ctx.saved_tensors
        return 3 * t**2 * gradient
"""

_SLOPES = {
    "torch.maximum(x, -x)": 0,
    "torch.relu(x) - torch.relu(-x)": 0,
    "x.clamp(min=0) - (-x).clamp(min=0)": 2,
    "torch.where(x >= 0, x, 0 * x)": 1,
    "torch.where(x > 0, x, -x)": -1,
}

_SLOPE = """\
def slope(expression):
    x = torch.zeros((), requires_grad=True)
    eval(expression, {"torch": torch, "x": x}).backward()
    return x.grad.item()
"""


def _slopes(answers: Mapping[str, float | None]) -> str:
    return "slopes = {\n" + "".join(f'    "{line}": {slope},\n' for line, slope in answers.items()) + "}\n"


EXERCISES = (
    Exercise(
        key="17.1",
        kind="repair",
        title=T(en="A Function that forgets to watch", zh="忘了监视的 Function"),
        task=T(
            en=(
                "`Scale.apply(t, factor, power)` computes `factor * t**power`; `factor` and `power` are plain "
                "numbers. It has two mistakes. Because of the first, backward raises. Because of the second, "
                "a write into `t` between forward and backward gives a wrong gradient in silence; after your "
                "repair torch must refuse such a write, or it must do no harm. `Scale` stays one Function, "
                "and so one node of the graph."
            ),
            zh=(
                "`Scale.apply(t, factor, power)` 计算 `factor * t**power`；`factor` 和 `power` 是普通的数。它有两个错"
                "误。第一个使 backward 报错。由于第二个，在 forward 与 backward 之间写入 `t` 会无声地给出错误的梯度；"
                "修好之后，torch 必须拒绝这样的写入，或者写入不造成危害。`Scale` 仍是一个 Function，即图中的一个节点。"
            ),
        ),
        given=_SCALE,
        inputs="t = (torch.rand(4) + 0.5).requires_grad_()\nh = t * 1\nweights = torch.randn(4)",
        drive="out = Scale.apply(h, 3.0, 2)\n(out * weights).sum().backward()",
        properties=(
            Property(T(en="the value is right", zh="值正确"), as_solved("out.detach()")),
            Property(T(en="the gradient is right", zh="梯度正确"), gradient_as_solved("t")),
            Property(
                T(en="the gradient is right with another factor and power, too", zh="换一个系数和幂次，梯度也正确"),
                gradient_as_solved(
                    "t",
                    drive="factor, power = torch.randn(()).item(), int(torch.randint(3, 7, ()))\n"
                    "out = Scale.apply(h, factor, power)\n(out * weights).sum().backward()",
                ),
            ),
            Property(
                T(
                    en="a change of the input before backward is refused, or does no harm",
                    zh="backward 之前改动输入会被拒绝，或不造成危害",
                ),
                true(
                    "refused or (t.grad is not None and torch.allclose(t.grad, 6 * kept * weights))",
                    T(
                        en="torch did not refuse the write, and the gradient is not right",
                        zh="torch 没有拒绝写入，梯度也不正确",
                    ),
                    drive=_CHANGED,
                ),
            ),
            Property(
                T(en="`Scale` is one node of the graph", zh="`Scale` 是图中的一个节点"),
                every(
                    true(
                        "issubclass(Scale, torch.autograd.Function)",
                        T(
                            en="`Scale` is no subclass of `torch.autograd.Function` any more",
                            zh="`Scale` 不再是 `torch.autograd.Function` 的子类",
                        ),
                    ),
                    true(
                        "out.grad_fn.name() == 'ScaleBackward'",
                        T(en="the result comes from another node", zh="结果来自另一个节点"),
                    ),
                ),
            ),
        ),
        hint_for=(0, 1, 1, 2, 0),
        hints=(
            T(
                en="How many inputs does forward have, how many gradients does backward return, and what is each "
                "multiplied by?",
                zh="forward 有几个输入？backward 返回几个梯度？每个梯度又乘以什么？",
            ),
            T(
                en="Numbers may stay attributes of ctx. Tensors have a better place.",
                zh="数字可以作为 ctx 的属性。张量有更好的去处。",
            ),
            T(
                en="`ctx.save_for_backward(t)`, and `, None, None` at the end.",
                zh="使用 `ctx.save_for_backward(t)`，并在末尾加上 `, None, None`。",
            ),
        ),
        right=(
            _SCALED,
            _SCALED.replace("save_for_backward(t)", "save_for_backward(t.clone())"),
            _SCALE.replace("= t, factor", "= t.clone(), factor").replace(
                "** (ctx.power - 1)", "** (ctx.power - 1), None, None"
            ),
            (
                "class Scale(torch.autograd.Function):\n"
                "    @staticmethod\n"
                "    def forward(t, factor, power):\n"
                "        return factor * t**power\n"
                "\n"
                "    @staticmethod\n"
                "    def setup_context(ctx, inputs, output):\n"
                "        t, ctx.factor, ctx.power = inputs\n"
                "        ctx.save_for_backward(t)\n"
                "\n"
                "    @staticmethod\n"
                "    def backward(ctx, gradient):\n"
                "        (t,) = ctx.saved_tensors\n"
                "        slope = ctx.factor * ctx.power * t ** (ctx.power - 1)\n"
                "        return gradient * slope, None, None\n"
            ),
        ),
        wrong=(
            _SCALE.replace("** (ctx.power - 1)", "** (ctx.power - 1), None, None"),
            _SCALED.replace(", None, None", ""),
            _SCALED.replace("ctx.power * t", "t"),
            _SCALED.replace("return gradient * ctx", "return ctx"),
            _SCALED.replace("return gradient * ctx", "return gradient.sum() * ctx"),
            _SCALED.replace("ctx.power * t ** (ctx.power - 1)", "2 * t"),
            _SCALED.replace("save_for_backward(t)", "t = t").replace(
                "        (t,) = ctx.saved_tensors\n", "        t = ctx.t\n"
            ),
        ),
    ),
    Exercise(
        key="17.2",
        kind="write",
        title=T(en="Straight through", zh="直通估计"),
        task=T(
            en=(
                "Write `rounded(t)`: it rounds in forward, as `torch.round` does, and in backward it passes the "
                'gradient on unchanged (the "straight-through estimator"). `t` itself stays as it is.'
            ),
            zh="编写 `rounded(t)`：前向像 `torch.round` 那样取整，反向让梯度原样通过（“直通估计”）。`t` 本身保持不变。",
        ),
        given=_ROUNDED,
        inputs="t = torch.cat([5 * torch.randn(6), torch.tensor([-1.5, 0.5, 2.5])]).requires_grad_()\n"
        "weights = torch.randn(9)",
        drive="out = rounded(t)\n(out * weights).sum().backward()",
        properties=(
            Property(
                T(en="the values are rounded", zh="值已取整"),
                every(
                    runs(),
                    true(
                        "torch.allclose(out.detach(), torch.round(before['t'].value.detach()), atol=1e-5)",
                        T(en="they are not those of torch.round", zh="它们不是 torch.round 的值"),
                    ),
                ),
            ),
            Property(
                T(en="the gradient passes unchanged", zh="梯度原样通过"),
                every(
                    runs(),
                    true("t.grad is not None", T(en="t.grad is None", zh="t.grad 是 None")),
                    true(
                        "torch.allclose(t.grad, weights)",
                        T(en="t.grad is not the gradient that came in", zh="t.grad 不是传进来的梯度"),
                    ),
                ),
            ),
            Property(T(en="the argument is unchanged", zh="参数未被改动"), unchanged("t")),
        ),
        hints=(
            T(en="The derivative of round is 0. You want another one.", zh="round 的导数是 0。你想要另一个。"),
            T(
                en="A Function whose backward returns its gradient, or a trick with detach.",
                zh="写一个 backward 直接返回梯度的 Function，或者借助 detach。",
            ),
            T(
                en="`t + (torch.round(t) - t).detach()` has the value of one and the gradient of the other.",
                zh="`t + (torch.round(t) - t).detach()` 取一个的值、另一个的梯度。",
            ),
        ),
        right=(
            "class Rounded(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, t):\n"
            "        return torch.round(t)\n"
            "\n"
            "    @staticmethod\n"
            "    def backward(ctx, gradient):\n"
            "        return gradient\n"
            "\n"
            "\n"
            "def rounded(t):\n"
            "    return Rounded.apply(t)\n",
            "def rounded(t):\n    return t + (torch.round(t) - t).detach()\n",
            (
                "def rounded(t):\n"
                "    class Through(torch.autograd.Function):\n"
                "        @staticmethod\n"
                "        def forward(ctx, u):\n"
                "            return u.round()\n"
                "\n"
                "        @staticmethod\n"
                "        def backward(ctx, g):\n"
                "            return g.clone()\n"
                "\n"
                "    return Through.apply(t)\n"
            ),
        ),
        wrong=(
            "def rounded(t):\n    return t\n",
            "def rounded(t):\n    return torch.round(t).detach().requires_grad_()\n",
            "def rounded(t):\n    t.data.round_()\n    return t * 1\n",
        ),
    ),
    Exercise(
        key="17.3",
        kind="make-it-fail",
        title=T(en="Fool a weak test", zh="骗过薄弱的测试"),
        task=T(
            en=(
                'Someone checks a derivative with one assertion: "the gradient of the sum at 1 is 3". Write a '
                "Function `Fake` that passes this test, computes the cube in forward, and has a derivative that is "
                "wrong by more than 5 % for at least one other input. It is tried at 0, at -1 and at many other "
                "numbers, small and large."
            ),
            zh=(
                "有人只用一个断言检查导数：“和在 1 处的梯度是 3”。编写 Function `Fake`：它通过这个测试，前向计算立方，"
                "而至少对一个其他输入，导数的错误超过 5 %。它会在 0、-1 以及许多其他或大或小的数上试用。"
            ),
        ),
        given=_FAKE,
        inputs="t = torch.cat([torch.linspace(-4, 4, 33), torch.randn(9) * 20, torch.randn(9) * 1000, torch.randn(9) "
        "/ 100]).requires_grad_()\n"
        "one = torch.ones(2, requires_grad=True)",
        drive="Fake.apply(one).sum().backward()\nout = Fake.apply(t)\nout.sum().backward()",
        properties=(
            Property(
                T(en="the weak test passes", zh="薄弱的测试通过"),
                every(
                    runs(),
                    true(
                        "one.grad is not None and torch.allclose(one.grad, torch.full((2,), 3.0))",
                        T(en="the gradient at 1 is not 3", zh="1 处的梯度不是 3"),
                    ),
                ),
            ),
            Property(
                T(en="forward is the cube", zh="前向是立方"),
                every(
                    runs(),
                    true("torch.allclose(out.detach(), t.detach() ** 3)", T(en="it has other values", zh="它的值不同")),
                ),
            ),
            Property(
                T(en="the gradient is wrong for some other input", zh="在某些其他输入处梯度错误"),
                true(
                    "t.grad is not None and not torch.allclose(t.grad, 3 * t.detach() ** 2, rtol=0.05)",
                    T(
                        en="at each of the numbers it is right, or wrong by less than 5 %",
                        zh="在每个数上它都正确，或错误小于 5 %",
                    ),
                ),
            ),
        ),
        hints=(
            T(en="Which powers of 1 are 1?", zh="1 的哪些次幂等于 1？"),
            T(en="A test at one point cannot tell t from t².", zh="只在一点测试，分不清 t 和 t²。"),
            T(
                en="Return `3 * t * gradient`. gradcheck on random points would notice.",
                zh="返回 `3 * t * gradient`。在随机点上 gradcheck 会发现。",
            ),
        ),
        right=(
            _FAKE.replace("t**2", "t"),
            _FAKE.replace("3 * t**2", "(2 + t**2)"),
            _FAKE.replace("3 * t**2", "3 * t * t.abs()"),
            _FAKE.replace("3 * t**2", "torch.where(t > 3, 0, 3 * t**2)"),
            _FAKE.replace("3 * t**2", "torch.where(t.abs() > 100, 0, 3 * t**2)"),
            _FAKE.replace("3 * t**2", "torch.where(t.abs() < 0.1, 0, 3 * t**2)"),
            _FAKE.replace("3 * t**2", "3"),
        ),
        wrong=(
            _FAKE.replace("3 * t**2", "2 * t**2"),
            _FAKE.replace("return t**3", "return t**2").replace("3 * t**2", "3 * t"),
            _FAKE.replace("t**2 * gradient", "t.square() * gradient"),
            _FAKE.replace("3 * t**2", "3.01 * t**2"),
            _FAKE.replace("return t**3", "return 3 * t").replace("3 * t**2", "3"),
        ),
    ),
    Exercise(
        key="17.4",
        kind="predict",
        title=T(en="Which slope at the kink?", zh="拐点处的斜率是多少？"),
        task=T(
            en=(
                "What does backward give exactly at `x = 0`, for each of these? (The second and the third are two "
                "ways to write `x` itself.) Write numbers, **before** you run anything."
            ),
            zh="对下列每一个，backward 在 `x = 0` 处恰好给出什么？（第二个和第三个是 `x` 本身的两种写法。）在运行任何"
            "代码**之前**写出数字。",
        ),
        given=_slopes(dict.fromkeys(_SLOPES)),
        inputs=_SLOPE,
        properties=tuple(
            Property(T(en=line, zh=line), equal(f"slopes[{line!r}]", f"slope({line!r})", tell=False))
            for line in _SLOPES
        ),
        hint_for=(2, 1, 1, 3, 3),
        hints=(
            T(
                en="At 0 torch chooses a slope: 0 for relu, 1 for clamp. The chain rule brings in the sign of `-x`.",
                zh="在 0 处 torch 选定一个斜率：relu 取 0，clamp 取 1。`-x` 的符号由链式法则带入。",
            ),
            T(
                en="Where both arguments are equal, `maximum` gives each of them half of the gradient. Here they are "
                "`x` and `-x`, with the slopes 1 and −1.",
                zh="两个参数相等时，`maximum` 给两者各一半的梯度。这里两者是 `x` 和 `-x`，斜率是 1 和 −1。",
            ),
            T(
                en="At 0, `x >= 0` is true and `x > 0` is false. What is the slope of the branch that is chosen?",
                zh="在 0 处 `x >= 0` 为真，`x > 0` 为假。被选中的分支斜率是多少？",
            ),
        ),
        right=(
            _slopes(_SLOPES),
            _slopes({line: float(slope) for line, slope in _SLOPES.items()}),
            f"slopes = dict({list(_SLOPES.items())!r})\n",
            f"slopes = dict(zip({list(_SLOPES)!r}, (0, 0, 2, 1, -1)))\n",
        ),
        wrong=(
            _slopes(dict.fromkeys(_SLOPES, 0)),
            _slopes({**_SLOPES, "x.clamp(min=0) - (-x).clamp(min=0)": 1}),
            _slopes({**_SLOPES, "torch.relu(x) - torch.relu(-x)": 1}),
            _slopes({**_SLOPES, "torch.where(x > 0, x, -x)": 0}),
            _slopes({**_SLOPES, "torch.maximum(x, -x)": 0.5}),
        ),
    ),
)
