"""Chapter 5: who shares memory with whom."""

from __future__ import annotations

from typing import Any

from pitfall_lab.lessons.exercise import (
    Check,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    in_place,
    not_shared,
    runs,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_SORTED = {
    "t[:, ::2]": "view",
    "t[[0]]": "copy",
    "t.contiguous()": "same",
    "t.t().reshape(-1)": "copy",
    "t.unsqueeze(0)": "view",
    "t * 1": "copy",
}


_SIZES = "{} = torch.randn(*torch.randint(2, 5, (int(torch.randint(1, 5, ())),)).tolist()) * 3 + 1"
"""A tensor of one to four dimensions."""


def _cleared(*tensors: str) -> Check:
    return every(*(as_solved("t", inputs=f"t = {each}\nn = 5") for each in tensors))


def _in_proportion(**run: Any) -> Check:
    """Check that the result is ``photo - photo.min()`` times one number that is not 0, whichever."""
    return true(
        "result.shape == before['photo'].value.shape and torch.allclose(result * (before['photo'].value - "
        "before['photo'].value.min()).max(), result.flatten()[before['photo'].value.argmax()] * "
        "(before['photo'].value - before['photo'].value.min()), atol=1e-5) and bool(result.any())",
        T(en="these are other numbers", zh="数值不同"),
        **run,
    )


def _moved(inputs: str) -> Check:
    return true(
        "t.shape == before['t'].value.shape and t.dtype == before['t'].value.dtype and "
        "memory(t) != before['t'].memory and torch.equal(t, before['t'].value)",
        T(
            en="t has another shape, another type or other values now, or still uses the memory that it used before",
            zh="t 的形状、类型或数值变了，或仍在原来的内存上",
        ),
        inputs=inputs,
    )


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
                "`stretch(photo)` gets a float tensor with at least two different numbers and returns a new one, on "
                "memory of its own: shifted so that the smallest number becomes 0, then divided so that the largest "
                "becomes 1. It also changes the photo it was given. Repair it."
            ),
            zh=(
                "`stretch(photo)` 得到至少有两个不同的数的浮点张量，应返回一个新的、有自己内存的张量：先平移，使最小"
                "的数变为 0，再相除，使最大的数变为 1。它也改动了传入的照片。请修好它。"
            ),
        ),
        given="def stretch(photo):\n    photo -= photo.min()\n    photo /= photo.max()\n    return photo\n",
        inputs="photo = torch.randn(2, 3) * 3 + 1",
        drive="result = stretch(photo)",
        properties=(
            Property(
                T(
                    en="the result is the photo, shifted so that its smallest number is 0 and divided by one number",
                    zh="结果是平移后的照片（最小的数是 0），再除以一个数",
                ),
                every(_in_proportion(), _in_proportion(inputs=_SIZES.format("photo"))),
            ),
            Property(
                T(en="every number is right, the largest of them 1", zh="每个数都正确，最大的是 1"),
                every(as_solved("result"), as_solved("result", inputs=_SIZES.format("photo"))),
            ),
            Property(T(en="the argument is unchanged", zh="参数没有改变"), unchanged("photo")),
            Property(
                T(en="a slice handed over leaves its base unchanged", zh="传入切片时，原张量也不变"),
                unchanged("photo", inputs="photo = torch.randn(8)[:5]"),
            ),
            Property(
                T(en="the result shares no memory with the argument", zh="结果与参数不共享内存"),
                not_shared("result", "photo"),
            ),
        ),
        hint_for=(3, 3, 1, 2, 3),
        hints=(
            T(
                en="Two kinds of statements: one binds a name to a new tensor, the other writes into "
                "memory. Which are these?",
                zh="语句有两种：一种把名字绑定到新张量，一种写入内存。这里是哪一种？",
            ),
            T(
                en="`photo -= m` is `photo.sub_(m)`: it writes into the caller's memory.",
                zh="`photo -= m` 就是 `photo.sub_(m)`：写入调用者的内存。",
            ),
            T(
                en="Compute with `-` and `/`, which make new tensors, and return the last one. The largest number to "
                "divide by is that of the shifted photo.",
                zh="改用 `-` 和 `/`，它们产生新张量，最后返回结果。除数是平移后的照片中最大的数。",
            ),
        ),
        right=(
            "def stretch(photo):\n    photo = photo - photo.min()\n    return photo / photo.max()\n",
            (
                "def stretch(photo):\n"
                "    photo = photo.clone()\n"
                "    photo -= photo.min()\n"
                "    photo /= photo.max()\n"
                "    return photo\n"
            ),
            "def stretch(photo):\n    low, high = photo.aminmax()\n    return torch.sub(photo, low).div_(high - low)\n",
        ),
        wrong=(
            "def stretch(photo):\n    return photo / photo.max()\n",
            (
                "def stretch(photo):\n"
                "    photo = photo.detach()\n"
                "    photo -= photo.min()\n"
                "    photo /= photo.max()\n"
                "    return photo\n"
            ),
            "def stretch(photo):\n    return torch.tensor([0.0, 0.5, 1.0])\n",
            # the largest number of the photo that was given
            "def stretch(photo):\n    return (photo - photo.min()) / photo.max()\n",
            "def stretch(photo):\n    # photo = photo - photo.min()\n    return photo.clone()\n",
        ),
    ),
    Exercise(
        key="5.2",
        kind="predict",
        title=T(en="View, copy or the same?", zh="视图、副本还是同一个？"),
        task=T(
            en=(
                'Write `"view"`, `"copy"` or `"same"` (the very same object) for each expression **before** you '
                "run the cell. `t` is `torch.arange(6.0).reshape(2, 3)`."
            ),
            zh=(
                '在运行单元格**之前**，为每个表达式写上 `"view"`、`"copy"` 或 `"same"`（就是同一个对象）。`t` 是 '
                "`torch.arange(6.0).reshape(2, 3)`。"
            ),
        ),
        given=_table(dict.fromkeys(_SORTED, "?")),
        inputs=(
            "def kind(expression):\n"
            "    t = torch.arange(6.0).reshape(2, 3)\n"
            "    result = eval(expression, {'t': t})\n"
            "    shared = result.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()\n"
            "    return 'same' if result is t else 'view' if shared else 'copy'\n"
        ),
        properties=tuple(
            Property(T(en=f"`{e}`", zh=f"`{e}`"), equal(f"belief[{e!r}]", f"kind({e!r})", tell=False)) for e in _SORTED
        ),
        hint_for=(2, 3, 1, 3, 2, 3),
        hints=(
            T(en="Does anything have to move at all?", zh="元素到底需不需要移动？"),
            T(
                en="For each expression that is not `t` itself: can one offset and one stride per dimension describe "
                "where the elements already lie?",
                zh="对每个不是 `t` 本身的表达式：用一个偏移和每维一个步长，能否描述元素现在的位置？",
            ),
            T(
                en="A list may choose anything (copy), an arithmetic operation always makes new numbers (copy), a "
                "transposed matrix cannot be read in one row of equal steps (copy).",
                zh="列表可以任意挑选(副本)，算术运算总会产生新的数(副本)，转置的矩阵无法以相等的步长读成一行(副本)。",
            ),
        ),
        right=(
            _table(_SORTED),
            "belief = {}\n" + "".join(f"belief[{e!r}] = {answer!r}\n" for e, answer in _SORTED.items()),
        ),
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
        title=T(en="One object, other memory", zh="同一个对象，另一块内存"),
        task=T(
            en=(
                "An optimizer holds its weights as objects. So when `model.to(…)` gives a weight other memory, "
                "the weight has to stay the same object. Write `move(t)`, which does this for a float tensor `t` "
                "of any shape: afterwards the caller's `t` must be the same object, with the same values and "
                "of the same type, and on *other* memory. What the function returns does not count. (Do not make it a "
                "habit: autograd does not notice such a move.)"
            ),
            zh=(
                "优化器以对象的形式持有权重。所以当 `model.to(…)` 让权重换到另一块内存时，权重必须仍是同一个对象。编"
                "写 `move(t)`，对任意形状的浮点张量 `t` 做同样的事：之后调用者的 `t` 必须仍是同一个对象，数值和类型"
                "不变，却位于*另一块*内存上。函数的返回值不计。（不要养成习惯：自动求导察觉不到这样的搬动。）"
            ),
        ),
        given="def move(t):\n    t = t.clone()\n",
        inputs="t = torch.randn(3)\nwho = id(t)",
        drive="move(t)",
        properties=(
            Property(
                T(en="the values and their type are the same", zh="数值及其类型不变"),
                every(
                    equal("t", "before['t'].value", seeds=(0, 1)),
                    true(
                        "t.dtype == before['t'].value.dtype",
                        T(en="the numbers in t are of another type now", zh="t 中的数换了类型"),
                    ),
                ),
            ),
            Property(
                T(en="`t` is on other memory", zh="`t` 在另一块内存上"),
                every(
                    runs(),
                    true(
                        "memory(t) != before['t'].memory",
                        T(en="t still uses the memory that it used before", zh="t 仍在原来的内存上"),
                    ),
                ),
            ),
            Property(
                T(en="a tensor of any number of dimensions comes out right too", zh="任意维数的张量结果也正确"),
                every(_moved("t = torch.randn(())"), _moved("t = torch.randn(2, 3)"), _moved(_SIZES.format("t"))),
            ),
        ),
        hints=(
            T(
                en="`t = …` inside a function binds the function's own name, and an in-place method writes into the "
                "memory that `t` has. Which assignment gives the same object another memory?",
                zh="函数内的 `t = …` 只绑定函数自己的名字，就地方法则写入 `t` 已有的内存。"
                "哪种赋值让同一个对象换到另一块内存？",
            ),
            T(
                en="A tensor can be given another storage: not its name, an attribute of it is assigned.",
                zh="可以让张量换到另一块存储上：赋值的不是名字，而是它的一个属性。",
            ),
            T(en="Assign to `t.data`.", zh="给 `t.data` 赋值。"),
        ),
        right=("def move(t):\n    t.data = t.data.clone()\n", "def move(t):\n    t.set_(t.clone())\n"),
        wrong=(
            "def move(t):\n    t.data = torch.ones(3)\n",
            "def move(t):\n    t.data = t.data.double()\n",
            "def move(t):\n    t += 0\n",
            "def move(t):\n    t.append(1)\n",
            "def move(t):\n    return t.clone()\n",
        ),
    ),
    Exercise(
        key="5.4",
        kind="repair",
        title=T(en="Write through a shape", zh="隔着形状写入"),
        task=T(
            en=(
                "`clear_first(t, n)` is to set the first `n` elements of a float tensor `t` to 0, read row by row as "
                "`t.flatten()` reads them, **in `t` itself**; `n` is a number from 0 to the number of elements. For a "
                "contiguous tensor it does. Repair it: it must also work for a transposed view and for a slice with "
                "steps, and the other elements stay, also those of the tensor that `t` is a slice of."
            ),
            zh=(
                "`clear_first(t, n)` 应把浮点张量 `t` 的前 `n` 个元素设为 0，顺序与 `t.flatten()` 相同（逐行读），并且"
                "就在**`t` 自身**里；`n` 从 0 到元素个数。对连续的张量它做到了。请修好它：对转置视图和带步长的切片也要"
                "适用，其他元素不变，包括被切片的那个张量的其他元素。"
            ),
        ),
        given="def clear_first(t, n):\n    t.reshape(-1)[:n] = 0\n",
        inputs="t = torch.randn(6)\nn = 4",
        drive="clear_first(t, n)",
        properties=(
            Property(T(en="a vector comes out right", zh="向量的结果正确"), as_solved("t")),
            Property(
                T(en="a matrix comes out right", zh="矩阵的结果正确"),
                as_solved("t", inputs="t = torch.randn(3, 4)\nn = 5"),
            ),
            Property(
                T(en="a transposed view comes out right", zh="转置视图的结果正确"),
                _cleared("torch.randn(4, 3).t()", "torch.randn(2, 3, 4).transpose(0, 2)"),
            ),
            Property(
                T(
                    en="a slice with steps comes out right, and the elements between stay",
                    zh="带步长的切片结果正确，其间的元素不变",
                ),
                # seven columns: with six the steps of a row lead on into the next row, and `reshape` gives a view
                as_solved("t", "whole", inputs="whole = torch.randn(3, 7)\nt = whole[:, 1::2]\nn = 4"),
            ),
            Property(
                T(en="with n = 0, no element changes", zh="n = 0 时没有元素改变"),
                as_solved("t", inputs="t = torch.randn(2, 3).t()\nn = 0"),
            ),
            Property(
                T(en="with n the number of elements, all become 0", zh="n 等于元素个数时，全部变为 0"),
                as_solved("t", inputs="t = torch.randn(2, 3).t()\nn = 6"),
            ),
            Property(
                T(
                    en="it is written in place: the same tensor on the same memory",
                    zh="就地写入：仍是同一个张量、同一块内存",
                ),
                in_place("t", inputs="t = torch.randn(4, 3).t()\nn = 5"),
            ),
        ),
        hint_for=(0, 0, 1, 2, 0, 0, 3),
        hints=(
            T(
                en="For which strides is `t.reshape(-1)` a view, and where does the 0 go for the others?",
                zh="对怎样的步长 `t.reshape(-1)` 是视图？对其他步长，0 写到了哪里？",
            ),
            T(
                en="Let the flat form be a copy on purpose. How do its numbers come back into the memory of `t`?",
                zh="让展平后的形式有意成为副本。它的数怎样回到 `t` 的内存里？",
            ),
            T(
                en="`t.copy_(…)` writes into `t`; so does a mask on the left of `=`, for example "
                "`torch.arange(t.numel()).view(t.shape) < n`.",
                zh="`t.copy_(…)` 写入 `t`；`=` 左边的掩码也一样，例如 `torch.arange(t.numel()).view(t.shape) < n`。",
            ),
        ),
        right=(
            "def clear_first(t, n):\n"
            "    flat = t.flatten().clone()\n"
            "    flat[:n] = 0\n"
            "    t.copy_(flat.view(t.shape))\n",
            "def clear_first(t, n):\n    t[torch.arange(t.numel()).view(t.shape) < n] = 0\n",
            "def clear_first(t, n):\n    t.put_(torch.arange(n), torch.zeros(n))\n",
            "def clear_first(t, n):\n    t.mul_((torch.arange(t.numel()) >= n).view(t.shape))\n",
        ),
        wrong=(
            "def clear_first(t, n):\n    t.view(-1)[:n] = 0\n",
            "def clear_first(t, n):\n    t[:n] = 0\n",
            "def clear_first(t, n):\n    t = t.contiguous()\n    t.view(-1)[:n] = 0\n",
            "def clear_first(t, n):\n    torch.as_strided(t, (n,), (1,), t.storage_offset()).zero_()\n",
            (
                "def clear_first(t, n):\n"
                "    flat = t.flatten().clone()\n"
                "    flat[:n] = 0\n"
                "    t.data = flat.view(t.shape)\n"
            ),
            "def clear_first(t, n):\n    flat = t.flatten().clone()\n    flat[:n] = 0\n    return flat.view(t.shape)\n",
            # a slice with steps is left to `reshape`
            "def clear_first(t, n):\n    flat = t.reshape(-1)\n    flat[:n] = 0\n"
            "    if list(t.stride()) != sorted(t.stride(), reverse=True):\n        t.copy_(flat.view(t.shape))\n",
        ),
    ),
)
