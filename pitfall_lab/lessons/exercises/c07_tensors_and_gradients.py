"""Chapter 7: what carries a gradient, and what has to happen when."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    gradient_as_solved,
    true,
    updated_once,
)
from pitfall_lab.trace import T

_REPORT = """\
def loss_and_report(x, target):
    whole = x.to(torch.int64)
    loss = ((whole.to(torch.float32) - target) ** 2).sum()
    return loss, whole.tolist()
"""

_REPORTED = """\
def loss_and_report(x, target):
    whole = x.to(torch.int64)
    loss = ((x - target) ** 2).sum()
    return loss, whole.tolist()
"""

_STEP = """\
def step(model, optimizer, loss, limit):
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    loss.backward()
    optimizer.step()
    return norm
"""

_STEPPED = """\
def step(model, optimizer, loss, limit):
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad()
    return norm.item()
"""

_LARGE = """\
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=torch.rand(()).item() + 0.5, weight_decay=0.5)
loss = 50 * model(torch.randn(4, 3)).square().sum()
for p in model.parameters():
    p.grad = torch.ones_like(p)
limit = torch.rand(()).item() + 0.2
"""

_FRESH = _LARGE.replace("for p in model.parameters():\n    p.grad = torch.ones_like(p)\n", "")
_SMALL = _LARGE.replace("50 *", "0.01 *").replace("+ 0.2", "+ 9")
"""Gradients that are small enough stay as they are."""

_ROW = """\
def row(f, x, k):
    f(x).backward()
    return x.grad
"""


_LISTING = """\
a = torch.tensor(2.0, requires_grad=True)
b = a * 3
c = torch.tensor(4.0)
d = (b * c).to(torch.float64)
d.backward()
b.retain_grad()
"""
_SEEN = {
    "a.grad": "12.0",
    "b.grad": "None",
    "c.grad": "None",
    "d.requires_grad": "True",
    "a.grad.dtype": "torch.float32",
    "b.to(torch.int64).requires_grad": "False",
}


def _filled(answers: dict[str, str]) -> str:
    """Return the cell with these answers, the program above it as a comment."""
    program = "".join(f"# {line}\n" for line in _LISTING.splitlines()[:-1])
    return (
        program + "expected = {\n" + "".join(f'    "{what}": {answer},\n' for what, answer in answers.items()) + "}\n"
    )


EXERCISES = (
    Exercise(
        key="7.1",
        kind="repair",
        title=T(en="A report that keeps the gradient", zh="不破坏梯度的报告"),
        task=T(
            en=(
                "`loss_and_report(x, target)` gets two float tensors of one shape; `x` was computed from weights. It "
                "returns the sum of the squared differences between `x` and `target`, for backward, and the values of "
                "`x`, cut to whole numbers, as a list for a report. But the weights behind `x` never learn. Repair "
                "it; the report stays as it is."
            ),
            zh=(
                "`loss_and_report(x, target)` 得到两个同形状的浮点张量；`x` 由权重算出。它返回 `x` 与 `target` 之差的"
                "平方和（供 backward 使用），以及 `x` 的值去掉小数部分后的整数列表，供报告使用。但 `x` 背后的权重永远"
                "学不到东西。请修好它；报告不变。"
            ),
        ),
        given=_REPORT,
        inputs="n = int(torch.randint(2, 9, ()))\n"
        "w = torch.randn(n, requires_grad=True)\n"
        "x = 5 * w\n"
        "target = torch.randn(n)",
        drive="loss, report = loss_and_report(x, target)\nloss.backward()",
        properties=(
            Property(
                T(en="the weights get the gradient of the squared differences", zh="权重得到平方差的梯度"),
                gradient_as_solved("w"),
            ),
            Property(
                T(en="the loss is that of the values, not of the whole numbers", zh="损失来自原值，而不是取整后的值"),
                as_solved("loss.item()"),
            ),
            Property(
                T(en="the report is the values cut towards zero", zh="报告是向零截断的值"),
                true(
                    "report == [int(v) for v in x.tolist()] and all(type(v) is int for v in report)",
                    T(
                        en="it is not the list of the whole numbers that are left when fractions are cut off: 2 "
                        "for 2.9, -2 for -2.9",
                        zh="它不是去掉小数部分后的整数列表：2.9 得 2，-2.9 得 -2",
                    ),
                ),
            ),
        ),
        hint_for=(1, 2, 3),
        hints=(
            T(
                en="Where does the graph end: look at `requires_grad` after each line.",
                zh="计算图在哪里断开：逐行查看 `requires_grad`。",
            ),
            T(
                en="The loss does not need the whole numbers; only the report does.",
                zh="损失并不需要整数，只有报告需要。",
            ),
            T(
                en="Compute the loss from `x`, and the report from `x.to(torch.int64)`.",
                zh="用 `x` 计算损失，用 `x.to(torch.int64)` 生成报告。",
            ),
        ),
        right=(
            _REPORTED,
            (
                "def loss_and_report(x, target):\n"
                "    report = [int(v) for v in x.detach()]\n"
                "    return F.mse_loss(x, target, reduction='sum'), report\n"
            ),
        ),
        wrong=(
            _REPORT.replace("whole.to(torch.float32)", "whole.to(torch.float32).requires_grad_()"),
            _REPORTED.replace("(x - target)", "(x.round() - target)"),
            _REPORTED.replace("whole.tolist()", "x.tolist()"),
        ),
    ),
    Exercise(
        key="7.2",
        kind="write",
        title=T(en="Clip in time", zh="及时裁剪"),
        task=T(
            en=(
                "Write `step(model, optimizer, loss, limit)`: one step of training whose gradients have a joint norm "
                "of at most `limit`. `loss` is a 0-dim tensor, computed from the model, and no backward has been "
                "called on it. Take one step only: each parameter is written once. The function returns the norm "
                "before clipping, as a Python float. A gradient that the parameters come with, from an earlier step, "
                "must not count, and none is left behind (`None` or zeros)."
            ),
            zh=(
                "编写 `step(model, optimizer, loss, limit)`：执行一步训练，其梯度的总范数不超过 `limit`。`loss` 是由模"
                "型算出的零维张量，还没有对它调用过 backward。只走一步：每个参数只写入一次。函数以 Python 浮点数返回裁"
                "剪前的范数。参数可能带着之前一步的梯度：它不得计入，之后也不留下任何梯度（`None` 或零）。"
            ),
        ),
        given=_STEP,
        inputs=_LARGE,
        drive="norm = step(model, optimizer, loss, limit)",
        properties=(
            Property(
                T(en="without an old gradient, the weights move as they should", zh="没有旧梯度时，权重的变化正确"),
                as_solved("model.weight.detach()", "model.bias.detach()", inputs=_FRESH),
            ),
            Property(
                T(
                    en="with an old gradient too, and where nothing has to be clipped",
                    zh="带有旧梯度、以及无需裁剪时也正确",
                ),
                every(
                    *(
                        as_solved("model.weight.detach()", "model.bias.detach()", inputs=each)
                        for each in (_LARGE, _SMALL)
                    )
                ),
            ),
            Property(
                T(en="what is returned is a Python float", zh="返回的是 Python 浮点数"),
                true(
                    "isinstance(norm, float)",
                    T(en="it is something else: a tensor, or nothing", zh="它是别的东西：张量，或什么都没有"),
                ),
            ),
            Property(
                T(en="it is the norm of this loss alone, before clipping", zh="它只属于这个损失，并且是裁剪前的"),
                as_solved("float(norm)"),
            ),
            Property(
                T(en="no gradient is left", zh="没有留下梯度"),
                true(
                    "all(p.grad is None or not p.grad.any() for p in model.parameters())",
                    T(en="after the step `.grad` still holds numbers", zh="step 之后 `.grad` 里仍有数值"),
                ),
            ),
            Property(T(en="each parameter is written once", zh="每个参数只写入一次"), updated_once(None, 1)),
        ),
        hint_for=(1, 2, 3, 2, 2, 0),
        hints=(
            T(
                en="One factor scales all gradients together, so that their *joint* norm is at most `limit`. Between "
                "which two lines is there something to scale?",
                zh="用同一个因子缩放所有梯度，使它们的*总*范数不超过 `limit`。在哪两行之间才有东西可缩放？",
            ),
            T(
                en="The parameters come with an old gradient. What does backward do with it, and who forgets it?",
                zh="参数带着旧梯度。backward 会怎样处理它？由谁来清除？",
            ),
            T(
                en="Five lines: forget, backward, clip, step, forget. `clip_grad_norm_` returns the norm before "
                "clipping, as a tensor.",
                zh="五行：清零、backward、裁剪、step、清零。`clip_grad_norm_` 返回裁剪前的范数（张量）。",
            ),
        ),
        right=(
            _STEPPED,
            _STEPPED.replace("optimizer.zero_grad()", "model.zero_grad(set_to_none=False)").replace(
                "norm.item()", "float(norm)"
            ),
            "def step(model, optimizer, loss, limit):\n"
            "    for p in model.parameters():\n        p.grad = None\n"
            "    loss.backward()\n"
            "    norm = float(nn.utils.get_total_norm([p.grad for p in model.parameters()]))\n"
            "    nn.utils.clip_grad_norm_(model.parameters(), limit)\n"
            "    optimizer.step()\n    optimizer.zero_grad()\n    return norm\n",
            "def step(model, optimizer, loss, limit):\n"
            "    optimizer.zero_grad()\n    loss.backward()\n"
            "    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()\n"
            "    if norm > limit:\n"
            "        for p in model.parameters():\n            p.grad *= limit / (norm + 1e-6)\n"
            "    optimizer.step()\n    optimizer.zero_grad()\n    return norm\n",
        ),
        wrong=(
            _STEPPED.replace("    optimizer.zero_grad()\n    loss", "    loss"),
            _STEPPED.replace(
                "norm = nn.utils.clip_grad_norm_(model.parameters(), limit)\n    optimizer.step()",
                "optimizer.step()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)",
            ),
            _STEPPED.replace("clip_grad_norm_(model.parameters(), limit)", "clip_grad_norm_(model.parameters(), 1e9)"),
            _STEPPED.replace("norm.item()", "limit"),
            _STEPPED.replace(
                "norm = nn.utils.clip_grad_norm_(model.parameters(), limit)",
                "norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
                "    nn.utils.clip_grad_value_(model.parameters(), limit)",
            ),
        ),
    ),
    Exercise(
        key="7.3",
        kind="write",
        title=T(en="One row of a Jacobian", zh="雅可比矩阵的一行"),
        task=T(
            en=(
                "`f` turns a vector into a vector; `x` is a vector that requires grad. Complete `row(f, x, k)`: it "
                "returns the derivative of element `k` of `f(x)` with respect to `x`, a tensor of the shape of `x`. "
                "What is in `x.grad` before (also `None`) must be there afterwards."
            ),
            zh=(
                "`f` 把向量变为向量；`x` 是需要梯度的向量。补全 `row(f, x, k)`：返回 `f(x)` 的第 `k` 个元素对 `x` 的导"
                "数，是与 `x` 形状相同的张量。`x.grad` 之前是什么（包括 `None`），之后也必须是什么。"
            ),
        ),
        given=_ROW,
        inputs="""\
rows, columns = torch.randint(2, 7, (2,)).tolist()
matrix = torch.randn(rows, columns)
f = lambda t: torch.tanh(matrix @ t)
x = torch.randn(columns, requires_grad=True)
k = int(torch.randint(rows, ()))
""",
        drive="found = row(f, x, k)",
        properties=(
            Property(
                T(en="a tensor comes back", zh="返回的是一个张量"),
                true(
                    "isinstance(found, torch.Tensor)",
                    T(
                        en="`row` returned no tensor; of a tuple take its first element",
                        zh="`row` 返回的不是张量；若是元组，取它的第一个元素",
                    ),
                ),
            ),
            Property(T(en="it is that row", zh="正是那一行"), as_solved("found.detach()")),
            Property(
                T(en="`x.grad` is untouched", zh="`x.grad` 未被改动"),
                true("x.grad is None", T(en="it is not None afterwards", zh="之后它不是 None")),
            ),
            Property(
                T(en="a gradient that was there before is untouched as well", zh="原有的梯度也未被改动"),
                true(
                    "x.grad is not None and x.grad.tolist() == kept.tolist()",
                    T(
                        en="what was in `x.grad` before is not there afterwards",
                        zh="`x.grad` 里原有的内容之后不在了",
                    ),
                    drive="kept = torch.randn(columns)\nx.grad = kept.clone()\nfound = row(f, x, k)",
                ),
            ),
        ),
        hint_for=(2, 1, 2, 2),
        hints=(
            T(
                en="`f(x)` is a vector. Which number do you want the derivative of?",
                zh="`f(x)` 是向量。你要的是哪个数的导数？",
            ),
            T(
                en="Not `backward`: `torch.autograd` has a call that returns derivatives and fills nothing.",
                zh="不用 `backward`：`torch.autograd` 中有一个调用只返回导数而不写入。",
            ),
            T(
                en="`torch.autograd.grad(f(x)[k], x)` returns a tuple.",
                zh="`torch.autograd.grad(f(x)[k], x)` 返回一个元组。",
            ),
        ),
        right=(
            "def row(f, x, k):\n    (found,) = torch.autograd.grad(f(x)[k], x)\n    return found\n",
            "def row(f, x, k):\n    return torch.func.jacrev(f)(x)[k]\n",
            (
                "def row(f, x, k):\n"
                "    copy = x.detach().clone().requires_grad_()\n"
                "    f(copy)[k].backward()\n"
                "    return copy.grad\n"
            ),
        ),
        wrong=(
            "def row(f, x, k):\n    f(x)[k].backward()\n    return x.grad\n",
            "def row(f, x, k):\n    (found,) = torch.autograd.grad(f(x).sum(), x)\n    return found\n",
            "def row(f, x, k):\n    (found,) = torch.autograd.grad(f(x)[0], x)\n    return found\n",
        ),
    ),
    Exercise(
        key="7.4",
        kind="predict",
        title=T(en="Who gets a gradient, and of which type?", zh="谁得到梯度，是什么类型？"),
        task=T(
            en=(
                "The program is in the comment. What are the expressions after it? Fill in a number, `None`, `True`, "
                "`False`, or a dtype such as `torch.float32`, **before** you run the cell."
            ),
            zh=(
                "程序在注释中。在运行单元格**之前**，填写程序结束后这些表达式的值：数、`None`、`True`、`False`，或 "
                "dtype，例如 `torch.float32`。"
            ),
        ),
        given=_filled(dict.fromkeys(_SEEN, '"?"')),
        inputs=_LISTING,  # its last line keeps torch from warning where the gradient of a result is read
        properties=tuple(
            Property(T(en=f"`{what}`", zh=f"`{what}`"), equal(f"expected[{what!r}]", what, tell=False))
            for what in _SEEN
        ),
        hint_for=(1, 2, 2, 0, 1, 3),
        hints=(
            T(
                en="d = 12 · a. A gradient has the dtype of the tensor that it belongs to.",
                zh="d = 12 · a。梯度的 dtype 与它所属的张量相同。",
            ),
            T(
                en="Only leaves that require a gradient keep one; `b` is a result, and `c` requires none.",
                zh="只有需要梯度的叶子会保留梯度；`b` 是计算结果，`c` 不需要梯度。",
            ),
            T(
                en="A cast between float types is an operation with a derivative; a cast to integers ends the graph.",
                zh="浮点类型之间的转换是可导的运算；转换为整数则使计算图终止。",
            ),
        ),
        right=(
            _filled(_SEEN),
            _filled({**_SEEN, "a.grad": "3 * 4"}),
            _filled({**_SEEN, "a.grad": "12"}),
            "expected = {}\n" + "".join(f"expected[{what!r}] = {answer}\n" for what, answer in _SEEN.items()),
        ),
        wrong=(
            _filled({**_SEEN, "a.grad": "3.0"}),
            _filled({**_SEEN, "b.grad": "4.0"}),
            _filled({**_SEEN, "c.grad": "6.0"}),
            _filled({**_SEEN, "a.grad.dtype": "torch.float64"}),
            _filled({**_SEEN, "b.to(torch.int64).requires_grad": "True"}),
        ),
    ),
)
