"""PL842: a product sums over the axis that numbers singular vectors, or eigenvectors, in place of the axis of their
elements.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

NUMBER, ELEMENT = "number", "element"
"""What an axis runs over: the vectors, or the elements of one. A first axis of several matrices is left out."""
Axes = tuple[str, ...]
FACTORS: dict[str, tuple[Axes, ...]] = {
    "torch.linalg.svd": ((ELEMENT, NUMBER), (NUMBER,), (NUMBER, ELEMENT)),
    "torch.svd": ((ELEMENT, NUMBER), (NUMBER,), (ELEMENT, NUMBER)),
    "torch.linalg.eigh": ((NUMBER,), (ELEMENT, NUMBER)),
}
"""Calls that take a matrix apart, with the axes of their results."""
SAME = {"detach", "clone", "contiguous", "float", "double", "to", "cpu", "conj", "neg", "abs", "sqrt", "reciprocal"}
"""Calls that singular vectors and values are followed through, each at its place."""
TURNED = {"T", "mT", "t", "H", "mH"}
SCALED = spellings("div", "mul")
PRODUCTS = operations_that("matrix_product")
MATRIX, FURTHER, BEHIND = 2, 200, 60


@dataclass(frozen=True, slots=True)
class Crossed:
    """``product`` is the call (``Event``) that sums over the axis of the tensor ``vectors`` that numbers the vectors
    which the call ``made`` computed, against an axis of the tensor ``data`` that runs over elements. Both are labels.

    ``taken`` is the call that chose some of the vectors before; None where all were used.
    """

    made: Event
    product: Event
    vectors: str
    data: str
    taken: Event | None
    both: bool
    """Whether the other side comes from the same call."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies singular vectors or eigenvectors of a matrix with each other, or
    with data of the same source, so that the sum runs over the axis that numbers the vectors on one side and over
    elements on the other.

    Where some of the vectors were chosen before, it is for the line that chose them.
    """
    reported = set()
    for made in story.calls("svd", "eigh"):
        factors = FACTORS.get(made.op)
        shape = story.shape(made.operands[0].label, made.step) if made.operands else None
        if factors is None or made.error is not None or len(made.results) != len(factors):
            continue
        if len(shape or ()) not in (MATRIX, MATRIX + 1):
            continue
        for crossed in _crossed(story, made, factors):
            place = story.span((crossed.taken or crossed.product).step)
            if place not in reported:
                reported.add(place)
                yield _finding(story, crossed)


def _crossed(story: Story, made: Event, factors: tuple[Axes, ...]) -> Iterator[Crossed]:
    """Yield the products of one call's vectors with data, or with each other, in which the summed axis numbers the
    vectors on one side and runs over elements on the other.
    """
    known, seen = _Known(dict(zip(made.results, factors, strict=True)), {}, list(made.results)), set[int]()
    axes, taken = known.axes, known.taken
    source = str(made.operands[0].label)
    while known.pending and len(seen) < FURTHER:
        label = known.pending.pop(0)
        for use in story.uses(label):
            if use.step in seen or use.step <= made.step or use.error is not None or not use.results:
                continue
            found = _after(story, use, label, axes) or ()
            if use.name in PRODUCTS:
                one, other = (o.label or "" for o in use.operands[:2])
                sides = _axes(story, use, one, axes, source), _axes(story, use, other, axes, source)
                if sides[0] is None or sides[1] is None:
                    continue  # perhaps known later
                found = (*sides[0][:-1], *sides[1][:-2], *sides[1][-1:][: len(sides[1]) - 1])
                summed = sides[0][-1], sides[1][-2:][0]
                if set(summed) == {NUMBER, ELEMENT}:
                    vectors, data = (one, other) if summed[0] == NUMBER else (other, one)
                    if vectors in axes and _has_all_rows(vectors, taken):
                        yield Crossed(made, use, vectors, data, taken.get(vectors), both=data in axes)
                    found = ()
            seen.add(use.step)
            known.keep(story, use, label, found)


@dataclass(slots=True)
class _Known:
    """What the axes of tensors run over, by label; the calls that chose some rows or columns of the vectors for a
    tensor, by its label; and the labels whose uses are still to be looked at.
    """

    axes: dict[str, Axes]
    taken: dict[str, Event]
    pending: list[str]

    def keep(self, story: Story, use: Event, label: str, found: Axes) -> None:
        """Store ``found``, what each axis of the result of ``use`` runs over, and that its uses are still to be looked
        at; do nothing if ``found`` is empty or of another length than the result's shape, or if the result is known.

        ``label`` is the operand that ``use`` made the result from. Also stored is which call chose rows or columns of
        the vectors: ``use`` itself if it is an index, else the one stored for ``label``.
        """
        result = use.results[0]
        lead = len(story.shape(label, use.step) or ()) - len(self.axes[label])
        if not found or result in self.axes or len(found) + lead != len(story.shape(result, use.step) or ()):
            return
        self.axes[result] = found
        self.pending.append(result)
        if use.name == "__getitem__" and NUMBER in self.axes[label]:
            self.taken[result] = use
        elif label in self.taken:
            self.taken[result] = self.taken[label]


def _has_all_rows(label: str, taken: dict[str, Event]) -> bool:
    """False if ``label`` consists of rows that were chosen by their numbers: another rule reports these (PL823)."""
    chosen = taken.get(label)
    return chosen is None or chosen.operands[1].text.strip("()").startswith((":,", "..., "))


def _axes(story: Story, use: Event, label: str, axes: dict[str, Axes], source: str) -> Axes | None:
    """What the axes of an operand run over: known for the factors; those of data that has one source with the matrix
    run over elements. None for what is not known.
    """
    if label in axes:
        return axes[label]
    shape = story.shape(label, use.step)
    if not shape:
        return None
    behind = _sources(story, label)
    if not behind & _sources(story, source) or any(each in axes for each in _behind(story, label)):
        return None
    return (ELEMENT,) * min(len(shape), MATRIX)


def _behind(story: Story, label: str) -> frozenset[str]:
    """A tensor and those that it was computed from, at most ``BEHIND``."""
    seen, pending = {label}, [label]
    while pending and len(seen) < BEHIND:
        event = made_by(story, pending.pop(0), len(story.events))
        for each in (o.label for o in event.operands if o.label is not None) if event is not None else ():
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return frozenset(seen)


def _sources(story: Story, label: str) -> frozenset[str]:
    """The matrices that a tensor was computed from, itself included: what has fewer axes may be a mean or a factor."""
    return frozenset(each for each in _behind(story, label) if len(story.shape(each) or ()) >= MATRIX)


def _after(story: Story, use: Event, label: str, axes: dict[str, Axes]) -> Axes | None:
    """What the axes of a call's result run over, if it converts, transposes, scales or slices the factor ``label``;
    None for other calls.
    """
    own = axes[label]
    if not use.operands or use.operands[0].label != label:
        return axes.get(label) if use.name in SCALED and _is_same(story, use, label) else None
    if use.name in SAME:
        return own
    lead = len(story.shape(label, use.step) or ()) - len(own)
    if (use.name in TURNED and (not lead or use.name in ("mT", "mH"))) or _is_turned(use, own, lead):
        return own[::-1]
    if use.name in SCALED:
        return own if _is_same(story, use, label) else None
    if use.name in (("diag", "diag_embed") if not lead else ("diag_embed",)) and len(own) == 1:
        return own * MATRIX
    if use.name == "__getitem__" and not lead and len(use.operands) == MATRIX and use.operands[1].label is None:
        return _cut(own, use.operands[1].text)
    return None


def _is_turned(use: Event, own: Axes, lead: int) -> bool:
    """Whether a call exchanges the two axes of a matrix, or of each of several matrices."""
    if use.name not in spellings("transpose") or len(own) != MATRIX:
        return False
    axes = [whole(operand.text) for operand in use.operands[1:]]
    return {axis % (MATRIX + lead) for axis in axes if axis is not None} == {lead, lead + 1}


def _is_same(story: Story, use: Event, label: str) -> bool:
    return story.shape(use.results[0], use.step) == story.shape(label, use.step)


def _cut(own: Axes, text: str) -> Axes | None:
    """The axes that remain when an index of numbers and slices is taken; None for another index."""
    parts = [part.strip() for part in text.strip("()").split(",") if part.strip()]
    if parts[:1] == ["..."]:
        parts = [":"] * (len(own) - len(parts) + 1) + parts[1:]
    if len(parts) > len(own) or not all(set(part) <= set("-0123456789:") for part in parts):
        return None
    parts += [":"] * (len(own) - len(parts))
    return tuple(axis for axis, part in zip(own, parts, strict=True) if ":" in part)


def _finding(story: Story, found: Crossed) -> Finding:
    made, product = found.made, found.product
    primary = found.taken or product
    here, there, then = (at_line(story, story.span(event.step)) for event in (primary, made, product))
    rows = made.op == "torch.linalg.svd" and _starts(story, made, found.vectors) == made.results[2]
    kind = (
        T(en="eigenvectors", zh="特征向量") if made.name == "eigh"
        else T(en="right singular vectors", zh="右奇异向量") if rows
        else T(en="singular vectors", zh="奇异向量")
    )  # fmt: skip
    vectors = expression(story, found.vectors, product.step)
    data = expression(story, found.data, product.step)
    shape = story.shape(found.vectors, product.step) or ()
    where = T(en="row", zh="行") if rows else T(en="column", zh="列")
    code = snippet(story, story.span(primary.step))
    taken = (
        T(
            en=f"{capital(here.en)} takes columns (`{code}`) of the {kind.en} that {there.en} computed, but each of "
            f"these is a row there, and {then.en} multiplies {data.en} with the columns.",
            zh=f"{here.zh}取了{there.zh}算出的{kind.zh}的列（`{code}`），但它们每一个都是一行，而{then.zh}用这些列去乘 "
            f"{data.zh}。",
        )
        if found.taken is not None and rows
        else T(
            en=f"{capital(then.en)} multiplies {data.en} with the {kind.en} of {there.en} over the wrong axis: it adds "
            f"up over the {max(shape[-MATRIX:], default=0)} vectors, not over the elements of each.",
            zh=f"{then.zh}把 {data.zh} 与{there.zh}的{kind.zh}相乘时用错了轴：它对 "
            f"{max(shape[-MATRIX:], default=0)} 个向量求和，而不是对每个向量的元素求和。",
        )
    )
    if found.both:
        length = (story.shape(found.data, product.step) or (0, 0))[-MATRIX]
        taken = T(
            en=f"{capital(then.en)} multiplies {data.en} with {vectors.en}, both from the factors of {there.en}, over "
            f"axes that do not belong together: the {length} elements of one vector meet the numbers of different "
            "vectors.",
            zh=f"{then.zh}把 {data.zh} 与 {vectors.zh} 相乘，两者都来自{there.zh}的分解，但相乘的两个轴并不对应：一个"
            f"向量的 {length} 个元素遇到的是各个不同向量的数。",
        )
    return RULE.finding(
        story.span(primary.step),
        primary.step,
        taken,
        T(
            en=f"`{made.op}` puts vector i into {where.en} i of its matrix. The other way round each line has one "
            f"number of every vector, and is none of them. The matrix is square (its last vectors fill it up), so the "
            f"lengths fit in both ways, and {vectors.en} has the right shape.",
            zh=f"`{made.op}` 把第 i 个向量放在矩阵的第 i {where.zh}。反过来取，得到的是每个向量各一个数，并不是其中任"
            f"何一个向量。矩阵是方的，所以两种取法长度都合适，{vectors.zh} 的形状也看不出错。",
        ),
        related=[
            story.related("made", made.step, T(en="the vectors are computed here", zh="向量在这里算出")),
            *(
                [story.related("used", product.step, T(en="multiplied with data here", zh="在这里与数据相乘"))]
                if found.taken is not None
                else []
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("vectors", found.vectors, story.by(product.step))],
    )


def _starts(story: Story, made: Event, label: str) -> str | None:
    """The label of the result of the call ``made`` that a tensor was computed from; None if there is none."""
    return next((each for each in made.results if each in _behind(story, label)), None)


def _fixes(story: Story, found: Crossed) -> tuple[Fix, ...]:
    """Fixes that take rows in place of columns and transpose them, or that transpose the operand of the product."""
    program = story.program
    node = program.at(story.span(found.taken.step)) if found.taken is not None else None
    candidates = []
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and node.slice.elts:
        last = node.slice.elts[-1]
        text = f"{program.segment(node.value)}[{program.segment(last)}]"
        text += ".mT" if isinstance(last, ast.Slice) else ""
        title = T(en=f"Take the rows: `{text}`", zh=f"取行：`{text}`")
        candidates.append(Fix(title, program.replace((node, text)), meaning="later"))
    turned = found.vectors
    if found.both:  # only the matrix whose rows are the vectors is often taken for its transpose
        ends = {each: _starts(story, found.made, each) for each in (found.vectors, found.data)}
        turned = next((each for each, end in ends.items() if end == found.made.results[-1]), "")
        if len(set(ends.values())) == 1 or found.made.op != "torch.linalg.svd":
            return unique(program.text, candidates)
        candidates += _turned_where_made(story, found)
    given = written_as(story, found.product, turned)
    if given is not None and len(story.shape(turned, found.product.step) or ()) == MATRIX:
        text = (
            operand(program, given.value)
            if isinstance(given, ast.Attribute) and given.attr in TURNED
            else f"{operand(program, given)}.mT"
        )
        title = T(en=f"Turn the matrix: `{text}`", zh=f"转置这个矩阵：`{text}`")
        candidates.append(Fix(title, program.replace((given, text)), meaning="later"))
    return unique(program.text, candidates)


def _turned_where_made(story: Story, found: Crossed) -> list[Fix]:
    """The fix that turns the third factor where it is made, if it has the name of the matrix whose columns are the
    vectors (``v``): then all its uses are right.
    """
    program = story.program
    made = program.statement_at(story.span(found.made.step))
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    last = target.elts[-1] if isinstance(target, ast.Tuple) and target.elts else None
    if made is None or not isinstance(last, ast.Name) or last.id.lower() != "v":
        return []
    new = f"{last.id} = {last.id}.mT"
    title = T(
        en=f"`svd` returns the transpose of `{last.id}`: `{new}`", zh=f"`svd` 返回的是 `{last.id}` 的转置：`{new}`"
    )
    return [Fix(title, program.insert_after(made, new), meaning="later")]


RULE = Rule(
    code="PL842",
    name="wrong-axis-of-singular-vectors",
    severity="warning",
    title=T(
        en="Data is multiplied with singular vectors or eigenvectors over the wrong axis",
        zh="数据与奇异向量或特征向量相乘时用错了轴",
    ),
    what=T(
        en="A program looks for the main directions of its data and takes them from the columns of a table in which "
        "they are the rows. A column has one number of every direction, and is none of them, so what is kept of the "
        "data is arbitrary. Take the rows: `Vh[:k].T`.",
        zh="程序要找数据的主要方向，却从一个以它们为行的表里取了列。一列由每个方向各一个数组成，并不是其中任何一个方"
        "向，所以数据中留下的部分是任意的。请取行：`Vh[:k].T`。",
    ),
    why=T(
        en="`torch.linalg.svd(A)` returns U, S and Vh with A = U diag(S) Vh: the left singular vectors are the columns "
        "of U, the right ones the *rows* of Vh. The older `torch.svd` and many books give V, whose columns they are. "
        "`eigh` has its eigenvectors in columns. Where the matrix is square, both ways have fitting shapes and nothing "
        "is raised.",
        zh="`torch.linalg.svd(A)` 返回 U、S 和 Vh，满足 A = U diag(S) Vh：左奇异向量是 U 的列，右奇异向量是 Vh 的*行"
        "*。旧的 `torch.svd` 和许多书给出的是 V，向量是它的列。`eigh` 的特征向量在列里。矩阵是方的时候，两种取法形状都"
        "合适，不会报错。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3) @ torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.2]])
x = x - x.mean(dim=0)
U, S, V = torch.linalg.svd(x, full_matrices=False)  # made
basis = V[:, :1]  # PL842
kept = x @ basis  # used
print(kept.var() / x.var(dim=0).sum())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3) @ torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 0.2]])
x = x - x.mean(dim=0)
U, S, V = torch.linalg.svd(x, full_matrices=False)
basis = V[:1].mT
kept = x @ basis
print(kept.var() / x.var(dim=0).sum())
""",
    find=find,
    traps=(
        Trap(
            "basis = V[:, :1]",
            "basis = V[:, :1] / V[:, :1].norm()",
            T(
                en="The column has the norm 1 already, and is no singular vector.",
                zh="该列的范数已是 1，但它不是奇异向量。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.svd.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html",
    ),
)
