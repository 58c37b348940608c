"""Errors of modules and their state dicts, optimizers, data loaders, files and ``vmap``, and values outside of a
function's range.
"""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import (
    attention_masks,
    distributions,
    loaded_batches,
    losses,
    mapped,
    modules_called,
    optimizers,
    saved_states,
)
from pitfall_lab.trace import T

FAMILIES = (
    Family(
        "PLE41",
        "state-that-does-not-fit",
        T(
            en=(
                "Error(s) in loading state_dict for Net: Missing key(s) in state_dict / Unexpected key(s) in "
                "state_dict / size mismatch"
            ),
            zh=(
                "Error(s) in loading state_dict for Net: Missing key(s) in state_dict / Unexpected key(s) in "
                "state_dict / size mismatch"
            ),
        ),
        T(
            en=(
                "A state dict goes into a module with the same names and shapes. Names differ by a prefix (`module.` "
                "from `DataParallel`, `model.` from a wrapper) or because the class has changed; shapes differ when "
                "the module was built with other sizes. `strict=False` passes over names, not over shapes."
            ),
            zh=(
                "state_dict 只能装入名字和形状都相同的模块。名字不同常因前缀（`DataParallel` 的 `module.`、包装类的 "
                "`model.`）或类改动过；形状不同是因为模块按别的大小所建。`strict=False` 只放过名字，不放过形状。"
            ),
        ),
        (
            Case(
                r"Error\(s\) in loading state_dict for (\w+):",
                "state_dict|@1",
                T(
                    en="{Line} loads a state into a `{m[1]}` that it does not fit: {lines}.",
                    zh="{Line}把状态装入 `{m[1]}`，但两者不符：{lines}。",
                ),
                T(en="a state dict with the module's own names and shapes", zh="与模块名字、形状相同的 state_dict"),
                remedy=saved_states.that_does_not_fit,
            ),
            Case(
                r"loaded state dict (?:contains a parameter group that doesn't match|has a different number "
                r"of parameter groups)",
                "state_dict",
                T(
                    en="{Line} loads a state into an optimizer that was made for other parameters: “{said}”.",
                    zh="{Line}把状态装入为别的参数而建的优化器：“{said}”。",
                ),
                T(
                    en="an optimizer made with the same groups of parameters, in the same order",
                    zh="用相同的参数组、按相同顺序建的优化器",
                ),
                remedy=optimizers.of_other_parameters,
            ),
            Case(
                r"Expected state_dict to be dict-like, got <class '([\w.]+)'>",
                "state_dict|@1",
                T(
                    en="{Line} gives `load_state_dict` {wrong}, a {m[1]}; it takes a dictionary of tensors.",
                    zh="{Line}交给 `load_state_dict` 的 {wrong} 是 {m[1]}，而它要的是张量的字典。",
                ),
                T(
                    en="a state dict: `torch.load(path)`, `model.state_dict()`",
                    zh="state_dict：`torch.load(path)`、`model.state_dict()`",
                ),
                remedy=saved_states.not_a_state,
            ),
            Case(
                (
                    r"Attempting to deserialize|Weights only load failed|PytorchStreamReader failed|"
                    r"failed finding central directory|invalid load key|Invalid magic number|"
                    r"unexpected EOF"
                ),
                "f",
                T(
                    en="{Line} reads a file that torch cannot load: “{said}”.",
                    zh="{Line}读取的文件 torch 无法加载：“{said}”。",
                ),
                T(
                    en=(
                        "a complete file that `torch.save` wrote; of tensors and plain containers only, unless "
                        "`weights_only=False` (which runs code of the file)"
                    ),
                    zh="由 `torch.save` 写出的完整文件；只含张量和普通容器，除非用 "
                    "`weights_only=False`（会运行文件中的代码）",
                ),
                remedy=saved_states.whole_objects,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "saved = torch.nn.Linear(3, 2).state_dict()\n"
            "model = torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
            "model.load_state_dict(saved)\n"
            "print(len(saved))\n"
        ),
        (
            "import torch\n"
            "\n"
            "saved = torch.nn.Linear(3, 2).state_dict()\n"
            "model = torch.nn.Sequential(torch.nn.Linear(3, 2))\n"
            "model[0].load_state_dict(saved)\n"
            "print(len(saved))\n"
        ),
    ),
    Family(
        "PLE42",
        "module-or-optimizer-built-wrongly",
        T(en="optimizer got an empty parameter list", zh="optimizer got an empty parameter list"),
        T(
            en=(
                "A module knows the parameters and submodules that are assigned to it after `super().__init__()`; "
                "layers in a plain list or dict are not among them (`nn.ModuleList`, `nn.ModuleDict` are made for "
                "that). An optimizer takes leaves, each once."
            ),
            zh=(
                "模块只知道在 `super().__init__()` 之后赋给它的参数和子模块；放在普通列表或字典里的层不算（要用 "
                "`nn.ModuleList`、`nn.ModuleDict`）。优化器只接受叶子张量，每个一次。"
            ),
        ),
        (
            Case(
                r"optimizer got an empty parameter list",
                "params|@1",
                T(en="{Line} makes an optimizer without a parameter.", zh="{Line}建了一个没有参数的优化器。"),
                T(
                    en="the parameters of a module that has some (layers in a plain list are not registered)",
                    zh="有参数的模块的参数（普通列表中的层没有登记）",
                ),
            ),
            Case(
                r"cannot assign (?:module|parameters) before \w+(?:\.__init__)?\(\) call",
                "",
                T(
                    en="{Line} assigns a layer or parameter before `super().__init__()` has run.",
                    zh="{Line}在 `super().__init__()` 运行之前就赋值了层或参数。",
                ),
                T(
                    en="`super().__init__()` as the first line of `__init__`",
                    zh="`__init__` 的第一行是 `super().__init__()`",
                ),
                remedy=modules_called.first_line,
            ),
            Case(
                r"Module \[(\w+)\] is missing the required \"forward\" function|forward\(\) "
                r"(?:missing|takes)|missing the required",
                "",
                T(en="{Line}: the module cannot be called so: “{said}”.", zh="{Line}：不能这样调用模块：“{said}”。"),
                T(
                    en="a module with a method `forward` (spelled so, inside the class) and the "
                    "arguments that it takes",
                    zh="类中有名为 `forward` 的方法，并给出它的参数",
                ),
            ),
            Case(
                r"'(\w+)' object has no attribute '(\w+)'",
                "",
                T(en="{Line}: `{m[1]}` has no attribute `{m[2]}`.", zh="{Line}：`{m[1]}` 没有属性 `{m[2]}`。"),
                T(en="a name that was assigned to it in `__init__`", zh="在 `__init__` 中赋给它的名字"),
                op="Module.__getattr__",
            ),
            Case(
                r"cannot assign '(\S+)' as parameter '(\w+)' \(torch\.nn\.Parameter or None expected\)",
                "value|#1",
                T(
                    en="{Line} assigns a plain tensor to the parameter `{m[2]}`.",
                    zh="{Line}把普通张量赋给参数 `{m[2]}`。",
                ),
                T(
                    en="an `nn.Parameter`, or new numbers for the one that is there: `parameter.copy_(…)` "
                    "under `torch.no_grad()`",
                    zh="`nn.Parameter`，或在 `torch.no_grad()` 下给已有参数新的数值：`parameter.copy_(…)`",
                ),
                remedy=modules_called.as_parameter,
            ),
            Case(
                r"some parameters appear in more than one parameter group",
                "",
                T(
                    en="{Line} puts some parameters into two groups of one optimizer.",
                    zh="{Line}把一些参数放进了同一优化器的两组。",
                ),
                T(en="each parameter in one group", zh="每个参数只在一组中"),
                remedy=optimizers.in_one_group,
            ),
            Case(
                r"'method' object is not iterable",
                "",
                T(
                    en="{Line} gives the optimizer a method itself, not what it returns.",
                    zh="{Line}把方法本身交给了优化器，而不是它的返回值。",
                ),
                T(en="the call: `model.parameters()`", zh="调用：`model.parameters()`"),
                op="Optimizer",
                remedy=optimizers.parameters_called,
            ),
            Case(
                r"'(\w+)' object is not iterable",
                "params|@1",
                T(
                    en="{Line} gives an optimizer a `{m[1]}` itself, {wrong}, where it takes a list of parameters.",
                    zh="{Line}把 `{m[1]}` 对象 {wrong} 本身交给了优化器，而它要的是一个参数列表。",
                ),
                T(en="the parameters: `{wrong_text}.parameters()`", zh="参数：`{wrong_text}.parameters()`"),
                fixes=("{}.parameters()",),
                op="Optimizer",
            ),
            Case(
                r"(?:params argument given to the optimizer should be an iterable of Tensors|optimizer can "
                r"only optimize Tensors)",
                "params|@1",
                T(
                    en="{Line} gives an optimizer something that is no list of parameters: “{said}”.",
                    zh="{Line}交给优化器的不是参数列表：“{said}”。",
                ),
                T(
                    en="`model.parameters()`, a list of tensors, or a list of groups",
                    zh="`model.parameters()`、张量列表或参数组列表",
                ),
            ),
            Case(
                r"embed_dim must be divisible by num_heads",
                "num_heads",
                T(
                    en="{Line} divides {embed_dim.value} features (`embed_dim`) among {num_heads.value} heads "
                    "(`num_heads`), which leaves a rest.",
                    zh="{Line}要把 {embed_dim.value} 个特征（`embed_dim`）分给 {num_heads.value} 个头"
                    "（`num_heads`），除不尽。",
                ),
                T(
                    en="a number of heads that divides {embed_dim.value}, or a multiple of {num_heads.value} features",
                    zh="能整除 {embed_dim.value} 的头数，或 {num_heads.value} 的倍数个特征",
                ),
                other="embed_dim",
                remedy=attention_masks.heads_that_divide,
            ),
            Case(
                r"Expected (?:parameter|value argument) .* to satisfy the constraint",
                "",
                T(
                    en="{Line} makes a distribution with a parameter outside of its range: {said_short}.",
                    zh="{Line}建立分布时，有参数超出范围：{said_short}。",
                ),
                T(en="numbers in the range that torch's words name", zh="torch 原话所说范围内的数"),
                remedy=distributions.in_range,
            ),
            Case(
                (
                    r"Invalid (\w+)(?: parameter)?(?: value)?(?: at index \d+)?:? ?(-?[\d.e+-]+)?|"
                    r"dropout probability has to be between 0 and 1|(\w+) must be divisible by (\w+)|"
                    r"out_channels must be divisible|in_channels must be divisible"
                ),
                "{1}|={2}|p|~said",
                T(
                    en="{Line} gives {call} a value outside of what it takes: “{said}”.",
                    zh="{Line}给 {call} 的值超出范围：“{said}”。",
                ),
                T(en="a value in the range that torch's words name", zh="torch 原话所说范围内的值"),
            ),
        ),
        (
            "import torch\n\nmodel = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.ReLU())\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nprint(len(optimizer.param_groups))\n"
        ),
        (
            "import torch\n\nmodel = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2), torch.nn.ReLU())\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nprint(len(optimizer.param_groups))\n"
        ),
    ),
    Family(
        "PLE43",
        "samples-that-make-no-batch",
        T(
            en="default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            "found <class 'NoneType'>",
            zh="default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
            "found <class 'NoneType'>",
        ),
        T(
            en=(
                "A `DataLoader` makes a batch of samples: it stacks tensors, arrays and numbers, and goes into "
                "tuples, lists and dicts. Everything else (None, images, objects) needs a `collate_fn`, or a "
                "transform to a tensor in the dataset."
            ),
            zh=(
                "`DataLoader` 把样本合成一批：堆叠张量、数组和数，并深入元组、列表和字典。其他一切（None、图像、对象）"
                "需要 `collate_fn`，或在数据集中先变成张量。"
            ),
        ),
        (
            Case(
                r"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
                r"found <class '([\w.]+)'>",
                "batch|@1",
                T(
                    en="{Line}: a sample of the batch holds a {m[1]}, which the loader cannot stack.",
                    zh="{Line}：这一批中有样本含 {m[1]}，加载器无法堆叠。",
                ),
                T(
                    en="samples of tensors, arrays and numbers, or a `collate_fn` of one's own",
                    zh="由张量、数组和数组成的样本，或自己的 `collate_fn`",
                ),
                remedy=loaded_batches.nothing_in_samples,
            ),
            Case(
                r"each element in list of batch should be of equal size",
                "batch|@1",
                T(
                    en="{Line}: the samples of the batch are lists or tuples of different lengths.",
                    zh="{Line}：这一批样本是长度不同的列表或元组。",
                ),
                T(
                    en="samples of one length, or a `collate_fn` that pads them",
                    zh="长度相同的样本，或补齐它们的 `collate_fn`",
                ),
                remedy=loaded_batches.collated_elsewhere,
            ),
            Case(
                r"Sum of input lengths does not equal the length of the input dataset",
                "lengths|@2",
                T(
                    en="{Line} splits a dataset into parts whose lengths do not add up to its own.",
                    zh="{Line}把数据集分成几部分，而各部分长度之和不等于它的长度。",
                ),
                T(
                    en="lengths that add up to `len(dataset)`, or fractions that add up to 1",
                    zh="总和为 `len(dataset)` 的长度，或总和为 1 的比例",
                ),
                remedy=loaded_batches.rest_of_the_split,
            ),
            Case(
                (
                    r"Size mismatch between tensors|num_samples should be a positive integer value, but got "
                    r"num_samples=0|Sum of input lengths|batch_size should be a positive integer"
                ),
                "tensors|@1|={1}",
                T(
                    en="{Line}: the data do not make a dataset or a loader: “{said}”.",
                    zh="{Line}：这些数据构不成数据集或加载器：“{said}”。",
                ),
                T(
                    en="tensors with the same first dimension and at least one sample",
                    zh="第一维相同、至少有一个样本的张量",
                ),
            ),
            Case(
                r"Caught \w+ in DataLoader worker process \d+\..*\n(\w+): ([^\n]+)\s*$",
                "",
                T(
                    en="{Line}: a worker process of the loader raised `{m[1]}`: “{m[2]}”.",
                    zh="{Line}：加载器的一个工作进程抛出了 `{m[1]}`：“{m[2]}”。",
                ),
                T(
                    en="samples that the dataset can give and the loader can stack; with `num_workers=0` the error "
                    "comes on its own line",
                    zh="数据集给得出、加载器能堆叠的样本；用 `num_workers=0` 时，错误会出现在它自己的那一行",
                ),
                remedy=loaded_batches.collated_elsewhere,
            ),
        ),
        (
            "import torch\n"
            "\n"
            "rows = [(torch.ones(2), None), (torch.ones(2), 1)]\n"
            "loader = torch.utils.data.DataLoader(rows, batch_size=2)\n"
            "for inputs, labels in loader:\n"
            "    print(inputs.shape)\n"
        ),
        (
            "import torch\n"
            "\n"
            "rows = [(torch.ones(2), 0), (torch.ones(2), 1)]\n"
            "loader = torch.utils.data.DataLoader(rows, batch_size=2)\n"
            "for inputs, labels in loader:\n"
            "    print(inputs.shape)\n"
        ),
    ),
    Family(
        "PLE45",
        "not-possible-under-vmap",
        T(
            en="vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow",
            zh="vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow",
        ),
        T(
            en=(
                "`torch.vmap(f)` calls `f` once for all rows together; inside, a tensor looks like one row and "
                "holds all of them. So there is no single number that `item()`, `bool()`, `if` or `while` could "
                "have, no single length that a mask could leave, and memory of one row cannot take in what "
                "belongs to all of them."
            ),
            zh=(
                "`torch.vmap(f)` 对所有行只调用一次 `f`；在里面，张量看起来是一行，实际装着所有行。所以没有一个单"
                "独的数可以交给 `item()`、`bool()`、`if` 或 `while`，掩码选出的长度也不止一个，而只属于一行的内存"
                "装不下属于所有行的东西。"
            ),
        ),
        (
            Case(
                r"vmap: It looks like you're calling \.item\(\)",
                "input|self|#1",
                T(
                    en="{Line} reads {wrong} as one Python number, but under `vmap` it holds one number for each row.",
                    zh="{Line}把 {wrong} 读成一个 Python 数，但在 `vmap` 之下，它对每一行各有一个数。",
                ),
                T(
                    en="the tensor itself, without `item()`, `float()` or `int()`: operations on it work on all rows",
                    zh="张量本身，不用 `item()`、`float()` 或 `int()`：对它的运算会作用于所有行",
                ),
            ),
            Case(
                r"vmap: It looks like you're (?:attempting to use a Tensor in some data-dependent "
                r"control flow|either \(1\))",
                "",
                T(
                    en="{Line} needs one value for `{code}`, but under `vmap` there is one for each row, and all "
                    "rows go the same way.",
                    zh="{Line}需要 `{code}` 只有一个值，但在 `vmap` 之下，它对每一行各有一个值，而"
                    "所有行只能走同一条路。",
                ),
                T(
                    en="`torch.where(condition, one, other)` instead of `if`; the tensor itself instead of "
                    "`item()` or `float()`",
                    zh="用 `torch.where(condition, one, other)` 代替 `if`；用张量本身代替 `item()` 或 `float()`",
                ),
                remedy=mapped.branches,
            ),
            Case(
                r"Batch norm got a batched tensor as input while the running_mean or running_var",
                "",
                T(
                    en="{Line} updates the running statistics of a batch norm under `vmap`, which belong "
                    "to no single example.",
                    zh="{Line}在 `vmap` 之下更新批归一化的滑动统计量，而它们不属于任何单个样本。",
                ),
                T(
                    en="a norm that looks at one example, such as `GroupNorm`",
                    zh="只看单个样本的归一化，例如 `GroupNorm`",
                ),
                remedy=mapped.statistics_of_a_batch,
            ),
            Case(
                r"vmap: We do not support batching operators that can support dynamic shape",
                "input|self|#1",
                T(
                    en="{Line} picks as many elements of {wrong} as fulfil a condition, and under `vmap` each row "
                    "would give another number of them.",
                    zh="{Line}从 {wrong} 中选出满足条件的元素，而在 `vmap` 之下，每一行选出的个数各不相同。",
                ),
                T(
                    en="a result of the same shape for every row: `torch.where(mask, x, 0)` before a sum, `topk`, or "
                    "a product with a mask",
                    zh="每一行形状相同的结果：求和之前用 `torch.where(mask, x, 0)`，或用 `topk`，或乘以掩码",
                ),
            ),
            Case(
                r"vmap: called random operation while in randomness error mode",
                "",
                T(
                    en="{Line} draws random numbers under `vmap`, which does not know whether each "
                    "row is to have its own.",
                    zh="{Line}在 `vmap` 之下抽取随机数，而 `vmap` 不知道每一行是否要有自己的随机数。",
                ),
                T(
                    en='`vmap(f, randomness="different")` for numbers of its own in each row, `randomness="same"` for '
                    "the same ones in all",
                    zh='`vmap(f, randomness="different")` 让每一行各有随机数，`randomness="same"` 让所有行共用',
                ),
                remedy=mapped.random_numbers,
            ),
            Case(
                r"vmap: inplace arithmetic\(self, \*extra_args\) is not possible",
                "input|self|#1",
                T(
                    en="{Line} writes what belongs to all rows into {wrong}, which was made inside `vmap` without a "
                    "row dimension: it has room for one row.",
                    zh="{Line}把属于所有行的东西写进 {wrong}，而它在 `vmap` 里面创建，没有行的维度：只放得下一行。",
                ),
                T(
                    en="a new tensor made of the parts (`torch.stack`, `torch.cat`), or memory made from the "
                    "argument (`x.new_zeros(…)`)",
                    zh="由各部分生成的新张量（`torch.stack`、`torch.cat`），或由参数创建的内存（`x.new_zeros(…)`）",
                ),
            ),
        ),
        (
            "import torch\n\ndef bounded(x):\n    if x > 1:\n        return torch.ones(())\n    return x\n\n"
            "print(torch.vmap(bounded)(torch.tensor([0.5, 2.0])))\n"
        ),
        (
            "import torch\n\ndef bounded(x):\n    return torch.where(x > 1, 1.0, x)\n\n"
            "print(torch.vmap(bounded)(torch.tensor([0.5, 2.0])))\n"
        ),
    ),
    Family(
        "PLE44",
        "value-outside-of-its-range",
        T(en="all elements of input should be between 0 and 1", zh="all elements of input should be between 0 and 1"),
        T(
            en=(
                "Some functions are defined for some numbers only: probabilities are between 0 and 1 and not all "
                "zero, deviations are not negative, a matrix that is inverted has full rank. `binary_cross_entropy` "
                "takes probabilities (after `sigmoid`); `binary_cross_entropy_with_logits` takes scores."
            ),
            zh=(
                "有些函数只对某些数有定义：概率在 0 到 1 之间且不全为零，标准差非负，求逆的矩阵满秩。"
                "`binary_cross_entropy` 要概率（`sigmoid` 之后），`binary_cross_entropy_with_logits` 要分数。"
            ),
        ),
        (
            Case(
                r"`?lengths`? array must be sorted in decreasing order",
                "lengths",
                T(
                    en="{Line}: the lengths in {wrong} are not in decreasing order, which {call} takes for granted.",
                    zh="{Line}：{wrong} 中的长度没有从大到小排列，而 {call} 默认它们已经排好。",
                ),
                T(
                    en="lengths from the longest to the shortest, with the rows in that order, or "
                    "`enforce_sorted=False`",
                    zh="从最长到最短的长度（各行也按这个顺序），或者 `enforce_sorted=False`",
                ),
                fixes=("!enforce_sorted=False",),
            ),
            Case(
                r"var has negative entry",
                "var",
                T(
                    en="{Line}: {call} takes {wrong} for variances, but its numbers go from "
                    "{wrong.low} to {wrong.high}.",
                    zh="{Line}：{call} 把 {wrong} 当作方差，但它的数从 {wrong.low} 到 {wrong.high}。",
                ),
                T(
                    en="variances, which are positive: of their logarithm `{wrong_text}.exp()`, of any number "
                    "`torch.nn.functional.softplus({wrong_text})`",
                    zh="正的方差：若是它的对数，用 `{wrong_text}.exp()`；若是任意数，用 "
                    "`torch.nn.functional.softplus({wrong_text})`",
                ),
                fixes=("{}.exp()", "torch.nn.functional.softplus({})"),
            ),
            Case(
                r"all elements of (input|target) should be between 0 and 1",
                "{1}",
                T(
                    en="{Line} takes {wrong} for probabilities, but its numbers go from {wrong.low} to {wrong.high}.",
                    zh="{Line}把 {wrong} 当作概率，但它的数从 {wrong.low} 到 {wrong.high}。",
                ),
                T(
                    en="numbers from 0 to 1 (`torch.sigmoid(…)`), or `binary_cross_entropy_with_logits` for scores",
                    zh="0 到 1 的数（`torch.sigmoid(…)`），分数则用 `binary_cross_entropy_with_logits`",
                ),
                fixes=("torch.sigmoid({})",),
                remedy=losses.of_scores,
            ),
            Case(
                (
                    r"probability tensor contains either `inf`, `nan` or element < 0|invalid multinomial distribution|"
                    r"Expected p_in >= 0 && p_in <= 1"
                ),
                "input|#1",
                T(
                    en=(
                        "{Line} draws by the probabilities {wrong}, whose numbers go from {wrong.low} to "
                        "{wrong.high}; {said_short}."
                    ),
                    zh="{Line}按概率 {wrong} 抽样，而它的数从 {wrong.low} 到 {wrong.high}；torch 的原话：“{said}”。",
                ),
                T(
                    en="numbers that are finite, not negative, and not all zero in a row (`softmax` makes such)",
                    zh="有限、非负、且每行不全为零的数（`softmax` 会给出这样的数）",
                ),
            ),
            Case(
                r"cannot sample n_sample|number of categories cannot exceed",
                "num_samples|@2|input",
                T(
                    en="{Line} draws {num_samples.value} of {first} (shape {first.shape}): {said_short}.",
                    zh="{Line}从 {first}（形状 {first.shape}）中抽 {num_samples.value} 个：“{said}”。",
                ),
                T(
                    en="a positive number of draws, at most as many as there are without replacement",
                    zh="正的抽样个数；不放回时不超过总数",
                ),
                other="#1",
            ),
            Case(
                (
                    r"input matrix is singular|is not positive-definite|leading minor of order|"
                    r"diagonal element \d+ is zero|failed to converge|must be batches of square matrices"
                ),
                "A|input|#1",
                T(
                    en="{Line}: {call} cannot do it with {wrong} (shape {wrong.shape}): {said_short}.",
                    zh="{Line}：{call} 对 {wrong}（形状 {wrong.shape}）无法进行：“{said}”。",
                ),
                T(
                    en=(
                        "a square matrix of full rank (positive definite for `cholesky`); `pinv`, `lstsq` or a small "
                        "multiple of the identity help where it is not"
                    ),
                    zh="满秩的方阵（`cholesky` 要正定）；否则用 `pinv`、`lstsq` 或加上单位阵的小倍数",
                ),
            ),
            Case(
                (
                    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (\d+) "
                    r"bytes|CUDA out of memory|Storage size calculation overflowed"
                ),
                "size|~number",
                T(
                    en="{Line} needs more memory than there is: {said_short}.",
                    zh="{Line}要的内存超出了现有的：“{said}”。",
                ),
                T(en="smaller sizes, or the work in parts", zh="更小的大小，或分批进行"),
            ),
            Case(
                r"([\w. ]+) is not a valid value for reduction|^(\w+) is not valid$",
                "reduction",
                T(
                    en="{Line}: `reduction` is {wrong}, which {call} does not know.",
                    zh="{Line}：`reduction` 是 {wrong}，{call} 不认识它。",
                ),
                T(en='"none", "mean" or "sum"', zh='"none"、"mean" 或 "sum"'),
            ),
        ),
        (
            "import torch\n\nscores = torch.tensor([2.5, -1.0])\nlabels = torch.tensor([1.0, 0.0])\n"
            "print(torch.nn.functional.binary_cross_entropy(scores, labels))\n"
        ),
        (
            "import torch\n\nscores = torch.tensor([2.5, -1.0])\nlabels = torch.tensor([1.0, 0.0])\n"
            "print(torch.nn.functional.binary_cross_entropy(torch.sigmoid(scores), labels))\n"
        ),
    ),
)
