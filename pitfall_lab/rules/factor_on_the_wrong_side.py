"""PL839: noise was multiplied with a Cholesky factor on the wrong side, so that it has another covariance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, values, whole
from pitfall_lab.trace import Event, Operand, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

FACTORS = {"cholesky", "cholesky_ex"}
PRODUCTS = operations_that("matrix_product") | {"__rmatmul__", "einsum", "linear"}
TURNS = spellings("transpose") | {"H", "T", "adjoint", "mH", "mT", "movedim", "permute", "t"}
"""Calls that swap the last two dimensions."""
SAME = (
    spellings("div", "expand", "mul")
    | {"__getitem__", "clone", "contiguous", "detach", "double", "float", "to", "unsqueeze"}
)  # fmt: skip
"""Calls whose result is still the factor, scaled or in a batch, with the last two dimensions in the same order."""
NOISE = {"randn", "randn_like", "normal_", "normal", "sample", "rsample"}
"""Calls that draw normal numbers."""
VIEWS = {"view", "reshape", "t", "T", "mT", "transpose", "permute", "to", "float", "double", "unsqueeze", "squeeze",
         "__getitem__", "expand", "clone", "contiguous", "unbind", "split", "chunk"}  # fmt: skip
"""Calls that noise is followed through, back to the call that drew it."""
SQUARES = spellings("mul", "pow") | {"dot", "norm", "square", "vdot", "vector_norm"}
"""Calls that square the numbers, or compute a norm of them."""
SUMS = {"sum", "mean", "norm", "vector_norm"}
"""Reductions over the last dimension after which the side of the factor no longer shows."""
DEEPEST, MATRIX = 12, 2


@dataclass(frozen=True, slots=True)
class Wrong:
    """``product`` is the call (``Event``) that multiplied standard noise with a Cholesky factor on the wrong side;
    ``factor`` is the call that computed the factor.

    ``label`` is the label of the factor in that product (it may be a transpose), ``noise`` the label of the noise.
    """

    product: Event
    factor: Event
    label: str
    noise: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies standard normal noise with a Cholesky factor on the wrong side:
    with a lower factor summed over its rows, or an upper one summed over its columns.

    Nothing for a factor that is diagonal, or if a norm of each row of the result is taken.
    """
    if not any(True for _ in story.calls(*FACTORS)):
        return
    reported = set()
    for product in story.calls(*PRODUCTS):
        place = story.span(product.step)
        found = _wrong(story, product) if place not in reported and product.error is None and product.results else None
        if found is not None and not _is_a_length(story, product):
            reported.add(place)
            yield _finding(story, found)


def _wrong(story: Story, product: Event) -> Wrong | None:
    labels = [o.label for o in product.operands if o.label is not None][:MATRIX]
    if len(labels) != MATRIX:
        return None
    for place, label in enumerate(labels):
        other = labels[1 - place]
        summed = _summed_axis(story, product, place, labels)
        found = _factor(story, label, product.step) if summed is not None else None
        if found is None or summed is None or not _is_noise(story, other, product.step):
            continue
        factor, turned = found
        axis = (summed + turned) % MATRIX
        upper = (argument(factor, "upper", 1) or "False") == "True"
        # A = L Lᵀ needs the noise summed over the columns of L, A = Uᵀ U over the rows of U.
        if axis == (1 if upper else 0) and not _is_diagonal(story, factor):
            return Wrong(product, factor, label, other)
    return None


def _summed_axis(story: Story, product: Event, place: int, labels: list[str]) -> int | None:
    """Return which of the last two dimensions of an operand a product sums over: 0 for that of the rows, 1 for that of
    the columns; None if the operand is not square, or this is not known.
    """
    shape = story.shape(labels[place], product.step) or ()
    if len(shape) < MATRIX or shape[-1] != shape[-2]:
        return None
    if product.name == "einsum":
        letters = product.operands[0].text.strip("'\"").replace(" ", "").split("->")[0].split(",")
        if len(letters) != MATRIX or any("." in each for each in letters):
            return None
        shared = [axis for axis in (-2, -1) if letters[place][axis] in letters[1 - place]]
        out = product.operands[0].text.strip("'\"").replace(" ", "").partition("->")[2]
        summed = [axis for axis in shared if letters[place][axis] not in out]
        return summed[0] + MATRIX if len(summed) == 1 and len(shared) == 1 else None
    if product.name == "linear":
        return 1 if place == 1 else None
    if product.name == "__rmatmul__":
        place = 1 - place
    return 1 if place == 0 else 0


def _factor(story: Story, label: str, step: int) -> tuple[Event, int] | None:
    """Return the call that computed the Cholesky factor which the tensor ``label`` is, and how often the factor was
    transposed since; None if the tensor is none.
    """
    turned = 0
    for _ in range(DEEPEST):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results or made.error is not None:
            return None
        if made.name in FACTORS:
            return (made, turned) if label == made.results[0] else None
        given = [o.label for o in made.operands if o.label is not None]
        if not given:
            return None
        before, after = (list((story.tensor(each, made.step) or {}).get("stride") or ()) for each in (given[0], label))
        same_axes = (story.shape(label, made.step) or ())[-2:] == (story.shape(given[0], made.step) or ())[-2:]
        if made.name in TURNS:
            if before[-2:] == after[-2:]:
                pass
            elif before[-2:] == after[-2:][::-1]:
                turned += 1
            else:
                return None
        elif made.name not in SAME or any(story.shape(each, made.step) for each in given[1:]) or not same_axes:
            return None
        label, step = given[0], made.step
    return None


def _is_noise(story: Story, label: str, step: int) -> bool:
    """Whether a tensor contains standard normal numbers, in any shape."""
    for _ in range(DEEPEST):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or label not in made.results:
            return False
        if made.name in NOISE or any(use.name == "normal_" for use in story.uses(label) if use.step < step):
            return made.name != "normal" or [_all(story, o, made.step) for o in made.operands[:2]] == [{0.0}, {1.0}]
        given = [o.label for o in made.operands if o.label is not None]
        if made.name not in VIEWS or not given:
            return False
        label, step = given[0], made.step
    return False


def _all(story: Story, given: Operand, step: int) -> set[float]:
    """Return the set of numbers in an argument (a tensor or a Python number); empty if they are not known."""
    if given.label is not None:
        return set(values(story, given.label, step))
    return {float(given.text)} if given.text.replace(".", "", 1).isdigit() else set()


def _is_diagonal(story: Story, factor: Event) -> bool:
    """Whether the factor is diagonal, so that it equals its transpose: its matrix was made by a call such as ``diag``,
    or all known elements outside of the diagonal are 0.
    """
    known = list(Elements(story, factor.results[0], factor.step).known())
    made = story.event((story.tensor(factor.operands[0].label, factor.step) or {}).get("born"))
    if made is not None and made.name in ("diag", "diag_embed", "eye", "diagflat"):
        return True
    return bool(known) and all(value == 0 for index, value in known if index[-1] != index[-2])


def _is_a_length(story: Story, product: Event) -> bool:
    """Whether a norm, or a sum of squares, of each row of the product is taken: a Mahalanobis distance of ``x``, for
    example, is the norm of ``x @ L``.
    """
    count = len(story.shape(product.results[0], product.step) or ())
    for use in story.uses(product.results[0]):
        if use.name not in SQUARES or (use.name in ("mul", "__mul__") and len({o.label for o in use.operands}) > 1):
            continue
        for last in [use, *(each for result in use.results for each in story.uses(result))]:
            axis = whole(argument(last, "dim", 2 if "norm" in last.name else 1) or argument(last, "axis") or "")
            if last.name in SUMS and axis is not None and axis % max(count, 1) == count - 1:
                return True
    return False


def _finding(story: Story, found: Wrong) -> Finding:
    product, factor = found.product, found.factor
    here, there = (at_line(story, story.span(event.step)) for event in (product, factor))
    name = expression(story, found.label, product.step)
    of = expression(story, factor.operands[0].label, factor.step)
    upper = (argument(factor, "upper", 1) or "False") == "True"
    wanted, given = ("Uᵀ U", "U Uᵀ") if upper else ("L Lᵀ", "Lᵀ L")
    return RULE.finding(
        story.span(product.step),
        product.step,
        T(
            en=f"{capital(here.en)} multiplies noise with the factor {name.en} the wrong way round: the covariance of "
            f"the result is {given}, not {wanted}, which is {of.en}.",
            zh=f"{here.zh}把噪声与因子 {name.zh} 相乘的方向弄反了：结果的协方差是 {given}，而不是 {wanted}（也就是 "
            f"{of.zh}）。",
        ),
        T(
            en=f"{capital(there.en)} factors {of.en} as {wanted}. Noise z has the covariance 1, so L z has L Lᵀ: each "
            "number of the result takes a row of L. With the noise in rows that is `z @ L.mT`; `z @ L` takes the "
            "columns, has other variances and correlations, and looks just as random.",
            zh=f"{there.zh}把 {of.zh} 分解为 {wanted}。噪声 z 的协方差是 1，所以 L z 的协方差是 L Lᵀ：结果中的每个数取"
            " L 的一行。噪声按行存放时应写 `z @ L.mT`；`z @ L` 取的是列，方差和相关性都不同，看上去却同样随机。",
        ),
        related=[story.related("made", factor.step, T(en="the factor is made here", zh="因子在这里得到"))],
        fixes=_fixes(story, found),
        facts=[Fact("factor", found.label, story.by(product.step))],
    )


def _fixes(story: Story, found: Wrong) -> tuple[Fix, ...]:
    """The fix that transposes the factor where it is multiplied, or removes its transposition there; empty if the
    program does not show the factor.
    """
    program = story.program
    node = written_as(story, found.product, found.label)
    if node is None:
        return ()
    inner: ast.expr | None = None
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "mH", "H"):
        inner = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        inner = node.func.value if call_name(node) in spellings("transpose") | {"adjoint", "t"} else None
    text = program.segment(inner) if inner is not None else f"{operand(program, node)}.mT"
    title = T(en=f"Multiply with `{text}`", zh=f"改为与 `{text}` 相乘")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="later")])


RULE = Rule(
    code="PL839",
    name="factor-on-the-wrong-side",
    severity="warning",
    title=T(
        en="Noise is multiplied with a Cholesky factor the wrong way round",
        zh="噪声与 Cholesky 因子相乘的方向弄反了",
    ),
    what=T(
        en="A program wants random numbers that vary together in a given way, and multiplies independent ones with a "
        "root of the table of covariances, but with its columns instead of its rows. The numbers look random all the "
        "same, and vary together in another way. Transpose the factor.",
        zh="程序想得到按给定方式一起变化的随机数，于是把独立的随机数与协方差表的“根”相乘，却用了它的列而不是行。这些数"
        "看上去同样随机，但一起变化的方式不同。请把因子转置。",
    ),
    why=T(
        en="`torch.linalg.cholesky(C)` gives the lower triangular L with C = L Lᵀ. A column of noise z becomes L z, "
        "whose covariance is L Lᵀ = C. Where each row is one draw, the same is `z @ L.mT`; `z @ L` has the covariance "
        "Lᵀ L, which has the same determinant and trace as C, and is not C unless L is diagonal. For the upper factor, "
        "C = Uᵀ U, it is `z @ U`.",
        zh="`torch.linalg.cholesky(C)` 给出下三角的 L，满足 C = L Lᵀ。一列噪声 z 变成 L z，其协方差是 L Lᵀ = C。如果"
        "每一行是一次抽样，就应写 `z @ L.mT`；`z @ L` 的协方差是 Lᵀ L，它与 C 有相同的行列式和迹，但除非 L 是对角的，"
        "它并不等于 C。对上三角因子有 C = Uᵀ U，应写 `z @ U`。",
    ),
    bad="""import torch

torch.manual_seed(0)
cov = torch.tensor([[1.0, 0.6], [0.6, 4.0]])
root = torch.linalg.cholesky(cov)  # made
draws = torch.randn(2000, 2) @ root  # PL839
print(draws.T.cov())
""",
    good="""import torch

torch.manual_seed(0)
cov = torch.tensor([[1.0, 0.6], [0.6, 4.0]])
root = torch.linalg.cholesky(cov)
draws = torch.randn(2000, 2) @ root.mT
print(draws.T.cov())
""",
    find=find,
    traps=(
        Trap(
            "torch.randn(2000, 2) @ root",
            "(root.T @ torch.randn(2, 2000)).T",
            T(
                en="Transposed twice, it is the same product: the columns of the factor again.",
                zh="转置两次，仍是同样的乘积：还是用了因子的列。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html",
        "https://docs.pytorch.org/docs/stable/distributions.html",
    ),
)
