"""The pages (``FAMILIES``) for errors about shapes that do not fit each other."""

from __future__ import annotations

from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.remedies import (
    attention_masks,
    class_numbers,
    dimensions,
    einsum_letters,
    layer_sizes,
    loaded_batches,
    recurrent_layers,
)
from pitfall_lab.trace import T

SHAPE = r"\[[\d, ]*\]"

FAMILIES = (
    Family(
        "PLE01",
        "matrix-shapes-do-not-fit",
        T(
            en="mat1 and mat2 shapes cannot be multiplied (2x5 and 4x3)",
            zh="mat1 and mat2 shapes cannot be multiplied (2x5 and 4x3)",
        ),
        T(
            en=(
                "A product of matrices needs as many columns on the left as there are rows on the right. A `Linear` "
                "layer is such a product: the last dimension of its input has to be its `in_features`. Most often the "
                "input was not flattened, has lost or gained a dimension, or the layer was built for another size."
            ),
            zh=(
                "矩阵乘法要求左边的列数等于右边的行数。`Linear` 层就是这样的乘法：输入的最后一维必须等于它的 "
                "`in_features`。最常见的原因是输入没有展平、多了或少了一个维度，或者层是按别的大小建的。"
            ),
        ),
        (
            Case(
                r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)",
                "input",
                T(
                    en=(
                        "{Line} gives a layer {wrong} of shape {wrong.shape}: each row has {m[2]} numbers, and the "
                        "layer's weight {other} takes {m[3]}."
                    ),
                    zh=(
                        "{Line}把形状为 {wrong.shape} 的 {wrong} 交给一个层：每行有 {m[2]} 个数，而层的权重 "
                        "{other} 需要 {m[3]} 个。"
                    ),
                ),
                T(
                    en="an input whose last dimension is {m[3]}, or a layer built with `in_features={m[2]}`",
                    zh="最后一维为 {m[3]} 的输入，或者用 `in_features={m[2]}` 建的层",
                ),
                other="weight",
                fixes=("{}.flatten(1)", "{}.mT"),
                op="linear",
                remedy=layer_sizes.of_the_input,
            ),
            Case(
                r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)",
                "#2",
                T(
                    en=(
                        "{Line} multiplies {first} of shape {first.shape} by {wrong} of shape {wrong.shape}: the left "
                        "one has {m[2]} columns, the right one {m[3]} rows, and these have to be equal."
                    ),
                    zh=(
                        "{Line}用形状为 {first.shape} 的 {first} 乘形状为 {wrong.shape} 的 {wrong}：左边有 {m[2]} 列，"
                        "右边有 {m[3]} 行，两者必须相等。"
                    ),
                ),
                T(en="a right side with {m[2]} rows (its transpose, perhaps)", zh="右边有 {m[2]} 行（也许是它的转置）"),
                other="#1",
                fixes=("{}.mT",),
            ),
            Case(
                r"size mismatch, got input \((\d+)\), mat \((\d+)x(\d+)\), vec \((\d+)\)",
                "#2",
                T(
                    en=(
                        "{Line} multiplies {first} of shape {first.shape} by the vector {second}, which has {m[4]} "
                        "elements and needs {m[3]}."
                    ),
                    zh="{Line}用形状为 {first.shape} 的 {first} 乘向量 {second}；它有 {m[4]} 个元"
                    "素，而需要 {m[3]} 个。",
                ),
                T(en="a vector of {m[3]} elements", zh="{m[3]} 个元素的向量"),
                other="#1",
            ),
            Case(
                r"Expected size for first two dimensions of batch2 tensor to be: \[(\d+), (\d+)\] but "
                r"got: \[(\d+), (\d+)\]",
                "#2",
                T(
                    en=(
                        "{Line} multiplies a batch of matrices {first} of shape {first.shape} by {wrong} of shape "
                        "{wrong.shape}, which would have to begin with {m[1]}×{m[2]} and begins with {m[3]}×{m[4]}."
                    ),
                    zh=(
                        "{Line}用形状为 {first.shape} 的一批矩阵 {first} 乘形状为 {wrong.shape} 的 {wrong}；后者应以 "
                        "{m[1]}×{m[2]} 开头，却以 {m[3]}×{m[4]} 开头。"
                    ),
                ),
                T(
                    en="as many matrices in both, and {m[2]} rows in each matrix on the right",
                    zh="两边矩阵个数相同，且右边每个矩阵有 {m[2]} 行",
                ),
                other="#1",
                fixes=("{}.mT",),
            ),
            Case(
                r"inconsistent tensor size, expected tensor \[(\d+)\] and src \[(\d+)\]",
                "#2",
                T(
                    en="{Line} takes the product of two vectors, {first} with {m[1]} elements and {wrong} with {m[2]}.",
                    zh="{Line}求两个向量的内积：{first} 有 {m[1]} 个元素，{wrong} 有 {m[2]} 个。",
                ),
                T(en="two vectors of the same length", zh="两个长度相同的向量"),
                other="#1",
            ),
            Case(
                r"1D tensors expected, but got (\d+)D and (\d+)D tensors",
                "",
                T(
                    en="{Line}: {call} is the product of two vectors, and {wrong} has the shape {wrong.shape}.",
                    zh="{Line}：{call} 是两个向量的内积，而 {wrong} 的形状是 {wrong.shape}。",
                ),
                T(en="two tensors with one dimension each; `@` multiplies matrices", zh="两个一维张量；矩阵相乘用 `@`"),
            ),
            Case(
                r"(batch1|batch2|mat1|mat2|self|vec|input|tensor1|mat) must be a (3D tensor|matrix|2D "
                r"tensor|2-D tensor|1-D tensor)",
                "{1}",
                T(
                    en="{Line}: {call} takes {wrong} as a {m[2]}, and its shape is {wrong.shape}.",
                    zh="{Line}：{call} 要求 {wrong} 是 {m[2]}，而它的形状是 {wrong.shape}。",
                ),
                T(en="a {m[2]}", zh="{m[2]}"),
            ),
            Case(
                r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast with "
                r"previously seen size (\d+)",
                "#{3}+1",
                T(
                    en=(
                        "{Line}: the letter {m[1]} is a dimension of {m[4]} in one operand and of {m[2]} in {wrong} "
                        "(shape {wrong.shape})."
                    ),
                    zh="{Line}：字母 {m[1]} 在一个操作数中是长度 {m[4]} 的维度，在 {wrong}（形状 "
                    "{wrong.shape}）中却是 {m[2]}。",
                ),
                T(en="one size for each letter", zh="每个字母对应一个长度"),
                other="#1",
                remedy=einsum_letters.letters,
            ),
            Case(
                r"inner\(\) the last dimension must match on both input tensors",
                "#2",
                T(
                    en=(
                        "{Line} multiplies along the last dimension of {first} ({first.shape}) and {second} "
                        "({second.shape}), which differ."
                    ),
                    zh="{Line}沿最后一维相乘 {first}（{first.shape}）和 {second}（{second.shape}），而"
                    "两者的最后一维不同。",
                ),
                T(en="the same last dimension in both", zh="两者的最后一维相同"),
                other="#1",
            ),
        ),
        "import torch\n\nlayer = torch.nn.Linear(12, 3)\nimages = torch.ones(2, 3, 4)\nprint(layer(images).shape)\n",
        "import torch\n"
        "\n"
        "layer = torch.nn.Linear(12, 3)\n"
        "images = torch.ones(2, 3, 4)\n"
        "print(layer(images.flatten(1)).shape)\n",
    ),
    Family(
        "PLE02",
        "sizes-do-not-line-up",
        T(
            en="The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
            zh="The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        ),
        T(
            en=(
                "An operation on elements pairs up the elements of its operands. Shapes are compared from the right; "
                "two sizes go together when they are equal or when one of them is 1, which is then repeated. Here two "
                "sizes are different and none of them is 1."
            ),
            zh=(
                "逐元素的运算把操作数的元素一一配对。形状从右边开始比较；两个长度相等，或其中一个为 "
                "1（于是被重复）时才配得上。这里两个长度不同，又都不是 1。"
            ),
        ),
        (
            Case(
                r"The size of tensor a|The expanded size of the tensor",
                "attn_mask",
                T(
                    en="{Line}: the mask {wrong} of shape {wrong.shape} does not line up with the scores, which have "
                    "a row for each query ({query} is {query.shape}) and a column for each key ({key} is {key.shape}).",
                    zh="{Line}：掩码 {wrong} 的形状是 {wrong.shape}，与分数对不上：分数的每一行对应一个查询（{query} "
                    "是 {query.shape}），每一列对应一个键（{key} 是 {key.shape}）。",
                ),
                T(
                    en="a mask whose last dimensions are queries × keys, and whose others line up with batch and "
                    "heads (`[:, None]` adds the dimension of the heads)",
                    zh="最后两维是 查询数 × 键数、其余维度与批和头对得上的掩码（`[:, None]` 会加上头的维度）",
                ),
                other="query",
                fixes=("{}[:, None]", "{}[:, None, None]"),
                op="scaled_dot_product_attention",
            ),
            Case(
                r"Expected key_padded_mask\.shape\[(\d)\] to be (\d+), but got (\d+)",
                "key_padding_mask",
                T(
                    en="{Line}: the padding mask {wrong} has the shape {wrong.shape}, and its dimension {m[1]} has to "
                    "be {m[2]}: it has a row for each example and a column for each key.",
                    zh="{Line}：填充掩码 {wrong} 的形状是 {wrong.shape}，而它的第 {m[1]} 维应为 {m[2]}：每个样"
                    "本一行，每个键一列。",
                ),
                T(
                    en="a mask of shape (batch, keys); a layer made without `batch_first=True` takes dimension 0 of "
                    "the other tensors for the positions and dimension 1 for the batch",
                    zh="形状为（批大小，键数）的掩码；没有用 `batch_first=True` 建的层把其他张量的第 0 维"
                    "当作位置，第 1 维当作批",
                ),
                fixes=("!batch_first", "{}.T"),
            ),
            Case(
                r"The shape of the (\d)D attn_mask is torch\.Size\(\[([\d, ]+)\]\), but should be \(([\d, ]+)\)",
                "attn_mask|mask",
                T(
                    en="{Line}: the mask {wrong} of {m[1]} dimensions has the sizes {m[2]}, and "
                    "they have to be {m[3]}.",
                    zh="{Line}：{m[1]} 维的掩码 {wrong} 的大小是 {m[2]}，而应为 {m[3]}。",
                ),
                T(
                    en="a mask of shape (queries, keys) for all, or of (batch × heads, queries, keys): one for each "
                    "head of each example",
                    zh="对所有样本用（查询数，键数）的掩码，或（批 × 头，查询数，键数）：每个样本的每个头一个",
                ),
                fixes=("!batch_first",),
                remedy=attention_masks.for_each_head,
            ),
            Case(
                r"the batch number of src and tgt must be equal",
                "tgt",
                T(
                    en="{Line}: {src} of shape {src.shape} and {tgt} of shape {tgt.shape} have different batch sizes; "
                    "a transformer made without `batch_first=True` takes dimension 1 for the batch.",
                    zh="{Line}：{src}（形状 {src.shape}）与 {tgt}（形状 {tgt.shape}）的批大小不同；没有用 "
                    "`batch_first=True` 建的 transformer 把第 1 维当作批。",
                ),
                T(
                    en="the same batch size in both: dimension 1, or dimension 0 of a layer made "
                    "with `batch_first=True`",
                    zh="两者批大小相同：第 1 维；用 `batch_first=True` 建的层则是第 0 维",
                ),
                other="src",
                fixes=("!batch_first",),
            ),
            Case(
                r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at "
                r"non-singleton dimension (\d+)",
                "~clash",
                T(
                    en=(
                        "{Line} combines {other} of shape {other.shape} with {wrong} of shape {wrong.shape}, and "
                        "these do not line up: at dimension {m[3]} the sizes are {m[1]} and {m[2]}."
                    ),
                    zh=(
                        "{Line}让形状为 {other.shape} 的 {other} 与形状为 {wrong.shape} 的 {wrong} 一起运算，但两者对"
                        "不上：在第 {m[3]} 维上长度是 {m[1]} 和 {m[2]}。"
                    ),
                ),
                T(
                    en="the same shape in both, or the size 1 wherever they differ (`x[:, None]` "
                    "adds such a dimension)",
                    zh="两者形状相同，或在不同之处长度为 1（`x[:, None]` 会加上这样一个维度）",
                ),
                other="~clashes",
                fixes=("{}.unsqueeze(-1)",),
                remedy=recurrent_layers.padded_again,
            ),
            Case(
                r"output with shape (\[[\d, ]*\]) doesn't match the broadcast shape (\[[\d, ]*\])",
                "#1",
                T(
                    en=(
                        "{Line} writes into {first} of shape {first.shape} a result that, with {second} of shape "
                        "{second.shape}, has the shape {m[2]}."
                    ),
                    zh=(
                        "{Line}要写入形状为 {first.shape} 的 {first}，但与形状为 {second.shape} 的 {second} 运"
                        "算的结果形状是 {m[2]}。"
                    ),
                ),
                T(
                    en="a result of the shape of what is written; an operation in place cannot make its tensor larger",
                    zh="结果与被写入的张量形状相同；就地运算不能把张量变大",
                ),
                other="#2",
            ),
            Case(
                r"The expanded size of the tensor .*Target sizes: (\[[\d, ]*\])\.\s+Tensor sizes: (\[[\d, ]*\])",
                "value|#2",
                T(
                    en="{Line} writes {wrong} of shape {wrong.shape} into a part of {first} that has the shape {m[1]}.",
                    zh="{Line}把形状为 {wrong.shape} 的 {wrong} 写入 {first} 中形状为 {m[1]} 的部分。",
                ),
                T(
                    en="a value of shape {m[1]}, or one that is repeated to it: equal or 1 in each "
                    "dimension, from the right",
                    zh="形状为 {m[1]} 的值，或能重复成它的值：从右边起每一维相等或为 1",
                ),
                other="#1",
                op="__setitem__",
            ),
            Case(
                r"The expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at "
                r"non-singleton dimension (\d+)",
                "",
                T(
                    en=(
                        "{Line} expands {wrong} to {m[1]} elements in dimension {m[3]}, where it has {m[2]}; only a "
                        "dimension of size 1 can be repeated."
                    ),
                    zh="{Line}要让 {wrong} 在第 {m[3]} 维有 {m[1]} 个元素，而它有 {m[2]} 个；只有长度"
                    "为 1 的维度可以重复。",
                ),
                T(
                    en="the size {m[2]} (or -1, which keeps it) in dimension {m[3]}",
                    zh="第 {m[3]} 维为 {m[2]}（或 -1，表示保持不变）",
                ),
            ),
            Case(
                r"[Ss]hape mismatch: (value tensor of shape|objects cannot be broadcast|indexing tensors could not)",
                "",
                T(
                    en="{Line}: the shapes of what {call} was given do not line up: {shapes}.",
                    zh="{Line}：{call} 得到的各个张量形状对不上：{shapes}。",
                ),
                T(
                    en="shapes that are equal or 1 in each dimension, from the right",
                    zh="从右边起每一维相等或为 1 的形状",
                ),
            ),
            Case(
                r"[Aa]ll input tensors should have same dimension but got sizes|[Ii]nconsistent target size",
                "target",
                T(
                    en="{Line} compares {first} of shape {first.shape} with {wrong} of shape {wrong.shape}.",
                    zh="{Line}比较形状为 {first.shape} 的 {first} 和形状为 {wrong.shape} 的 {wrong}。",
                ),
                T(en="a target of the shape {first.shape}", zh="形状为 {first.shape} 的目标"),
                other="#1",
            ),
            Case(
                r"size \{?(\[[\d, ]*\])\}? is not expandable to size",
                "",
                T(
                    en="{Line}: {wrong} of shape {wrong.shape} cannot come from, or be summed to, the shape "
                    "that {call} was given.",
                    zh="{Line}：{call} 要求的形状与 {wrong}（形状 {wrong.shape}）不能通过广播互相得到。",
                ),
                T(
                    en="a shape with at most as many dimensions, each equal or 1",
                    zh="维数不多于它、每一维相等或为 1 的形状",
                ),
            ),
        ),
        "import torch\n\nscores = torch.ones(3, 2)\nweights = torch.tensor([1.0, 2.0, 3.0])\nprint(scores * weights)\n",
        (
            "import torch\n"
            "\n"
            "scores = torch.ones(3, 2)\n"
            "weights = torch.tensor([1.0, 2.0, 3.0])\n"
            "print(scores * weights.unsqueeze(-1))\n"
        ),
    ),
    Family(
        "PLE03",
        "shape-has-another-number-of-elements",
        T(en="shape '[2, 5]' is invalid for input of size 12", zh="shape '[2, 5]' is invalid for input of size 12"),
        T(
            en=(
                "`view` and `reshape` arrange the same elements in another shape, so the product of the new sizes has "
                "to be the number of elements. One size may be -1: torch computes it. Often a batch size was written "
                "down that the last batch does not have, or a layer before gives another size than was thought."
            ),
            zh=(
                "`view` 和 `reshape` 把同样的元素排成另一种形状，所以新形状各维的乘积必须等于元素个数。可以有一维写 "
                "-1，由 torch 计算。常见原因是写死了批大小而最后一批不足，或者前面的层给出的大小与设想不同。"
            ),
        ),
        (
            Case(
                r"shape '\[([-\d, ]*)\]' is invalid for input of size (\d+)",
                "input",
                T(
                    en=(
                        "{Line} arranges the {m[2]} elements of {wrong} (shape {wrong.shape}) as [{m[1]}], which has "
                        "another number of places."
                    ),
                    zh="{Line}要把 {wrong}（形状 {wrong.shape}）的 {m[2]} 个元素排成 [{m[1]}]，而后者的位置个数不同。",
                ),
                T(
                    en="sizes whose product is {m[2]}; -1 in one place lets torch compute it",
                    zh="乘积为 {m[2]} 的各维长度；其中一维写 -1 则由 torch 计算",
                ),
                remedy=dimensions.batch_size_of,
            ),
            Case(
                r"only one dimension can be inferred",
                "size|shape|@2",
                T(
                    en="{Line}: the new shape {wrong} has more than one -1, and torch can compute one size only.",
                    zh="{Line}：新形状 {wrong} 中有不止一个 -1，而 torch 只能推算一维。",
                ),
                T(en="at most one -1", zh="至多一个 -1"),
            ),
            Case(
                r"cannot reshape tensor of 0 elements into shape",
                "input",
                T(
                    en="{Line}: {wrong} has no elements (shape {wrong.shape}), so a size of -1 could be anything.",
                    zh="{Line}：{wrong} 没有元素（形状 {wrong.shape}），-1 可以是任何值。",
                ),
                T(en="a shape without -1", zh="不含 -1 的形状"),
            ),
            Case(
                r"unflatten: Provided sizes (\[[-\d, ]*\]) don't multiply up to the size of dim (\d+) \((\d+)\)",
                "input",
                T(
                    en="{Line} takes dimension {m[2]} of {wrong} apart into {m[1]}, but it has {m[3]} elements.",
                    zh="{Line}要把 {wrong} 的第 {m[2]} 维拆成 {m[1]}，但它有 {m[3]} 个元素。",
                ),
                T(en="sizes whose product is {m[3]}", zh="乘积为 {m[3]} 的各维长度"),
            ),
            Case(
                r"view size is not compatible with input tensor's size and stride",
                "input",
                T(
                    en=(
                        "{Line}: {wrong} (shape {wrong.shape}) is not stored in the order of its indices, so no view "
                        "of the same memory can have the new shape."
                    ),
                    zh="{Line}：{wrong}（形状 {wrong.shape}）在内存中的次序与下标次序不同，同一块内存上不"
                    "存在这种形状的视图。",
                ),
                T(en="`reshape`, which copies where it has to", zh="`reshape`，它在必要时复制"),
            ),
            Case(
                r"setStorage: sizes .* are out of bounds for storage of size",
                "input",
                T(
                    en="{Line}: the sizes and strides reach beyond the memory of {wrong}, which has "
                    "{wrong.numel} elements.",
                    zh="{Line}：给出的 size 和 stride 超出了 {wrong} 的内存，它有 {wrong.numel} 个元素。",
                ),
                T(
                    en="sizes and strides whose last element is inside the memory",
                    zh="最后一个元素仍在内存之内的 size 和 stride",
                ),
            ),
        ),
        "import torch\n\nbatch = torch.arange(12.0).reshape(4, 3)\nflat = batch.view(2, 5)\nprint(flat.shape)\n",
        "import torch\n\nbatch = torch.arange(12.0).reshape(4, 3)\nflat = batch.view(2, -1)\nprint(flat.shape)\n",
    ),
    Family(
        "PLE04",
        "tensors-that-cannot-be-joined",
        T(
            en="Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for tensor "
            "number 1 in the list.",
            zh="Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for tensor "
            "number 1 in the list.",
        ),
        T(
            en=(
                "`cat` puts tensors one behind the other along a dimension that they have; all other dimensions have "
                "to be equal. `stack` adds a new dimension, and all have to be of one shape. A `DataLoader` stacks "
                "the samples of a batch, so samples of different lengths have to be padded "
                "(`torch.nn.utils.rnn.pad_sequence` in a `collate_fn`)."
            ),
            zh=(
                "`cat` 沿着已有的一维把张量首尾相接，其余各维必须相等。`stack` 增加一个新维度，所有张量形状必须相同。"
                "`DataLoader` 会把一批样本 stack 起来，所以长度不同的样本要先补齐（在 `collate_fn` 里用 "
                "`torch.nn.utils.rnn.pad_sequence`）。"
            ),
        ),
        (
            Case(
                (
                    r"Sizes of tensors must match except in dimension (\d+)\. Expected (?:size )?(\d+) (?:in "
                    r"dimension \d+ )?but got (?:size )?(\d+) for tensor number (\d+) in the list"
                ),
                "#{4}+1",
                T(
                    en=(
                        "{Line} joins tensors along dimension {m[1]}: {first} has the shape {first.shape}, {wrong} has "
                        "{wrong.shape}, and outside of dimension {m[1]} the sizes {m[2]} and {m[3]} differ."
                    ),
                    zh=(
                        "{Line}沿第 {m[1]} 维拼接张量：{first} 的形状是 {first.shape}，{wrong} 的形状是 "
                        "{wrong.shape}；在第 {m[1]} 维之外，长度 {m[2]} 与 {m[3]} 不同。"
                    ),
                ),
                T(
                    en="tensors that differ in dimension {m[1]} only (or another `dim`)",
                    zh="只在第 {m[1]} 维不同的张量（或换一个 `dim`）",
                ),
                other="#1",
                remedy=dimensions.joined_along,
            ),
            Case(
                r"stack expects each tensor to be equal size, but got (\[[\d, ]*\]) at entry 0 and (\[[\d, "
                r"]*\]) at entry (\d+)",
                "#{3}+1",
                T(
                    en="{Line} stacks tensors of different shapes: {first} has {m[1]}, {wrong} has {m[2]}.",
                    zh="{Line}堆叠了形状不同的张量：{first} 是 {m[1]}，{wrong} 是 {m[2]}。",
                ),
                T(
                    en="tensors of one shape (padded, if they are sequences); `cat` joins along a "
                    "dimension that is there",
                    zh="形状相同的张量（序列则先补齐）；`cat` 沿已有的一维拼接",
                ),
                other="#1",
                remedy=loaded_batches.collated,
            ),
            Case(
                r"Tensors must have same number of dimensions: got (\d+) and (\d+)",
                "~rank",
                T(
                    en="{Line} joins tensors with different numbers of dimensions: {shapes}.",
                    zh="{Line}拼接了维数不同的张量：{shapes}。",
                ),
                T(
                    en="the same number of dimensions in all (`unsqueeze` adds one)",
                    zh="所有张量维数相同（`unsqueeze` 增加一维）",
                ),
            ),
            Case(
                r"zero-dimensional tensor \(at position (\d+)\) cannot be concatenated",
                "#{1}+1",
                T(
                    en="{Line} joins tensors, but {wrong} is a single number without a dimension.",
                    zh="{Line}要拼接张量，但 {wrong} 是没有维度的单个数。",
                ),
                T(
                    en="`torch.stack` for single numbers, or `x.reshape(1)`",
                    zh="单个数用 `torch.stack`，或用 `x.reshape(1)`",
                ),
            ),
            Case(
                r"expected a non-empty (list of Tensors|TensorList)|expects a non-empty (TensorList|input tensor list)",
                "tensors|@1",
                T(en="{Line} joins the tensors of an empty list.", zh="{Line}拼接了一个空列表中的张量。"),
                T(en="at least one tensor", zh="至少一个张量"),
            ),
            Case(
                r"expected Tensor as element (\d+) in argument (\d+), but got (\w+)",
                "tensors[{1}]|tensors|@1",
                T(
                    en="{Line}: the element with index {m[1]} (from 0) in the list or tuple that {call} was given has "
                    "the type {m[3]} and is not a tensor.",
                    zh="{Line}：交给 {call} 的列表或元组中，第 {m[1]} 个元素（从 0 数）的类型是 {m[3]}，不是张量。",
                ),
                T(en="a list or tuple of tensors only", zh="只含张量的列表或元组"),
            ),
        ),
        "import torch\n"
        "\n"
        "first = torch.ones(2, 3)\n"
        "second = torch.ones(3, 3)\n"
        "print(torch.cat([first, second], dim=1).shape)\n",
        "import torch\n"
        "\n"
        "first = torch.ones(2, 3)\n"
        "second = torch.ones(3, 3)\n"
        "print(torch.cat([first, second], dim=0).shape)\n",
    ),
    Family(
        "PLE05",
        "channels-or-features-of-another-number",
        T(
            en=(
                "Given groups=1, weight of size [8, 3, 3, 3], expected input[4, 1, 28, 28] to have 3 channels, but "
                "got 1 channels instead"
            ),
            zh=(
                "Given groups=1, weight of size [8, 3, 3, 3], expected input[4, 1, 28, 28] to have 3 channels, but "
                "got 1 channels instead"
            ),
        ),
        T(
            en=(
                "A layer is built for a number of channels or features, and its weight has that size. The input has "
                "to have it in the dimension where the layer looks: a convolution and a batch norm in dimension 1 "
                "(after the batch), a layer norm and a recurrent layer in the last. Images with the channels last "
                "have to be permuted; layers that follow each other have to agree."
            ),
            zh=(
                "层是为一定的通道数或特征数而建的，权重就有这个大小。输入必须在层所看的那一维上具有这个数：卷"
                "积和批归一化看第 1 维（批之后），层归一化和循环层看最后一维。通道在最后的图像需要 permute；前"
                "后相接的层必须一致。"
            ),
        ),
        (
            Case(
                (
                    r"Given (?:groups|transposed)=\d+, weight of size (\[[\d, ]*\]), expected input(\[[\d, ]*\]) to "
                    r"have (\d+) channels, but got (\d+) channels"
                ),
                "input",
                T(
                    en=(
                        "{Line} gives a convolution for {m[3]} channels the input {wrong} of shape {wrong.shape}, "
                        "whose channels (dimension 1) are {m[4]}."
                    ),
                    zh="{Line}把形状为 {wrong.shape} 的 {wrong} 交给一个 {m[3]} 通道的卷积，而它的通道数"
                    "（第 1 维）是 {m[4]}。",
                ),
                T(
                    en="an input with {m[3]} channels in dimension 1, or a layer built with `in_channels={m[4]}`",
                    zh="第 1 维为 {m[3]} 个通道的输入，或用 `in_channels={m[4]}` 建的层",
                ),
                other="weight",
                fixes=("{}.permute(0, 3, 1, 2)",),
                remedy=layer_sizes.of_the_input,
            ),
            Case(
                (
                    r"Given groups=(\d+), expected weight to be (?:at least|divisible by) (\d+) at dimension (\d+), "
                    r"but got weight of size (\[[\d, ]*\])"
                ),
                "weight",
                T(
                    en=(
                        "{Line}: with groups={m[1]} the weight {wrong} needs {m[1]} filters or a multiple of that "
                        "(dimension 0), and its shape is {wrong.shape}."
                    ),
                    zh="{Line}：groups={m[1]} 时权重 {wrong} 的滤波器个数（第 0 维）必须是 {m[1]} 或其倍数，而它的形"
                    "状是 {wrong.shape}。",
                ),
                T(
                    en="a weight whose dimension 0 is a multiple of {m[1]}, or fewer groups",
                    zh="第 0 维是 {m[1]} 的倍数的权重，或更少的组",
                ),
            ),
            Case(
                (
                    r"Given normalized_shape=\[([\d, ]*)\], expected input with shape \[\*,? ?([\d, ]*)\], but got "
                    r"input of size\[([\d, ]*)\]"
                ),
                "input",
                T(
                    en="{Line} normalises over the last sizes [{m[1]}], and {wrong} has the shape {wrong.shape}.",
                    zh="{Line}在最后的 [{m[1]}] 上做归一化，而 {wrong} 的形状是 {wrong.shape}。",
                ),
                T(
                    en="an input whose last sizes are [{m[1]}], or a layer built for those of the input",
                    zh="最后几维是 [{m[1]}] 的输入，或按输入大小建的层",
                ),
                other="normalized_shape",
                remedy=layer_sizes.of_the_input,
            ),
            Case(
                r"Expected (weight|bias) to be of same shape as normalized_shape",
                "{1}",
                T(
                    en="{Line}: {wrong} has the shape {wrong.shape}, which is not the normalized_shape.",
                    zh="{Line}：{wrong} 的形状是 {wrong.shape}，与 normalized_shape 不同。",
                ),
                T(en="a {m[1]} of the shape normalized_shape", zh="形状为 normalized_shape 的 {m[1]}"),
                other="normalized_shape",
            ),
            Case(
                r"(running_mean|running_var|weight|bias) should contain (\d+) elements not (\d+)",
                "input",
                T(
                    en=(
                        "{Line}: {wrong} has {m[2]} channels (shape {wrong.shape}, dimension 1), and this "
                        "normalisation was built for {m[3]}."
                    ),
                    zh="{Line}：{wrong} 有 {m[2]} 个通道（形状 {wrong.shape}，第 1 维），而这个归一化层是"
                    "为 {m[3]} 个通道建的。",
                ),
                T(
                    en="{m[3]} channels in dimension 1, or a layer built for {m[2]}",
                    zh="第 1 维有 {m[3]} 个通道，或为 {m[2]} 个通道建的层",
                ),
                other="running_mean",
                remedy=layer_sizes.of_the_input,
            ),
            Case(
                r"Expected number of channels in input to be divisible by num_groups",
                "input",
                T(
                    en=(
                        "{Line}: the channels of {wrong} (shape {wrong.shape}, dimension 1) cannot be divided into "
                        "{num_groups.value} groups."
                    ),
                    zh="{Line}：{wrong} 的通道（形状 {wrong.shape}，第 1 维）不能平分成 {num_groups.value} 组。",
                ),
                T(en="a number of channels that is a multiple of the number of groups", zh="通道数是组数的倍数"),
                other="num_groups",
            ),
            Case(
                r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)",
                "input|#1",
                T(
                    en=(
                        "{Line} gives a recurrent layer of input_size {m[1]} the input {wrong} of shape "
                        "{wrong.shape}, whose last dimension is {m[2]}."
                    ),
                    zh="{Line}把形状为 {wrong.shape} 的 {wrong} 交给 input_size 为 {m[1]} 的循环层，而"
                    "它的最后一维是 {m[2]}。",
                ),
                T(en="a last dimension of {m[1]}", zh="最后一维为 {m[1]}"),
                remedy=layer_sizes.of_the_input,
            ),
            Case(
                r"Expected hidden(?:\[\d\])? size \(([\d, ]*)\), got \[([\d, ]*)\]",
                "hx|#2",
                T(
                    en=(
                        "{Line}: the hidden state {wrong} has the shape {wrong.shape}, and for this input and this "
                        "layer it has to be ({m[1]}), where dimension 1 is the batch."
                    ),
                    zh="{Line}：隐藏状态 {wrong} 的形状是 {wrong.shape}，对这个输入和这个层应为 ({m[1]})，其中第 1 维"
                    "是批。",
                ),
                T(
                    en=(
                        "a state of the expected shape ({m[1]}): layers (two for each if `bidirectional=True`) × batch "
                        "× hidden_size; with `batch_first=True` the batch is still its dimension 1, and for an input "
                        "without a batch it has no such dimension"
                    ),
                    zh="形状为应有的 ({m[1]}) 的状态：层数（`bidirectional=True` 时每层算两个）× 批大小 × "
                    "hidden_size；即使 `batch_first=True`，批仍是它的第 1 维；输入没有批时，它没有这一维",
                ),
                other="#1",
                remedy=recurrent_layers.state,
            ),
            Case(
                r"was expecting embedding dimension of (\d+), but got (\d+)",
                "query",
                T(
                    en=(
                        "{Line} gives an attention layer of embed_dim {m[1]} the query {wrong} of shape "
                        "{wrong.shape}, whose last dimension is {m[2]}."
                    ),
                    zh="{Line}把形状为 {wrong.shape} 的查询 {wrong} 交给 embed_dim 为 {m[1]} 的注意力层，而它"
                    "的最后一维是 {m[2]}。",
                ),
                T(en="a last dimension of {m[1]}", zh="最后一维为 {m[1]}"),
            ),
            Case(
                r"Mismatch of parameter numbers and input channel size\. Found parameter numbers = (\d+) and "
                r"channel size = (\d+)",
                "weight",
                T(
                    en="{Line}: {wrong} has {m[1]} slopes, and the input {first} has {m[2]} channels.",
                    zh="{Line}：{wrong} 有 {m[1]} 个斜率，而输入 {first} 有 {m[2]} 个通道。",
                ),
                T(en="one slope, or {m[2]}", zh="一个斜率，或 {m[2]} 个"),
                other="#1",
            ),
        ),
        "import torch\n\nconv = torch.nn.Conv2d(3, 8, 3)\ngrey = torch.ones(4, 1, 28, 28)\nprint(conv(grey).shape)\n",
        "import torch\n\nconv = torch.nn.Conv2d(1, 8, 3)\ngrey = torch.ones(4, 1, 28, 28)\nprint(conv(grey).shape)\n",
    ),
    Family(
        "PLE06",
        "wrong-number-of-dimensions",
        T(
            en="Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [28, 28]",
            zh="Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [28, 28]",
        ),
        T(
            en=(
                "Many functions want a certain number of dimensions: batch, channels, height and width for an image, "
                "say. What has too few gets one with `unsqueeze`, what has too many loses one with `squeeze`, "
                "`flatten` or an index."
            ),
            zh=(
                "许多函数要求一定的维数：例如图像是批、通道、高、宽。维数太少就用 `unsqueeze` 增加，太多就用 "
                "`squeeze`、`flatten` 或索引去掉。"
            ),
        ),
        (
            Case(
                r"Input and output must have the same number of spatial dimensions, but got input with spatial "
                r"dimensions of (\[[\d, ]*\])",
                "input",
                T(
                    en="{Line}: {call} takes the first two dimensions of {wrong} (shape {wrong.shape}) for batch and "
                    "channels, so only {m[1]} is left for `size`.",
                    zh="{Line}：{call} 把 {wrong}（形状 {wrong.shape}）的前两维当作批和通道，所以留给 "
                    "`size` 的只有 {m[1]}。",
                ),
                T(
                    en="a batch: `{wrong_text}[None]` for one picture, and one number in `size` for each "
                    "dimension after the second",
                    zh="一个批：一张图用 `{wrong_text}[None]`；第二维之后的每一维在 `size` 中对应一个数",
                ),
                fixes=("{}[None]",),
            ),
            Case(
                r"Expected (\d)D \(unbatched\) or (\d)D \(batched\) input to (\w+), but got input "
                r"of size: (\[[\d, ]*\])",
                "input",
                T(
                    en=(
                        "{Line} gives `{m[3]}` the input {wrong} of shape {wrong.shape}; it takes {m[1]} dimensions, "
                        "or {m[2]} with a batch."
                    ),
                    zh="{Line}把形状为 {wrong.shape} 的 {wrong} 交给 `{m[3]}`；它要求 {m[1]} 维，带批则 {m[2]} 维。",
                ),
                T(
                    en=(
                        "an input with {m[1]} or {m[2]} dimensions (`{wrong_text}.unsqueeze(1)` adds channels to a "
                        "batch of grey images)"
                    ),
                    zh="{m[1]} 维或 {m[2]} 维的输入（`{wrong_text}.unsqueeze(1)` 给一批灰度图加上通道维）",
                ),
                fixes=("{}.unsqueeze(1)", "{}.unsqueeze(0)"),
            ),
            Case(
                (
                    r"Expected (\d)-dimensional input for \d-dimensional weight ?(\[[\d, ]*\]), but got "
                    r"(\d)-dimensional input of size (\[[\d, ]*\])"
                ),
                "input",
                T(
                    en=(
                        "{Line}: {wrong} has {m[3]} dimensions (shape {wrong.shape}), and with a weight of shape "
                        "{other.shape} the input needs {m[1]}."
                    ),
                    zh="{Line}：{wrong} 有 {m[3]} 维（形状 {wrong.shape}），而权重形状为 {other.shape} 时"
                    "输入需要 {m[1]} 维。",
                ),
                T(en="an input with {m[1]} dimensions", zh="{m[1]} 维的输入"),
                other="weight",
            ),
            Case(
                r"Expected (\d)D or (\d)D \(batch mode\) tensor",
                "input",
                T(
                    en=(
                        "{Line}: {call} takes {m[1]} or {m[2]} dimensions of positive length, and {wrong} has the "
                        "shape {wrong.shape}."
                    ),
                    zh="{Line}：{call} 要求 {m[1]} 或 {m[2]} 个长度大于零的维度，而 {wrong} 的形状是 {wrong.shape}。",
                ),
                T(
                    en="a tensor with {m[1]} dimensions, or {m[2]} with a batch, none of them empty (but the batch)",
                    zh="{m[1]} 维的张量，带批则 {m[2]} 维，除批以外都不为空",
                ),
                fixes=("{}.unsqueeze(0)", "{}.unsqueeze(1)"),
            ),
            Case(
                r"expected (\d)D or (\d)D input \(got (\d)D input\)",
                "input",
                T(
                    en="{Line}: this layer takes {m[1]} or {m[2]} dimensions, and {wrong} has {m[3]} "
                    "(shape {wrong.shape}).",
                    zh="{Line}：这个层要求 {m[1]} 或 {m[2]} 维，而 {wrong} 有 {m[3]} 维（形状 {wrong.shape}）。",
                ),
                T(
                    en="{m[1]} or {m[2]} dimensions (`BatchNorm1d`, `2d` and `3d` differ in this)",
                    zh="{m[1]} 或 {m[2]} 维（`BatchNorm1d`、`2d`、`3d` 的区别就在这里）",
                ),
            ),
            Case(
                r"expected (\d)D input \(got (\d)D input\)",
                "input",
                T(
                    en="{Line}: this layer takes {m[1]} dimensions, and {wrong} has {m[2]} (shape {wrong.shape}).",
                    zh="{Line}：这个层要求 {m[1]} 维，而 {wrong} 有 {m[2]} 维（形状 {wrong.shape}）。",
                ),
                T(en="{m[1]} dimensions", zh="{m[1]} 维"),
                fixes=("{}.unsqueeze(1)", "{}.unsqueeze(0)"),
                remedy=dimensions.with_a_batch,
            ),
            Case(
                (
                    r"Expected non-empty vector or matrix with optional 0-dim batch size|non-empty \dD or \dD \(batch "
                    r"mode\) tensor expected for input|Expected input's non-batch dimensions to have positive length"
                ),
                "input",
                T(
                    en=(
                        "{Line}: {call} was given {wrong} of shape {wrong.shape}, where a dimension is empty or too "
                        "few or too many are there."
                    ),
                    zh="{Line}：{call} 得到形状为 {wrong.shape} 的 {wrong}，其中某一维为空，或维数过少或过多。",
                ),
                T(
                    en="an input without an empty dimension and with the number of dimensions that torch's words name",
                    zh="没有空维度、且维数如 torch 原话所述的输入",
                ),
            ),
            Case(
                (
                    r"'weight' must be 2-D|(weight) should have at least three dimensions|expected linear_weight with "
                    r"dimensionality at least 2, got"
                ),
                "weight|linear_weight",
                T(
                    en="{Line}: {call} takes its weight as a table with more dimensions than {wrong} has "
                    "(shape {wrong.shape}).",
                    zh="{Line}：{call} 要求的权重维数多于 {wrong}（形状 {wrong.shape}）。",
                ),
                T(
                    en="a weight with as many dimensions as torch's message asks for",
                    zh="维数符合 torch 报错要求的权重",
                ),
            ),
            Case(
                r"(?:The )?anchor, positive, and negative tensors are expected to have the same number of dimensions",
                "~rank",
                T(
                    en="{Line}: the three tensors have different numbers of dimensions: {shapes}.",
                    zh="{Line}：三个张量的维数不同：{shapes}。",
                ),
                T(en="the same number of dimensions in all three", zh="三者维数相同"),
            ),
            Case(
                r"too many indices for tensor of dimension (\d+)",
                "input",
                T(
                    en="{Line} indexes {wrong} with more positions than it has dimensions: it has {m[1]} "
                    "(shape {wrong.shape}).",
                    zh="{Line}索引 {wrong} 所用的位置多于它的维数：它有 {m[1]} 维（形状 {wrong.shape}）。",
                ),
                T(en="at most {m[1]} positions between the brackets", zh="方括号中至多 {m[1]} 个位置"),
            ),
            Case(
                (
                    r"iteration over a 0-d tensor|len\(\) of a 0-d tensor|slice\(\) cannot be applied to a 0-dim "
                    r"tensor|invalid index of a 0-dim tensor|cannot be applied to a 0-dim tensor"
                ),
                "input|#1",
                T(
                    en=(
                        "{Line}: {wrong} is a single number without a dimension, so there is nothing to go "
                        "through, to cut or to index."
                    ),
                    zh="{Line}：{wrong} 是没有维度的单个数，没有什么可以遍历、切片或索引。",
                ),
                T(
                    en="a tensor with at least one dimension; `x.item()` gives the number itself",
                    zh="至少有一维的张量；`x.item()` 给出这个数本身",
                ),
            ),
            Case(
                r"only tensors with up to 64 dims are supported",
                "#1",
                T(
                    en="{Line}: {wrong} has {wrong.ndim} dimensions, and {call} works with at most 64.",
                    zh="{Line}：{wrong} 有 {wrong.ndim} 维，而 {call} 至多支持 64 维。",
                ),
                T(en="at most 64 dimensions", zh="至多 64 维"),
            ),
            Case(
                r"must have the same number of dimensions|same number of dimensions",
                "~rank|~said",
                T(
                    en="{Line}: what {call} was given has different numbers of dimensions: {shapes}.",
                    zh="{Line}：{call} 得到的张量维数不同：{shapes}。",
                ),
                T(en="the same number of dimensions in all", zh="维数都相同"),
                remedy=dimensions.index_with_a_column,
            ),
            Case(
                (
                    r"at least \d dimension|at least (?:one|two|three)[- ]dimension|[<>]= ?\d[- ]?d|"
                    r"with <= \d dimensions|Supports \dD or \dD|or fewer dimensions|with dimensionality|"
                    r"must be 1 or 2 dim|must be \d dimension|expected a matrix|should be at least \d|"
                    r"at least \d dimensions|scalar or 1D tensor|zero-dim|inputs dimension -?\d+ must have length"
                ),
                "~tensor",
                T(
                    en="{Line}: {call} takes other dimensions than {wrong} has (shape {wrong.shape}); "
                    "torch's words: “{said}”.",
                    zh="{Line}：{call} 要求的维度与 {wrong}（形状 {wrong.shape}）不同；torch 的原话：“{said}”。",
                ),
                T(en="the dimensions that torch's words name", zh="torch 原话所说的维度"),
            ),
        ),
        (
            "import torch\n"
            "\n"
            "conv = torch.nn.Conv2d(1, 8, 3)\n"
            "grey = torch.ones(4, 2, 28, 28)[:, 0, 0]\n"
            "print(conv(grey[0]).shape)\n"
        ),
        (
            "import torch\n"
            "\n"
            "conv = torch.nn.Conv2d(1, 8, 3)\n"
            "grey = torch.ones(4, 2, 28, 28)[:, 0]\n"
            "print(conv(grey.unsqueeze(1)).shape)\n"
        ),
    ),
    Family(
        "PLE07",
        "input-too-small-for-the-window",
        T(
            en=(
                "Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't be "
                "greater than actual input size"
            ),
            zh=(
                "Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3). Kernel size can't be "
                "greater than actual input size"
            ),
        ),
        T(
            en=(
                "A convolution or a pooling moves a window over the input; an input smaller than the window gives "
                "nothing. Each convolution and each pooling makes an image smaller, so a deep stack of them needs a "
                "larger image, padding, or fewer steps."
            ),
            zh=(
                "卷积或池化在输入上移动一个窗口；输入比窗口小就什么也得不到。每次卷积和池化都会让图像变小，层数多就需"
                "要更大的图像、填充或更少的层。"
            ),
        ),
        (
            Case(
                r"Calculated padded input size per channel: \(([\d x]*)\)\. Kernel size: \(([\d x]*)\)",
                "input",
                T(
                    en=(
                        "{Line}: with its padding {wrong} has the size {m[1]} without batch and channels (shape "
                        "{wrong.shape}), and the kernel of size {m[2]} does not fit into it."
                    ),
                    zh="{Line}：{wrong} 连同填充、不算批和通道的大小是 {m[1]}（形状 {wrong.shape}），放不下大小为 "
                    "{m[2]} 的卷积核。",
                ),
                T(
                    en="an input of at least {m[2]}, padding, or a smaller kernel",
                    zh="至少 {m[2]} 的输入、填充，或更小的卷积核",
                ),
                other="weight",
            ),
            Case(
                r"Given input size: \(([\dx]*)\)\. Calculated output size: \(([-\dx]*)\)\. Output size is too small",
                "input",
                T(
                    en=(
                        "{Line}: {wrong} of shape {wrong.shape} is smaller than the window, so the result would "
                        "have the size {m[2]}."
                    ),
                    zh="{Line}：形状为 {wrong.shape} 的 {wrong} 比窗口小，结果的大小将是 {m[2]}。",
                ),
                T(en="a larger input, a smaller window, or padding", zh="更大的输入、更小的窗口或填充"),
                other="kernel_size",
            ),
            Case(
                r"max_pool1d\(\) Invalid computed output size: (-?\d+)",
                "input",
                T(
                    en=(
                        "{Line}: {wrong} of shape {wrong.shape} is smaller than the window, so the result would "
                        "have the size {m[1]}."
                    ),
                    zh="{Line}：形状为 {wrong.shape} 的 {wrong} 比窗口小，结果的大小将是 {m[1]}。",
                ),
                T(en="a larger input, a smaller window, or padding", zh="更大的输入、更小的窗口或填充"),
                other="kernel_size",
            ),
            Case(
                r"pad(?:ding)? should be at most half of (?:effective )?kernel size, but got \w+=(\d+)(?:,| "
                r"and) kernel_size=(\d+)",
                "padding",
                T(
                    en=(
                        "{Line}: a padding of {m[1]} is more than half of the window of {m[2]}, so windows would be "
                        "outside of the input."
                    ),
                    zh="{Line}：填充 {m[1]} 超过了窗口 {m[2]} 的一半，会有窗口完全落在输入之外。",
                ),
                T(en="a padding of at most half of the kernel size", zh="至多为窗口一半的填充"),
                other="kernel_size",
            ),
            Case(
                r"Padding size should be less than the corresponding input dimension",
                "pad|padding",
                T(
                    en="{Line}: reflecting {first} (shape {first.shape}) by {wrong} would go beyond the input itself.",
                    zh="{Line}：把 {first}（形状 {first.shape}）反射填充 {wrong} 会超出输入本身。",
                ),
                T(en="a padding smaller than the dimension that is padded", zh="小于被填充维度的填充"),
                other="#1",
            ),
            Case(
                r"Expected more than 1 value per channel when training, got input size",
                "input",
                T(
                    en=(
                        "{Line} normalises a batch in training, but {wrong} of shape {wrong.shape} has one value per "
                        "channel: its deviation is zero."
                    ),
                    zh="{Line}在训练模式下对一批数据做归一化，但形状为 {wrong.shape} 的 {wrong} 每个通道只"
                    "有一个值：标准差为零。",
                ),
                T(
                    en=(
                        "at least two values per channel (`drop_last=True` in the `DataLoader`), or `model.eval()` "
                        "when it is not training"
                    ),
                    zh="每个通道至少两个值（`DataLoader` 用 `drop_last=True`），不训练时用 `model.eval()`",
                ),
                remedy=loaded_batches.single_row,
            ),
            Case(
                r"Expected more than 1 spatial element when (?:training|calculating)",
                "input",
                T(
                    en="{Line}: {wrong} of shape {wrong.shape} has one value per channel, so its deviation is zero.",
                    zh="{Line}：形状为 {wrong.shape} 的 {wrong} 每个通道只有一个值，标准差为零。",
                ),
                T(en="more than one value in each channel", zh="每个通道多于一个值"),
            ),
        ),
        "import torch\n\nconv = torch.nn.Conv2d(1, 4, 3)\nsmall = torch.ones(1, 1, 2, 2)\nprint(conv(small).shape)\n",
        "import torch\n"
        "\n"
        "conv = torch.nn.Conv2d(1, 4, 3, padding=1)\n"
        "small = torch.ones(1, 1, 2, 2)\n"
        "print(conv(small).shape)\n",
    ),
    Family(
        "PLE08",
        "loss-and-target-of-different-sizes",
        T(
            en="Expected input batch_size (4) to match target batch_size (3).",
            zh="Expected input batch_size (4) to match target batch_size (3).",
        ),
        T(
            en=(
                "A loss compares predictions with targets. `cross_entropy` takes one class number per row of "
                "scores (N×C and N); `mse_loss`, `bce` and their like take a target of the prediction's own "
                "shape, often N×1 against N."
            ),
            zh=(
                "损失把预测与目标比较。`cross_entropy` 要求每行分数对应一个类别编号（N×C 与 N）；`mse_loss`、`bce` "
                "等要求目标与预测形状相同，常见错误是 N×1 对 N。"
            ),
        ),
        (
            Case(
                r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)",
                "target",
                T(
                    en=(
                        "{Line} compares {m[1]} rows of scores ({first}, shape {first.shape}) with {m[2]} class "
                        "numbers ({wrong}, shape {wrong.shape})."
                    ),
                    zh=(
                        "{Line}把 {m[1]} 行分数（{first}，形状 {first.shape}）与 {m[2]} 个类别编号（{wrong}，形状 "
                        "{wrong.shape}）比较。"
                    ),
                ),
                T(en="one class number for each of the {m[1]} rows", zh="{m[1]} 行各对应一个类别编号"),
                other="#1",
                fixes=("{}.flatten()",),
            ),
            Case(
                (
                    r"Using a target size \(torch\.Size\((\[[\d, ]*\])\)\) that is different to the input "
                    r"size \(torch\.Size\((\[[\d, ]*\])\)\)|Target size \(torch\.Size\((\[[\d, ]*\])\)\) must "
                    r"be the same as input size"
                ),
                "target",
                T(
                    en=(
                        "{Line} compares {first} of shape {first.shape} with the target {wrong} of shape "
                        "{wrong.shape}; this loss wants the same shape."
                    ),
                    zh="{Line}把形状为 {first.shape} 的 {first} 与形状为 {wrong.shape} 的目标 {wrong} 比较；这"
                    "个损失要求形状相同。",
                ),
                T(
                    en="a target of shape {first.shape}: `{wrong_text}.unsqueeze(-1)` or a "
                    "`squeeze(-1)` of the prediction",
                    zh="形状为 {first.shape} 的目标：`{wrong_text}.unsqueeze(-1)`，或对预测用 `squeeze(-1)`",
                ),
                other="#1",
                fixes=("{}.unsqueeze(-1)", "{}.squeeze(-1)", "{}.view_as({other})"),
            ),
            Case(
                r"0D or 1D target tensor expected, multi-target not supported",
                "target",
                T(
                    en=(
                        "{Line}: the target {wrong} has the shape {wrong.shape}; class numbers are one per row of "
                        "{first} ({first.shape}), in one dimension."
                    ),
                    zh="{Line}：目标 {wrong} 的形状是 {wrong.shape}；类别编号应是一维的，"
                    "{first}（{first.shape}）每行一个。",
                ),
                T(en="a target of one dimension", zh="一维的目标"),
                other="#1",
                remedy=class_numbers.one_dimension,
            ),
            Case(
                r"multi_margin_loss: target tensor should be 1-D",
                "target",
                T(
                    en=(
                        "{Line}: the target {wrong} has the shape {wrong.shape}; it should have one class number per "
                        "row of {first} ({first.shape})."
                    ),
                    zh="{Line}：目标 {wrong} 的形状是 {wrong.shape}；应为 {first}（{first.shape}）每行一个类别编号。",
                ),
                T(en="a target of one dimension with one number per row", zh="一维的目标，每行一个数"),
                other="#1",
            ),
            Case(
                (
                    r"inconsistent weight size, expected (\d+) but got|weight tensor should be defined either for all "
                    r"(\d+) classes|weight must be one-dimensional"
                ),
                "weight",
                T(
                    en=(
                        "{Line}: the class weights {wrong} have the shape {wrong.shape}, and there has to be one for "
                        "each class of {first} ({first.shape})."
                    ),
                    zh="{Line}：类别权重 {wrong} 的形状是 {wrong.shape}，而 {first}（{first.shape}）的"
                    "每个类别应各有一个。",
                ),
                T(en="one weight per class, in one dimension", zh="每个类别一个权重，一维"),
                other="#1",
            ),
            Case(
                r"expected scalar type Long but found (\w+)",
                "target",
                T(
                    en="{Line} takes {wrong} for class numbers or positions, but its numbers are {wrong.type}.",
                    zh="{Line}把 {wrong} 当作类别编号或位置，但它的数是 {wrong.type}。",
                ),
                T(en="whole numbers (`.long()`)", zh="整数（`.long()`）"),
                fixes=("{}.long()",),
            ),
            Case(
                r"var is of incorrect size",
                "var",
                T(
                    en="{Line}: the variance {wrong} has the shape {wrong.shape}, and the input "
                    "{first} has {first.shape}.",
                    zh="{Line}：方差 {wrong} 的形状是 {wrong.shape}，而输入 {first} 的形状是 {first.shape}。",
                ),
                T(
                    en="a variance of the input's shape, or with a last dimension of 1",
                    zh="与输入形状相同的方差，或最后一维为 1",
                ),
                other="#1",
            ),
        ),
        (
            "import torch\n\nscores = torch.ones(4, 3)\nlabels = torch.tensor([[0, 1], [2, 0], [1, 1]])\n"
            "print(torch.nn.functional.cross_entropy(scores, labels.flatten()[:3]))\n"
        ),
        (
            "import torch\n\nscores = torch.ones(4, 3)\nlabels = torch.tensor([[0, 1], [2, 0], [1, 1]])\n"
            "print(torch.nn.functional.cross_entropy(scores, labels.flatten()[:4]))\n"
        ),
    ),
)
