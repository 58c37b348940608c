"""Chapter 18: what saves memory, and what only looks as if it did."""

from __future__ import annotations

from collections.abc import Mapping

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_many_calls,
    as_solved,
    equal,
    every,
    gradient_as_solved,
    runs,
    storages,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_ACTIVATE = """\
def activate(x, bias):
    h = torch.sigmoid(x)
    h.mul_(2)
    h.add_(bias)
    return h
"""

_TABLES = (
    "x, bias = (torch.randn(torch.Size(sizes), requires_grad=True) for sizes in [torch.randint(2, 6, "
    "(2,)).tolist()] * 2)"
)

_NEAREST = """\
def nearest(queries, keys):
    found = []
    for q in queries:
        distances = [((q - k) ** 2).sum().item() for k in keys]
        found.append(distances.index(min(distances)))
    return torch.tensor(found)
"""

_FOUND = """\
def nearest(queries, keys):
    products = queries @ keys.T
    return ((keys ** 2).sum(dim=1) - 2 * products).argmin(dim=1)
"""

_MANY = "queries, keys = torch.randn(20, 5), torch.randn(25, 5)"

# N · M numbers are 2 kB, N · M · D are 1.6 MB; modules are loaded in the first call
_TRACED = """\
nearest(queries, keys)
tracemalloc.start()
try:
    nearest(queries, keys)
    peak = tracemalloc.get_traced_memory()[1]
finally:
    tracemalloc.stop()
"""

_SCALED = """\
def scaled_gradient(w, loss_of, scale):
    loss = loss_of(w)
    (gradient,) = torch.autograd.grad(loss, w)
    return gradient.float()
"""

_NUMBERS = {
    "3e-8": "rounded",
    "2**-25": "zero",
    "2**-20": "exact",
    "4098": "rounded",
    "65519": "rounded",
    "65520": "infinity",
}

_NUMBER = """\
def fate(text):
    value = float(eval(text))
    half = torch.tensor(value, dtype=torch.float64).half().item()
    return "zero" if half == 0 else "infinity" if half == float("inf") else "exact" if half == value else "rounded"
"""


def _numbers(answers: Mapping[str, str]) -> str:
    return "becomes = {\n" + "".join(f'    "{text}": "{fate}",\n' for text, fate in answers.items()) + "}\n"


EXERCISES = (
    Exercise(
        key="18.1",
        kind="repair",
        title=T(en="In place where it is free", zh="在不付代价处就地写入"),
        task=T(
            en=(
                "`activate(x, bias)` computes `2 · sigmoid(x) + bias`, and it raises in backward. Give it the right "
                "gradient, and save memory: at most two new tensors of the size of `x` may be made. `x` and `bias` "
                "have the same shape and require grad; leave both unchanged."
            ),
            zh=(
                "`activate(x, bias)` 计算 `2 · sigmoid(x) + bias`，并在 backward 时报错。请得到正确的梯度，并节省内"
                "存：至多新建两个与 `x` 一样大的张量。`x` 和 `bias` 形状相同、需要梯度；两者都保持不变。"
            ),
        ),
        given=_ACTIVATE,
        inputs="x, bias = torch.randn(50, requires_grad=True), torch.randn(50, requires_grad=True)",
        drive="out = activate(x, bias)\nout.square().sum().backward()",
        properties=(
            Property(T(en="backward runs", zh="backward 能运行"), runs()),
            Property(
                T(en="the value is right", zh="值正确"),
                every(as_solved("out.detach()"), as_solved("out.detach()", inputs=_TABLES)),
            ),
            Property(T(en="the gradient is right", zh="梯度正确"), gradient_as_solved("x", "bias")),
            Property(T(en="x is unchanged", zh="x 没有改变"), unchanged("x")),
            Property(T(en="bias is unchanged", zh="bias 没有改变"), unchanged("bias")),
            Property(
                T(en="at most two new tensors of full size are made", zh="最多新建两个完整大小的张量"),
                storages(2, elements=50, drive="out = activate(x, bias)"),
            ),
        ),
        hint_for=(1, 0, 0, 0, 0, 2),
        hints=(
            T(en="Which of the operations has saved its result?", zh="哪个操作保存了自己的结果？"),
            T(
                en="sigmoid needs its result; a product with a number needs nothing.",
                zh="sigmoid 需要自己的结果；与数字相乘什么都不需要。",
            ),
            T(
                en="`h = torch.sigmoid(x) * 2`, then `h.add_(bias)`.",
                zh="`h = torch.sigmoid(x) * 2`，然后 `h.add_(bias)`。",
            ),
        ),
        right=(
            _ACTIVATE.replace("    h.mul_(2)\n", "    h = h * 2\n"),
            "def activate(x, bias):\n    return torch.sigmoid(x).mul(2).add_(bias)\n",
            "def activate(x, bias):\n    return torch.add(bias, torch.sigmoid(x), alpha=2)\n",
            "def activate(x, bias):\n    h = x.sigmoid() * 2\n    h += bias\n    return h\n",
        ),
        wrong=(
            "def activate(x, bias):\n    h = torch.sigmoid(x)\n    h = h * 2\n    h = h + bias\n    return h\n",
            _ACTIVATE.replace("h.mul_(2)", "h.data.mul_(2)"),
            "def activate(x, bias):\n    with torch.no_grad():\n        return torch.sigmoid(x).mul_(2).add_(bias)\n",
            "def activate(x, bias):\n    return torch.sigmoid(x).mul(2).add_(bias.detach())\n",
            "def activate(x, bias):\n    return bias.data.add_(torch.sigmoid(x), alpha=2)\n",
            _ACTIVATE.replace("torch.sigmoid(x)", "torch.sigmoid(x).detach().requires_grad_() * 1"),
        ),
    ),
    Exercise(
        key="18.2",
        kind="write",
        title=T(en="All rows at once", zh="所有行一次算完"),
        task=T(
            en=(
                "`nearest(queries, keys)` returns for each of N queries the index of the nearest of M keys, by the "
                "squared distance. It is right, and slow: it goes row by row. Write it without a loop, so that the "
                "number of calls of torch does not grow with N and M. Memory counts, too: no tensor or array with more "
                "than N · M numbers may be made. `queries` has shape (N, D), `keys` (M, D); both stay unchanged; all "
                "points are near the origin. The result is int64, of shape (N,)."
            ),
            zh=(
                "`nearest(queries, keys)` 为 N 个查询各返回 M 个键中（按平方距离）最近的那个的编号。它是对的，"
                "但很慢：逐行计算。请改写，使 torch 的调用次数不随 N 和 M 增长。内存也要紧：不得产生多于 N · "
                "M 个数的张量或数组。`queries` 的形状是 (N, D)，`keys` 是 (M, D)；两者都保持不变；所有点都在原点附"
                "近。结果是 int64，形状 (N,)。"
            ),
        ),
        given=_NEAREST,
        inputs="queries, keys = torch.randn(8, 5), torch.randn(9, 5)",
        drive="found = nearest(queries, keys)",
        properties=(
            Property(T(en="the indices are right", zh="编号正确"), as_solved("found.tolist()")),
            Property(
                T(en="they are int64, one for each query", zh="它们是 int64，每个查询一个"),
                true(
                    "found.dtype == torch.int64 and found.shape == (8,)",
                    T(en="another dtype or shape", zh="dtype 或形状不同"),
                ),
            ),
            Property(
                T(
                    en="there is no loop at all, and more rows take no more calls of torch",
                    zh="完全没有循环，并且行数变多时 torch 的调用次数不变",
                ),
                as_many_calls(_MANY, drive="found = nearest(queries, keys).tolist()"),
            ),
            Property(
                T(en="no tensor or array has more than N · M numbers", zh="没有多于 N · M 个数的张量或数组"),
                every(
                    storages(
                        0,
                        elements=20 * 25 + 1,
                        made_for=T(en="20 queries and 25 keys", zh="20 个查询和 25 个键"),
                        inputs=_MANY,
                    ),
                    true(
                        "peak < 1_000_000",
                        T(
                            en="Python's own objects or NumPy's arrays take far more memory than that",
                            zh="Python 自己的对象或 NumPy 数组占用的内存远超于此",
                        ),
                        inputs="import tracemalloc\n\nqueries, keys = torch.randn(20, 800), torch.randn(25, 800)",
                        drive=_TRACED,
                        seeds=(0,),
                    ),
                ),
            ),
            Property(
                T(en="the arguments are unchanged", zh="参数未被改动"),
                true(
                    "unchanged('queries') and unchanged('keys')",
                    T(en="queries or keys were changed", zh="queries 或 keys 被改动了"),
                ),
            ),
        ),
        hint_for=(0, 0, 1, 2, 0),
        hints=(
            T(
                en="Broadcasting (N, 1, D) against (M, D) needs no loop. How many numbers does it make?",
                zh="让 (N, 1, D) 与 (M, D) 广播不需要循环。它会产生多少个数？",
            ),
            T(
                en="Write out |q − k|². Which part is a matrix product, and which does not depend on the key?",
                zh="把 |q − k|² 展开。哪一部分是矩阵乘积，哪一部分与键无关？",
            ),
            T(
                en="The smallest |k|² − 2 q·k is at the nearest key: `(keys**2).sum(dim=1) - 2 * queries @ keys.T`, "
                "then `argmin(dim=1)`.",
                zh="|k|² − 2 q·k 最小处就是最近的键：`(keys**2).sum(dim=1) - 2 * queries @ keys.T`，"
                "再 `argmin(dim=1)`。",
            ),
        ),
        right=(
            _FOUND,
            "def nearest(queries, keys):\n    return torch.cdist(queries, keys).argmin(dim=1)\n",
            "def nearest(queries, keys):\n    scores = torch.einsum('nd,md->nm', queries, keys)\n"
            "    return (2 * scores - keys.square().sum(-1)).max(dim=1).indices\n",
            (
                "def nearest(queries, keys):\n"
                "    lengths = torch.einsum('md,md->m', keys, keys)\n"
                "    return torch.addmm(lengths, queries, keys.T, alpha=-2).topk(1, dim=1, "
                "largest=False).indices.squeeze(1)\n"
            ),
        ),
        wrong=(
            "def nearest(queries, keys):\n    return ((queries[:, None] - keys) ** 2).sum(dim=-1).argmin(dim=1)\n",
            (
                "def nearest(queries, keys):\n"
                "    return torch.stack([((keys - q) ** 2).sum(dim=1).argmin() for q in queries])\n"
            ),
            "def nearest(queries, keys):\n    return (queries @ keys.T).argmax(dim=1)\n",
            _FOUND.replace("argmin(dim=1)", "argmin(dim=0)"),
            _FOUND.replace("argmin(dim=1)", "min(dim=1).values"),
            _FOUND.replace("- 2 * products", "- products"),
        ),
    ),
    Exercise(
        key="18.3",
        kind="write",
        title=T(en="Scale the loss", zh="缩放损失"),
        task=T(
            en=(
                "Complete `scaled_gradient(w, loss_of, scale)`: `w` is a float16 leaf, `loss_of(w)` returns a loss. "
                "Return the gradient of `w`, computed with the loss multiplied by `scale`, converted to float32 and "
                "*then* divided again. `w.grad` is None before, and must be None afterwards."
            ),
            zh=(
                "补全 `scaled_gradient(w, loss_of, scale)`：`w` 是 float16 叶子，`loss_of(w)` 返回损失。返"
                "回 `w` 的梯度：用乘以 `scale` 的损失计算，转换为 float32，*然后*再除回来。`w.grad` 之前"
                "是 None，之后也必须是 None。"
            ),
        ),
        given=_SCALED,
        inputs="""\
w = (torch.rand(4) + 0.5).half().requires_grad_()
parts = (torch.rand(4) + 0.5).half()
tiny = torch.tensor(1e-4, dtype=torch.float16)
scales = []


def loss_of(w):
    loss = (w * tiny * tiny * 2 * parts).sum()
    loss.register_hook(lambda gradient: scales.append(gradient.item()))
    return loss
""",
        drive="found = scaled_gradient(w, loss_of, 2.0**14)",
        properties=(
            Property(
                T(en="the gradient has not vanished", zh="梯度没有消失"),
                every(
                    runs(),
                    true(
                        "bool(found.abs().min() > 1e-9)",
                        T(
                            en="an element of it is 0 (what is divided in float16 may become 0 once more)",
                            zh="其中有元素是 0（在 float16 中再除，可能又变成 0）",
                        ),
                    ),
                ),
            ),
            Property(
                T(en="it is the gradient of the loss itself", zh="它是损失本身的梯度"),
                every(
                    runs(),
                    true(
                        "torch.allclose(found.float(), 2e-8 * parts.float(), rtol=0.02, atol=0.0)",
                        T(
                            en="it is larger or smaller than that, by more than rounding",
                            zh="它比那个梯度大或小，超出了舍入误差",
                        ),
                    ),
                ),
            ),
            Property(T(en="it comes in float32", zh="以 float32 返回"), true("found.dtype == torch.float32")),
            Property(
                T(en="`w.grad` is untouched", zh="`w.grad` 未被改动"),
                true(
                    "w.grad is None",
                    T(
                        en="`backward()` fills it; `torch.autograd.grad` returns a gradient and leaves it alone",
                        zh="`backward()` 会写入它；`torch.autograd.grad` 返回梯度而不碰它",
                    ),
                ),
            ),
            Property(
                T(en="another scale gives the same gradient", zh="换一个倍数，梯度相同"),
                true(
                    "torch.allclose(found.float(), 2e-8 * parts.float(), rtol=0.02, atol=0.0) "
                    "and scales[-1:] == [2.0**12]",
                    T(
                        en="the gradient differs, or the loss was multiplied by another number",
                        zh="梯度不同，或损失乘的是另一个数",
                    ),
                    drive="found = scaled_gradient(w, loss_of, 2.0**12)",
                ),
            ),
        ),
        hint_for=(1, 3, 3, 0, 0),
        hints=(
            T(
                en="Where does the small number become zero: in the loss, or on the way back?",
                zh="小的数在哪里变成零：在损失里，还是在返回的路上？",
            ),
            T(
                en="Backward starts with a 1. Let it start with something larger.",
                zh="backward 从 1 开始。让它从更大的数开始。",
            ),
            T(
                en="Differentiate `loss * scale`; convert to float32 *before* you divide.",
                zh="对 `loss * scale` 求导；*先*转成 float32 再除。",
            ),
        ),
        right=(
            _SCALED.replace("torch.autograd.grad(loss, w)", "torch.autograd.grad(loss * scale, w)").replace(
                "gradient.float()", "gradient.float() / scale"
            ),
            "def scaled_gradient(w, loss_of, scale):\n    loss = loss_of(w)\n    start = torch.full_like(loss, scale)\n"
            "    return torch.autograd.grad(loss, w, start)[0].to(torch.float32).div(scale)\n",
        ),
        wrong=(
            _SCALED.replace("torch.autograd.grad(loss, w)", "torch.autograd.grad(loss * scale, w)"),
            _SCALED.replace("torch.autograd.grad(loss, w)", "torch.autograd.grad(loss * scale, w)").replace(
                "gradient.float()", "(gradient / scale).float()"
            ),
            _SCALED.replace("return gradient.float()", "return torch.full((4,), 2.5e-8)"),
        ),
    ),
    Exercise(
        key="18.4",
        kind="predict",
        title=T(en="What float16 makes of it", zh="float16 会把它变成什么"),
        task=T(
            en=(
                'Each number is converted to float16. Write `"zero"`, `"infinity"`, `"exact"` or `"rounded"`, '
                "**before** you run anything."
            ),
            zh='每个数都转换为 float16。在运行任何代码**之前**，填写 `"zero"`、`"infinity"`、'
            '`"exact"` 或 `"rounded"`。',
        ),
        given=_numbers(dict.fromkeys(_NUMBERS, "?")),
        inputs=_NUMBER,
        properties=tuple(
            Property(T(en=text, zh=text), equal(f"becomes[{text!r}]", f"fate({text!r})", tell=False))
            for text in _NUMBERS
        ),
        hint_for=(2, 2, 1, 1, 2, 2),
        hints=(
            T(
                en="float16 has 11 binary digits. From where on are its integers 2 apart, and from where on 4?",
                zh="float16 有 11 位二进制数字。它的整数从哪里起相隔 2，从哪里起相隔 4？",
            ),
            T(
                en="Write down its smallest number above zero, and its largest. What lies between two numbers goes to "
                "the nearer one, and a tie to the even one.",
                zh="写下它大于零的最小的数和最大的数。两个可表示的数之间的值取较近的那个，平局取偶数。",
            ),
            T(
                en="The smallest is 2**-24, the largest 65,504, and the next would be 65,536. Between 4096 and 8192 it "
                "has every fourth integer. 2**-25 and 65,520 are ties.",
                zh="最小的是 2**-24，最大的是 65504，再下一个本应是 65536。在 4096 与 8192 之间它有每第四个整数。"
                "2**-25 和 65520 是平局。",
            ),
        ),
        right=(
            _numbers(_NUMBERS),
            f"becomes = dict({list(_NUMBERS.items())!r})\n",
            f"becomes = dict(zip({list(_NUMBERS)!r}, {list(_NUMBERS.values())!r}))\n",
            "becomes = {}\nfor text in ("
            + ", ".join(map(repr, _NUMBERS))
            + (
                "):\n"
                "    value = eval(text)\n"
                "    half = torch.tensor(float(value)).half().item()\n"
                '    becomes[text] = "zero" if half == 0 else "infinity" if half == float("inf") else "exact" '
                'if half == value else "rounded"\n'
            ),
        ),
        wrong=(
            _numbers(dict.fromkeys(_NUMBERS, "rounded")),
            _numbers({**_NUMBERS, "3e-8": "zero"}),
            _numbers({**_NUMBERS, "4098": "exact"}),
            _numbers({**_NUMBERS, "2**-20": "zero"}),
            _numbers({**_NUMBERS, "65519": "infinity"}),
            _numbers({**_NUMBERS, "2**-25": "exact"}),
        ),
    ),
)
