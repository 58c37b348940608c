"""Exercises of chapter 1: views of a storage, lines that torch refuses, lost writes, a step by hand."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    UNANSWERED,
    Attempt,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    gradient_as_solved,
    in_place,
    no_optimizer,
    shared,
    true,
)
from pitfall_lab.trace import T

GRID = "grid = torch.arange(12).reshape(3, 4)\n"


def _three_backwards(attempt: Attempt) -> bool | T:
    if (error := attempt.error()) is not None:
        return error.say()
    found = len({event.parent for event in attempt.trace().events if event.kind == "node"})
    times = "once" if found == 1 else f"{found} times"
    return found == 3 or T(en=f"backward ran {times} in three steps", zh=f"三步中 backward 运行了 {found} 次")


def _note(expression: str) -> Property:
    """Return the property that the learner wrote shape, stride and offset of an expression; the
    parts that are wrong are named.
    """
    truths = (f"tuple(({expression}).shape)", f"({expression}).stride()", f"({expression}).storage_offset()")
    checks = [equal(f"answers[{expression!r}][{n}]", truth, tell=False, inputs=GRID) for n, truth in enumerate(truths)]

    def check(attempt: Attempt) -> bool | T:
        verdicts = [one(attempt) for one in checks]
        if all(verdict is UNANSWERED for verdict in verdicts):
            return UNANSWERED
        wrong = [part for part, verdict in zip(_PARTS, verdicts, strict=True) if verdict is not True]
        if not wrong:
            return True
        forms = [verdict for verdict in verdicts if isinstance(verdict, T) and verdict.en.startswith("write (")]
        if len(forms) == len(wrong):  # the numbers are right
            return forms[0]
        return T(en=f"look at {', '.join(p.en for p in wrong)} again", zh=f"再看看{'、'.join(p.zh for p in wrong)}")

    return Property(T(en=f"shape, stride and offset of {expression}", zh=f"{expression} 的形状、步长和偏移"), check)


_PARTS = (T(en="the shape", zh="形状"), T(en="the stride", zh="步长"), T(en="the offset", zh="偏移"))


WINDOWS = Exercise(
    key="1.1",
    kind="predict",
    title=T(en="Shape, stride, offset", zh="形状、步长、偏移"),
    task=T(
        en=(
            "`grid` is `torch.arange(12).reshape(3, 4)`. For each expression write its shape, stride and offset, as "
            "in the first line, before you run anything."
        ),
        zh="`grid` 是 `torch.arange(12).reshape(3, 4)`。在运行任何代码之前，仿照第一行写出每个表达"
        "式的形状、步长和偏移。",
    ),
    given="""\
answers = {
    "grid": ((3, 4), (4, 1), 0),        # shape, stride, offset: done for you
    "grid[1]": (None, None, None),
    "grid[:, 2:]": (None, None, None),
    "grid.t()": (None, None, None),
    "grid[::2, 1]": (None, None, None),
}
""",
    properties=tuple(_note(e) for e in ("grid", "grid[1]", "grid[:, 2:]", "grid.t()", "grid[::2, 1]")),
    hint_for=(0, 1, 2, 0, 3),
    hints=(
        T(
            en="Write the twelve numbers in one row. Where does each expression start?",
            zh="把十二个数写成一行。每个表达式从哪里开始？",
        ),
        T(
            en="A slice keeps the stride of its dimension, times its step; an integer removes the dimension "
            "and moves the start.",
            zh="切片保留该维的步长(再乘以切片的步距)；整数去掉该维，并移动起点。",
        ),
        T(
            en="`grid[::2, 1]` starts at place 1; from its first to its second element it is two rows of four.",
            zh="`grid[::2, 1]` 从位置 1 开始；从第一个元素到第二个元素隔两行，每行四个。",
        ),
    ),
    right=(
        """\
answers = {
    "grid": ((3, 4), (4, 1), 0),
    "grid[1]": ((4,), (1,), 4),
    "grid[:, 2:]": ((3, 2), (4, 1), 2),
    "grid.t()": ((4, 3), (1, 4), 0),
    "grid[::2, 1]": ((2,), (8,), 1),
}
""",
        """\
answers = {"grid": ([3, 4], [4, 1], 0), "grid[1]": ([4], [1], 4)}
answers["grid[:, 2:]"] = ([3, 2], [4, 1], 2)
answers["grid.t()"] = ([4, 3], [1, 4], 0)
answers["grid[::2, 1]"] = ([2], [8], 1)
""",
    ),
    wrong=(
        # strides in rows instead of elements, and the offset of a row counted from its own start
        """\
answers = {
    "grid": ((3, 4), (4, 1), 0),
    "grid[1]": ((4,), (1,), 1),
    "grid[:, 2:]": ((3, 2), (2, 1), 2),
    "grid.t()": ((4, 3), (3, 1), 0),
    "grid[::2, 1]": ((2,), (2,), 1),
}
""",
        # an integer that keeps its dimension
        """\
answers = {
    "grid": ((3, 4), (4, 1), 0),
    "grid[1]": ((1, 4), (4, 1), 4),
    "grid[:, 2:]": ((3, 2), (4, 1), 2),
    "grid.t()": ((4, 3), (1, 4), 0),
    "grid[::2, 1]": ((2, 1), (8, 1), 1),
}
""",
    ),
)

ARRANGE = Exercise(
    key="1.2",
    kind="repair",
    title=T(en="Two lines that torch refuses", zh="两行 torch 拒绝的代码"),
    task=T(
        en=(
            "`arrange(image)` gets a flat tensor of 12 numbers. It should return two tensors on the memory of "
            "`image`: the numbers in three rows, and the transpose of these. `image` itself stays flat. torch "
            "refuses two of the lines."
        ),
        zh=(
            "`arrange(image)` 得到 12 个数的一维张量，应返回建立在 `image` 的内存上的两个张量：排成三行的这些数，以及"
            "它的转置。`image` 本身仍是一维。torch 拒绝其中两行。"
        ),
    ),
    given="""\
def arrange(image):
    rows = torch.view(image, (3, 4))
    turned = image
    turned.shape = (4, 3)
    return rows, turned
""",
    inputs="image = torch.rand(12)",
    drive="rows, turned = arrange(image)",
    properties=(
        Property(T(en="`rows` has three rows, in order", zh="`rows` 有三行，顺序正确"), as_solved("rows")),
        Property(T(en="`turned` is its transpose", zh="`turned` 是它的转置"), as_solved("turned")),
        Property(T(en="`rows` shares the memory of `image`", zh="`rows` 与 `image` 共享内存"), shared("rows", "image")),
        Property(
            T(en="`turned` shares the memory of `image` too", zh="`turned` 也与 `image` 共享内存"),
            shared("turned", "image"),
        ),
        Property(T(en="`image` itself is still flat", zh="`image` 本身仍是一维"), true("image.shape == (12,)")),
    ),
    hint_for=(1, 2, 0, 3, 3),
    hints=(
        T(en="`view` is a method: whose method?", zh="`view` 是方法：谁的方法？"),
        T(en="Not every tensor of shape (4, 3) is the transpose.", zh="形状为 (4, 3) 的张量并不都是转置。"),
        T(en="`rows.t()` swaps the strides and moves no number.", zh="`rows.t()` 只交换步长，不移动任何数。"),
    ),
    right=(
        "def arrange(image):\n    rows = image.view(3, 4)\n    return rows, rows.t()\n",
        "def arrange(image):\n    rows = torch.reshape(image, (3, -1))\n    return rows, rows.transpose(0, 1)\n",
    ),
    wrong=(
        "def arrange(image):\n    return image.view(3, 4), image.view(4, 3)\n",
        "def arrange(image):\n    rows = image.clone().view(3, 4)\n    return rows, rows.t()\n",
    ),
)

CLIP = Exercise(
    key="1.3",
    kind="find-and-fix",
    title=T(en="A write that is lost", zh="丢失的写入"),
    task=T(
        en=(
            "`clip(t, limit)` gets a float matrix with at least two columns, and a number. In column 1 it should cut "
            "all elements above `limit` down to `limit`, in `t` itself; the other columns stay. As given it raises "
            "nothing, and leaves `t` as it was."
        ),
        zh=(
            "`clip(t, limit)` 得到至少两列的浮点矩阵和一个数，应把 `t` 的第 1 列（从 0 数起）中大于 `limit` 的元素就地"
            "改为 `limit`，其他列不变。它不报错，`t` 却没有变。"
        ),
    ),
    given="""\
def clip(t, limit):
    too_large = t[:, 1] > limit
    t[too_large, 1].fill_(limit)
""",
    inputs="t = torch.randn(5, 3)\nt[0, 1] = t[2, 0] = t[0, 2] = 3.0\nlimit = torch.rand(()).item()",
    drive="clip(t, limit)",
    properties=(
        Property(T(en="column 1 is clipped", zh="第 1 列被截断"), as_solved("t[:, 1]")),
        Property(T(en="the other columns stay", zh="其他列不变"), as_solved("t[:, ::2]")),
        Property(
            T(
                en="it is written in place: the same tensor on the same memory",
                zh="就地写入：仍是同一个张量、同一块内存",
            ),
            in_place("t"),
        ),
        Property(
            T(en="column 1 of a transposed matrix is clipped too", zh="转置的矩阵的第 1 列也被截断"),
            as_solved(
                "t",
                "m",
                inputs="m = torch.randn(2, 3)\nm[1, 2] = m[0, 1] = 4.0\nt = m.t()\nlimit = torch.rand(()).item()",
            ),
        ),
        Property(
            T(en="nothing happens where nothing is too large", zh="没有过大的元素时什么也不发生"),
            as_solved("t", inputs="t = -torch.rand(5, 2)\nlimit = 0.5"),
        ),
    ),
    hint_for=(1, 3, 2, 0, 0),
    hints=(
        T(
            en="In which memory are the elements that `t[too_large, 1]` returns?",
            zh="`t[too_large, 1]` 返回的元素在哪块内存里？",
        ),
        T(
            en="On the left of `=` the same brackets choose places in `t`.",
            zh="同样的方括号放在 `=` 左边，就是选择 `t` 中的位置。",
        ),
        T(
            en="One line is enough: `t[rows, 1] = limit`. Which rows?",
            zh="一行就够：`t[rows, 1] = limit`。rows 是哪些行？",
        ),
    ),
    right=(
        "def clip(t, limit):\n    t[t[:, 1] > limit, 1] = limit\n",
        "def clip(t, limit):\n    t[:, 1].clamp_(max=limit)\n",
    ),
    wrong=(
        "def clip(t, limit):\n    t = t.clamp(max=limit)\n",
        "def clip(t, limit):\n    t[:, 1] = limit\n",
        "def clip(t, limit):\n    t[t[:, 1] > limit] = limit\n",
        "def clip(t, limit):\n    t[t > limit] = limit\n",
    ),
)

TRAIN = Exercise(
    key="1.4",
    kind="write",
    title=T(en="Gradient descent by hand", zh="手写梯度下降"),
    task=T(
        en=(
            "Complete `train(x, y, w, rate, steps)`. `x` and `y` are float tensors of one length, `w` is a tensor "
            "with one element that requires grad: gradient descent on `w` for the loss *mean of* `(x * w - y) ** "
            "2`, `steps` times, with learning rate `rate`. Use `backward` (or `torch.autograd.grad`), once in "
            "each step, and no optimizer. Return the same `w`, or a new tensor made with `requires_grad_()`, with the "
            "final values, so that a later backward fills its `.grad`."
        ),
        zh=(
            "补全 `train(x, y, w, rate, steps)`。`x` 和 `y` 是等长的浮点张量，`w` 是一个元素、需要梯度的张量：对 `w` "
            "做梯度下降，损失是 `(x * w - y) ** 2` 的均值，共 `steps` 步，学习率为 `rate`。每一步使用一次 "
            "`backward`（或 `torch.autograd.grad`），不用优化器。返回同一个 `w`，或用 `requires_grad_()` 新建的张量，"
            "其中是最终的数值，使以后的 backward 能填充它的 `.grad`。"
        ),
    ),
    given="""\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        pass    # forward, backward, update; and .grad must not carry over to the next step
    return w
""",
    inputs="x, y, w = torch.rand(6) + 0.5, torch.randn(6), torch.tensor([0.3], requires_grad=True)",
    drive="w = train(x, y, w, 0.1, 3)",
    properties=(
        Property(
            T(en="one step is right", zh="一步之后结果正确"),
            as_solved("w.detach()", drive="w = train(x, y, w, 0.1, 1)"),
        ),
        Property(T(en="three steps are right", zh="三步之后结果正确"), as_solved("w.detach()")),
        Property(
            T(en="more steps at other rates are right", zh="换其他学习率，走更多步之后结果正确"),
            as_solved(
                "w.detach()",
                inputs="x, y, w = torch.rand(4) + 0.5, torch.randn(4), torch.tensor([-0.2], requires_grad=True)\n"
                "rate, steps = torch.rand(()).item() / 20 + 0.01, int(torch.randint(4, 9, ()))",
                drive="w = train(x, y, w, rate, steps)",
            ),
        ),
        Property(T(en="each step has a backward of its own", zh="每一步都有自己的 backward"), _three_backwards),
        Property(T(en="no optimizer takes a step", zh="没有使用优化器"), no_optimizer()),
        Property(
            T(en="`w` can be trained on: its next gradient is right", zh="`w` 还能继续训练：它的下一个梯度正确"),
            every(
                true(
                    "w.is_leaf or not w.requires_grad",
                    T(
                        en="the returned w was computed from another tensor: a backward fills no `.grad` of it",
                        zh="返回的 w 由另一个张量算出：backward 不会填充它的 `.grad`",
                    ),
                    drive="w = train(x, y, w, 0.1, 2)",
                ),
                gradient_as_solved(
                    "w", drive="w = train(x, y, w, 0.1, 2)\nw.grad = None\n((x * w - y) ** 2).mean().backward()"
                ),
            ),
        ),
    ),
    hint_for=(1, 3, 3, 1, 1, 2),
    hints=(
        T(
            en="Three steps: a loss of one number, `loss.backward()`, and a subtraction that you write yourself (no "
            "optimizer), under `torch.no_grad()`: without it torch refuses to write into a weight that requires grad.",
            zh="三步：一个数的损失，`loss.backward()`，再自己写减法（不用优化器），减法放在 `torch.no_grad()` 里："
            "否则 torch 拒绝写入需要梯度的权重。",
        ),
        T(
            en="The subtraction has to write into `w`, as `w -= …` does: `w = w - …` makes another tensor, "
            "which gets no `.grad`.",
            zh="减法要写入 `w`，如 `w -= …`：`w = w - …` 会产生另一个张量，它得不到 `.grad`。",
        ),
        T(
            en="Only the first step is right? Either `.grad` was not cleared, and gradients add up: set `w.grad = "
            "None` before the next backward. Or `w = w - …` has made another tensor, which gets no `.grad`: write "
            "`w -= …`.",
            zh="只有第一步正确？或者没有清除 `.grad`，梯度累加了：在下一次 backward 之前令 `w.grad = None`。"
            "或者 `w = w - …` 产生了另一个张量，它得不到 `.grad`：请写 `w -= …`。",
        ),
    ),
    right=(
        """\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        w.grad = None
        loss = ((x * w - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            w -= rate * w.grad
    return w
""",
        """\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        loss = ((x * w - y) ** 2).sum() / len(x)
        loss.backward()
        with torch.no_grad():
            w.sub_(rate * w.grad)
            w.grad.zero_()
    return w
""",
    ),
    wrong=(
        # the gradients add up
        """\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        ((x * w - y) ** 2).mean().backward()
        with torch.no_grad():
            w -= rate * w.grad
    return w
""",
        # the sum has six times the gradient of the mean
        """\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        w.grad = None
        ((x * w - y) ** 2).sum().backward()
        with torch.no_grad():
            w -= rate * w.grad
    return w
""",
        # the result is no leaf: what trains it on fills no .grad
        """\
def train(x, y, w, rate, steps):
    w = w.clone()
    for _ in range(steps):
        (g,) = torch.autograd.grad(((x * w - y) ** 2).mean(), w)
        w = w - rate * g
    return w
""",
        # a result of six numbers
        """\
def train(x, y, w, rate, steps):
    for _ in range(steps):
        ((x * w - y) ** 2).backward()
        with torch.no_grad():
            w -= rate * w.grad
    return w
""",
    ),
)

EXERCISES = (WINDOWS, ARRANGE, CLIP, TRAIN)
