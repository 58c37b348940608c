"""Exercises of chapter 2: shapes that meet, dimensions that go, views that cannot be flattened,
arrays that belong to others.
"""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_many_calls,
    as_solved,
    equal,
    every,
    not_shared,
    true,
    unchanged,
)
from pitfall_lab.trace import T

OPERANDS = """\
a, b, c, d = torch.ones(4, 1), torch.ones(3), torch.ones(4, 3), torch.ones(4)


def shape_of(expression):
    try:
        return tuple(eval(expression).shape)
    except RuntimeError:
        return "error"
"""
SUMS = ("a + b", "c + b", "c + d", "c.t() + d", "a - d", "c.sum(dim=0) + b", "c / c.sum(dim=1, keepdim=True)")


def _shape(expression: str) -> Property:
    """Return the property that the learner wrote the shape of a result."""
    check = equal(f"shapes[{expression!r}]", f"shape_of({expression!r})", tell=False, inputs=OPERANDS)
    return Property(T(en=f"the shape of {expression}", zh=f"{expression} 的形状"), check)


SHAPES = Exercise(
    key="2.1",
    kind="predict",
    title=T(en="Which shape comes out?", zh="结果是什么形状？"),
    task=T(
        en=(
            'Write the shape of each result, or `"error"`. `a` has shape (4, 1), `b` has shape (3,), `c` has shape '
            "(4, 3), `d` has shape (4,)."
        ),
        zh='写出每个结果的形状，或 `"error"`。`a` 的形状是 (4, 1)，`b` 是 (3,)，`c` 是 (4, 3)，`d` 是 (4,)。',
    ),
    given="""\
shapes = {
    "a + b": None,
    "c + b": None,
    "c + d": None,
    "c.t() + d": None,
    "a - d": None,
    "c.sum(dim=0) + b": None,
    "c / c.sum(dim=1, keepdim=True)": None,
}
""",
    properties=tuple(map(_shape, SUMS)),
    hint_for=(1, 1, 2, 1, 3, 0, 0),
    hints=(
        T(en="Write the two shapes one below the other, aligned at the right.", zh="把两个形状上下写，右边对齐。"),
        T(
            en="Equal, 1, or missing: then it fits. Everything else is an error.",
            zh="相等、为 1 或缺失，就合适；其他都是错误。",
        ),
        T(
            en="`c + d` lines 3 up with 4. `a - d` lines 1 up with 4, and the 4 of `a` with nothing.",
            zh="`c + d` 把 3 与 4 对齐。`a - d` 把 1 与 4 对齐，而 `a` 的 4 对应缺失的维度。",
        ),
    ),
    right=(
        """\
shapes = {
    "a + b": (4, 3),
    "c + b": (4, 3),
    "c + d": "error",
    "c.t() + d": (3, 4),
    "a - d": (4, 4),
    "c.sum(dim=0) + b": (3,),
    "c / c.sum(dim=1, keepdim=True)": (4, 3),
}
""",
        """\
shapes = dict.fromkeys(("a + b", "c + b", "c / c.sum(dim=1, keepdim=True)"), [4, 3])
shapes |= {"c + d": "error", "c.t() + d": [3, 4], "a - d": [4, 4], "c.sum(dim=0) + b": [3]}
""",
    ),
    wrong=(
        # a column and a flat tensor of the same length paired one to one
        """\
shapes = {
    "a + b": (4, 3),
    "c + b": (4, 3),
    "c + d": "error",
    "c.t() + d": (3, 4),
    "a - d": (4,),
    "c.sum(dim=0) + b": (3,),
    "c / c.sum(dim=1, keepdim=True)": (4, 3),
}
""",
        # aligned at the left
        """\
shapes = {
    "a + b": "error",
    "c + b": "error",
    "c + d": (4, 3),
    "c.t() + d": "error",
    "a - d": (4, 1),
    "c.sum(dim=0) + b": "error",
    "c / c.sum(dim=1, keepdim=True)": (4, 3),
}
""",
    ),
)

ROWS = Exercise(
    key="2.2",
    kind="repair",
    title=T(en="Each row by itself", zh="各行单独处理"),
    task=T(
        en=(
            "`standardise(rows)` gets a float matrix. From each **row** it should subtract the row's mean and divide "
            "by the row's standard deviation (as torch's `std` gives it), and leave `rows` as it is. As given it "
            "raises for most inputs; for square ones it raises nothing and is wrong."
        ),
        zh=(
            "`standardise(rows)` 得到浮点矩阵。它应把每一**行**减去该行的均值，再除以该行的标准差（按 torch 的 "
            "`std`），并保持 `rows` 不变。它对大多数输入报错；对方阵不报错，结果却是错的。"
        ),
    ),
    given="""\
def standardise(rows):
    centred = rows - rows.mean(dim=1)
    return centred / rows.std(dim=1)
""",
    inputs="rows = torch.randn(3, 5) * 2 + 1",
    drive="result = standardise(rows)",
    properties=(
        Property(
            T(en="each row of the result has the mean 0", zh="结果的每一行均值为 0"),
            true(
                "result.shape == rows.shape and result.mean(dim=1).abs().max() < 1e-4",
                T(en="a row has not", zh="有一行不是"),
            ),
        ),
        Property(
            T(en="a wide and a tall matrix come out right", zh="宽矩阵和高矩阵的结果正确"),
            every(
                as_solved("result"),
                as_solved(
                    "result", inputs="rows = torch.randn(*torch.randint(3, 6, (2,)).cumsum(0).flip(0).tolist()) - 2"
                ),
            ),
        ),
        Property(
            T(
                en="a square matrix, for which the given cell raises nothing, comes out right",
                zh="方阵的结果正确（给定的代码对方阵不报错）",
            ),
            as_solved("result", inputs="rows = torch.randn(4, 4) * torch.tensor([1.0, 5.0, 9.0, 2.0])"),
        ),
        Property(
            T(en="a single row comes out right", zh="只有一行时结果正确"),
            as_solved("result", inputs="rows = torch.randn(1, 6) + 3"),
        ),
        Property(T(en="the argument is unchanged", zh="参数没有改变"), unchanged("rows")),
    ),
    hint_for=(1, 3, 3, 3, 3),
    hints=(
        T(
            en="Which shapes do `rows.mean(dim=1)` and `rows.std(dim=1)` have, and with which dimension is "
            "each lined up?",
            zh="`rows.mean(dim=1)` 和 `rows.std(dim=1)` 是什么形状？各与哪个维度对齐？",
        ),
        T(
            en="The means must become a column: `keepdim=True` keeps the dimension with size 1.",
            zh="均值应当成为一列：`keepdim=True` 会把该维保留为长度 1。",
        ),
        T(
            en="The standard deviations become a column in the same way; call `std` without `correction`: its default "
            "is what is meant. And `rows` must stay as it is: `rows -= …` writes into it, `rows - …` makes a new "
            "matrix.",
            zh="标准差同样要成为一列；调用 `std` 时不写 `correction`：要的就是它的默认值。"
            "另外 `rows` 必须保持不变：`rows -= …` 写入它，`rows - …` 产生新矩阵。",
        ),
    ),
    right=(
        """\
def standardise(rows):
    centred = rows - rows.mean(dim=1, keepdim=True)
    return centred / rows.std(dim=1, keepdim=True)
""",
        """\
def standardise(rows):
    return (rows - rows.mean(1).unsqueeze(1)) / rows.std(1)[:, None]
""",
    ),
    wrong=(
        "def standardise(rows):\n    return (rows - rows.mean(dim=0)) / rows.std(dim=0)\n",
        "def standardise(rows):\n    return (rows - rows.mean()) / rows.std()\n",
        (
            "def standardise(rows):\n"
            "    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True, correction=0)\n"
        ),
    ),
)

DISTANCES = Exercise(
    key="2.3",
    kind="write",
    title=T(en="Every pair, on purpose", zh="有意得到每一对"),
    task=T(
        en=(
            "`a` and `b` are float tensors of one dimension. `distances(a, b)` should return for each number of `a` "
            "and each number of `b` how far they are apart: shape `(len(a), len(b))`. Write no loop, broadcasting "
            "does it in one line; `a` and `b` stay as they are."
        ),
        zh=(
            "`a` 和 `b` 是一维浮点张量。`distances(a, b)` 对 `a` 的每个数与 `b` 的每个数返回两者相距多少：形状为 "
            "`(len(a), len(b))`。不要写循环，一行广播即可；`a` 和 `b` 保持不变。"
        ),
    ),
    given="def distances(a, b):\n    return (a - b).abs()\n",
    inputs="a, b = torch.randn(3), torch.randn(5)",
    drive="result = distances(a, b)",
    properties=(
        Property(
            T(en="more numbers in `b` than in `a`, or fewer, come out right", zh="`b` 的数比 `a` 多或少时结果正确"),
            every(
                as_solved("result"),
                as_solved(
                    "result", inputs="a, b = map(torch.randn, torch.randint(2, 6, (2,)).cumsum(0).flip(0).tolist())"
                ),
            ),
        ),
        Property(
            T(en="four numbers in `a` and four in `b` come out right", zh="`a` 与 `b` 各有四个数时结果正确"),
            as_solved("result", inputs="a, b = torch.randn(4), torch.randn(4)"),
        ),
        Property(
            T(en="one number in `a` and four in `b` come out right", zh="`a` 有一个数、`b` 有四个数时结果正确"),
            as_solved("result", inputs="a, b = torch.randn(1), torch.randn(4)"),
        ),
        Property(T(en="the arguments are unchanged", zh="参数没有改变"), every(unchanged("a"), unchanged("b"))),
        Property(T(en="there is no loop", zh="没有循环"), as_many_calls("a, b = torch.randn(24), torch.randn(25)")),
    ),
    hints=(
        T(en="A column and a row give every pair.", zh="一列和一行就得到每一对。"),
        T(en="`a` has to become a column: shape `(len(a), 1)`.", zh="`a` 要成为一列：形状 `(len(a), 1)`。"),
        T(en="`a.unsqueeze(1)` is that column.", zh="`a.unsqueeze(1)` 就是这一列。"),
    ),
    right=(
        "def distances(a, b):\n    return (a.unsqueeze(1) - b).abs()\n",
        "def distances(a, b):\n    return torch.sqrt((a[:, None] - b[None, :]) ** 2)\n",
    ),
    wrong=(
        "def distances(a, b):\n    return (b.unsqueeze(1) - a).abs()\n",
        "def distances(a, b):\n    return a.unsqueeze(1) - b\n",
    ),
)

STUBBORN = Exercise(
    key="2.4",
    kind="make-it-fail",
    title=T(en="A view that cannot be flattened", zh="无法展平的视图"),
    task=T(
        en=(
            "Write `stubborn()`, without arguments: it returns a tensor of 12 elements for which `t.view(-1)` raises, "
            "because of its strides, and `t.reshape(-1)` does not."
        ),
        zh="编写无参数的 `stubborn()`：返回一个有 12 个元素的张量，使 `t.view(-1)` 因步长而报错，而 "
        "`t.reshape(-1)` 不报错。",
    ),
    given="def stubborn():\n    t = torch.arange(12)\n    return t\n",
    drive="""\
t = stubborn()
raised = ""
try:
    torch.Tensor.view(t, -1)
except (RuntimeError, TypeError) as error:
    raised = str(error)
""",
    properties=(
        Property(T(en="it has 12 elements", zh="它有 12 个元素"), true("t.numel() == 12")),
        Property(
            T(en="`view(-1)` refuses because of the strides", zh="`view(-1)` 因步长而拒绝"),
            true("'stride' in raised", T(en="`t.view(-1)` works", zh="`t.view(-1)` 可以运行")),
        ),
        Property(T(en="`reshape(-1)` copies", zh="`reshape(-1)` 会复制"), not_shared("t", "t.reshape(-1)")),
    ),
    hints=(
        T(en="Which operation of this chapter changes strides only?", zh="本章哪种操作只改变步长？"),
        T(en="A vector can always be flattened: make a matrix first.", zh="向量总能展平：先做成矩阵。"),
        T(en="Transpose it, or take some of its columns.", zh="把它转置，或只取其中几列。"),
    ),
    right=(
        "def stubborn():\n    return torch.arange(12).view(3, 4).t()\n",
        "def stubborn():\n    return torch.arange(24).view(4, 6)[:, :3]\n",
    ),
    wrong=(
        "def stubborn():\n    return torch.arange(24)[::2]\n",
        "def stubborn():\n    return torch.arange(12).view(3, 4).t().contiguous()\n",
        "def stubborn():\n    return torch.arange(6).view(2, 3).t()\n",
    ),
)

FEATURES = Exercise(
    key="2.5",
    kind="find-and-fix",
    title=T(en="An array that is used elsewhere", zh="别处还在用的数组"),
    task=T(
        en=(
            "`features(raw)` makes a batch for a network: it divides an array of pixels (NumPy, of any number type) "
            "by 255. The array is used elsewhere and must stay as it is, and the result must be a float32 tensor."
        ),
        zh=(
            "`features(raw)` 为网络准备一批数据：把像素数组（NumPy，任何数值类型）除以 255。该数组别处还在用，必须保持"
            "不变；结果必须是 float32 张量。"
        ),
    ),
    given="""\
def features(raw):
    batch = torch.from_numpy(raw)
    batch /= 255
    return batch
""",
    inputs="raw = np.random.rand(*np.random.randint(2, 6, np.random.randint(1, 4))) * 255",
    drive="batch = features(raw)",
    properties=(
        Property(T(en="the batch is scaled", zh="数据已缩放"), as_solved("batch")),
        Property(
            T(en="the batch is float32", zh="结果是 float32"),
            true("batch.dtype == torch.float32", T(en="it is not float32", zh="它不是 float32")),
        ),
        Property(T(en="a float64 array is left unchanged", zh="float64 数组保持不变"), unchanged("raw")),
        Property(
            T(en="a float32 array is left unchanged", zh="float32 数组保持不变"),
            unchanged("raw", inputs="raw = (np.random.rand(4, 3) * 255).astype(np.float32)"),
        ),
        Property(
            T(en="the batch of an array of whole numbers is right", zh="整数数组的结果正确"),
            as_solved(
                "batch",
                inputs="kind = np.random.choice(['uint8', 'int16', 'int32', 'int64'])\n"
                "raw = np.random.randint(0, 256, np.random.randint(2, 6, 2)).astype(kind)",
            ),
        ),
    ),
    hint_for=(1, 3, 1, 2, 3),
    hints=(
        T(
            en="`from_numpy` shares the memory, and `/=` writes into it.",
            zh="`from_numpy` 共享内存，而 `/=` 会写入其中。",
        ),
        T(
            en="`.float()` copies a 64-bit tensor, but returns a 32-bit one as it is.",
            zh="`.float()` 会复制 64 位张量，但对 32 位张量原样返回。",
        ),
        T(
            en="`batch / 255` makes new memory; `torch.tensor(raw, dtype=...)` copies at once.",
            zh="`batch / 255` 产生新内存；`torch.tensor(raw, dtype=...)` 直接复制。",
        ),
    ),
    right=(
        "def features(raw):\n    return torch.tensor(raw, dtype=torch.float32) / 255\n",
        "def features(raw):\n    return (torch.from_numpy(raw) / 255).float()\n",
        "def features(raw):\n    batch = torch.from_numpy(raw).float().clone()\n    batch /= 255\n    return batch\n",
    ),
    wrong=(
        "def features(raw):\n    return torch.from_numpy(raw) / 255\n",
        "def features(raw):\n    batch = torch.from_numpy(raw).float()\n    batch /= 255\n    return batch\n",
        "def features(raw):\n    batch = torch.tensor(raw)\n    batch /= 255\n    return batch.float()\n",
    ),
)

EXERCISES = (SHAPES, ROWS, DISTANCES, STUBBORN, FEATURES)
