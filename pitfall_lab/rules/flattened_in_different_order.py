"""PL416: predictions and targets of several sequences were flattened in different orders: one time first, the other
example first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.axes import ELEMENTWISE, LAYERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

LOSSES = (
    operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss"}
)  # fmt: skip
"""The losses that predictions and targets are given to."""
JOINS = {"reshape", "view", "flatten"}
"""Calls that can flatten two dimensions into one."""
ON_THE_WAY = (
    ELEMENTWISE | LAYERS | {"log_softmax", "softmax", "squeeze", "unsqueeze", "long", "mul", "div", "view", "reshape"}
)
"""Calls between the flattening and the loss that keep the order of the rows."""
HOPS = 10


@dataclass(frozen=True, slots=True)
class FlattenedInDifferentOrder:
    """How one side of a loss, the predictions or the targets, was flattened: ``event`` is the call (``Event``) that
    joined the first two dimensions of the tensor ``source`` (a label), of sizes ``sizes``, into one.

    A finding is about two such records, one for each side, with swapped ``sizes``.
    """

    event: Event
    source: str
    sizes: tuple[int, int]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a loss whose two sides had their first two dimensions in opposite orders when
    these were flattened into one.

    Only for dimensions of different sizes; with equal ones the shapes do not show the order.
    """
    reported = set()
    for loss in story.calls(*LOSSES):
        labels = [o.label for o in loss.operands[:2] if o.label is not None]
        place = story.span(loss.step)
        if len(labels) == 2 and loss.error is None and place not in reported:
            one, other = (_joined(story, label, loss.step) for label in labels)
            if (
                one is not None
                and other is not None
                and one.sizes == other.sizes[::-1]
                and one.sizes[0] != one.sizes[1]
            ):
                reported.add(place)
                yield _finding(story, one, other, loss)


def _joined(story: Story, label: str, step: int) -> FlattenedInDifferentOrder | None:
    """Return how the first two dimensions were flattened into one on the way to ``label``; None if they were not, or if
    a call in between may have mixed the rows.
    """
    rows = (story.shape(label, step) or (0,))[:1]
    for _ in range(HOPS):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if (
            event is None
            or label not in event.results
            or not event.operands
            or event.operands[0].label in (None, label)
        ):
            return None
        source = str(event.operands[0].label)
        shape = story.shape(source, event.step) or ()
        if event.name in JOINS and len(shape) > 1 and shape[:1] != rows and (shape[0] * shape[1],) == rows:
            return FlattenedInDifferentOrder(event, source, (shape[0], shape[1]))
        if event.name not in ON_THE_WAY or shape[:1] != rows:
            return None
        label, step = source, event.step
    return None


def _finding(story: Story, one: FlattenedInDifferentOrder, other: FlattenedInDifferentOrder, loss: Event) -> Finding:
    span = story.span(one.event.step)
    there = at_line(story, story.span(loss.step))
    x, y = (expression(story, each.source, each.event.step) for each in (one, other))
    (a, b), (c, d) = one.sizes, other.sizes
    return RULE.finding(
        span,
        one.event.step,
        T(
            en=f"{capital(there.en)} compares predictions with the targets of other places: {x.en} is flattened as "
            f"{a}×{b}, the target as {c}×{d}.",
            zh=f"{there.zh}把预测与别处的目标相比：{x.zh} 按 {a}×{b} 展平，目标按 {c}×{d} 展平。",
        ),
        T(
            en=f"Making a tensor flat reads it axis by axis. In {x.en} the first axis has {a} entries and in {y.en} "
            f"it has {c}, so one list goes through all examples of a time step, the other through all steps of an "
            "example. Both have the same length, so nothing is raised. Swap the first two axes of one of them before.",
            zh=f"展平时按轴的先后读取。{x.zh} 的第一个轴有 {a} 项，{y.zh} 的有 {c} 项，所以一个列表先走完某一时间步的"
            "所有样本，另一个先走完某个样本的所有时间步。两者长度相同，因此不会报错。请先交换其中一个的前两个轴。",
        ),
        related=[
            story.related("operand", other.event.step, T(en="the targets are flattened here", zh="目标在这里展平")),
            story.related("used", loss.step, T(en="compared row by row here", zh="在这里逐行比较")),
        ],
        fixes=_fixes(story, one),
        facts=[
            Fact("sizes", list(one.sizes), story.by(one.event.step)),
            Fact("target", list(other.sizes), story.by(other.event.step)),
            *pairs(
                T(en=f"place in {x.en}", zh=f"{x.zh} 中的位置"),
                T(en=f"place in {y.en}", zh=f"{y.zh} 中的位置"),
                [(list(divmod(at, b)), list(divmod(at, d)), list(divmod(at, b))[::-1]) for at in range(a * b)],
            ),
        ],
    )


def _fixes(story: Story, one: FlattenedInDifferentOrder) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(one.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in JOINS:
        return ()
    arguments = ", ".join(program.segment(each) for each in [*node.args, *node.keywords])
    method = "flatten" if node.func.attr == "flatten" else "reshape"
    new = f"{operand(program, node.func.value)}.transpose(0, 1).{method}({arguments})"
    title = T(en="Swap the two axes before: `.transpose(0, 1)`", zh="先交换两个轴：`.transpose(0, 1)`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="shape")])


RULE = Rule(
    code="PL416",
    name="flattened-in-different-order",
    severity="warning",
    title=T(en="Predictions and targets are flattened in different orders", zh="预测与目标以不同的次序展平"),
    what=T(
        en="A program turns a table of predictions and a table of targets into two long lists, one of them step by "
        "step and the other example by example, and compares the lists. Bring both tables into the same order first, "
        "with `transpose(0, 1)`.",
        zh="程序把预测表与目标表各变成一个长列表，一个按时间步、另一个按样本，然后逐项比较。请先用 `transpose(0, 1)` "
        "让两张表的次序一致。",
    ),
    why=T(
        en="Recurrent layers return `(time, batch, features)` unless they are made with `batch_first=True`, data "
        "usually come as `(batch, time)`. `reshape(-1, features)` keeps the elements in the order in which they are "
        "stored and only forgets where an axis ended, so the axis that came first is walked through last. Two lists "
        "of the same length always fit a loss, whatever belongs to what.",
        zh="循环层默认返回 `(时间, 批次, 特征)`（除非设置 `batch_first=True`），而数据通常是 `(批次, 时间)`。"
        "`reshape(-1, 特征)` 保持元素原有的排列，只是忘掉各轴的边界，所以排在前面的轴最后才走完。两个等长的列表总能放"
        "进损失，不管谁对应谁。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
rnn, head = torch.nn.RNN(2, 4), torch.nn.Linear(4, 3)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 2, 2)  # five steps of two examples
y = torch.randint(0, 3, (2, 5))
for _ in range(2):
    out = head(rnn(x)[0])
    logits = out.reshape(-1, 3)  # PL416
    loss = F.cross_entropy(logits, y.reshape(-1))  # operand used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
rnn, head = torch.nn.RNN(2, 4), torch.nn.Linear(4, 3)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(5, 2, 2)  # five steps of two examples
y = torch.randint(0, 3, (2, 5))
for _ in range(2):
    out = head(rnn(x)[0])
    logits = out.transpose(0, 1).reshape(-1, 3)
    loss = F.cross_entropy(logits, y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "out.reshape(-1, 3)",
            "out.reshape(2, 5, 3).reshape(-1, 3)",
            T(
                en="`reshape` to the other sizes moves no number: it only draws the borders elsewhere.",
                zh="用 `reshape` 换成另一种大小并不移动任何数，只是把边界画在别处。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.reshape.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.transpose.html",
    ),
)
