"""The pages (``FAMILIES``) for errors that autograd raises."""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import (
    function_gradients,
    kept_results,
    lists_of_tensors,
    numbers_and_methods,
    written_results,
)
from pitfall_lab.trace import T

FAMILIES = (
    Family(
        "PLE31",
        "numpy-of-a-tensor-that-requires-grad",
        T(
            en="Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            zh="Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
        ),
        T(
            en=(
                "NumPy computes no gradients, so its results could not be differentiated; torch raises an error "
                "rather than lose a gradient without a warning. For printing, plotting and metrics the history is not "
                "needed: `x.detach().numpy()`. Inside a loss compute with torch."
            ),
            zh=(
                "NumPy 不知道梯度，它的计算无法求导；torch 宁可拒绝，也不悄悄丢掉梯度。打印、画图和指标不需要历史："
                "`x.detach().numpy()`。损失内部则用 torch 计算。"
            ),
        ),
        (
            Case(
                r"Can't call numpy\(\) on Tensor that requires grad",
                "input|#1",
                T(
                    en="{Line} converts {wrong} to NumPy, but it requires grad, and NumPy keeps no "
                    "record for backward.",
                    zh="{Line}把 {wrong} 交给 NumPy，但它需要梯度，而 NumPy 不为反向传播留记录。",
                ),
                T(
                    en="the same numbers without their graph: `{wrong_text}.detach().numpy()`",
                    zh="不带计算图的同样的数：`{wrong_text}.detach().numpy()`",
                ),
                fixes=("{}.detach()",),
                remedy=lists_of_tensors.collected_with_history,
            ),
        ),
        "import torch\n"
        "\n"
        "scale = torch.tensor([1.0, 2.0], requires_grad=True)\n"
        "shown = (scale * 3).numpy()\n"
        "print(shown)\n",
        (
            "import torch\n"
            "\n"
            "scale = torch.tensor([1.0, 2.0], requires_grad=True)\n"
            "shown = (scale * 3).detach().numpy()\n"
            "print(shown)\n"
        ),
    ),
    Family(
        "PLE32",
        "backward-cannot-begin",
        T(
            en="Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has a "
            "shape of torch.Size([3]).",
            zh="Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has a "
            "shape of torch.Size([3]).",
        ),
        T(
            en=(
                "Backward needs a tensor that was computed, in grad mode, from something that requires grad. `item()`, "
                "`float()`, `detach()`, `torch.tensor(loss)`, NumPy, `torch.no_grad()` and frozen parameters all leave "
                "no graph."
            ),
            zh=(
                "反向传播需要一个在梯度模式开启时、由需要梯度的张量算得的张量。`item()`、`float()`、`detach()`、"
                "`torch.tensor(loss)`、NumPy、`torch.no_grad()` 以及冻结的参数都不会留下计算图。"
            ),
        ),
        (
            Case(
                r"element (\d+) of tensors does not require grad and does not have a grad_fn",
                "input|tensors|outputs|#1",
                T(
                    en=(
                        "{Line} starts backward from {wrong}, which has no record of how it was computed: nothing "
                        "that requires grad went into it, or the record was cut off on the way."
                    ),
                    zh="{Line}从 {wrong} 开始反向传播，而它没有计算记录：其中没有需要梯度的张量参与，"
                    "或记录在途中被切断。",
                ),
                T(
                    en="a result computed by torch, with gradients on, from parameters that require grad",
                    zh="在开启梯度时由 torch 从需要梯度的参数算得的结果",
                ),
            ),
            Case(
                r"'(float|int|numpy\.\w+)' object has no attribute '(backward|detach|grad|requires_grad_|item)'",
                "!object",
                T(
                    en="{Line} calls `{m[2]}` on {wrong}, which is a {m[1]} and no tensor: it has no record of "
                    "how it was computed.",
                    zh="{Line}对 {wrong} 调用 `{m[2]}`，而它是 {m[1]}，不是张量：它没有计算记录。",
                ),
                T(
                    en="the tensor itself; `item()` and `float()` take a number out for printing, and leave no graph",
                    zh="张量本身；`item()` 和 `float()` 只是取出数来打印，不留下计算图",
                ),
                remedy=numbers_and_methods.kept_as_tensor,
            ),
            Case(
                r"grad can be implicitly created only for scalar outputs",
                "input|tensors|outputs|#1",
                T(
                    en=(
                        "{Line} starts backward from {wrong} of shape {wrong.shape}; only for one number torch "
                        "knows where to start."
                    ),
                    zh="{Line}从形状为 {wrong.shape} 的 {wrong} 开始反向传播；只有单个数 torch 才知道从何开始。",
                ),
                T(
                    en="one number (`.mean()` or `.sum()`), or `backward(gradient)`",
                    zh="单个数（`.mean()` 或 `.sum()`），或 `backward(gradient)`",
                ),
                fixes=("{}.mean()", "{}.sum()"),
            ),
            Case(
                # Before torch 2.13 no index was named.
                r"(?:One of the differentiated Tensors|The differentiated Tensor at index \d+) "
                r"(?:appears to not have been used in the graph|does not require grad)",
                "inputs|@2|#2",
                T(
                    en=(
                        "{Line} takes the gradient with respect to a tensor that the result was not computed from, or "
                        "that does not require grad."
                    ),
                    zh="{Line}对一个张量求梯度，而结果不是由它算得的，或它不需要梯度。",
                ),
                T(
                    en="inputs that the result depends on; `allow_unused=True` gives None for the others",
                    zh="结果所依赖的输入；`allow_unused=True` 对其余给出 None",
                ),
            ),
            Case(
                r"Mismatch in shape: grad_output\[(\d+)\] has a shape of .* and output\[(\d+)\] has a shape of",
                "gradient|grad_tensors|grad_outputs|#2",
                T(
                    en=(
                        "{Line}: the gradient {wrong} has the shape {wrong.shape}, and what backward starts from, "
                        "{first}, has {first.shape}."
                    ),
                    zh="{Line}：梯度 {wrong} 的形状是 {wrong.shape}，而反向传播的起点 {first} 的形状是 {first.shape}。",
                ),
                T(en="a gradient of shape {first.shape}", zh="形状为 {first.shape} 的梯度"),
                other="#1",
                fixes=("torch.ones_like({other})",),
            ),
            Case(
                (
                    r"[Oo]nly Tensors of floating point (?:and complex )?dtype can require gradients|"
                    r"only floating[- ]point tensors can require grad"
                ),
                "input|data|#1|@1",
                T(
                    en=(
                        "{Line} wants gradients of {wrong}, whose numbers are whole; a gradient is a rate of change "
                        "and needs fractions."
                    ),
                    zh="{Line}要求 {wrong} 有梯度，而它的数是整数；梯度是变化率，需要小数。",
                ),
                T(en="floating-point numbers (`1.0`, `.float()`)", zh="浮点数（`1.0`、`.float()`）"),
                fixes=("{}.float()",),
            ),
        ),
        "import torch\n"
        "\n"
        "weight = torch.ones(3, requires_grad=True)\n"
        "(weight * 2).backward(torch.ones(2))\n"
        "print(weight.grad)\n",
        "import torch\n"
        "\n"
        "weight = torch.ones(3, requires_grad=True)\n"
        "(weight * 2).backward(torch.ones(3))\n"
        "print(weight.grad)\n",
    ),
    Family(
        "PLE33",
        "custom-backward-returns-the-wrong-gradients",
        T(
            en="function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)",
            zh="function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)",
        ),
        T(
            en=(
                "The `backward` of a `torch.autograd.Function` returns one value for each argument of `forward` "
                "(without `ctx`), in their order: a gradient of that argument's shape, or None for what has none, "
                "such as a number or a flag."
            ),
            zh=(
                "`torch.autograd.Function` 的 `backward` 要为 `forward` 的每个参数（`ctx` "
                "除外）按顺序返回一个值：形状与该参数相同的梯度；没有梯度的（数、开关等）返回 None。"
            ),
        ),
        (
            Case(
                r"function (\w+?)(?:Backward)? returned an incorrect number of gradients \(expected (\d+), got (\d+)\)",
                "",
                T(
                    en=(
                        "{Line}: the `backward` of `{m[1]}` returned {m[3]} value(s), and its `forward` took {m[2]} "
                        "argument(s) besides `ctx`."
                    ),
                    zh="{Line}：`{m[1]}` 的 `backward` 返回了 {m[3]} 个值，而它的 `forward` 除 `ctx` "
                    "外有 {m[2]} 个参数。",
                ),
                T(
                    en="{m[2]} values in the order of the arguments of `forward`, None where there is no gradient",
                    zh="按 `forward` 参数顺序的 {m[2]} 个值，没有梯度的为 None",
                ),
                fixes=("!gradients",),
            ),
            Case(
                (
                    r"[Ff]unction (\w+?)(?:Backward)? returned an invalid gradient at index (\d+) - got (\[[\d, ]*\]) "
                    r"but expected shape compatible with (\[[\d, ]*\])"
                ),
                "",
                T(
                    en=(
                        "{Line}: the `backward` of `{m[1]}` returned for argument {m[2]} (from 0) a gradient of shape "
                        "{m[3]}; the argument has {m[4]}."
                    ),
                    zh=(
                        "{Line}：`{m[1]}` 的 `backward` 为第 {m[2]} 个参数（从 0 数）返回了形状 {m[3]} 的梯度，而"
                        "该参数的形状是 {m[4]}。"
                    ),
                ),
                T(
                    en="a gradient of shape {m[4]} (summed over what was broadcast)",
                    zh="形状为 {m[4]} 的梯度（对广播过的维度求和）",
                ),
                remedy=function_gradients.gradient_of_another_shape,
            ),
            Case(
                (
                    r"(?:expected|returned) (?:Variable|Tensor|an invalid).*(?:gradient|backward)|"
                    r"A view was created in no_grad mode|Output \d+ of (?!BackwardHook)(\w+)Backward is a view and is being modified "  # noqa: E501
                    "inplace"
                ),
                "",
                T(
                    en="{Line}: autograd does not accept what was done with the results of {call}; "
                    "torch's words: “{said}”.",
                    zh="{Line}：autograd 不接受对 {call} 结果的做法；torch 的原话：“{said}”。",
                ),
                T(en="a clone of that result before it is written", zh="写入之前先克隆该结果"),
            ),
            Case(
                r"the derivative for '(\w+)' is not implemented|derivative for (\S+) is not implemented",
                "{1}|@2",
                T(
                    en="{Line}: {call} has no gradient with respect to `{m[1]}`, and {wrong} requires one.",
                    zh="{Line}：{call} 对 `{m[1]}` 没有梯度，而 {wrong} 需要梯度。",
                ),
                T(en="an argument that does not require grad (`.detach()`)", zh="不需要梯度的参数（`.detach()`）"),
                fixes=("{}.detach()",),
            ),
        ),
        (
            "import torch\n"
            "\n"
            "\n"
            "class Scale(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x, factor):\n"
            "        ctx.factor = factor\n"
            "        return x * factor\n"
            "\n"
            "    @staticmethod\n"
            "    def backward(ctx, gradient):\n"
            "        return gradient * ctx.factor\n"
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
            "        ctx.factor = factor\n"
            "        return x * factor\n"
            "\n"
            "    @staticmethod\n"
            "    def backward(ctx, gradient):\n"
            "        return gradient * ctx.factor, None\n"
            "\n"
            "\n"
            "x = torch.ones(3, requires_grad=True)\n"
            "Scale.apply(x, 2.0).sum().backward()\n"
            "print(x.grad)\n"
        ),
    ),
    Family(
        "PLE34",
        "hook-or-grad-where-there-is-no-gradient",
        T(
            en="cannot register a hook on a tensor that doesn't require gradient",
            zh="cannot register a hook on a tensor that doesn't require gradient",
        ),
        T(
            en=(
                "Hooks, `retain_grad()` and `.grad` belong to tensors for which a gradient is computed. A constant, "
                "and whatever was computed under `no_grad` or from `detach()`, gets none; a leaf has a `.grad` only "
                "after the first backward."
            ),
            zh=(
                "钩子、`retain_grad()` 和 `.grad` 属于会计算梯度的张量。常量、以及在 `no_grad` 下或由 `detach()` "
                "得来的张量没有梯度；叶子张量在第一次反向传播之后才有 `.grad`。"
            ),
        ),
        (
            Case(
                r"cannot register a hook on a (?:tensor|variable) that doesn't require grad",
                "input|self|#1",
                T(
                    en="{Line} puts a hook on {wrong}, for which no gradient will be computed: it "
                    "does not require grad.",
                    zh="{Line}在 {wrong} 上注册钩子，而它不需要梯度，不会为它计算梯度。",
                ),
                T(en="a tensor that requires grad, or is computed from one", zh="需要梯度的张量，或由其算得的张量"),
            ),
            Case(
                r"can't retain_grad on Tensor that has requires_grad=False",
                "input|self|#1",
                T(
                    en="{Line} calls `retain_grad()` on {wrong}, but no gradient will be computed: it "
                    "does not require grad.",
                    zh="{Line}要 {wrong} 保留梯度，但不会为它计算梯度：它不需要梯度。",
                ),
                T(en="a tensor that requires grad, or is computed from one", zh="需要梯度的张量，或由其算得的张量"),
            ),
            Case(
                r"'NoneType' object has no attribute '(\w+)'",
                "!grad",
                T(
                    en="{Line} uses {wrong}, which is None: no backward has put a gradient there yet.",
                    zh="{Line}使用了 {wrong}，而它是 None：还没有反向传播在那里放过梯度。",
                ),
                T(
                    en=(
                        "a `.grad` after the first backward of something computed from that leaf, or a check "
                        "`if x.grad is not None`"
                    ),
                    zh="由该叶子算得的结果首次反向传播之后的 `.grad`，或先检查 `if x.grad is not None`",
                ),
                remedy=numbers_and_methods.guarded,
            ),
            Case(
                r"assigned grad has data (?:of a different|located on)|attempting to assign a gradient",
                "value|grad|#2",
                T(
                    en=(
                        "{Line} assigns a gradient {wrong} ({wrong.type} of shape {wrong.shape}) to {first} "
                        "({first.type} of shape {first.shape})."
                    ),
                    zh="{Line}把梯度 {wrong}（{wrong.type}，形状 {wrong.shape}）赋给 {first}（{first.type}，形"
                    "状 {first.shape}）。",
                ),
                T(
                    en="a gradient of the tensor's own shape, type and device",
                    zh="与张量本身形状、类型、设备相同的梯度",
                ),
                other="#1",
            ),
            Case(
                r"you can only change requires_grad flags of leaf variables|can't (?:optimize|require grad)",
                "input|#1",
                T(
                    en="{Line} switches gradients of {wrong} off or on, but it was computed; only "
                    "leaves can be switched.",
                    zh="{Line}切换 {wrong} 的梯度开关，但它是计算得来的；只有叶子可以切换。",
                ),
                T(en="`.detach()`, which gives a leaf without a graph", zh="`.detach()`，它给出没有计算图的叶子"),
            ),
        ),
        "import torch\n\nweight = torch.tensor([1.0, 2.0])\nweight.register_hook(print)\nprint(weight)\n",
        (
            "import torch\n"
            "\n"
            "weight = torch.tensor([1.0, 2.0], requires_grad=True)\n"
            "weight.register_hook(print)\n"
            "print(weight.detach())\n"
        ),
    ),
    Family(
        "PLE35",
        "write-that-autograd-forbids",
        T(
            en=(
                "mul(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad."
            ),
            zh=(
                "mul(): functions with out=... arguments don't support automatic differentiation, but one of the "
                "arguments requires grad."
            ),
        ),
        T(
            en=(
                "Autograd allows writes that it can follow. It refuses to give a tensor from `detach()` or `.data` "
                "another size, to write with `out=` what would need a gradient, to change a tensor from inference "
                "mode, and to write over memory that an operation reads at the same time."
            ),
            zh=(
                "autograd 只允许它能跟踪的写入。它拒绝：改变由 `detach()` 或 `.data` 得到的张量的大小，用 `out=` "
                "写入需要梯度的结果，在推理模式之外修改推理张量，以及写入同一运算正在读取的内存。"
            ),
        ),
        (
            Case(
                (
                    r"set_(?:sizes_contiguous|storage|sizes_and_strides|storage_offset) is not allowed on a Tensor "
                    r"created from \.data or \.detach\(\)"
                ),
                "input|#1",
                T(
                    en=(
                        "{Line} gives {wrong} another size or other memory, but it came from `.data` or `detach()` "
                        "and shares what it looks at."
                    ),
                    zh="{Line}改变 {wrong} 的大小或内存，但它来自 `.data` 或 `detach()`，与别的张量共享内存。",
                ),
                T(
                    en="a copy (`.clone()`) that is then resized, or a new tensor",
                    zh="先 `.clone()` 再改变大小，或新张量",
                ),
                fixes=("{}.clone()",),
            ),
            Case(
                r"functions with out=\.\.\. arguments don't support automatic differentiation, but one of the "
                r"arguments requires grad",
                "~grad|out",
                T(
                    en="{Line} writes its result into {out} (`out=`), and {wrong} requires grad: a result "
                    "written so has no history.",
                    zh="{Line}用 `out=` 把结果写入 {out}，而 {wrong} 需要梯度：这样写的结果没有历史。",
                ),
                T(
                    en="the result as a new tensor, without `out=`; or `torch.no_grad()` where no gradient is meant",
                    zh="不用 `out=`，得到新张量；不需要梯度时用 `torch.no_grad()`",
                ),
                remedy=written_results.without_out,
            ),
            Case(
                (
                    r"Inplace update to inference tensor outside InferenceMode|Inference tensors cannot be saved for "
                    r"backward|Cannot set version_counter for inference tensor"
                ),
                "~first|#1",
                T(
                    en="{Line}: {wrong} was made under `inference_mode`; outside of it autograd can neither save "
                    "it for backward nor allow writes into it.",
                    zh="{Line}：{wrong} 在 `inference_mode` 下产生；在其外，autograd 既不能为反向传播保存它，也不允许"
                    "写入它。",
                ),
                T(
                    en="a clone (`.clone()`), or `torch.no_grad()` instead of `inference_mode`",
                    zh="克隆（`.clone()`），或用 `torch.no_grad()` 代替 `inference_mode`",
                ),
                fixes=("{}.clone()",),
            ),
            Case(
                (
                    r"unsupported operation: (?:more than one element of the written-to tensor|"
                    r"some elements of the input tensor and the written-to)|Cannot resize|resize_ only|"
                    r"tensor that is not resizable|Trying to resize storage"
                ),
                "out|input|#1",
                T(
                    en=(
                        "{Line} writes into {wrong} of shape {wrong.shape}, some of whose elements share memory with "
                        "others that are written or read."
                    ),
                    zh="{Line}写入形状为 {wrong.shape} 的 {wrong}，其中有些元素与正在读写的其他元素处于同一内存位置。",
                ),
                T(
                    en="a tensor with memory of its own for each element (`.clone()`)",
                    zh="每个元素各有自己内存的张量（`.clone()`）",
                ),
                fixes=("{}.clone()",),
            ),
            Case(
                r"[Ii]n-place leakyReLU backward calculation is triggered with a negative slope|In-place "
                r"(?:elu|celu|rrelu|hardtanh)",
                "#1",
                T(
                    en=(
                        "{Line}: backward through an in-place activation has only its result, and with a negative "
                        "slope the sign of the input cannot be read from it."
                    ),
                    zh="{Line}：就地激活的反向传播只有结果可用，斜率为负时无法由结果看出输入的符号。",
                ),
                T(
                    en="the activation without `_` or `inplace=True`, or a positive slope",
                    zh="不带 `_` 或 `inplace=True` 的激活，或正的斜率",
                ),
            ),
            Case(
                r"Trying to backward through the graph a second time",
                "input|tensors|#1",
                T(
                    en="{Line} goes back through a computation a second time; its saved numbers were "
                    "freed the first time.",
                    zh="{Line}第二次沿同一计算往回走；第一次之后保存的数已被释放。",
                ),
                T(
                    en=(
                        "one backward for each computation: compute it again, add the losses, or `detach()` what "
                        "comes from an earlier round"
                    ),
                    zh="每次计算只反向传播一次：重新计算、把损失相加，或对来自前一轮的张量 `detach()`",
                ),
            ),
            Case(
                r"one of the variables needed for gradient computation has been modified by an inplace operation",
                "",
                T(
                    en="{Line}: backward needs a tensor as it was when it was used, and it has been written since.",
                    zh="{Line}：反向传播需要某个张量被使用时的样子，而它后来被改写了。",
                ),
                T(en="a new tensor instead of the write, or a clone before it", zh="用新张量代替改写，或在改写前克隆"),
            ),
        ),
        (
            "import torch\n"
            "\n"
            "weight = torch.ones(3, requires_grad=True)\n"
            "room = torch.empty(3)\n"
            "torch.mul(weight, 2, out=room)\n"
            "print(room.sum())\n"
        ),
        "import torch\n\nweight = torch.ones(3, requires_grad=True)\nroom = torch.mul(weight, 2)\nprint(room.sum())\n",
    ),
    Family(
        "PLE36",
        "deep-copy-of-a-computed-tensor",
        T(
            en="Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
            "moment.",
            zh="Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
            "moment.",
        ),
        T(
            en=(
                "A computed tensor has a `grad_fn`, which leads into the graph of its computation. A copy of it would "
                "need a copy of the whole graph, so torch raises an error. Mostly the tensor is an attribute of a "
                "module that keeps its last activations, attention weights or loss, and the module is copied for an "
                "average, a target network or the best state so far. Keep it as `result.detach()`."
            ),
            zh=(
                "计算得到的张量带有 `grad_fn`，它通向计算图。拷贝它就得拷贝整个图，所以 torch 报错。多半是某个模块把"
                "最近的激活、注意力权重或损失存成了属性，而为了求平均、目标网络或最佳状态又拷贝了这个模块。"
                "请保存 `result.detach()`。"
            ),
        ),
        (
            Case(
                r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
                "input|#1|self",
                T(
                    en="{Line} makes a deep copy of {wrong}, which was computed: torch copies no tensor that has a "
                    "`grad_fn`.",
                    zh="{Line}深拷贝 {wrong}，而它是计算得来的：torch 不拷贝带有 `grad_fn` 的张量。",
                ),
                T(
                    en="a leaf, or `{wrong_text}.detach().clone()`; what a module keeps between "
                    "rounds is best kept detached",
                    zh="叶子张量，或 `{wrong_text}.detach().clone()`；模块在各轮之间保存的张量最好 detach",
                ),
                fixes=("{}.detach()",),
                remedy=kept_results.detached,
            ),
        ),
        "import copy\n"
        "\n"
        "import torch\n"
        "\n"
        "scale = torch.tensor([1.0, 2.0], requires_grad=True)\n"
        "kept = {'last': scale * 3}\n"
        "print(copy.deepcopy(kept))\n",
        (
            "import copy\n"
            "\n"
            "import torch\n"
            "\n"
            "scale = torch.tensor([1.0, 2.0], requires_grad=True)\n"
            "kept = {'last': (scale * 3).detach()}\n"
            "print(copy.deepcopy(kept))\n"
        ),
    ),
)
