"""Exercises of chapter 4: which dimensions go, and what happens to a batch of one."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import Check, Exercise, Property, as_solved, equal, every, shared, true
from pitfall_lab.trace import T

OPERAND = """\
t = torch.zeros(1, 3, 1, 2)


def shape_of(expression):
    try:
        return tuple(eval(expression).shape)
    except (IndexError, RuntimeError):
        return "error"
"""
FORMS = (
    "t.squeeze()",
    "t.squeeze(0)",
    "t.squeeze(1)",
    "t.squeeze((0, 2))",
    "t.squeeze(4)",
    "t.unsqueeze(-1)",
    "t[0, :, 0]",
    "t.flatten(1)",
)


def _shape(expression: str) -> Property:
    """Return the property that the learner wrote the shape of a result."""
    check = equal(f"shapes[{expression!r}]", f"shape_of({expression!r})", tell=False, inputs=OPERAND)
    return Property(T(en=f"the shape of {expression}", zh=f"{expression} 的形状"), check)


def _table(*shapes: object) -> str:
    """Return a cell that answers with these shapes."""
    rows = "".join(f'    "{expression}": {shape!r},\n' for expression, shape in zip(FORMS, shapes, strict=True))
    return "shapes = {\n" + rows.replace("'error'", '"error"') + "}\n"


SHAPES = Exercise(
    key="4.1",
    kind="predict",
    title=T(en="Which dimensions go?", zh="哪些维度会消失？"),
    task=T(
        en='`t` has shape (1, 3, 1, 2). Write the shape of each result, or `"error"`.',
        zh='`t` 的形状是 (1, 3, 1, 2)。写出每个结果的形状，或 `"error"`。',
    ),
    given=_table(*[None] * len(FORMS)),
    properties=tuple(map(_shape, FORMS)),
    hint_for=(1, 1, 2, 1, 2, 0, 3, 3),
    hints=(
        T(
            en="Without an argument all dimensions of size 1 go, with one only that one.",
            zh="不带参数时，所有长度为 1 的维度都会消失；带参数时只有那一个。",
        ),
        T(
            en="A dimension of another size stays; a dimension that does not exist is an error.",
            zh="长度不为 1 的维度会保留；不存在的维度是错误。",
        ),
        T(
            en="Integers in brackets remove their dimensions; `flatten(1)` merges all from the second on.",
            zh="方括号中的整数会去掉该维；`flatten(1)` 合并第二维及之后的所有维。",
        ),
    ),
    right=(
        _table((3, 2), (3, 1, 2), (1, 3, 1, 2), (3, 2), "error", (1, 3, 1, 2, 1), (3, 2), (1, 6)),
        _table([3, 2], [3, 1, 2], [1, 3, 1, 2], [3, 2], "error", [1, 3, 1, 2, 1], [3, 2], [1, 6]),
    ),
    wrong=(
        # the batch stays, and squeeze(1) raises
        _table((1, 3, 2), (3, 1, 2), "error", (3, 2), "error", (1, 3, 1, 2, 1), (3, 2), (1, 6)),
        # squeeze(1) removes the dimension in any case, squeeze(4) does nothing
        _table((3, 2), (3, 1, 2), (1, 1, 2), (3, 2), (1, 3, 1, 2), (1, 3, 1, 2, 1), (3, 2), (6,)),
    ),
)

CLASSIFY = Exercise(
    key="4.2",
    kind="repair",
    title=T(en="A batch of one", zh="只有一个样本的批次"),
    task=T(
        en=(
            "`classify(scores)` gets a float tensor of shape (batch, classes, 1, 1) and returns the class with the "
            "highest score for each sample, as a tensor of shape (batch,). As given it fails for a batch of one, and "
            "where there is only one class. Repair it."
        ),
        zh=(
            "`classify(scores)` 得到形状为 (批次, 类别, 1, 1) 的浮点张量，返回每个样本得分最高的类别，形状为 (批次,)。"
            "除了只有一个样本的批次和只有一个类别的情况，它都正确。请修好它。"
        ),
    ),
    given="""\
def classify(scores):
    # scores: (batch, classes, 1, 1), as a convolutional network returns them
    scores = scores.squeeze()
    return scores.argmax(dim=1)
""",
    inputs="scores = torch.randn(*torch.randint(2, 8, (2,)).tolist(), 1, 1)",
    drive="classes = classify(scores)",
    properties=(
        Property(T(en="the classes of several samples are right", zh="多个样本的类别正确"), as_solved("classes")),
        Property(
            T(en="the class of one sample is right: shape (1,)", zh="一个样本的类别正确：形状为 (1,)"),
            as_solved("classes", inputs="scores = torch.randn(1, int(torch.randint(2, 9, ())), 1, 1)"),
        ),
        Property(
            T(en="with one class, the classes of four samples are right", zh="只有一个类别时，四个样本的类别正确"),
            as_solved("classes", inputs="scores = torch.randn(int(torch.randint(2, 9, ())), 1, 1, 1)"),
        ),
        Property(
            T(en="with one class, the class of one sample is right", zh="只有一个类别时，一个样本的类别正确"),
            as_solved("classes", inputs="scores = torch.randn(1, 1, 1, 1)"),
        ),
    ),
    hint_for=(1, 1, 2, 2),
    hints=(
        T(
            en="What shape does `scores.squeeze()` have for a batch of one?",
            zh="批次只有一个样本时，`scores.squeeze()` 是什么形状？",
        ),
        T(en="Only the last two dimensions should go.", zh="只应去掉最后两维。"),
        T(
            en="`scores.flatten(1)` keeps the batch whatever the sizes are.",
            zh="无论大小如何，`scores.flatten(1)` 都保留批次维。",
        ),
    ),
    right=(
        "def classify(scores):\n    return scores.flatten(1).argmax(dim=1)\n",
        "def classify(scores):\n    return scores.squeeze((2, 3)).argmax(dim=1)\n",
        "def classify(scores):\n    return scores[:, :, 0, 0].argmax(dim=1)\n",
    ),
    wrong=(
        "def classify(scores):\n    return scores.squeeze().argmax(dim=-1)\n",
        (
            "def classify(scores):\n"
            "    scores = scores.squeeze()\n"
            "    return (scores if scores.ndim == 2 else scores.unsqueeze(0)).argmax(dim=1)\n"
        ),
    ),
)

LOST = Exercise(
    key="4.3",
    kind="make-it-fail",
    title=T(en="The two are not the same", zh="两者并不相同"),
    task=T(
        en=(
            'A colleague says: "`t.squeeze().shape == t.squeeze(-1).shape` for everything that our network returns, '
            '(batch, steps, 1)." Write `counterexamples()`, without arguments: it returns two tensors of such a '
            "shape for which this is false, for two different reasons: the first with at least two steps, the second "
            "with at least two samples."
        ),
        zh=(
            "同事说：“我们的网络返回的 (批次, 步数, 1) 总有 `t.squeeze().shape == t.squeeze(-1).shape`。”编写无参数的 "
            "`counterexamples()`：返回两个这种形状、却由于不同原因而不满足此式的张量：第一个至少两步，第二个至少两个"
            "样本。"
        ),
    ),
    given="def counterexamples():\n    return torch.zeros(4, 3, 1), torch.zeros(3, 4, 1)\n",
    drive="first, second = counterexamples()",
    properties=(
        Property(
            T(en="both have the shape (batch, steps, 1)", zh="两个形状都是 (批次, 步数, 1)"),
            true(
                "all(torch.is_tensor(t) and t.ndim == 3 and t.shape[2] == 1 for t in (first, second))",
                T(
                    en="one of them is not a tensor with three dimensions, the last of length 1",
                    zh="其中有一个不是最后一维长度为 1 的三维张量",
                ),
            ),
        ),
        Property(
            T(
                en="the first has two steps or more, and `squeeze()` drops its batch too",
                zh="第一个至少两步，并失去批次",
            ),
            every(
                true("first.shape[1] >= 2", T(en="it has fewer than two steps", zh="它不足两步")),
                true(
                    "first.squeeze().shape == first.shape[1:2]",
                    T(en="the shape of its `squeeze()` is not (steps,)", zh="它的 `squeeze()` 的形状不是 (步数,)"),
                ),
            ),
        ),
        Property(
            T(en="the second has two samples or more, and loses its steps", zh="第二个至少两个样本，并失去步数"),
            every(
                true("second.shape[0] >= 2", T(en="it has fewer than two samples", zh="它不足两个样本")),
                true(
                    "second.squeeze().shape == second.shape[:1]",
                    T(en="the shape of its `squeeze()` is not (batch,)", zh="它的 `squeeze()` 的形状不是 (批次,)"),
                ),
            ),
        ),
    ),
    hints=(
        T(
            en="When does `squeeze()` remove more than the last dimension?",
            zh="什么时候 `squeeze()` 去掉的不止最后一维？",
        ),
        T(en="Which size must a dimension have so that it goes?", zh="一个维度的长度是多少时才会消失？"),
        T(en="A batch of one; and one step.", zh="只有一个样本的批次；以及只有一步。"),
    ),
    right=(
        "def counterexamples():\n    return torch.zeros(1, 3, 1), torch.zeros(4, 1, 1)\n",
        "def counterexamples():\n    return [torch.arange(5.0).view(1, -1, 1), torch.arange(5.0).view(-1, 1, 1)]\n",
    ),
    wrong=(
        "def counterexamples():\n    return torch.zeros(4, 1, 1), torch.zeros(1, 3, 1)\n",
        "def counterexamples():\n    return torch.zeros(1, 3, 1), torch.zeros(1, 1, 1)\n",
        "def counterexamples():\n    return torch.zeros(1, 3, 1, 1), torch.zeros(4, 1, 1)\n",
    ),
)


def _names_the_shape(dimensions: int) -> Check:
    return true(
        "list(t.shape) in [numbers[n : n + t.ndim] for n in range(9)]",
        T(en="no ValueError with the shape", zh="没有写明形状的 ValueError"),
        inputs=f"t = torch.randn(*torch.randint(2, 40, ({dimensions},)).tolist())",
    )


DROP = Exercise(
    key="4.4",
    kind="write",
    title=T(en="Remove it or raise", zh="要么去掉，要么报错"),
    task=T(
        en=(
            "`drop_last(t)` gets a tensor with at least one dimension. It removes the last dimension if its size is 1 "
            "and raises a `ValueError` with the shape in its message, for example `(2, 3)`, if it is not. The result "
            "shares the memory of `t`."
        ),
        zh=(
            "`drop_last(t)` 得到至少一维的张量。最后一维长度为 1 时去掉它；否则抛出 `ValueError`，信息中写明形状，例"
            "如 `(2, 3)`。结果与 `t` 共享内存。"
        ),
    ),
    given="def drop_last(t):\n    return t.squeeze(-1)\n",
    inputs="t = torch.randn(4, 1)",
    drive="""\
result, message = None, ""
try:
    result = drop_last(t)
except ValueError as error:
    message = str(error)
numbers = [int(number) for number in re.findall("[0-9]+", message)]
""",
    setup="import re\n",
    properties=(
        Property(T(en="a column becomes flat", zh="一列变成一维"), as_solved("result")),
        Property(
            T(en="a batch of one stays a batch", zh="只有一个样本时仍是批次"),
            as_solved("result", inputs="t = torch.randn(1, 1)"),
        ),
        Property(
            T(en="tensors of one, three and four dimensions come out right", zh="一维、三维和四维张量的结果正确"),
            every(
                *(as_solved("result", inputs=f"t = torch.randn{shape}") for shape in ((1,), (2, 3, 1), (1, 2, 1, 1)))
            ),
        ),
        Property(T(en="the result is a view of `t`", zh="结果是 `t` 的视图"), shared("result", "t")),
        Property(
            T(en="another size is an error that names the shape", zh="其他长度会报错并写明形状"),
            every(*map(_names_the_shape, (1, 2, 3))),
        ),
    ),
    hint_for=(0, 3, 0, 3, 2),
    hints=(
        T(en="Look at `t.shape[-1]` first.", zh="先看 `t.shape[-1]`。"),
        T(en="Raise it yourself: `raise ValueError(...)`.", zh="自己抛出：`raise ValueError(...)`。"),
        T(
            en="`squeeze(-1)` is right once the size is known to be 1.",
            zh="确认长度为 1 之后，用 `squeeze(-1)` 就对了。",
        ),
    ),
    right=(
        """\
def drop_last(t):
    if t.shape[-1] != 1:
        raise ValueError(f"the last dimension should have size 1: {tuple(t.shape)}")
    return t.squeeze(-1)
""",
        """\
def drop_last(t):
    *rest, last = t.shape
    if last == 1:
        return t.view(rest)
    raise ValueError(str([*rest, last]))
""",
    ),
    wrong=(
        """\
def drop_last(t):
    if t.shape[-1] != 1:
        raise ValueError(f"the last dimension should have size 1: {tuple(t.shape)}")
    return t.squeeze()
""",
        "def drop_last(t):\n    return t[..., 0]\n",
        """\
def drop_last(t):
    assert t.shape[-1] == 1, t.shape
    return t.squeeze(-1)
""",
    ),
)

EXERCISES = (SHAPES, CLASSIFY, LOST, DROP)
