"""PL472: all rows of a table are divided by one number, the norm of the whole table, and then compared as if each had
length 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by, power, same_numbers, unshifted
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

NORMS = {"norm", "vector_norm", "matrix_norm"}
"""Calls that compute norms."""
ROOTS = spellings("pow", "sqrt")
DIVISIONS = spellings("div", in_place=True)
PRODUCTS = operations_that("matrix_product") | {"linear", "inner", "einsum"}
"""Calls that compute products of all rows of two tables."""
KEEPING = {"detach", "clone", "contiguous", "float", "double", "to", "cpu", "requires_grad_", "__getitem__"}
"""Calls that rows are followed through, each row as it is."""
TURNED = {"T", "mT", "t", "H", "mH", "permute"} | spellings("transpose")
SCALED = spellings("div", "mul", "add", "sub", "exp", "masked_fill", "clamp", in_place=True, exchanged=True) | {
    "where", "fill_diagonal_", "clone", "contiguous", "detach", "float", "cpu", "expm1"
}  # fmt: skip
"""Calls between the products and the choice: they change each product by itself."""
CHOICES = {"argmax": 1, "argmin": 1, "max": 1, "min": 1, "topk": 2, "sort": 1, "argsort": 1}
"""Calls that choose or order along an axis, each with the place of its argument ``dim``."""
BY_LAST = {"topk", "sort", "argsort"}
"""Those which take the last axis where none is given."""
SOFT = {"softmax", "log_softmax", "logsumexp", "cross_entropy"}
"""Calls whose result depends on how large the products are."""
COMPARED = spellings("ge", "gt", "le", "lt")
MATRIX, FURTHER = 2, 30


@dataclass(frozen=True, slots=True)
class NormedTable:
    """The table ``label`` (a label) of shape ``shape`` was divided, at ``step``, by the result of ``norm`` (``Event``),
    its own norm, over all elements of each matrix or of everything.
    """

    norm: Event
    label: str
    shape: tuple[int, ...]
    step: int


@dataclass(frozen=True, slots=True)
class RowsOfOneNorm:
    """``table`` was multiplied with other rows by ``product`` (``Event``), and the call ``choice`` chose by the
    result.
    """

    table: NormedTable
    product: Event
    choice: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes one norm of a whole table, by which the table is divided, where the
    products of its rows with others that are normalized are then ordered, or given to a softmax.
    """
    every = _tables(story)
    reported = set()
    for product in story.calls(*PRODUCTS) if every else ():
        tables = {label: table for label, table in every.items() if table.step < product.step}
        for found in _chosen(story, product, tables) if product.error is None else ():
            place = story.span(found.table.norm.step)
            if place not in reported:
                reported.add(place)
                yield _finding(story, found)


def _tables(story: Story) -> dict[str, NormedTable]:
    """The tables that were divided by their own norm, by the label of the quotient."""
    found: dict[str, NormedTable] = {}
    for event in story.calls(*DIVISIONS):
        given = [o.label for o in event.operands if o.label is not None]
        if event.error is not None or len(given) != MATRIX or not event.results:
            continue
        source = same_numbers(story, given[0], event.step)
        shape = story.shape(given[0], event.step) or ()
        norm = _norm(story, given[1], event.step)
        if norm is None or norm[1] not in (source, given[0]) or len(shape) < MATRIX or min(shape[-2:]) < MATRIX:
            continue
        if norm[2] >= {len(shape) - 1, len(shape) - 2} and not _is_unit(story, source, event.step):
            found[event.results[0]] = NormedTable(norm[0], given[0], shape, event.step)
    return found


def _norm(story: Story, label: str, step: int) -> tuple[Event, str, set[int]] | None:
    """The call that computed a divisor as a Euclidean norm, perhaps with a small number added, the label of the tensor
    whose norm it is, and the axes over which it was taken.

    None if the divisor is no such norm.
    """
    event = made_by(story, unshifted(story, label, step), step)
    if event is None or not event.operands or event.operands[0].label is None:
        return None
    if event.name in ROOTS:
        return _root_of_squares(story, event)
    if event.name not in NORMS:
        return None
    order = argument(event, "ord", 1) if "linalg" in event.op else argument(event, "p", 1)
    if (order or "fro").strip("'\"") not in ("fro", "None", "2", "2.0"):
        return None
    source = event.operands[0].label
    shape = story.shape(source, event.step) or ()
    usual = "(-2, -1)" if event.name == "matrix_norm" else None
    axes = _axes(argument(event, "dim", 2) or usual, len(shape))
    if len(axes) == MATRIX and order in ("2", "2.0") and event.op != "torch.linalg.vector_norm":
        return None  # the largest singular value
    return event, same_numbers(story, source, event.step), axes


def _root_of_squares(story: Story, event: Event) -> tuple[Event, str, set[int]] | None:
    total, exponent = power(story, event.results[0], event.step)
    summed = made_by(story, total, event.step)
    if summed is None or summed.name != "sum" or exponent != 1 / 2 or summed.operands[0].label is None:
        return None
    source, by = power(story, summed.operands[0].label, summed.step)
    shape = story.shape(summed.operands[0].label, summed.step) or ()
    return (summed, source, _axes(argument(summed, "dim", 1), len(shape))) if by == MATRIX else None


def _axes(text: str | None, count: int) -> set[int]:
    """The axes, counted from 0, that the text of an argument ``dim`` names: all axes for None, empty if it cannot be
    read.
    """
    try:
        given = ast.literal_eval(text or "None")
    except (SyntaxError, ValueError):
        return set()
    axes = [given] if isinstance(given, int) else list(given or range(count))
    return {axis % count for axis in axes if isinstance(axis, int) and count}


def _is_unit(story: Story, label: str, step: int) -> bool:
    """Whether each row of a table, or a vector, was divided by its own length."""
    label = _rows(story, label, step)[0]
    event = made_by(story, label, step)
    if event is None or not event.operands:
        return False
    if event.name == "normalize":
        return True
    given = [o.label for o in event.operands if o.label is not None]
    return event.name in DIVISIONS and len(given) == MATRIX and _norm(story, given[1], event.step) is not None


def _rows(story: Story, label: str, step: int, ends: dict[str, NormedTable] | None = None) -> tuple[str, bool]:
    """The label of the tensor whose rows the tensor ``label`` has, and whether its last two axes are exchanged.

    The search goes back through copies and transpositions, and not beyond a tensor in ``ends``.
    """
    is_turned = False
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        source = event.operands[0].label if event is not None and event.operands else None
        if label in (ends or {}) or event is None or source is None or source == label:
            break
        before, after = (story.tensor(each, event.step) or {} for each in (source, label))
        one, two = (tuple(record.get("stride") or ())[-2:] for record in (before, after))
        if event.name in TURNED and len(one) == MATRIX and one == two[::-1]:
            is_turned = not is_turned
        elif event.name not in KEEPING or (before.get("shape") or ())[-1:] != (after.get("shape") or ())[-1:]:
            break
        label, step = source, event.step
    return label, is_turned


def _chosen(story: Story, product: Event, tables: dict[str, NormedTable]) -> Iterator[RowsOfOneNorm]:
    """Yield the tables, among the two sides of a product of normalized rows, whose row lengths matter for a choice."""
    given = [o.label for o in product.operands if o.label is not None]
    if len(given) != MATRIX or len(product.results) != 1 or not _is_of_rows(story, product, given, tables):
        return
    roots = [_rows(story, label, product.step, tables)[0] for label in given]
    for side, (root, other) in enumerate(zip(roots, roots[::-1], strict=True)):
        if root not in tables or not (other in tables or _is_unit(story, other, product.step)):
            continue
        if other not in tables and (story.tensor(tables[root].label) or {}).get("requires_grad"):
            continue  # weights of one length as a whole
        choice = _choice(story, product, side)
        if choice is not None:
            yield RowsOfOneNorm(tables[root], product, choice)


def _is_of_rows(story: Story, product: Event, given: list[str], tables: dict[str, NormedTable]) -> bool:
    """Whether a product runs over the last axis of the tables on its two sides."""
    turns = [_rows(story, label, product.step, tables)[1] for label in given]
    counts = [len(story.shape(label, product.step) or ()) for label in given]
    if product.name == "einsum":
        return not any(turns) and _is_over_last(product)
    if product.name in ("linear", "inner"):
        return not any(turns)
    return not turns[0] and (turns[1] or counts[1] == 1)


def _is_over_last(product: Event) -> bool:
    """Whether an ``einsum`` of two operands sums over the last axis of both, and over no other."""
    terms, arrow, result = product.operands[0].text.strip("'\"").replace(" ", "").partition("->")
    sides = terms.split(",")
    if not arrow or "." in terms or len(sides) != MATRIX:
        return False
    summed = {letter for letter in "".join(sides) if letter not in result}
    return all(summed == {side[-1:]} for side in sides) and result[-1:] == sides[1][-2:-1]


def _choice(story: Story, product: Event, side: int) -> Event | None:
    """The first call that chooses by the products, so that the lengths of the rows on one side matter; else None."""
    pending, seen = [(product.results[0], False)], {product.results[0]}
    rank = len(story.shape(product.results[0], product.step) or ())
    while pending and len(seen) < FURTHER:
        label, is_turned = pending.pop(0)
        for use in story.uses(label):
            if use.error is not None or use.step <= product.step:
                continue
            if _chooses(story, use, label, rank, (side == 1) != is_turned):
                return use
            result = use.results[0] if use.results else None
            if result is None or result in seen or len(story.shape(result, use.step) or ()) != rank:
                continue
            if use.name in SCALED | TURNED:
                seen.add(result)
                pending.append((result, is_turned != (use.name in TURNED)))
    return None


def _chooses(story: Story, use: Event, label: str, rank: int, is_last: bool) -> bool:
    """Whether a call chooses among the rows of one side, or depends on how large the products are.

    The rows of that side are along the last axis of the products if ``is_last``, else along the one before it.
    """
    if use.operands[0].label != label:
        return False
    if use.name in SOFT:
        return not any(after.name in PRODUCTS for result in use.results for after in story.uses(result))
    if use.name in COMPARED:
        numbers = [constant(story, o.label, o.text, use.step) for o in use.operands[1:]]
        return len(numbers) == 1 and 0 < (numbers[0] or 0) <= 1
    if use.name not in CHOICES or any(o.label is not None for o in use.operands[1:]):
        return False
    text = argument(use, "dim", CHOICES[use.name]) or ("-1" if use.name in BY_LAST else None)
    if rank == 1:
        return True
    if text is None:
        return use.name == "argmax"
    return _axes(text, rank) == {rank - 1 if is_last else rank - MATRIX}


def _finding(story: Story, found: RowsOfOneNorm) -> Finding:
    norm, shape = found.table.norm, found.table.shape
    here, there = (at_line(story, story.span(event.step)) for event in (norm, found.choice))
    table, sizes, rows = expression(story, found.table.label, norm.step), "×".join(map(str, shape)), shape[-2]
    return RULE.finding(
        story.span(norm.step),
        norm.step,
        T(
            en=f"{capital(here.en)} computes one norm of all {rows} rows of {table.en} ({sizes}) together; divided by "
            f"it, they keep different lengths, and {there.en} compares their products as similarities.",
            zh=f"{here.zh}把 {table.zh}（{sizes}）的 {rows} 行合在一起算出一个范数；除以它之后，各行的长度仍然不同，而"
            f"{there.zh}把它们的乘积当作相似度来比较。",
        ),
        T(
            en="A norm without `dim` is the root of the sum of all squares, one number. Dividing by it makes the whole "
            f"table have norm 1, not each of its {rows} rows: in the products, a longer row has larger numbers "
            "whatever its direction is, and all products are small. Take the norm of each row, with "
            "`dim=-1, keepdim=True`: the products are then cosines.",
            zh="不带 `dim` 的范数是所有平方之和的平方根，只有一个数。除以它使整张表的范数为 1，而不是"
            f" {rows} 行各为 1：在乘积中，更长的行无论方向如何都得到更大的数，而且所有乘积都很小。请用 "
            "`dim=-1, keepdim=True` 取每一行的范数：这样乘积就是余弦。",
        ),
        related=[
            story.related("used", found.product.step, T(en="the rows are multiplied here", zh="各行在这里相乘")),
            story.related("read", found.choice.step, T(en="the products are compared here", zh="乘积在这里被比较")),
        ],
        fixes=_fixes(story, norm),
        facts=[Fact("rows", rows, story.by(norm.step)), Fact("shape", shape, story.by(norm.step))],
    )


def _fixes(story: Story, norm: Event) -> tuple[Fix, ...]:
    """A fix that takes the norm of each row; empty if the call names axes, or is not in the program's source."""
    program = story.program
    node = program.at(story.span(norm.step))
    if not isinstance(node, ast.Call) or call_name(node) not in ("norm", "vector_norm", "sum"):
        return ()
    if {word.arg for word in node.keywords} & {"dim", "keepdim", None} or argument(
        norm, "dim", 1 if norm.name == "sum" else 2
    ) not in (None, "None"):
        return ()
    text = program.segment(node).rstrip()
    body = text[:-1].rstrip().removesuffix(",")
    new = f"{body}{'' if body.endswith('(') else ', '}dim=-1, keepdim=True)"
    title = T(en=f"Take the norm of each row: `{new}`", zh=f"取每一行的范数：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL472",
    name="one-norm-for-all-rows",
    severity="warning",
    title=T(
        en="Rows are compared as unit vectors after a division by one norm for all",
        zh="各行只除以一个共同的范数，就被当作单位向量来比较",
    ),
    what=T(
        en="A program divides a table of vectors by `v.norm()`, and takes the products of its rows for similarities. "
        "Without `dim` that is one number for the whole table: the rows keep different lengths, and long ones win. "
        "Take the norm of each row: `v.norm(dim=-1, keepdim=True)`.",
        zh="程序把一张向量表除以 `v.norm()`，再把各行的乘积当作相似度。不带 `dim` 时，这是整张表的一个数：各行的长度仍"
        "然不同，长的占优势。请取每一行的范数：`v.norm(dim=-1, keepdim=True)`。",
    ),
    why=T(
        en="Reductions of torch take all elements where no `dim` is given. For one vector that is its length, so code "
        "that was written for one keeps working for a table of them, without an error. For matrices the same number, "
        "the Frobenius norm, is often wanted, so torch cannot warn.",
        zh="torch 的归约在不给 `dim` 时针对所有元素。对一个向量，这就是它的长度，所以为单个向量写的代码用到向量表上也"
        "照样运行，不会报错。对矩阵来说，这个数（Frobenius 范数）又常常正是所要的，所以 torch 无法警告。",
    ),
    bad="""import torch

torch.manual_seed(0)
words = torch.randn(50, 16) * torch.rand(50, 1)
queries = words[:10] * 0.5 + 0.05 * torch.randn(10, 16)
unit = words / words.norm()  # PL472
scores = torch.nn.functional.normalize(queries, dim=1) @ unit.T
print("hits", (scores.argmax(1) == torch.arange(10)).sum())
""",
    good="""import torch

torch.manual_seed(0)
words = torch.randn(50, 16) * torch.rand(50, 1)
queries = words[:10] * 0.5 + 0.05 * torch.randn(10, 16)
unit = words / words.norm(dim=-1, keepdim=True)
scores = torch.nn.functional.normalize(queries, dim=1) @ unit.T
print("hits", (scores.argmax(1) == torch.arange(10)).sum())
""",
    find=find,
    traps=(
        Trap(
            "words / words.norm()",
            "words / (words.norm() / len(words) ** 0.5)",
            T(
                en="The rows have length 1 on average, and still different ones.",
                zh="各行的长度平均为 1，但仍然互不相同。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.norm.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.normalize.html",
    ),
)
