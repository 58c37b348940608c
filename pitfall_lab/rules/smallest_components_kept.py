"""PL824: data is projected on the first eigenvectors of its covariance, and these have the least variance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, key, made_by, same_numbers
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.value_origins import whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

PRODUCTS = operations_that("matrix_product") | {"__rmatmul__"}
COVARIANCES = ("cov", "corrcoef")
COPIES = {"detach", "clone", "contiguous", "float", "double", "to", "cpu", "requires_grad_", "real"}
"""Calls whose result has each number of a matrix at its place."""
TURNED = {"T", "mT", "t", "H", "mH"} | spellings("transpose")
CENTRED, DIVIDED = spellings("sub", in_place=True), spellings("div", in_place=True)
STATISTICS = spellings("add") | {"mean", "std", "var", "std_mean", "var_mean", "sqrt", "clamp", "clamp_min", "norm"}
"""Calls by which the numbers come about that data is centred and scaled with."""
SIZES = spellings("pow", "abs") | {"square", "norm", "vector_norm", "allclose", "isclose", "max", "amax"}
"""Calls by which a program asks how large the projections are: how far points are from a plane, or whether a matrix
has a null space, for which the smallest components are the right ones."""
MATRIX, FURTHER, FEWEST, NOTHING, HALF = 2, 30, 2, 1e-6, 0.5


@dataclass(frozen=True, slots=True)
class Smallest:
    """``used`` is the call (``Event``) that multiplies the data, labelled ``data``, with the first ``count`` of
    ``size`` eigenvectors, which the call ``taken`` took out of those that ``made`` computed.

    ``shares`` are the parts of the variance that the first ``count`` and the last ``count`` have; None where they are
    not known.
    """

    made: Event
    taken: Event
    used: Event
    data: str
    count: int
    size: int
    shares: tuple[float, float] | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes the first eigenvectors that ``eigh`` computed of a covariance, which
    have the least variance, and projects the data on them.

    Not if others are taken too, or the first ones are known to have no variance, or not clearly less than the last.
    """
    reported = set()
    for made in story.calls("eigh"):
        shape = story.shape(made.operands[0].label, made.step) if made.operands else None
        if made.error is not None or len(made.results) != MATRIX or len(shape or ()) != MATRIX:
            continue
        found = _smallest(story, made)
        place = story.span(found.taken.step) if found is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _smallest(story: Story, made: Event) -> Smallest | None:
    """The data of the finding for the vectors that are taken of one call.

    None for another matrix than a covariance, if other vectors are taken as well, or if nothing shows that the vectors
    with most of the variance were intended.
    """
    data = _data(story, str(made.operands[0].label), made.step)
    if data is None:
        return None
    taken = _taken(story, made.results[1])
    if taken is None:
        return None
    event, count = taken
    size = (story.shape(made.results[1], made.step) or (0,))[0]
    if count < FEWEST or 2 * count > size:
        return None
    used = _projection(story, event, _root(story, data, made.step))
    if used is None or _is_measured(story, event, used):
        return None
    shares = _shares(story, made, count)
    if shares is not None and (shares[0] < NOTHING or shares[0] > HALF * shares[1]):
        return None  # the vectors of a null space, or data that has the same variance everywhere
    return Smallest(made, event, used, data, count, size, shares)


def _data(story: Story, label: str, step: int) -> str | None:
    """The table of which a matrix is the covariance or the product with itself, perhaps divided by a positive number;
    None if the matrix is neither.
    """
    for _ in range(FURTHER):
        event = made_by(story, label, step)
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not given:
            return None
        if event.name in COVARIANCES:
            return given[0]
        if event.name in PRODUCTS and len(given) == MATRIX:
            return given[1] if _is_with_itself(story, event, *given) else None
        if event.name == "einsum":
            return given[-1] if len(given) == MATRIX and given[0] == given[1] else None
        if event.name in SCALING:
            numbers = [constant(story, o.label, o.text, event.step) for o in event.operands if not o.name]
            if len(numbers) != MATRIX or (numbers[1] or 0) <= 0:
                return None
        elif event.name not in COPIES or given[0] == label:
            return None
        label, step = given[0], event.step
    return None


def _is_with_itself(story: Story, event: Event, one: str, other: str) -> bool:
    """Whether a product is that of a table's transpose and the table, or the other way round."""
    left, right = key(story, one, event.step), key(story, other, event.step)
    if isinstance(left, tuple) and isinstance(right, tuple) and left[:2] == right[:2]:
        return len(right[2]) == MATRIX and (left[2][::-1], left[3][::-1]) == right[2:]
    shape = story.shape(other, event.step) or ()
    same = same_numbers(story, one, event.step) == same_numbers(story, other, event.step)
    return same and len(shape) == MATRIX and shape[0] != shape[1] and story.shape(one, event.step) == shape[::-1]


def _taken(story: Story, vectors: str) -> tuple[Event, int] | None:
    """The only call that takes the first of the vectors, with their number; None if there is none, if another call
    takes other vectors, or if all are used.
    """
    found: list[tuple[Event, int]] = []
    pending, seen = [(vectors, False)], {vectors}
    while pending and len(seen) < FURTHER:
        label, is_turned = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results or use.operands[0].label != label:
                return None
            if use.name in TURNED | COPIES and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append((use.results[0], is_turned != (use.name in TURNED)))
                continue
            count = _count(use, 0 if is_turned else 1)
            if count is None:
                return None
            found.append((use, count))
    places = {story.span(event.step) for event, _ in found}
    return found[0] if len(places) == 1 and len({count for _, count in found}) == 1 else None


def _count(use: Event, axis: int) -> int | None:
    """How many of the first entries along an axis a call takes; None if it takes others, or does something else."""
    texts = [o.text for o in use.operands[1:] if o.label is None]
    if use.name == "narrow":
        numbers = [whole(text) for text in texts]
        return numbers[2] if len(numbers) == 3 and numbers[:2] in ([axis, 0], [axis - MATRIX, 0]) else None
    if use.name != "__getitem__" or len(use.operands) != MATRIX or len(texts) != 1:
        return None
    parts = [part.strip() for part in texts[0].strip("()").split(",") if part.strip()]
    parts = [":", *parts[1:]] if parts[:1] == ["..."] else parts
    if len(parts) == MATRIX and parts[1 - axis] == ":":
        parts = [parts[axis]]
    elif len(parts) != 1 or axis != 0:
        return None
    start, colon, stop = parts[0].partition(":")
    return int(stop) if colon and start in ("", "0") and stop.isdigit() else None


def _root(story: Story, label: str, step: int) -> str:
    """The label of the tensor that another one was made from by centring and scaling; ``label`` or its source of the
    same numbers if it was not.
    """
    for _ in range(FURTHER):
        label = same_numbers(story, label, step)
        event = made_by(story, label, step)
        if event is None or event.name not in CENTRED | DIVIDED or not event.operands[0].label:
            return label
        other = event.operands[1] if len(event.operands) > 1 else None
        source = event.operands[0].label
        if (
            source == label
            or other is None
            or (other.label is not None and not _is_statistic(story, other.label, event))
        ):
            return label
        label, step = source, event.step
    return label


def _is_statistic(story: Story, label: str, event: Event) -> bool:
    """Whether a tensor was made by a statistic (``STATISTICS``) and is smaller than the result of the call ``event``:
    it has fewer axes, or an axis of length 1.
    """
    made = made_by(story, same_numbers(story, label, event.step), event.step)
    longest = story.shape(event.results[0], event.step) or ()
    shape = story.shape(label, event.step) or ()
    is_small = len(shape) < len(longest) or (1 in shape and shape != longest)
    return is_small and made is not None and made.name in STATISTICS


def _projection(story: Story, taken: Event, root: str) -> Event | None:
    """The product of the data with the vectors that were taken; None if there is none."""
    pending, seen = [taken.results[0]], {taken.results[0]}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            others = [o.label for o in use.operands if o.label not in (None, label)]
            if use.name in PRODUCTS | {"linear", "einsum"} and len(others) == 1 and others[0] is not None:
                if root == _root(story, others[0], use.step) and story.shape(others[0], use.step) != ():
                    return use
            elif use.name in TURNED | COPIES and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _is_measured(story: Story, taken: Event, used: Event) -> bool:
    """Whether the program asks how large the projections are, or takes them out of the data.

    Data that is built again from them and compared with what it was is neither.
    """
    pending, seen = [used.results[0]], {used.results[0]}
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            if use.name in SIZES:
                return True
            others = [o.label for o in use.operands if o.label not in (None, label)]
            if use.name in SCALING and (others or label in [o.label for o in use.operands[1:]]):
                return True  # squares, or each measured in its own deviation
            if use.name in CENTRED and use.operands[0].label != label and not _is_squared(story, use):
                return True
            is_built = use.name in PRODUCTS and any(
                same_numbers(story, each, use.step) == same_numbers(story, taken.results[0], use.step)
                for each in others
                if each is not None
            )
            if (is_built or use.name in SAME_NUMBERS) and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return False


def _is_squared(story: Story, event: Event) -> bool:
    """Whether the result of a call is only used for its size: by calls of ``SIZES``, or multiplied by itself. False if
    nothing uses it.
    """
    uses = story.uses(event.results[0])
    return bool(uses) and all(
        use.name in SIZES or [o.label for o in use.operands].count(event.results[0]) > 1 for use in uses
    )


def _shares(story: Story, made: Event, count: int) -> tuple[float, float] | None:
    """The shares of the sum of all eigenvalues that the first ``count`` and the last ``count`` have; None if not all
    are known, or if their sum is not positive.
    """
    values = Elements(story, made.results[0], made.step)
    known = [value for _, value in sorted(values.known())]
    total = sum(known)
    if len(known) != (values.shape or (0,))[0] or total <= 0:
        return None
    return sum(known[:count]) / total, sum(known[-count:]) / total


def _finding(story: Story, found: Smallest) -> Finding:
    here, there, then = (at_line(story, story.span(event.step)) for event in (found.taken, found.made, found.used))
    vectors = expression(story, found.made.results[1], found.taken.step)
    matrix = expression(story, found.made.operands[0].label, found.made.step)
    count, size = found.count, found.size
    said = T(en="", zh="")
    if found.shares is not None:
        first, last = (f"{share:.2%}" if share < 0.1 else f"{share:.0%}" for share in found.shares)
        said = T(
            en=f" They keep {first} of the variance; the last {count} would keep {last}.",
            zh=f"它们只保留 {first} 的方差；最后 {count} 个会保留 {last}。",
        )
    return RULE.finding(
        story.span(found.taken.step),
        found.taken.step,
        T(
            en=f"{capital(here.en)} takes the first {count} of {size} eigenvectors, which have the least variance, and "
            f"{then.en} projects the data on them.{said.en}",
            zh=f"{here.zh}取了 {size} 个特征向量中的前 {count} 个，它们的方差最小，而{then.zh}把数据投影到它们上。"
            f"{said.zh}",
        ),
        T(
            en=f"`eigh` at {there.en} returns the eigenvalues of {matrix.en} in ascending order, and the columns of "
            f"{vectors.en} in the same. The principal components of a covariance are the last columns. (An `svd` is "
            "the other way round: its largest value comes first.)",
            zh=f"{there.zh}的 `eigh` 按升序返回 {matrix.zh} 的特征值，{vectors.zh} 的列也是这个次序。协方差的主成分是"
            "最后几列。（`svd` 正好相反：最大的值在最前面。）",
        ),
        related=[
            story.related("made", found.made.step, T(en="the vectors are computed here", zh="向量在这里算出")),
            story.related("used", found.used.step, T(en="the data is projected here", zh="数据在这里被投影")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("vectors", found.count, story.by(found.taken.step)), Fact("shares", found.shares)],
    )


def _fixes(story: Story, found: Smallest) -> tuple[Fix, ...]:
    """At most one fix: it takes the last columns, and the last eigenvalues where the program takes the first ones.
    Empty if the slice is not written in the source.
    """
    program = story.program
    edits: list[tuple[ast.AST, str]] = []
    for use in (found.taken, *(use for use in story.uses(found.made.results[0]) if _count(use, 0) == found.count)):
        node = program.at(story.span(use.step))
        part = _slice(node) if isinstance(node, ast.Subscript) else None
        if part is not None and part.upper is not None and part not in [each for each, _ in edits]:
            edits.append((part, f"-{operand(program, part.upper)}:"))
        elif use is found.taken:
            return ()
    title = T(en=f"Take the last ones: `{edits[0][1]}`", zh=f"取最后几个：`{edits[0][1]}`")
    return unique(program.text, [Fix(title, program.replace(*edits), meaning="later")])


def _slice(node: ast.Subscript) -> ast.Slice | None:
    """The one slice with an end in an index; None if there are none or several."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    found = [part for part in parts if isinstance(part, ast.Slice) and part.upper is not None and part.step is None]
    return found[0] if len(found) == 1 else None


RULE = Rule(
    code="PL824",
    name="smallest-components-kept",
    severity="warning",
    title=T(
        en="Data is projected on the components with the least variance",
        zh="数据被投影到方差最小的成分上",
    ),
    what=T(
        en="A program looks for the main directions of its data, and keeps the first ones that it gets. They come with "
        "the smallest spread first, so nearly all of what tells the examples apart is thrown away. Take the last ones: "
        "`vectors[:, -k:]`.",
        zh="程序要找数据的主要方向，并保留了得到的前几个。但它们从离散程度最小的开始排列，所以能区分样本的信息几乎都被丢掉"
        "了。请取最后几个：`vectors[:, -k:]`。",
    ),
    why=T(
        en="`torch.linalg.eigh` returns eigenvalues in ascending order, and the eigenvectors, in columns, in the same "
        "order. Column i of a covariance's eigenvectors has the variance `values[i]`, so the principal components are "
        "the last ones. `torch.linalg.svd` sorts in descending order, and so does a PCA of other libraries: code "
        "that was moved from there keeps the wrong end, with the right shape.",
        zh="`torch.linalg.eigh` 按升序返回特征值，特征向量（按列）也是同样的次序。协方差的第 i 列特征向量的方差是 "
        "`values[i]`，所以主成分在最后。`torch.linalg.svd` 则按降序排列，其他库的 PCA 也是：从那里搬来的代码留下的是"
        "错误的一端，形状却完全正确。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(50, 5) * torch.tensor([5.0, 3.0, 1.0, 0.5, 0.2])
x = x - x.mean(0)
values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1))  # made
main = vectors[:, :2]  # PL824
z = x @ main  # used
print(z.var(0).sum() / x.var(0).sum())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(50, 5) * torch.tensor([5.0, 3.0, 1.0, 0.5, 0.2])
x = x - x.mean(0)
values, vectors = torch.linalg.eigh(x.T @ x / (len(x) - 1))
main = vectors[:, -2:]
z = x @ main
print(z.var(0).sum() / x.var(0).sum())
""",
    find=find,
    traps=(
        Trap(
            "x.T @ x / (len(x) - 1)",
            "x.T @ x",
            T(en="Another scale does not change the order.", zh="换一个比例，次序不变。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.cov.html",
    ),
)
