"""Chapter 11: the same memory, the same graph, both or neither."""

from __future__ import annotations

from collections.abc import Mapping

from pitfall_lab.lessons.exercise import (
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    fails,
    not_shared,
    runs,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_FACTS = '''\
def facts(expression):
    """Does the result share memory with w or h, and does a gradient flow back through it?"""
    w = torch.randn(3, requires_grad=True)
    h = w * 2
    t = eval(expression, {"w": w, "h": h})
    own = {source.untyped_storage().data_ptr() for source in (w, h)}
    return (t.untyped_storage().data_ptr() in own, t.requires_grad)


def answered(expression):
    answer = shares_and_flows[expression]
    return answer if isinstance(answer, str) else tuple(answer)
'''

_EXPRESSIONS: dict[str, object] = {
    "h.clone()[1:]": (False, True),
    "h.detach().view(3, 1)": (True, False),
    "h.contiguous()": (True, True),
    "w.view(3, 1)": (True, True),
    "h.data": (True, False),
    "h.detach()[1:]": (True, False),
    "h.detach() * 1": (False, False),
}


def _answers(answers: Mapping[str, object]) -> str:
    rows = "".join(f'    "{expression}": {answer},\n' for expression, answer in answers.items())
    return f"shares_and_flows = {{\n{rows}}}\n"


_STEP = '''\
def step(weight):
    """One step of gradient descent on the sum of squares."""
    weight.square().sum().backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
    weight.grad = None
'''

_WATCHED = """\
from pitfall_lab.lessons.tensors_alive import TensorsAlive

kept = []


def graph_of(tensor):
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view that torch no longer has a node for
        return None


def leads_to(node, leaf):
    found, todo = set(), [node]
    while todo:
        node = todo.pop()
        if node is None or node in found:
            continue
        if getattr(node, "variable", None) is leaf:
            return True
        found.add(node)
        todo += [before for before, _ in node.next_functions]
    return False


def watched(weight):
    kept.append(sum(leads_to(graph_of(t), weight) for t in alive.now()))
    step(weight)


with TensorsAlive() as alive:
    average = follow(weight, watched, steps, decay)
"""
"""Notes at the beginning of each step how many of the tensors that ``follow`` has made have a graph that leads to the
weight.
"""

_FOLLOW = "def follow(weight, step, steps, decay):\n"

EXERCISES = (
    Exercise(
        key="11.1",
        kind="predict",
        title=T(en="Memory and graph", zh="内存与计算图"),
        task=T(
            en=(
                "`w` is a leaf that requires grad, `h = w * 2`. For each expression write two answers, each "
                "`True` or `False`, **before** you run the cell: does it share memory with `w` or `h`, and does a "
                "gradient flow back through it?"
            ),
            zh=(
                "`w` 是需要梯度的叶子，`h = w * 2`。在运行单元格**之前**，为每个表达式写两个回答，各为 `True` 或 "
                "`False`：它是否与 `w` 或 `h` 共享内存，梯度能否经它流回？"
            ),
        ),
        given=_answers(dict.fromkeys(_EXPRESSIONS, (None, None))),
        inputs=_FACTS,
        properties=tuple(
            Property(T(en=e, zh=e), equal(f"answered({e!r})", f"facts({e!r})", tell=False)) for e in _EXPRESSIONS
        ),
        hint_for=(1, 2, 2, 2, 3, 3, 2),
        hints=(
            T(
                en="Take each expression call by call: `clone` makes new memory and stays in the graph, `detach` "
                "keeps the memory and leaves the graph.",
                zh="逐个调用地看每个表达式：`clone` 新建内存并留在图中；`detach` 保留内存而离开计算图。",
            ),
            T(
                en="A view shares memory and stays in the graph; `contiguous` gives back a contiguous tensor itself; "
                "arithmetic makes new memory.",
                zh="视图共享内存并留在图中；对已连续的张量，`contiguous` 返回它自身；算术运算产生新内存。",
            ),
            T(
                en="After `detach()` or `.data` nothing flows back, whatever is done with the result. A slice of a "
                "shared tensor is still shared.",
                zh="在 `detach()` 或 `.data` 之后，无论再做什么，梯度都不会流回。共享张量的切片仍然共享。",
            ),
        ),
        right=(
            _answers(_EXPRESSIONS),
            f"shares_and_flows = dict({list(_EXPRESSIONS.items())!r})\n",
            _answers({**_EXPRESSIONS, "h.data": "'(True, False)'"}),
        ),
        wrong=(
            _answers(dict.fromkeys(_EXPRESSIONS, (True, False))),
            _answers({**_EXPRESSIONS, "h.detach().view(3, 1)": (False, False)}),
            _answers({**_EXPRESSIONS, "h.clone()[1:]": (False, False)}),
            _answers({**_EXPRESSIONS, "h.contiguous()": (False, True)}),
            _answers({**_EXPRESSIONS, "h.clone()[1:]": (True, True)}),
        ),
    ),
    Exercise(
        key="11.2",
        kind="find-and-fix",
        title=T(en="An average that does not lag", zh="不会滞后的平均值"),
        task=T(
            en=(
                "`follow` keeps a slow copy of a network's weight, its running average, as target networks and "
                "averaged models do. After every step the average equals the weight itself. There is a second "
                "fault, which its numbers never show. Find and fix both. `weight` is a parameter, `step(weight)` "
                "updates it in place, `decay` is a number below 1. The average that is returned needs memory of "
                "its own, and must not take part in any graph."
            ),
            zh=(
                "`follow` 像目标网络和平均模型那样，维护网络权重的缓慢副本，即滑动平均。每一步之后平均值都等于权重本"
                "身。还有第二处错误，从平均值的数上永远看不出来。请找出并修好这两处。`weight` 是参数，"
                "`step(weight)` 就地更新它，`decay` 是小于 1 的数。返回的平均值需要自己的内存，且不得属于任何计算图。"
            ),
        ),
        given=_FOLLOW + "    average = weight.detach()\n    for _ in range(steps):\n        step(weight)\n"
        "        average.lerp_(weight, 1 - decay)\n    return average\n",
        setup=_STEP,
        inputs="weight = torch.randn(3, requires_grad=True)\n"
        "steps, decay = int(torch.randint(2, 7, ())), 0.5 + torch.rand(()).item() / 2",
        drive="average = follow(weight, step, steps, decay)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the average is right", zh="平均值正确"), as_solved("average")),
            Property(
                T(en="no graph is kept from step to step", zh="不会有计算图从一步留到下一步"),
                every(
                    runs(),
                    true(
                        "len(kept) == steps and not any(kept)",
                        T(
                            en="when the next step begins, a tensor is alive that has the graph of an earlier one",
                            zh="下一步开始时，还有带着先前计算图的张量存在",
                        ),
                        drive=_WATCHED,
                    ),
                ),
            ),
            Property(
                T(en="the weight is trained as without the average", zh="权重的训练不受影响"), as_solved("weight")
            ),
            Property(
                T(en="the average has memory of its own", zh="平均值有自己的内存"), not_shared("average", "weight")
            ),
            Property(
                T(en="the average is outside of every graph", zh="平均值不在任何计算图中"),
                true("not average.requires_grad", T(en="it requires grad", zh="它需要梯度")),
            ),
        ),
        hint_for=(0, 1, 2, 0, 1, 2),
        hints=(
            T(
                en="What does `lerp_` write into, and who else reads that memory?",
                zh="`lerp_` 写入了哪里？还有谁在读那块内存？",
            ),
            T(
                en="There are two faults: the memory is shared, and the weight brings its graph into the average.",
                zh="有两处错误：内存共享，而且权重把计算图带进了平均值。",
            ),
            T(
                en="Start with `weight.detach().clone()`, and hand `weight.detach()` to `lerp_`.",
                zh="从 `weight.detach().clone()` 开始，并把 `weight.detach()` 交给 `lerp_`。",
            ),
        ),
        right=(
            _FOLLOW + "    average = weight.detach().clone()\n    for _ in range(steps):\n        step(weight)\n"
            "        average.lerp_(weight.detach(), 1 - decay)\n    return average\n",
            _FOLLOW
            + (
                "    average = weight.detach().clone()\n"
                "    for _ in range(steps):\n"
                "        step(weight)\n"
                "        with torch.no_grad():\n"
                "            average = decay * average + (1 - decay) * weight\n"
                "    return average\n"
            ),
            _FOLLOW
            + (
                "    average = torch.empty_like(weight, requires_grad=False).copy_(weight.detach())\n"
                "    for _ in range(steps):\n"
                "        step(weight)\n"
                "        average = (decay * average + (1 - decay) * weight).detach()\n"
                "    return average\n"
            ),
            _FOLLOW
            + (
                "    average = torch.tensor(weight.tolist())\n"
                "    for _ in range(steps):\n"
                "        step(weight)\n"
                "        average -= (1 - decay) * (average - weight.detach())\n"
                "    return average\n"
            ),
        ),
        wrong=(
            _FOLLOW + "    average = weight.detach().clone()\n    for _ in range(steps):\n        step(weight)\n"
            "        average.lerp_(weight, 1 - decay)\n    return average.detach()\n",
            _FOLLOW + "    average = weight.clone()\n    for _ in range(steps):\n        step(weight)\n"
            "        average = average.lerp(weight, 1 - decay)\n    return average\n",
            _FOLLOW + "    average = weight.detach()\n    for _ in range(steps):\n        step(weight)\n"
            "        average.lerp_(weight.detach(), 1 - decay)\n    return average\n",
            _FOLLOW + "    for _ in range(steps):\n        step(weight)\n    return weight.detach().clone()\n",
            _FOLLOW + "    return torch.zeros(3)\n",
        ),
    ),
    Exercise(
        key="11.3",
        kind="write",
        title=T(en="Only one side learns", zh="只有一方学习"),
        task=T(
            en=(
                "`consistency(student, teacher)` compares two outputs: the mean of the squared difference. Only the "
                "student may learn from it. But the teacher's output is also used elsewhere, so it must keep its "
                "graph; and it must not be changed."
            ),
            zh=(
                "`consistency(student, teacher)` 比较两个输出：差的平方的均值。只允许学生从中学习。但教师的输出还要用"
                "在别处，所以必须保留它的计算图，也不得改动它。"
            ),
        ),
        given="def consistency(student, teacher):\n    return (student - teacher.clone()).square().mean()\n",
        inputs="n = int(torch.randint(2, 9, ()))\n"
        "a, b = torch.randn(n, requires_grad=True), torch.randn(n, requires_grad=True)\n"
        "student, teacher = a * 2, b * 3",
        drive="loss = consistency(student, teacher)\nloss.backward()",
        properties=(
            Property(T(en="the value is right", zh="数值正确"), as_solved("loss")),
            Property(T(en="the student learns", zh="学生在学习"), as_solved("a.grad")),
            Property(
                T(en="the teacher does not", zh="教师不学习"),
                true("b.grad is None", T(en="the teacher got a gradient", zh="教师得到了梯度")),
            ),
            Property(
                T(en="the teacher's output still has its own way back", zh="教师的输出仍有自己的回传路径"),
                true(
                    "b.grad is not None and torch.allclose(b.grad, torch.full((n,), 3.0))",
                    T(
                        en="the backward of `loss + teacher.sum()` does not give the teacher the gradient of "
                        "`teacher.sum()` alone",
                        zh="对 `loss + teacher.sum()` 反向传播时，教师得到的梯度与只用 `teacher.sum()` 时不同",
                    ),
                    drive="loss = consistency(student, teacher)\n(loss + teacher.sum()).backward()",
                ),
            ),
            Property(T(en="the teacher's output is unchanged", zh="教师的输出没有改变"), unchanged("teacher")),
        ),
        hint_for=(0, 0, 1, 3, 2),
        hints=(
            T(
                en="Assigning, `clone`, `detach`, `detach().clone()`: which keeps the value and cuts the graph?",
                zh="赋值、`clone`、`detach`、`detach().clone()`：哪一种保留数值而切断计算图？",
            ),
            T(en="Nothing is written here, so nothing has to be copied.", zh="这里没有写入，所以不需要复制。"),
            T(
                en="`teacher.detach()` for this one use; the name `teacher` outside keeps its graph.",
                zh="只在这一处用 `teacher.detach()`；外面的 `teacher` 仍保留计算图。",
            ),
        ),
        right=(
            "def consistency(student, teacher):\n    return (student - teacher.detach()).square().mean()\n",
            "def consistency(student, teacher):\n    return F.mse_loss(student, teacher.detach().clone())\n",
        ),
        wrong=(
            "def consistency(student, teacher):\n    return (student - teacher.detach_()).square().mean()\n",
            (
                "def consistency(student, teacher):\n"
                "    with torch.no_grad():\n"
                "        return (student - teacher).square().mean()\n"
            ),
            "def consistency(student, teacher):\n    return (student.detach() - teacher).square().mean()\n",
            (
                "def consistency(student, teacher):\n"
                "    difference = teacher.detach()\n"
                "    difference -= student.detach()\n"
                "    return student.sum() * 0 + difference.square().mean()\n"
            ),
        ),
    ),
    Exercise(
        key="11.4",
        kind="make-it-fail",
        title=T(en="Nothing to do with the gradient?", zh="与梯度再无关系？"),
        task=T(
            en=(
                'A colleague believes: "`detach()` gives me a tensor that has nothing to do with the gradient any '
                'more. I may do with it what I like." `spoil` gets `h.detach()`, where `h = torch.exp(x)`; '
                "afterwards `h.sum().backward()` runs. Write **once** into what `spoil` gets, so that backward raises."
            ),
            zh=(
                "同事认为：“`detach()` 给我的张量与梯度再无关系，我想怎么用都行。”`spoil` 得到 `h.detach()`，其中 `h = "
                "torch.exp(x)`；随后执行 `h.sum().backward()`。请对 `spoil` 得到的张量写入**一次**，使 backward 报错。"
            ),
        ),
        given="def spoil(kept):\n    kept = kept * 0               # harmless\n",
        inputs="x = torch.randn(3, requires_grad=True)",
        drive="h = torch.exp(x)\nspoil(h.detach())\nh.sum().backward()",
        properties=(
            Property(T(en="backward raises", zh="backward 报错"), fails("backward")),
            Property(
                T(en="because a saved tensor was modified", zh="因为保存的张量被修改"), fails("saved-tensor-modified")
            ),
            Property(
                T(en="by exactly one write", zh="恰好一次写入"),
                every(
                    true(
                        "h._version > 0",
                        T(
                            en="the version of h is still 0: nothing was written into it, or the write went past the "
                            "counter",
                            zh="h 的版本仍是 0：没有写入它，或写入绕过了计数器",
                        ),
                    ),
                    true(
                        "h._version == 1",
                        T(
                            en="the version of h is above 1: it was written more than once",
                            zh="h 的版本大于 1：写入不止一次",
                        ),
                    ),
                ),
            ),
        ),
        hint_for=(1, 2, 0),
        hints=(
            T(
                en="`kept = kept * 0` makes a new tensor and moves a name; a write through `.data` or `.numpy()` is "
                "not counted. Which write does the counter see?",
                zh="`kept = kept * 0` 产生新张量并移动名字；通过 `.data` 或 `.numpy()` 的写入不计数。"
                "怎样的写入才会被计数？",
            ),
            T(
                en="`detach()` shares memory *and* version counter with `h`, and `exp` has saved `h`.",
                zh="`detach()` 与 `h` 共享内存*和*版本计数器，而 `exp` 保存了 `h`。",
            ),
            T(en="`kept.zero_()`, or `kept[0] = 1`.", zh="`kept.zero_()`，或 `kept[0] = 1`。"),
        ),
        right=(
            "def spoil(kept):\n    kept.zero_()\n",
            "def spoil(kept):\n    kept[0] = 1.0\n",
            "def spoil(kept):\n    kept *= 2\n",
        ),
        wrong=(
            "def spoil(kept):\n    kept.data.zero_()\n",
            "def spoil(kept):\n    raise RuntimeError('modified by an inplace operation')\n",
            "def spoil(kept):\n    kept.mul_(2)\n    kept.mul_(0.5)\n",
            "def spoil(kept):\n    kept.clone().zero_()\n",
        ),
    ),
)
