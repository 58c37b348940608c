"""PL480: complex vectors are multiplied without the conjugate where a Hermitian matrix needs their inner product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, flat
from pitfall_lab.rules.signals.forms import key, made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("matmul", "mm") | {"mv"}
DOTS = {"dot", "inner"}
TIMES = spellings("mul")
SQUARES = spellings("pow", "square")
TURNED = {"T", "mT", "t", "transpose"}
ROOTS, QUOTIENTS = {"sqrt", "sqrt_"}, spellings("div", in_place=True)
PAIR = 2
UNREAL = 1e-3
"""The least share of the imaginary part in a result which should be real."""
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Unconjugated:
    """``event`` is the call (``Event``) that adds up the products of the vectors ``one`` and ``other`` (labels), none
    of them conjugated; ``factors`` is the call that multiplied them, ``event`` itself for a ``dot``.
    """

    event: Event
    factors: Event
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class WithMatrix:
    """``found`` are the executions (:class:`Unconjugated`) of one place, ``product`` is the call (``Event``) that
    multiplied the Hermitian matrix ``matrix`` with the vector ``vector`` (labels) for the first of them, and ``value``
    one of the results, which should be real.
    """

    found: list[Unconjugated]
    product: Event
    matrix: str
    vector: str
    value: complex


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each function that multiplies a complex vector x with A x, without the conjugate, or
    divides A x by the root of such a product of it with itself.

    A is a Hermitian matrix that is not equal to its transpose. Nothing if a place does something else at other times:
    methods with a second vector begin with both equal.
    """
    matrices = {
        key(story, label, event.step)
        for counted in story.trace.beside.counted
        if counted.kind == "hermitian" and (event := story.event(counted.step)) is not None
        for label in _labels(event)
        if _is_square(story, label, event.step)
    }
    if not matrices:
        return
    places: dict[Span | None, list[Unconjugated]] = {}
    for each in _products(story):
        places.setdefault(story.span(each.event.step), []).append(each)
    scopes: dict[tuple[str, ...], list[WithMatrix]] = {}
    for found in places.values():
        shown = _with_matrix(story, found, matrices)
        if shown is not None:
            scopes.setdefault(shown.found[0].event.scope, []).append(shown)
    for scope, (shown, *more) in scopes.items():
        others = [each.found[0] for each in more]
        own = [each for each in places.values() if each[0].event.scope == scope and _are_selves(story, each)]
        known = {story.span(each.event.step) for each in [shown.found[0], *others]}
        others += [each[0] for each in own if story.span(each[0].event.step) not in known]
        yield _finding(story, shown, others)


def _labels(event: Event) -> list[str]:
    return [o.label for o in event.operands if o.label is not None]


def _is_square(story: Story, label: str, step: int) -> bool:
    shape = story.shape(label, step) or ()
    return len(shape) == PAIR and shape[0] == shape[1]


def _products(story: Story) -> Iterator[Unconjugated]:
    """Yield the calls whose result is one complex number, the sum of the products of two vectors as they are."""
    for event in story.calls(*DOTS, *PRODUCTS, "sum", "einsum"):
        if event.error is not None or len(event.results) != 1 or story.shape(event.results[0]) not in ((), (1, 1)):
            continue
        labels = _labels(event)
        factors = event
        if event.name == "sum":
            made = made_by(story, labels[0], event.step) if len(labels) == 1 else None
            is_square = made is not None and made.name in SQUARES and _is_second_power(made)
            if made is None or not (made.name in TIMES or is_square):
                continue
            factors = made
            labels = _labels(factors) * (PAIR if is_square else 1)
        elif event.name in PRODUCTS and story.shape(event.results[0]) == (1, 1):
            labels = [_untransposed(story, label, event.step) for label in labels]
        if len(labels) == PAIR and all(_is_complex_vector(story, label, event.step) for label in labels):
            yield Unconjugated(event, factors, labels[0], labels[1])


def _is_second_power(event: Event) -> bool:
    return event.name in spellings("square") or event.operands[-1].text in ("2", "2.0")


def _untransposed(story: Story, label: str, step: int) -> str:
    """The tensor of which ``label`` is the transpose, without the conjugate; ``label`` itself if it is none."""
    made = made_by(story, label, step)
    return _labels(made)[0] if made is not None and made.name in TURNED and _labels(made) else label


def _is_complex_vector(story: Story, label: str, step: int) -> bool:
    shape = story.shape(label, step) or ()
    is_vector = len(shape) == 1 or (len(shape) == PAIR and 1 in shape)
    return is_vector and str((story.tensor(label, step) or {}).get("dtype")).startswith("complex")


def _with_matrix(story: Story, found: list[Unconjugated], matrices: set[object]) -> WithMatrix | None:
    """What the executions of one place show, if each multiplies x with A x, normalizes A x, or multiplies a vector with
    itself, and not all are of the last kind; else None.
    """
    made = [(each, product) for each in found if (product := _matrix_product(story, each, matrices)) is not None]
    shown, steps = [each for each, _ in made], {each.event.step for each, _ in made}
    if not made or not _are_selves(story, [each for each in found if each.event.step not in steps]):
        return None
    if not any(story.uses(each.event.results[0]) for each in shown):
        return None
    values = [value for each in shown if (value := _value(story, each)) is not None and _is_unreal(value)]
    return WithMatrix(shown, *made[0][1], values[0]) if values else None


def _matrix_product(story: Story, each: Unconjugated, matrices: set[object]) -> tuple[Event, str, str] | None:
    """The call that computed A x for a product of x with A x, or of A x with itself whose root divides it, with the
    labels of A and x; else None.
    """
    for one, other in ((each.one, each.other), (each.other, each.one)):
        product = made_by(story, other, each.event.step)
        if product is None or product.name not in PRODUCTS or len(_labels(product)) != PAIR:
            continue
        left, right = _labels(product)
        matrix, vector = (left, right) if key(story, left, product.step) in matrices else (right, left)
        if key(story, matrix, product.step) not in matrices or _written(story, other, product.step, each.event.step):
            continue
        is_form = _is_one(story, one, vector, each.event.step) and not _written(
            story, one, product.step, each.event.step
        )
        if is_form or (one == other and _normalizes(story, each)):
            return product, matrix, vector
    return None


def _is_one(story: Story, one: str, other: str, step: int) -> bool:
    """Whether two labels are of the same elements."""
    return one == other or key(story, one, step) == key(story, other, step)


def _written(story: Story, label: str, after: int, until: int) -> bool:
    storage = (story.tensor(label, until) or {}).get("storage")
    return storage is None or bool(story.writes(storage, after, until))


def _normalizes(story: Story, each: Unconjugated) -> bool:
    """Whether the vector is divided by the root of its product with itself."""
    for root in story.uses(each.event.results[0]):
        is_root = root.name in ROOTS or (root.name in spellings("pow") and root.operands[-1].text == "0.5")
        if is_root and root.results:
            used = story.uses(root.results[0])
            return any(use.name in QUOTIENTS and _labels(use)[0] == each.one for use in used)
    return False


def _value(story: Story, each: Unconjugated) -> complex | None:
    result, step = each.event.results[0], each.event.step
    storage = (story.tensor(result, step) or {}).get("storage")
    values = flat((story.record("storages", storage, step) or {}).get("cells"))
    try:
        return complex(str(values[0][1]).replace(" ", "")) if len(values) == 1 else None
    except ValueError:
        return None


def _is_unreal(value: complex) -> bool:
    return abs(value.imag) > UNREAL * abs(value)


def _are_selves(story: Story, found: list[Unconjugated]) -> bool:
    """Whether each of these multiplies a vector with itself."""
    return all(_is_one(story, each.one, each.other, each.event.step) for each in found)


def _finding(story: Story, shown: WithMatrix, others: list[Unconjugated]) -> Finding:
    first = shown.found[0]
    step = first.event.step
    here = at_line(story, story.span(step))
    one, other = expression(story, first.one, step), expression(story, first.other, step)
    matrix, value = expression(story, shown.matrix, step), _text(shown.value)
    is_self = first.one == first.other
    what = T(en=f"{one.en} with itself", zh=f"把 {one.zh} 与自己相乘")
    if not is_self:
        what = T(en=f"{one.en} with {other.en}", zh=f"把 {one.zh} 与 {other.zh} 相乘")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} multiplies {what.en} and adds up, without the conjugate of one: the result "
            f"{value} is not real, as an inner product is here, where {matrix.en} is Hermitian.",
            zh=f"{here.zh}{what.zh}并求和，没有对其中一个取共轭：结果 {value} 不是实数，而这里 {matrix.zh} 是厄米矩阵，"
            "内积应是实数。",
        ),
        T(
            en="The inner product of complex vectors is the sum of the conjugate of one number times the other. With "
            "it the product of x with itself is the square of its length, and that of x with A x is real for a "
            "Hermitian A. `dot`, `@` and `(x * y).sum()` do not conjugate; lengths of 0 and negative ones come out, "
            "and steps or averages computed from them are wrong. Only for a matrix equal to its transpose, without "
            "the conjugate, are there methods with such products.",
            zh="复向量的内积是一个数的共轭乘以另一个数，再求和。这样 x 与自己的积是长度的平方，而对厄米矩阵 A，x 与 A x"
            " 的积是实数。`dot`、`@` 和 `(x * y).sum()` 都不取共轭，会得到等于零或为负的“长度”，由此算出的步长或平均值"
            "都是错的。只有当矩阵等于它的转置（不取共轭）时，才有使用这种积的方法。",
        ),
        related=[
            story.related("made", shown.product.step, T(en="the product with the matrix", zh="与矩阵的乘积")),
            *(_also(story, each) for each in others),
        ],
        fixes=_fixes(story, shown, others),
        facts=[Fact("value", value, story.by(step))],
    )


def _also(story: Story, each: Unconjugated) -> Related:
    return story.related("used", each.event.step, T(en="no conjugate here either", zh="这里也没有取共轭"))


def _text(value: complex) -> str:
    return f"{value.real:.{DIGITS}g}{value.imag:+.{DIGITS}g}i"


def _fixes(story: Story, shown: WithMatrix, others: list[Unconjugated]) -> tuple[Fix, ...]:
    """A fix that conjugates one vector at each of the places; empty if the source does not show all of them."""
    program = story.program
    changes = [_change(story, each, shown if each is shown.found[0] else None) for each in [shown.found[0], *others]]
    known = [change for change in changes if change is not None]
    if len(known) < len(changes):
        return ()
    title = T(en=f"Conjugate one side: `{known[0][1]}`", zh=f"对一边取共轭：`{known[0][1]}`")
    return unique(program.text, [Fix(title, program.replace(*known), meaning="later")])


def _change(story: Story, each: Unconjugated, shown: WithMatrix | None) -> tuple[ast.AST, str] | None:
    """The expression to replace at one place, and its replacement; None if the source does not show it."""
    program = story.program
    if shown is not None and _labels(shown.product)[0] == shown.vector and each.one != each.other:
        given = written_as(story, shown.product, shown.vector)  # x @ A @ x
        return _conjugated(program, given)
    node = program.at(story.span(each.event.step))
    if isinstance(node, ast.Call) and called(node) == "dot" and isinstance(node.func, ast.Attribute):
        return node.func, f"{program.segment(node.func.value)}.vdot"
    if each.factors.name in SQUARES:
        given = written_as(story, each.factors, each.one)
        power = program.at(story.span(each.factors.step))
        text = operand(program, given) if given is not None else ""
        return (power, f"({text}.conj() * {text})") if power is not None and isinstance(given, ast.Name) else None
    return _conjugated(program, written_as(story, each.factors, _labels(each.factors)[0]))


def _conjugated(program: Program, given: ast.expr | None) -> tuple[ast.AST, str] | None:
    if given is None:
        return None
    if isinstance(given, ast.Attribute) and given.attr in ("T", "mT"):
        return given, f"{program.segment(given.value)}.mH"
    return given, f"{operand(program, given)}.conj()"


RULE = Rule(
    code="PL480",
    name="inner-product-without-conjugate",
    severity="warning",
    title=T(
        en="Complex vectors are multiplied without the conjugate where a Hermitian matrix needs an inner product",
        zh="厄米矩阵需要内积，复向量却没有取共轭就相乘",
    ),
    what=T(
        en="A program multiplies two vectors of complex numbers and adds up, as it would with real ones, to get a "
        "length, an energy or the size of a step. The result is not even real, and what is computed from it is wrong. "
        "Use `torch.vdot(x, y)`, which conjugates `x`.",
        zh="程序像对实数那样，把两个复数向量相乘再求和，以得到长度、能量或步长。结果甚至不是实数，由它算出的一切都是错的。"
        "请用 `torch.vdot(x, y)`，它对 `x` 取共轭。",
    ),
    why=T(
        en="For real vectors `torch.dot` is the inner product, and formulas such as those of conjugate gradients are "
        "written with it. For complex ones an inner product conjugates one vector, so that the product of a vector "
        "with itself is its squared length. `torch.dot`, `@`, `torch.inner` and `sum` do not do that: some methods, "
        "for matrices equal to their own transpose, need the product as it is. A Hermitian matrix equals the "
        "conjugate of its transpose.",
        zh="对实向量来说 `torch.dot` 就是内积，共轭梯度等公式都是这样写的。对复向量，内积要对其中一个取共轭，这样向量与"
        "自己的积才是长度的平方。`torch.dot`、`@`、`torch.inner` 和 `sum` 都不这样做，因为有些方法（用于等于自身转置的"
        "矩阵）需要不取共轭的积。厄米矩阵则等于其转置的共轭。",
    ),
    bad="""import torch

torch.manual_seed(0)
a = torch.randn(6, 6, dtype=torch.complex64)
h = a + a.mH
x = torch.randn(6, dtype=torch.complex64)
x = x / x.norm()
energy = torch.dot(x, h @ x).real  # PL480
print(energy, torch.linalg.eigvalsh(h))
""",
    good="""import torch

torch.manual_seed(0)
a = torch.randn(6, 6, dtype=torch.complex64)
h = a + a.mH
x = torch.randn(6, dtype=torch.complex64)
x = x / x.norm()
energy = torch.vdot(x, h @ x).real
print(energy, torch.linalg.eigvalsh(h))
""",
    find=find,
    traps=(
        Trap(
            "torch.dot(x, h @ x).real",
            "torch.dot(x, h @ x).abs()",
            T(
                en="The absolute value is real, but it is not the inner product.",
                zh="绝对值是实数，但不是内积。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.vdot.html",
        "https://docs.pytorch.org/docs/stable/complex_numbers.html",
    ),
)
