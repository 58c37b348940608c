"""Chapter 14: what a module sees, what carries a gradient, and losses whose shapes do not match."""

from __future__ import annotations

from collections.abc import Mapping

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    finds_nothing,
    gradient_as_solved,
    runs,
    true,
)
from pitfall_lab.trace import T

_SWITCH = """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = {kind: nn.Linear(width, width) for kind in kinds}

    def forward(self, x, kind):
        layer, head = self.layers[kind], nn.Linear(x.shape[1], 1)
        return head(torch.tanh(layer(x)))
"""

_FOUND = """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = nn.ModuleDict({kind: nn.Linear(width, width) for kind in kinds})
        self.head = nn.Linear(width, 1)

    def forward(self, x, kind):
        return self.head(torch.tanh(self.layers[kind](x)))
"""

_PLAIN = """\
def with_plain_layers(model):
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.0) if p.dim() == 1 else p.fill_(1.0) if len(p) == 1 else p.copy_(2 * torch.eye(len(p)))
    return model


def loaded(model, kinds, width):
    other = Switch(kinds, width)
    other.load_state_dict(model.state_dict())
    return other
"""

_LOSS = """\
def loss_of(model, points, targets):
    return ((model(points) - targets) ** 2).mean()
"""

_SILENT = """\
class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return x * self.weight
"""

_SEVERAL = """\
several = [torch.randn(4, 3) * 3 for _ in range(4)]
x = several[0]
weights = [torch.tensor([1.3, -2.4, 0.7]) * size for size in (1, -2, 3.5)]


def own(model):
    found = object.__getattribute__(model, "__dict__")["_parameters"].get("weight")
    if found is None:
        raise AttributeError("the model has no parameter `weight`")
    return found


def result(model, weight, x):
    with torch.no_grad():
        own(model).copy_(weight)
    return model(x)


def gradient(model, weight, x):
    kept = own(model)
    out = result(model, weight, x)
    kept.grad = None
    out.sum().backward()
    return "none" if kept.grad is None else "some" if kept.grad.any() else "zero"
"""
"""The parameter is the one that the model has, and its gradient that of backward: an attribute of the class with the
name, or ``forward``, could put another one there.
"""

_COUNTS = {
    "nn.Linear(3, 2)": 8,
    "nn.Sequential(nn.Linear(2, 2), nn.ReLU())": 6,
    "nn.Conv2d(1, 2, 3)": 20,
    "nn.BatchNorm1d(4)": 8,
    "nn.ModuleList([nn.Linear(2, 1)] * 2)": 3,
}

_COUNT = """\
def count(text):
    return sum(p.numel() for p in eval(text).parameters())
"""


def _counts(answers: Mapping[str, int | None]) -> str:
    return "counts = {\n" + "".join(f'    "{text}": {count},\n' for text, count in answers.items()) + "}\n"


EXERCISES = (
    Exercise(
        key="14.1",
        kind="repair",
        title=T(en="Layers that count", zh="看得见的层"),
        task=T(
            en=(
                "`Switch(kinds, width)` has one linear layer for each of `kinds`, a list of different words, and a "
                "head that turns each row into one number. Its optimizer gets no parameters, and two calls with the "
                "same input give different numbers. Repair it: all layers are found, and saved with the model; for a "
                "table `x` (N, width) and one of the kinds it applies the kind's layer, then tanh, then the head; the "
                "result has shape (N, 1)."
            ),
            zh=(
                "`Switch(kinds, width)` 为 `kinds`（由不同单词组成的列表）中的每一个准备一个线性层，另有一个输出头"
                "把每一行变成一个数。它的优化器得不到任何参数，而且同样的输入调用两次会得到不同的数。请修好它：所"
                "有层都能被找到，并随模型保存；对表 `x` (N, width) 和其中一个单词，结果依次经过该单词的层、tanh 和"
                "输出头，形状为 (N, 1)。"
            ),
        ),
        given=_SWITCH,
        setup=_PLAIN,
        inputs="""\
kinds = ["day", "night", "rain", "snow"][: int(torch.randint(2, 5, ()))]
width = int(torch.randint(2, 6, ()))
x = torch.randn(4, width)
""",
        drive="model = Switch(kinds, width)\nouts = [model(x, kind) for kind in kinds]\nsum(outs).sum().backward()",
        properties=(
            Property(
                T(en="the weights and biases of all layers are found", zh="找到所有层的权重和偏置"),
                true(
                    "sum(p.numel() for p in nn.Module.parameters(model)) == len(kinds) * (width * "
                    "width + width) + width + 1",
                    T(
                        en="`model.parameters()` does not yield the weights and biases of exactly one layer for each "
                        "kind and one head",
                        zh="`model.parameters()` 给出的不正好是每个单词一层、另加一个输出头，各有权重和偏置",
                    ),
                ),
            ),
            Property(
                T(en="each of them gets a gradient", zh="每个参数都得到梯度"),
                every(
                    true(
                        "len(list(nn.Module.parameters(model))) > 0",
                        T(en="the model has no parameter", zh="模型没有参数"),
                    ),
                    true(
                        "all(p.grad is not None for p in nn.Module.parameters(model))",
                        T(en="a `.grad` is None", zh="有一个 `.grad` 是 None"),
                    ),
                ),
            ),
            Property(
                T(en="the same input gives the same numbers", zh="同样的输入得到同样的数"),
                true(
                    "all(torch.equal(model(x, kind), out) for kind, out in zip(kinds, outs))",
                    T(en="a second call gives other numbers", zh="第二次调用给出了不同的数"),
                ),
            ),
            Property(
                T(en="all layers are saved and loaded with the model", zh="所有层随模型保存和加载"),
                true(
                    "all(torch.equal(loaded(model, kinds, width)(x, kind), out) for kind, out in zip(kinds, outs))",
                    T(
                        en="a model that loads `state_dict()` gives other numbers",
                        zh="加载 `state_dict()` 的模型给出了不同的数",
                    ),
                ),
            ),
            Property(
                T(en="each kind has a layer of its own", zh="每个单词都有自己的层"),
                true(
                    "not any(torch.allclose(a, b) for n, a in enumerate(outs) for b in outs[:n])",
                    T(
                        en="two kinds give the same numbers: how many `nn.Linear(width, width)` does the constructor "
                        "make?",
                        zh="两个单词给出了同样的数：构造函数创建了几个 `nn.Linear(width, width)`？",
                    ),
                ),
            ),
            Property(
                T(
                    en="the layer, tanh and the head follow each other as before",
                    zh="层、tanh 和输出头的顺序与原来一样",
                ),
                every(
                    true(
                        "{tuple(p.shape) for p in nn.Module.parameters(model)} "
                        "<= {(width, width), (width,), (1, width), (1,)}",
                        T(
                            en="a parameter has another shape than the weights and biases of these linear layers",
                            zh="有一个参数的形状不是这些线性层的权重或偏置的形状",
                        ),
                    ),
                    true(
                        "torch.allclose(with_plain_layers(model)(x, kinds[0]), "
                        "torch.tanh(2 * x).sum(dim=1, keepdim=True))",
                        T(
                            en="with the same weights it gives other numbers, or another shape",
                            zh="权重相同，却给出了不同的数或形状",
                        ),
                    ),
                ),
            ),
        ),
        hint_for=(0, 0, 2, 1, 3, 0),
        hints=(
            T(
                en="What does a module see of an attribute that is a Python dict?",
                zh="如果属性是 Python 字典，模块能看到什么？",
            ),
            T(
                en="A layer that is made in `forward` is new in each call. Where should it be made?",
                zh="在 `forward` 里创建的层每次调用都是新的。应当在哪里创建它？",
            ),
            T(
                en="`nn.ModuleDict({...})` is used like a dict; the head becomes an attribute in `__init__`.",
                zh="`nn.ModuleDict({...})` 可以像字典一样使用；输出头应在 `__init__` 里成为属性。",
            ),
        ),
        right=(
            _FOUND,
            """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.head = nn.Linear(width, 1)
        self.places = {kind: n for n, kind in enumerate(kinds)}
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in kinds)

    def forward(self, x, kind):
        return self.head(self.layers[self.places[kind]](x).tanh())
""",
            """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        for kind in kinds:
            self.add_module("layer_" + kind, nn.Linear(width, width))
        self.head = nn.Linear(width, 1)

    def forward(self, x, kind):
        return self.head(torch.tanh(getattr(self, "layer_" + kind)(x)))
""",
        ),
        wrong=(
            _SWITCH.replace(
                "{kind: nn.Linear(width, width) for kind in kinds}",
                "nn.ModuleDict({k: nn.Linear(width, width) for k in kinds})",
            ),
            _FOUND.replace(
                "nn.ModuleDict({kind: nn.Linear(width, width) for kind in kinds})",
                "{k: nn.Linear(width, width) for k in kinds}",
            ),
            _FOUND.replace("nn.Linear(width, width) for kind in kinds", "shared for kind in kinds").replace(
                "        self.layers", "        shared = nn.Linear(width, width)\n        self.layers"
            ),
            _FOUND.replace("torch.tanh(self.layers[kind](x))", "self.layers[kind](torch.tanh(x))"),
            _FOUND.replace("torch.tanh", "torch.sigmoid"),
            _FOUND.replace("self.head(torch", "self.head.requires_grad_(False)(torch"),
        ),
    ),
    Exercise(
        key="14.2",
        kind="predict",
        title=T(en="How many parameters?", zh="有多少参数？"),
        task=T(
            en=(
                "How many numbers does the optimizer get from `parameters()` of each of these? Write them down "
                "**before** you run anything."
            ),
            zh="优化器从下列每一个的 `parameters()` 得到多少个数？在运行任何代码**之前**写下来。",
        ),
        given=_counts(dict.fromkeys(_COUNTS)),
        inputs=_COUNT,
        properties=tuple(
            Property(T(en=text, zh=text), equal(f"counts[{text!r}]", f"count({text!r})", tell=False))
            for text in _COUNTS
        ),
        hint_for=(1, 1, 0, 2, 3),
        hints=(
            T(
                en="`nn.Linear(a, b)` has a weight of a · b numbers and a bias of b.",
                zh="`nn.Linear(a, b)` 的权重有 a · b 个数，偏置有 b 个。",
            ),
            T(
                en="Running statistics are buffers: saved, but not given to the optimizer.",
                zh="滑动统计量是缓冲区：会保存，但不交给优化器。",
            ),
            T(
                en="The last list holds one and the same layer twice, and `parameters()` gives each parameter once.",
                zh="最后的列表里是同一个层两次，而 `parameters()` 每个参数只给一次。",
            ),
        ),
        right=(
            _counts(_COUNTS),
            f"counts = dict({list(_COUNTS.items())!r})\n",
            f"counts = dict(zip({list(_COUNTS)!r}, {list(_COUNTS.values())!r}))\n",
            f"counts = {{text: sum(p.numel() for p in eval(text).parameters()) for text in {list(_COUNTS)!r}}}\n",
        ),
        wrong=(
            _counts(dict.fromkeys(_COUNTS, 6)),
            _counts({**_COUNTS, "nn.Linear(3, 2)": 6}),
            _counts({**_COUNTS, "nn.BatchNorm1d(4)": 17}),
            _counts({**_COUNTS, "nn.ModuleList([nn.Linear(2, 1)] * 2)": 6}),
            _counts({**_COUNTS, "nn.Conv2d(1, 2, 3)": 18}),
        ),
    ),
    Exercise(
        key="14.3",
        kind="make-it-fail",
        title=T(en="Silent zeros", zh="无声的零"),
        task=T(
            en=(
                "Write a module `Silent` whose `forward(x)` takes a tensor (N, 3), with a parameter `weight` of shape "
                "(3,). Its result changes with `x` **and** with `weight`; backward from its sum raises nothing; and "
                "yet `weight.grad` is exactly zero (not `None`), for every `x` and every `weight`."
            ),
            zh=(
                "编写模块 `Silent`，其 `forward(x)` 接受张量 (N, 3)，并有形状为 (3,) 的参数 `weight`。结果随 `x` "
                "**和** `weight` 变化；从结果之和做 backward 不报错；而对任何 `x` 和 `weight`，`weight.grad` 都恰"
                "好为零（不是 `None`）。"
            ),
        ),
        given=_SILENT,
        inputs=_SEVERAL,
        drive="model = Silent()\nout = model(x)\nout.sum().backward()",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(
                T(en="the weight has a gradient, and it is zero", zh="权重有梯度，而且为零"),
                every(
                    true(
                        "not any(gradient(model, w, x) == 'none' for w in weights for x in several)",
                        T(en="the gradient is None: the graph is cut", zh="梯度是 None：计算图被切断了"),
                    ),
                    true(
                        "all(gradient(model, w, x) == 'zero' for w in weights for x in several)",
                        T(en="the gradient has a number other than zero", zh="梯度含有不为零的数"),
                    ),
                ),
            ),
            Property(
                T(en="the output does depend on the weight", zh="输出确实依赖权重"),
                true(
                    "len({str((result(model, w, x) + 0.0).tolist()) for w in weights}) > 1",
                    T(en="another weight gives the same output", zh="换一个权重，输出不变"),
                ),
            ),
            Property(
                T(en="the output does depend on x", zh="输出确实依赖 x"),
                true(
                    "len({str((result(model, weights[0], x) + 0.0).tolist()) for x in several}) > 1",
                    T(en="another x gives the same output", zh="换一个 x，输出不变"),
                ),
            ),
        ),
        hint_for=(0, 2, 1, 0),
        hints=(
            T(
                en="Which operations change their result with the input, and have the derivative 0 "
                "wherever they have one?",
                zh="哪些操作的结果随输入变化，而在可导之处导数都是 0？",
            ),
            T(
                en="The graph must stay whole: a cut gives None, not zeros.",
                zh="计算图必须完整：被切断得到的是 None，而不是零。",
            ),
            T(
                en="A staircase is flat wherever it has a derivative. So are two paths together: one that is cut and "
                "has the value, and one that is whole and has the factor 0.",
                zh="阶梯函数在可导之处都是平的。两条路也可以：一条被切断，带着数值；一条完整，带着因子 0。",
            ),
        ),
        right=(
            _SILENT.replace("x * self.weight", "torch.round(5 * self.weight) + x"),
            _SILENT.replace("x * self.weight", "x + torch.floor(self.weight)"),
            _SILENT.replace("x * self.weight", "x @ torch.sign(self.weight)"),
            _SILENT.replace("x * self.weight", "x * self.weight.detach() + 0 * self.weight"),
            _SILENT.replace("x * self.weight", "torch.zeros(len(x), 1) + x * torch.trunc(self.weight)"),
        ),
        wrong=(
            _SILENT.replace("x * self.weight", "x * self.weight.detach()"),
            _SILENT.replace("x * self.weight", "x + 0 * self.weight"),
            _SILENT.replace("x * self.weight", "x * (self.weight > 0).float()"),
            _SILENT.replace("x * self.weight", "torch.round(5 * self.weight)"),
            _SILENT.replace("x * self.weight", "x * torch.relu(self.weight)").replace(
                "torch.randn(3)", "-torch.ones(3)"
            ),
        ),
    ),
    Exercise(
        key="14.4",
        kind="write",
        title=T(en="The loss of a column", zh="列向量的损失"),
        task=T(
            en=(
                "`loss_of(model, points, targets)` should be the mean squared error over the N pairs, with a "
                "gradient for the model. `points` has shape (N, features), the model returns (N, 1), and the "
                "targets come as (N,) or as (N, 1)."
            ),
            zh=(
                "`loss_of(model, points, targets)` 应是 N 个对上的均方误差，并给模型带来梯度。`points` 的形状是 (N, 特"
                "征数)，模型返回 (N, 1)，目标的形状是 (N,) 或 (N, 1)。"
            ),
        ),
        given=_LOSS,
        inputs="""\
model = nn.Linear(3, 1)
n = int(torch.randint(3, 8, ()))
points, targets = torch.randn(n, 3), torch.randn(n)
""",
        drive="(loss_of(model, points, targets) + loss_of(model, points, targets[:, None].clone())).backward()",
        properties=(
            Property(
                T(en="a vector of targets gives the right loss", zh="向量目标的损失正确"),
                as_solved("loss_of(model, points, targets)"),
            ),
            Property(
                T(en="a column of targets gives the right loss", zh="列目标的损失正确"),
                as_solved("loss_of(model, points, targets[:, None])"),
            ),
            Property(
                T(en="the weights get the gradient that is meant", zh="权重得到应有的梯度"),
                gradient_as_solved("model.weight", "model.bias"),
            ),
            Property(T(en="no broadcast loss is found", zh="没有发现广播的损失"), finds_nothing("loss-broadcast")),
        ),
        hint_for=(1, 2, 1, 0),
        hints=(
            T(en="Which two shapes meet in the subtraction?", zh="相减的两个形状是什么？"),
            T(
                en="Make them the same before you subtract; `reshape` and `view_as` are enough.",
                zh="相减之前先把它们变成相同的形状；`reshape` 或 `view_as` 就够了。",
            ),
            T(
                en="`targets.reshape(-1, 1)` is a column in either case.",
                zh="`targets.reshape(-1, 1)` 在两种情况下都是一列。",
            ),
        ),
        right=(
            _LOSS.replace("- targets", "- targets.reshape(-1, 1)"),
            "def loss_of(model, points, targets):\n    return F.mse_loss(model(points).flatten(), targets.flatten())\n",
        ),
        wrong=(
            _LOSS.replace("- targets", "- targets.squeeze()"),
            _LOSS.replace("model(points)", "model(points).squeeze(1)"),
            _LOSS.replace(".mean()", ".mean().detach().requires_grad_()"),
            "def loss_of(model, points, targets):\n    return (model(points) * 0).sum() + 1.0\n",
        ),
    ),
)
