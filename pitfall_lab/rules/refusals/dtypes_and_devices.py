"""The pages (``FAMILIES``) for errors about dtypes, types of arguments, and devices."""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import (
    arrays,
    at_birth,
    modules_called,
    saved_states,
    written_results,
    written_types,
)
from pitfall_lab.trace import T

FAMILIES = (
    Family(
        "PLE21",
        "number-types-do-not-go-together",
        T(en="\"histogram_cpu\" not implemented for 'Long'", zh="\"histogram_cpu\" not implemented for 'Long'"),
        T(
            en=(
                "Every tensor has a number type (`dtype`). Element-wise arithmetic converts mixed types; products of "
                "matrices, layers, losses and many other functions do not. NumPy makes `float64`, torch's layers are "
                "`float32`; convert the data: `x.float()`."
            ),
            zh=(
                "每个张量都有数值类型（`dtype`）。逐元素的算术会转换混合类型；矩阵乘积、层、损失和许多其他函数不会。"
                "NumPy 生成 `float64`，torch 的层是 `float32`；请转换数据：`x.float()`。"
            ),
        ),
        (
            Case(
                (
                    r"Index put requires the source and destination dtypes match|masked_scatter: expected self and "
                    r"source to have same|(?:index_add_|index_copy_|index_reduce_|put_)\(\): self .*(?:same scalar "
                    r"type|same dtype)|scatter\(\): Expected self\.dtype to be equal to src\.dtype"
                ),
                "value|values|source|src",
                T(
                    en="{Line} writes {wrong}, numbers of type {wrong.type}, into {other}, which holds {other.type}; "
                    "{call} converts nothing.",
                    zh="{Line}把 {wrong.type} 类型的数 {wrong} 写入 {other}，而后者存的是 "
                    "{other.type}；{call} 不做转换。",
                ),
                T(
                    en="numbers of the type of the memory: `.to({other_text}.dtype)` (under `autocast` a layer's "
                    "result is bfloat16 or float16)",
                    zh="与内存类型相同的数：`.to({other_text}.dtype)`（在 `autocast` 之下，层的结果是 "
                    "bfloat16 或 float16）",
                ),
                other="input|self|#1",
                remedy=written_types.converted,
            ),
            Case(
                (
                    r"expected (?:both vectors|m1 and m2|mat1 and mat2|self and mat2) to have (?:the )?same "
                    r"dtype|must have the same dtype|should be the same|to have the same dtype|Expected self\.dtype "
                    r"to be equal to src\.dtype|dtypes? of input and out to match|both inputs should have same "
                    r"dtype|[Ee]xpected (?:the )?(?:same )?dtype for"
                ),
                "~dtype",
                T(
                    en="{Line}: {call} was given tensors of different number types: {types}. It converts none of them.",
                    zh="{Line}：{call} 得到数值类型不同的张量：{types}。它不做转换。",
                ),
                T(
                    en="one number type in all of them (`{wrong_text}.to({other_text}.dtype)`)",
                    zh="全部用同一种数值类型（`{wrong_text}.to({other_text}.dtype)`）",
                ),
                fixes=("{}.to({other}.dtype)", "{}.float()"),
            ),
            Case(
                r"(?:[Ee]xpected|expects) (?:object of )?(?:scalar )?type (\w+) but "
                r"(?:found|got)(?: scalar type)? (\w+)",
                "~type{2}|~dtype",
                T(
                    en="{Line}: {call} expected numbers of type {m[1]}, and {wrong} has {wrong.type}.",
                    zh="{Line}：{call} 期望 {m[1]} 类型的数，而 {wrong} 是 {wrong.type}。",
                ),
                T(en="the type {m[1]}", zh="{m[1]} 类型"),
                fixes=("{}.float()", "{}.long()"),
                remedy=at_birth.converted,
            ),
            Case(
                r"Got unsupported ScalarType (\w+)",
                "input|self|#1",
                T(
                    en="{Line} converts {wrong} to NumPy, but its numbers are {wrong.type}, a type that "
                    "NumPy does not have.",
                    zh="{Line}把 {wrong} 转换成 NumPy 数组，但它的数是 {wrong.type}，而 NumPy 没有这种类型。",
                ),
                T(
                    en="a type that NumPy has: `{wrong_text}.float()` (under `autocast` a layer's result is "
                    "bfloat16 or float16)",
                    zh="NumPy 有的类型：`{wrong_text}.float()`（在 `autocast` 之下，层的结果是 bfloat16 或 float16）",
                ),
                fixes=("{}.float()",),
            ),
            Case(
                r"expected target dtype to be (?:Long|Long or Byte), but got (\w+)",
                "target",
                T(
                    en="{Line}: the numbers of the classes in {wrong} have the type {wrong.type}, and {call} "
                    "takes them as int64.",
                    zh="{Line}：{wrong} 中的类别编号是 {wrong.type} 类型，而 {call} 要求 int64。",
                ),
                T(en="class numbers of type int64 (`.long()`)", zh="int64 类型的类别编号（`.long()`）"),
                fixes=("{}.long()",),
            ),
            Case(
                "\\\"(\\w+)\\\" not implemented for '(\\w+)'",
                "~type{2}",
                T(
                    en=(
                        "{Line}: {call} has no code for numbers of type {m[2]} on this device, which {wrong} has "
                        "(shape {wrong.shape})."
                    ),
                    zh="{Line}：{call} 在这个设备上没有 {m[2]} 类型的实现，而 {wrong}（形状 "
                    "{wrong.shape}）是这种类型。",
                ),
                T(
                    en="another number type: `.float()` for arithmetic, `.long()` for positions and classes",
                    zh="别的数值类型：运算用 `.float()`，位置和类别用 `.long()`",
                ),
                fixes=("{}.float()", "{}.long()"),
            ),
            Case(
                r"result type (\w+) can't be cast to the desired output type (\w+)",
                "#1",
                T(
                    en=(
                        "{Line} writes a result of type {m[1]} into {first}, whose numbers are {first.type}; that "
                        "would lose what they cannot hold."
                    ),
                    zh="{Line}要把 {m[1]} 类型的结果写入 {first}，而它的数是 {first.type}，装不下的部分会丢失。",
                ),
                T(
                    en="a new tensor (`x = x + y` instead of `x += y`), or one of type {m[1]} to write into",
                    zh="新张量（`x = x + y` 而不是 `x += y`），或用 {m[1]} 类型的张量来写入",
                ),
                other="#2",
                remedy=written_results.as_new_tensor,
            ),
            Case(
                r"could not infer output dtype\. (?:Input|Optional) dtype must be either a floating "
                r"point or complex dtype",
                "",
                T(
                    en="{Line}: {call} makes fractions, and {wrong} has whole numbers ({wrong.type}).",
                    zh="{Line}：{call} 的结果是小数，而 {wrong} 是整数（{wrong.type}）。",
                ),
                T(
                    en="floating-point numbers (`.float()`, or `dtype=torch.float32`)",
                    zh="浮点数（`.float()`，或 `dtype=torch.float32`）",
                ),
                fixes=("{}.float()",),
            ),
            Case(
                (
                    r"tensors used as indices must be long, int, byte or bool tensors|expected (?:indices|index) "
                    r".*(?:Long|integral|int)|[Ee]xpected dtype int|Expected tensor for argument #\d+ '(\w+)' to have "
                    r"one of the following scalar types: Long, Int"
                ),
                "{1}|index|indices|~floating",
                T(
                    en="{Line} takes {wrong} for positions, but its numbers are {wrong.type}.",
                    zh="{Line}把 {wrong} 当作位置，但它的数是 {wrong.type}。",
                ),
                T(en="whole numbers (`.long()`), or a mask of type bool", zh="整数（`.long()`），或 bool 类型的掩码"),
                fixes=("{}.long()",),
            ),
            Case(
                (
                    r"only supports? (?:boolean masks|floating-point dtypes|integral)|expects? (?:float32 or float64 "
                    r"dtypes|Long tensor)|to have (?:integral|floating point) dtype|Expected both inputs to be Half, "
                    r"Float or Double|Subtraction, the `-` operator, with (?:two bool|a bool)|Negation, the `-` "
                    r"operator, on a bool tensor|[Ee]xpected floating point type|only Tensors of floating point|must "
                    r"be either a floating point or complex"
                ),
                "~said",
                T(
                    en="{Line}: {call} does not take the number type{of_wrong}; torch's words: “{said}”.",
                    zh="{Line}：{call} 不接受这种数值类型{of_wrong}；torch 的原话：“{said}”。",
                ),
                T(
                    en="a number type that torch's words name (`.float()`, `.long()`, `.bool()`)",
                    zh="torch 原话所说的数值类型（`.float()`、`.long()`、`.bool()`）",
                ),
                fixes=("{}.float()", "{}.bool()"),
            ),
            Case(
                (
                    r"Expected out tensor to have dtype|expects? (?:\w+ )?tensor out, got|Expected object of scalar "
                    r"type (\w+) but got scalar type (\w+) for (?:argument '(\w+)'|(\w+) argument)"
                ),
                "{3}|out|#2",
                T(
                    en=(
                        "{Line}: {wrong} has numbers of type {wrong.type}, and {call} needs another type there; "
                        "torch's words: “{said}”."
                    ),
                    zh="{Line}：{wrong} 的数是 {wrong.type}，而 {call} 在此需要别的类型；torch 的原话：“{said}”。",
                ),
                T(en="the type that torch's words name", zh="torch 原话所说的类型"),
                other="#1",
                fixes=("{}.to({other}.dtype)",),
            ),
            Case(
                r"value cannot be converted to type (\w+) without overflow",
                "value|@2|~number",
                T(
                    en="{Line}: the number {wrong} does not fit into the type of {tensor}, {tensor.type}.",
                    zh="{Line}：数 {wrong} 放不进 {tensor} 的类型 {tensor.type}。",
                ),
                T(
                    en="a number that the type {tensor.type} can hold (`torch.finfo` and "
                    "`torch.iinfo` show the limits)",
                    zh="{tensor.type} 类型装得下的数（`torch.finfo`、`torch.iinfo` 给出界限）",
                ),
                other="#1",
            ),
        ),
        "import torch\n\ncounts = torch.tensor([3, 1, 2])\nprint(torch.histc(counts, bins=3))\n",
        "import torch\n\ncounts = torch.tensor([3, 1, 2])\nprint(torch.histc(counts.float(), bins=3))\n",
    ),
    Family(
        "PLE22",
        "argument-of-another-kind",
        T(
            en="linear(): argument 'input' (position 1) must be Tensor, not numpy.ndarray",
            zh="linear(): argument 'input' (position 1) must be Tensor, not numpy.ndarray",
        ),
        T(
            en=(
                "A function takes certain kinds of arguments: tensors, whole numbers, lists of tensors. NumPy arrays, "
                "lists and numbers do not become tensors by themselves: `torch.as_tensor(x)` makes one. `cat` and "
                "`stack` take a list, not the tensors one by one."
            ),
            zh=(
                "函数只接受某些种类的参数：张量、整数、张量列表。NumPy 数组、列表和数不会自己变成张量：用 "
                "`torch.as_tensor(x)`。`cat` 和 `stack` 接受一个列表，而不是逐个的张量。"
            ),
        ),
        (
            Case(
                r"argument '(\w+)'(?: \(position (\d+)\))? must be (Tensor), not (tuple)",
                "",
                T(
                    en="{Line}: the argument `{m[1]}` of {call} has to be one tensor, and it was given a tuple.",
                    zh="{Line}：{call} 的参数 `{m[1]}` 必须是一个张量，而得到的是元组。",
                ),
                T(
                    en="one tensor: an element of the tuple, or its parts unpacked",
                    zh="一个张量：元组的一个元素，或拆开的各部分",
                ),
                remedy=modules_called.pair,
            ),
            Case(
                (
                    r"argument '(\w+)'(?: \(position (\d+)\))? must be ([\w ]+?)(?:, not|, but got|"
                    r", but found|, found| but found) ([\w. ]+)"
                ),
                "{1}|@{2}",
                T(
                    en="{Line}: the argument `{m[1]}` of {call} has to be {m[3]}, and {wrong} is {m[4]}.",
                    zh="{Line}：{call} 的参数 `{m[1]}` 必须是 {m[3]}，而 {wrong} 是 {m[4]}。",
                ),
                T(en="{m[3]} for `{m[1]}`", zh="`{m[1]}` 为 {m[3]}"),
                fixes=("torch.as_tensor({})", "torch.as_tensor({}, dtype=torch.float32)", "torch.tensor({})"),
            ),
            Case(
                r"is implemented for strided tensors only",
                "layout",
                T(
                    en="{Line}: {call} makes ordinary (strided) tensors only, and `layout` is {wrong.value}.",
                    zh="{Line}：{call} 只产生普通（strided）张量，而 `layout` 是 {wrong.value}。",
                ),
                T(en="`torch.strided`, or no `layout`", zh="`torch.strided`，或不给 `layout`"),
            ),
            Case(
                r"received an invalid combination of arguments - got \(([^)]*)\)",
                "~overload",
                T(
                    en="{Line}: {call} was given ({m[1]}), and none of its forms takes that{of_wrong}.",
                    zh="{Line}：{call} 得到 ({m[1]})，它的任何一种形式都不接受{of_wrong}。",
                ),
                T(en="one of these: {forms}", zh="以下形式之一：{forms}"),
                fixes=("torch.as_tensor({})",),
            ),
            Case(
                r"([\w.]+)\(\) missing (\d+) required (?:positional|keyword-only) arguments?: (.*)",
                "",
                T(en="{Line}: `{m[1]}` was called without {m[3]}.", zh="{Line}：调用 `{m[1]}` 时缺少 {m[3]}。"),
                T(en="a call that also gives {m[3]}", zh="还给出 {m[3]} 的调用"),
                remedy=modules_called.spread,
            ),
            Case(
                r"(\w+\(\)) (?:got an unexpected keyword argument|takes (?:from )?\d+)",
                "",
                T(
                    en="{Line}: {call} takes other arguments; torch's words: “{said}”.",
                    zh="{Line}：{call} 的参数不是这样的；torch 的原话：“{said}”。",
                ),
                T(en="the arguments of its documentation", zh="文档所列的参数"),
            ),
            Case(
                r"argument '(\w+)' should contain (\w+) ints? \(got (\d+)\)",
                "{1}",
                T(
                    en="{Line}: `{m[1]}` of {call} should be {m[2]} number(s), and has {m[3]}.",
                    zh="{Line}：{call} 的 `{m[1]}` 应有 {m[2]} 个数，而给了 {m[3]} 个。",
                ),
                T(en="{m[2]} whole number(s)", zh="{m[2]} 个整数"),
            ),
            Case(
                (
                    r"unsupported operand type\(s\) for ([^:]+): '([\w.]+)' and '([\w.]+)'|descriptor '(\w+)' for .* "
                    r"doesn't apply to a '(\w+)' object"
                ),
                "~notensor|#1",
                T(
                    en="{Line} uses an operator between a tensor and {wrong}, which is neither a tensor nor a number.",
                    zh="{Line}在张量和 {wrong} 之间用了运算符，而后者既不是张量也不是数。",
                ),
                T(en="tensors and numbers only", zh="只能是张量和数"),
            ),
            Case(
                r"expected sequence of length (\d+) at dim (\d+) \(got (\d+)\)",
                "data|@1",
                T(
                    en="{Line} makes a tensor of rows of different lengths: {m[1]} and {m[3]}.",
                    zh="{Line}用长度不同的行建张量：{m[1]} 和 {m[3]}。",
                ),
                T(
                    en="rows of one length (pad the shorter ones: `torch.nn.utils.rnn.pad_sequence`)",
                    zh="长度相同的行（短的先补齐：`torch.nn.utils.rnn.pad_sequence`）",
                ),
            ),
            Case(
                r"At least one stride in the given numpy array is negative",
                "ndarray|data|@1",
                T(
                    en="{Line} makes a tensor of {wrong}, an array that runs backwards through its memory "
                    "(a negative stride).",
                    zh="{Line}要把 {wrong} 变成张量，而这个数组倒着走过自己的内存（负的步长）。",
                ),
                T(
                    en="a copy, which is stored in order: `{wrong_text}.copy()`",
                    zh="按顺序存放的副本：`{wrong_text}.copy()`",
                ),
                fixes=("{}.copy()",),
                remedy=arrays.turned_round,
            ),
            Case(
                (
                    r"can't convert np\.ndarray of type numpy\.(\w+)|"
                    r"given numpy array has byte order different|too many dimensions '(\w+)'|"
                    r"Could not infer dtype of|expected np\.ndarray"
                ),
                "ndarray|data|@1",
                T(
                    en="{Line} makes a tensor of {wrong}, which torch cannot take as it is: “{said}”.",
                    zh="{Line}要把 {wrong} 变成张量，而 torch 无法直接接受：“{said}”。",
                ),
                T(
                    en="a plain array of numbers (`.astype('float32')` for objects)",
                    zh="普通的数值数组（对象数组用 `.astype('float32')`）",
                ),
                fixes=('{}.astype("float32")',),
            ),
            Case(
                r"'?(\w+)'? object (?:is not callable|is not subscriptable|has no attribute '(\w+)')|has "
                r"no attribute '(\w+)'",
                "input|#1",
                T(en="{Line}: {said}.", zh="{Line}：{said}。"),
                T(
                    en="a name that it has; submodules and parameters have to be assigned in `__init__`",
                    zh="它具有的名字；子模块和参数要在 `__init__` 中赋值",
                ),
            ),
            Case(
                r"must be (?:a )?(?:tuple|list)|must be a list/tuple|cannot be empty",
                "~said",
                T(
                    en="{Line}: {call} takes a list or a tuple with at least one element; torch's words: “{said}”.",
                    zh="{Line}：{call} 要求至少有一个元素的列表或元组；torch 的原话：“{said}”。",
                ),
                T(en="a list or a tuple with at least one element", zh="至少有一个元素的列表或元组"),
                fixes=("[{}]",),
            ),
        ),
        (
            "import numpy as np\n"
            "import torch\n"
            "\n"
            "layer = torch.nn.Linear(3, 2)\n"
            'row = np.ones(3, dtype="float32")\n'
            "print(layer(row).shape)\n"
        ),
        (
            'import numpy as np\nimport torch\n\nlayer = torch.nn.Linear(3, 2)\nrow = np.ones(3, dtype="float32")\n'
            "print(layer(torch.as_tensor(row)).shape)\n"
        ),
    ),
    Family(
        "PLE23",
        "tensors-on-different-devices",
        T(
            en="Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
            zh="Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        ),
        T(
            en=(
                "The numbers of a tensor are on one device, and operations do not reach across. Send the model and "
                "each batch to the same one. The device `meta` has shapes and no numbers."
            ),
            zh="张量的数存放在一个设备上，运算不能跨设备。把模型和每个批次都送到同一个设备。`meta` 设"
            "备只有形状没有数值。",
        ),
        (
            Case(
                r"to be on the same device|on different devices|should be the same|is on (\w+), but expected",
                "~device",
                T(
                    en="{Line}: {call} was given tensors on different devices: {devices}.",
                    zh="{Line}：{call} 得到不同设备上的张量：{devices}。",
                ),
                T(
                    en="all on one device (`{wrong_text}.to({other_text}.device)`)",
                    zh="都在同一设备上（`{wrong_text}.to({other_text}.device)`）",
                ),
                other="#1",
                fixes=("{}.to({other}.device)",),
            ),
            Case(
                (
                    r"Cannot copy out of meta tensor; no data!|Tensor\.item\(\) cannot be called on meta tensors|"
                    r"cannot be called on a meta tensor"
                ),
                "~meta|#1",
                T(
                    en="{Line}: {wrong} is on the device `meta`, where tensors have a shape and no numbers.",
                    zh="{Line}：{wrong} 在 `meta` 设备上，那里的张量只有形状没有数值。",
                ),
                T(
                    en="a tensor with memory (`module.to_empty(device=…)`, then its values)",
                    zh="有内存的张量（`module.to_empty(device=…)`，再给出数值）",
                ),
                remedy=saved_states.on_meta,
            ),
            Case(
                (
                    r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available|"
                    r"only supported on CUDA|can't convert (?:cuda|mps)\S* device type tensor to numpy|"
                    r"Attempting to deserialize object on a CUDA device"
                ),
                "~device",
                T(en="{Line} needs a device that is not there: “{said}”.", zh="{Line}需要这里没有的设备：“{said}”。"),
                T(
                    en=(
                        'the device that there is: `device = "cuda" if torch.cuda.is_available() else "cpu"`, and '
                        "`map_location=device` for `torch.load`"
                    ),
                    zh=(
                        '现有的设备：`device = "cuda" if torch.cuda.is_available() else "cpu"`，`torch.load` 用 '
                        "`map_location=device`"
                    ),
                ),
            ),
        ),
        'import torch\n\nwith torch.device("meta"):\n    scores = torch.ones(3)\nprint(scores.tolist())\n',
        "import torch\n\nscores = torch.ones(3)\nprint(scores.tolist())\n",
    ),
)
