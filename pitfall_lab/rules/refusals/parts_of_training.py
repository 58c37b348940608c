"""Errors that occur in training: in optimizers, schedulers, gradient scalers, hooks, checkpointing and custom
Functions.
"""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import (
    complex_losses,
    function_gradients,
    hooked_outputs,
    modules_called,
    numbers_and_methods,
    optimizers,
    recomputed,
    scaling,
)
from pitfall_lab.trace import T

FAMILIES = (
    Family(
        "PLE50",
        "sparse-gradients-refused",
        T(
            en="Adam does not support sparse gradients, please consider SparseAdam instead",
            zh="Adam does not support sparse gradients, please consider SparseAdam instead",
        ),
        T(
            en=(
                "An embedding with `sparse=True` makes a gradient that has only the rows which were looked up. "
                "`SGD`, `Adagrad` and `SparseAdam` take such gradients. The other optimizers keep averages for "
                "all rows, and refuse them."
            ),
            zh=(
                "`sparse=True` 的嵌入层产生的梯度只包含查过的行。`SGD`、`Adagrad` 和 `SparseAdam` 接受这样的梯度；其他"
                "优化器为所有行保存平均值，因而拒绝它们。"
            ),
        ),
        (
            Case(
                r"(\w+) does not support sparse gradients|option is not compatible with sparse gradients",
                "self",
                T(
                    en="{Line} does a step with sparse gradients, which this optimizer does not take.",
                    zh="{Line}用稀疏梯度更新，而这个优化器不接受稀疏梯度。",
                ),
                T(
                    en="`SparseAdam` or `SGD` for embeddings with `sparse=True`, or embeddings without it",
                    zh="带 `sparse=True` 的嵌入层用 `SparseAdam` 或 `SGD`，或者嵌入层不用 `sparse=True`",
                ),
                remedy=optimizers.of_dense_gradients,
            ),
            Case(
                r"SparseAdam does not support dense gradients",
                "self",
                T(
                    en="{Line} does a step of `SparseAdam` for parameters whose gradients are not sparse.",
                    zh="{Line}用 `SparseAdam` 更新梯度并不稀疏的参数。",
                ),
                T(
                    en="`Adam` for all parameters but those of embeddings with `sparse=True`",
                    zh="除 `sparse=True` 的嵌入层之外，其余参数都用 `Adam`",
                ),
                remedy=optimizers.of_sparse_gradients,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "words = torch.nn.Embedding(10, 3, sparse=True)\n"
            "optimizer = torch.optim.Adam(words.parameters(), lr=0.1)\n"
            "words(torch.tensor([1, 2])).sum().backward()\n"
            "optimizer.step()\n"
            "print(len(words.weight))\n"
        ),
        (
            "import torch\n"
            "\n"
            "words = torch.nn.Embedding(10, 3, sparse=True)\n"
            "optimizer = torch.optim.SparseAdam(words.parameters(), lr=0.1)\n"
            "words(torch.tensor([1, 2])).sum().backward()\n"
            "optimizer.step()\n"
            "print(len(words.weight))\n"
        ),
    ),
    Family(
        "PLE51",
        "number-saved-for-backward",
        T(
            en="save_for_backward can only save variables, but argument 1 is of type float",
            zh="save_for_backward can only save variables, but argument 1 is of type float",
        ),
        T(
            en=(
                "`ctx.save_for_backward` keeps tensors, because torch checks that they are not changed before "
                "backward. Numbers, shapes and flags need no such check: assign them to `ctx` (`ctx.scale = scale`)."
            ),
            zh=(
                "`ctx.save_for_backward` 只保存张量，因为 torch 要检查它们在反向传播之前没有被修改。数、形状和开关不需"
                "要这种检查：直接赋给 `ctx`（`ctx.scale = scale`）。"
            ),
        ),
        (
            Case(
                r"save_for_backward can only save variables, but argument (\d+) is of type (\w+)",
                "",
                T(
                    en="{Line}: `forward` of this function gives `save_for_backward` a {m[2]} (argument {m[1]}, from "
                    "0); it takes tensors only.",
                    zh="{Line}：这个函数的 `forward` 把一个 {m[2]}（第 {m[1]} 个参数，从 0 数）交给 "
                    "`save_for_backward`，而它只接受张量。",
                ),
                T(
                    en="tensors (or None); everything else is assigned to `ctx` (`ctx.scale = scale`)",
                    zh="张量（或 None）；其他一切赋给 `ctx`（`ctx.scale = scale`）",
                ),
                remedy=function_gradients.saved_numbers,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "\n"
            "class Scale(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x, factor):\n"
            "        ctx.save_for_backward(x, factor)\n"
            "        return x * factor\n"
            "\n"
            "    @staticmethod\n"
            "    def backward(ctx, gradient):\n"
            "        x, factor = ctx.saved_tensors\n"
            "        return gradient * factor, None\n"
            "\n"
            "\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "Scale.apply(x, 2.0).sum().backward()\n"
            "print(x.grad)\n"
        ),
        (
            "import torch\n"
            "\n"
            "\n"
            "class Scale(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x, factor):\n"
            "        ctx.save_for_backward(x)\n"
            "        ctx.factor = factor\n"
            "        return x * factor\n"
            "\n"
            "    @staticmethod\n"
            "    def backward(ctx, gradient):\n"
            "        (x,) = ctx.saved_tensors\n"
            "        factor = ctx.factor\n"
            "        return gradient * factor, None\n"
            "\n"
            "\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "Scale.apply(x, 2.0).sum().backward()\n"
            "print(x.grad)\n"
        ),
    ),
    Family(
        "PLE52",
        "schedule-is-over",
        T(
            en="Tried to step 11 times. The specified number of total steps is 10",
            zh="Tried to step 11 times. The specified number of total steps is 10",
        ),
        T(
            en=(
                "`OneCycleLR` plans a certain number of steps, `total_steps` or `epochs * steps_per_epoch`. "
                "`steps_per_epoch` is the number of batches, `len(loader)`: if the last batch is incomplete, that is "
                "one more than examples divided by batch size."
            ),
            zh=(
                "`OneCycleLR` 按固定的步数计划：`total_steps`，或 `epochs * steps_per_epoch`。`steps_per_epoch` 是批的"
                "个数，即 `len(loader)`：最后一批不完整时，它比样本数除以批大小多一。"
            ),
        ),
        (
            Case(
                r"Tried to step (\d+) times\. The specified number of total steps is (\d+)",
                "",
                T(
                    en="{Line} calls `step()` of a learning rate schedule that was made for {m[2]} steps, all of which "
                    "it has taken.",
                    zh="{Line}调用学习率计划的 `step()`，但它是为 {m[2]} 步而建的，已经走完了。",
                ),
                T(
                    en="as many steps as the schedule was made for: `steps_per_epoch=len(loader)`, or "
                    "`total_steps` as the loops take",
                    zh="与计划相同的步数：`steps_per_epoch=len(loader)`，或 `total_steps` 等于循环的次数",
                ),
                remedy=optimizers.past_the_end,
            ),
            Case(
                r"ReduceLROnPlateau\.step\(\) missing 1 required positional argument: 'metrics'",
                "",
                T(
                    en="{Line} steps a `ReduceLROnPlateau` without the number that it watches.",
                    zh="{Line}调用 `ReduceLROnPlateau` 的 step 时没有给出它要观察的数。",
                ),
                T(
                    en="the loss or metric that it watches: `scheduler.step(loss)`",
                    zh="它要观察的损失或指标：`scheduler.step(loss)`",
                ),
                remedy=optimizers.watched_number,
            ),
            Case(
                r"(\w+)\.step\(\) missing 1 required positional argument: 'closure'",
                "",
                T(
                    en="{Line} steps an `{m[1]}` without a closure; it computes the loss several times in one step.",
                    zh="{Line}调用 `{m[1]}` 的 step 时没有给出闭包；它一步之内要多次计算损失。",
                ),
                T(
                    en="a function that clears the gradients, computes the loss, runs backward and returns the loss",
                    zh="清空梯度、计算损失、反向传播并返回损失的函数",
                ),
                remedy=optimizers.with_closure,
            ),
            Case(
                r"param 'initial_lr' is not specified in param_groups",
                "",
                T(
                    en="{Line} lets a schedule go on from an epoch, for an optimizer that does not have the "
                    "rate that it began with.",
                    zh="{Line}让学习率计划从某一轮继续，而优化器没有计划开始时的学习率。",
                ),
                T(en="an optimizer whose groups have `initial_lr`", zh="各组带有 `initial_lr` 的优化器"),
                remedy=optimizers.first_rate,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "weight = torch.ones(2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
            "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=4)\n"
            "rows = torch.ones(5, 2)\n"
            "for row in rows:\n"
            "    (weight * row).sum().backward()\n"
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
            "    scheduler.step()\n"
        ),
        (
            "import torch\n"
            "\n"
            "weight = torch.ones(2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
            "rows = torch.ones(5, 2)\n"
            "scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=len(rows))\n"
            "for row in rows:\n"
            "    (weight * row).sum().backward()\n"
            "    optimizer.step()\n"
            "    optimizer.zero_grad()\n"
            "    scheduler.step()\n"
        ),
    ),
    Family(
        "PLE53",
        "hooked-output-written-in-place",
        T(
            en="Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace.",
            zh="Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace.",
        ),
        T(
            en=(
                "A full backward hook on a module puts a function of its own around the module's inputs and outputs. "
                "What comes out is a view, and if it were changed in place, the hook would see another gradient. So "
                "no layer after the module may write in place (`nn.ReLU(inplace=True)`, `x += …`)."
            ),
            zh=(
                "模块上的完整反向钩子会在模块的输入和输出外面套上自己的函数。出来的是一个视图，若被就地修改，钩子看到"
                "的就是别的梯度。所以模块之后的层不能就地写入（`nn.ReLU(inplace=True)`、`x += …`）。"
            ),
        ),
        (
            Case(
                r"Output \d+ of BackwardHookFunction(?:Backward)? is a view and is being modified inplace",
                "input|#1",
                T(
                    en="{Line} writes in place the output of a module that has a full backward hook, "
                    "and torch refuses it.",
                    zh="{Line}就地改写带有完整反向钩子的模块的输出，torch 拒绝这样做。",
                ),
                T(
                    en="a layer that makes a new tensor: `nn.ReLU()` instead of `nn.ReLU(inplace=True)`, `x = x + "
                    "y` instead of `x += y`",
                    zh="生成新张量的层：用 `nn.ReLU()` 代替 `nn.ReLU(inplace=True)`，用 `x = x + y` 代替 `x += y`",
                ),
                remedy=hooked_outputs.hooked_output,
            ),
        ),
        (
            "import torch\n\nmodel = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(inplace=True))\n"
            "model[0].register_full_backward_hook(lambda module, before, after: None)\n"
            "model(torch.ones(4, 3, requires_grad=True)).sum().backward()\nprint(model[0].weight.grad.shape)\n"
        ),
        (
            "import torch\n\nmodel = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())\n"
            "model[0].register_full_backward_hook(lambda module, before, after: None)\n"
            "model(torch.ones(4, 3, requires_grad=True)).sum().backward()\nprint(model[0].weight.grad.shape)\n"
        ),
    ),
    Family(
        "PLE54",
        "checkpointed-block-differs",
        T(
            en="torch.utils.checkpoint: A different number of tensors was saved during the original "
            "forward and recomputation.",
            zh="torch.utils.checkpoint: A different number of tensors was saved during the original "
            "forward and recomputation.",
        ),
        T(
            en=(
                "A checkpoint saves memory: it keeps the inputs of a block and runs the block again in backward. Both "
                "runs have to do the same. The state of torch's random numbers is restored for that; Python's "
                "`random`, NumPy's, counters and other state are not."
            ),
            zh=(
                "checkpoint 为了节省内存，只保留一个块的输入，反向传播时再运行一次这个块。两次必须做同样的事。为此会恢"
                "复 torch 的随机数状态；而 Python 的 `random`、NumPy 的随机数、计数器和其他状态不会恢复。"
            ),
        ),
        (
            Case(
                r"torch\.utils\.checkpoint: (?:A different number of tensors|Recomputed values)",
                "",
                T(
                    en="{Line}: a checkpointed block was run again for backward and did not do the "
                    "same as the first time.",
                    zh="{Line}：反向传播时重新运行了 checkpoint 的块，而它与第一次所做的不同。",
                ),
                T(
                    en="a block that depends on its inputs alone: no random numbers from elsewhere, no "
                    "state that it changes",
                    zh="只依赖输入的块：不用别处的随机数，不改变状态",
                ),
                remedy=recomputed.random_block,
            ),
            Case(
                r"(?:Checkpointing is not compatible|torch\.utils\.checkpoint is incompatible) with \.grad\(\)",
                "",
                T(
                    en="{Line} computes gradients by `torch.autograd.grad` through a checkpoint that "
                    "allows `backward()` only.",
                    zh="{Line}用 `torch.autograd.grad` 穿过只允许 `backward()` 的 checkpoint 求梯度。",
                ),
                T(en="a checkpoint made with `use_reentrant=False`", zh="用 `use_reentrant=False` 建立的 checkpoint"),
                remedy=recomputed.not_reentrant,
            ),
        ),
        (
            "import random\n"
            "\n"
            "import torch\n"
            "from torch.utils.checkpoint import checkpoint\n"
            "\n"
            "random.seed(3)\n"
            "\n"
            "\n"
            "def block(x):\n"
            "    if random.random() < 0.5:\n"
            "        return x.sin()\n"
            "    return x.exp().sin()\n"
            "\n"
            "\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "for _ in range(6):\n"
            "    checkpoint(block, x, use_reentrant=False).sum().backward()\n"
            "print(x.grad.shape)\n"
        ),
        (
            "import torch\n"
            "from torch.utils.checkpoint import checkpoint\n"
            "\n"
            "\n"
            "def block(x):\n"
            "    if torch.rand(()).item() < 0.5:\n"
            "        return x.sin()\n"
            "    return x.exp().sin()\n"
            "\n"
            "\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "for _ in range(6):\n"
            "    checkpoint(block, x, use_reentrant=False).sum().backward()\n"
            "print(x.grad.shape)\n"
        ),
    ),
    Family(
        "PLE55",
        "scaler-called-out-of-order",
        T(
            en="unscale_() has already been called on this optimizer since the last update().",
            zh="unscale_() has already been called on this optimizer since the last update().",
        ),
        T(
            en=(
                "A `GradScaler` takes its calls in one order: `scale(loss).backward()`, then "
                "`unscale_(optimizer)` if gradients are clipped, then `step(optimizer)`, then `update()`. Between "
                "two updates each optimizer is unscaled and stepped once. When gradients of several batches are "
                "added up, unscale only before the step."
            ),
            zh=(
                "`GradScaler` 的调用有固定次序：`scale(loss).backward()`，若要裁剪梯度则 `unscale_(optimizer)`，然后 "
                "`step(optimizer)`，最后 "
                "`update()`。两次 update 之间，每个优化器只还原一次、更新一次。累积几批的梯度时，只在更新之前还原。"
            ),
        ),
        (
            Case(
                r"(?:unscale_|step)\(\) (?:has already been called|is being called after step)",
                "optimizer",
                T(
                    en="{Line} calls a method of the scaler a second time since its last `update()`.",
                    zh="{Line}在上一次 `update()` 之后第二次调用缩放器的同一方法。",
                ),
                T(
                    en="`unscale_` and `step` once for each optimizer, then `update()`",
                    zh="每个优化器各调用一次 `unscale_` 和 `step`，然后 `update()`",
                ),
                remedy=scaling.out_of_order,
            ),
            Case(
                r"No inf checks were recorded",
                "optimizer",
                T(
                    en="{Line}: the scaler has seen no gradient of this optimizer since its last `update()`: no "
                    "backward of a scaled loss reached its parameters.",
                    zh="{Line}：上一次 `update()` 之后，缩放器没有见到这个优化器的梯度：没有缩放过的损"
                    "失反向传播到它的参数。",
                ),
                T(
                    en="a backward of the scaled loss, `scaler.scale(loss).backward()`, before `step` and `update`",
                    zh="在 `step` 和 `update` 之前对缩放过的损失反向传播：`scaler.scale(loss).backward()`",
                ),
                remedy=scaling.out_of_order,
            ),
            Case(
                r"Attempting to unscale FP16 gradients",
                "optimizer",
                T(
                    en="{Line} unscales gradients of parameters that are float16 themselves.",
                    zh="{Line}要还原的是本身为 float16 的参数的梯度。",
                ),
                T(
                    en="parameters in float32 (no `model.half()`): `autocast` converts for each operation",
                    zh="float32 的参数（不用 `model.half()`）：`autocast` 会为每个运算转换",
                ),
                remedy=scaling.kept_in_float32,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "weight = torch.ones(2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
            'scaler = torch.amp.GradScaler("cpu")\n'
            "for at in range(4):\n"
            "    scaler.scale((weight * at).sum()).backward()\n"
            "    scaler.unscale_(optimizer)\n"
            "    if at % 2:\n"
            "        scaler.step(optimizer)\n"
            "        scaler.update()\n"
            "        optimizer.zero_grad()\n"
            "print(weight.shape)\n"
        ),
        (
            "import torch\n"
            "\n"
            "weight = torch.ones(2, requires_grad=True)\n"
            "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
            'scaler = torch.amp.GradScaler("cpu")\n'
            "for at in range(4):\n"
            "    scaler.scale((weight * at).sum()).backward()\n"
            "    if at % 2:\n"
            "        scaler.unscale_(optimizer)\n"
            "        scaler.step(optimizer)\n"
            "        scaler.update()\n"
            "        optimizer.zero_grad()\n"
            "print(weight.shape)\n"
        ),
    ),
    Family(
        "PLE56",
        "backward-from-a-complex-number",
        T(
            en="grad can be implicitly created only for real scalar outputs but got torch.complex64",
            zh="grad can be implicitly created only for real scalar outputs but got torch.complex64",
        ),
        T(
            en=(
                "A loss says which of two results is better, and of two complex numbers neither is larger. What "
                "`torch.fft` returns is complex; a loss takes its magnitude (`x.abs()`), or real and imaginary part "
                "as two numbers (`torch.view_as_real(x)`)."
            ),
            zh=(
                "损失要说出两个结果哪个更好，而两个复数没有大小之分。`torch.fft` 返回的是复数；损失应取它的模"
                "（`x.abs()`），或把实部和虚部当作两个数（`torch.view_as_real(x)`）。"
            ),
        ),
        (
            Case(
                r"grad can be implicitly created only for real scalar outputs but got (\S+)",
                "input|tensors|outputs|#1",
                T(
                    en="{Line} starts backward from {wrong}, a complex number ({wrong.type}); a backward "
                    "starts from a real one.",
                    zh="{Line}从复数 {wrong}（{wrong.type}）开始反向传播；反向传播要从实数开始。",
                ),
                T(
                    en="a real number: the magnitude `.abs()` before squares are added up, or `torch.view_as_real(…)`",
                    zh="实数：求平方和之前取模 `.abs()`，或用 `torch.view_as_real(…)`",
                ),
                remedy=complex_losses.magnitudes,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "signal = torch.ones(4, requires_grad=True)\n"
            "spectrum = torch.fft.rfft(signal)\n"
            "loss = (spectrum**2).mean()\n"
            "loss.backward()\n"
            "print(signal.grad)\n"
        ),
        (
            "import torch\n\nsignal = torch.ones(4, requires_grad=True)\nspectrum = torch.fft.rfft(signal)\nloss = "
            "(spectrum.abs()**2).mean()\n"
            "loss.backward()\nprint(signal.grad)\n"
        ),
    ),
    Family(
        "PLE57",
        "function-returns-nothing",
        T(
            en="cross_entropy_loss(): argument 'input' (position 1) must be Tensor, not NoneType",
            zh="cross_entropy_loss(): argument 'input' (position 1) must be Tensor, not NoneType",
        ),
        T(
            en=(
                "A Python function without a `return` returns None. A `forward` that computes its result and does not "
                "return it gives None to the loss, and the error comes from there."
            ),
            zh=(
                "没有 `return` 的 Python 函数返回 None。`forward` 算出了结果却没有返回，损失得到的就是 "
                "None，错误在那里才出现。"
            ),
        ),
        (
            Case(
                r"'NoneType' object|must be Tensor, not NoneType|'NoneType'|not NoneType|NoneType",
                "!nothing",
                T(
                    en="{Line} uses {wrong}, which is None: the function that was called returns nothing.",
                    zh="{Line}使用了 {wrong}，而它是 None：所调用的函数没有返回任何东西。",
                ),
                T(en="a function with a `return`", zh="带 `return` 的函数"),
                remedy=modules_called.without_return,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "\n"
            "class Net(torch.nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.fc = torch.nn.Linear(3, 2)\n"
            "\n"
            "    def forward(self, x):\n"
            "        x = self.fc(x)\n"
            "\n"
            "\n"
            "net = Net()\n"
            "scores = net(torch.ones(4, 3))\n"
            "print(torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1, 0, 1])))\n"
        ),
        (
            "import torch\n"
            "\n"
            "\n"
            "class Net(torch.nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.fc = torch.nn.Linear(3, 2)\n"
            "\n"
            "    def forward(self, x):\n"
            "        x = self.fc(x)\n"
            "        return x\n"
            "\n"
            "\n"
            "net = Net()\n"
            "scores = net(torch.ones(4, 3))\n"
            "print(torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1, 0, 1])))\n"
        ),
    ),
    Family(
        "PLE58",
        "method-for-attribute",
        T(
            en="'builtin_function_or_method' object is not subscriptable",
            zh="'builtin_function_or_method' object is not subscriptable",
        ),
        T(
            en=(
                "`x.size()` is a method, which is called, and `x.shape` an attribute, which is indexed: `x.size(0)` "
                "and `x.shape[0]` are the same number."
            ),
            zh="`x.size()` 是方法，要调用；`x.shape` 是属性，要用下标：`x.size(0)` 和 `x.shape[0]` 是同一个数。",
        ),
        (
            Case(
                r"'(?:builtin_function_or_method|method)' object is not subscriptable",
                "!misused",
                T(
                    en="{Line} indexes a method, {wrong}; it is called with parentheses.",
                    zh="{Line}对方法用了下标 {wrong}；方法要用圆括号调用。",
                ),
                T(
                    en="the call, `x.size(0)`, or the attribute, `x.shape[0]`",
                    zh="调用 `x.size(0)`，或属性 `x.shape[0]`",
                ),
                remedy=numbers_and_methods.exchanged,
            ),
            Case(
                r"'torch\.(?:Size|dtype|device)' object is not callable|'(?:Tensor|int|NoneType)' "
                r"object is not callable",
                "!misused",
                T(
                    en="{Line} calls an attribute, {wrong}; it is read without parentheses.",
                    zh="{Line}调用了属性 {wrong}；属性不用圆括号。",
                ),
                T(
                    en="the attribute, `x.shape[0]`, or the method, `x.size(0)`",
                    zh="属性 `x.shape[0]`，或方法 `x.size(0)`",
                ),
                remedy=numbers_and_methods.exchanged,
            ),
        ),
        "import torch\n\nimages = torch.ones(4, 3, 8)\nbatch = images.size[0]\nprint(batch)\n",
        "import torch\n\nimages = torch.ones(4, 3, 8)\nbatch = images.size(0)\nprint(batch)\n",
    ),
    Family(
        "PLE59",
        "loss-class-given-the-tensors",
        T(
            en="Boolean value of Tensor with more than one value is ambiguous (from "
            "nn.CrossEntropyLoss(scores, labels))",
            zh="Boolean value of Tensor with more than one value is ambiguous（来自 "
            "nn.CrossEntropyLoss(scores, labels)）",
        ),
        T(
            en=(
                "`nn.CrossEntropyLoss` is a class: its arguments are settings, such as class weights. An object of it "
                "takes the tensors: `nn.CrossEntropyLoss()(scores, labels)`. `nn.functional.cross_entropy(scores, "
                "labels)` is the function."
            ),
            zh=(
                "`nn.CrossEntropyLoss` 是类，它的参数是类别权重之类的设置。接受张量的是它的对象："
                "`nn.CrossEntropyLoss()(scores, labels)`。`nn.functional.cross_entropy(scores, labels)` 是函数。"
            ),
        ),
        (
            Case(
                r"Boolean value of Tensor with more than one value is ambiguous|bool value of Tensor",
                "!loss",
                T(
                    en="{Line} gives the tensors to the loss class {wrong}, whose arguments are settings.",
                    zh="{Line}把张量交给了损失类 {wrong}，而它的参数是设置。",
                ),
                T(en="an object of the class, called with the tensors", zh="用张量调用该类的对象"),
                remedy=modules_called.loss_object,
            ),
        ),
        (
            "import torch\n\nscores = torch.ones(4, 3, requires_grad=True)\nlabels = torch.tensor([0, 1, 2, 0])\n"
            "loss = torch.nn.CrossEntropyLoss(scores, labels)\nloss.backward()\n"
        ),
        (
            "import torch\n\nscores = torch.ones(4, 3, requires_grad=True)\nlabels = torch.tensor([0, 1, 2, 0])\n"
            "loss = torch.nn.CrossEntropyLoss()(scores, labels)\nloss.backward()\n"
        ),
    ),
)
