"""Chapter 15: accumulation that equals the large batch, an update rule by hand, training that is resumed, and which
learning rates arrive.
"""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Attempt,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    finds_nothing,
    no_optimizer,
    true,
)
from pitfall_lab.trace import T

_TRAIN = """\
def train(model, optimizer, pieces, every):
    for number, (x, y) in enumerate(pieces, start=1):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if number % every == 0:
            optimizer.step()
"""

_TRAINED = """\
def train(model, optimizer, pieces, every):
    optimizer.zero_grad()
    for first in range(0, len(pieces), every):
        group = pieces[first : first + every]
        rows = sum(len(x) for x, _ in group)
        for x, y in group:
            (F.mse_loss(model(x), y) * len(x) / rows).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

_PIECES = """\
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pieces = [(torch.randn(n, 3), torch.randn(n, 1)) for n in (2, 6, 3, 5, 1, 4, 2)]
steps = []
optimizer.register_step_post_hook(lambda *_: steps.append(model.weight.detach().clone()))
backwards, through = [], []      # by what arrives at the bias, and at the output, as with autograd.grad
model.bias.register_post_accumulate_grad_hook(lambda _: backwards.append(1))
forwards, kept = [], []


def is_kept(node):
    # whether a node still has what it saved
    try:
        return getattr(node, "_saved_mat1", None) is not None
    except RuntimeError:
        return False


@model.register_forward_hook
def before_the_next(layer, args, output):
    kept.extend(node for node in forwards[-1:] if is_kept(node))
    forwards.append(output.grad_fn)
    if output.requires_grad:
        output.register_hook(lambda _: through.append(1))
"""

_TWICE = """\
def weights():
    return [p.detach().clone() for p in model.parameters()]


train(model, optimizer, pieces, 3)
begun = weights()
train(model, optimizer, pieces, 2)
as_it_is = torch.cat([w.flatten() for w in weights()])
for p, w in zip(model.parameters(), begun):
    p.data.copy_(w)
    p.grad = None
train(model, optimizer, pieces, 2)
after_a_reset = torch.cat([w.flatten() for w in weights()])
"""

_NESTEROV = """\
def nesterov(w, grad_of, lr, mu, steps):
    velocity = torch.zeros_like(w)
    for _ in range(steps):
        g = grad_of(w)
        velocity = mu * velocity + g
        w = w - lr * velocity
    return w
"""

_ON_NESTEROV = """\
try:
    found = nesterov(start, grad_of, lr, mu, steps)
finally:
    torch.optim, rules.sgd = torch_optim, torch_rule
    give_back()
"""

_RESUME = """\
def checkpoint(model, optimizer, scheduler):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

def resume(make, saved):
    model, optimizer, scheduler = make()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer, scheduler
"""

_RESUMED = """\
def checkpoint(model, optimizer, scheduler):
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}

def resume(make, saved):
    model, optimizer, scheduler = make()
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scheduler.load_state_dict(saved["scheduler"])
    return model, optimizer, scheduler
"""

_FATES = {0.0001: "crawls", 0.02: "arrives", 0.24: "arrives", 0.26: "runs away", 0.9: "runs away"}

_FATE = """\
def fate(rate):
    w = torch.tensor([1.0, 1.0], dtype=torch.float64)
    for _ in range(200):
        w = w - rate * torch.stack([2 * w[0], 8 * w[1]])
    distance = w.norm().item()
    return "arrives" if distance <= 0.1 else "crawls" if distance < 2**0.5 else "runs away"
"""


def _by_hand(attempt: Attempt) -> bool | T:
    """True if the cell does not use torch.optim and no optimizer of torch takes a step; else the reason."""
    names = attempt.value("reached[:1]")
    if isinstance(names, list) and names:
        return T(en="the cell uses torch.optim", zh="单元格使用了 torch.optim")
    return no_optimizer()(attempt)


def _fates(answers: dict[float, str]) -> str:
    return "fates = {\n" + "".join(f'    {rate}: "{fate}",\n' for rate, fate in answers.items()) + "}\n"


EXERCISES = (
    Exercise(
        key="15.1",
        kind="find-and-fix",
        title=T(en="Accumulate and lose nothing", zh="累积且不丢失"),
        task=T(
            en=(
                "`train` should make one step for every `every` pieces, equal to the step on all their rows as one "
                "batch, and lose no piece, in this epoch and in the next one (a second call). It has three mistakes. "
                "`pieces` is a list of pairs (x, y), and the pieces have different numbers of rows; the optimizer is "
                "plain SGD. Each piece keeps a backward of its own, so that its graph is freed."
            ),
            zh=(
                "`train` 应每 `every` 个小批走一步，效果等于把它们的所有行作为一个批次的一步，并且不丢失任何小批，在这"
                "一轮和下一轮（第二次调用）都是如此。它有三个错误。`pieces` 是 (x, y) 对的列表，各小批的行数不同；优化"
                "器是普通 SGD。每个小批保留自己的 backward，以便释放其计算图。"
            ),
        ),
        given=_TRAIN,
        inputs=_PIECES,
        drive="train(model, optimizer, pieces, 3)",
        properties=(
            Property(
                T(en="three steps: 3, 3 and 1 pieces", zh="三步：3、3 和 1 个小批"),
                true("len(steps) == 3", T(en="another number of steps was taken", zh="走的步数不对")),
            ),
            Property(
                T(
                    en="with pieces of equal size, the first step is that of their rows as one batch",
                    zh="各小批一样大时，第一步等于把它们的行作为一个批次的一步",
                ),
                as_solved("steps[0]", inputs=_PIECES.replace("(2, 6, 3, 5, 1, 4, 2)", "[2] * 7")),
            ),
            Property(
                T(
                    en="with pieces of different sizes, too, the first step is that of their rows as one batch",
                    zh="小批大小不同时，第一步也等于把它们的行作为一个批次的一步",
                ),
                as_solved("steps[0]"),
            ),
            Property(
                T(
                    en="the last step, with the pieces that are left, is that of their rows as one batch",
                    zh="最后一步用剩余的小批，也等于把它们的行作为一个批次的一步",
                ),
                as_solved("model.weight.detach()", "model.bias.detach()"),
            ),
            Property(
                T(
                    en="each piece has a backward of its own, which frees its graph",
                    zh="每个小批单独反向传播并释放其计算图",
                ),
                every(
                    true(
                        "7 in (len(backwards), len(through))",
                        T(
                            en="backward did not run once for each of the seven pieces",
                            zh="七个小批并没有各运行一次 backward",
                        ),
                    ),
                    true(
                        "not kept",
                        T(
                            en="the graph of a piece was kept while the next piece was computed",
                            zh="计算下一个小批时，前一个小批的计算图还被保留着",
                        ),
                    ),
                ),
            ),
            Property(
                T(en="no gradient leaks into the next epoch", zh="没有梯度漏到下一轮"),
                true(
                    "torch.allclose(as_it_is, after_a_reset, atol=1e-6)",
                    T(
                        en="with a reset between two calls the second one ends elsewhere",
                        zh="若在两次调用之间清零，第二次调用的结果就不同",
                    ),
                    drive=_TWICE,
                ),
            ),
            Property(
                T(
                    en="in later epochs, too, the weights are those of the large batches",
                    zh="之后各轮的权重也与大批量的一致",
                ),
                as_solved(
                    "model.weight.detach()",
                    "model.bias.detach()",
                    drive="train(model, optimizer, pieces, 3)\n"
                    "train(model, optimizer, pieces, 2)\n"
                    "train(model, optimizer, pieces[:6], 3)",
                ),
            ),
            Property(
                T(en="no rule finds a reset at the wrong place", zh="没有规则发现位置错误的清零"),
                finds_nothing("zero-grad-inside-accumulation"),
            ),
        ),
        hint_for=(2, 2, 2, 2, 3, 1, 2, 1),
        hints=(
            T(en="When may the gradients be forgotten?", zh="什么时候才可以忘掉梯度？"),
            T(
                en="Seven pieces by three: the last group has one. A mean over all rows: which share of "
                "it does a piece have?",
                zh="七个小批按三个一组：最后一组只有一个。对所有行求平均：一个小批占多大份额？",
            ),
            T(
                en="Go through the pieces in groups, `pieces[first : first + every]`. For each piece of a group run a "
                "backward, of its loss weighted by its rows among those of the group.",
                zh="按组遍历，`pieces[first : first + every]`。对组内每个小批各运行一次 backward，"
                "其损失按该小批的行数在组内行数中的份额加权。",
            ),
        ),
        right=(
            _TRAINED,
            (
                "def train(model, optimizer, pieces, every):\n"
                "    optimizer.zero_grad()\n"
                "    for number, (x, y) in enumerate(pieces, start=1):\n"
                "        start = (number - 1) // every * every\n"
                "        rows = sum(y.numel() for _, y in pieces[start : start + every])\n"
                "        (F.mse_loss(model(x), y) * (len(x) / rows)).backward()\n"
                "        if number % every == 0 or number == len(pieces):\n"
                "            optimizer.step()\n"
                "            optimizer.zero_grad()\n"
            ),
            (
                "def train(model, optimizer, pieces, every):\n"
                "    for first in range(0, len(pieces), every):\n"
                "        optimizer.zero_grad()\n"
                "        group = pieces[first : first + every]\n"
                "        rows = len(torch.cat([x for x, _ in group]))\n"
                "        for x, y in group:\n"
                "            (F.mse_loss(model(x), y, reduction='sum') / rows).backward()\n"
                "        optimizer.step()\n"
            ),
            (
                "def train(model, optimizer, pieces, every):\n"
                "    left = list(pieces)\n"
                "    while left:\n"
                "        group, left = left[:every], left[every:]\n"
                "        rows = 0\n"
                "        for x, y in group:\n"
                "            (model(x) - y).square().sum().backward()\n"
                "            rows += len(x)\n"
                "        for p in model.parameters():\n"
                "            p.grad /= rows\n"
                "        optimizer.step()\n"
                "        model.zero_grad()\n"
            ),
        ),
        wrong=(
            _TRAINED.replace(" * len(x) / rows", ""),
            _TRAINED.replace("* len(x) / rows", "/ len(group)"),
            _TRAINED.replace("* len(x) / rows", "/ every"),
            _TRAINED.replace("in group)", "in pieces)"),
            _TRAINED.replace("        optimizer.step()\n        optimizer.zero_grad()\n", "        optimizer.step()\n"),
            _TRAINED.replace("    optimizer.zero_grad()\n    for", "    for", 1).replace(
                "        optimizer.step()\n        optimizer.zero_grad()\n",
                "        optimizer.step()\n        if len(group) == every:\n            optimizer.zero_grad()\n",
            ),
            _TRAINED.replace("range(0, len(pieces), every)", "range(0, len(pieces) - every + 1, every)"),
            _TRAINED.replace(
                "        for x, y in group:\n", "        for x, y in group:\n            optimizer.zero_grad()\n"
            ),
            (
                "def train(model, optimizer, pieces, every):\n"
                "    optimizer.zero_grad()\n"
                "    for first in range(0, len(pieces), every):\n"
                "        group = pieces[first : first + every]\n"
                "        rows = sum(len(x) for x, _ in group)\n"
                "        (sum(F.mse_loss(model(x), y) * len(x) for x, y in group) / rows).backward()\n"
                "        optimizer.step()\n"
                "        optimizer.zero_grad()\n"
            ),
        ),
    ),
    Exercise(
        key="15.2",
        kind="write",
        title=T(en="Nesterov by hand", zh="手写 Nesterov"),
        task=T(
            en=(
                "Write `nesterov(w, grad_of, lr, mu, steps)`: SGD with Nesterov momentum as `torch.optim.SGD(..., "
                "momentum=mu, nesterov=True)` does it, without anything from `torch.optim`. The velocity is computed "
                "as with plain momentum; `w` moves against the sum of the gradient and `mu` times the new velocity. "
                "(Textbooks compute the gradient ahead of `w` instead; torch does not.) `w` is a tensor of shape (3,), "
                "`grad_of(w)` returns the gradient at `w`; call it once in each step. Return the last `w`; leave the "
                "first one unchanged."
            ),
            zh=(
                "编写 `nesterov(w, grad_of, lr, mu, steps)`：与 `torch.optim.SGD(..., momentum=mu, nesterov=True)` 相"
                "同的 Nesterov 动量 SGD，不使用 `torch.optim` 的任何东西。速度的计算与普通动量相同；`w` 沿梯度与 `mu` "
                "倍新速度之和的反方向移动。（教科书在 `w` 的前方求梯度；torch 不这样做。）`w` 是形状为 (3,) "
                "的张量，`grad_of(w)` 返回 `w` 处的梯度；每一步调用它一次。返回最后的 `w`；最初的那个保持不变。"
            ),
        ),
        given=_NESTEROV,
        inputs="""\
start = torch.randn(3)
begun = start.clone()
scale = torch.rand(3) + 0.5
lr, mu, steps = 0.05 + torch.rand(()).item() / 10, 0.5 + torch.rand(()).item() / 3, int(torch.randint(4, 9, ()))
asked = []


def reference():
    w = begun.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=lr, momentum=mu, nesterov=True)
    for _ in range(steps):
        w.grad = scale * w.detach()
        optimizer.step()
    return w.detach()



def grad_of(w):
    asked.append(w)
    return scale * w.detach()


reached = []


class Refused:
    def __getattr__(self, name):
        reached.append(name)
        raise RuntimeError("torch.optim is taken away in this exercise: write the step by hand")

    def __call__(self, *_, **__):
        self.called


from torch.optim import sgd as rules

def refused(*_, **__):
    raise RuntimeError("torch.optim is taken away in this exercise: write the step by hand")


# a function that the cell has kept, in a list or wherever, is the same function
taken = [(rule, rule.__code__) for rule in vars(rules).values() if hasattr(rule, "__code__") and "sgd" in rule.__name__]


def give_back():
    for rule, code in taken:
        rule.__code__ = code


torch_optim, torch.optim = torch.optim, Refused()
torch_rule, rules.sgd = rules.sgd, Refused()
for each, _ in taken:
    each.__code__ = refused.__code__
del each
""",
        drive=_ON_NESTEROV,
        properties=(
            *(
                Property(
                    T(en=f"the {ordinal} step is torch's", zh=f"第{number}步与 torch 相同"),
                    true(
                        "torch.allclose(found.detach(), reference(), atol=1e-6)",
                        T(en="it leads elsewhere", zh="它走到了别处"),
                        drive=f"steps = {steps}\n{_ON_NESTEROV}",
                    ),
                )
                for steps, (ordinal, number) in enumerate((("first", "一"), ("second", "二")), 1)
            ),
            Property(
                T(en="the steps end where torch's end", zh="各步之后与 torch 的结果一致"),
                true(
                    "torch.allclose(found.detach(), reference(), atol=1e-6)", T(en="they end elsewhere", zh="终点不同")
                ),
            ),
            Property(
                T(en="`grad_of` is called once in each step", zh="每步只调用一次 `grad_of`"),
                true("len(asked) == steps", T(en="it was called another number of times", zh="调用的次数不对")),
            ),
            Property(
                T(en="the start is not changed", zh="起点未被改动"),
                true(
                    "torch.equal(start, before['start'].value)",
                    T(
                        en="your cell has written into it, as `w -= ...` does",
                        zh="你的单元格写入了它，`w -= ...` 就会这样",
                    ),
                ),
            ),
            Property(T(en="no optimizer is used", zh="没有使用优化器"), _by_hand),
            Property(
                T(en="nothing is imported from torch.optim", zh="没有从 torch.optim 导入任何东西"),
                true(
                    "not {n for n, v in globals().items() if str(getattr(v, '__module__', "
                    "'')).startswith('torch.optim')} - {'torch_rule'}",
                    T(en="something of torch.optim was imported", zh="导入了 torch.optim 的内容"),
                ),
            ),
        ),
        hint_for=(1, 1, 2, 0, 3, 0, 0),
        hints=(
            T(
                en="The velocity is that of plain momentum. What does the step use in its place?",
                zh="速度与普通动量相同。步子里用什么代替它？",
            ),
            T(
                en="torch computes the velocity as usual, and then steps along `g + mu * velocity`.",
                zh="torch 照常计算速度，然后沿 `g + mu * velocity` 走。",
            ),
            T(
                en="Only the last line of the loop changes: `w = w - lr * (g + mu * velocity)` makes a new tensor. "
                "`w -= ...` would write into the one that was handed over.",
                zh="只需改循环的最后一行：`w = w - lr * (g + mu * velocity)` 产生新张量。"
                "`w -= ...` 会写入传进来的张量。",
            ),
        ),
        right=(
            _NESTEROV.replace("lr * velocity", "lr * (g + mu * velocity)"),
            (
                "def nesterov(w, grad_of, lr, mu, steps):\n"
                "    w, velocity = w.clone(), torch.zeros_like(w)\n"
                "    for _ in range(steps):\n"
                "        g = grad_of(w)\n"
                "        velocity.mul_(mu).add_(g)\n"
                "        w = w.sub(g.add(velocity, alpha=mu), alpha=lr)\n"
                "    return w\n"
            ),
            _NESTEROV.replace("w = w - lr * velocity", "w = w - lr * g - lr * mu * velocity"),
            _NESTEROV.replace("velocity = mu * velocity + g", "old, velocity = velocity, mu * velocity + g").replace(
                "lr * velocity", "lr * (velocity + mu * velocity - mu * old)"
            ),
        ),
        wrong=(
            _NESTEROV.replace("g = grad_of(w)", "g = grad_of(w - lr * mu * velocity)"),
            _NESTEROV.replace("velocity = mu * velocity + g", "velocity = mu * velocity + (1 - mu) * g").replace(
                "lr * velocity", "lr * (g + mu * velocity)"
            ),
            _NESTEROV.replace("lr * velocity", "lr * (g + velocity)"),
            _NESTEROV.replace("lr * velocity", "lr * mu * (g + velocity)"),
            _NESTEROV.replace("range(steps)", "range(steps - 1)").replace("lr * velocity", "lr * (g + mu * velocity)"),
        ),
    ),
    Exercise(
        key="15.3",
        kind="repair",
        title=T(en="Resume where it stopped", zh="从断点继续"),
        task=T(
            en=(
                "`checkpoint` records the state of a training run; `resume` continues from it with a new model, after "
                "the old one has been trained further. Both run, and the resumed run ends elsewhere. Repair them. "
                "`make()` returns a new model, its Adam and its `lr_scheduler.StepLR`, which is stepped after every "
                "step; `saved` is what your `checkpoint` returned."
            ),
            zh=(
                "`checkpoint` 记下训练进行到哪里；`resume` 用新的模型从那里继续，此时旧模型已经又训练了一段。两者都能"
                "运行，但恢复后的训练到达了别处。请修复。`make()` 返回新的模型、它的 Adam 和它的 "
                "`lr_scheduler.StepLR`，后者在每一步之后走一步；`saved` 是你的 `checkpoint` 返回的东西。"
            ),
        ),
        given=_RESUME,
        setup="import copy, io\n",
        inputs="""\
made = []
rate, size = torch.rand(()).item() / 10 + 0.02, 3 + 2 * int(torch.randint(2, ()))
factor = torch.rand(()).item() / 2 + 0.1


def make():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    made.append(model)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, size, gamma=factor)


def steps(model, optimizer, scheduler, count):
    for _ in range(count):
        optimizer.zero_grad()
        model(points).square().mean().backward()
        optimizer.step()
        scheduler.step()


def average(model, optimizer):
    return optimizer.state[model.weight]["exp_avg"].clone() if optimizer.state else None


points = torch.randn(6, 3)
model, optimizer, scheduler = make()
steps(model, optimizer, scheduler, size * int(torch.randint(1, 3, ())) - 1)
weight, mean = model.weight.detach().clone(), average(model, optimizer)
""",
        drive="""\
saved = checkpoint(model, optimizer, scheduler)
steps(model, optimizer, scheduler, 4)
again, its_optimizer, its_scheduler = resume(make, saved)
begun, its_mean = again.weight.detach().clone(), average(again, its_optimizer)
steps(again, its_optimizer, its_scheduler, 4)
""",
        properties=(
            Property(
                T(en="the resumed model has the weights of the checkpoint", zh="恢复的模型具有检查点的权重"),
                true(
                    "torch.equal(begun, weight)",
                    T(en="they are not those at the time of `checkpoint`", zh="它们不是 `checkpoint` 时的权重"),
                ),
            ),
            Property(
                T(en="the resumed Adam has the averages of the checkpoint", zh="恢复的 Adam 具有检查点的滑动平均"),
                true(
                    "its_mean is not None and torch.equal(its_mean, mean)",
                    T(en="they are not those at the time of `checkpoint`", zh="它们不是 `checkpoint` 时的平均"),
                ),
            ),
            Property(
                T(
                    en="after four more steps the learning rate is that of the first run",
                    zh="再走四步后，学习率与原来的运行相同",
                ),
                true(
                    "its_optimizer is not optimizer and abs(its_optimizer.param_groups[0]['lr'] / "
                    "optimizer.param_groups[0]['lr'] - 1) < 1e-6",
                    T(en="the learning rate is not that of the first run", zh="学习率不同"),
                ),
            ),
            Property(
                T(en="four more steps end where the first run ended", zh="再走四步，结果与原来的运行一致"),
                true(
                    "again is not model and torch.allclose(again.weight, model.weight, atol=1e-6)",
                    T(en="the weights differ from those of the first run", zh="权重不同"),
                ),
            ),
            Property(
                T(
                    en="the optimizer moves the new model, and `make` made both",
                    zh="优化器更新的是新模型，且两者都由 `make` 创建",
                ),
                every(
                    true(
                        "again is made[-1] and again is not model",
                        T(
                            en="`resume` does not return the model that `make` made for it",
                            zh="`resume` 返回的不是 `make` 为它创建的模型",
                        ),
                    ),
                    true(
                        "its_optimizer.param_groups[0]['params'][0] is again.weight",
                        T(en="the optimizer has the weights of another model", zh="优化器持有的是另一个模型的权重"),
                    ),
                ),
            ),
        ),
        hint_for=(1, 1, 2, 2, 0),
        hints=(
            T(
                en="What does a state dict share with its model and its optimizer while these go on? (Chapter 11.)",
                zh="模型和优化器继续训练时，state dict 与它们共享什么？（第 11 章）",
            ),
            T(
                en="Three objects count or remember something. How many are written down?",
                zh="有三个对象在计数或记忆。写下了几个？",
            ),
            T(
                en="`copy.deepcopy` each of three state dicts, and load all three.",
                zh="对三个 state dict 各做一次 `copy.deepcopy`，并且三个都载入。",
            ),
        ),
        right=(
            _RESUMED,
            (
                "def checkpoint(model, optimizer, scheduler):\n"
                "    file = io.BytesIO()\n"
                "    torch.save([part.state_dict() for part in (model, optimizer, scheduler)], file)\n"
                "    return file.getvalue()\n"
                "\n"
                "\n"
                "def resume(make, saved):\n"
                "    parts = make()\n"
                "    for part, state in zip(parts, torch.load(io.BytesIO(saved))):\n"
                "        part.load_state_dict(state)\n"
                "    return parts\n"
            ),
            "def checkpoint(*parts):\n    return copy.deepcopy([part.state_dict() for part in parts])\n\n\n"
            "def resume(make, saved):\n    parts = make()\n    for part, state in zip(parts, copy.deepcopy(saved)):\n"
            "        part.load_state_dict(state)\n    return parts\n",
            (
                "def checkpoint(model, optimizer, scheduler):\n"
                "    return {\n"
                "        'model': {k: v.clone() for k, v in model.state_dict().items()},\n"
                "        'optimizer': copy.deepcopy(optimizer.state_dict()),\n"
                "        'epoch': scheduler.last_epoch,\n"
                "    }\n"
                "\n"
                "\n"
                "def resume(make, saved):\n"
                "    model, optimizer, scheduler = make()\n"
                "    model.load_state_dict(saved['model'])\n"
                "    optimizer.load_state_dict(saved['optimizer'])\n"
                "    scheduler.last_epoch = saved['epoch']\n"
                "    return model, optimizer, scheduler\n"
            ),
        ),
        wrong=(
            _RESUMED.replace("copy.deepcopy(part.state_dict())", "part.state_dict()"),
            _RESUMED.replace("copy.deepcopy(part.state_dict())", "dict(part.state_dict())"),
            _RESUMED.replace('    scheduler.load_state_dict(saved["scheduler"])\n', ""),
            _RESUMED.replace('    optimizer.load_state_dict(saved["optimizer"])\n', ""),
            _RESUMED.replace('    model.load_state_dict(saved["model"])\n', ""),
            (
                "def checkpoint(model, optimizer, scheduler):\n"
                "    return model, optimizer, scheduler\n"
                "\n"
                "\n"
                "def resume(make, saved):\n"
                "    return saved\n"
            ),
        ),
    ),
    Exercise(
        key="15.4",
        kind="predict",
        title=T(en="Which rates arrive?", zh="哪些学习率能到达？"),
        task=T(
            en=(
                'Plain SGD on `w0² + 4 · w1²`, 200 steps from (1, 1). For each rate write `"arrives"` (at most 0.1 '
                'from the minimum), `"crawls"` (not yet there, but nearer than at the start) or `"runs away"` '
                "(further than at the start), **before** you run anything."
            ),
            zh=(
                "在 `w0² + 4 · w1²` 上做普通 SGD，从 (1, 1) 出发走 200 步。在运行任何代码**之前**，对每个学习率填写 "
                '`"arrives"`（离最小值点至多 0.1）、`"crawls"`（还没到，但比起点近）或 `"runs away"`（比起点远）。'
            ),
        ),
        given=_fates(dict.fromkeys(_FATES, "?")),
        inputs=_FATE,
        properties=tuple(
            Property(T(en=f"rate {rate}", zh=f"学习率 {rate}"), equal(f"fates[{rate}]", f"fate({rate})", tell=False))
            for rate in _FATES
        ),
        hint_for=(3, 3, 2, 2, 2),
        hints=(
            T(
                en="One step multiplies w0 by 1 − 2 · rate. By what does it multiply w1?",
                zh="一步把 w0 乘以 1 − 2 · 学习率。w1 乘以多少？",
            ),
            T(
                en="w1 is multiplied by 1 − 8 · rate. It runs away where this factor is below −1.",
                zh="w1 乘以 1 − 8 · 学习率。该因子小于 −1 时发散。",
            ),
            T(
                en="The limit is 2/8 = 0.25. For the slow one, compute (1 − 2 · rate) to the power of 200.",
                zh="上限是 2/8 = 0.25。慢的那个：计算 (1 − 2 · 学习率) 的 200 次方。",
            ),
        ),
        right=(
            _fates(_FATES),
            f"fates = dict({list(_FATES.items())!r})\n",
            (
                "fates = {}\n"
                "for rate in (0.0001, 0.02, 0.24, 0.26, 0.9):\n"
                '    fates[rate] = "runs away" if rate > 2 / 8 else "arrives" if (1 - 2 * rate) ** 200 < '
                '0.05 else "crawls"\n'
            ),
            (
                'fates = dict.fromkeys((0.02, 0.24), "arrives") | dict.fromkeys((0.26, 0.9), "runs away") '
                '| {1e-4: "crawls"}\n'
            ),
        ),
        wrong=(
            _fates(dict.fromkeys(_FATES, "arrives")),
            _fates({**_FATES, 0.26: "arrives"}),
            _fates({**_FATES, 0.24: "runs away"}),
            _fates({**_FATES, 0.9: "arrives"}),
            _fates({**_FATES, 0.02: "crawls"}),
        ),
    ),
)
