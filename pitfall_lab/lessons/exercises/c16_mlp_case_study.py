"""Chapter 16: a whole training run, and what a falling loss hides."""

from __future__ import annotations

from typing import Any

from pitfall_lab.lessons.exercise import (
    SEEDS,
    Attempt,
    Check,
    Exercise,
    Property,
    as_solved,
    every,
    finds_nothing,
    gradient_as_solved,
    runs,
    true,
    updated_once,
)
from pitfall_lab.trace import T

_FIT = """\
def fit(model, points, labels, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(epochs):
        scores = model(points).softmax(dim=1)
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses
"""

_FIXED = (
    _FIT.replace(".softmax(dim=1)", "")
    .replace("        loss.backward()", "        optimizer.zero_grad()\n        loss.backward()")
    .replace("append(loss)", "append(loss.item())")
)

_EVALUATE = """\
def evaluate(model, points, labels):
    return (model(points).argmax(dim=1) == labels).float().mean()
"""

_EVALUATED = """\
def evaluate(model, points, labels):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        share = (model(points).argmax(dim=1) == labels).float().mean().item()
    for module, mode in modes.items():
        module.training = mode
    return share
"""

_OTHER = """\
model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 8), nn.Sequential(nn.Tanh(), nn.BatchNorm1d(8), nn.Dropout(0.3)), nn.Linear(8, 3))
rows = int(torch.randint(9, 30, ()))
points, labels = torch.randn(rows, 3), torch.randint(3, (rows,))
"""  # noqa: E501
"""Another model for `evaluate`: its layers have other places."""

_MEAN = """\
def sentence_vector(table, words, length):
    return table[words].mean(dim=0)
"""

_PATIENCE = """\
def fit_with_patience(model, step, measure, patience):
    best, kept, waited = float("inf"), None, 0
    while waited < patience:
        step()
        loss = measure()
        if loss < best:
            best, kept, waited = loss, model.state_dict(), 0
        waited += 1
    model.load_state_dict(kept)
    return loss
"""

_PATIENT = """\
def fit_with_patience(model, step, measure, patience):
    best, kept, waited = float("inf"), None, 0
    while waited < patience:
        step()
        loss = measure()
        if loss < best:
            best, kept, waited = loss, {k: v.clone() for k, v in model.state_dict().items()}, 0
        else:
            waited += 1
    model.load_state_dict(kept)
    return best
"""

_MEASURED = """\
model = nn.Linear(2, 1)
first = int(torch.randint(2, 9, ()))
losses = sorted((torch.rand(first) + 3).tolist(), reverse=True) + [2.0, 2.5, 2.25, 1.0, 1.5, 1.0, 1.75, 0.5, 0.25, 3.0]
seen, weights = [], []


def all_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def step():
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)


def measure():
    if len(seen) == len(losses):
        raise RuntimeError(f"it still trains after {len(losses)} epochs")
    weights.append(all_of(model))
    seen.append(losses[len(seen)])
    return seen[-1]
"""

_ONE_BEST = _MEASURED.replace("1.0, 1.5, 1.0, 1.75, 0.5, 0.25, 3.0", "2.75, 3.0, 3.25, 3.5, 3.75, 4.0, 4.25")
"""The losses fall, and then they rise for good: who stops at another epoch than the task says has
seen the best one all the same.
"""

_BEST, _LAST = (
    "len(weights) > first and torch.equal(all_of(model), weights[first])",
    "torch.equal(all_of(model), weights[-1])",
)

_TRAINED, _TWO = "len(seen) - first", "result = fit_with_patience(model, step, measure, 2)"


def _stops_after(epochs: int, **run: Any) -> Check:
    """Check that it trains for ``first + epochs`` epochs; else say by how many it is off, or what it raises."""

    def check(attempt: Attempt) -> bool | T:
        attempt.foresee(SEEDS, _TRAINED, **run)
        for seed in SEEDS:
            seen = attempt.look(_TRAINED, seed=seed, **run)
            trained = seen.values[_TRAINED]
            if type(trained) is int and trained == epochs:
                continue
            if seen.error is not None or type(trained) is not int:
                return seen.error.say() if seen.error is not None else False
            few, off = trained < epochs, abs(trained - epochs)
            return T(
                en=f"it stops {off} epoch{'s' * (off > 1)} too {'early' if few else 'late'}",
                zh=f"它{'早' if few else '晚'}停了 {off} 轮",
            )
        return True

    return check


def _has_the_best_weights(attempt: Attempt) -> bool | T:
    """True if the model has the weights of its best epoch at the end; else which ones it has."""
    attempt.foresee(SEEDS, _BEST, _LAST, inputs=_ONE_BEST)
    for seed in SEEDS:
        seen = attempt.look(_BEST, _LAST, seed=seed, inputs=_ONE_BEST)
        if seen.error is not None:
            return seen.error.say()
        if seen.values[_BEST] is not True:
            last = T(en="the weights are those of the last epoch", zh="权重是最后一轮的")
            return (
                last
                if seen.values[_LAST] is True
                else T(en="the weights are those of another epoch", zh="权重是另一轮的")
            )
    return True


EXERCISES = (
    Exercise(
        key="16.1",
        kind="find-and-fix",
        title=T(en="Three mistakes and a falling loss", zh="三个错误与下降的损失"),
        task=T(
            en=(
                "`fit` trains a classifier and makes three mistakes of training loops; the loss falls all the same. "
                "Repair them; the optimizer and its rate stay. `points` has shape (N, 3), `labels` (N,) and int64; "
                "the model returns scores, one for each class. The returned list holds one loss for each epoch, and "
                "keeps nothing else alive."
            ),
            zh=(
                "`fit` 训练一个分类器，有三个训练循环中的错误，但损失照样下降。请修复；优化器和学习率保持不变。"
                "`points` 的形状是 (N, 3)，`labels` 是 (N,)、int64；模型为每个类别返回一个得分。返回的列表每轮有一个损"
                "失，并且不让别的东西存活。"
            ),
        ),
        given=_FIT,
        inputs="""\
rows, classes = int(torch.randint(9, 20, ())), int(torch.randint(3, 6, ()))
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, classes))
points, labels = torch.randn(rows, 3), torch.randint(classes, (rows,))
epochs = int(torch.randint(3, 7, ()))
""",
        drive="losses = fit(model, points, labels, epochs)",
        properties=(
            Property(
                T(
                    en="the losses are those of plain gradient descent on the scores",
                    zh="损失与对得分做普通梯度下降时一致",
                ),
                as_solved("[float(x) for x in losses]"),
            ),
            Property(
                T(
                    en="the weights at the end are those of plain gradient descent",
                    zh="最后的权重与做普通梯度下降时一致",
                ),
                as_solved("model[0].weight.detach()", "model[2].bias.detach()"),
            ),
            Property(
                T(en="each parameter is written once per epoch", zh="每轮每个参数只写入一次"),
                updated_once(None, 6, drive="losses = fit(model, points, labels, 6)"),
            ),
            Property(
                T(en="the list keeps no graphs", zh="列表里没有保存计算图"),
                every(
                    true(
                        "len(losses) == epochs",
                        T(en="it does not hold one loss for each epoch", zh="列表里不是每轮一个损失"),
                    ),
                    true(
                        "not any(getattr(x, 'requires_grad', False) for x in losses)",
                        T(en="a loss in it still has its graph", zh="其中的损失仍带有计算图"),
                    ),
                ),
            ),
        ),
        hints=(
            T(
                en="One mistake is in the scores, one between two rounds, one in what is kept.",
                zh="一个错误在得分里，一个在两轮之间，一个在保存的内容里。",
            ),
            T(
                en="What does F.cross_entropy apply itself? What does backward do with the old gradient?",
                zh="F.cross_entropy 自己会做什么？backward 怎样处理旧梯度？",
            ),
            T(
                en="No softmax, `optimizer.zero_grad()` before backward, `loss.item()` in the list.",
                zh="去掉 softmax，在 backward 之前调用 `optimizer.zero_grad()`，列表里放 `loss.item()`。",
            ),
        ),
        right=(
            _FIXED,
            _FIXED.replace("loss.item()", "loss.detach()"),
            _FIXED.replace("        optimizer.zero_grad()\n", "").replace(
                "    for _ in range(epochs):\n",
                "    for _ in range(epochs):\n        model.zero_grad(set_to_none=False)\n",
            ),
        ),
        wrong=(
            _FIXED.replace("model(points)", "model(points).log_softmax(dim=1).softmax(dim=1)"),
            _FIXED.replace("loss.item()", "loss"),
            _FIXED.replace("        optimizer.zero_grad()\n", ""),
            "def fit(model, points, labels, epochs):\n    return [1.1, 1.0, 0.9, 0.8]\n",
        ),
    ),
    Exercise(
        key="16.2",
        kind="write",
        title=T(en="Evaluate without a trace", zh="不留痕迹的评估"),
        task=T(
            en=(
                "Write `evaluate(model, points, labels)` for points (N, 3) and labels (N,): the accuracy as a "
                "Python float, with the model in evaluation mode and without a graph. Afterwards every layer is "
                "in the mode in which it came: the model may be in train mode while one of its layers, which is "
                "frozen, stays in evaluation mode. Each parameter requires grad if it did before, and torch records "
                "as before."
            ),
            zh=(
                "为 points (N, 3) 和 labels (N,) 编写 `evaluate(model, points, labels)`：以 Python 浮点数返回"
                "准确率；模型处于评估模式，不建图。之后每一层都处于原来的模式：模型可能处于训练模式，而其中某"
                "个被冻结的层保持评估模式。每个参数是否需要梯度与之前相同，torch 也照常记录。"
            ),
        ),
        given=_EVALUATE,
        inputs="""\
model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
rows = int(torch.randint(9, 30, ()))
points, labels = torch.randn(rows, 3), torch.randint(3, (rows,))
recorded = []
model[0].register_forward_hook(lambda module, args, output: recorded.append(output.requires_grad))
""",
        drive="share = evaluate(model, points, labels)",
        properties=(
            Property(
                T(en="the accuracy is right, for models of several forms", zh="对几种形式的模型，准确率都正确"),
                every(as_solved("float(share)"), as_solved("float(share)", inputs=_OTHER)),
            ),
            Property(
                T(en="it is a Python number", zh="它是 Python 数值"),
                every(
                    runs(), true("isinstance(share, float)", T(en="it is no Python float", zh="它不是 Python 浮点数"))
                ),
            ),
            Property(
                T(en="nothing was recorded", zh="没有记录计算图"),
                every(
                    runs(),
                    true("recorded", T(en="the model was not called", zh="没有调用模型")),
                    true("not any(recorded)", T(en="the model's results have a graph", zh="模型的结果带有计算图")),
                ),
            ),
            Property(
                T(en="running statistics did not move", zh="滑动统计量没有变化"),
                true(
                    "model[1].num_batches_tracked.item() == 0",
                    T(en="the model has counted a batch more", zh="模型又计入了一个批次"),
                ),
            ),
            Property(
                T(en="a model in train mode stays in train mode", zh="训练模式的模型保持训练模式"),
                every(
                    runs(),
                    true(
                        "model.training and model[2].training",
                        T(en="it is in evaluation mode now", zh="它现在处于评估模式"),
                    ),
                ),
            ),
            Property(
                T(en="a model in eval mode stays in eval mode", zh="评估模式的模型保持评估模式"),
                true(
                    "not model.training",
                    T(en="it is in train mode now", zh="它现在处于训练模式"),
                    drive="model.eval()\nshare = evaluate(model, points, labels)",
                ),
            ),
            Property(
                T(
                    en="a frozen layer stays in eval mode, and the others in train mode",
                    zh="冻结的层保持评估模式，其他层保持训练模式",
                ),
                true(
                    "[layer.training for layer in model.modules()] == [True, True, False, True, True]",
                    T(en="the layers are no longer in the modes in which they came", zh="各层不再处于原来的模式"),
                    drive="model[1].eval()\nshare = evaluate(model, points, labels)",
                ),
            ),
            Property(
                T(en="the model can be trained afterwards", zh="之后模型仍可训练"),
                every(
                    runs(),
                    true(
                        "torch.is_grad_enabled()",
                        T(en="torch no longer records: no training would", zh="torch 不再记录：任何训练都无法进行"),
                    ),
                    true(
                        "[p.requires_grad for p in model.parameters()] == [True, True, False, False, True, True]",
                        T(
                            en="a parameter no longer requires grad, or a frozen one does",
                            zh="有参数不再需要梯度，或被冻结的参数需要梯度了",
                        ),
                        drive="model[1].requires_grad_(False)\nshare = evaluate(model, points, labels)",
                    ),
                ),
            ),
        ),
        hint_for=(1, 0, 1, 1, 2, 2, 3, 1),
        hints=(
            T(
                en="Two switches are needed: one for layers, one for recording; each only for the time of the "
                "evaluation.",
                zh="需要两个开关：一个针对层，一个针对记录；两者都只在评估期间起作用。",
            ),
            T(
                en="`model.train(mode)` switches *all* layers. Each has a mode of its own, `layer.training`.",
                zh="`model.train(mode)` 会切换*所有*层。每一层有自己的模式 `layer.training`。",
            ),
            T(
                en="Note `layer.training` for each of `model.modules()`, and put each back at the end.",
                zh="为 `model.modules()` 中的每一层记下 `layer.training`，最后逐一恢复。",
            ),
        ),
        right=(
            _EVALUATED,
            (
                "@torch.no_grad()\n"
                "def evaluate(model, points, labels):\n"
                "    training = [layer for layer in model.modules() if layer.training]\n"
                "    try:\n"
                "        hits = model.eval()(points).argmax(1).eq(labels).sum()\n"
                "        return hits.item() / len(labels)\n"
                "    finally:\n"
                "        for layer in training:\n"
                "            layer.training = True\n"
            ),
            (
                "def evaluate(model, points, labels):\n"
                "    import copy\n"
                "    judge = copy.deepcopy(model).eval()\n"
                "    with torch.inference_mode():\n"
                "        return (judge(points).argmax(dim=1) == labels).double().mean().item()\n"
            ),
            (
                "def evaluate(model, points, labels):\n"
                "    before = [(layer, layer.training) for layer in model.modules()]\n"
                "    model.train(False)\n"
                "    with torch.no_grad():\n"
                "        right = sum(int(model(p[None]).argmax()) == int(k) for p, k in zip(points, labels))\n"
                "    for layer, mode in before:\n"
                "        layer.train(mode)\n"
                "    return right / len(points)\n"
            ),
        ),
        wrong=(
            "def evaluate(model, points, labels):\n"
            "    mode = model.training\n"
            "    model.eval()\n"
            "    with torch.no_grad():\n"
            "        share = (model(points).argmax(dim=1) == labels).float().mean().item()\n"
            "    model.train(mode)\n"
            "    return share\n",
            _EVALUATED.replace("        module.training = mode\n", "        pass\n"),
            _EVALUATED.replace("        module.training = mode\n", "        module.train()\n"),
            _EVALUATED.replace("    with torch.no_grad():\n        share", "    if True:\n        share"),
            _EVALUATED.replace("    model.eval()\n", ""),
            _EVALUATED.replace(".item()", ""),
        ),
    ),
    Exercise(
        key="16.3",
        kind="repair",
        title=T(en="The mean of the words", zh="词向量的平均"),
        task=T(
            en=(
                "Complete `sentence_vector(table, words, length)`: `table` has shape (rows, width), `words` "
                "is an int64 vector, `length` a number. The result is the mean of the first `length` rows "
                "that `words` names; the rest of `words` is padding and must get no gradient. No rule of "
                "pitfall_lab may find a pitfall in it."
            ),
            zh=(
                "补全 `sentence_vector(table, words, length)`：`table` 的形状是 (行数, 宽度)，`words` 是 int64 向量，"
                "`length` 是一个数。结果是 `words` 前 `length` 个词所指的行的平均；`words` 的其余部分是填充，不得有梯"
                "度。pitfall_lab 的规则不得在其中发现陷阱。"
            ),
        ),
        given=_MEAN,
        inputs="""\
table = torch.randn(int(torch.randint(10, 20, ())), 3, requires_grad=True)
length = int(torch.randint(4, 7, ()))  # of three words, so that one comes twice
words = torch.cat([torch.randint(0, 3, (length,)), torch.randint(5, 10, (int(torch.randint(1, 6, ())),))])  # any number may be padding
""",  # noqa: E501
        drive="vector = sentence_vector(table, words, length)\nvector.square().sum().backward()",
        properties=(
            Property(T(en="the vector is the mean of the words", zh="向量是各词的平均"), as_solved("vector.detach()")),
            Property(
                T(en="each word's row gets its share of the gradient", zh="每个词的行得到相应的梯度"),
                gradient_as_solved("table"),
            ),
            Property(
                T(en="no row gets a gradient from the padding", zh="没有行从填充得到梯度"),
                true(
                    "not table.grad[5:].any().item()",
                    T(en="a row that only the padding names has a gradient", zh="只有填充才指到的某一行有梯度"),
                ),
            ),
            Property(T(en="no rule finds anything", zh="没有触发任何规则"), finds_nothing()),
        ),
        hints=(
            T(en="Which of the words are padding, and who reads their rows?", zh="哪些词是填充？谁读取了它们的行？"),
            T(
                en="Leave the padding out before the lookup, or give it weight 0 after it; then divide by `length`.",
                zh="查表之前去掉填充，或之后给它权重 0；然后除以 `length`。",
            ),
            T(en="`words[:length]` is all you need.", zh="只需要 `words[:length]`。"),
        ),
        right=(
            _MEAN.replace("table[words]", "table[words[:length]]"),
            (
                "def sentence_vector(table, words, length):\n"
                "    weights = (torch.arange(len(words)) < length).float() / length\n"
                "    return (weights[:, None] * F.embedding(words, table)).sum(dim=0)\n"
            ),
            _MEAN.replace("table[words]", "F.embedding(words, table)[:length]"),
            (
                "def sentence_vector(table, words, length):\n"
                "    total = 0\n"
                "    for word in words[:length].tolist():\n"
                "        total = total + table[word]\n"
                "    return total / length\n"
            ),
            (
                "def sentence_vector(table, words, length):\n"
                "    return table.index_select(0, words.narrow(0, 0, length)).sum(0).div(length)\n"
            ),
        ),
        wrong=(
            _MEAN.replace(".mean(dim=0)", ".sum(dim=0) / length"),
            _MEAN.replace("table[words]", "table[words[:length]].detach().requires_grad_()"),
            _MEAN.replace("table[words]", "table[words[:1]]"),
            _MEAN.replace("table[words]", "table[words[words != 0]]"),
            _MEAN.replace("table[words]", "table[:length]"),
            _MEAN.replace("table[words].mean(dim=0)", "table[words][:length].sum(dim=0) / len(words)"),
        ),
    ),
    Exercise(
        key="16.4",
        kind="find-and-fix",
        title=T(en="Stop at the best epoch", zh="停在最好的一轮"),
        task=T(
            en=(
                "Repair `fit_with_patience(model, step, measure, patience)`; it has three mistakes. `step()` trains "
                "the model for one epoch; `measure()` returns its loss on held-out data. It should train until the "
                "loss has not been lower than its best for `patience` epochs in a row, then put the weights of the "
                "best epoch back and return the best loss."
            ),
            zh=(
                "修复 `fit_with_patience(model, step, measure, patience)`；它有三个错误。`step()` 把模型训练一轮；"
                "`measure()` 返回它在留出数据上的损失。它应训练到损失连续 `patience` 轮没有低于最好值为止，然后恢复最"
                "好那一轮的权重，并返回最好的损失。"
            ),
        ),
        given=_PATIENCE,
        setup="import copy\n",
        inputs=_MEASURED,
        drive="result = fit_with_patience(model, step, measure, 3)",
        properties=(
            Property(
                T(en="it stops after three epochs without a better one", zh="连续三轮没有变好就停止"),
                _stops_after(7),
            ),
            Property(
                T(en="the model has the weights of the best epoch", zh="模型的权重是最好那一轮的"),
                _has_the_best_weights,
            ),
            Property(T(en="the best loss is returned", zh="返回最好的损失"), true("result == 2.0", inputs=_ONE_BEST)),
            Property(
                T(en="with a patience of 2 it stops earlier", zh="耐心为 2 时更早停止"),
                every(
                    _stops_after(3, drive=_TWO),
                    true(
                        _BEST,
                        T(en="the weights are not those of its best epoch", zh="权重不是其中最好一轮的"),
                        drive=_TWO,
                    ),
                ),
            ),
        ),
        hint_for=(2, 1, 0, 2),
        hints=(
            T(
                en="What does `state_dict()` share with the model? (Chapter 11.)",
                zh="`state_dict()` 与模型共享什么？（第 11 章）",
            ),
            T(
                en="After a better epoch, is `waited` 0 or 1 when the loop goes on?",
                zh="变好的一轮之后，循环继续时 `waited` 是 0 还是 1？",
            ),
            T(
                en="Clone each tensor of the state dict, count only epochs that were not better, and return `best`.",
                zh="克隆 state dict 的每个张量，只数没有变好的轮次，并返回 `best`。",
            ),
        ),
        right=(
            _PATIENT,
            _PATIENT.replace(
                "{k: v.clone() for k, v in model.state_dict().items()}", "copy.deepcopy(model.state_dict())"
            ),
            (
                "def fit_with_patience(model, step, measure, patience):\n"
                "    history, states = [], []\n"
                "    while not history or len(history) - 1 - history.index(min(history)) < patience:\n"
                "        step()\n"
                "        history.append(measure())\n"
                "        states.append([p.detach().clone() for p in model.parameters()])\n"
                "    with torch.no_grad():\n"
                "        for p, kept in zip(model.parameters(), states[history.index(min(history))]):\n"
                "            p.copy_(kept)\n"
                "    return min(history)\n"
            ),
            (
                "def fit_with_patience(model, step, measure, patience):\n"
                "    best = None\n"
                "    left = patience\n"
                "    while left:\n"
                "        step()\n"
                "        loss = measure()\n"
                "        left -= 1\n"
                "        if best is None or loss < best[0]:\n"
                "            best = loss, copy.deepcopy(model).state_dict()\n"
                "            left = patience\n"
                "    model.load_state_dict(best[1])\n"
                "    return best[0]\n"
            ),
        ),
        wrong=(
            _PATIENT.replace("{k: v.clone() for k, v in model.state_dict().items()}", "model.state_dict()"),
            _PATIENT.replace("return best", "return loss"),
            _PATIENT.replace("    model.load_state_dict(kept)\n", ""),
            _PATIENT.replace("while waited < patience", "while waited <= patience"),
            _PATIENT.replace("{k: v.clone() for k, v in model.state_dict().items()}", "dict(model.state_dict())"),
            _PATIENT.replace("best, kept, waited = loss", "best, kept, _ = loss"),
            _PATIENT.replace("loss < best", "loss <= best"),
        ),
    ),
)
