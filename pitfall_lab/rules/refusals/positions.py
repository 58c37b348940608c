"""Dimensions, indices and lengths that do not exist."""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import class_numbers, dimensions, lists_of_tensors, tables
from pitfall_lab.trace import T

FAMILIES = (
    Family(
        "PLE11",
        "dimension-that-is-not-there",
        T(
            en="Dimension out of range (expected to be in range of [-2, 1], but got 2)",
            zh="Dimension out of range (expected to be in range of [-2, 1], but got 2)",
        ),
        T(
            en=(
                "Dimensions are counted from 0, and from the end with -1. A tensor of two dimensions has dimensions 0 "
                "and 1, also called -2 and -1."
            ),
            zh="维度从 0 数起，从末尾则用 -1。二维张量有第 0 维和第 1 维，也叫 -2 和 -1。",
        ),
        (
            Case(
                r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)",
                "=dim{3}|dim|dims|axis|={3}|#1",
                T(
                    en="{Line} names dimension {m[3]}{param_note} of {tensor}, which has the shape {tensor.shape}.",
                    zh="{Line}提到 {tensor} 的第 {m[3]} 维{param_note}，而它的形状是 {tensor.shape}。",
                ),
                T(en="a dimension from {m[1]} to {m[2]}", zh="{m[1]} 到 {m[2]} 之间的维度"),
                other="#1",
            ),
            Case(
                r"Dimension specified as (-?\d+) but tensor has no dimensions",
                "=dim{1}|dim|dims|axis|#1",
                T(
                    en="{Line} names dimension {m[1]}{param_note} of {tensor}, which is a single "
                    "number without dimensions.",
                    zh="{Line}提到 {tensor} 的第 {m[1]} 维{param_note}，而它是没有维度的单个数。",
                ),
                T(en="a tensor with at least one dimension", zh="至少有一维的张量"),
                other="#1",
            ),
            Case(
                (
                    r"dim (-?\d+) appears multiple times in the list of dims|repeated dim in `?(\w+)`?|"
                    r"diagonal dimensions cannot be identical (-?\d+), (-?\d+)|expected rotation dims to be different|"
                    r"Duplicate dim not allowed"
                ),
                "{2}|dim|dims|dim1|axis|physical_layout|#1",
                T(
                    en="{Line} names one dimension of {tensor} (shape {tensor.shape}) twice{param_note}.",
                    zh="{Line}把 {tensor}（形状 {tensor.shape}）的同一维写了两次{param_note}。",
                ),
                T(en="each dimension at most once; -1 is the last one", zh="每一维至多一次；-1 就是最后一维"),
                other="#1",
            ),
            Case(
                r"Duplicate dim not allowed",
                "physical_layout",
                T(en="{Line} names one dimension twice in {wrong}.", zh="{Line}在 {wrong} 中把同一维写了两次。"),
                T(en="each dimension once", zh="每一维一次"),
            ),
            Case(
                r"input\.dim\(\) = (\d+) is not equal to len\(dims\) = (\d+)",
                "dims|@2",
                T(
                    en="{Line} gives an order for {m[2]} dimensions{param_note}, and {tensor} has {m[1]} "
                    "(shape {tensor.shape}).",
                    zh="{Line}给出了 {m[2]} 个维度的次序{param_note}，而 {tensor} 有 {m[1]} 维（形"
                    "状 {tensor.shape}）。",
                ),
                T(en="each of the {m[1]} dimensions once", zh="{m[1]} 个维度各一次"),
                other="#1",
                remedy=dimensions.order_with_batch,
            ),
            Case(
                (
                    r"number of dimensions in the tensor input does not match the length of the desired ordering of "
                    r"dimensions|Invalid source or destination dims|shifts and dimensions must align|expected total "
                    r"rotation dims == 2|Number of dimensions in size does not match"
                ),
                "dims|source|physical_layout|size|@2",
                T(
                    en=(
                        "{Line}: {call} was given another number of dimensions{param_note} than it needs; "
                        "torch's words: “{said}”."
                    ),
                    zh="{Line}：{call} 得到的维度个数{param_note}与所需不符；torch 的原话：“{said}”。",
                ),
                T(en="as many as torch's words name", zh="torch 原话所说的个数"),
                other="#1",
            ),
            Case(
                r"Expected dim < static_cast<int64_t>",
                "dim",
                T(
                    en="{Line} names dimension {wrong.value} (`dim`) of {tensor}, which has the shape {tensor.shape}.",
                    zh="{Line}提到 {tensor} 的第 {wrong.value} 维（`dim`），而它的形状是 {tensor.shape}。",
                ),
                T(en="a dimension that the tensor has", zh="张量具有的维度"),
                other="#1",
            ),
        ),
        "import torch\n\ntable = torch.ones(4, 3)\nprint(table.sum(dim=2))\n",
        "import torch\n\ntable = torch.ones(4, 3)\nprint(table.sum(dim=1))\n",
    ),
    Family(
        "PLE12",
        "position-outside-of-the-tensor",
        T(
            en="index 3 is out of bounds for dimension 0 with size 3",
            zh="index 3 is out of bounds for dimension 0 with size 3",
        ),
        T(
            en=(
                "Positions are counted from 0: in a dimension of size 3 they are 0, 1 and 2. Functions that "
                "look positions up (`gather`, `index_select`, `embedding`, indexing with a tensor) want every "
                "one of them inside. An embedding needs one row for each number that may come, the largest "
                "one and the padding included."
            ),
            zh=(
                "位置从 0 数起：长度为 3 的维度有位置 0、1、2。按位置取数的函数（`gather`、`index_select`、"
                "`embedding`、用张量索引）要求每个位置都在范围之内。嵌入层要为每个可能出现的编号各备一行，包括最大"
                "的编号和填充用的编号。"
            ),
        ),
        (
            Case(
                r"index out of range in self",
                "input|indices",
                T(
                    en=(
                        "{Line} looks up rows of {other} by the numbers in {wrong}, which go from {wrong.low} to "
                        "{wrong.high}; there are {other.size[0]} rows."
                    ),
                    zh=(
                        "{Line}按 {wrong} 中的编号查找 {other} 的行，编号从 {wrong.low} 到 {wrong.high}，而一共只有 "
                        "{other.size[0]} 行。"
                    ),
                ),
                T(
                    en="numbers from 0 to the number of rows less one; for {wrong.high} the embedding needs "
                    "one row more than that",
                    zh="0 到行数减一的编号；要用到 {wrong.high}，嵌入层的行数必须比它多一",
                ),
                other="weight",
                remedy=tables.rows,
            ),
            Case(
                r"index (-?\d+) is out of bounds for dimension (-?\d+) with size (\d+)",
                "index|indices",
                T(
                    en=(
                        "{Line} reads position {m[1]} in dimension {m[2]} of {tensor} (shape {tensor.shape}), which "
                        "has the length {m[3]}{param_note}."
                    ),
                    zh="{Line}要 {tensor}（形状 {tensor.shape}）第 {m[2]} 维的位置 {m[1]}，而那里只有 "
                    "{m[3]} 个{param_note}。",
                ),
                T(
                    en="positions from 0 to {m[3]} less one (or negative ones, from the end, where "
                    "indexing takes them)",
                    zh="0 到 {m[3]} 减一的位置（索引还接受从末尾数的负数）",
                ),
                other="#1",
            ),
            Case(
                (
                    r"(?:index(?:_select|_add|_copy|_fill)?\(\): (?:self )?index(?:es)? (?:out of range|"
                    r"out of bound)|index out of range|out of range: tried to access index|index_add_\(\): .*out of)"
                ),
                "index|indices",
                T(
                    en=(
                        "{Line}: the positions {wrong} go from {wrong.low} to {wrong.high}, and {tensor} has the "
                        "shape {tensor.shape}."
                    ),
                    zh="{Line}：位置 {wrong} 从 {wrong.low} 到 {wrong.high}，而 {tensor} 的形状是 {tensor.shape}。",
                ),
                T(en="positions from 0 to the size of that dimension less one", zh="0 到该维长度减一的位置"),
                other="#1",
            ),
            Case(
                r"Target (-?\d+) is out of bounds|Assertion.*cur_target",
                "target",
                T(
                    en=(
                        "{Line}: the class number {m[1]} in {wrong} (they go from {wrong.low} to "
                        "{wrong.high}) is none of the {other.size[1]} classes of {other} (shape "
                        "{other.shape}); these are counted from 0."
                    ),
                    zh=(
                        "{Line}：{wrong} 中的类别编号 {m[1]}（范围 {wrong.low} 到 {wrong.high}）不在 {other}（形状 "
                        "{other.shape}）的 {other.size[1]} 个类别之内；类别从 0 数起。"
                    ),
                ),
                T(
                    en=(
                        "class numbers from 0 to the number of classes less one (labels that begin with 1 need `- "
                        "1`), or `ignore_index`"
                    ),
                    zh="0 到类别数减一的编号（从 1 开始的标签要 `- 1`），或使用 `ignore_index`",
                ),
                other="#1",
                fixes=("{} - 1",),
                remedy=class_numbers.outside,
            ),
            Case(
                r"Class values must be (?:smaller than num_classes|non-negative)",
                "input|#1",
                T(
                    en=(
                        "{Line}: the class numbers {wrong} go from {wrong.low} to {wrong.high}, outside of the "
                        "{num_classes.value} classes."
                    ),
                    zh="{Line}：类别编号 {wrong} 从 {wrong.low} 到 {wrong.high}，超出了 {num_classes.value} 个类别。",
                ),
                T(en="numbers from 0 to num_classes less one", zh="0 到 num_classes 减一的编号"),
                other="num_classes",
                remedy=class_numbers.one_hot,
            ),
            Case(
                r"(?:Size does not match at dimension|Index tensor must have the same number of dimensions as)",
                "index",
                T(
                    en=(
                        "{Line}: the positions {wrong} have the shape {wrong.shape}, which does not fit {tensor} of "
                        "shape {tensor.shape}; torch's words: “{said}”."
                    ),
                    zh=(
                        "{Line}：位置 {wrong} 的形状是 {wrong.shape}，与形状为 {tensor.shape} 的 {tensor} 不配；"
                        "torch 的原话：“{said}”。"
                    ),
                ),
                T(
                    en="as many dimensions in both, and no dimension of the index larger (but the "
                    "one that `dim` names)",
                    zh="两者维数相同，且索引的每一维都不更大（`dim` 所指的一维除外）",
                ),
                other="#1",
            ),
            Case(
                r"source tensor shape must match self tensor shape|[Ss]ource/destination tensor must "
                r"have same slice shapes",
                "source",
                T(
                    en=(
                        "{Line}: {wrong} of shape {wrong.shape} is put into {tensor} of shape {tensor.shape}, and "
                        "outside of `dim` they differ."
                    ),
                    zh="{Line}：形状为 {wrong.shape} 的 {wrong} 要放进形状为 {tensor.shape} 的 {tensor}，而在 "
                    "`dim` 之外两者不同。",
                ),
                T(en="a source of the same shape but for the dimension `dim`", zh="除 `dim` 一维外形状相同的来源"),
                other="#1",
            ),
            Case(
                r"The shape of the mask (\[[\d, ]*\]) at index (\d+) does not match the shape of the indexed "
                r"tensor (\[[\d, ]*\])",
                "index|indices|mask",
                T(
                    en="{Line} picks elements of {tensor} (shape {m[3]}) with a mask of shape {m[1]}.",
                    zh="{Line}用形状为 {m[1]} 的掩码从 {tensor}（形状 {m[3]}）中取元素。",
                ),
                T(
                    en="a mask of the same shape, or of its first dimensions",
                    zh="形状相同的掩码，或与其前几维相同的掩码",
                ),
                other="#1",
                remedy=dimensions.mask_of_another_dimension,
            ),
            Case(
                r"selected (?:index|number) k out of range",
                "k",
                T(
                    en="{Line}: `k` is {wrong}, which the size of the searched dimension of {tensor} (shape "
                    "{tensor.shape}) does not allow.",
                    zh="{Line}：`k` 是 {wrong}，而 {tensor}（形状 {tensor.shape}）被查找的那一维的长度不允许这样。",
                ),
                T(
                    en="a `k` that is not negative (for `kthvalue` at least 1), and at most the size of that dimension",
                    zh="不为负（`kthvalue` 至少为 1）、且不超过该维长度的 `k`",
                ),
                other="#1",
            ),
            Case(
                r"start \(?(-?\d+)\)? \+ length \(?(-?\d+)\)? exceeds dimension size \(?(\d+)\)?",
                "length",
                T(
                    en=(
                        "{Line}: from position {m[1]}, {m[2]} elements of {tensor} (shape {tensor.shape}) would go "
                        "beyond the {m[3]} that there are."
                    ),
                    zh="{Line}：从位置 {m[1]} 起取 {m[2]} 个元素会超出 {tensor}（形状 {tensor.shape}）的 {m[3]} 个。",
                ),
                T(en="a start and a length whose sum is at most {m[3]}", zh="起点与长度之和不超过 {m[3]}"),
                other="start",
            ),
            Case(
                r"start out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)",
                "start",
                T(
                    en="{Line} begins at position {m[3]} of {tensor} (shape {tensor.shape}).",
                    zh="{Line}从 {tensor}（形状 {tensor.shape}）的位置 {m[3]} 开始。",
                ),
                T(en="a start from {m[1]} to {m[2]}", zh="{m[1]} 到 {m[2]} 之间的起点"),
                other="#1",
            ),
        ),
        "import torch\n"
        "\n"
        "words = torch.tensor([0, 4, 10])\n"
        "table = torch.nn.Embedding(10, 3)\n"
        "print(table(words).shape)\n",
        "import torch\n"
        "\n"
        "words = torch.tensor([0, 4, 10])\n"
        "table = torch.nn.Embedding(11, 3)\n"
        "print(table(words).shape)\n",
    ),
    Family(
        "PLE13",
        "pieces-of-another-total",
        T(
            en=(
                "split_with_sizes expects split_sizes to sum exactly to 5 (input tensor's size at dimension 0), but "
                "got split_sizes=[2, 2]"
            ),
            zh=(
                "split_with_sizes expects split_sizes to sum exactly to 5 (input tensor's size at dimension 0), but "
                "got split_sizes=[2, 2]"
            ),
        ),
        T(
            en=(
                "`split` with a list takes the sizes of all pieces, so they have to add up; `chunk` takes the "
                "number of pieces and makes the last one smaller. Unpacking (`a, b = x`) needs as many names "
                "as there are pieces."
            ),
            zh=(
                "`split` 用列表时，列表给出每一块的大小，所以总和必须对得上；`chunk` 给出块数，最后一块可以小一些。解"
                "包（`a, b = x`）要求名字与块数相同。"
            ),
        ),
        (
            Case(
                r"split_with_sizes expects split_sizes to (?:sum exactly to (\d+)|have only non-negative entries)",
                "split_size|split_sizes|split_size_or_sections",
                T(
                    en="{Line} cuts {tensor} (shape {tensor.shape}) into pieces of {wrong.value}, which do "
                    "not add up to its size.",
                    zh="{Line}把 {tensor}（形状 {tensor.shape}）切成 {wrong.value}，总和与长度不符。",
                ),
                T(en="sizes whose sum is the size of that dimension", zh="总和等于该维长度的各块大小"),
                other="#1",
            ),
            Case(
                (
                    r"attempted to split along dimension (\d+), but the size of the dimension (\d+) is not divisible "
                    r"by the split_size (\d+)"
                ),
                "@2|sections|indices_or_sections",
                T(
                    en=(
                        "{Line} cuts dimension {m[1]} of {tensor} (shape {tensor.shape}) into {m[3]} equal pieces, "
                        "which {m[2]} elements do not make."
                    ),
                    zh="{Line}把 {tensor}（形状 {tensor.shape}）的第 {m[1]} 维平分成 {m[3]} 块，而 "
                    "{m[2]} 个元素分不匀。",
                ),
                T(
                    en="a number of pieces that divides {m[2]}; `tensor_split` makes unequal ones",
                    zh="能整除 {m[2]} 的块数；`tensor_split` 允许不等分",
                ),
                other="#1",
            ),
            Case(
                r"not enough values to unpack|too many values to unpack",
                "#1",
                T(
                    en="{Line} unpacks {wrong} (shape {wrong.shape}), whose first dimension is not "
                    "the number of names.",
                    zh="{Line}解包 {wrong}（形状 {wrong.shape}），其第一维与名字个数不同。",
                ),
                T(en="as many names as the first dimension is long", zh="名字个数等于第一维长度"),
            ),
        ),
        "import torch\n\nsequence = torch.arange(5)\nfirst, rest = sequence.split([2, 2])\nprint(first, rest)\n",
        "import torch\n\nsequence = torch.arange(5)\nfirst, rest = sequence.split([2, 3])\nprint(first, rest)\n",
    ),
    Family(
        "PLE14",
        "more-than-one-number-where-one-is-needed",
        T(
            en="Boolean value of Tensor with more than one value is ambiguous",
            zh="Boolean value of Tensor with more than one value is ambiguous",
        ),
        T(
            en=(
                "Python's `if`, `while`, `and`, `float()` and `item()` want one value. A tensor of many has to say "
                "which is meant: `(x > 0).all()`, `.any()`, `.sum()`, or an element. In masks `&`, `|` and `~` take "
                "the place of `and`, `or` and `not`."
            ),
            zh=(
                "Python 的 `if`、`while`、`and`、`float()` 和 `item()` 要一个值。含多个元素的张量必须说明指的"
                "是哪一个：`(x > 0).all()`、`.any()`、`.sum()` 或某个元素。在掩码中用 `&`、`|`、`~` 代替 "
                "`and`、`or`、`not`。"
            ),
        ),
        (
            Case(
                r"Boolean value of Tensor with (?:more than one value|no values) is ambiguous",
                "input|#1",
                T(
                    en="{Line} uses {wrong} as one boolean, but it has {wrong.numel} elements (shape {wrong.shape}).",
                    zh="{Line}把 {wrong} 当作一个真假值，但它有 {wrong.numel} 个元素（形状 {wrong.shape}）。",
                ),
                T(
                    en=(
                        "one element: `.all()` where every element is meant, `.any()` where one is enough; `&` "
                        "and `|` between masks"
                    ),
                    zh="一个元素：每个元素都要满足用 `.all()`，有一个满足用 `.any()`；掩码之间用 `&` 和 `|`",
                ),
                fixes=("({}).all()", "({}).any()"),
            ),
            Case(
                (
                    r"a Tensor with (\d+) elements cannot be converted to Scalar|[Oo]nly one[- ]element tensors can "
                    r"be converted to Python scalars|only integer tensors of a single element can be converted to an "
                    r"index|can only convert an array of size 1|only 0-dimensional arrays can be converted"
                ),
                "input|#1",
                T(
                    en="{Line} takes one number out of {wrong}, which has {wrong.numel} (shape {wrong.shape}).",
                    zh="{Line}要从 {wrong} 取出一个数，而它有 {wrong.numel} 个（形状 {wrong.shape}）。",
                ),
                T(
                    en="a tensor of one element (`.mean()`, `.sum()`, `x[0]`), or `.tolist()` for all of them",
                    zh="只有一个元素的张量（`.mean()`、`.sum()`、`x[0]`），或用 `.tolist()` 取全部",
                ),
                fixes=("{}.mean()",),
                remedy=lists_of_tensors.stacked,
            ),
            Case(
                r"(\w+) must be an 0-dim integral Tensor",
                "{1}",
                T(
                    en="{Line}: {call} takes a whole number as `{m[1]}`, and {wrong} is {wrong.type} of "
                    "shape {wrong.shape}.",
                    zh="{Line}：{call} 的 `{m[1]}` 要求一个整数，而 {wrong} 是 {wrong.type}，形状 {wrong.shape}。",
                ),
                T(
                    en="a whole number, or an integer tensor without dimensions (shape `()`)",
                    zh="整数，或不带维度的整数张量（形状 `()`）",
                ),
            ),
            Case(
                r"only supports (?:a )?0-dimensional",
                "",
                T(
                    en="{Line}: {call} takes {wrong} as one number, and it has the shape {wrong.shape}.",
                    zh="{Line}：{call} 要求 {wrong} 是单个数，而它的形状是 {wrong.shape}。",
                ),
                T(en="a number, or a tensor without dimensions", zh="一个数，或没有维度的张量"),
            ),
        ),
        'import torch\n\nlosses = torch.tensor([0.5, 0.2])\nif losses < 1.0:\n    print("good")\n',
        'import torch\n\nlosses = torch.tensor([0.5, 0.2])\nif (losses < 1.0).all():\n    print("good")\n',
    ),
)
