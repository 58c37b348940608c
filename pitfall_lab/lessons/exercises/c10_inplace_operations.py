"""Chapter 10: what a write in place changes, and when it breaks a backward."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Attempt,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    fails,
    in_place,
    runs,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_ENDING = '''\
def ending(lines):
    """Run forward and backward; compare the gradient with differences of the same forward."""

    def forward(x):
        names = {"torch": torch, "x": x}
        exec(lines, names)
        return names["h"].sum()

    def start():
        return torch.tensor([0.5, 1.0], dtype=torch.float64)

    x, numeric = start().requires_grad_(), []
    try:
        forward(x).backward()
    except RuntimeError:
        return "raises"
    for n in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[n] = 1e-6
        numeric.append((forward(start() + step) - forward(start() - step)) / 2e-6)
    return "harmless" if torch.allclose(x.grad, torch.stack(numeric), rtol=1e-4) else "wrong gradient"
'''

_LINES = {
    "h = x * 3; h.mul_(2)": "harmless",
    "h = torch.tanh(x); h += 1": "raises",
    "h = x * x; x.data.zero_()": "wrong gradient",
    "h = torch.sigmoid(x).clone(); h.mul_(2)": "harmless",
    "h = x * x; x.detach().mul_(2)": "raises",
    "x.mul_(2); h = x * 1": "raises",
}


def _endings(answers: dict[str, str]) -> str:
    rows = "".join(f'    "{line}": "{answer}",\n' for line, answer in answers.items())
    return f"endings = {{\n{rows}}}\n"


def _output_modified(attempt: Attempt) -> bool | T:
    """True if backward raises because a linear layer's result was written, and not another
    tensor; else False or the reason.
    """
    verdict = fails("saved-tensor-modified")(attempt)
    failure, trace = attempt.trace().outcome.failure, attempt.trace()
    if verdict is not True or failure is None:
        return verdict
    made = {effect.path for event in trace.events if event.name == "linear" for effect in event.effects}
    return f"storages.{failure.storage}" in made or T(
        en="the tensor that was modified is not what the layer returned", zh="被修改的张量不是层返回的那一个"
    )


_LAYER = '''\
class Layer(nn.Linear):
    """A linear layer that remembers its outputs."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.outputs = []

    def forward(self, x):
        self.outputs.append(super().forward(x))
        return self.outputs[-1]
'''
_COUNTED = """\
from pitfall_lab.verify.counted_writes import CountedWrites

with CountedWrites(w, b) as writes:
    descend([w, b, frozen], rate)
"""

EXERCISES = (
    Exercise(
        key="10.1",
        kind="predict",
        title=T(en="Six lines, three endings", zh="六行，三种结局"),
        task=T(
            en=(
                'Each line is followed by `h.sum().backward()`; `x` is a leaf that requires grad. Write `"harmless"`, '
                '`"raises"` or `"wrong gradient"` **before** you run the cell.'
            ),
            zh=(
                "每一行之后都会执行 `h.sum().backward()`；`x` 是需要梯度的叶子。在运行单元格**之前**，填写 "
                '`"harmless"`、`"raises"` 或 `"wrong gradient"`。'
            ),
        ),
        given=_endings(dict.fromkeys(_LINES, "?")),
        inputs=_ENDING,
        properties=tuple(
            Property(T(en=line, zh=line), equal(f"endings[{line!r}]", f"ending({line!r})", tell=False))
            for line in _LINES
        ),
        hint_for=(1, 1, 2, 1, 2, 2),
        hints=(
            T(
                en="Ask two things of each write: has a node saved this tensor, and is the write counted?",
                zh="对每次写入问两件事：有节点保存了这个张量吗？这次写入被计数了吗？",
            ),
            T(
                en="`x` can be written directly, by `.data` and by `detach()`. Which of them moves the counter of `x`, "
                "and which does torch let through while it records?",
                zh="`x` 可以直接写入，也可以通过 `.data` 或 `detach()` 写入。哪些会移动 `x` 的计数器？"
                "记录期间 torch 又允许哪些？",
            ),
            T(
                en="`* 3` saves nothing of `h`, and neither does `clone()`; sigmoid and tanh save their results; "
                "`x * x` saves `x`. `detach()` shares the counter, `.data` does not.",
                zh="`* 3` 和 `clone()` 都不保存 `h`；sigmoid 和 tanh 保存自己的结果；`x * x` 保存 `x`。"
                "`detach()` 共享计数器，`.data` 不共享。",
            ),
        ),
        right=(
            _endings(_LINES),
            f"endings = dict({list(_LINES.items())!r})\n",
            f"endings = dict(zip({list(_LINES)!r}, {list(_LINES.values())!r}))\n",
            "endings = {}\n" + "".join(f"endings[{line!r}] = {end!r}\n" for line, end in _LINES.items()),
        ),
        wrong=(
            _endings(dict.fromkeys(_LINES, "raises")),
            _endings({**_LINES, "h = x * x; x.data.zero_()": "harmless"}),
            _endings({**_LINES, "h = torch.tanh(x); h += 1": "harmless"}),
            _endings({**_LINES, "h = x * x; x.detach().mul_(2)": "wrong gradient"}),
            _endings({**_LINES, "h = x * 3; h.mul_(2)": "raises"}),
        ),
    ),
    Exercise(
        key="10.2",
        kind="repair",
        title=T(en="An initialisation that raises", zh="会报错的初始化"),
        task=T(
            en=(
                "`initialise` draws the weights and clears the first row. torch refuses. Repair it so that the *same* "
                "parameter is filled, with the numbers drawn as before, and can still be trained afterwards."
            ),
            zh=(
                "`initialise` 随机填充权重并清零第一行，torch 却拒绝执行。请修好它：填充的仍是*同一个*参数，数值的取法"
                "不变，之后仍可训练。"
            ),
        ),
        given="def initialise(weight):\n    weight.uniform_(0.5, 1.0)\n    weight[0].zero_()\n",
        inputs="weight = torch.full(torch.randint(2, 6, (2,)).tolist(), -1.0, requires_grad=True)",
        drive="initialise(weight)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the values are drawn as before", zh="数值的取法不变"), as_solved("weight")),
            Property(T(en="it is the same tensor on the same memory", zh="仍是同一张量、同一内存"), in_place("weight")),
            Property(
                T(en="it is a leaf that requires grad", zh="它仍是需要梯度的叶子"),
                true(
                    "weight.is_leaf and weight.requires_grad",
                    T(en="it cannot be trained any more", zh="它不能再训练了"),
                ),
            ),
            Property(
                T(en="a backward reaches it", zh="backward 能到达它"),
                as_solved("weight.grad", drive="initialise(weight)\n(weight * 2).sum().backward()"),
            ),
        ),
        hints=(
            T(
                en="You mean the values, not a computation that backward should go through.",
                zh="你要改的是数值，而不是 backward 要经过的计算。",
            ),
            T(en="Under which context manager does torch not record?", zh="在哪个上下文管理器下 torch 不做记录？"),
            T(en="Put both lines under `with torch.no_grad():`.", zh="把两行都放进 `with torch.no_grad():`。"),
        ),
        right=(
            "def initialise(weight):\n"
            "    with torch.no_grad():\n"
            "        weight.uniform_(0.5, 1.0)\n"
            "        weight[0].zero_()\n",
            "@torch.no_grad()\ndef initialise(weight):\n    weight.uniform_(0.5, 1.0)\n    weight[0] = 0\n",
            "def initialise(weight):\n    nn.init.uniform_(weight, 0.5, 1.0)\n    weight.detach()[0].zero_()\n",
        ),
        wrong=(
            "def initialise(weight):\n"
            "    weight.requires_grad_(False)\n"
            "    weight.uniform_(0.5, 1.0)\n"
            "    weight[0].zero_()\n",
            (
                "def initialise(weight):\n"
                "    weight = torch.empty(3, 2).uniform_(0.5, 1.0)\n"
                "    weight[0].zero_()\n"
                "    return weight\n"
            ),
            (
                "def initialise(weight):\n"
                "    weight.data = torch.empty(3, 2).uniform_(0.5, 1.0)\n"
                "    weight.data[0].zero_()\n"
            ),
            "def initialise(weight):\n    with torch.no_grad():\n        weight.uniform_(0.5, 1.0)\n",
        ),
    ),
    Exercise(
        key="10.3",
        kind="make-it-fail",
        title=T(en="Harmless after a linear layer?", zh="线性层之后就无害？"),
        task=T(
            en=(
                'A colleague believes: "A linear layer does not save its output, so writing into that output is '
                'always harmless." Show that it is not so. `layer` is an `nn.Linear`. Write into `h` **once** so '
                "that backward raises. You may use `h` for something first."
            ),
            zh=(
                "同事认为：“线性层不保存输出，所以写入它的输出总是无害的。”请证明并非如此。`layer` 是 `nn.Linear`。只"
                "写入 `h` **一次**，使 backward 报错。可以先用 `h` 做点别的。"
            ),
        ),
        given="def counterexample(layer, x):\n"
        "    h = layer(x)\n"
        "    h.relu_()                     # harmless\n"
        "    return h.sum()\n",
        setup=_LAYER,
        inputs="layer, x = Layer(3, 2), torch.randn(4, 3)",
        drive="counterexample(layer, x).backward()",
        properties=(
            Property(T(en="backward raises", zh="backward 报错"), fails("backward")),
            Property(T(en="because a saved tensor was modified", zh="因为保存的张量被修改"), _output_modified),
            Property(
                T(en="the layer's output was written, once", zh="层的输出恰好被写入一次"),
                true(
                    "sum(output._version for output in layer.outputs) == 1",
                    T(en="what the layer returned was not written exactly once", zh="层返回的张量不是恰好被写入一次"),
                ),
            ),
        ),
        hints=(
            T(en="The layer did not save `h`. Who else could?", zh="线性层没有保存 `h`。还有谁会保存它？"),
            T(
                en="Use `h` in an operation that saves its input (`**`, `*`, `log`), and write afterwards.",
                zh="先把 `h` 用在会保存输入的操作里（`**`、`*`、`log`），然后再写入。",
            ),
            T(
                en="`squares = h ** 2`, then `h.add_(1)`, then return `squares.sum()`.",
                zh="`squares = h ** 2`，然后 `h.add_(1)`，再返回 `squares.sum()`。",
            ),
        ),
        right=(
            "def counterexample(layer, x):\n"
            "    h = layer(x)\n"
            "    squares = h ** 2\n"
            "    h.add_(1)\n"
            "    return squares.sum()\n",
            (
                "def counterexample(layer, x):\n"
                "    h = layer(x)\n"
                "    gate = torch.sigmoid(h) * h\n"
                "    h.relu_()\n"
                "    return (gate + h).sum()\n"
            ),
            (
                "def counterexample(layer, x):\n"
                "    h = layer(x)\n"
                "    scaled = layer(torch.zeros(3)) * h\n"
                "    with torch.no_grad():\n"
                "        h.zero_()\n"
                "    return scaled.sum()\n"
            ),
        ),
        wrong=(
            "def counterexample(layer, x):\n    raise RuntimeError('modified by an inplace operation')\n",
            "def counterexample(layer, x):\n    h = torch.sigmoid(layer(x))\n    h.relu_()\n    return h.sum()\n",
            (
                "def counterexample(layer, x):\n"
                "    h = layer(x)\n"
                "    squares = h ** 2\n"
                "    h.add_(1)\n"
                "    h.add_(1)\n"
                "    return squares.sum()\n"
            ),
            (
                "def counterexample(layer, x):\n"
                "    h = layer(x)\n"
                "    squares = h ** 2\n"
                "    h.data.add_(1)\n"
                "    return squares.sum()\n"
            ),
        ),
    ),
    Exercise(
        key="10.4",
        kind="write",
        title=T(en="A step of gradient descent, in place", zh="就地的一步梯度下降"),
        task=T(
            en=(
                "Complete `descend`: subtract `rate` times the gradient from each parameter that has one, **in the "
                "parameter itself**, by one counted write, and reset the gradient afterwards; it must still be "
                "trainable. Parameters without a gradient stay as they are."
            ),
            zh=(
                "补全 `descend`：对每个有梯度的参数，在**参数自身**中减去 `rate` 乘梯度，只写入一次且要被计数，然后重"
                "置梯度；它必须仍可训练。没有梯度的参数保持不变。"
            ),
        ),
        given="def descend(parameters, rate):\n    for p in parameters:\n        p = p - rate * p.grad\n",
        inputs=(
            "w, b = torch.randn(3, requires_grad=True), torch.randn(1, requires_grad=True)\n"
            "frozen = torch.randn(2)\nx = torch.randn(3)\n((w * x).sum() + b - 1).square().sum().backward()\n"
            "rate = torch.rand(()).item() / 10 + 0.01"
        ),
        drive="descend([w, b, frozen], rate)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the new values are right", zh="新数值正确"), as_solved("w", "b")),
            Property(T(en="w is the same tensor on the same memory", zh="w 仍是同一张量、同一内存"), in_place("w")),
            Property(
                T(en="each parameter was written once, and the write was counted", zh="每个参数写入一次，且被计数"),
                every(
                    true(
                        "w._version > 0 and b._version > 0",
                        T(
                            en="the `_version` of a parameter is still 0: nothing was written into it, or the write "
                            "went past the counter",
                            zh="有一个参数的 `_version` 仍是 0：没有写入它，或写入绕过了计数器",
                        ),
                    ),
                    true(
                        "(w._version, b._version) == (1, 1)",
                        T(
                            en="the `_version` of a parameter is above 1: it was written more than once",
                            zh="有一个参数的 `_version` 大于 1：写入不止一次",
                        ),
                    ),
                    true(
                        "writes.uncounted == 0",
                        T(
                            en="a parameter was also changed by a write that went past its counter",
                            zh="还有一次绕过计数器的写入改变了某个参数",
                        ),
                        drive=_COUNTED,
                    ),
                ),
            ),
            Property(
                T(en="both are leaves that require grad", zh="两者仍是需要梯度的叶子"),
                true(
                    "all(p.is_leaf and p.requires_grad for p in (w, b))", T(en="one of them is not", zh="其中一个不是")
                ),
            ),
            Property(
                T(en="afterwards torch records as before", zh="之后 torch 照常记录"),
                every(
                    runs(),
                    true(
                        "torch.is_grad_enabled()",
                        T(en="the recording is still switched off", zh="记录仍处于关闭状态"),
                    ),
                ),
            ),
            Property(
                T(en="the gradients are reset", zh="梯度已重置"),
                true(
                    "all(p.grad is None or not p.grad.any() for p in (w, b))",
                    T(en="the gradient of w or of b is still there", zh="w 或 b 的梯度还在"),
                ),
            ),
            Property(
                T(en="a parameter without a gradient is left alone", zh="没有梯度的参数不受影响"), unchanged("frozen")
            ),
        ),
        hint_for=(2, 0, 1, 2, 2, 2, 3, 3),
        hints=(
            T(
                en="`p = ...` gives the name `p` to a new tensor. Which method writes instead?",
                zh="`p = ...` 只是让名字 `p` 指向新张量。哪个方法才是写入？",
            ),
            T(
                en="A leaf may be written under `torch.no_grad()`; the write is counted there too. A write through "
                "`.data` is not counted.",
                zh="在 `torch.no_grad()` 下可以写入叶子，写入照样计数。通过 `.data` 的写入不计数。",
            ),
            T(
                en="`if p.grad is not None:` then `p.sub_(rate * p.grad)` under `no_grad`, then `p.grad = None`.",
                zh="先判断 `if p.grad is not None:`，在 `no_grad` 下 `p.sub_(rate * p.grad)`，然后 `p.grad = None`。",
            ),
        ),
        right=(
            "def descend(parameters, rate):\n"
            "    for p in parameters:\n"
            "        if p.grad is not None:\n"
            "            with torch.no_grad():\n"
            "                p.sub_(rate * p.grad)\n"
            "            p.grad = None\n",
            (
                "@torch.no_grad()\n"
                "def descend(parameters, rate):\n"
                "    for p in parameters:\n"
                "        if p.grad is None:\n"
                "            continue\n"
                "        p -= rate * p.grad\n"
                "        p.grad.zero_()\n"
            ),
            (
                "def descend(parameters, rate):\n"
                "    for p in [p for p in parameters if p.grad is not None]:\n"
                "        p.detach().sub_(p.grad, alpha=rate)\n"
                "        p.grad = None\n"
            ),
            (
                "def descend(parameters, rate):\n"
                "    before = torch.is_grad_enabled()\n"
                "    torch.set_grad_enabled(False)\n"
                "    for p in parameters:\n"
                "        if p.grad is not None:\n"
                "            p.add_(-rate * p.grad)\n"
                "            p.grad = None\n"
                "    torch.set_grad_enabled(before)\n"
            ),
        ),
        wrong=(
            "def descend(parameters, rate):\n"
            "    for p in parameters:\n"
            "        if p.grad is not None:\n"
            "            p.data -= rate * p.grad\n"
            "            p.grad = None\n",
            (
                "def descend(parameters, rate):\n"
                "    with torch.no_grad():\n"
                "        for p in parameters:\n"
                "            if p.grad is not None:\n"
                "                p -= rate * p.grad\n"
            ),
            (
                "def descend(parameters, rate):\n"
                "    with torch.no_grad():\n"
                "        for p in parameters:\n"
                "            if p.grad is not None:\n"
                "                p.zero_()\n"
                "                p.grad = None\n"
            ),
            (
                "def descend(parameters, rate):\n"
                "    for p in parameters:\n"
                "        if p.grad is not None:\n"
                "            p.data = p.data - rate * p.grad\n"
                "            p.grad = None\n"
            ),
        ),
    ),
)
