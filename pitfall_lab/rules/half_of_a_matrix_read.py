"""PL849: a call for symmetric matrices reads one triangle, and the matrix has other numbers in the other triangle."""

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
from pitfall_lab.trace import Event, T

CALLS = {"eigh", "eigvalsh", "cholesky", "cholesky_ex"}
"""Calls that take their matrix to be symmetric and read one triangle of it."""
CHOSEN = {"eigh", "eigvalsh"}
"""The calls that choose the triangle by ``UPLO``; the others do so by ``upper``."""


@dataclass(frozen=True, slots=True)
class HalfRead:
    """``event`` is the call (``Event``) that reads one triangle of the matrix ``label``; ``count`` of the ``of``
    numbers in the other triangle are neither 0 nor equal to their mirror images in the triangle that is read.

    ``most`` is the largest difference of two mirrored numbers. ``lower`` is True if the lower triangle is read,
    ``empty`` if that triangle has nothing but zeros, apart from the diagonal.
    """

    event: Event
    label: str
    count: int
    of: int
    most: float
    lower: bool
    empty: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call of ``CALLS`` for which the trace records that the two triangles of its matrix
    differ, and that the triangle that is not read is not zero.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind != "unread" or event is None or event.name not in CALLS or event.error is not None:
            continue
        label = next((o.label for o in event.operands if o.label is not None), None)
        if label is not None:
            most, read, lower = counted.numbers
            yield _finding(story, HalfRead(event, label, counted.count, counted.of, most, bool(lower), not read))


def _finding(story: Story, found: HalfRead) -> Finding:
    event = found.event
    here, name = at_line(story, story.span(event.step)), expression(story, found.label, event.step)
    lower, upper = T(en="lower", zh="下"), T(en="upper", zh="上")
    read, other = (lower, upper) if found.lower else (upper, lower)
    shown = (
        T(
            en=f"which is 0 off the diagonal: the {found.count} numbers of the {other.en} one are left out.",
            zh=f"而它在对角线之外全是 0：{other.zh}三角的 {found.count} 个数都没有用到。",
        )
        if found.empty
        else T(
            en=f"and at least {found.count} of the {found.of} numbers of the {other.en} one differ from them (by up to "
            f"{found.most:.3g}): the matrix is not symmetric.",
            zh=f"而{other.zh}三角的 {found.of} 个数中至少有 {found.count} 个与之不同（相差可达 {found.most:.3g}）：这个"
            "矩阵不对称。",
        )
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} reads only the {read.en} triangle of {name.en}, {shown.en}",
            zh=f"{here.zh}只读 {name.zh} 的{read.zh}三角，{shown.zh}",
        ),
        T(
            en=f"`{event.name}` assumes that a matrix equals its transpose, reads one triangle and does "
            "not check the other. The result belongs to the matrix that this triangle makes, mirrored, and not to the "
            "one that was given. Fill both triangles (`A + A.mT`, without counting the diagonal twice), or use `eig` "
            "if the matrix is not symmetric.",
            zh=f"`{event.name}` 认定矩阵等于自己的转置：只读一个三角，不检查另一个。结果属于由这个三角镜像而成的矩阵，"
            "而不是给出的矩阵。请填满两个三角（`A + A.mT`，对角线不要算两次）；如果矩阵本来就不对称，请用 `eig`。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("unread", found.count, story.by(event.step)), Fact("of", found.of, story.by(event.step))],
    )


def _fixes(story: Story, found: HalfRead) -> tuple[Fix, ...]:
    """A fix that makes ``eigh`` read the triangle with the numbers, or that mirrors this triangle for the other calls;
    empty if both triangles have numbers, since the program does not show which are intended.
    """
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not found.empty or not isinstance(node, ast.Call) or call_name(node) != found.event.name or not node.args:
        return ()
    if found.event.name in CHOSEN and len(node.args) == 1:
        side = "U" if found.lower else "L"
        given = next((word.value for word in node.keywords if word.arg == "UPLO"), None)
        first = program.segment(node.args[0])
        edit = (given, f'"{side}"') if given is not None else (node.args[0], f'{first}, UPLO="{side}"')
        title = T(en=f'Read the other triangle: `UPLO="{side}"`', zh=f'读另一个三角：`UPLO="{side}"`')
        return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])
    text = operand(program, node.args[0])
    new = f"{text} + {text}.{'triu(1)' if found.lower else 'tril(-1)'}.mT"
    title = T(en=f"Fill both triangles: `{new}`", zh=f"填满两个三角：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node.args[0], new)), meaning="later")])


RULE = Rule(
    code="PL849",
    name="half-of-a-matrix-read",
    severity="warning",
    title=T(
        en="A decomposition for symmetric matrices was given one that is not",
        zh="对称矩阵的分解用在了不对称的矩阵上",
    ),
    what=T(
        en="A program gives `eigh`, `eigvalsh` or `cholesky` a matrix whose two triangles differ. These calls read one "
        "triangle and do not look at the other, so the result is that of another matrix, and no error is raised. "
        "Mirror the matrix first, or use `eig`.",
        zh="程序把两个三角不同的矩阵交给 `eigh`、`eigvalsh` 或 `cholesky`。这些调用只读一个三角，不看另一个，于是结果"
        "属于另一个矩阵，而且不报错。请先把矩阵补成对称的，或使用 `eig`。",
    ),
    why=T(
        en="A graph whose edges are listed once fills one triangle of its adjacency matrix, and a covariance that is "
        "updated entry by entry may fill one too. `torch.linalg.eigh` reads the lower triangle by default "
        '(`UPLO="U"` for the upper one), and so does `torch.linalg.cholesky` (`upper=True`). To compare the '
        "two triangles would take time, so none of them does.",
        zh="图的每条边只列一次时，邻接矩阵只填了一个三角；逐项更新的协方差也可能如此。`torch.linalg.eigh` 读下三角，"
        '除非写明 `UPLO="U"`；`torch.linalg.cholesky` 也一样，除非写明 `upper=True`。'
        "比较两个三角要花时间，所以都不比较。",
    ),
    bad="""import torch

torch.manual_seed(0)
edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
adjacency = torch.zeros(4, 4)
adjacency[edges[0], edges[1]] = 1.0
degree = adjacency.sum(0) + adjacency.sum(1)
values, vectors = torch.linalg.eigh(torch.diag(degree) - adjacency)  # PL849
print(values)
""",
    good="""import torch

torch.manual_seed(0)
edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
adjacency = torch.zeros(4, 4)
adjacency[edges[0], edges[1]] = 1.0
adjacency = adjacency + adjacency.mT
degree = adjacency.sum(1)
values, vectors = torch.linalg.eigh(torch.diag(degree) - adjacency)
print(values)
""",
    find=find,
    traps=(
        Trap(
            "adjacency[edges[0], edges[1]] = 1.0",
            "adjacency[edges[0], edges[1]] = 2.0",
            T(
                en="Other numbers stand in the same triangle, and it is still not read.",
                zh="数变了，却仍在同一个三角里，依然读不到。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.eigh.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html",
    ),
)
