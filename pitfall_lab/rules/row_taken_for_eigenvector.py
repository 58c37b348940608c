"""PL823: a row of the matrix of eigenvectors is used as an eigenvector, and these are its columns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

VECTORS = {"eigh": 1, "eig": 1, "svd": 0}
"""Calls that return vectors in the columns of a matrix, each with the place of that matrix among the results."""
SAME = {"real", "detach", "clone", "contiguous", "float", "double", "to", "cpu", "abs", "__getitem__", "flip"}
"""Calls whose result, if it has the same shape, has its vectors in the same axis: perhaps in another order."""
TURNS = {"T", "mT", "t", "transpose", "unsqueeze", "view", "reshape", "contiguous", "real", "float", "double", "to",
         "clone", "detach", "H", "mH"}  # fmt: skip
"""Calls that eigenvectors are followed through, turned or not."""
PRODUCTS = spellings("matmul", "mm") | {"__rmatmul__", "dot", "mv"}
OUTER = {"outer", "ger"}
SIGNS = spellings("ge", "gt", "le", "lt") | {"sgn", "sign"}
INDEX = re.compile(r"\(?(-?\d+|(?=[^,)]*\d)-?\d*:-?\d*)(?:, (?::|\.\.\.))*\)?")
"""The text of a number or a slice on the first axis; a whole axis is no choice of rows."""
FURTHER, MATRIX, CLOSE = 40, 2, 1e-3


@dataclass(frozen=True, slots=True)
class RowTakenForEigenvector:
    """``taken`` is the call (``Event``) that took one or more rows out of the matrix labelled ``vectors``, which the
    call ``made`` returned, or a copy of it; ``used`` is the call that shows that the rows are used as vectors.

    ``index`` is the text of the index, empty where all rows were taken one after the other.
    """

    made: Event
    vectors: str
    taken: Event
    index: str
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes rows of a matrix of eigenvectors or singular vectors whose columns are
    the vectors, and uses them as vectors.

    Not where a row is known to be an eigenvector too.
    """
    told = set()
    for made in story.calls(*VECTORS):
        if made.error is not None or len(made.results) <= VECTORS[made.name] or not made.operands[0].label:
            continue
        for row in _rows(story, made):
            place = story.span(row.taken.step)
            numbers = _numbers(story, row)
            if place not in told and not (numbers is not None and _agree(*numbers)):
                told.add(place)
                yield _finding(story, row, numbers)


def _rows(story: Story, made: Event) -> Iterator[RowTakenForEigenvector]:
    """The rows that are taken from the vectors of a call, or from a copy of them, and used as vectors."""
    for label, _ in _copies(story, made.results[VECTORS[made.name]]):
        for use in story.uses(label):
            if use.error is not None or not use.results or use.operands[0].label != label:
                continue
            index = _index(use)
            used = _used(story, made, use, index) if index is not None else None
            if index is not None and used is not None:
                yield RowTakenForEigenvector(made, label, use, index, used)


def _copies(story: Story, label: str) -> list[tuple[str, int]]:
    """A square matrix and the matrices that have its columns, converted or in another order, each as its label and the
    step that made it (0 for the matrix itself); empty for other shapes.
    """
    shape = story.shape(label) or ()
    if len(shape) != MATRIX or shape[0] != shape[1] or shape[0] < MATRIX:
        return []
    found, pending = [(label, 0)], [label]
    while pending and len(found) < FURTHER:
        for use in story.uses(pending.pop()):
            text = use.operands[-1].text if use.operands else ""
            turns_columns = use.name not in ("__getitem__", "flip") or text.strip("()").startswith((":,", "1", "-1"))
            if use.name in SAME and turns_columns and use.results and story.shape(use.results[0]) == shape:
                new = use.results[0]
                if new not in [each for each, _ in found]:
                    found.append((new, use.step))
                    pending.append(new)
    return found


def _index(use: Event) -> str | None:
    """The number or the slice by which a call takes rows, ``""`` where it takes one after the other; else None."""
    if use.name == "unbind":
        return "" if len(use.operands) == 1 or use.operands[1].text == "0" else None
    if use.name == "select":
        return use.operands[2].text if len(use.operands) > MATRIX and use.operands[1].text == "0" else None
    if use.name != "__getitem__" or len(use.operands) != MATRIX or use.operands[1].label is not None:
        return None
    match = INDEX.fullmatch(use.operands[1].text)
    return match.group(1) if match else None


def _used(story: Story, made: Event, taken: Event, index: str) -> Event | None:
    """The call that shows that the rows are used as vectors; None if there is none.

    It takes the eigenvalues by the same index, multiplies with the matrix (or with what that was computed from), looks
    at the signs of one row, or joins it with the row of the other side of a singular value.
    """
    beside = _beside(story, made, taken, index) if made.name != "svd" else None
    if beside is not None:
        return beside
    behind = _behind(story, str(made.operands[0].label))
    pending, seen = list(taken.results), set(taken.results)
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            if (use.name in PRODUCTS and any(other in behind for other in others)) or _is_vector(
                story, made, use, index, others
            ):
                return use
            if use.name in TURNS and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _beside(story: Story, made: Event, taken: Event, index: str) -> Event | None:
    """The call that takes the eigenvalues by the same index, or one after the other on the same line; None if there is
    none.
    """
    values = [made.results[0], *(r for u in story.uses(made.results[0]) if u.name in SAME for r in u.results)]
    for use in (use for label in values for use in story.uses(label)):
        together = use.name == taken.name and story.span(use.step) == story.span(taken.step)
        if (_index(use) == index) if index else together:
            return use
    return None


def _is_vector(story: Story, made: Event, use: Event, index: str, others: list[str]) -> bool:
    """Whether a call uses the single row ``index`` as a vector: of an ``svd``, with the row of the other side of the
    same singular value; else, by the signs of its numbers.
    """
    if not index or ":" in index:
        return False
    if made.name == "svd":
        return use.name in OUTER and any(_is_row(story, made, each, index) for each in others)
    return use.name in SIGNS and not others


def _is_row(story: Story, made: Event, label: str, index: str) -> bool:
    """Whether a tensor is the row of an ``svd``'s other matrix with this index."""
    source = made_by(story, label, len(story.events))
    return source is not None and source.operands[0].label in made.results[1:] and _index(source) == index


def _behind(story: Story, label: str) -> set[str]:
    """A tensor and those that it was computed from."""
    seen, pending = {label}, [label]
    while pending and len(seen) < FURTHER:
        event = made_by(story, pending.pop(), len(story.events))
        for each in (o.label for o in event.operands if o.label is not None) if event is not None else ():
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return seen


def _numbers(story: Story, row: RowTakenForEigenvector) -> tuple[list[float], list[float]] | None:
    """The matrix times the first row that is taken, and that row times its eigenvalue; None where not all values are
    known.
    """
    if row.made.name == "svd" or (row.index and not row.index.lstrip("-").isdigit()):
        return None
    matrix = Elements(story, row.made.operands[0].label, row.made.step)
    vectors, values = (Elements(story, each, row.taken.step) for each in (row.vectors, row.made.results[0]))
    count = vectors.shape[0]
    place = int(row.index or 0) % count
    entry = [vectors.at((place, k)) for k in range(count)]
    table = [[matrix.at((i, k)) for k in range(count)] for i in range(count)]
    value = values.at((place,))
    if row.vectors != row.made.results[1] or value is None:
        return None
    known = [number for number in entry if number is not None]
    cells = [[number for number in line if number is not None] for line in table]
    if len(known) != count or any(len(line) != count for line in cells):
        return None
    left = [sum(a * b for a, b in zip(line, known, strict=True)) for line in cells]
    return left, [value * number for number in known]


def _agree(left: list[float], right: list[float]) -> bool:
    size = max(map(abs, [*left, *right]), default=0.0)
    return all(abs(a - b) <= CLOSE * size for a, b in zip(left, right, strict=True))


def _finding(story: Story, row: RowTakenForEigenvector, numbers: tuple[list[float], list[float]] | None) -> Finding:
    here, there, beside = (at_line(story, story.span(event.step)) for event in (row.taken, row.made, row.used))
    name = expression(story, row.vectors, row.taken.step)
    of = expression(story, row.made.operands[0].label, row.made.step)
    code = snippet(story, story.span(row.taken.step)) if row.index else f"{name.en.strip('`')}[0]"
    said = T(en="", zh="")
    if numbers is not None:
        left, right = (f"[{', '.join(map(number, each))}]" for each in numbers)
        said = T(
            en=f" Here {of.en} times `{code}` is {left}, and its eigenvalue times `{code}` is {right}: for an "
            "eigenvector both are the same.",
            zh=f"这里 {of.zh} 乘以 `{code}` 得 {left}，而特征值乘以 `{code}` 得 {right}：对特征向量来说两者应相同。",
        )
    what = T(en="left singular vectors", zh="左奇异向量") if row.made.name == "svd" else T("eigenvectors", "特征向量")
    return RULE.finding(
        story.span(row.taken.step),
        row.taken.step,
        T(
            en=f"{capital(here.en)} takes a row of {name.en}, but the {what.en} that {there.en} computed are its "
            "columns.",
            zh=f"{here.zh}取了 {name.zh} 的行，但{there.zh}算出的{what.zh}是它的列。",
        ),
        T(
            en=f"`{row.made.name}` puts vector i into column i, `[:, i]`. Row i has one number of each vector, so it "
            f"is none of them, and {beside.en} uses it as one.{said.en} The matrix is square: no shape tells the two "
            "apart.",
            zh=f"`{row.made.name}` 把第 i 个向量放在第 i 列，即 `[:, i]`。第 i 行由每个向量的一个数组成，并不是其中任何"
            f"一个，而{beside.zh}把它当作向量使用。{said.zh}矩阵是方的，所以形状看不出区别。",
        ),
        related=[
            story.related("made", row.made.step, T(en="the vectors are computed here", zh="向量在这里算出")),
            story.related("used", row.used.step, T(en="used as a vector here", zh="在这里当作向量使用")),
        ],
        fixes=_fixes(story, row),
        facts=[Fact("vectors", row.vectors, story.by(row.taken.step))],
    )


def _fixes(story: Story, row: RowTakenForEigenvector) -> tuple[Fix, ...]:
    """Fixes that take the column in place of the row, or the rows of the transposed matrix."""
    program = story.program
    node = program.at(story.span(row.taken.step))
    source: ast.expr | None = None
    text = ""
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        text = f"{program.segment(node.value)}[:, {program.segment(first)}]"
        text += "" if not isinstance(first, ast.Slice) else ".mT"
        source = node
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and row.taken.name == node.func.attr:
        source, text = node.func.value, f"{operand(program, node.func.value)}.mT"
    elif node is not None:
        name = story.name(row.vectors, row.taken.step)
        found = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute) and program.segment(n) == name]
        if found:
            source, text = found[0], f"{name}.mT"
    if source is None:
        return ()
    title = T(en=f"Take the column: `{text}`", zh=f"取列：`{text}`")
    return unique(program.text, [Fix(title, program.replace((source, text)), meaning="later")])


RULE = Rule(
    code="PL823",
    name="row-taken-for-eigenvector",
    severity="warning",
    title=T(en="A row of a matrix of eigenvectors is used as an eigenvector", zh="把特征向量矩阵的一行当作特征向量"),
    what=T(
        en="A program computes the directions that a table only stretches, which come side by side as the columns of "
        "another table, and then takes a row of that. A row has one number of each direction, and is none of them. "
        "Take a column: `vectors[:, i]`.",
        zh="程序求出一个表只会拉伸而不改变的那些方向，它们作为另一个表的各列并排给出，程序却取了那个表的一行。一行由每个"
        "方向的一个数组成，并不是其中任何一个方向。请取列：`vectors[:, i]`。",
    ),
    why=T(
        en="`torch.linalg.eigh(A)` and `eig` return values and a square matrix V with A V = V diag(values): column i "
        "belongs to value i. `torch.linalg.svd` returns U the same way, but Vh, whose rows are the vectors, already "
        "transposed. `V[i]` has the right length and the norm 1 where A is symmetric, so nothing looks wrong; but A "
        "times it is no multiple of it.",
        zh="`torch.linalg.eigh(A)` 和 `eig` 返回特征值和一个方阵 V，满足 A V = V diag(values)：第 i 列对应第 i 个特征"
        "值。`torch.linalg.svd` 返回的 U 也是这样，而 Vh 已经转置，它的行才是向量。当 A 对称时，`V[i]` 长度正确、范数"
        "为 1，看不出问题；但 A 乘以它并不是它的倍数。",
    ),
    bad="""import torch

cov = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 1.0]])
values, vectors = torch.linalg.eigh(cov)  # made
main = vectors[2]  # PL823
print(values[2] * main, cov @ main)  # used
""",
    good="""import torch

cov = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 1.0]])
values, vectors = torch.linalg.eigh(cov)
main = vectors[:, 2]
print(values[2] * main, cov @ main)
""",
    find=find,
    traps=(
        Trap(
            "main = vectors[2]",
            "main = vectors[2] / vectors[2].norm()",
            T(
                en="The row has the norm 1 already, and is still no eigenvector.",
                zh="该行的范数已是 1，仍不是特征向量。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html",
    ),
)
