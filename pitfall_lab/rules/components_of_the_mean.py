"""PL825: principal components are computed from a table whose columns were not centred, and describe the mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Counted, Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

DECOMPOSED = {"torch.linalg.svd": 1, "torch.svd": 0, "torch.Tensor.svd": 0}
"""Calls that decompose a table, each with the dimension of the vectors' elements in the matrix of vectors that it
returns last.
"""
SAME = {"detach", "clone", "contiguous", "float", "double", "to", "cpu", "real", "__getitem__", "narrow", "flip", "neg"}
"""Calls that vectors and values are followed through: they return all or some of them, unchanged or negated."""
TURNED = {"T", "mT", "t", "H", "mH"} | spellings("transpose")
TABLES = operations_that("matrix_product") | {"linear"}
DIVISIONS, PRODUCTS = spellings("div"), spellings("mul")
SQUARES = spellings("pow", "square")
INVERSES = {"reciprocal", "rsqrt", "diag_embed", "diag"}
"""Calls that use singular values to build another matrix."""
ADDED = {"sum", "cumsum"}
"""Calls that add up variances."""
PAIR, FURTHER = 2, 40


@dataclass(frozen=True, slots=True)
class TableFactors:
    """``made`` is the call (``Event``) that decomposed the table ``data``, or its product with itself.

    ``values`` are the singular values (then ``exponent`` is 2) or the eigenvalues (then it is 1): raised to
    ``exponent`` they are variances. ``vectors`` is the matrix of the vectors, whose elements are along the dimension
    ``axis``; ``left`` are the left singular vectors, None if there are none. All four are labels.
    """

    made: Event
    data: str
    values: str
    vectors: str
    axis: int
    exponent: int
    left: str | None = None


@dataclass(frozen=True, slots=True)
class Uncentred:
    """``made`` is the call (``Event``) that decomposed the table ``data`` (a label), or the table's product with
    itself; ``counted`` is the record of the table's values.

    ``used`` is the call that takes the result as principal components. ``is_share`` is True if that call computes
    shares of the variance, False if it projects the data.
    """

    counted: Counted
    data: str
    made: Event
    used: Event
    is_share: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that decomposes a table of many rows whose column means make up most of the sum
    of squares, where the result is taken as principal components: shares of the variance are computed from the values,
    or the table is projected on some of the vectors.

    Nothing if the matrix or its inverse is computed from the factors, or if data is projected on the left vectors.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step) if counted.kind == "uncentred" else None
        found = _uncentred(story, counted, event) if event is not None and event.error is None else None
        if found is not None:
            yield _finding(story, found)


def _uncentred(story: Story, counted: Counted, event: Event) -> Uncentred | None:
    """Return the data of the finding with the call that takes the factors of a table as principal components; None if
    no call does, or the program uses the factors for something else.
    """
    factors = _factors(story, event)
    if factors is None or _is_other(story, factors):
        return None
    share = _share(story, factors)
    used = share or _projection(story, factors)
    return Uncentred(counted, factors.data, factors.made, used, share is not None) if used is not None else None


def _factors(story: Story, event: Event) -> TableFactors | None:
    """Return the factors of the table that a call decomposes, or multiplies with its transpose before an ``eigh``; None
    if it does neither.
    """
    if event.op in DECOMPOSED and len(event.results) == 3 and event.operands[0].label is not None:
        left, values, vectors = event.results
        return TableFactors(event, event.operands[0].label, values, vectors, DECOMPOSED[event.op], 2, left)
    for made in story.calls("eigh") if len(event.operands) == PAIR else ():
        if made.error is None and len(made.results) == PAIR and _source(story, made) == event.results[0]:
            values, vectors = made.results
            return TableFactors(made, str(event.operands[1].label), values, vectors, 0, 1)
    return None


def _is_other(story: Story, factors: TableFactors) -> bool:
    """Whether the program does something else with the factors than look for principal components.

    That is: it computes the matrix or its inverse from them, or projects data on the left vectors.
    """
    if any(not is_over_elements for _, _, is_over_elements in _sums(story, factors.vectors, factors.axis)):
        return True
    left = _sums(story, factors.left, 0) if factors.left is not None else ()
    return any(is_over_elements for _, _, is_over_elements in left) or _is_inverted(story, factors.values)


def _source(story: Story, made: Event) -> str | None:
    """Return the label of the matrix that was decomposed by ``made``, before it was multiplied or divided by numbers;
    None after too many such calls.
    """
    label, step = made.operands[0].label, made.step
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        if event is None or event.name not in SCALING:
            return label
        numbers = [constant(story, o.label, o.text, event.step) for o in event.operands if not o.name]
        if len(numbers) != PAIR or not numbers[1]:
            return label
        label, step = event.operands[0].label, event.step
    return None


def _projection(story: Story, factors: TableFactors) -> Event | None:
    """Return the product of the data with some of the vectors, summed over their elements; None if there is none."""
    size = (story.shape(factors.vectors) or (0,))[0]
    for use, label, is_over_elements in _sums(story, factors.vectors, factors.axis):
        others = [same_numbers(story, o.label, use.step) for o in use.operands if o.label not in (None, label)]
        is_data = same_numbers(story, factors.data, use.step) in others
        if is_over_elements and is_data and min(story.shape(label, use.step) or (size,)) < size:
            return use
    return None


def _sums(story: Story, vectors: str, axis: int) -> Iterator[tuple[Event, str, bool]]:
    """Yield the matrix products of all or some of the vectors with other matrices; ``axis`` is the dimension of the
    vectors' elements.

    Each product comes with the label of the vectors in it, and whether it sums over the elements of the vectors rather
    than over the vectors.
    """
    pending, seen = [(vectors, axis)], {vectors}
    while pending and len(seen) < FURTHER:
        label, elements = pending.pop()
        for use in story.uses(label):
            given = [o.label for o in use.operands if o.label is not None]
            if use.error is not None or not use.results:
                continue
            if use.name in TABLES and len(given) >= PAIR:
                along = 1 if given[0] == label or use.name == "linear" else 0
                yield use, label, along == elements
            result, is_turned = use.results[0], use.name in TURNED
            is_followed = use.name in TURNED | SAME and given[0] == label and result not in seen
            if is_followed and len(story.shape(result, use.step) or ()) == PAIR:
                seen.add(result)
                pending.append((result, 1 - elements if is_turned else elements))


def _share(story: Story, factors: TableFactors) -> Event | None:
    """Return the call that divides variances by the sum of all of them; None if there is none."""
    for event in story.calls(*DIVISIONS):
        given = [o.label for o in event.operands if o.label is not None]
        if event.error is not None or len(given) != PAIR:
            continue
        one, other = (_power_of(story, label, event.step) for label in given)
        is_of_values = one[:PAIR] == other[:PAIR] == (factors.values, factors.exponent)
        if is_of_values and other[2]:
            return event
    return None


def _power_of(story: Story, label: str, step: int) -> tuple[str, int, bool]:
    """Return the label of the tensor that ``label`` was computed from by selecting, multiplying by numbers, squaring
    and adding up, the exponent, and whether ``sum`` is among the calls.

    The exponent is 0 after a power other than a square.
    """
    exponent, is_sum = 1, False
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given or given[0] == label:
            break
        if event.name in SQUARES or (event.name in PRODUCTS and given == [given[0]] * PAIR):
            exponent *= _exponent(event)
        elif event.name in ADDED:
            is_sum = is_sum or event.name == "sum"
        elif event.name not in SAME and not (event.name in SCALING and len(given) == 1):
            break
        label, step = given[0], event.step
    return label, exponent, is_sum


def _exponent(event: Event) -> int:
    text = next((o.text for o in event.operands if o.label is None), "2")
    return 2 if text in ("2", "2.0") else 0


def _is_inverted(story: Story, values: str) -> bool:
    """Whether something is divided by the values, or they become the diagonal of a matrix."""
    pending, seen = [values], {values}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            is_below = use.name in DIVISIONS and use.operands[-1].label == label
            if use.name in INVERSES or is_below:
                return True
            if use.name in SAME | SQUARES | {"sqrt"} and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return False


def _finding(story: Story, found: Uncentred) -> Finding:
    step, counted = found.counted.step, found.counted
    here, there = (at_line(story, story.span(each)) for each in (step, found.used.step))
    data, sizes = expression(story, found.data, step), "×".join(map(str, story.shape(found.data, step) or ()))
    share = f"{counted.numbers[0]:.0%}"
    what = T(en=f"decomposes {data.en} ({sizes}) into components", zh=f"把 {data.zh}（{sizes}）分解为成分")
    if found.made.step != step:
        what = T(
            en=f"multiplies {data.en} ({sizes}) with its transpose, the eigenvectors are taken for components",
            zh=f"把 {data.zh}（{sizes}）与它的转置相乘，乘积的特征向量被当作成分",
        )
    then = T(
        en=f"{there.en} computes shares of the variance" if found.is_share else f"{there.en} projects it on some",
        zh=f"{there.zh}由此计算方差的占比" if found.is_share else f"{there.zh}把它投影到其中几个上",
    )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} {what.en}, and {then.en}, but the means of its columns were not taken away: they "
            f"have {share} of the sum of squares.",
            zh=f"{here.zh}{what.zh}，{then.zh}，但没有减去各列的均值：均值占平方和的 {share}。",
        ),
        T(
            en="Principal components describe how the rows differ from their mean. Where the "
            "means outweigh the spread, the first component points almost to the mean, and the others have to be "
            f"perpendicular to it. Here {counted.count} of {counted.of} columns have a mean larger than their standard "
            "deviation. Take the mean of each column away first.",
            zh="主成分描述各行与均值的差别。均值大过离散程度时，第一个成分几乎指向均值，其余的又必须与它"
            f"垂直。这里 {counted.of} 列中有 {counted.count} 列的均值大于标准差。请先减去每一列的均值。",
        ),
        related=[
            story.related("used", found.used.step, T(en="they are taken for components", zh="在这里被当作主成分"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("share", counted.numbers[0], story.by(step)), Fact("columns", counted.count, story.by(step))],
    )


def _fixes(story: Story, found: Uncentred) -> tuple[Fix, ...]:
    """A fix that subtracts the column means before the line or, if the table is not a variable, in the call itself;
    empty if the program does not show the table.
    """
    program, event = story.program, story.events[found.counted.step]
    given = written_as(story, event, found.data)
    statement = program.statement(given)
    if given is None or statement is None:
        return ()
    text = program.segment(given)
    if isinstance(given, ast.Name):
        new = f"{text} = {text} - {text}.mean(0)"
        edits = program.insert_before(statement, new)
    elif event.op in DECOMPOSED:
        new = f"{operand(program, given)} - {operand(program, given)}.mean(0)"
        edits = program.replace((given, new))
    else:
        return ()
    title = T(en=f"Take the means away first: `{new}`", zh=f"先减去均值：`{new}`")
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL825",
    name="components-of-the-mean",
    severity="warning",
    title=T(en="Principal components of data that was not centred", zh="对没有中心化的数据求主成分"),
    what=T(
        en="A program decomposes a table of data to find its main directions of variation, without taking the mean of "
        "each column away. The first direction is then that of the mean, and it seems to explain nearly everything. "
        "Centre the table first: `data - data.mean(0)`.",
        zh="程序分解一张数据表，以求变化最大的方向，却没有减去每一列的均值。于是第一个方向就是均值的方向，看上去几乎解释了"
        "一切。请先中心化：`data - data.mean(0)`。",
    ),
    why=T(
        en="The squares of singular values add up to the sum of all squares, which is the variance only where the "
        "means are 0. `svd` and `eigh` are for any matrix, so they take nothing away; `torch.pca_lowrank` centres.",
        zh="奇异值的平方加起来是所有数的平方和，只有均值为 0 时才是方差。`svd` 和 `eigh` 用于任何矩阵，所以不减去什么；"
        "`torch.pca_lowrank` 会中心化。",
    ),
    bad="""import torch

torch.manual_seed(0)
data = torch.randn(100, 3) * torch.tensor([3.0, 2.0, 1.0]) + torch.tensor([0.0, 5.0, 20.0])
u, s, vh = torch.linalg.svd(data, full_matrices=False)  # PL825
print("explained variance", s**2 / (s**2).sum())
""",
    good="""import torch

torch.manual_seed(0)
data = torch.randn(100, 3) * torch.tensor([3.0, 2.0, 1.0]) + torch.tensor([0.0, 5.0, 20.0])
data = data - data.mean(0)
u, s, vh = torch.linalg.svd(data, full_matrices=False)
print("explained variance", s**2 / (s**2).sum())
""",
    find=find,
    traps=(
        Trap(
            "torch.linalg.svd(data,",
            "torch.linalg.svd(data / data.std(0),",
            T(
                en="Columns of one spread still have their means.",
                zh="离散程度相同的列仍然带着均值。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.pca_lowrank.html",
    ),
)
