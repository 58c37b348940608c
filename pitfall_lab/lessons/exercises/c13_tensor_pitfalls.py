"""Chapter 13: memory that stays, shapes that fit by accident, logs that hold a graph."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Attempt,
    Check,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    finds_nothing,
    runs,
    shared,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_KEPT = ("table[0]", "table[0].clone()", "table.t()[:2]", "table.sum(dim=1)")
_BYTES = (20000, 200, 20000, 400)

_TABLE = "table = torch.zeros(100, 50)\nkept = {text: eval(text) for text in " + repr(_KEPT) + "}\ndel table"


def _held(*values: object) -> str:
    rows = "".join(f"    {text!r}: {value},\n".replace("'", '"') for text, value in zip(_KEPT, values, strict=True))
    return "held = {\n" + rows + "}\n"


_STEP = (
    "def train(net, optimizer, batches):\n"
    "    history, total = [], 0.0\n"
    "    for x, y in batches:\n"
    "        loss = F.mse_loss(net(x), y)\n"
    "        optimizer.zero_grad()\n"
    "        loss.backward()\n"
    "        optimizer.step()\n"
)
_MEAN = "    return history, total / len(history)\n"

_ROWS = "state = torch.tensor([0.5, -1.0, 2.0, 4.0])\ngiven = state.clone()"
_WRITTEN = "rows = start(state, {batch})\nrows[0] = 7.0"


def _alone(expression: str, reason: T, *, batch: int) -> Check:
    """Check an expression after a write into the first row of ``start(state, batch)``."""
    return true(expression, reason, inputs=_ROWS, drive=_WRITTEN.format(batch=batch))


def _without_data(attempt: Attempt) -> bool | T:
    """True if the watched run reads no `.data`; else the reason."""
    used = any(event.op == "torch.Tensor.data.__get__" for event in attempt.trace().events)
    return T(en="`.data` is used", zh="使用了 `.data`") if used else True


EXERCISES = (
    Exercise(
        key="13.1",
        kind="predict",
        title=T(en="Bytes that stay", zh="留下的字节"),
        task=T(
            en=(
                "`table = torch.zeros(100, 50)`; then one of the expressions is kept, and `del table`. How many bytes "
                "stay alive? Write numbers, **before** you run anything."
            ),
            zh=(
                "`table = torch.zeros(100, 50)`；保留其中一个表达式的结果，然后 `del table`。还有多少字节存活？在运行"
                "任何代码**之前**写出数字。"
            ),
        ),
        given=_held(None, None, None, None),
        inputs=_TABLE,
        properties=tuple(
            Property(
                T(en=f"the bytes that {text} holds", zh=f"{text} 占用的字节数"),
                equal(f"held[{text!r}]", f"kept[{text!r}].untyped_storage().nbytes()", tell=False, seeds=(0,)),
            )
            for text in _KEPT
        ),
        hint_for=(2, 3, 2, 3),
        hints=(
            T(
                en="Which of the four make memory of their own, and which are views?",
                zh="四个中哪些有自己的内存，哪些是视图？",
            ),
            T(
                en="A float32 takes 4 bytes; a view holds the whole storage of its base.",
                zh="一个 float32 占 4 字节；视图持有其基张量的整个存储。",
            ),
            T(
                en="Indexing with a number and `.t()` are views; `clone` and `sum` are not. `sum(dim=1)` leaves one "
                "number for each row.",
                zh="用数字索引和 `.t()` 是视图；`clone` 与 `sum` 不是。`sum(dim=1)` 每行留下一个数。",
            ),
        ),
        right=(_held(*_BYTES), _held("100 * 50 * 4", "50 * 4", "100 * 50 * 4", "100 * 4")),
        wrong=(_held(200, 200, 800, 400), _held(20000, 200, 20000, 200), _held(20000, 20000, 20000, 20000)),
    ),
    Exercise(
        key="13.2",
        kind="repair",
        title=T(en="A log that does not grow", zh="不会增长的日志"),
        task=T(
            en=(
                "`train` keeps its losses with everything that hangs on them. `batches` is a list of pairs (x, y). "
                "Repair it: the same numbers, the same training, no graph left behind in what it returns, and nothing "
                "that a rule of pitfall_lab finds. Do not use `.data`: it hides writes from the version counter."
            ),
            zh=(
                "`train` 连同挂在上面的一切一起保存损失。`batches` 是 (x, y) 对的列表。请修好它：数值相同、训练相同，"
                "返回的内容中不留下计算图，pitfall_lab 的规则也不再发现问题。不要使用 `.data`："
                "它使写入不计入版本计数器。"
            ),
        ),
        given=_STEP + "        history.append(loss)\n        total = total + loss\n" + _MEAN,
        inputs=(
            "net = nn.Linear(3, 1)\n"
            "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
            "batches = [(torch.randn(n, 3), torch.randn(n, 1)) for n in torch.randint(2, 9, (int(torch.randint(3, "
            "9, ())),)).tolist()]"
        ),
        drive="history, mean = train(net, optimizer, batches)\n"
        "numbers = [torch.as_tensor(entry).item() for entry in history]\n"
        "average = torch.as_tensor(mean).item()",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the numbers are right", zh="数值正确"), as_solved("numbers", "average")),
            Property(T(en="the training is the same", zh="训练相同"), as_solved("net.weight", "net.bias")),
            Property(
                T(en="no graph is left behind, and `.data` is not used", zh="不留下计算图，也不使用 `.data`"),
                every(
                    true(
                        "not any(getattr(entry, 'requires_grad', False) for entry in [*history, mean])",
                        T(
                            en="an entry of the history, or the mean, still has its graph",
                            zh="历史中的某一项或平均值仍带着计算图",
                        ),
                    ),
                    _without_data,
                ),
            ),
            Property(T(en="no rule finds anything", zh="没有规则发现问题"), finds_nothing()),
        ),
        hint_for=(0, 3, 0, 2, 2),
        hints=(
            T(en="What does `history[0].grad_fn` say?", zh="`history[0].grad_fn` 是什么？"),
            T(en="Two lines keep something: the list and the sum.", zh="有两行在保存东西：列表与求和。"),
            T(
                en="`loss.item()` is a number; `loss.detach()` a tensor without a graph.",
                zh="`loss.item()` 是数值；`loss.detach()` 是没有图的张量。",
            ),
        ),
        right=(
            _STEP + "        history.append(loss.item())\n        total += loss.item()\n" + _MEAN,
            _STEP + "        history.append(loss.detach())\n        total = total + loss.detach()\n" + _MEAN,
        ),
        wrong=(
            _STEP + "        history.append(loss.item())\n        total = total + loss\n" + _MEAN,
            _STEP + "        history.append(loss.clone())\n        total = total + loss.clone()\n" + _MEAN,
            _STEP + "        history.append(loss.data)\n        total = total + loss.data\n" + _MEAN,
            "def train(net, optimizer, batches):\n    return [0.0], 0.0\n",
        ),
    ),
    Exercise(
        key="13.3",
        kind="find-and-fix",
        title=T(en="A row for each sample", zh="每个样本一行"),
        task=T(
            en=(
                "`start(state, batch)` gets the first state of a recurrent layer, of shape (size,), and returns a "
                "tensor of shape (batch, size) with `state` in each row. Training code then writes into single rows: "
                "that must change neither the other rows nor `state`, for a batch of one as well. A gradient that "
                "arrives at the rows must still reach `state`. As given, a write into one row is a write into all of "
                "them."
            ),
            zh=(
                "`start(state, batch)` 得到循环层的初始状态，形状为 (size,)，返回形状为 (batch, size) 的张量，每一行都"
                "是 `state`。训练代码随后写入单独的行：这既不得改变其他行，也不得改变 `state`，批大小为 1 时也一样。"
                "到达各行的梯度仍须到达 `state`。现在写入一行就等于写入所有行。"
            ),
        ),
        given="def start(state, batch):\n    return state.expand(batch, len(state))\n",
        inputs=_ROWS,
        drive="rows = start(state, 3)",
        properties=(
            Property(T(en="each row is equal to the state", zh="每一行都等于该状态"), as_solved("rows")),
            Property(
                T(en="a write into one row leaves the others as they are", zh="写入一行，其他行保持不变"),
                _alone(
                    "torch.equal(rows[1:], given.repeat(2, 1)) and rows[0].tolist() == [7.0] * 4",
                    T(en="the other rows show it as well", zh="其他行也随之改变"),
                    batch=3,
                ),
            ),
            Property(
                T(en="and leaves the state as it is", zh="该状态也保持不变"),
                _alone("torch.equal(state, given)", T(en="the state was changed", zh="该状态被改动了"), batch=3),
            ),
            Property(
                T(en="also where the batch is one sample", zh="批中只有一个样本时也是如此"),
                _alone(
                    "torch.equal(state, given) and rows.tolist() == [[7.0] * 4]",
                    T(en="the state was changed", zh="该状态被改动了"),
                    batch=1,
                ),
            ),
            Property(
                T(en="a gradient of the rows reaches the state", zh="各行的梯度能到达该状态"),
                equal(
                    "state.grad.tolist()",
                    "[5.0] * 4",
                    inputs="state = torch.randn(4, requires_grad=True)",
                    drive="(start(state, 2) * torch.tensor([[2.0], [3.0]])).sum().backward()",
                ),
            ),
        ),
        hint_for=(0, 1, 1, 2, 3),
        hints=(
            T(
                en="How many cells does the memory of the result have? `result.stride()` tells.",
                zh="结果的内存里有多少个单元？`result.stride()` 能说明。",
            ),
            T(
                en="`contiguous()` and `reshape()` copy only where they have to. A batch of one needs no stretching.",
                zh="`contiguous()` 和 `reshape()` 只在必要时才复制。批大小为 1 时什么也不需要拉伸。",
            ),
            T(
                en="`detach()`, `tolist()` and `torch.tensor()` lead no gradient back; `clone()` and `repeat()` do.",
                zh="`detach()`、`tolist()` 和 `torch.tensor()` 不传回梯度；`clone()` 和 `repeat()` 会。",
            ),
        ),
        right=(
            "def start(state, batch):\n    return state.expand(batch, len(state)).clone()\n",
            "def start(state, batch):\n    return state.repeat(batch, 1)\n",
            "def start(state, batch):\n    return torch.stack([state] * batch)\n",
            "def start(state, batch):\n    return state * torch.ones(batch, 1)\n",
            "def start(state, batch):\n    return state[None].repeat_interleave(batch, dim=0)\n",
        ),
        wrong=(
            # copied before it is stretched: the rows still share their cells
            "def start(state, batch):\n    return state.clone().expand(batch, len(state))\n",
            # a copy only where there is more than one row
            "def start(state, batch):\n    return state.expand(batch, len(state)).contiguous()\n",
            # no gradient comes back
            "def start(state, batch):\n    return state.detach().repeat(batch, 1)\n",
            "def start(state, batch):\n    return torch.tensor([state.tolist()] * batch)\n",
            # the numbers in another order
            "def start(state, batch):\n    return state.repeat(batch).view(len(state), batch).t()\n",
            # a view of one row, stretched by another name
            "def start(state, batch):\n    return torch.broadcast_to(state, (batch, len(state)))\n",
        ),
    ),
    Exercise(
        key="13.4",
        kind="make-it-fail",
        title=T(en="A small tensor with a large memory", zh="占用大内存的小张量"),
        task=T(
            en=(
                '"A tensor of two numbers holds eight bytes." Complete `counterexample`: it returns one '
                "or two elements of `block`, as a tensor, that keep all of the block's memory alive, and "
                "leaves `block` as it is."
            ),
            zh=(
                "“两个数的张量只占八个字节。”补全 `counterexample`：以张量返回 `block` 的一个或两个元素，使该块的全部"
                "内存存活，并保持 `block` 不变。"
            ),
        ),
        given="def counterexample(block):\n    return block[:2].clone()\n",
        inputs="block = torch.randn(10000)",
        drive="small = counterexample(block)",
        properties=(
            Property(
                T(en="it has one or two elements", zh="有一个或两个元素"),
                true("0 < small.numel() <= 2", T(en="it has more, or none", zh="多于两个，或一个也没有")),
            ),
            Property(T(en="it is made of the block's memory", zh="使用的是该块的内存"), shared("small", "block")),
            Property(
                T(en="it holds all 40000 bytes", zh="占住全部 40000 字节"),
                true(
                    "not alive.expired()",
                    T(en="it does not keep all of the block's memory alive", zh="它没有使该块的全部内存存活"),
                    # The block is made in the drive: what the inputs make is kept, for `unchanged`. Its memory is
                    # watched, and not the tensor: a tensor over a NumPy array made of the block keeps the memory alone.
                    inputs="from torch.multiprocessing.reductions import StorageWeakRef",
                    drive=(
                        "block = torch.randn(10000)\n"
                        "alive = StorageWeakRef(block.untyped_storage())\n"
                        "small = counterexample(block)\n"
                        "del block"
                    ),
                ),
            ),
            Property(T(en="the block is unchanged", zh="该块没有改变"), unchanged("block")),
        ),
        hints=(
            T(
                en="Which operation decides how large the storage of `small` is?",
                zh="这里是哪个操作决定了 `small` 的存储大小？",
            ),
            T(
                en="A slice is a view, and a view holds the storage of its base.",
                zh="切片是视图，而视图持有其基张量的存储。",
            ),
            T(en="Leave out the copy.", zh="去掉复制。"),
        ),
        right=(
            "def counterexample(block):\n    return block[:2]\n",
            "def counterexample(block):\n    return block.view(100, 100)[7, :2].detach()\n",
            "def counterexample(block):\n    return torch.from_numpy(block.numpy()[:2])\n",
        ),
        wrong=(
            "def counterexample(block):\n    return block\n",
            "def counterexample(block):\n    return torch.zeros(10000)[:2]\n",
            "def counterexample(block):\n    return block[[0, 1]]\n",
            "def counterexample(block):\n    return torch.from_numpy(block.numpy()[:2].copy())\n",
            "def counterexample(block):\n    return torch.zeros(2)\n",
            "def counterexample(block):\n    return block[:2].zero_()\n",
        ),
    ),
)
