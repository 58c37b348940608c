"""PL803: a sum in float16, bfloat16 or float32 stopped growing: addends were below the gap to the next number."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, reads, receiver, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, flat, number
from pitfall_lab.rules.signals.value_origins import decimal
from pitfall_lab.trace import Event, T

FLOATS = {"float16": 11, "bfloat16": 8, "float32": 24}
"""The number of significant binary digits of each type."""
ROUNDS = 8
LARGE = 10**9
ALIKE = 3
"""So many rounds at the end that add a number without any effect are reported, however small it is beside the sum."""
ERROR = 0.01
"""A sum that is off by more than this part of itself is reported; the rounding of a single addition never is."""


@dataclass(frozen=True, slots=True)
class LowPrecisionAccumulation:
    """A sum in the dtype ``dtype`` that ``statement`` added to over many iterations, in the calls ``rounds``
    (``Event``).

    ``got`` is what came out, ``exact`` the exact sum of what was added. Where that is not known, as where iterations
    were not recorded, ``exact`` is None, and ``stays`` is the last recorded addend, which changed nothing.
    """

    statement: ast.stmt
    rounds: tuple[Event, ...]
    dtype: str
    got: float
    exact: float | None
    stays: float = 0.0


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that added to a sum in float16, bfloat16 or float32 which comes out far from
    what was added, or which the last addends no longer changed. At least ``ROUNDS`` of its calls must be recorded.
    """
    for node in story.program.nodes:
        if isinstance(node, ast.AugAssign | ast.Assign | ast.Expr) and _sum(story.program, node) is not None:
            found = _lost(story, node)
            if found is not None:
                yield _finding(story, found)


def _sum(program: Program, node: ast.stmt) -> ast.expr | None:
    """The expression of the sum that a statement adds to; None for any other statement.

    It is ``total`` in ``total += x``, ``total = total + x``, ``total = torch.add(total, x)`` and ``total.add_(x)``.
    """
    if isinstance(node, ast.AugAssign):
        return node.target if isinstance(node.op, ast.Add) else None
    call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
    if isinstance(node, ast.Expr):
        return receiver(call) if isinstance(call, ast.Call) and called(call) == "add_" else None
    plus = (isinstance(call, ast.BinOp) and isinstance(call.op, ast.Add)) or (
        isinstance(call, ast.Call) and called(call) == "add"
    )
    if call is None or not plus or not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return None
    return node.targets[0] if program.segment(node.targets[0]) in reads(program, call) else None


def _lost(story: Story, node: ast.AugAssign | ast.Assign | ast.Expr) -> LowPrecisionAccumulation | None:
    whole = {story.program.place(node), story.program.place(node.value)}
    rounds = [
        e for e in story.within(node) if e.span in whole and e.name in ("add", "add_") and e.results and e.error is None
    ]
    if len(rounds) < ROUNDS:
        return None
    dtype = str((story.tensor(rounds[-1].results[0], rounds[-1].step) or {}).get("dtype"))
    if dtype not in FLOATS or any(len(e.operands) != 2 for e in rounds):
        return None
    own = (run for run in _runs(rounds) if len(run) >= ROUNDS)
    found = next((each for run in own if (each := _judged(story, node, run, dtype)) is not None), None)
    return found or _judged(story, node, rounds, dtype)


def _runs(rounds: list[Event]) -> list[list[Event]]:
    """The rounds grouped by the tensor that they add to: one line may add in place to several tensors, one after the
    other, such as a count of each epoch.
    """
    runs: dict[str | None, list[Event]] = defaultdict(list)
    for event in rounds:
        runs[event.operands[0].label].append(event)
    return list(runs.values())


def _judged(story: Story, node: ast.stmt, rounds: list[Event], dtype: str) -> LowPrecisionAccumulation | None:
    """The finding's data if the recorded rounds show that numbers were lost; else None."""
    if (stalled := _stalled(story, rounds)) is not None:
        return LowPrecisionAccumulation(node, tuple(rounds), dtype, stalled[0], None, stalled[1])
    found = _exactly(story, node, rounds, dtype)
    if found is None and (stands := _stands_still(story, rounds)) is not None:
        return LowPrecisionAccumulation(node, tuple(rounds), dtype, stands[0], None, stands[1])
    return found


def _exactly(story: Story, node: ast.stmt, rounds: list[Event], dtype: str) -> LowPrecisionAccumulation | None:
    """The data of the finding if all that was added to a single number is known and its exact sum differs from the
    result.

    None if they agree, if a value is not known, or if something else wrote the sum between two rounds.
    """
    exact = _value(story, rounds[0].operands[0].label, rounds[0].step - 1)
    previous, last = rounds[0].operands[0].label, rounds[0].step
    for event in rounds:
        added = event.operands[1]
        more = decimal(added.text) if added.label is None else _value(story, added.label, event.step)
        if (
            event.operands[0].label != previous
            or exact is None
            or more is None
            or _is_written(story, previous, last, event.step)
        ):
            return None
        exact += more
        previous, last = event.results[0], event.step
    got = _value(story, previous, rounds[-1].step)
    if exact is None or got is None or not math.isfinite(got) or abs(exact - got) <= ERROR * abs(exact):
        return None
    return LowPrecisionAccumulation(node, tuple(rounds), dtype, got, exact)


def _stalled(story: Story, rounds: list[Event]) -> tuple[float, float] | None:
    """The sum and the addend of the last recorded round, if that round did not change the sum; else None.

    Only if all values are known, the sum grew in rounds that were not recorded, and the addend is at least half as
    large as the recorded ones are on average: addends that get smaller and smaller may be lost.
    """
    terms, ends = [], []
    for event in rounds:
        added = event.operands[1]
        more = decimal(added.text) if added.label is None else _value(story, added.label, event.step)
        before, after = (
            _value(story, event.operands[0].label, event.step - 1),
            _value(story, event.results[0], event.step),
        )
        if more is None or before is None or after is None:
            return None
        terms.append(abs(more))
        ends.append((before, after))
    grew = ends[-1][0] != ends[-2][1] and abs(ends[-1][0]) > abs(ends[-2][1])
    is_lost = ends[-1][0] == ends[-1][1] and terms[-1] > 0 and 2 * terms[-1] >= sum(terms) / len(terms)
    return (ends[-1][1], terms[-1]) if grew and is_lost else None


def _stands_still(story: Story, rounds: list[Event]) -> tuple[float, float] | None:
    """A sum, perhaps one of several in a tensor, and the addend of its last round, if at least ``ALIKE`` last rounds
    did not change it; else None.

    These addends must be at least half as large as those that had an effect are on average or, where none had, all
    equal: addends that get smaller and smaller may be lost.
    """
    known: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
    previous: tuple[str | None, int] | None = None
    for event in rounds:
        first = event.operands[0].label
        if previous is not None and (first != previous[0] or _is_written(story, first, previous[1], event.step)):
            known.clear()  # the sum was begun anew, or rounds are missing
        previous = event.results[0], event.step
        for place, numbers in _numbers(story, event).items():
            known[place].append(numbers)
    for changes in known.values():
        counted = [change for change in changes if change[1]]
        lost = list(takewhile(lambda change: change[0] == change[2], reversed(counted)))
        least, most = (pick((abs(term) for _, term, _ in lost), default=0.0) for pick in (min, max))
        had_effect = [abs(term) for _, term, _ in counted[: len(counted) - len(lost)]]
        fits = 2 * least >= sum(had_effect) / len(had_effect) if had_effect else least == most
        if len(lost) >= ALIKE and fits and math.isfinite(lost[0][0]):
            return lost[0][0], lost[0][1]
    return None


def _numbers(story: Story, event: Event) -> dict[int, tuple[float, float, float]]:
    """For each element of a sum, by its position: the number before a round, what the round adds to it, and the number
    after it.

    Only elements for which all three are known, so perhaps empty.
    """
    label, added = event.operands[0].label, event.operands[1]
    before, after = _values(story, label, event.step - 1), _values(story, event.results[0], event.step)
    shape = story.shape(label, event.step)
    if added.label is None:
        more = decimal(added.text)
        terms = dict.fromkeys(before, more) if more is not None else {}
    elif math.prod(story.shape(added.label, event.step) or ()) == 1:
        more = _value(story, added.label, event.step)
        terms = dict.fromkeys(before, more) if more is not None else {}
    else:
        terms = _values(story, added.label, event.step) if story.shape(added.label, event.step) == shape else {}
    places = before.keys() & after.keys() & terms.keys()
    return {place: (before[place], terms[place] or 0.0, after[place]) for place in sorted(places)}


def _values(story: Story, label: str | None, step: int) -> dict[int, float]:
    """The known numbers in a contiguous tensor after ``step``, by their position in it; empty for a tensor that is not
    contiguous.
    """
    record = story.tensor(label, step) or {}
    shape, strides, start = record.get("shape") or (), record.get("stride") or (), record.get("offset") or 0
    gapless = all(skip == math.prod(shape[at + 1 :]) for at, skip in enumerate(strides) if shape[at] > 1)
    if not gapless or record.get("storage") is None:
        return {}
    held = next(
        (value for at, value in reversed(story.history("storages", record["storage"], "cells")) if at <= step), None
    )
    numbers = ((place - start, value) for place, value in flat(held) if isinstance(value, int | float))
    return {place: float(value) for place, value in numbers if 0 <= place < math.prod(shape)}


def _is_written(story: Story, label: str | None, after: int, until: int) -> bool:
    """Whether the sum's storage was written strictly between the steps ``after`` and ``until``: set back to 0, for
    instance.
    """
    return bool(story.writes(str((story.tensor(label, until) or {}).get("storage")), after, until))


def _value(story: Story, label: str | None, step: int) -> float | None:
    """The number in a tensor of one element after ``step``, if it is known; else None."""
    record = story.tensor(label, step) or {}
    if math.prod(record.get("shape") or ()) != 1 or record.get("storage") is None:
        return None
    history = story.history("storages", record["storage"], "cells")
    cells = next((value for at, value in reversed(history) if at <= step), None)
    value = dict(flat(cells)).get(record.get("offset") or 0)
    return float(value) if isinstance(value, int | float) else None


def _finding(story: Story, found: LowPrecisionAccumulation) -> Finding:
    program, last = story.program, found.rounds[-1]
    span = program.place(found.statement)
    target = _sum(program, found.statement)
    name, here = program.segment(target) if target is not None else "", at_line(story, span)
    got, digits = _shown(found.got), FLOATS[found.dtype]
    gap = number(2.0 ** (math.floor(math.log2(abs(found.got))) - digits + 1)) if found.got else "0"
    born = (story.tensor(found.rounds[0].operands[0].label) or {}).get("born")
    return RULE.finding(
        span,
        last.step,
        _what(found, name, here),
        T(
            en=f"`{name}` has the type `{found.dtype}`, which keeps {digits} binary digits of a number. Next to "
            f"{got} the distance from one number to the next is {gap}; what is no more than half of that is "
            "rounded away, and the sum stays.",
            zh=f"`{name}` 的类型是 `{found.dtype}`，一个数只保留 {digits} 个二进制位。在 {got} 附近，相邻两个数的距离"
            f"是 {gap}；不超过它一半的部分被舍去，总和便停在原处。",
        ),
        related=[
            story.related(
                "made", born, T(en=f"the type `{found.dtype}` is chosen here", zh=f"类型 `{found.dtype}` 在这里定下")
            ),
            story.related(
                "changed",
                last.step,
                T(en=f"added here {len(found.rounds)} times", zh=f"在这里加了 {len(found.rounds)} 次"),
            ),
        ],
        fixes=_fixes(story, born),
        facts=[
            Fact("got", found.got, story.by(last.step)),
            Fact("exact", found.exact, "modelled"),
            Fact("dtype", found.dtype),
        ],
    )


def _shown(value: float) -> str:
    """The number as text: an integer below ``LARGE`` with all its digits, other numbers rounded."""
    return f"{value:.0f}" if value == math.trunc(value) and abs(value) < LARGE else number(value)


def _what(found: LowPrecisionAccumulation, name: str, here: T) -> T:
    got = _shown(found.got)
    if found.exact is None:
        more = number(found.stays)
        return T(
            en=f"{capital(here.en)} adds {more} to `{name}` in its last recorded round, and it stays at {got}.",
            zh=f"{here.zh}在最后记录的一轮里给 `{name}` 加上 {more}，它却停在 {got}。",
        )
    exact = number(found.exact)
    return T(
        en=f"{capital(here.en)} adds to `{name}`, which ends at {got}; what was added makes {exact}.",
        zh=f"{here.zh}累加到 `{name}`，最后得到 {got}；而加上去的数合计是 {exact}。",
    )


def _fixes(story: Story, born: int | None) -> tuple[Fix, ...]:
    """Fixes that begin the sum in a dtype with more bits; empty if the program's source does not show where it
    begins.
    """
    program = story.program
    node = program.at(story.span(born)) if program.tree else None
    torch = torch_name(program)
    if not isinstance(node, ast.expr) or torch is None:
        return ()
    candidates = []
    for kind in ("float32", "float64"):
        title = T(en=f"Add up in `{torch}.{kind}`", zh=f"用 `{torch}.{kind}` 累加")
        given = next((k.value for k in node.keywords if k.arg == "dtype"), None) if isinstance(node, ast.Call) else None
        method = {"float32": "float", "float64": "double"}[kind]
        change = (given, f"{torch}.{kind}") if given is not None else (node, f"{operand(program, node)}.{method}()")
        candidates.append(Fix(title, program.replace(change), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL803",
    name="low-precision-accumulation",
    severity="warning",
    title=T(
        en="A sum in float16, bfloat16 or float32 stopped growing",
        zh="用 float16、bfloat16 或 float32 累加，总和停止增长",
    ),
    what=T(
        en="A program added many small numbers to one large one, in a type with few digits. From some size on the "
        "small numbers are rounded away, and the sum no longer moves, without any error. Add up in "
        "`torch.float32` or `torch.float64`.",
        zh="程序在位数很少的类型里，把许多小的数加到一个大的数上。大到一定程度后，小的数就被舍去，总和不再变化，也没有"
        "任何报错。请用 `torch.float32` 或 `torch.float64` 累加。",
    ),
    why=T(
        en="A floating-point number keeps a fixed number of binary digits: 24 in `float32`, 11 in `float16`, 8 in "
        "`bfloat16`. So between 2048 and 4096 `float16` has every second integer only, and 2048 + 1 is 2048; "
        "`bfloat16` is there at 256, `float32` at 16777216. Training in 16 bits is fine because single results may be "
        "rough; *running* sums, losses of an epoch, moving averages, counts and weights that get tiny updates need a "
        "type with more digits. `torch.sum` of a tensor of 16 bits adds up in float32 inside.",
        zh="浮点数只保留固定个数的二进制位：`float32` 24 位，`float16` 11 位，`bfloat16` 8 位。所以在 2048 与 4096 之"
        "间，`float16` 只能表示其中的偶数，2048 + 1 仍是 2048；`bfloat16` 到 256 就如此，`float32` 要到 16777216。用 "
        "16 位训练没有问题，因为单个结果可以粗略一些；而*累计*的量（一个周期的损失、滑动平均、计数、每次只有微小更新的"
        "权重）需要位数更多的类型。对 16 位的张量调用 `torch.sum` 时，内部是用 float32 累加的。",
    ),
    bad="""import torch

w = torch.tensor(1.0, requires_grad=True)
total = torch.tensor(250.0, dtype=torch.bfloat16)  # made
for i in range(30):
    total += 1  # PL803 changed
loss = w * total.float()
loss.backward()
print(total.item(), w.grad)
""",
    good="""import torch

w = torch.tensor(1.0, requires_grad=True)
total = torch.tensor(250.0, dtype=torch.float32)
for i in range(30):
    total += 1
loss = w * total.float()
loss.backward()
print(total.item(), w.grad)
""",
    find=find,
    traps=(
        Trap(
            "    total += 1\n",
            "    total = (total.float() + 1).bfloat16()\n",
            T(
                en="Each addition is exact now, and its result is rounded back: the sum stops "
                "changing at the same place.",
                zh="现在每次加法都是精确的，但结果又被舍入回去：总和停在同一个地方。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://docs.pytorch.org/docs/stable/type_info.html",
    ),
)
