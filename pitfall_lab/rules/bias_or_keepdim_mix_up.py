"""PL402: a tensor with one value for each row was broadcast along the columns: a reduction dropped its dimension, or a
bias has its values along the wrong dimension.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat, snippet
from pitfall_lab.rules.signals.row_numbers import belongs_to_rows, looked_up, reduced_from_rows
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

Shape = tuple[int, ...]
REDUCTIONS = {"mean", "sum", "amax", "amin", "max", "min", "std", "var", "norm", "vector_norm", "logsumexp", "prod",
              "median", "nanmean", "nansum"}  # fmt: skip
"""Reductions that drop their dimension unless ``keepdim`` is set."""
ARITHMETIC = spellings("add", "mul", in_place=True) | spellings("div", "sub", in_place=True, exchanged=True)
PRODUCTS = spellings("matmul", "mm") | {"__rmatmul__", "addmm", "linear", "mv"}
"""Products to which a bias is added."""


@dataclass(frozen=True, slots=True)
class MixUp:
    """``event`` is the call (``Event``) that broadcast, or tried to, the tensor labelled ``small`` against the one
    labelled ``full`` along other dimensions than those that the numbers of ``small`` belong to.

    ``made`` is the call that computed ``small`` (or took its numbers out of a table), and ``axis`` (from 0) the
    dimension that ``small`` lacks: a reduction dropped it, or (1) a table was looked up with one index for each row.
    ``made`` and ``axis`` are None for a bias; ``axis`` is also None if a reduction's dimension is not known.
    """

    event: Event
    full: str
    small: str
    made: Event | None
    axis: int | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each source position and operation that combines a tensor with one value for each row as if
    there were one for each column, or with a bias along the wrong dimension.

    Each reduction that made such values is reported once. Calls that raised an error are left out unless it is about
    shapes.
    """
    reported = set[object]()
    for event in story.calls(*ARITHMETIC):
        labels = [o.label for o in event.operands if o.label is not None][:2]
        if (
            len(labels) < 2
            or (event.span, event.name) in reported
            or (event.error is not None and event.error.kind != "shape")
        ):
            continue
        for full, small in (labels, labels[::-1]):
            found = (
                _reduced(story, event, full, small)
                or _bias(story, event, full, small)
                or _looked_up(story, event, full, small)
            )
            if found is not None:
                reported.add((event.span, event.name))
                if found.made is None or found.made.name in REDUCTIONS or ("made", found.made.step) not in reported:
                    reported.add(("made", found.made.step) if found.made is not None else None)
                    yield _finding(story, found)
                break


def _reduced(story: Story, event: Event, full: str, small: str) -> MixUp | None:
    """Return the data of the finding if ``small`` is a reduction of ``full``, without ``keepdim``, over a known
    dimension other than 0; else None.

    A tensor of the shape of ``full`` may have been reduced instead. If the call raised no error, that tensor must be
    related to ``full`` (:func:`_related`) and ``full`` not be symmetric. If the shapes differ, :func:`_is_of_rows`
    decides.
    """
    made = story.event((story.tensor(small, event.step) or {}).get("born"))
    if made is None or made.name not in REDUCTIONS or not made.operands or small not in made.results:
        return None
    shape, source, size = (story.shape(label, event.step) for label in (full, made.operands[0].label, small))
    if shape is None or size is None or source is None or len(size) != len(shape) - 1:
        return None
    axis = _axis(made, len(source))
    if source != shape:
        return MixUp(event, full, small, made, axis) if axis == 1 and _is_of_rows(story, event, full, made) else None
    if (
        axis is None
        or axis == 0
        or shape[:axis] + shape[axis + 1 :] != size
        or shape == (*size, 1)
        or math.prod(shape) == 1
    ):
        return None
    if event.error is None and (not _related(story, event, full, made) or _is_symmetric(story, full, event.step)):
        return None
    return MixUp(event, full, small, made, axis)


def _is_of_rows(story: Story, event: Event, full: str, made: Event) -> bool:
    """Whether ``full`` is square, the call raised no error, and the tensor that ``made`` reduced has the same rows of a
    table as ``full``.
    """
    shape, source = story.shape(full, event.step) or (), made.operands[0].label
    square = event.error is None and bool(event.results) and len(shape) == 2 and shape[0] == shape[1] > 1
    return square and source is not None and reduced_from_rows(story, event, full, source)


def _axis(made: Event, dimensions: int) -> int | None:
    """Return the dimension that a reduction was given (``dim``), as an integer from 0 on; None if it was not given one
    integer.
    """
    for given in made.operands[1:]:
        if given.label is None and given.name in ("dim", "axis", "") and given.text.lstrip("-").isdigit():
            return int(given.text) % dimensions
    return None


def _related(story: Story, event: Event, full: str, made: Event) -> bool:
    """Whether ``full`` is the tensor that ``made`` reduced, was computed directly from it, or has an operand in common
    with it.
    """
    source = made.operands[0].label
    if full == source:
        return True
    makers = [story.event((story.tensor(label, event.step) or {}).get("born")) for label in (full, source)]
    given = [{o.label for o in maker.operands if o.label} if maker else set() for maker in makers]
    return source in given[0] or bool(given[0] & given[1])


def _is_symmetric(story: Story, label: str, step: int) -> bool:
    """Whether the matrix ``label`` is symmetric, so that it makes no difference along which dimension it was reduced;
    False if values are unknown, or the tensor does not have two dimensions.
    """
    record = story.tensor(label, step) or {}
    cells = flat((story.record("storages", record.get("storage"), step) or {}).get("cells"))
    shape = tuple(record.get("shape") or ())
    if len(shape) != 2 or len(cells) != math.prod(shape) or not all(isinstance(v, int | float) for _, v in cells):
        return False
    values, n = [value for _, value in cells], shape[0]
    return all(abs(values[i * n + j] - values[j * n + i]) <= 1e-6 for i in range(n) for j in range(n))


def _bias(story: Story, event: Event, full: str, small: str) -> MixUp | None:
    """Return the data of the finding if ``small``, a leaf that requires grad, was added to a matrix product along the
    wrong dimension; else None.

    That is: of shape ``(n, 1)`` to ``n`` columns, or of shape ``(n,)`` to ``n`` rows and one column.
    """
    made = story.event((story.tensor(full, event.step) or {}).get("born"))
    leaf = story.tensor(small, event.step) or {}
    trained = leaf.get("is_leaf") and leaf.get("requires_grad")
    if event.name not in ("add", "add_") or made is None or made.name not in PRODUCTS or not trained:
        return None
    shape, size = story.shape(full, event.step), story.shape(small, event.step)
    if shape is None or size is None or len(shape) != 2 or max(size, default=1) == 1:
        return None
    rows, columns = shape
    across = size == (columns, 1) and (event.error is not None or rows == 1)  # one number for each column, in a column
    along = size == (rows,) and columns == 1  # one number for each row, in a row
    return MixUp(event, full, small, None, None) if across or along else None


def _looked_up(story: Story, event: Event, full: str, small: str) -> MixUp | None:
    """Return the data of the finding if ``small`` was looked up in a table by an index with one entry for each row, as
    other uses of the index show.

    None if it was not, if the first and the last size of ``full`` differ, or if the call raised an error.
    """
    shape, size = story.shape(full, event.step) or (), story.shape(small, event.step)
    if (
        event.error is not None
        or not event.results
        or len(shape) < 2
        or size != shape[:1]
        or shape[0] != shape[-1]
        or shape[0] < 2
    ):
        return None
    made = looked_up(story, small, event.step)
    index = made.operands[1].label if made is not None else None
    if made is None or index is None or not belongs_to_rows(story, event, full, index):
        return None
    return MixUp(event, full, small, made, 1)


def _finding(story: Story, found: MixUp) -> Finding:
    event = found.event
    span, step = story.span(event.step), event.step
    full, small = (expression(story, label, step) for label in (found.full, found.small))
    shapes = [story.shape(label, step) or () for label in (found.full, found.small)]
    here, born = at_line(story, span), (story.tensor(found.small, step) or {}).get("born")
    raised = event.error is not None
    happens = T(en="they do not fit, and torch raises", zh="两者对不上，torch 报错") if raised else T(
        en="they fit by chance, and the result is wrong", zh="两者碰巧能对上，结果却是错的")  # fmt: skip
    if found.made is not None:
        code = snippet(story, story.span(found.made.step))
        message = T(
            en=f"{capital(here.en)} combines {full.en} with {small.en}, which has one number for each row, as if it "
            "had one for each column.",
            zh=f"{here.zh}把 {full.zh} 与 {small.zh} 一起运算：后者每行有一个数，却被当成每列有一个数。",
        )
        why = T(
            en=f"`{code}` removes axis {found.axis}: shape {shapes[0]} becomes {shapes[1]}. Broadcasting "
            f"aligns shapes from the right, so the result is aligned with the last axis of {full.en}: "
            f"{happens.en}. With `keepdim=True` that axis stays with length 1, and each number is combined "
            "with the row it was computed from.",
            zh=f"`{code}` 去掉了第 {found.axis} 维：从 {shapes[0]} 变成 {shapes[1]}。两者一起运算时，torch 从右边对齐"
            f"形状，于是这些数对齐到 {full.zh} 的最后一维：{happens.zh}。`keepdim=True` 会保留长度为 1 的这一维，每个"
            "数就会与它所来自的那一行一起运算。",
        )
        if found.made.name not in REDUCTIONS:
            why = _why_looked_up(code, shapes, full)
    else:
        message = T(
            en=f"{capital(here.en)} adds {small.en} of shape {shapes[1]} to {full.en} of shape {shapes[0]}: the "
            "numbers are along the wrong axis.",
            zh=f"{here.zh}把形状为 {shapes[1]} 的 {small.zh} 加到形状为 {shapes[0]} 的 {full.zh} 上："
            "这些数的方向放错了。",
        )
        why = T(
            en="Torch lines shapes up from the right. A column of shape (n, 1) gives each row one number, a row of "
            f"shape (n,) gives each column one. Here {happens.en}.",
            zh="torch 从右边对齐形状。形状为 (n, 1) 的列给每一行一个数，形状为 (n,) 的行给每一列一个"
            f"数。这里{happens.zh}。",
        )
    return RULE.finding(
        span,
        step,
        message,
        why,
        related=[
            story.related(
                "made",
                born,
                T(en=f"{small.en} gets its shape {shapes[1]} here", zh=f"{small.zh} 在这里得到形状 {shapes[1]}"),
            ),
            story.related("used", step, T(en=f"it meets shape {shapes[0]} here", zh=f"它在这里遇到形状 {shapes[0]}")),
        ],
        fixes=_fixes(story, found, shapes[0]),
        facts=[Fact("full", list(shapes[0]), story.by(step)), Fact("small", list(shapes[1]), story.by(step))],
        predicted=event.error is not None and story.predicted(event.error, step),
        severity="error" if raised else "warning",
    )


def _why_looked_up(code: str, shapes: list[Shape], full: T) -> T:
    return T(
        en=f"`{code}` takes one number for each row: elsewhere in the program its index is combined with the rows. "
        f"Shape {shapes[1]} lines up with the last axis of {full.en}, which is as long by chance, so each number "
        f"meets a column. As a column of shape {_column(shapes)} it meets its row.",
        zh=f"`{code}` 为每一行取一个数：它的索引在程序别处与各行并列。形状 {shapes[1]} 对齐到 {full.zh} 的最后一维，"
        f"后者碰巧一样长，于是每个数遇到的是一列。写成形状为 {_column(shapes)} 的列，它才会遇到自己的那一行。",
    )


def _column(shapes: list[Shape]) -> Shape:
    return (*shapes[1], *(1 for _ in shapes[0][1:]))


def _fixes(story: Story, found: MixUp, shape: Shape) -> tuple[Fix, ...]:
    program = story.program
    candidates: list[Fix] = []
    meaning: Literal["same", "shape"] = "same" if found.event.error is not None else "shape"
    reduction = program.at(story.span(found.made.step)) if found.made is not None and program.tree else None
    if isinstance(reduction, ast.Call) and found.made is not None and call_name(reduction) == found.made.name:
        arguments = [program.segment(a) for a in [*reduction.args, *reduction.keywords]]
        new = f"{program.segment(reduction.func)}({', '.join([*arguments, 'keepdim=True'])})"
        title = T(en="Keep the axis: `keepdim=True`", zh="保留这一维：`keepdim=True`")
        candidates.append(Fix(title, program.replace((reduction, new)), meaning=meaning))
    if found.made is not None and found.made.name not in REDUCTIONS:
        table = program.at(story.span(found.made.step))
        if isinstance(table, ast.Subscript):
            ones = ", 1" * (len(shape) - 1)
            new = f"{program.segment(table)}.{'unsqueeze(-1)' if len(shape) == 2 else f'view(-1{ones})'}"
            title = T(en=f"Make a column of it: `{new}`", zh=f"把它变成一列：`{new}`")
            candidates.append(Fix(title, program.replace((table, new)), meaning=meaning))
    node = program.at(story.span(found.event.step)) if program.tree else None
    name = story.name(found.small, found.event.step)
    used = (
        [n for n in ast.walk(node) if isinstance(n, ast.expr) and is_name(n) and program.segment(n) == name]
        if node
        else []
    )
    if used:
        turned = (
            f"unsqueeze({found.axis})" if found.axis is not None else "unsqueeze(1)" if shape[1] == 1 else "squeeze(1)"
        )
        new = f"{operand(program, used[0])}.{turned}"
        title = T(en=f"Turn it round where it is used: `{new}`", zh=f"在使用处转成正确的方向：`{new}`")
        candidates.append(Fix(title, program.replace((used[0], new)), meaning=meaning))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL402",
    name="bias-or-keepdim-mix-up",
    severity="warning",
    title=T(en="Numbers of the rows were combined with the columns", zh="每行的数与各列一起运算"),
    what=T(
        en="A program took one number from each row, a sum or a mean, and combined the rows with it, but the numbers "
        "met the columns instead. Where there are as many rows as columns no error is raised. Keep the axis: `x / "
        "x.sum(dim=1, keepdim=True)`.",
        zh="程序从每一行取出一个数（和或平均值），再与各行一起运算，但这些数遇到的却是各列。行数与列数相等时，谁也不会"
        "发现。请保留这一维：`x / x.sum(dim=1, keepdim=True)`。",
    ),
    why=T(
        en="To combine tensors of different shapes torch *broadcasts*: it lines the shapes up from the right and "
        "stretches axes of length 1. `x.sum(dim=1)` of a tensor of shape `(3, 3)` has shape `(3,)`: it is along "
        "the last axis, and the sum of row 0 divides column 0. With `keepdim=True` it has shape `(3, 1)`, a "
        "column, and the sum of row 0 divides row 0. Sums over the first axis need no `keepdim`. A bias follows "
        "the same rule: one number for each output belongs on the last axis, shape `(outputs,)`; as `(outputs, "
        "1)` it gives each *row* a number.",
        zh="形状不同的张量一起运算时，torch 会*广播*：从右边对齐形状，并拉伸长度为 1 的轴。形状为 `(3, 3)` 的张量，"
        "`x.sum(dim=1)` 的形状是 `(3,)`：它沿最后一维排列，第 0 列被除以第 0 行的和。加上 `keepdim=True`，形状就是 "
        "`(3, 1)`，即一列，第 0 行被除以第 0 行的和。沿第一维求和不需要 `keepdim`。偏置也遵循同样的规则：每个输出一个"
        "数，沿最后一维排列，形状是 `(outputs,)`；写成 `(outputs, 1)` 则是给每一*行*一个数。",
    ),
    advice=T(
        en="keep the axis that {made} reduces (`keepdim=True`), so that {used} combines each number with its own row.",
        zh="让{made}保留被归约的轴（`keepdim=True`），这样{used}会把每个数与它自己的行结合。",
    ),
    bad="""import torch

x = torch.tensor([[1.0, 2.0, 1.0], [6.0, 3.0, 3.0], [1.0, 1.0, 8.0]], requires_grad=True)
total = x.sum(dim=1)  # made
share = x / total  # PL402 used
loss = (share**2).sum()
loss.backward()
print(share.detach().sum(dim=1))
""",
    good="""import torch

x = torch.tensor([[1.0, 2.0, 1.0], [6.0, 3.0, 3.0], [1.0, 1.0, 8.0]], requires_grad=True)
total = x.sum(dim=1, keepdim=True)
share = x / total
loss = (share**2).sum()
loss.backward()
print(share.detach().sum(dim=1))
""",
    find=find,
    traps=(
        Trap(
            "total = x.sum(dim=1)",
            "total = x.sum(dim=0)",
            T(
                en="The columns now sum to one. The shapes always fit, but it is another question.",
                zh="现在是每一列的和为一。形状总是合适，但这是另一个问题。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.sum.html",
    ),
)
