"""Chapter 5: who shares memory with whom."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import Exercise, Property, as_solved, equal, in_place, not_shared, true, unchanged
from pitfall_lab.trace import T

_SORTED = {
    "t[:, ::2]": "view",
    "t[[0]]": "copy",
    "t.contiguous()": "same",
    "t.t().reshape(-1)": "copy",
    "t.unsqueeze(0)": "view",
    "t * 1": "copy",
}


def _table(answers: dict[str, str]) -> str:
    rows = "".join(f'    "{expression}": "{answer}",\n' for expression, answer in answers.items())
    return f"belief = {{\n{rows}}}\n"


EXERCISES = (
    Exercise(
        key="5.1",
        kind="repair",
        title=T(en="A function that keeps its argument", zh="不改动参数的函数"),
        task=T(
            en=(
                "`standardise(batch)` gets a float tensor and returns a new one, on memory of its own, shifted to mean 0 and "
                "divided by the standard deviation. It also changes the batch it was given. Repair it."
            ),
            zh=(
                "`standardise(batch)` 得到浮点张量，应返回一个新的、有自己内存的张量：均值移到 0，再除以标准差。它也改动了传入的"
                "数据。请修好它。"
            ),
        ),
        given="def standardise(batch):\n    batch -= batch.mean()\n    batch /= batch.std()\n    return batch\n",
        inputs="batch = torch.randn(6) * 3 + 1",
        drive="result = standardise(batch)",
        properties=(
            Property(T(en="the result has mean 0 and standard deviation 1", zh="结果的均值为 0，标准差为 1"), as_solved("result")),
            Property(T(en="the argument is unchanged", zh="参数没有改变"), unchanged("batch")),
            Property(
                T(en="a slice handed over leaves its base unchanged", zh="传入切片时，原张量也不变"),
                unchanged("batch", inputs="batch = torch.randn(8)[:5]"),
            ),
            Property(T(en="the result shares no memory with the argument", zh="结果与参数不共享内存"), not_shared("result", "batch")),
        ),
        hints=(
            T(
                en="Two kinds of statements: one binds a name to a new tensor, the other writes into memory. Which are these?",
                zh="语句有两种：一种把名字绑定到新张量，一种写入内存。这里是哪一种？",
            ),
            T(
                en="`batch -= m` is `batch.sub_(m)`: it writes into the caller's memory.",
                zh="`batch -= m` 就是 `batch.sub_(m)`：写入调用者的内存。",
            ),
            T(
                en="Compute with `-` and `/`, which make new tensors, and return the last one.",
                zh="改用 `-` 和 `/`，它们产生新张量，最后返回结果。",
            ),
        ),
        right=(
            "def standardise(batch):\n    batch = batch - batch.mean()\n    return batch / batch.std()\n",
            "def standardise(batch):\n    batch = batch.clone()\n    batch -= batch.mean()\n    batch /= batch.std()\n    return batch\n",
            "def standardise(batch):\n    return torch.sub(batch, batch.mean()).div_(batch.std())\n",
        ),
        wrong=(
            "def standardise(batch):\n    batch = batch - batch.mean()\n    return batch\n",
            "def standardise(batch):\n    batch = batch.detach()\n    batch -= batch.mean()\n    batch /= batch.std()\n    return batch\n",
            "def standardise(batch):\n    return torch.tensor([-1.0, 0.0, 1.0])\n",
            "def standardise(batch):\n    # batch = batch - batch.mean()\n    return batch.clone()\n",
        ),
    ),
    Exercise(
        key="5.2",
        kind="predict",
        title=T(en="View, copy or the same?", zh="视图、副本还是同一个？"),
        task=T(
            en=(
                'Write `"view"`, `"copy"` or `"same"` (the very same object) for each expression **before** you run the cell. `t`'
                " is `torch.arange(6.0).reshape(2, 3)`."
            ),
            zh=(
                '在运行单元格**之前**，为每个表达式写上 `"view"`、`"copy"` 或 `"same"`（就是同一个对象）。`t` 是 '
                "`torch.arange(6.0).reshape(2, 3)`。"
            ),
        ),
        given=_table(dict.fromkeys(_SORTED, "?")),
        setup=(
            "def kind(expression):\n"
            "    t = torch.arange(6.0).reshape(2, 3)\n"
            "    result = eval(expression, {'t': t})\n"
            "    shared = result.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()\n"
            "    return 'same' if result is t else 'view' if shared else 'copy'\n"
        ),
        properties=tuple(Property(T(en=f"`{e}`", zh=f"`{e}`"), equal(f"belief[{e!r}]", f"kind({e!r})", tell=False)) for e in _SORTED),
        hints=(
            T(en="Does anything have to move at all?", zh="元素到底需不需要移动？"),
            T(
                en="If so: can one offset and one stride per dimension describe where the elements already lie?",
                zh="如果需要：用一个偏移和每维一个步长，能否描述元素现在的位置？",
            ),
            T(
                en="A list may choose anything (copy), an arithmetic operation always makes new numbers (copy), a transposed matrix cannot be "
                "read in one row of equal steps (copy).",
                zh="列表可以任意挑选(副本)，算术运算总会产生新的数(副本)，转置的矩阵无法以相等的步长读成一行(副本)。",
            ),
        ),
        right=(_table(_SORTED), "belief = {}\n" + "".join(f"belief[{e!r}] = {answer!r}\n" for e, answer in _SORTED.items())),
        wrong=(
            _table(dict.fromkeys(_SORTED, "view")),
            _table({**_SORTED, "t.contiguous()": "copy"}),
            _table({**_SORTED, "t.t().reshape(-1)": "view"}),
            "belief = {}\n",
        ),
    ),
    Exercise(
        key="5.3",
        kind="make-it-fail",
        title=T(en="An object that moves house", zh="搬家的对象"),
        task=T(
            en=(
                "A program recognises tensors by `id()`. Write `move(t)` for a float tensor `t` of any shape: afterwards the "
                "caller's `t` must be the same object with the same values, and on *other* memory. What the function returns does"
                " not count."
            ),
            zh=(
                "有个程序用 `id()` 识别张量。为任意形状的浮点张量 `t` 编写 `move(t)`：之后调用者的 `t` 必须仍是同一个对象、同样的"
                "数值，却位于*另一块*内存上。函数的返回值不计。"
            ),
        ),
        given="def move(t):\n    t = t.clone()\n",
        inputs="t = torch.randn(3)\nwho = id(t)",
        drive="move(t)",
        properties=(
            Property(T(en="the values are the same", zh="数值不变"), equal("t", "before['t'].value", seeds=(1, 2))),
            Property(
                T(en="the memory is another", zh="内存是另一块"),
                true(
                    "memory(t) != before['t'].memory",
                    T(en="t still uses the memory that it used before", zh="t 仍在原来的内存上"),
                ),
            ),
            Property(
                T(en="also for a tensor of two dimensions", zh="二维张量也一样"),
                true(
                    "t.shape == (2, 3) and memory(t) != before['t'].memory",
                    T(en="t has another shape now, or still uses the memory that it used before", zh="t 的形状变了，或仍在原来的内存上"),
                    inputs="t = torch.randn(2, 3)",
                ),
            ),
        ),
        hints=(
            T(
                en="`t = …` inside a function binds the function's own name; the caller's tensor notices nothing.",
                zh="函数内的 `t = …` 只绑定函数自己的名字，调用者的张量毫无察觉。",
            ),
            T(
                en="A tensor can be told to stand on another storage. One of the claims in section 5 does it.",
                zh="可以让张量换到另一块存储上。第 5 节的一个论断就这么做。",
            ),
            T(en="Assign to `t.data`.", zh="给 `t.data` 赋值。"),
        ),
        right=("def move(t):\n    t.data = t.data.clone()\n", "def move(t):\n    t.set_(t.clone())\n"),
        wrong=(
            "def move(t):\n    t.data = torch.ones(3)\n",
            "def move(t):\n    t += 0\n",
            "def move(t):\n    return t.clone()\n",
        ),
    ),
    Exercise(
        key="5.4",
        kind="write",
        title=T(en="Write without copying", zh="不复制地写入"),
        task=T(
            en=(
                "Complete `double_positive(t)` for a float tensor `t` so that it doubles the positive elements **in `t` itself**,"
                " for any shape and also when `t` is a transposed view."
            ),
            zh=("补全 `double_positive(t)`：对浮点张量 `t`，把**`t` 自身**的正元素加倍；任何形状都要适用，`t` 是转置视图时也要适用。"),
        ),
        given="def double_positive(t):\n    t[t > 0].mul_(2)\n",
        inputs="t = torch.randn(6)",
        drive="double_positive(t)",
        properties=(
            Property(T(en="a vector", zh="向量"), as_solved("t")),
            Property(T(en="a matrix", zh="矩阵"), as_solved("t", inputs="t = torch.randn(2, 4)")),
            Property(T(en="a transposed view", zh="转置的视图"), as_solved("t", inputs="t = torch.randn(3, 2).t()")),
            Property(T(en="all negative", zh="全部为负"), as_solved("t", inputs="t = -torch.rand(4)")),
            Property(T(en="in the tensor itself", zh="就在张量自身里"), in_place("t")),
        ),
        hints=(
            T(en="What does `t[t > 0]` return: a view, or a copy that nobody keeps?", zh="`t[t > 0]` 返回视图，还是没人留着的副本？"),
            T(en="A mask on the *left* of an assignment writes into `t`.", zh="掩码放在赋值号*左边*时会写入 `t`。"),
            T(
                en="`t[t > 0] *= 2` reads through the mask, multiplies, and writes back through it.",
                zh="`t[t > 0] *= 2` 通过掩码读出、相乘，再通过它写回。",
            ),
        ),
        right=(
            "def double_positive(t):\n    t[t > 0] *= 2\n",
            "def double_positive(t):\n    t.copy_(torch.where(t > 0, 2 * t, t))\n",
            "def double_positive(t):\n    t += t.clamp(min=0)\n",
        ),
        wrong=(
            "def double_positive(t):\n    t = torch.where(t > 0, 2 * t, t)\n",
            "def double_positive(t):\n    t.mul_(2)\n",
            "def double_positive(t):\n    t.view(-1)[t.view(-1) > 0] *= 2\n",
            "def double_positive(t):\n    pass\n",
        ),
    ),
)
