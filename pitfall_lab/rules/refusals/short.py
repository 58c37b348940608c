"""One or two short sentences about each family of errors, which are shown below a traceback.

They say what torch has just refused, unlike the first sentence of a page, which introduces its subject. For some kinds
of errors of a family, :data:`EXACT` has a sentence of its own.
"""

from __future__ import annotations

import re

from pitfall_lab.rules.refusals.family import Family
from pitfall_lab.trace import T

SHORT: dict[str, T] = {
    "PLE01": T(
        "the shapes of this matrix product do not fit: the left one must have as many columns as "
        "the right one has rows.",
        "这个矩阵乘积的形状对不上：左边的列数必须等于右边的行数。",
    ),
    "PLE02": T(
        "two shapes do not fit: lined up from the right, lengths must be equal or 1.",
        "两个形状对不上：从右边对齐后，长度必须相等或为 1。",
    ),
    "PLE03": T(
        "the new shape has another number of elements than the tensor.",
        "新的形状与张量的元素个数不同。",
    ),
    "PLE04": T(
        "these tensors cannot be joined: their shapes differ where they must be equal.",
        "这些张量不能连接：它们的形状在必须相等的地方不同。",
    ),
    "PLE05": T(
        "the layer was built for another number of channels or features than its input has.",
        "这一层所设定的通道数或特征数与输入不同。",
    ),
    "PLE06": T(
        "a tensor has more or fewer dimensions than this call takes.",
        "张量的维数比此调用所要求的多或少。",
    ),
    "PLE07": T(
        "the input is too small: the window of the convolution or pooling, or the batch of the normalization, "
        "does not fit into it.",
        "输入太小：容不下卷积或池化的窗口，或不够归一化所需的批次。",
    ),
    "PLE08": T(
        "the loss was given predictions and targets whose sizes do not belong together.",
        "损失得到的预测与目标的大小不相配。",
    ),
    "PLE11": T(
        "the call names a dimension that the tensor does not have: they are counted from 0, and from the end with -1.",
        "调用所说的维度在张量中不存在：维度从 0 数起，从末尾用 -1 数起。",
    ),
    "PLE12": T(
        "a position is outside of the tensor: in a dimension of size n positions go from 0 to n - 1.",
        "有一个位置超出了张量：大小为 n 的维度中，位置是 0 到 n - 1。",
    ),
    "PLE13": T(
        "the pieces do not add up to what is split, or there are more or fewer of them than names.",
        "各块加起来不等于被分割的总数，或块数与名字的个数不同。",
    ),
    "PLE14": T(
        "one number is needed here (for `if`, `float()`, `item()`), and the tensor has several or none.",
        "这里需要一个数（用于 `if`、`float()`、`item()`），而张量有多个数或没有数。",
    ),
    "PLE21": T(
        "tensors of different number types (`dtype`) meet here, or the call does not take this type; it "
        "converts none of them.",
        "不同数值类型（`dtype`）的张量在这里相遇，或此调用不接受这种类型；它不会自动转换。",
    ),
    "PLE22": T(
        "an argument is of another kind than the call takes: an array, a list or a number instead of a tensor, say.",
        "某个参数的种类不是此调用所要求的：例如给了数组、列表或数，而不是张量。",
    ),
    "PLE23": T(
        "tensors on different devices meet here; no operation reaches across. Send the model and "
        "its data to one device.",
        "不同设备上的张量在这里相遇，而运算不能跨设备。把模型和数据送到同一个设备。",
    ),
    "PLE31": T(
        "this tensor requires grad, and NumPy computes no gradients: `x.detach().numpy()` gives the numbers.",
        "这个张量需要梯度，而 NumPy 不计算梯度：`x.detach().numpy()` 给出它的数值。",
    ),
    "PLE32": T(
        "backward cannot begin here: what it was called on has no graph, or does not fit what was given to it.",
        "反向传播不能从这里开始：它没有计算图，或与所给的梯度不相配。",
    ),
    "PLE33": T(
        "a custom `backward` must return one gradient for each argument of `forward`, of its shape, or None.",
        "自定义的 `backward` 必须为 `forward` 的每个参数返回一个形状相同的梯度，或 None。",
    ),
    "PLE34": T(
        "a gradient or a hook was wanted of a tensor that gets no gradient, or has none yet.",
        "想要取得梯度或注册钩子的张量不会得到梯度，或还没有梯度。",
    ),
    "PLE35": T(
        "autograd forbids this write: it would lose or spoil numbers that a gradient needs.",
        "autograd 禁止这样写入：它会丢失或破坏求梯度所需的数。",
    ),
    "PLE36": T(
        "a deep copy met a computed tensor: torch copies no tensor that has a `grad_fn`. Keep it with `.detach()`.",
        "深拷贝遇到了计算得到的张量：torch 不拷贝带有 `grad_fn` 的张量。请用 `.detach()` 保存它。",
    ),
    "PLE41": T(
        "the saved state does not belong to this module or optimizer: names or shapes differ, or the file "
        "cannot be read as such.",
        "保存的状态不属于这个模块或优化器：名字或形状不同，或文件不能这样读取。",
    ),
    "PLE42": T(
        "the module or optimizer was built in a way that torch does not accept, or lacks a name that the code uses.",
        "模块或优化器的构造方式不被 torch 接受，或没有代码所用的名字。",
    ),
    "PLE43": T(
        "the `DataLoader` cannot make a batch of these samples: one is of another kind or size, or the data "
        "set fits no such split.",
        "`DataLoader` 不能把这些样本组成批次：其中有种类或大小不同的样本，或数据集不能这样划分。",
    ),
    "PLE44": T(
        "a number is outside of what this function is defined for.",
        "有一个数超出了此函数的定义范围。",
    ),
    "PLE45": T(
        "under `vmap` a tensor stands for all rows at once, so this has no single value, length or place.",
        "在 `vmap` 之下，一个张量同时代表所有行，因此这里没有单一的值、长度或位置。",
    ),
    "PLE50": T(
        "this optimizer does not take the sparse (or dense) gradients that it was given.",
        "这个优化器不接受所得到的稀疏（或稠密）梯度。",
    ),
    "PLE51": T(
        "only tensors can be saved with `ctx.save_for_backward`; other things become attributes: `ctx.scale = scale`.",
        "只有张量能用 `ctx.save_for_backward` 保存；其他内容请作为属性保存：`ctx.scale = scale`。",
    ),
    "PLE52": T(
        "the schedule or optimizer was stepped in a way that it was not set up for: too often, or without an "
        "argument that it needs.",
        "调度器或优化器的 `step` 与它的设定不符：次数太多，或缺少所需的参数。",
    ),
    "PLE53": T(
        "the output of a module with a backward hook was changed in place; write `x = x + …`, and no "
        "`inplace=True` after it.",
        "带有反向钩子的模块的输出被就地修改；请写 `x = x + …`，其后不要用 `inplace=True`。",
    ),
    "PLE54": T(
        "the checkpointed block did something else when it was run again in backward.",
        "被设为检查点的部分在反向传播中重新运行时做了不同的事。",
    ),
    "PLE55": T(
        "the `GradScaler` was called out of order: scale and backward, then unscale, then step, then update.",
        "`GradScaler` 的调用顺序不对：应先缩放并反向传播，再 unscale，再 step，再 update。",
    ),
    "PLE56": T(
        "the loss is a complex number; make it real first: `x.abs()`, or `torch.view_as_real(x)`.",
        "损失是复数；请先把它变成实数：`x.abs()`，或 `torch.view_as_real(x)`。",
    ),
    "PLE57": T(
        "None is given where a tensor is needed: a function, often a `forward`, has no `return`, or "
        "nothing was assigned yet.",
        "需要张量的地方是 None：某个函数（常常是 `forward`）没有 `return`，或还没有赋值。",
    ),
    "PLE58": T(
        "a method was indexed like an attribute, or an attribute called like a method: `x.size(0)`, but `x.shape[0]`.",
        "把方法当成属性来索引，或把属性当成方法来调用：`x.size(0)`，而 `x.shape[0]`。",
    ),
    "PLE59": T(
        "the tensors went to the class of the loss, not to an object of it: `nn.CrossEntropyLoss()(scores, labels)`.",
        "张量交给了损失的类，而不是它的对象：`nn.CrossEntropyLoss()(scores, labels)`。",
    ),
}
EXACT: tuple[tuple[str, T], ...] = (
    (
        r"support the deepcopy protocol",
        T(
            "this tensor was computed and has a graph, which `copy.deepcopy` cannot copy: "
            "`x.detach().clone()` has none.",
            "这个张量是计算出来的，带有计算图，而 `copy.deepcopy` 不能复制计算图：`x.detach().clone()` 不带图。",
        ),
    ),
    (
        r"Target (-?\d+) is out of bounds",
        T(
            "a class number is {0}, and the scores have no column for it: with n columns, classes go from 0 to n - 1.",
            "有一个类别编号是 {0}，而分数中没有对应的列：有 n 列时，类别是 0 到 n - 1。",
        ),
    ),
    (
        r"Class values must be",
        T(
            "a class number is negative, or not smaller than `num_classes`.",
            "有一个类别编号是负数，或不小于 `num_classes`。",
        ),
    ),
    (
        r"index out of range in self",
        T(
            "an embedding was given the number of a row that it lacks: with n rows, numbers go from 0 to n - 1.",
            "向嵌入层索取了不存在的行：有 n 行时，编号是 0 到 n - 1。",
        ),
    ),
    (
        r"index (-?\d+) is out of bounds for dimension (-?\d+) with size (\d+)",
        T(
            "the position is {0}, and dimension {1} has {2} positions, counted from 0.",
            "位置是 {0}，而第 {1} 维有 {2} 个位置，从 0 数起。",
        ),
    ),
    (
        r"The shape of the mask|selected (?:index|number) k out of range|exceeds dimension size",
        T(
            "the mask, or the number of elements that is taken, does not fit the size of the tensor.",
            "掩码或所取的元素个数与张量的大小不相配。",
        ),
    ),
    (
        (
            r"(?:same dtype.*?but (?:got|found):?|Input type) "
            r"\(?([Ff]loat|[Dd]ouble|[Hh]alf|[Bb]?[Ff]loat16|[Ll]ong|[Ii]nt)\)?(?: != | and )"
            r"(?:\w+ type )?\(?([Ff]loat|[Dd]ouble|[Hh]alf|[Bb]?[Ff]loat16|[Ll]ong|[Ii]nt)\b"
        ),
        T(
            "numbers of two types meet here, {0} and {1} (`dtype`), and this call converts none: give both one "
            "type, `x.to(y.dtype)`.",
            "两种数值类型在这里相遇：{0} 和 {1}（`dtype`），此调用不做转换：请统一类型，`x.to(y.dtype)`。",
        ),
    ),
    (
        r"[Ee]xpected (?:object of )?(?:scalar )?type (\w+) but (?:found|got)(?: scalar type)? (\w+)",
        T(
            "numbers of type {0} are needed here, and these are {1} (`dtype`): convert them first, `.float()`, "
            "`.double()` or `.long()`.",
            "这里需要 {0} 类型的数，而给出的是 {1}（`dtype`）：请先转换，`.float()`、`.double()` 或 `.long()`。",
        ),
    ),
    (
        r"\"(\w+)\" not implemented for '(\w+)'",
        T(
            "this call does not work with numbers of type {1} (`dtype`) on this device: convert them first, "
            "`.float()` or `.long()`.",
            "此调用在这个设备上不支持 {1} 类型的数（`dtype`）：请先转换，`.float()` 或 `.long()`。",
        ),
    ),
    (
        r"Subtraction, the `-` operator, with|Negation, the `-` operator",
        T(
            "`-` does not work with truth values: `~mask` turns a mask round, `a ^ b` compares two.",
            "`-` 不能用于真假值：用 `~mask` 取反，用 `a ^ b` 比较两个掩码。",
        ),
    ),
    (
        r"Batch norm|Expected more than 1 (?:value per channel|spatial element) when",
        T(
            "a normalization in training mode needs more than one value for each channel: a larger "
            "batch, or `net.eval()`.",
            "训练模式下的归一化要求每个通道有不止一个值：使用更大的批次，或 `net.eval()`。",
        ),
    ),
    (
        r"CUDA out of memory|can't allocate memory|not enough memory|Storage size calculation",
        T(
            "there is not enough memory for the tensor that was to be made: a smaller batch, or results kept "
            "without their graphs.",
            "内存不足以创建所要的张量：用更小的批次，或保存结果时不带计算图。",
        ),
    ),
    (
        r"all elements of (input|target) should be between 0 and 1",
        T(
            "the {0} of `binary_cross_entropy` must be between 0 and 1: for scores use "
            "`binary_cross_entropy_with_logits`.",
            "`binary_cross_entropy` 的 {0} 必须在 0 与 1 之间：对分数请用 `binary_cross_entropy_with_logits`。",
        ),
    ),
    (
        r"singular|not positive-definite|leading minor|diagonal element|failed to converge",
        T(
            "this matrix cannot be inverted or decomposed: it is singular, not positive definite, or not finite.",
            "这个矩阵不能求逆或分解：它是奇异的、不是正定的，或含有非有限的数。",
        ),
    ),
    (
        r"optimizer got an empty parameter list",
        T(
            "the optimizer got no parameters: layers in a plain list, or an iterator of parameters that "
            "was already used up.",
            "优化器没有得到参数：层放在普通列表里，或参数的迭代器已经用完。",
        ),
    ),
    (
        r"before \w+(?:\.__init__)?\(\) call",
        T(
            "a layer or parameter was assigned before `super().__init__()` was called.",
            "在调用 `super().__init__()` 之前就赋值了层或参数。",
        ),
    ),
    (
        r"Inference tensors cannot|inference tensor",
        T(
            "a tensor made under `inference_mode` cannot take part in gradients; `.clone()` it outside first.",
            "在 `inference_mode` 下产生的张量不能参与求梯度；先在外面 `.clone()`。",
        ),
    ),
    (
        r"'(\w+)' object has no attribute '(\w+)'",
        T(
            "a `{0}` has no attribute `{1}`.",
            "`{0}` 没有名为 `{1}` 的属性。",
        ),
    ),
)


def short(family: Family, message: str) -> T | None:
    """Return one or two sentences about an error of this family with the message ``message``: those for this message if
    there are any, else those of the family; None if the family has none.
    """
    for pattern, said in EXACT:
        found = re.search(pattern, message, re.DOTALL)
        if found is not None:
            return T(said.en.format(*found.groups()), said.zh.format(*found.groups()))
    return SHORT.get(family.code)
