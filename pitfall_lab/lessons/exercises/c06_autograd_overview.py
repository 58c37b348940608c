"""Chapter 6: what is recorded, and where the record ends."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import Exercise, Property, as_solved, equal, runs, true, unchanged
from pitfall_lab.trace import T

_NODE = '''\
def node(expression):
    """The name of an expression's grad_fn."""
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    made = eval(expression, {"torch": torch, "a": a, "b": b})
    return None if made.grad_fn is None else made.grad_fn.name()
'''

_NODES = {
    "a": None,
    "a * b": "MulBackward0",
    "(a * b).sum()": "SumBackward0",
    "a.exp() + b": "AddBackward0",
    "(a + b).detach()": None,
    "a.clone()": "CloneBackward0",
    "a > b": None,
    "torch.tensor(a.tolist())": None,
}


def _names(answers: dict[str, str | None]) -> str:
    rows = "".join(f'    "{expression}": {answer!r},\n' for expression, answer in answers.items()).replace("'", '"')
    return f"nodes = {{\n{rows}}}\n"


_GRAPHS = (
    "a, b, c = (torch.rand(2, requires_grad=True) for _ in range(3))\nk = torch.rand(2)\n"
    "results = [(a * b + a).sum(), a * k, (a * b).detach() + c, ((a + b) * (b + c)).exp().mean(), a.clone()]"
)

_WEIGHTED = "def weighted_loss(model, x, y):\n    predicted = model(x)\n"

EXERCISES = (
    Exercise(
        key="6.1",
        kind="predict",
        title=T(en="Who has a node?", zh="谁有节点？"),
        task=T(
            en=(
                "`a` and `b` are leaves that require grad. Write for each expression the name of its `grad_fn`, as "
                '`grad_fn.name()` gives it, or `None` (`"None"` will do as well), **before** you run the cell.'
            ),
            zh=(
                "`a` 和 `b` 是需要梯度的叶子。在运行单元格**之前**，写出每个表达式的 `grad_fn` 的名称（即 "
                '`grad_fn.name()` 给出的），或 `None`（写 `"None"` 也行）。'
            ),
        ),
        given=_names(dict.fromkeys(_NODES, "?")),
        inputs=_NODE,
        properties=tuple(Property(T(en=e, zh=e), equal(f"nodes[{e!r}]", f"node({e!r})", tell=False)) for e in _NODES),
        hint_for=(2, 1, 1, 1, 2, 1, 2, 2),
        hints=(
            T(
                en="A node is named after its operation: that of `*` is MulBackward0. Which operation of the "
                "expression comes last?",
                zh="节点以运算命名：`*` 的节点是 MulBackward0。表达式中最后的运算是哪个？",
            ),
            T(
                en="Ask of each result: was it made of `a` or `b` by an operation that has a derivative?",
                zh="对每个结果问：它是由有导数的运算从 `a` 或 `b` 得到的吗？",
            ),
            T(
                en="Four have none: a leaf, what was detached, a comparison, and what was made of plain numbers.",
                zh="有四个没有：叶子、被分离的、比较的结果，以及由普通数字构成的。",
            ),
        ),
        right=(
            _names(_NODES),
            f"nodes = dict({list(_NODES.items())!r})\n",
            f"nodes = dict(zip({list(_NODES)!r}, {list(_NODES.values())!r}))\n",
            "nodes = {}\n" + "".join(f"nodes[{key!r}] = {name!r}\n" for key, name in _NODES.items()),
        ),
        wrong=(
            _names(dict.fromkeys(_NODES, None)),
            _names({**_NODES, "a": "AccumulateGrad"}),
            _names({**_NODES, "a.exp() + b": "ExpBackward0"}),
            _names({**_NODES, "a > b": "GtBackward0"}),
            _names({**_NODES, "(a + b).detach()": "AddBackward0"}),
        ),
    ),
    Exercise(
        key="6.2",
        kind="write",
        title=T(en="Count the leaves", zh="数一数叶子"),
        task=T(
            en=(
                "Write `leaves(result)`, where `result` is a tensor with a `grad_fn`: how many different leaves can "
                "backward reach from it? Walk the graph. A leaf that is used twice counts once."
            ),
            zh=(
                "编写 `leaves(result)`，其中 `result` 是带 `grad_fn` 的张量：backward 从它能到达多少个不同的叶子？请遍"
                "历计算图。用了两次的叶子只算一次。"
            ),
        ),
        given="def leaves(result):\n    return len(result.grad_fn.next_functions)\n",
        inputs=_GRAPHS,
        drive="counts = [leaves(result) for result in results]",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="a product and a sum: 2", zh="积与和：2"), true("counts[0] == 2")),
            Property(T(en="one factor is a constant: 1", zh="一个因子是常量：1"), true("counts[1] == 1")),
            Property(
                T(en="behind detach there is nothing: 1", zh="detach 之后没有路：1"),
                true("counts[2] == 1"),
            ),
            Property(T(en="a deeper graph: 3", zh="更深的图：3"), true("counts[3] == 3")),
            Property(
                T(en="two leaves with the same numbers: 2", zh="两个数值相同的叶子：2"),
                as_solved(
                    "count",
                    inputs="a = torch.ones(1, requires_grad=True)\nb = a.detach().clone().requires_grad_()",
                    drive="count = leaves(a * b)",
                ),
            ),
            Property(
                T(en="a chain of thirty operations in which paths meet again", zh="三十个操作的链，其中的路会再次汇合"),
                as_solved(
                    "count",
                    drive="ways = [torch.rand(2, requires_grad=True) for _ in range(int(torch.randint(1, 9, ())))]\n"
                    "t = a\nfor n in range(30):\n    t = t * ways[n % len(ways)] + (t if n < 12 else c)\n"
                    "count = leaves(t)",
                ),
            ),
        ),
        hint_for=(1, 2, 1, 1, 3, 3, 3),
        hints=(
            T(
                en="Start at `result.grad_fn` and follow `next_functions`; some entries are `None`.",
                zh="从 `result.grad_fn` 出发，沿 `next_functions` 走；有些项是 `None`。",
            ),
            T(
                en="Only the nodes at the ends, *AccumulateGrad*, have an attribute `variable`: their leaf.",
                zh="只有末端的 *AccumulateGrad* 节点有 `variable` 属性，即它的叶子。",
            ),
            T(
                en="Keep a set of the nodes that you have seen, and visit none twice: paths meet again, and each "
                "meeting can double the number of paths.",
                zh="用集合记住已见过的节点，不要重复访问：图中的路会再次汇合，每汇合一次，路的数目就可能加倍。",
            ),
        ),
        right=(
            "def leaves(result):\n"
            "    seen, todo = set(), [result.grad_fn]\n"
            "    while todo:\n"
            "        node = todo.pop()\n"
            "        if node is not None and node not in seen:\n"
            "            seen.add(node)\n"
            "            todo += [n for n, _ in node.next_functions]\n"
            "    return sum(hasattr(node, 'variable') for node in seen)\n",
            (
                "def leaves(result):\n"
                "    seen = {}\n"
                "\n"
                "    def walk(node):\n"
                "        if node is None or node in seen:\n"
                "            return\n"
                "        seen[node] = 'AccumulateGrad' in node.name()\n"
                "        for behind, _ in node.next_functions:\n"
                "            walk(behind)\n"
                "\n"
                "    walk(result.grad_fn)\n"
                "    return sum(seen.values())\n"
            ),
        ),
        wrong=(
            "def leaves(result):\n    return 2\n",
            "def leaves(result):\n    return sum(node is not None for node, _ in result.grad_fn.next_functions)\n",
            (
                "def leaves(result):\n"
                "    def walk(node):\n"
                "        if node is None:\n"
                "            return 0\n"
                "        if hasattr(node, 'variable'):\n"
                "            return 1\n"
                "        return sum(walk(n) for n, _ in node.next_functions) if len(node.next_functions) < 9 else 0\n"
                "\n"
                "    return min(walk(result.grad_fn), 4)\n"
            ),
            # compares leaves by their numbers
            (
                "def leaves(result):\n"
                "    found, seen, todo = [], set(), [result.grad_fn]\n"
                "    while todo:\n"
                "        node = todo.pop()\n"
                "        if node is None or node in seen:\n"
                "            continue\n"
                "        seen.add(node)\n"
                "        todo += [n for n, _ in node.next_functions]\n"
                "        v = getattr(node, 'variable', None)\n"
                "        if v is not None and not any(torch.equal(v, other) for other in found):\n"
                "            found.append(v)\n"
                "    return len(found)\n"
            ),
        ),
    ),
    Exercise(
        key="6.3",
        kind="find-and-fix",
        title=T(en="One value leaves the graph", zh="有一个值离开了计算图"),
        task=T(
            en=(
                "`weighted_loss(model, x, y)` divides the mean squared error of `model(x)` by the mean absolute "
                "value of the predictions. Its value is right, its gradient is not: one value leaves the graph. "
                "Find it, and fix it."
            ),
            zh=(
                "`weighted_loss(model, x, y)` 用预测值的平均绝对值去除 `model(x)` 的均方误差。数值正确，梯度却不对：有"
                "一个值离开了计算图。请找到它并修好。"
            ),
        ),
        given=_WEIGHTED
        + "    size = predicted.abs().mean().item()\n    return (predicted - y).square().mean() / size\n",
        inputs="model = nn.Linear(3, 1)\n"
        "rows = int(torch.randint(3, 12, ()))\n"
        "x, y = torch.randn(rows, 3), torch.randn(rows, 1)",
        drive="loss = weighted_loss(model, x, y)\nloss.backward()",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the value is right", zh="数值正确"), as_solved("loss")),
            Property(T(en="the gradient of the weight is right", zh="权重的梯度正确"), as_solved("model.weight.grad")),
            Property(T(en="the gradient of the bias is right", zh="偏置的梯度正确"), as_solved("model.bias.grad")),
        ),
        hint_for=(0, 1, 2, 2),
        hints=(
            T(en="Which of the values is a number and not a tensor?", zh="哪个值是数而不是张量？"),
            T(
                en="A value that is taken out by `item()` or `detach()`, or copied by `torch.tensor(…)`, is a constant "
                "for backward.",
                zh="用 `item()` 或 `detach()` 取出的值，或用 `torch.tensor(…)` 复制的值，对 backward 来说是常量。",
            ),
            T(en="Leave `.item()` out; a 0-dim tensor divides as well.", zh="去掉 `.item()`；零维张量同样可以做除数。"),
        ),
        right=(
            _WEIGHTED + "    size = predicted.abs().mean()\n    return (predicted - y).square().mean() / size\n",
            _WEIGHTED + "    return F.mse_loss(predicted, y) * predicted.numel() / predicted.abs().sum()\n",
        ),
        wrong=(
            _WEIGHTED
            + (
                "    size = torch.tensor(predicted.abs().mean().item(), requires_grad=True)\n"
                "    return (predicted - y).square().mean() / size\n"
            ),
            _WEIGHTED
            + "    size = predicted.abs().mean().detach()\n    return (predicted - y).square().mean() / size\n",
            _WEIGHTED + "    return (predicted - y).square().mean()\n",
            (
                "def weighted_loss(model, x, y):\n"
                "    predicted = model(x).detach()\n"
                "    return (predicted - y).square().mean() / predicted.abs().mean()\n"
            ),
        ),
    ),
    Exercise(
        key="6.4",
        kind="make-it-fail",
        title=T(en="The right value, half of the gradient", zh="数值正确，梯度只有一半"),
        task=T(
            en=(
                "Write `square(x)` with the right value and a wrong gradient: it returns x², element by element, "
                "and the gradient that arrives at `x` is half of what it should be: x instead of 2x, times what "
                "comes in. No error, no warning; `x` itself stays as it is, and anything else computed from `x` "
                "must keep its correct gradient."
            ),
            zh=(
                "编写数值正确、梯度错误的 `square(x)`：逐元素返回 x²，而到达 `x` 的梯度只有应有的一半：是 x 而不是 "
                "2x，再乘以传入的梯度。没有错误，也没有警告；`x` 本身不变，由它算出的其他结果仍有正确的梯度。"
            ),
        ),
        given="def square(x):\n    return x * x\n",
        inputs="x = torch.randn(5, requires_grad=True)",
        drive="result = square(x)\nresult.sum().backward()",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(T(en="the value is x²", zh="数值是 x²"), as_solved("result.detach()")),
            Property(
                T(en="the gradient is x, half of what it should be", zh="梯度是 x，只有应有的一半"), as_solved("x.grad")
            ),
            Property(
                T(
                    en="the gradient of a matrix, with a weight for each element, is half of what it should be",
                    zh="矩阵的梯度（每个元素有一个权重）也只有应有的一半",
                ),
                as_solved(
                    "x.grad",
                    inputs="x = torch.randn(2, 3, requires_grad=True)\nweights = torch.randn(2, 3)",
                    drive="square(x).backward(weights)",
                ),
            ),
            Property(T(en="x itself is unchanged", zh="x 本身没有改变"), unchanged("x")),
            Property(
                T(en="another result of x has its right gradient", zh="x 的另一个结果仍有正确的梯度"),
                as_solved("x.grad", drive="square(x)\n(x ** 3).sum().backward()"),
            ),
        ),
        hints=(
            T(
                en="The derivative of x · x has two parts, one for each factor.",
                zh="x · x 的导数有两部分，每个因子一份。",
            ),
            T(
                en="What happens to the gradient if one of the factors is a constant?",
                zh="如果其中一个因子是常量，梯度会怎样？",
            ),
            T(en="`x.detach()` has the same value and no history.", zh="`x.detach()` 数值相同，但没有历史。"),
        ),
        right=(
            "def square(x):\n    return x * x.detach()\n",
            "def square(x):\n    return (x ** 2 + (x ** 2).detach()) / 2\n",
            "def square(x):\n    with torch.no_grad():\n        factor = x.clone()\n    return factor * x\n",
            "def square(x):\n    return x * torch.tensor(x.tolist())\n",
            "def square(x):\n    result = x * x\n    result.register_hook(lambda g: g / 2)\n    return result\n",
        ),
        wrong=(
            "def square(x):\n    return x.detach() * x.detach()\n",
            "def square(x):\n    return x * x / 2\n",
            "def square(x):\n    return torch.tensor((x * x).tolist(), requires_grad=True)\n",
            "def square(x):\n    return x * x.clone()\n",
            "def square(x):\n    x.register_hook(lambda g: g / 2)\n    return x * x\n",
            "def square(x):\n    with torch.no_grad():\n        return x * x\n",
            # the right value and half of the gradient, of another x
            "def square(x):\n    with torch.no_grad():\n        x.mul_(2)\n    return x * x / 4\n",
        ),
    ),
)
