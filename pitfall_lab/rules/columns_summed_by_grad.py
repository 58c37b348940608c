"""PL524: ``autograd.grad`` of several columns with a gradient of ones is the derivative of their sum, and was used as
the derivative of each column.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.training import is_nothing
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LIMIT = 60
MATRIX = 2
COMBINING = (
    spellings("add", "div", "mul") | spellings("sub", exchanged=True) | {"l1_loss", "mse_loss", "smooth_l1_loss"}
)  # fmt: skip
"""Calls that combine the derivative with other numbers, column by column (names without underscores)."""


@dataclass(frozen=True, slots=True)
class ColumnsSummedByGrad:
    """``grad`` is the call (``Event``) of ``autograd.grad`` that differentiated all columns of the tensor ``outputs``
    at once.

    ``event`` is the call that combined the tensor ``slope``, which is the result of ``grad`` or computed from it, with
    the tensor ``columns``, which is ``outputs`` or computed from it. All three names are labels (``"t7"``).
    """

    grad: Event
    outputs: str
    event: Event
    slope: str
    columns: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``autograd.grad`` of a matrix with at least two columns, with respect to an input with
    one column, with ``grad_outputs`` of ones, whose result is later broadcast over these columns.
    """
    told = set()
    for grad in story.calls("grad"):
        given = [o.label for o in grad.operands if o.label is not None]
        if (
            story.span(grad.step) in told
            or len(given) < 3
            or grad.op != "torch.autograd.grad"
            or len(grad.results) != 1
        ):
            continue
        outputs, given_input, seed = given[:3]
        wide, narrow, ones = (story.shape(label, grad.step) or () for label in (outputs, given_input, seed))
        if (
            len(wide) != MATRIX
            or wide[1] < 2
            or tuple(narrow) != (wide[0], 1)
            or ones != wide
            or not is_ones(story, seed, grad.step)
        ):
            continue
        found = _stretched(story, grad, outputs)
        if found is not None:
            told.add(story.span(grad.step))
            yield _finding(story, found)


def is_ones(story: Story, label: str, step: int) -> bool:
    """Whether all values in the storage of the tensor ``label`` after ``step`` are one; if the trace does not have them
    all, whether ``ones`` or ``ones_like`` made the tensor.
    """
    record = story.tensor(label, step) or {}
    held = (story.record("storages", record.get("storage"), step) or {}).get("cells")
    made = story.event(record.get("born"))
    if held is None or isinstance(held, dict) or is_nothing(story, record.get("storage"), step):
        return made is not None and made.name in ("ones_like", "ones")
    return all(value == 1 for _, value in flat(held))


def _stretched(story: Story, grad: Event, outputs: str) -> ColumnsSummedByGrad | None:
    """Return the first call that broadcasts the derivative (or a result computed from it) against the columns of the
    outputs; None if there is none.
    """
    shape = story.shape(outputs, grad.step)
    columns, slopes = (
        [*_computed(story, outputs, shape), *_joined(story, outputs, shape)],
        _computed(story, grad.results[0], story.shape(grad.results[0], grad.step)),
    )
    for slope in slopes:
        for use in story.uses(slope):
            others = [o.label for o in use.operands if o.label is not None and o.label != slope]
            met = next((each for each in others if each in columns), None)
            if (
                met is not None
                and use.name.strip("_") in COMBINING
                and use.error is None
                and story.shape(slope, use.step) != shape
            ):
                return ColumnsSummedByGrad(grad, outputs, use, slope, met)
    return None


def _computed(story: Story, label: str, shape: tuple[int, ...] | None) -> list[str]:
    """Return the tensor ``label``, and the results of shape ``shape`` that were computed from it in calls whose
    operands have this shape or fewer than two dimensions.
    """
    found = [label]
    for here in found:
        for use in story.uses(here) if len(found) < LIMIT else ():
            shapes = [story.shape(o.label, use.step) for o in use.operands if o.label is not None]
            fits = (
                use.kind == "call"
                and use.error is None
                and all(each is None or each == shape or len(each) < MATRIX for each in shapes)
            )
            found += [
                each for each in use.results if fits and story.shape(each, use.step) == shape and each not in found
            ]
    return found


def _joined(story: Story, outputs: str, shape: tuple[int, ...] | None) -> list[str]:
    """Return the tensors of shape ``shape`` that were joined again from single columns of the outputs, or from tensors
    computed from these columns.
    """
    parts, found = [outputs], []
    for here in parts:
        for use in story.uses(here) if len(parts) < LIMIT else ():
            if use.kind != "call" or use.error is not None:
                continue
            joins = use.name in ("cat", "stack", "hstack", "column_stack")
            shapes = [(each, story.shape(each, use.step) or ()) for each in use.results]
            if joins:
                found += [each for each, own in shapes if own == shape and each not in found]
            else:
                parts += [
                    each for each, own in shapes if shape and own in ((*shape[:1], 1), shape[:1]) and each not in parts
                ]
    return found


def _finding(story: Story, found: ColumnsSummedByGrad) -> Finding:
    step, here, there = (
        found.grad.step,
        at_line(story, story.span(found.grad.step)),
        at_line(story, story.span(found.event.step)),
    )
    outputs, columns = expression(story, found.outputs, step), expression(story, found.columns, found.event.step)
    slope, count = expression(story, found.slope, found.event.step), (story.shape(found.outputs, step) or (0, 0))[1]
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} returns the derivative of the sum of the {count} columns of {outputs.en}, one "
            f"number for each row, and {there.en} combines {slope.en} with every column of {columns.en}.",
            zh=f"{here.zh}返回的是 {outputs.zh} 的 {count} 列之和的导数，每行一个数，"
            f"而{there.zh}把 {slope.zh} 与 {columns.zh} 的每一列相结合。",
        ),
        T(
            en="`torch.autograd.grad` multiplies each output with its entry in `grad_outputs` and adds them up. Ones "
            "for all columns give one derivative of their sum, which broadcasting then uses for each column. "
            "Differentiate one column at a time: `torch.autograd.grad(f[:, i], t, torch.ones_like(f[:, i]), "
            "create_graph=True)`, and join the results.",
            zh="`torch.autograd.grad` 把每个输出乘以 `grad_outputs` 中对应的项再相加。所有列都用 1，得到的是它们之和的"
            "一个导数，广播再把它用于每一列。请一次对一列求导：`torch.autograd.grad(f[:, i], t, torch.ones_like(f[:, "
            "i]), create_graph=True)`，再把结果合起来。",
        ),
        related=[
            story.related("used", found.event.step, T(en="the one column meets all columns", zh="一列在这里遇到所有列"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("columns", count, story.by(step)), Fact("outputs", found.outputs, story.by(step))],
    )


def _fixes(story: Story, found: ColumnsSummedByGrad) -> tuple[Fix, ...]:
    """Fixes that replace the call by one that differentiates column after column and joins the results.

    Empty if the program does not import torch, or the call has ``**`` or fewer than two positional arguments.
    """
    program, torch = story.program, torch_name(story.program)
    call = program.at(story.span(found.grad.step))
    if (
        not isinstance(call, ast.Call)
        or torch is None
        or len(call.args) < 2
        or any(word.arg is None for word in call.keywords)
    ):
        return ()
    outputs, given = (operand(program, each) for each in call.args[:2])
    others = "".join(
        f", {word.arg}={program.segment(word.value)}" for word in call.keywords if word.arg != "grad_outputs"
    )
    one = f"{program.segment(call.func)}(c, {given}, {torch}.ones_like(c){others})[0]"
    text = f"({torch}.cat([{one} for c in {outputs}.split(1, 1)], 1),)"
    title = T(en="Differentiate one column after the other, and join the results", zh="逐列求导，再把结果合起来")
    return unique(program.text, [Fix(title, program.replace((call, text)), meaning="later")])


RULE = Rule(
    code="PL524",
    name="columns-summed-by-grad",
    severity="warning",
    title=T(en="The derivative of a sum of columns was used for each column", zh="各列之和的导数被当作每一列的导数"),
    what=T(
        en="A program computes the derivative of a network with several outputs in one call, with ones for "
        "all of them, as physics-informed networks do, and then uses the result for each output. It is the "
        "derivative of their sum.",
        zh="程序用一次调用对有多个输出的网络求导，每个输出都取 1（物理信息神经网络常这样写），然后把结果用于每个输出。"
        "那其实是它们之和的导数。",
    ),
    why=T(
        en="A backward pass computes one product of a vector with the Jacobian. With ones it adds up the rows of the "
        "Jacobian of each example: for one output that is its derivative, for several it is the derivative of their "
        "sum. The result has the shape of the *input*, `(n, 1)`, so it fits beside outputs of shape `(n, k)` by "
        "broadcasting, and nothing is raised.",
        zh="一次反向传播计算的是一个向量与雅可比矩阵的乘积。取全 1 就把每个样本的雅可比矩阵各行相加：只有一个输出时，"
        "这就是它的导数；有多个输出时，则是它们之和的导数。结果的形状与*输入*相同，即 `(n, 1)`，与形状为 `(n, k)` 的输"
        "出可以广播，所以没有报错。",
    ),
    advice=T(
        en="differentiate the columns one by one on {line} and join the results, or use `torch.func.jacrev` "
        "with `torch.func.vmap`.",
        zh="在{line}逐列求导再合并结果，或者使用 `torch.func.jacrev` 和 `torch.func.vmap`。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
t = torch.linspace(0, 1, 5).unsqueeze(1).requires_grad_()
f = net(t)
(slope,) = torch.autograd.grad(f, t, torch.ones_like(f), create_graph=True)  # PL524
loss = (slope + f).square().mean()  # used
loss.backward()
print(net[0].weight.grad.sum())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
t = torch.linspace(0, 1, 5).unsqueeze(1).requires_grad_()
f = net(t)
columns = [torch.autograd.grad(c, t, torch.ones_like(c), create_graph=True)[0] for c in f.split(1, 1)]
loss = (torch.cat(columns, 1) + f).square().mean()
loss.backward()
print(net[0].weight.grad.sum())
""",
    find=find,
    traps=(
        Trap(
            "torch.autograd.grad(f, t, torch.ones_like(f), create_graph=True)",
            "torch.autograd.grad(f.sum(), t, create_graph=True)",
            T(
                en="The sum of all outputs: the same derivative of a sum, and the same column.",
                zh="所有输出之和：还是和的导数，还是那一列。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",),
)
