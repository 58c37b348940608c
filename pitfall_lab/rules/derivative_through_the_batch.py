"""PL530: the derivative of a sum of rows was taken as the derivative of each row, but a batch norm computes each row
from all rows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.modes import LayerCall, Modes
from pitfall_lab.trace import Event, Span, T

LAYERS = {"linear", "matmul", "mm", "addmm", "conv1d", "conv2d", "conv3d", "embedding"}
"""Calls that use a weight, given after the input."""
ROWS = 2
"""The least number of dimensions, and of rows, of an input that has rows."""
BY_ROW = {"BatchNorm1d": "GroupNorm(1, {})", "BatchNorm2d": "GroupNorm(1, {})", "BatchNorm3d": "GroupNorm(1, {})"}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of ``autograd.grad`` that differentiates its first output with respect to the
    rows of its first input, and whose result requires grad, if the graph between them passes through a batch norm in
    training mode over as many rows.

    Nothing for inputs that are weights.
    """
    grads = [event for event in story.calls("grad") if event.op == "torch.autograd.grad" and event.error is None]
    passes = [each for each in Modes(story).passes if each.kind == "batch_norm" and each.active] if grads else []
    by_node = {(story.tensor(each.result, each.event.step) or {}).get("grad_fn"): each for each in passes}
    told = set[Span | None]()
    for grad in grads if by_node else ():
        met = _between(story, grad, by_node)
        if met is not None and story.span(grad.step) not in told:
            told.add(story.span(grad.step))
            yield _finding(story, grad, met)


def _between(story: Story, grad: Event, by_node: dict[str | None, LayerCall]) -> LayerCall | None:
    """Return the first batch norm in training mode between the first output of ``grad`` and its first input.

    None if there is none, if the input is a weight or has fewer than two rows, or if the derivative does not require
    grad itself.
    """
    given = [o.label for o in grad.operands if o.label is not None]
    if len(given) < 2 or not (story.tensor(next(iter(grad.results), None), grad.step) or {}).get("requires_grad"):
        return None
    start, end = (story.tensor(label, grad.step) or {} for label in given[:2])
    shape: tuple[int, ...] = tuple(end.get("shape") or ())
    if len(shape) < ROWS or shape[0] < ROWS or _is_weight(story, given[1], end):
        return None
    for node in story.behind(start.get("grad_fn")):
        found = by_node.get(node)
        if found is not None and shape[0] == (story.shape(found.result, found.event.step) or (0,))[0]:
            behind = set(story.behind(node))
            ends = (story.record("nodes", each) or {} for each in behind)
            if end.get("grad_fn") in behind or any(each.get("output") == given[1] for each in ends):
                return found
    return None


def _is_weight(story: Story, label: str, record: Record) -> bool:
    """Whether a tensor is a parameter, or was given to a layer as an operand after the first, such as its weight."""
    calls = (use for use in story.uses(label) if use.name in LAYERS)
    return record.get("kind") == "parameter" or any(label in [o.label for o in use.operands[1:]] for use in calls)


def _finding(story: Story, grad: Event, met: LayerCall) -> Finding:
    here, there = at_line(story, story.span(grad.step)), at_line(story, story.span(met.event.step))
    given = [o.label for o in grad.operands if o.label is not None]
    name, rows = expression(story, given[1], grad.step), (story.shape(given[1], grad.step) or (0,))[0]
    return RULE.finding(
        story.span(grad.step),
        grad.step,
        T(
            en=f"{capital(here.en)} differentiates a sum over the {rows} rows by {name.en}, to get the derivative of "
            f"each row; but {there.en} is a batch norm in training mode, where every row depends on all {rows}.",
            zh=f"{here.zh}对 {rows} 行之和关于 {name.zh} 求导，想得到每一行各自的导数；但{there.zh}是训练模式下的"
            f"批归一化，在那里每一行都依赖全部 {rows} 行。",
        ),
        T(
            en="The derivative of a sum is that of each row only while row i of the output depends on row i of the "
            "input alone. In training mode a batch norm subtracts the mean of the batch and divides by its standard "
            "deviation: the derivative of the sum has a path through both, and is no derivative of one row (behind a "
            "batch norm alone it is 0). Normalize each row by itself (`LayerNorm`, `GroupNorm`), or leave it out.",
            zh="只有当输出的第 i 行只依赖输入的第 i 行时，总和的导数才是每一行自己的导数。训练模式下，批归一化减去整批"
            "的平均值再除以整批的标准差：总和的导数也经过这两条路径，不再是某一行的导数（只有一个批归一化时它就是 0）。"
            "请对每一行单独归一化（`LayerNorm`、`GroupNorm`），或不用归一化。",
        ),
        related=[
            story.related("used", met.event.step, T(en="each row depends on all rows here", zh="这里每一行依赖所有行"))
        ],
        fixes=_fixes(story),
        facts=[Fact("rows", rows, story.by(grad.step)), Fact("node", met.event.op, story.by(met.event.step))],
    )


def _fixes(story: Story) -> tuple[Fix, ...]:
    """Fixes that normalize each row separately: all batch norms that the program creates are replaced by group norms of
    one group.
    """
    program = story.program
    made = [
        n for n in program.nodes
        if isinstance(n, ast.Call) and called(n) in BY_ROW and isinstance(n.func, ast.Attribute) and n.args
    ]  # fmt: skip
    changes = [
        (n, f"{program.segment(n.func.value)}.{BY_ROW[called(n)].format(program.segment(n.args[0]))}")
        for n in made
        if isinstance(n.func, ast.Attribute)
    ]
    title = T(en="Normalize each row by itself, with a group norm", zh="用组归一化对每一行单独归一化")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if changes else [])


RULE = Rule(
    code="PL530",
    name="derivative-through-the-batch",
    severity="warning",
    title=T(
        en="A derivative for each row went through the statistics of the whole batch",
        zh="每一行的导数经过了整个批次的统计量",
    ),
    what=T(
        en="A program differentiates the sum of a network's outputs by its inputs, which gives the derivative of each "
        "row as long as rows do not depend on each other. The network has a layer that computes every row from all "
        "rows of the batch, so what comes is no derivative of any row.",
        zh="程序对网络输出之和关于输入求导；只要各行互不依赖，得到的就是每一行的导数。可是网络里有一层用整个批次来计算"
        "每一行，于是得到的不是任何一行的导数。",
    ),
    why=T(
        en="`torch.autograd.grad(u.sum(), t)` adds, for row i of `t`, the derivatives of *all* outputs by it. Those of "
        "the other rows are 0 where the layers work row by row (linear, convolution, activation, layer norm), which "
        "is why one backward gives all rows. A batch norm in training mode computes mean and variance over the batch, "
        "and its backward goes through them. Equations with derivatives and gradient penalties are then trained on "
        "another quantity than the one they name, and in evaluation mode the network is another function.",
        zh="`torch.autograd.grad(u.sum(), t)` 对 `t` 的第 i 行，把*所有*输出对它的导数加起来。当各层逐行计算时（线性"
        "层、卷积、激活函数、层归一化），其他行的导数为 0，所以一次反向传播就给出所有行的导数。训练模式下的批归一化在"
        "整个批次上计算均值和方差，它的反向传播也经过它们。于是含导数的方程和梯度惩罚所训练的，不再是它们所写的那个量；而在评估"
        "模式下，网络又是另一个函数。",
    ),
    advice=T(
        en="take the batch norm out of the network that {line} differentiates, or normalize each row by itself.",
        zh="从{line}求导的网络里去掉批归一化，或对每一行单独归一化。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(1, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
)
t = torch.linspace(0, 1, 6).unsqueeze(1).requires_grad_()
u = net(t)  # used
(slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)  # PL530
loss = (slope + u).square().mean()
loss.backward()
print(net[0].weight.grad.sum())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(1, 8), torch.nn.GroupNorm(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
)
t = torch.linspace(0, 1, 6).unsqueeze(1).requires_grad_()
u = net(t)
(slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
loss = (slope + u).square().mean()
loss.backward()
print(net[0].weight.grad.sum())
""",
    find=find,
    traps=(
        Trap(
            "torch.autograd.grad(u.sum(), t, create_graph=True)",
            "torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)",
            T(en="The same sum, written with a gradient of ones.", zh="同样的总和，只是用全 1 的梯度写出来。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",),
)
