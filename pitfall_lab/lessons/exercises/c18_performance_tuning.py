"""Chapter 18: what saves memory, and what only looks as if it did."""

from __future__ import annotations

from collections.abc import Mapping

from pitfall_lab.lessons.exercise import Exercise, Property, as_solved, equal, gradient_as_solved, runs, storages, true, unchanged
from pitfall_lab.trace import T

_ACTIVATE = """\
def activate(x, bias):
    h = torch.sigmoid(x)
    h.mul_(2)
    h.add_(bias)
    return h
"""

_PREDICT = """\
def predict(model, batches):
    found = []
    for batch in batches:
        found += model(batch).argmax(dim=1).tolist()
    return found
"""

_PREDICTED = """\
def predict(model, batches):
    mode = model.training
    model.eval()
    found = []
    with torch.inference_mode():
        for batch in batches:
            found += model(batch).argmax(dim=1).tolist()
    model.train(mode)
    return found
"""

_SCALED = """\
def scaled_gradient(w, loss_of, scale):
    loss = loss_of(w)
    (gradient,) = torch.autograd.grad(loss, w)
    return gradient.float()
"""

_NUMBERS = {"1e-8": "zero", "2**-14": "exact", "0.1": "rounded", "2049": "rounded", "4096": "exact", "1e5": "infinity"}

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
                "`activate(x, bias)` computes `2 · sigmoid(x) + bias`, and it raises in backward. Give it the right gradient with"
                " as little new memory as possible, at most two new tensors of the size of `x`: one of its two writes may stay in"
                " place. `x` and `bias` have the same shape and require grad; leave both unchanged."
            ),
            zh=(
                "`activate(x, bias)` 计算 `2 · sigmoid(x) + bias`，并在 backward 时报错。请用尽量少的新内存得到正确的梯度，至多新"
                "建两个与 `x` 一样大的张量：两次写入中有一次可以就地进行。`x` 和 `bias` 形状相同、需要梯度；两者都保持不变。"
            ),
        ),
        given=_ACTIVATE,
        inputs="x, bias = torch.randn(50, requires_grad=True), torch.randn(50, requires_grad=True)",
        drive="out = activate(x, bias)\nout.square().sum().backward()",
        properties=(
            Property(T(en="backward runs", zh="backward 能运行"), runs()),
            Property(T(en="the value is right", zh="值正确"), as_solved("out.detach()")),
            Property(T(en="the gradient is right", zh="梯度正确"), gradient_as_solved("x", "bias")),
            Property(T(en="x is unchanged", zh="x 没有改变"), unchanged("x")),
            Property(T(en="bias is unchanged", zh="bias 没有改变"), unchanged("bias")),
            Property(
                T(en="at most two new tensors of full size are made", zh="最多新建两个完整大小的张量"),
                storages(2, elements=50, drive="out = activate(x, bias)"),
            ),
        ),
        hints=(
            T(en="Which of the operations has saved its result?", zh="哪个操作保存了自己的结果？"),
            T(en="sigmoid needs its result; a product with a number needs nothing.", zh="sigmoid 需要自己的结果；与数字相乘什么都不需要。"),
            T(en="`h = torch.sigmoid(x) * 2`, then `h.add_(bias)`.", zh="`h = torch.sigmoid(x) * 2`，然后 `h.add_(bias)`。"),
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
        title=T(en="Inference", zh="推理"),
        task=T(
            en=(
                "Write `predict(model, batches)`: `batches` is a list of tensors (N, features). Return the class numbers of all "
                "rows as one list. Nothing may be recorded; the model computes in evaluation mode and is left in the mode in "
                "which it came."
            ),
            zh=(
                "编写 `predict(model, batches)`：`batches` 是张量 (N, 特征数) 的列表。以一个列表返回所有行的类别编号。不得记录任"
                "何东西；模型在评估模式下计算，之后保持原来的模式。"
            ),
        ),
        given=_PREDICT,
        inputs="""\
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
batches = list(torch.randn(9, 3).split(4))
recorded = []
for layer in model:
    layer.register_forward_hook(lambda module, args, output: recorded.append(output.requires_grad))
""",
        drive="found = predict(model, batches)",
        properties=(
            Property(T(en="the class numbers are right", zh="类别编号正确"), as_solved("found")),
            Property(
                T(en="one for each row, as a list", zh="每行一个，是列表"),
                true("type(found) is list and len(found) == 9 and all(type(k) is int for k in found)"),
            ),
            Property(T(en="nothing was recorded", zh="没有记录计算图"), true("recorded and not any(recorded)")),
            Property(T(en="running statistics did not move", zh="滑动统计量没有变化"), true("model[1].num_batches_tracked.item() == 0")),
            Property(T(en="the model is in train mode again", zh="模型回到训练模式"), true("model.training and model[2].training")),
            Property(
                T(en="a model that comes in evaluation mode stays in it", zh="以评估模式传入的模型仍处于评估模式"),
                true(
                    "not any(layer.training for layer in model.modules())",
                    T(en="it is left in train mode", zh="它被留在了训练模式"),
                    drive="model.eval()\nfound = predict(model, batches)",
                ),
            ),
        ),
        hints=(
            T(en="Two switches, and the way back of one of them.", zh="两个开关，以及其中一个的复位。"),
            T(
                en="`eval()` for the layers, `no_grad()` or `inference_mode()` for the recording.",
                zh="`eval()` 管层，`no_grad()` 或 `inference_mode()` 管记录。",
            ),
            T(en="Note `model.training` first; `model.train(mode)` at the end.", zh="先记下 `model.training`；最后 `model.train(mode)`。"),
        ),
        right=(
            _PREDICTED,
            _PREDICTED.replace("torch.inference_mode()", "torch.no_grad()").replace("model.eval()", "model.train(False)"),
            _PREDICTED.replace("model.train(mode)", "if mode:\n        model.train()"),
            "@torch.no_grad()\ndef predict(model, batches):\n    was = model.training\n    try:\n        model.eval()\n"
            "        return torch.cat([model(batch) for batch in batches]).argmax(1).tolist()\n    finally:\n        model.train(was)\n",
        ),
        wrong=(
            _PREDICTED.replace("    model.train(mode)\n", ""),
            _PREDICTED.replace("with torch.inference_mode():", "if True:"),
            _PREDICTED.replace("    model.eval()\n", ""),
            _PREDICTED.replace("model.train(mode)", "model.train()"),
            _PREDICTED.replace("found += model(batch)", "found = model(batch)"),
            _PREDICTED.replace(".argmax(dim=1)", ".argmax(dim=0)"),
        ),
    ),
    Exercise(
        key="18.3",
        kind="write",
        title=T(en="Scale the loss", zh="缩放损失"),
        task=T(
            en=(
                "Complete `scaled_gradient(w, loss_of, scale)`: `w` is a float16 leaf, `loss_of(w)` returns a loss. Return the "
                "gradient of `w`, computed with the loss multiplied by `scale`, converted to float32 and *then* divided again. "
                "Nothing may be left in `w.grad`."
            ),
            zh=(
                "补全 `scaled_gradient(w, loss_of, scale)`：`w` 是 float16 叶子，`loss_of(w)` 返回损失。返回 `w` 的梯度：用乘以 "
                "`scale` 的损失计算，转换为 float32，*然后*再除回来。`w.grad` 中不得留下任何东西。"
            ),
        ),
        given=_SCALED,
        inputs="""\
w = (torch.rand(4) + 0.5).half().requires_grad_()
tiny = torch.tensor(1e-4, dtype=torch.float16)
loss_of = lambda w: (w * tiny * tiny * 2).sum()
""",
        drive="found = scaled_gradient(w, loss_of, 2.0**14)",
        properties=(
            Property(T(en="the gradient has not vanished", zh="梯度没有消失"), true("bool(found.abs().min() > 1e-9)")),
            Property(
                T(en="it is the gradient of the loss itself", zh="它是损失本身的梯度"),
                true("torch.allclose(found, torch.full((4,), 2e-8), rtol=0.02, atol=0.0)"),
            ),
            Property(T(en="it comes in float32", zh="以 float32 返回"), true("found.dtype == torch.float32")),
            Property(T(en="`w.grad` is untouched", zh="`w.grad` 未被改动"), true("w.grad is None")),
            Property(
                T(en="another scale gives the same gradient", zh="换一个倍数，梯度相同"),
                true(
                    "torch.allclose(found, torch.full((4,), 2e-8), rtol=0.02, atol=0.0)",
                    drive="found = scaled_gradient(w, loss_of, 2.0**12)",
                ),
            ),
        ),
        hints=(
            T(
                en="Where does the small number become zero: in the loss, or on the way back?",
                zh="小的数在哪里变成零：在损失里，还是在返回的路上？",
            ),
            T(en="Backward starts with a 1. Let it start with something larger.", zh="backward 从 1 开始。让它从更大的数开始。"),
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
                'Each number is converted to float16. Write `"zero"`, `"infinity"`, `"exact"` or `"rounded"`, **before** you run anything.'
            ),
            zh='每个数都转换为 float16。在运行任何代码**之前**，填写 `"zero"`、`"infinity"`、`"exact"` 或 `"rounded"`。',
        ),
        given=_numbers(dict.fromkeys(_NUMBERS, "?")),
        setup=_NUMBER,
        properties=tuple(Property(T(en=text, zh=text), equal(f"becomes[{text!r}]", f"fate({text!r})", tell=False)) for text in _NUMBERS),
        hints=(
            T(en="float16 reaches from about 6e-8 to 65504.", zh="float16 的范围大约从 6e-8 到 65504。"),
            T(
                en="It has 11 binary digits: every integer up to 2048, then every second one.",
                zh="它有 11 位二进制数字：2048 以内的每个整数，之后隔一个。",
            ),
            T(
                en="Powers of two inside the range are exact; 0.1 is exact in no binary type.",
                zh="范围内的 2 的幂是精确的；0.1 在任何二进制类型中都不精确。",
            ),
        ),
        right=(
            _numbers(_NUMBERS),
            f"becomes = dict({list(_NUMBERS.items())!r})\n",
            f"becomes = dict(zip({list(_NUMBERS)!r}, {list(_NUMBERS.values())!r}))\n",
            "becomes = {}\nfor text in (" + ", ".join(map(repr, _NUMBERS)) + "):\n    value = eval(text)\n"
            "    half = torch.tensor(float(value)).half().item()\n"
            '    becomes[text] = "zero" if half == 0 else "infinity" if half == float("inf") else "exact" if half == value else "rounded"\n',
        ),
        wrong=(
            _numbers(dict.fromkeys(_NUMBERS, "rounded")),
            _numbers({**_NUMBERS, "1e-8": "rounded"}),
            _numbers({**_NUMBERS, "2049": "exact"}),
            _numbers({**_NUMBERS, "2**-14": "zero"}),
            _numbers({**_NUMBERS, "1e5": "rounded"}),
        ),
    ),
)
