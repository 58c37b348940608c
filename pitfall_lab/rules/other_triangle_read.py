"""PL845: a triangular solve reads the triangle of its matrix that holds zeros only."""

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
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

MATRIX_AT = {"cholesky_inverse": 0, "cholesky_solve": 1, "solve_triangular": 0, "triangular_solve": 1}
"""Calls that read one triangle of a matrix only, each with the place of the matrix among its tensors."""
NAMES = {"A", "L", "input2"}
"""The names under which such a call may be given its matrix as a keyword argument."""
LOWER, DIAGONAL, UPPER = 1, 0, -1
FACTORS = {"cholesky", "cholesky_ex"}
"""Calls whose first result is a lower triangle, or an upper one with ``upper=True``."""
CUT = {"tril": LOWER, "triu": UPPER}
"""Calls that keep one triangle."""
PLACED = {("lu", 1): LOWER, ("lu", 2): UPPER, ("lu_unpack", 1): LOWER, ("lu_unpack", 2): UPPER, ("qr", 1): UPPER}
"""The triangle of a result of other decompositions, by the call and the place of the result."""
DIAGONALS = {"diag", "diag_embed", "diagflat", "eye"}
"""Calls that make a diagonal matrix."""
COPIES = {"clone", "contiguous", "cpu", "detach", "double", "float", "requires_grad_", "to", "type_as"}
"""Calls whose result has the numbers of their first operand at the same places."""
SCALED = spellings("div", "mul", "neg")
"""Calls that leave a zero of their first operand a zero."""
SUMS = spellings("add", "sub")
"""Calls whose result is zero where both operands are."""
DEEPEST, MATRIX = 12, 2


@dataclass(frozen=True, slots=True)
class OtherTriangle:
    """``event`` is the call (``Event``) that reads one triangle of the matrix labelled ``label``, whose nonzero numbers
    are in the other triangle; ``read`` is the triangle that it reads: 1 for the lower, -1 for the upper one.

    ``made`` is the call that made the matrix triangular; None if only its numbers show that.
    """

    event: Event
    label: str
    read: int
    made: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a call (``solve_triangular``, for example) that reads one triangle of a
    matrix, where all numbers of that triangle off the diagonal are zero and the other triangle has numbers that are
    not.

    Where only the numbers show it, they must do so each time the line runs.
    """
    reported = set()
    filled = set()
    found = list[OtherTriangle]()
    for event in story.calls(*MATRIX_AT):
        label = _matrix(event)
        read = _read(story, event)
        if label is None or read is None or event.error is not None or len(story.shape(label, event.step) or ()) < 2:
            continue
        side, made = _side(story, label, event.step)
        if side is None:
            side, made = _of_numbers(story, label, event.step), None
        if side == -read and _is_off_diagonal(story, label, event.step, -read):
            found.append(OtherTriangle(event, label, read, made))
        elif side != DIAGONAL:
            filled.add(story.span(event.step))
    for each in found:
        place = story.span(each.event.step)
        if place not in reported and (each.made is not None or place not in filled):
            reported.add(place)
            yield _finding(story, each, shared=place in filled)


def _matrix(event: Event) -> str | None:
    """The label of the triangular matrix that a call is given; None if it is not among its operands."""
    given = [o for o in event.operands if o.label is not None]
    named = [o.label for o in given if o.name in NAMES]
    place = MATRIX_AT[event.name]
    return named[0] if named else given[place].label if place < len(given) else None


def _read(story: Story, event: Event) -> int | None:
    """The triangle that a call reads, ``LOWER`` or ``UPPER``; None if it is not known."""
    if event.name != "triangular_solve":  # False is no part of a trace, and the default
        return UPPER if (argument(event, "upper", MATRIX_AT[event.name] + 1) or "False") == "True" else LOWER
    said = _upper(story.program.at(story.span(event.step)))
    if said is None:
        return UPPER  # its default
    value = said.value if isinstance(said, ast.Constant) else None
    return {True: UPPER, False: LOWER}.get(value) if isinstance(value, bool) else None


def _upper(node: ast.AST | None) -> ast.expr | None:
    """The argument ``upper`` as a call writes it; None if it is not written."""
    if not isinstance(node, ast.Call):
        return None
    given = [k.value for k in node.keywords if k.arg == "upper"]
    if given or call_name(node) == "solve_triangular":  # by its keyword only
        return next(iter(given), None)
    function = node.func
    method = isinstance(function, ast.Attribute) and not (
        isinstance(function.value, ast.Name) and function.value.id in ("torch", "linalg")
    )
    named = sum(k.arg in (*NAMES, "input", "B") for k in node.keywords)
    place = MATRIX_AT.get(call_name(node), 0) + 1 - method - named
    return node.args[place] if 0 <= place < len(node.args) else None


def _side(story: Story, label: str, step: int, depth: int = 0) -> tuple[int | None, Event | None]:
    """The triangle that holds all nonzero numbers of a matrix (``LOWER``, ``UPPER``, or ``DIAGONAL`` if all are on the
    diagonal), by the calls that made it, and the call that made it so; both None if that is not known.
    """
    record = story.tensor(label, step) or {}
    made = story.event(record.get("born"))
    if made is None or label not in made.results or made.error is not None or depth > DEEPEST:
        return None, None
    if story.writes(str(record.get("storage")), made.step, step):
        return None, None
    name, place = made.name, made.results.index(label)
    given = [o.label for o in made.operands if o.label is not None]
    if name in FACTORS and place == 0:
        return (UPPER if (argument(made, "upper", 1) or "False") == "True" else LOWER), made
    if (name, place) in PLACED:
        return PLACED[name, place], made
    if name in CUT:
        beyond = whole(argument(made, "diagonal", 1) or "0")
        return (CUT[name], made) if beyond is not None and beyond * CUT[name] <= 0 else (None, None)
    if name in DIAGONALS:
        offset = whole(argument(made, "offset", 1) or argument(made, "diagonal", 1) or "0")
        is_matrix = name == "eye" or name != "diag" or len(story.shape(given[0], made.step) or ()) == 1
        return (DIAGONAL, made) if is_matrix and (name == "eye" or offset == 0) else (None, None)
    if not given or given[0] == label:
        return None, None
    if name in SUMS:
        return _of_sum(story, made, given, depth)
    turned = 1 if name in COPIES | SCALED else _turned(story, given[0], label, made)
    side, first = _side(story, given[0], made.step, depth + 1) if turned else (None, None)
    return (None, None) if side is None else (side * turned, first)


def _of_sum(story: Story, event: Event, given: list[str], depth: int) -> tuple[int | None, Event | None]:
    """The triangle of a sum of matrices, which all of them have in common apart from diagonal ones, and the call that
    made it; both None if they have none, or if the shapes differ.
    """
    if len(given) != len(event.operands) or any(
        (story.shape(each, event.step) or ())[-2:] != (story.shape(event.results[0], event.step) or ())[-2:]
        for each in given
    ):
        return None, None
    sides = [_side(story, each, event.step, depth + 1) for each in given]
    kept = [each for each in sides if each[0] != DIAGONAL] or sides[:1]
    return kept[0] if len({side for side, _ in kept}) == 1 else (None, None)


def _turned(story: Story, source: str, label: str, event: Event) -> int:
    """1 if a view has the last two axes of its source in the same order, -1 if exchanged, 0 if it is no such view."""
    one, other = (story.tensor(each, event.step) or {} for each in (source, label))
    before, after = (list(each.get("stride") or ())[-2:] for each in (one, other))
    lengths = [list(each.get("shape") or ())[-2:] for each in (one, other)]
    if one.get("storage") != other.get("storage") or len(after) < MATRIX or lengths[0] != lengths[1]:
        return 0
    if len(set(before)) < MATRIX or lengths[0][0] != lengths[0][1]:
        return 0
    return 1 if before == after else -1 if before == after[::-1] else 0


def _of_numbers(story: Story, label: str, step: int) -> int | None:
    """The triangle that holds all nonzero numbers of a matrix (``DIAGONAL`` if all are on the diagonal); None if both
    triangles have some, or if not all numbers are known.
    """
    known = dict(Elements(story, label, step).known())
    count = 1
    for length in story.shape(label, step) or ():
        count *= length
    if len(known) != count:
        return None
    below, above = (any(_is_in(place, side) and value for place, value in known.items()) for side in (LOWER, UPPER))
    return None if below and above else LOWER if below else UPPER if above else DIAGONAL


def _is_off_diagonal(story: Story, label: str, step: int, side: int) -> bool:
    """Whether a known number of this triangle of a matrix, off the diagonal, is not zero."""
    return any(value and _is_in(place, side) for place, value in Elements(story, label, step).known())


def _is_in(place: tuple[int, ...], side: int) -> bool:
    return (place[-2] - place[-1]) * side > 0


def _finding(story: Story, found: OtherTriangle, *, shared: bool) -> Finding:
    event = found.event
    here, name = at_line(story, story.span(event.step)), expression(story, found.label, event.step)
    read, other = (
        T(en="upper", zh="上") if side == UPPER else T(en="lower", zh="下") for side in (found.read, -found.read)
    )
    upper = found.read == UPPER
    made = found.made
    there = (
        story.related("made", made.step, T(en="the triangle is made here", zh="三角矩阵在这里得到"))
        if made is not None
        else None
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} reads the {read.en} triangle of {name.en}, which is {other.en} triangular: of all "
            "its numbers, only those on the diagonal are used.",
            zh=f"{here.zh}只读 {name.zh} 的{read.zh}三角，而它是{other.zh}三角矩阵：它的所有数中只用到了对角线上的。",
        ),
        T(
            en=f"With `upper={upper}`, `{event.name}` takes the numbers of the {other.en} triangle for zeros and does "
            f"not look at them. It then solves with another matrix, a diagonal one, and raises no error. A transpose "
            f"exchanges the triangles. Say `upper={not upper}`.",
            zh=f"在 `upper={upper}` 时，`{event.name}` 把{other.zh}三角的数当作 0，根本不读它们。于是求解时用的是另一个"
            f"矩阵，一个对角矩阵，而且不报错。转置会互换两个三角。请写 `upper={not upper}`。",
        ),
        related=[there] if there is not None else [],
        fixes=() if shared else _fixes(story, found),
        facts=[Fact("read", read.en, story.by(event.step)), Fact("filled", other.en, story.by(event.step))],
    )


def _fixes(story: Story, found: OtherTriangle) -> tuple[Fix, ...]:
    """The fix that makes the call read the other triangle; none if the call is not in the program's source."""
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or call_name(node) != found.event.name:
        return ()
    said, wanted = _upper(node), str(found.read != UPPER)
    if said is None:
        last = (*node.args, *(k.value for k in node.keywords))
        if not last:
            text = f"{program.segment(node.func)}(upper={wanted})"
            edits = program.replace((node, text))
        else:
            edits = program.replace((last[-1], f"{program.segment(last[-1])}, upper={wanted}"))
    else:
        edits = program.replace((said, wanted if isinstance(said, ast.Constant) else f"not {operand(program, said)}"))
    title = T(en=f"Read the other triangle: `upper={wanted}`", zh=f"读另一个三角：`upper={wanted}`")
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL845",
    name="other-triangle-read",
    severity="warning",
    title=T(en="A triangular solve reads the triangle of zeros", zh="三角求解读了全为零的那个三角"),
    what=T(
        en="A program solves equations with a matrix that has numbers on one side of its diagonal only, and says that "
        "they are on the other side. That side is all that is read: the equations are solved as if every unknown stood "
        "alone, and no error is raised. Exchange `upper=True` and `upper=False`.",
        zh="程序用一个只在对角线一侧有数的矩阵解方程，却说这些数在另一侧。而只有那一侧会被读取：求解时好像每个未知数都互不"
        "相关，也不会报错。请把 `upper=True` 与 `upper=False` 互换。",
    ),
    why=T(
        en="`torch.linalg.solve_triangular`, `torch.triangular_solve`, `torch.cholesky_solve` and "
        "`torch.cholesky_inverse` read one triangle and the diagonal; to check that the rest is zero would take time, "
        "so none does. `torch.linalg.cholesky` gives a lower triangle L. Its transpose is an upper one, so the second "
        "of the two solves for L Lᵀ x = b needs `upper=True`.",
        zh="`torch.linalg.solve_triangular`、`torch.triangular_solve`、`torch.cholesky_solve` 和 "
        "`torch.cholesky_inverse` 只读一个三角和对角线；检查其余的数是否为零要花时间，所以都不检查。"
        "`torch.linalg.cholesky` 给出下三角的 L，它的转置是上三角，因此解 L Lᵀ x = b 的两次求解中，第二次需要 "
        "`upper=True`。",
    ),
    bad="""import torch

A = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
b = torch.tensor([[8.0], [14.0]])
L = torch.linalg.cholesky(A)  # made
half = torch.linalg.solve_triangular(L, b, upper=False)
x = torch.linalg.solve_triangular(L.T, half, upper=False)  # PL845
print(A @ x)
""",
    good="""import torch

A = torch.tensor([[4.0, 2.0], [2.0, 5.0]])
b = torch.tensor([[8.0], [14.0]])
L = torch.linalg.cholesky(A)
half = torch.linalg.solve_triangular(L, b, upper=False)
x = torch.linalg.solve_triangular(L.T, half, upper=True)
print(A @ x)
""",
    find=find,
    traps=(
        Trap(
            "L.T, half",
            "L.T.contiguous(), half",
            T(
                en="A copy has its numbers at the same rows and columns: it is still an upper triangle.",
                zh="副本中每个数的行和列都不变：它仍是上三角。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.solve_triangular.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.cholesky_solve.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.cholesky.html",
    ),
)
