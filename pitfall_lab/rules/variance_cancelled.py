"""PL762: a variance was computed as the mean of squares minus the square of the mean, and the
difference has no right digit left.
"""

from __future__ import annotations

import ast
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log2, prod, sqrt
from statistics import pvariance

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, origin, values
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

GAPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1 to the next number."""
MANY_GAPS = {"float32": 64, "float16": 2, "bfloat16": 2}
"""A difference of at most so many gaps of what was subtracted may consist of rounding errors alone."""
TAKING = spellings("sub", in_place=True)
POWERS, PRODUCTS = spellings("pow", in_place=True), spellings("mul")
ADDING = spellings("mul") | spellings("add", "div", in_place=True) | {"mean", "sum"}
MADE = {"zeros", "tensor", "zeros_like", "new_zeros"}
"""Calls that make the tensor in which a sum begins, in the trace and in the program's text."""
FURTHER, SOME, WRONG, OFTEN, FEWEST, SURE = 80, 4, 3, 3, 3, 16


@dataclass(frozen=True, slots=True)
class VarianceCancelled:
    """``event`` is the call (``Event``) that subtracted the square of a mean from a mean of squares in ``dtype``.

    For one element, ``large`` is the mean of squares, ``got`` the result, and ``true`` the variance of the known
    numbers. ``squares`` is the first call that squared the numbers, ``started`` are the calls that made what the
    squares and the numbers were added to.
    """

    event: Event
    squares: Event
    started: tuple[Event, ...]
    dtype: str
    large: float
    got: float
    true: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that subtracts the square of a mean from a mean of squares, where an element of
    the result is rounding noise and not within a factor of ``WRONG`` of the variance, in float32, float16 or bfloat16.
    The first ``OFTEN`` runs of each line are looked at.
    """
    looked: Counter[Span | None] = Counter()
    for event in story.calls(*TAKING):
        place = story.span(event.step)
        if looked[place] >= OFTEN or event.error is not None or len(event.operands) < 2 or not event.results:
            continue
        first, second = event.operands[0].label, event.operands[1].label
        mean = _squared(origin(story, second, event.step - 1)) if first is not None and second is not None else None
        if first is None or mean is None:
            continue
        looked[place] += 1
        found = _cancelled(story, event, first, mean)
        if found is not None:
            looked[place] = OFTEN
            yield _finding(story, found)


def _squared(event: Event | None) -> str | None:
    """Return the label of what a call squares (``square``, a power of 2, a product with
    itself); None if it does not square.
    """
    given = [o for o in event.operands if not o.name or o.name == "exponent"] if event is not None else []
    if event is None or not given:
        return None
    if event.name == "square" or (event.name in POWERS and len(given) > 1 and given[1].text in ("2", "2.0")):
        return given[0].label
    return given[0].label if event.name in PRODUCTS and len(given) > 1 and given[0].label == given[1].label else None


def _cancelled(story: Story, event: Event, first: str, mean: str) -> VarianceCancelled | None:
    """Return the data of the finding if one difference is rounding noise and wrong by more than ``WRONG`` times, while
    the values vary.

    None if it was computed from no known squares, or if no axis was averaged away.
    """
    dtype = str((story.tensor(event.results[0], event.step) or {}).get("dtype"))
    if dtype not in GAPS:
        return None
    squares, started = _sources(story, first, event.step)
    shape, kept = (
        story.shape(squares[0].operands[0].label, squares[0].step) if squares else None,
        story.shape(mean, event.step),
    )
    if shape is None or kept is None or prod(shape) <= prod(kept):
        return None
    before, got = values(story, first, event.step - 1), values(story, event.results[0], event.step)
    true = _variances(story, squares, prod(kept))
    for large, difference, variance in zip(before, got, true, strict=False):
        noise = MANY_GAPS[dtype] * GAPS[dtype] * abs(large)
        if variance > 0 and abs(difference) <= noise and not variance / WRONG < difference < WRONG * variance:
            return VarianceCancelled(
                event, squares[0], (*started, *_sources(story, mean, event.step)[1]), dtype, large, difference, variance
            )
    return None


def _sources(story: Story, label: str, step: int) -> tuple[list[Event], tuple[Event, ...]]:
    """The calls that squared the numbers which were then added up or averaged to ``label``, about ``SOME`` at most; and
    the calls that made the tensors to which they were added.
    """
    squares: list[Event] = []
    started: list[Event] = []
    pending, seen = deque([label]), {label}
    while pending and len(seen) < FURTHER and len(squares) < SOME:
        label = pending.popleft()
        born = story.event((story.tensor(label, step) or {}).get("born"))
        if born is not None and label in born.results and born.step < step:
            if _squared(born) is not None:
                squares.append(born)
                continue
            if born.name in MADE:
                started.append(born)
            calls = [born] if born.name in ADDING | SAME_NUMBERS else []
        else:
            calls = []
        added = [
            use
            for use in story.uses(label)
            if use.step < step and use.name in ("add_", "__iadd__") and use.operands[0].label == label
        ]
        for call in (*calls, *added[:SOME]):
            new = [o.label for o in call.operands if o.label is not None and o.label not in seen]
            seen.update(new)
            pending.extend(new)
    return squares, tuple(started)


def _variances(story: Story, squares: list[Event], columns: int) -> list[float]:
    """The variance of each column of the squared numbers, within the elements of each
    tensor whose values the trace has.

    Empty if it has too few.
    """
    total, count = [0.0] * columns, 0
    for event in squares:
        numbers = Elements(story, event.operands[0].label, event.step)
        known = list(numbers.known())
        if not known:  # a part of a tensor too large to be modelled; its squares may be small enough
            known = _roots(story, event)
        if columns > 1 and columns not in numbers.shape:
            continue
        axis = len(numbers.shape) - 1 - numbers.shape[::-1].index(columns) if columns > 1 else None
        own: list[list[float]] = [[] for _ in range(columns)]
        for index, value in known:
            own[index[axis] if axis is not None else 0].append(value)
        if min(map(len, own)) >= FEWEST:
            total = [before + pvariance(each) for before, each in zip(total, own, strict=True)]
            count += 1
    return [each / count for each in total] if count else []


def _roots(story: Story, event: Event) -> list[tuple[Index, float]]:
    """The absolute values of the squared numbers, as roots of the known squares; empty if they differ by no more than
    rounding of the squares explains.
    """
    gap = GAPS.get(str((story.tensor(event.results[0], event.step) or {}).get("dtype")))
    known = [(i, sqrt(value)) for i, value in Elements(story, event.results[0], event.step).known() if value > 0]
    sizes = [size for _, size in known]
    return known if gap is not None and sizes and max(sizes) - min(sizes) > SURE * gap * max(sizes) else []


def _finding(story: Story, found: VarianceCancelled) -> Finding:
    event, dtype = found.event, found.dtype
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.squares.step))
    large, got, true = (f"{number:.4g}" for number in (found.large, found.got, found.true))
    gap = f"{GAPS[dtype] * 2.0 ** floor(log2(abs(found.large))):.4g}"
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} computes a variance of {got}, but the recorded ones of its numbers have a "
            f"variance of {true}: two {dtype} numbers near {large} are subtracted, and their difference is rounding "
            "errors alone.",
            zh=f"{here.zh}算出的方差是 {got}，而其中记录下来的那些数的方差是 {true}：两个接近 {large} 的 "
            f"{dtype} 数相减，差里只剩下舍入误差。",
        ),
        T(
            en=f"`{snippet(story, event.span)}` is the mean of squares minus the square of the mean. Near {large}, "
            f"{dtype} numbers are {gap} apart, and every sum that {there.en} feeds has rounded so. Compute with the "
            "distances from the mean (`var`, `std`), or add up in float64.",
            zh=f"`{snippet(story, event.span)}` 是平方的平均减去平均的平方。在 {large} 附近，相邻的 {dtype} 数相差 "
            f"{gap}，{there.zh}参与的每个求和都这样舍入过。请用与平均值的距离来计算（`var`、`std`），"
            "或者用 float64 求和。",
        ),
        related=[
            story.related("made", found.squares.step, T(en="the numbers are squared here", zh="这些数在这里平方"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("computed", got, story.by(event.step)), Fact("variance", true)],
    )


def _fixes(story: Story, found: VarianceCancelled) -> tuple[Fix, ...]:
    """Fixes that compute in float64: within the difference, or from the squared numbers on.

    Empty if the program's source shows no name for them.
    """
    program = story.program
    squares, difference = program.at(story.span(found.squares.step)), program.at(story.span(found.event.step))
    name = _name(squares)
    if name is None or squares is None:
        return ()
    title = T(en=f"Compute in float64: `{name.id}.double()`", zh=f"用 float64 计算：`{name.id}.double()`")
    back = ".float()" if found.dtype == "float32" else f".to({torch_name(program) or 'torch'}.{found.dtype})"
    inside = (
        [n for n in ast.walk(difference) if isinstance(n, ast.Name) and n.id == name.id]
        if isinstance(difference, ast.expr)
        else []
    )
    if difference is not None and len(inside) > 1:
        text, start = program.segment(difference), program.place(difference)
        if start.line == start.end_line:
            for node in sorted(inside, key=lambda n: -n.col_offset):
                at = program.place(node).column - start.column
                text = f"{text[:at]}{name.id}.double(){text[at + len(name.id) :]}"
            return unique(program.text, [Fix(title, program.replace((difference, f"({text}){back}")), meaning="later")])
    first = _first(program, squares, name.id)
    if first is None:
        return ()
    wide = [
        edited for start in found.started if (edited := _wider(program, program.at(story.span(start.step)))) is not None
    ]
    edits = merge(
        program.insert_before(first, f"{name.id} = {name.id}.double()"),
        program.replace(*dict.fromkeys(wide)) if wide else (),
    )
    return unique(program.text, [Fix(title, edits, meaning="later")] if edits else [])


def _name(squares: ast.AST | None) -> ast.Name | None:
    """Return the plain name of what is squared in the program's source; None if it is another expression, such as an
    attribute or a call.
    """
    node: ast.AST | None = squares
    if isinstance(squares, ast.BinOp):
        node = squares.left
    elif isinstance(squares, ast.Call) and isinstance(squares.func, ast.Attribute):
        module = (
            call_name(squares) in ("square", "pow", "mul")
            and isinstance(squares.func.value, ast.Name)
            and squares.func.value.id == "torch"
        )
        node = squares.args[0] if module and squares.args else squares.func.value
    return node if isinstance(node, ast.Name) else None


def _first(program: Program, squares: ast.AST, name: str) -> ast.stmt | None:
    """Return the first statement of the squares' block that reads the name; None if there is no such statement."""
    statement = program.statement_at(program.place(squares))
    block = program.block(statement) if statement is not None else []
    return next(
        (
            s
            for s in block
            if any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in ast.walk(s))
        ),
        None,
    )


def _wider(program: Program, node: ast.AST | None) -> tuple[ast.AST, str] | None:
    """Return the call that creates the data of a sum, and its text with float64; None if
    its text has a dtype already.
    """
    if not isinstance(node, ast.Call) or call_name(node) not in MADE or any(k.arg == "dtype" for k in node.keywords):
        return None
    given = [program.segment(each) for each in (*node.args, *node.keywords)]
    given.append(f"dtype={torch_name(program) or 'torch'}.float64")
    return node, f"{program.segment(node.func)}({', '.join(given)})"


RULE = Rule(
    code="PL762",
    name="variance-cancelled",
    severity="warning",
    title=T(
        en="A variance is the difference of two large numbers and has no right digit",
        zh="方差是两个大数之差，没有一位是对的",
    ),
    what=T(
        en="A program computes a variance as the mean of the squares minus the square of the mean. Its numbers are "
        "far from 0 and close to each other, so both parts are large and nearly equal, and their difference consists "
        "of rounding errors. Subtract the mean first, as `var` does, or compute in float64.",
        zh="程序用平方的平均减去平均的平方来计算方差。它的数离 0 很远而彼此很近，所以两部分都很大且几乎相等，差里只有"
        "舍入误差。请像 `var` 那样先减去平均值，或者用 float64 计算。",
    ),
    why=T(
        en="A float32 number has about 7 decimal digits. Pressures near 101325 Pa have squares near 1.03e10, where "
        "numbers are 1024 apart; a variance of 144 does not fit between them. The result may be zero, negative, or "
        "far too large, and after `clamp` and `sqrt` it looks like a small deviation by which everything is divided. "
        "The mathematics is right, which is why the formula is in textbooks. Over batches, add up in float64, or add "
        "up distances from a first guess of the mean.",
        zh="float32 大约有 7 位十进制数字。101325 Pa 附近的气压，平方约为 1.03e10，那里相邻的数相差 1024，144 的方差放"
        "不进去。结果可能是零、负数，或者大得多；经过 `clamp` 和 `sqrt` 之后，它看上去是一个很小的标准差，之后一切都要"
        "除以它。公式在数学上没有错，所以教科书里有它。分批计算时，请用 float64 累加，或者累加与一个初步平均值的距离。",
    ),
    bad="""import torch

torch.manual_seed(0)
pressure = 101325 + 12 * torch.randn(64)
mean = pressure.mean()
variance = (pressure**2).mean() - mean**2  # PL762 made
w = torch.ones(64, requires_grad=True)
loss = (w * (pressure - mean)).square().mean() / variance.clamp(min=1e-6)
loss.backward()
print(variance.item(), loss.item())
""",
    good="""import torch

torch.manual_seed(0)
pressure = 101325 + 12 * torch.randn(64)
pressure = pressure.double()
mean = pressure.mean()
variance = (pressure**2).mean() - mean**2
w = torch.ones(64, requires_grad=True)
loss = (w * (pressure - mean)).square().mean() / variance.clamp(min=1e-6)
loss.backward()
print(variance.item(), loss.item())
""",
    find=find,
    traps=(
        Trap(
            "variance.clamp(min=1e-6)",
            "variance.abs().clamp(min=1e-3)",
            T(en="The sign was not the only wrong part: no digit is right.", zh="错的不只是符号：没有一位数字是对的。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.var.html",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
)
