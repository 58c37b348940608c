"""PL844: complex numbers are multiplied with themselves, without the conjugate, to get a covariance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("matmul", "mm") | {"bmm"}
TURNED = spellings("transpose") | {"T", "adjoint", "mT", "permute", "t"}
"""Calls that swap dimensions, with or without the conjugate."""
CONJUGATED = {"conj", "H", "mH", "adjoint", "conj_physical", "resolve_conj"}
"""Calls whose result is the conjugate, or is marked as conjugated."""
SCALED = (
    spellings("add", "div", "mul")
    | {"__getitem__", "clone", "contiguous", "detach", "mean", "resolve_conj", "sum", "to"}
)  # fmt: skip
"""Calls after the product whose result can still be a covariance."""
HERMITIAN = {"eigh", "eigvalsh", "cholesky", "cholesky_ex"}
BOTH, FURTHER = 2, 40


@dataclass(frozen=True, slots=True)
class Gram:
    """``product`` is the call (``Event``) that multiplied the complex tensor ``data`` with its transpose ``turned``,
    without conjugating it.

    ``data`` and ``turned`` are labels; they are equal for an ``einsum`` of one tensor with itself. ``count`` is how
    many products each number of the result adds up. ``used`` is the call that shows that the result is intended as a
    covariance.
    """

    product: Event
    data: str
    turned: str
    count: int
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies complex numbers with their transpose, none of them conjugated,
    where a later call uses the result as a covariance (divides it by the number of products, for example).

    Nothing if the same numbers are also multiplied with their conjugates: the program then needs both.
    """
    reported = set()
    for product in story.calls(*PRODUCTS, "einsum"):
        place = story.span(product.step)
        if place in reported or product.error is not None or not product.results:
            continue
        found = _gram(story, product)
        if found is not None and not _conjugated_too(story, found.data):
            reported.add(place)
            yield _finding(story, found)


def _gram(story: Story, product: Event) -> Gram | None:
    labels = [o.label for o in product.operands if o.label is not None]
    if len(labels) != BOTH or not all(_is_complex(story, each, product.step) for each in labels):
        return None
    one, other = labels
    if product.name == "einsum":
        data, turned, count = one, other, _summed(story, product, one) if one == other else 0
    elif (plain := _turned(story, other, one)) or _turned(story, one, other):
        data, turned = (one, other) if plain else (other, one)
        count = (story.shape(one, product.step) or (0,))[-1]
    else:
        return None
    used = _used(story, product, count) if count > 1 and not _conjugated(story, data) else None
    return Gram(product, data, turned, count, used) if used is not None else None


def _is_complex(story: Story, label: str, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith("complex")


def _turned(story: Story, label: str, source: str) -> bool:
    """Whether the tensor ``label`` is the transpose of ``source``, and not conjugated."""
    made = made_by(story, label, len(story.events))
    return made is not None and made.name in TURNED - CONJUGATED and made.operands[0].label == source


def _conjugated(story: Story, label: str) -> bool:
    made = made_by(story, label, len(story.events))
    return made is not None and made.name in CONJUGATED


def _conjugated_too(story: Story, label: str) -> bool:
    """Whether the program also multiplies these numbers with their conjugates."""
    again = {result for use in story.uses(label) if use.name in CONJUGATED for result in use.results}
    return any(use.name in (*PRODUCTS, "einsum", "mul", "__mul__") for each in again for use in story.uses(each))


def _summed(story: Story, product: Event, label: str) -> int:
    """Return how many products an ``einsum`` of one tensor with itself adds up for each number of its result; 0 if it
    is not of the form of a covariance.

    In that form the result has exactly one letter of each operand that the other operand does not have.
    """
    given, arrow, result = product.operands[0].text.strip("'\"").replace(" ", "").partition("->")
    terms = given.split(",")
    shape = story.shape(label, product.step) or ()
    if not arrow or len(terms) != BOTH or "." in given or any(len(term) != len(shape) for term in terms):
        return 0
    shared = set(terms[0]) & set(terms[1])
    own = [set(term) - shared for term in terms]
    count = 1
    for letter in shared - set(result):
        count *= shape[terms[0].index(letter)]
    return count if all(len(each) == 1 and each <= set(result) for each in own) else 0


def _used(story: Story, product: Event, count: int) -> Event | None:
    """Return the call that shows that the product is intended as a covariance; None if there is none.

    Such a call divides by ``count`` or ``count - 1``, averages over further dimensions, or needs a Hermitian matrix.
    """
    pending, seen = list(product.results), set(product.results)
    averages = (str(count), str(count - 1), f"{count}.0", f"{count - 1}.0")
    while pending and len(seen) < FURTHER:
        label = pending.pop(0)
        for use in story.uses(label):
            if use.error is not None or use.step <= product.step:
                continue
            divides = use.name in spellings("div") and use.operands[-1].text in averages
            shares = use.name in spellings("mul") and _is_share(use.operands[-1].text, count)
            if divides or shares or use.name == "mean" or use.name in HERMITIAN:
                return use
            if use.name in SCALED and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _is_share(text: str, count: int) -> bool:
    try:
        return any(abs(float(text) * each - 1) < 1e-6 for each in (count, count - 1))
    except ValueError:
        return False


def _finding(story: Story, found: Gram) -> Finding:
    here, there = at_line(story, story.span(found.product.step)), at_line(story, story.span(found.used.step))
    name = expression(story, found.data, found.product.step)
    shown = _shown(story, found)
    code = snippet(story, story.span(found.product.step))
    said = (
        T(
            en=f" Here the first number of the diagonal is {shown}; a power is real and not negative.",
            zh=f"这里对角线上的第一个数是 {shown}；而功率是实数，不会为负。",
        )
        if shown
        else T(en="", zh="")
    )
    if story.span(found.used.step) == story.span(found.product.step):
        there = T(en="", zh="")
    use = T(en="averages them", zh="求它们的平均")
    if found.used.name in HERMITIAN:
        use = T(en=f"takes the result for a Hermitian matrix (`{found.used.name}`)",
                zh=f"把结果当作厄米矩阵（`{found.used.name}`）")  # fmt: skip
    return RULE.finding(
        story.span(found.product.step),
        found.product.step,
        T(
            en=f"{capital(here.en)} multiplies the complex numbers of {name.en} with themselves, not with their "
            f"conjugates, {found.count} products for each entry, and {there.en}{' ' if there.en else ''}{use.en}: tha"
            "t is no covariance.",
            zh=f"{here.zh}把 {name.zh} 的复数与它们自己相乘，而不是与共轭相乘，每个元素有 {found.count} 个乘积，"
            f"{there.zh}{use.zh}：这不是协方差。",
        ),
        T(
            en="The covariance of complex numbers is the mean of z_i times the conjugate of z_j: the phase that both "
            f"have in common cancels, and the diagonal is their power. In `{code}` the phases add up instead, and with "
            f"phases of all kinds the products cancel each other.{said.en} `.T` only turns a matrix, `.mH` conjugates "
            "as well.",
            zh="复数的协方差是 z_i 与 z_j 的共轭之积的平均：两者共有的相位互相抵消，对角线就是功率。而在 "
            f"`{code}` 中，相位是相加的，相位各不相同时各个乘积互相抵消。{said.zh}`.T` 只转置，`.mH` 还取共轭。",
        ),
        related=[
            story.related("used", found.used.step, T(en="taken for a covariance here", zh="在这里当作协方差")),
        ]
        if story.span(found.used.step) != story.span(found.product.step)
        else [],
        fixes=_fixes(story, found),
        facts=[Fact("count", found.count, story.by(found.product.step))],
    )


def _shown(story: Story, found: Gram) -> str:
    """Return the first number of the product's diagonal, divided by ``found.count``, as text; empty if it is not known
    or not negative.
    """
    result = found.product.results[0]
    held = Elements(story, result, found.product.step)
    value = held.at((0,) * len(story.shape(result, found.product.step) or ()))
    return number(value / found.count) if isinstance(value, float | int) and value < 0 else ""


def _fixes(story: Story, found: Gram) -> tuple[Fix, ...]:
    """Fixes that conjugate one side: ``.mH`` for ``.T``, ``.conj()`` otherwise; empty if the program does not show the
    operand.
    """
    program, product = story.program, found.product
    node = program.at(story.span(product.step))
    changes: list[tuple[ast.AST, str]] = []
    if product.name == "einsum":
        if isinstance(node, ast.Call) and len(node.args) > BOTH:
            changes = [(node.args[2], f"{operand(program, node.args[2])}.conj()")]
    else:
        given = written_as(story, product, found.turned)
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "t":
            changes = [(given, f"{program.segment(given.func.value)}.mH")]
        elif isinstance(given, ast.Attribute) and given.attr in ("T", "mT"):
            changes = [(given, f"{program.segment(given.value)}.mH")]
        elif given is not None:
            changes = [(given, f"{operand(program, given)}.conj()")]
    if not changes:
        return ()
    title = T(en=f"Conjugate one side: `{changes[0][1]}`", zh=f"对一边取共轭：`{changes[0][1]}`")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])


RULE = Rule(
    code="PL844",
    name="covariance-without-conjugate",
    severity="warning",
    title=T(en="A covariance of complex numbers without the conjugate", zh="复数的协方差没有取共轭"),
    what=T(
        en="A program measures how strongly the signals of several sensors go together, given as numbers with an angle"
        ", and multiplies them as they are. The angles then add up and the products cancel each other, so hardly "
        "anything is left of the strength. Conjugate one side: `x @ x.mH`.",
        zh="程序要衡量几个传感器的信号有多相关，信号以带角度的数给出，却直接把它们相乘。这样角度相加，各个乘积互相抵"
        "消，强度几乎不剩。请对一边取共轭：`x @ x.mH`。",
    ),
    why=T(
        en="For real numbers `x @ x.T / n` is the covariance, and the formula is copied from there. For complex ones "
        "the transpose keeps each number as it is; z times z has twice the angle, z times its conjugate none. The "
        "result of `x @ x.T` is symmetric but not Hermitian, which `eigh` or a beamformer expects and does not check. "
        "`torch.cov` conjugates by itself.",
        zh="对实数来说 `x @ x.T / n` 就是协方差，公式便是从那里抄来的。对复数来说，转置不改变每个数；z 乘 z 的角度加"
        "倍，z 乘它的共轭则没有角度。`x @ x.T` 的结果是对称的，但不是厄米的，而 `eigh` 或波束形成需要厄米矩阵，又不检"
        "查。`torch.cov` 会自己取共轭。",
    ),
    bad="""import torch

torch.manual_seed(0)
phase = torch.exp(1j * torch.tensor([0.0, 0.8, 1.6]))
signal = torch.randn(50, dtype=torch.complex64)
x = phase[:, None] * signal + 0.1 * torch.randn(3, 50, dtype=torch.complex64)
cov = x @ x.T / 50  # PL844
print((phase.conj() @ cov @ phase).abs() / 9)
""",
    good="""import torch

torch.manual_seed(0)
phase = torch.exp(1j * torch.tensor([0.0, 0.8, 1.6]))
signal = torch.randn(50, dtype=torch.complex64)
x = phase[:, None] * signal + 0.1 * torch.randn(3, 50, dtype=torch.complex64)
cov = x @ x.mH / 50
print((phase.conj() @ cov @ phase).abs() / 9)
""",
    find=find,
    traps=(
        Trap(
            "cov = x @ x.T / 50",
            "cov = (x @ x.T / 50).conj()",
            T(
                en="The conjugate of the whole has the angles doubled the other way round.",
                zh="对整体取共轭，只是角度向另一边加倍。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.mH.html",
        "https://docs.pytorch.org/docs/stable/complex_numbers.html",
    ),
)
