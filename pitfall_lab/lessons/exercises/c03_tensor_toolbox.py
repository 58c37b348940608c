"""Exercises of chapter 3: joining, batches, channels, totals that are all the same tensor, and
dimensions that can be merged.
"""

from __future__ import annotations

from pitfall_lab.lessons.exercise import Exercise, Property, as_solved, equal, every, not_shared, true, unchanged
from pitfall_lab.trace import T

OPERANDS = """\
a, b = torch.ones(2, 3), torch.ones(2, 3)


def shape_of(expression):
    try:
        return tuple(eval(expression).shape)
    except RuntimeError:
        return "error"
"""
JOINED = (
    "torch.cat([a, b])",
    "torch.cat([a, b], dim=1)",
    "torch.stack([a, b], dim=1)",
    "a @ b",
    "a @ b.t()",
    "a.unsqueeze(1)",
    "a[None, :, None]",
    "a.view(3, 2) * b.t()",
)


def _shape(expression: str) -> Property:
    """Return the property that the learner wrote the shape of a result."""
    check = equal(f"shapes[{expression!r}]", f"shape_of({expression!r})", tell=False, inputs=OPERANDS)
    return Property(T(en=f"the shape of {expression}", zh=f"{expression} 的形状"), check)


def _table(*shapes: object) -> str:
    """Return a cell that answers with these shapes."""
    rows = "".join(f'    "{expression}": {shape!r},\n' for expression, shape in zip(JOINED, shapes, strict=True))
    return "shapes = {\n" + rows.replace("'error'", '"error"') + "}\n"


SHAPES = Exercise(
    key="3.1",
    kind="predict",
    title=T(en="Joined, multiplied, stretched", zh="拼接、相乘、加维"),
    task=T(
        en='`a` and `b` have shape (2, 3). Write the shape of each result, or `"error"`.',
        zh='`a` 和 `b` 的形状是 (2, 3)。写出每个结果的形状，或 `"error"`。',
    ),
    given=_table(*[None] * len(JOINED)),
    properties=tuple(map(_shape, JOINED)),
    hint_for=(1, 1, 1, 2, 2, 0, 3, 2),
    hints=(
        T(
            en="`cat` extends a dimension that exists; `stack` puts a new one at `dim`.",
            zh="`cat` 延长已有的维度；`stack` 在 `dim` 处增加新的维度。",
        ),
        T(
            en="`@` needs equal inner sizes. In `a @ b` these are 3 and 2. `*` needs equal shapes, or sizes of 1: "
            "compare those of `a.view(3, 2)` and `b.t()`.",
            zh="`@` 要求内侧大小相等。`a @ b` 的内侧是 3 和 2。`*` 要求形状相等，或长度为 1：比较 `a.view(3, 2)` 和 "
            "`b.t()` 的形状。",
        ),
        T(
            en="Each `None` in brackets is a dimension of size 1 at its place.",
            zh="方括号中的每个 `None` 就是该处一个长度为 1 的维度。",
        ),
    ),
    right=(
        _table((4, 3), (2, 6), (2, 2, 3), "error", (2, 2), (2, 1, 3), (1, 2, 1, 3), (3, 2)),
        _table([4, 3], [2, 6], [2, 2, 3], "error", [2, 2], [2, 1, 3], [1, 2, 1, 3], [3, 2]),
    ),
    wrong=(
        # stack like cat, and a missing dimension
        _table((4, 3), (2, 6), (2, 6), "error", (2, 2), (2, 1, 3), (1, 2, 1, 3), (3, 2)),
        # cat like stack, and @ like *
        _table((2, 2, 3), (2, 2, 3), (2, 2, 3), (2, 3), (2, 2), (2, 1, 3), (1, 2, 1, 3), (3, 2)),
    ),
)

COLLATE = Exercise(
    key="3.2",
    kind="write",
    title=T(en="A batch from samples", zh="把样本组成批次"),
    task=T(
        en=(
            "`collate(samples)` gets a list of samples; a sample is a pair of a feature vector (all of one length) "
            "and a label (a Python integer). Return two tensors: the features, of shape (samples, features), and the "
            "labels, as whole numbers (int64) in one dimension. The samples must not share memory with the batch."
        ),
        zh=(
            "`collate(samples)` 得到样本的列表；一个样本是特征向量（长度都相同）与标签（Python 整数）的对。返回两个张"
            "量：形状为 (样本数, 特征数) 的特征，以及一维的整数（int64）标签。样本不得与批次共享内存。"
        ),
    ),
    given="""\
def collate(samples):
    features = torch.cat([vector for vector, label in samples])
    labels = [label for vector, label in samples]
    return features, labels
""",
    inputs="samples = [(torch.randn(4), label) for label in torch.randint(-9, 999, (5,)).tolist()]\n"
    "first = samples[0][0]",
    drive="features, labels = collate(samples)",
    properties=(
        Property(
            T(en="the features of five samples are right: shape (5, 4)", zh="五个样本的特征正确：形状为 (5, 4)"),
            as_solved("features"),
        ),
        Property(
            T(en="the labels are whole numbers in one tensor", zh="标签是一个整数张量"),
            as_solved("labels", "labels.dtype"),
        ),
        Property(
            T(en="a batch of one sample keeps its batch dimension", zh="只有一个样本时也保留批次维"),
            as_solved("features", "labels", inputs="samples = [(torch.randn(3), int(torch.randint(9, ())))]"),
        ),
        Property(
            T(en="the batch shares no memory with the samples", zh="批次与样本不共享内存"),
            not_shared("features", "first"),
        ),
        Property(
            T(en="a batch of one shares no memory with its sample", zh="只有一个样本的批次与该样本不共享内存"),
            not_shared("features", "first", inputs="first = torch.randn(3)\nsamples = [(first, 1)]"),
        ),
    ),
    hint_for=(1, 2, 1, 0, 0),
    hints=(
        T(
            en="Each sample becomes one row: is there already a dimension for the rows?",
            zh="每个样本成为一行：行的维度已经存在了吗？",
        ),
        T(
            en="`torch.stack` makes the new dimension; `torch.tensor` makes a tensor from Python integers.",
            zh="`torch.stack` 会新建维度；`torch.tensor` 用 Python 整数做张量。",
        ),
        T(
            en="`features = torch.stack([vector for vector, label in samples])`",
            zh="`features = torch.stack([vector for vector, label in samples])`",
        ),
    ),
    right=(
        """\
def collate(samples):
    features = torch.stack([vector for vector, label in samples])
    labels = torch.tensor([label for vector, label in samples])
    return features, labels
""",
        """\
def collate(samples):
    vectors, labels = zip(*samples)
    return torch.cat([vector.unsqueeze(0) for vector in vectors]), torch.tensor(labels)
""",
    ),
    wrong=(
        # one long row
        """\
def collate(samples):
    features = torch.cat([vector for vector, label in samples])
    labels = torch.tensor([label for vector, label in samples])
    return features, labels
""",
        # labels as decimals
        """\
def collate(samples):
    features = torch.stack([vector for vector, label in samples])
    labels = torch.zeros(len(samples))
    for n, (vector, label) in enumerate(samples):
        labels[n] = label
    return features, labels
""",
        # a window on the only sample
        """\
def collate(samples):
    labels = torch.tensor([label for vector, label in samples])
    if len(samples) == 1:
        return samples[0][0].view(1, -1), labels
    return torch.stack([vector for vector, label in samples]), labels
""",
    ),
)

_NUMBERED = (
    "digits = [place * torch.arange(n).float() for place, n in ((100, {}), (10, {}), (1, {}))]\n"
    "photo = digits[0][:, None, None] + digits[1][:, None] + digits[2] + 1000 * torch.randint(1, 9, ())"
)
CHANNELS = Exercise(
    key="3.3",
    kind="repair",
    title=T(en="Confetti", zh="彩色纸屑"),
    task=T(
        en=(
            "`channels_first(photo)` gets a photo of shape (height, width, channel) and should return it as (channel, "
            "height, width), as layers for images expect it. As given, the shape is right, and the picture looks like "
            "confetti: its numbers are in the wrong places. Repair it, and leave `photo` as it is."
        ),
        zh=(
            "`channels_first(photo)` 得到形状为 (高, 宽, 通道) 的照片，应按网络的要求返回 (通道, 高, 宽)。形状正确，图"
            "片却成了彩色纸屑。请修好它，并保持 `photo` 不变。"
        ),
    ),
    given="""\
def channels_first(photo):
    height, width, channels = photo.shape
    return photo.reshape(channels, height, width)
""",
    inputs=_NUMBERED.format(4, 5, "int(torch.randint(1, 8, ()))"),
    drive="result = channels_first(photo)",
    properties=(
        Property(
            T(en="the shape is (channel, height, width)", zh="形状是 (通道, 高, 宽)"), as_solved("tuple(result.shape)")
        ),
        Property(
            T(
                en="every number is in its place (its last digits are row, column, channel)",
                zh="每个数都在原位（末三位是行、列、通道）",
            ),
            as_solved("result"),
        ),
        Property(
            T(en="every number is in its place where all sizes are equal, too", zh="各边相等时每个数也都在原位"),
            as_solved("result", inputs=_NUMBERED.format(3, 3, 3)),
        ),
        Property(T(en="the photo is unchanged", zh="照片没有改变"), unchanged("photo")),
    ),
    hint_for=(3, 1, 1, 0),
    hints=(
        T(
            en="`reshape` keeps the order of the numbers. Must it stay the same here?",
            zh="`reshape` 保持数的次序。这里次序应当不变吗？",
        ),
        T(
            en="The dimensions change places: that is what `permute` does.",
            zh="是各维交换位置：这正是 `permute` 的作用。",
        ),
        T(en="The new first dimension is the old dimension 2.", zh="新的第一维是原来的第 2 维。"),
    ),
    right=(
        "def channels_first(photo):\n    return photo.permute(2, 0, 1)\n",
        "def channels_first(photo):\n    return torch.stack([photo[:, :, c] for c in range(photo.shape[2])])\n",
    ),
    wrong=(
        "def channels_first(photo):\n    return photo.transpose(0, 2)\n",
        "def channels_first(photo):\n    return photo.permute(2, 1, 0).reshape(photo.shape[2], *photo.shape[:2])\n",
    ),
)

TOTALS = Exercise(
    key="3.4",
    kind="find-and-fix",
    title=T(en="The last total, several times", zh="最后的总和出现多次"),
    task=T(
        en=(
            "`running_totals(numbers)` gets a list of 0-dim tensors. It should return a list with the total after "
            "each number, as 0-dim tensors with memory of their own: writing into one of them must change neither the "
            "others nor the given numbers. An empty list gives an empty list. The given numbers must stay as they "
            "are. The cell as given returns the last total several times."
        ),
        zh=(
            "`running_totals(numbers)` 得到零维张量的列表。它应返回一个列表，给出加上每个数之后的总和：都是零维张量，"
            "各有自己的内存：写入其中一个既不会改变其他的，也不会改变给定的数；空列表得到空列表。现在它多次返回最后的"
            "总和。给定的数必须保持不变。"
        ),
    ),
    given="""\
def running_totals(numbers):
    total = torch.zeros(())
    totals = []
    for number in numbers:
        total += number
        totals.append(total)
    return totals
""",
    inputs="numbers = list(torch.randn(5))\ngiven = torch.stack(numbers)",
    drive="totals = running_totals(numbers)",
    properties=(
        Property(T(en="the totals of five numbers are right", zh="五个数的各个总和正确"), as_solved("totals")),
        Property(
            T(en="the total of one number is right", zh="一个数的总和正确"),
            as_solved("totals", inputs="numbers = [torch.tensor(2.5)]"),
        ),
        Property(
            T(en="each total has a place of its own in memory", zh="每个总和在内存中有自己的位置"),
            every(
                true(
                    "all(isinstance(total, torch.Tensor) for total in totals)",
                    T(
                        en="the list must hold tensors, and one of its entries is none",
                        zh="列表里必须是张量，而其中有一项不是",
                    ),
                ),
                true(
                    "len({total.data_ptr() for total in totals}) == 5",
                    T(en="two totals are in one place", zh="有两个总和在同一位置"),
                ),
            ),
        ),
        Property(
            T(en="no total is one of the given numbers", zh="没有总和就是给定的数本身"),
            true(
                "not any(shares(total, number) for total in totals if isinstance(total, torch.Tensor) "
                "for number in numbers)",
                T(en="a write into a total would change a given number", zh="写入总和会改变给定的数"),
            ),
        ),
        Property(
            T(en="the numbers are unchanged", zh="各个数没有改变"),
            true("torch.equal(torch.stack(numbers), given)", T(en="a number was changed", zh="有一个数被改动了")),
        ),
        Property(T(en="an empty list gives an empty list", zh="空列表得到空列表"), equal("running_totals([])", "[]")),
    ),
    hint_for=(1, 1, 2, 3, 0, 1),
    hints=(
        T(
            en="How many tensors are made for five numbers, and how many for none?",
            zh="五个数会产生几个张量？没有数时呢？",
        ),
        T(
            en="`total += number` writes into the tensor that is already in the list.",
            zh="`total += number` 会写入已经在列表里的张量。",
        ),
        T(
            en="`total = total + number` makes a new one, and so does `total.clone()`. The first total is a "
            "tensor of its own, too.",
            zh="`total = total + number` 产生新的张量，`total.clone()` 也是。第一个总和也要是自己的张量。",
        ),
    ),
    right=(
        """\
def running_totals(numbers):
    total = torch.zeros(())
    totals = []
    for number in numbers:
        total = total + number
        totals.append(total)
    return totals
""",
        """\
def running_totals(numbers):
    total = torch.zeros(())
    totals = []
    for number in numbers:
        total += number
        totals.append(total.clone())
    return totals
""",
        # views of one result, each of another element
        "def running_totals(numbers):\n    return list(torch.stack(numbers).cumsum(0)) if numbers else []\n",
        # no total is kept but in the list
        """\
def running_totals(numbers):
    totals = []
    for number in numbers:
        totals.append(torch.add(number, totals[-1] if totals else 0))
    return totals
""",
    ),
    wrong=(
        # the first total is the caller's own tensor
        "import itertools\n\ndef running_totals(numbers):\n    return list(itertools.accumulate(numbers))\n",
        # detach is no copy
        """\
def running_totals(numbers):
    total = torch.zeros(())
    totals = []
    for number in numbers:
        total += number
        totals.append(total.detach())
    return totals
""",
        # the first number is the total
        """\
def running_totals(numbers):
    totals = []
    for number in numbers:
        if totals:
            number += totals[-1]
        totals.append(number)
    return totals
""",
        # Python numbers have no memory that could be written
        """\
def running_totals(numbers):
    total, totals = 0.0, []
    for number in numbers:
        total += number.item()
        totals.append(total)
    return totals
""",
        # the first entry is the 0 from which the sum begins
        """\
def running_totals(numbers):
    totals = [torch.zeros(())]
    for number in numbers:
        totals.append(totals[-1] + number)
    return totals
""",
    ),
)

MERGED = Exercise(
    key="3.5",
    kind="make-it-fail",
    title=T(en="Which two can be merged?", zh="哪两维可以合并？"),
    task=T(
        en=(
            'Here is a claim: "If `view` can merge the last two dimensions of a tensor, it can merge the first two '
            'as well." Write `counterexample()`, without arguments: it returns a tensor `t` of shape (2, 3, 4) for '
            "which `t.view(2, 12)` works and `t.view(6, 4)` raises, because of its strides."
        ),
        zh=(
            "有人说：“如果 `view` 能合并一个张量的最后两维，那么也能合并最前两维。”编写无参数的 `counterexample()`：返"
            "回一个形状为 (2, 3, 4) 的张量 `t`，使 `t.view(2, 12)` 可用，而 `t.view(6, 4)` 因步长而报错。"
        ),
    ),
    given="def counterexample():\n    return torch.zeros(2, 3, 4)\n",
    drive="""\
t = counterexample()
refused = {}
for shape in (2, 12), (6, 4):
    try:
        torch.Tensor.view(t, *shape)
    except RuntimeError as error:
        refused[shape] = str(error)
""",
    properties=(
        Property(T(en="its shape is (2, 3, 4)", zh="其形状是 (2, 3, 4)"), true("tuple(t.shape) == (2, 3, 4)")),
        Property(
            T(en="`view(2, 12)` merges the last two dimensions", zh="`view(2, 12)` 合并最后两维"),
            true("(2, 12) not in refused", T(en="`t.view(2, 12)` raises", zh="`t.view(2, 12)` 报错")),
        ),
        Property(
            T(en="`view(6, 4)` refuses because of the strides", zh="`view(6, 4)` 因步长而拒绝"),
            true("'stride' in refused.get((6, 4), '')", T(en="`t.view(6, 4)` works", zh="`t.view(6, 4)` 可以运行")),
        ),
    ),
    hint_for=(0, 2, 1),
    hints=(
        T(
            en="Two dimensions can be merged if one step in the left one is as far as all steps of "
            "the right one together.",
            zh="如果左边一维走一步，等于右边一维走完全部的步数，这两维就可以合并。",
        ),
        T(
            en="`torch.zeros(2, 3, 4)` has strides (12, 4, 1): 4 is 4 · 1, and 12 is 3 · 4. Keep the first of these, "
            "and break the second.",
            zh="`torch.zeros(2, 3, 4)` 的步长是 (12, 4, 1)：4 等于 4 · 1，12 等于 3 · 4。保留前一个关系，破坏后一个。",
        ),
        T(
            en="Leave a gap behind each three rows: take a slice of a larger tensor. Or let `permute` bring the last "
            "dimension to the front.",
            zh="在每三行之后留出空隙：取更大张量的切片。或者用 `permute` 把最后一维移到最前。",
        ),
    ),
    right=(
        "def counterexample():\n    return torch.zeros(2, 5, 4)[:, :3]\n",
        "def counterexample():\n    return torch.zeros(3, 4, 2).permute(2, 0, 1)\n",
    ),
    wrong=(
        # neither two can be merged
        "def counterexample():\n    return torch.zeros(3, 2, 4).transpose(0, 1)\n",
        # the gap is in the last dimension: the first two can be merged
        "def counterexample():\n    return torch.zeros(2, 3, 8)[..., :4]\n",
        # another shape
        "def counterexample():\n    return torch.zeros(4, 6).t()\n",
        "def counterexample():\n    return [[[0] * 4] * 3] * 2\n",
    ),
)

EXERCISES = (SHAPES, COLLATE, CHANNELS, TOTALS, MERGED)
