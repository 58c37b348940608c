"""Chapter 12: saved here, changed there, needed here."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    UNANSWERED,
    Attempt,
    Exercise,
    Property,
    as_solved,
    chosen,
    equal,
    fails,
    finds_nothing,
    gradient_as_solved,
    runs,
    surprises,
    true,
    unanswered,
    unchanged,
)
from pitfall_lab.trace import T

_MESSAGE = """\
t = torch.rand(16, 4, requires_grad=True) * 1
saved = t.exp_()                        # version 1, and exp saves its result
saved.add_(1)
saved.add_(1)
try:
    saved.sum().backward()
except RuntimeError as error:
    message = str(error)


def answered():
    shape = reading["shape"]
    return "?" if shape is None else list(shape) if isinstance(shape, (list, tuple)) else shape
"""

_LOGGED = '''\
log = []


class Logged(nn.Sequential):
    """A discriminator that notes each forward."""

    def forward(self, points):
        log.append("d forward")
        return super().forward(points)


class LoggedSGD(torch.optim.SGD):
    """An optimizer of which each step with gradients is noted."""

    def step(self, closure=None):
        if any(p.grad is not None for group in self.param_groups for p in group["params"]):
            log.append("d step" if self is d_step else "g step" if self is g_step else "another step")
        return super().step(closure)
'''

_NETWORKS = """\
g, d = nn.Linear(2, 3), Logged(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
g_step, d_step = LoggedSGD(g.parameters(), lr=0.1), LoggedSGD(d.parameters(), lr=0.1)
noise, real = torch.randn(5, 2), torch.randn(5, 3)
"""

_BEGIN = (
    "def losses(g, d, g_step, d_step, noise, real):\n"
    "    fake = g(noise)\n"
    "    d_loss = -d(real).mean() + d(fake.detach()).mean()\n"
)


def _one_write(attempt: Attempt) -> bool | T:
    failure = attempt.trace().outcome.failure
    if failure is None or failure.kind != "saved-tensor-modified" or failure.found is None or failure.expected is None:
        return T(en="no saved tensor was written", zh="没有写入任何保存的张量")
    writes = failure.found - failure.expected
    return writes == 1 or T(en=f"it was written {writes} times", zh=f"它被写入了 {writes} 次")


def _named_in_the_message(attempt: Attempt) -> bool | T:
    """Whether the answer is the operation in the message, as ``exp``, ``torch.exp``, ``exp_``, ``ExpBackward0`` or
    ``output 0 of Exp``.
    """
    said = attempt.value("reading['operation']")
    if unanswered(said, attempt.exercise):
        return UNANSWERED
    name = said.strip(" .,").lower() if isinstance(said, str) else ""
    name = (
        name.removeprefix("output 0 of ")
        .removeprefix("torch.")
        .removesuffix("()")
        .removesuffix("_")
        .removesuffix("backward0")
        .capitalize()
    )
    found = f"output 0 of {name}," in attempt.solution.value("message")
    return found or T(en="the message names another one", zh="错误信息里写的是另一个操作")


def _reading(shape: str, operation: str, writes: object, blame: str, saved: str = "the result of exp") -> str:
    rows = (
        f'    "shape": {shape},\n'
        f'    "operation": "{operation}",\n'
        f'    "writes": {writes},\n'
        f'    "saved": "{saved}",\n'
        f'    "blame": "{blame}",\n'
    )
    return f"reading = {{\n{rows}}}\n"


_BETWEEN = "a line between exp and backward"

EXERCISES = (
    Exercise(
        key="12.1",
        kind="predict",
        title=T(en="Read the message", zh="读懂错误信息"),
        task=T(
            en=(
                "A model stopped with this message. Fill in what you can read from it.\n"
                "\n"
                "> one of the variables needed for gradient computation has been modified by an inplace operation: "
                "[torch.FloatTensor [16, 4]], which is output 0 of Exp, is at version 3; expected version 1 instead.\n"
                "\n"
                "Three lines of the model use this tensor: `h = t.exp_()`, a line that is not shown, and "
                "`h.sum().backward()`.\n"
                "\n"
                "`shape` is that of the tensor and `operation` the one that the message names, `writes` is how far "
                "the counter moved between saving and backward. The message does not say which tensor of that line "
                'was saved: `saved` is `"the result of exp"` or `"the input of exp"`. `blame` is one of `"the '
                'line that calls exp"`, `"a line between exp and backward"`, `"the line that calls backward"`.'
            ),
            zh=(
                "模型因下面的信息而停止。填写你能从中读出的内容。\n"
                "\n"
                "> one of the variables needed for gradient computation has been modified by an inplace operation: "
                "[torch.FloatTensor [16, 4]], which is output 0 of Exp, is at version 3; expected version 1 instead.\n"
                "\n"
                "模型中有三行用到这个张量：`h = t.exp_()`、没有给出的一行，以及 `h.sum().backward()`。\n"
                "\n"
                "`shape` 是张量的形状，`operation` 是信息中写出的操作，`writes` 是保存与 backward 之间计数器增加了多"
                '少。信息没有说那一行保存的是哪个张量：`saved` 是 `"the result of exp"` 或 `"the input of exp"`。'
                '`blame` 是以下之一：`"the line that calls exp"`、`"a line between exp and backward"`、`"the '
                'line that calls backward"`。'
            ),
        ),
        given='reading = {"shape": None, "operation": None, "writes": None, "saved": None, "blame": None}\n',
        inputs=_MESSAGE,
        properties=(
            Property(
                T(en="the shape", zh="形状"),
                equal("answered()", "list(saved.shape)", tell=False),
            ),
            Property(
                T(en="the operation that the message names", zh="信息中写出的操作"),
                _named_in_the_message,
            ),
            Property(
                T(en="how far the counter moved", zh="计数器增加了多少"),
                equal("reading['writes']", "saved._version - 1", tell=False),
            ),
            Property(
                T(en="what exp saved", zh="exp 保存了什么"),
                chosen(
                    "reading['saved']",
                    "the result of exp",
                    T(en="ask the derivative: what does exp need for it?", zh="看导数：exp 求导需要什么？"),
                ),
            ),
            Property(
                T(en="where to look", zh="该去哪里找"),
                chosen("reading['blame']", _BETWEEN, T(en="that is not the line to change", zh="要改的不是这一行")),
            ),
        ),
        hint_for=(1, 1, 2, 0, 3),
        hints=(
            T(
                en="The brackets hold the type and the shape; “output 0 of …” names the operation.",
                zh="方括号里是类型和形状；“output 0 of …”给出操作名。",
            ),
            T(
                en="There are two versions in the message: the one that was saved, and the one that backward found.",
                zh="信息里有两个版本：保存时的，和 backward 发现的。",
            ),
            T(
                en="exp did nothing wrong, and backward only noticed: the writes are between the two. 3 - 1 of them.",
                zh="exp 没有错，backward 只是发现者：写入发生在两者之间，共 3 - 1 次。",
            ),
        ),
        right=(
            _reading("(16, 4)", "exp", 2, _BETWEEN),
            _reading("[16, 4]", "Exp", "3 - 1", _BETWEEN),
            _reading("torch.Size([16, 4])", "torch.exp", 2, _BETWEEN),
            _reading("(16, 4)", "ExpBackward0", 2, _BETWEEN),
            _reading("(16, 4)", "exp_", 2, _BETWEEN),
            _reading('"[16, 4]"', "output 0 of Exp", 2, f"{_BETWEEN}."),
        ),
        wrong=(
            _reading("(16, 4)", "exp", 3, _BETWEEN),
            _reading("(16, 4)", "exp", 2, "the line that calls backward"),
            _reading("(4, 16)", "mul", 2, _BETWEEN),
            _reading("(16, 4)", "exp", 2, "the line that calls exp"),
            _reading("(16, 4)", "", 2, _BETWEEN),
            _reading("(16, 4)", "exp", 2, _BETWEEN, saved="the input of exp"),
        ),
    ),
    Exercise(
        key="12.2",
        kind="repair",
        title=T(en="Attention that masks in place", zh="就地掩码的注意力"),
        task=T(
            en=(
                "This attention block masks its scores in place. `query` has shape (M, d), `key` and `value` (N, d), "
                "and `mask` is a vector (N,) of zeros and ones, one for each key. Repair the block: the output must "
                "stay the same, and backward must give the right gradients. `mask` stays as it is, and no rule of "
                "pitfall_lab may find a pitfall in it any more."
            ),
            zh=(
                "这个注意力模块就地掩码。`query` 的形状是 (M, d)，`key` 和 `value` 是 (N, d)，`mask` 是由 0 和 1 组成"
                "的向量 (N,)，每个 key 对应一个。请修好它：输出不变，且 backward 给出正确的梯度。`mask` 保持不变，并"
                "且 pitfall_lab 的规则不再发现陷阱。"
            ),
        ),
        given=(
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n"
            "    scores *= mask\n    return scores @ value\n"
        ),
        inputs=(
            "m, n, d = (int(torch.randint(*ends, ())) for ends in ((3, 5), (5, 8), (2, 4)))\n"
            "query, key = torch.randn(m, d, requires_grad=True), torch.randn(n, d, requires_grad=True)\n"
            "value = torch.randn(n, d, requires_grad=True)\n"
            "mask = torch.cat([torch.tensor([1.0, 0.0, 0.0]), torch.randint(2, (n - 3,)).float()])[torch.randperm(n)]"
        ),
        drive="out = attend(query, key, value, mask)\nout.square().sum().backward()",
        properties=(
            Property(T(en="backward runs", zh="backward 能运行"), runs()),
            Property(T(en="the output is right", zh="输出正确"), as_solved("out")),
            Property(T(en="the gradients are right", zh="梯度正确"), gradient_as_solved("query", "key", "value")),
            Property(T(en="the mask is unchanged", zh="掩码不变"), unchanged("mask")),
            Property(T(en="no rule finds anything", zh="没有规则发现问题"), finds_nothing()),
        ),
        hints=(
            T(
                en="softmax is one of the operations that save their *result*.",
                zh="softmax 是保存自身*结果*的操作之一。",
            ),
            T(
                en="Which two characters make the third line write into that result?",
                zh="第三行的哪两个字符使它写入了那个结果？",
            ),
            T(en="`scores = scores * mask` makes a new tensor.", zh="`scores = scores * mask` 产生新张量。"),
        ),
        right=(
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n"
            "    scores = scores * mask\n    return scores @ value\n",
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1).clone()\n"
            "    scores *= mask\n    return scores @ value\n",
            (
                "def attend(query, key, value, mask):\n"
                "    weights = (query @ key.t()).exp()\n"
                "    return weights / weights.sum(dim=1, keepdim=True) @ (mask[:, None] * value)\n"
            ),
        ),
        wrong=(
            "def attend(query, key, value, mask):\n"
            "    scores = torch.softmax(query @ key.t(), dim=1)\n"
            "    return scores @ value\n",
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n"
            "    scores.data *= mask\n    return scores @ value\n",
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1).detach()\n"
            "    scores *= mask\n    return scores @ value\n",
            "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n"
            "    mask *= scores\n    return mask @ value\n",
        ),
    ),
    Exercise(
        key="12.3",
        kind="repair",
        title=T(en="Put it in order", zh="排好顺序"),
        task=T(
            en=(
                "`losses` trains a generator `g` and a discriminator `d` on one batch; `g_step` and `d_step` are "
                "their optimizers, and all gradients are empty when it is called. It raises. Reorder it so that "
                "both networks are updated **exactly once**, and the generator's loss is computed with the "
                "*updated* discriminator."
            ),
            zh=(
                "`losses` 在一批数据上训练生成器 `g` 和判别器 `d`；`g_step` 和 `d_step` 是它们的优化器，调用时所有梯度"
                "都是空的。它会报错。请调整顺序：两个网络各更新**恰好一次**，且生成器的损失由*更新后的*判别器算出。"
            ),
        ),
        given=_BEGIN
        + (
            "    g_loss = -d(fake).mean()\n"
            "    d_loss.backward()\n"
            "    d_step.step()\n"
            "    g_loss.backward()\n"
            "    g_step.step()\n"
        ),
        inputs=_LOGGED + _NETWORKS,
        drive="losses(g, d, g_step, d_step, noise, real)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(
                T(en="each network is updated exactly once", zh="每个网络恰好更新一次"),
                true(
                    "sorted(entry for entry in log if 'step' in entry) == ['d step', 'g step']",
                    T(
                        en="one of the two steps is missing, or runs twice",
                        zh="两个 step 中有一个没有运行，或运行了两次",
                    ),
                ),
            ),
            Property(T(en="both updates are right", zh="两次更新都正确"), as_solved("g.weight", "d[0].weight")),
            Property(
                T(en="the generator's loss comes from the updated discriminator", zh="生成器的损失来自更新后的判别器"),
                true(
                    "'d forward' in log[log.index('d step'):log.index('g step')]",
                    T(en="d does not run between d_step and g_step", zh="d_step 与 g_step 之间没有运行 d"),
                ),
            ),
        ),
        hint_for=(1, 0, 2, 2),
        hints=(
            T(
                en="Which tensors has `g_loss` saved when `d_step.step()` runs?",
                zh="`d_step.step()` 运行时，`g_loss` 已保存了哪些张量？",
            ),
            T(
                en="`g_loss` is to come from the updated `d`: so `d` has to run on `fake` after `d_step.step()`, "
                "and `g` takes its step after that.",
                zh="`g_loss` 要来自更新后的 `d`：所以 `d` 必须在 `d_step.step()` 之后再对 `fake` 运行，"
                "然后 `g` 才更新。",
            ),
            T(
                en="Move the line of `g_loss` below `d_step.step()`.",
                zh="把 `g_loss` 那一行移到 `d_step.step()` 之后。",
            ),
        ),
        right=(
            _BEGIN
            + (
                "    d_loss.backward()\n"
                "    d_step.step()\n"
                "    g_loss = -d(fake).mean()\n"
                "    g_loss.backward()\n"
                "    g_step.step()\n"
            ),
            _BEGIN
            + (
                "    d_loss.backward()\n"
                "    d_step.step()\n"
                "    d_step.zero_grad()\n"
                "    (-d(fake).mean()).backward()\n"
                "    g_step.step()\n"
            ),
        ),
        wrong=(
            _BEGIN
            + (
                "    g_loss = -d(fake).mean()\n"
                "    d_loss.backward()\n"
                "    g_loss.backward()\n"
                "    d_step.step()\n"
                "    g_step.step()\n"
            ),
            _BEGIN + "    d_loss.backward()\n    d_step.step()\n",
            _BEGIN
            + (
                "    d_loss.backward()\n"
                "    d_step.step()\n"
                "    g_loss = -d(fake.detach()).mean()\n"
                "    g_loss.backward()\n"
                "    g_step.step()\n"
            ),
            _BEGIN
            + (
                "    d_loss.backward()\n"
                "    d_step.step()\n"
                "    d_step.step()\n"
                "    g_loss = -d(fake).mean()\n"
                "    g_loss.backward()\n"
                "    g_step.step()\n"
            ),
        ),
    ),
    Exercise(
        key="12.4",
        kind="make-it-fail",
        title=T(en="Make it fail", zh="让它失败"),
        task=T(
            en=(
                'A colleague believes: "Under `no_grad` I may edit whatever I like." Complete `counterexample` with '
                "**one** in-place edit under `no_grad` so that backward raises. The edit may change a single element."
            ),
            zh=(
                "同事认为：“在 `no_grad` 下我想改什么都行。”请在 `counterexample` 中用 `no_grad` 下的**一次**就地修改"
                "使 backward 报错。可以只修改一个元素。"
            ),
        ),
        given=(
            "def counterexample():\n"
            "    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n"
            "    squares = w ** 2\n"
            "    with torch.no_grad():\n"
            "        squares[0] = 0.0          # this edit is harmless; choose another\n"
            "    squares.sum().backward()\n"
        ),
        drive="counterexample()",
        properties=(
            Property(T(en="backward raises", zh="backward 报错"), fails("backward")),
            Property(
                T(en="because a saved tensor was modified", zh="因为保存的张量被修改"), fails("saved-tensor-modified")
            ),
            Property(T(en="by exactly one write", zh="恰好一次写入"), _one_write),
            Property(
                T(en="the belief predicts no error here", zh="持此信念者预料不会出错"),
                surprises("no_grad_hides_versions"),
            ),
        ),
        hint_for=(1, 2, 3, 0),
        hints=(
            T(en="Which tensor has `**` saved: its input or its result?", zh="`**` 保存的是输入还是结果？"),
            T(
                en="`w ** 2` needs `w` again in backward: the gradient is `2 * w`.",
                zh="`w ** 2` 在 backward 中还要用 `w`：梯度是 `2 * w`。",
            ),
            T(en="Write into one element of `w`.", zh="写入 `w` 的一个元素。"),
        ),
        right=(
            "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n    squares = w ** 2\n"
            "    with torch.no_grad():\n        w[0] = 0.0\n    squares.sum().backward()\n",
            "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n    squares = w ** 2\n"
            "    with torch.no_grad():\n        w.mul_(2)\n    squares.sum().backward()\n",
        ),
        wrong=(
            "def counterexample():\n    raise RuntimeError('modified by an inplace operation')\n",
            "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n    squares = w ** 2\n"
            "    with torch.no_grad():\n        w.mul_(2)\n        w.mul_(2)\n    squares.sum().backward()\n",
            "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n    w += 1\n",
        ),
    ),
)
