"""PL834: a moving average in float16 or bfloat16 does not change: each of its updates is rounded away."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, called, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, decimal
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

BITS = {"float16": 11, "bfloat16": 8}
"""The number of significant binary digits of each type."""
LERPS, SUMS, PRODUCTS = (
    ("lerp", "lerp_"),
    spellings("add", in_place=True),
    spellings("mul", in_place=True),
)
HALF = 0.5
COPIES = {"deepcopy", "clone", "zeros_like", "ones_like", "empty_like", "detach"}
"""Calls that create a tensor of the dtype of the one that they are given."""
ROUNDS, FEWEST = 3, 6
FAR = 0.1
"""A new number must differ from that of the average by more than this fraction of the larger of the two to count."""
MOST = 0.75
"""The fraction of these elements that must stay unchanged in the later updates."""


@dataclass(frozen=True, slots=True)
class AverageRoundedAway:
    """One update of a moving average to ``(1 - share) * old + share * new``; ``event`` is the call (``Event``) that
    returned it.

    ``old`` and ``new`` are labels of tensors, ``share`` a number above 0. ``began`` is the step of the update's first
    call: before it, ``old`` still has the numbers of the old average.
    """

    event: Event
    old: str
    began: int
    new: str
    share: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that updates a moving average in float16 or bfloat16, where at least ``MOST`` of
    the known elements that should clearly change (the new number differs by more than ``FAR`` of the larger number)
    stay the same.

    Only averages with at least ``ROUNDS`` updates, of which the later half is looked at, and with at least ``FEWEST``
    such elements there.
    """
    averages: dict[object, list[AverageRoundedAway]] = defaultdict(list)
    scaled: dict[object, Event] = {}
    for event in story.calls(*LERPS, *SUMS, "mul_"):
        record = (story.tensor(event.results[0], event.step) or {}) if event.results and event.error is None else {}
        memory = record.get("storage")
        if record.get("dtype") not in BITS:
            continue
        if event.name == "mul_":
            scaled[memory] = event
        elif (step := _step(story, event, scaled.pop(memory, None))) is not None:
            before = (story.tensor(step.old, event.step) or {}).get(
                "storage"
            )  # the new average of the round before is the old one now
            averages[memory] = [*averages.pop(before, ()), step]
    reported = set()
    for steps in averages.values():
        place = story.span(steps[-1].event.step)
        stays = _stays(story, steps) if len(steps) >= ROUNDS and place not in reported else None
        if stays is not None:
            reported.add(place)
            yield _finding(story, steps, *stays)


def _step(story: Story, event: Event, scaled: Event | None) -> AverageRoundedAway | None:
    """Return one update of a moving average: a ``lerp`` by at most ``HALF``, or a sum of two tensors with factors that
    add up to 1; None if the call is neither.

    ``scaled`` is the last ``mul_`` that wrote the storage of the sum before, if there was one.
    """
    given = [o.label for o in event.operands if o.label is not None]
    if len(given) != len(LERPS):
        return None
    if event.name in LERPS:
        share = decimal(argument(event, "weight", 2))
        return (
            AverageRoundedAway(event, given[0], event.step, given[1], share)
            if share is not None and 0 < share <= HALF
            else None
        )
    alpha = decimal(argument(event, "alpha", 2))
    parts = [
        _part(scaled) if scaled is not None and place == 0 else _scaled(story, label, event)
        for place, label in enumerate(given)
    ]
    if alpha is not None and parts[0] is not None:
        parts[1] = (given[1], alpha, event.step)
    one, other = parts
    if one is None or other is None or abs(one[1] + other[1] - 1) > 1e-3:
        return None
    old, new = (one, other) if one[1] >= other[1] else (other, one)
    return AverageRoundedAway(event, old[0], old[2], new[0], new[1]) if new[1] > 0 else None


def _scaled(story: Story, label: str, event: Event) -> tuple[str, float, int] | None:
    """Return the tensor that was multiplied by a number to make ``label``, the number, and the step; None if ``label``
    is no such product.
    """
    made = story.event((story.tensor(label, event.step) or {}).get("born"))
    return _part(made) if made is not None and made.name in PRODUCTS and label in made.results else None


def _part(made: Event) -> tuple[str, float, int] | None:
    plain = [decimal(o.text) for o in made.operands if o.label is None and not o.name]
    source = next((o.label for o in made.operands if o.label is not None), None)
    return (source, plain[0], made.step) if source is not None and len(plain) == 1 and plain[0] is not None else None


def _stays(story: Story, steps: list[AverageRoundedAway]) -> tuple[float, float] | None:
    """Return one number of the average and the new number that should have moved it, if at least ``MOST`` of the
    numbers that should change do not; else None.

    Only the later half of the updates counts, and only the elements whose new number is far from that of the average.
    """
    tally: list[tuple[bool, float, float]] = []
    for step in steps[len(steps) // 2 :]:
        before, after = (
            Elements(story, step.old, step.began - 1),
            Elements(story, step.event.results[0], step.event.step),
        )
        new = Elements(story, step.new, step.event.step)
        for index, was in before.known():
            now, wanted = after.at(index), new.at(index)
            if (
                now is not None
                and wanted is not None
                and math.isfinite(wanted)
                and abs(wanted - was) > FAR * max(abs(was), abs(wanted))
            ):
                tally.append((now == was, was, wanted))
    stuck = [each for each in tally if each[0]]
    if len(tally) < FEWEST or len(stuck) < MOST * len(tally):
        return None
    return max(((was, wanted) for _, was, wanted in stuck), key=lambda pair: abs(pair[1] - pair[0]))


def _finding(story: Story, steps: list[AverageRoundedAway], was: float, wanted: float) -> Finding:
    first = steps[0]
    kind = str((story.tensor(first.event.results[0], first.event.step) or {}).get("dtype"))
    memory = (story.tensor(first.old) or {}).get("storage")
    born = min((each["born"] for _, each in story.tensors_on(memory) if each.get("born") is not None), default=None)
    here, there = at_line(story, story.span(born)), at_line(story, story.span(first.event.step))
    name = called(story, first.old, None, first.event.step)
    digits, old, new = BITS[kind], number(was), number(wanted)
    return RULE.finding(
        story.span(first.event.step),
        first.event.step,
        T(
            en=f"{capital(there.en)} averages into {name.en}, of type {kind}, and most of its numbers never move: "
            f"{old} stays {old} while {new} is taken into it with a share of {number(first.share)}.",
            zh=f"{there.zh}把新值平均进 {kind} 类型的 {name.zh}，其中多数的数却从不移动：以 {number(first.share)} 的份"
            f"额取入 {new}，{old} 仍是 {old}。",
        ),
        T(
            en=f"{kind} keeps {digits} binary digits, so a change of less than about 1/{2 ** (digits + 1)} of a "
            f"number is rounded back to it. The average, made on {here.en}, stops long before it gets near to what it "
            "averages. Keep averages in float32, and convert where they are used.",
            zh=f"{kind} 保留 {digits} 个二进制位，所以小于一个数的约 1/{2 ** (digits + 1)} 的变化会被舍入回去。"
            f"{here.zh}创建的平均值在接近被平均的值之前早就停住了。请用 float32 保存平均值，使用时再转换。",
        ),
        related=[story.related("made", born, T(en=f"the type {kind} is chosen here", zh=f"类型 {kind} 在这里定下"))],
        fixes=_fixes(story, born, first.event, first.new),
        facts=[Fact("share", first.share), Fact("stays", was), Fact("wanted", wanted)],
    )


def _fixes(story: Story, born: int | None, update: Event, taken: str) -> tuple[Fix, ...]:
    """Fixes that make the average in float32, where the line at the step ``born`` names a 16-bit type or copies the
    tensor that is averaged; a further one also converts the new tensor (``taken``) of the call ``update``.
    """
    program = story.program
    node = program.at(story.span(born))
    statement = program.statement(node)
    title = T(en="Keep the average in float32", zh="用 float32 保存平均值")
    changes: list[tuple[ast.AST, str]] = []
    for each in ast.walk(statement) if statement is not None and not hasattr(statement, "body") else ():
        if isinstance(each, ast.Attribute) and each.attr in ("half", *BITS):
            parent = program.parents.get(each)
            new = "float" if isinstance(parent, ast.Call) and parent.func is each else "float32"
            changes.append((each, f"{program.segment(each.value)}.{new}"))
    if changes:
        return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])
    while isinstance(node, ast.Call) and call_name(node) not in COPIES and isinstance(node.func, ast.Attribute):
        node = node.func.value  # `deepcopy(model).requires_grad_(False)`, `.eval()`: what the copy is made by
    if not isinstance(node, ast.Call) or call_name(node) not in COPIES:
        return ()
    wider: tuple[ast.AST, str] = (node, f"{program.segment(node)}.float()")
    candidates = [Fix(title, program.replace(wider), meaning="later")]
    given = written_as(story, update, taken)  # `lerp_` wants both of one type
    if given is not None and update.name in LERPS:
        also: tuple[ast.AST, str] = (given, f"{operand(program, given)}.float()")
        candidates.append(Fix(title, program.replace(wider, also), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL834",
    name="average-rounded-away",
    severity="warning",
    title=T(en="A moving average in float16 or bfloat16 does not move", zh="float16 或 bfloat16 的滑动平均不移动"),
    what=T(
        en="A program keeps a moving average in 16 bits, to save memory, and takes a thousandth of the new values "
        "into it each time. So small a change is lost when it is rounded, and the average stays at its first values. "
        "Keep averages in float32.",
        zh="程序为节省内存用 16 位保存滑动平均，每次取入新值的千分之一。这么小的变化在舍入时丢失，平均值便停在最初的"
        "值。请用 float32 保存平均值。",
    ),
    why=T(
        en="Next to 1 the type bfloat16 has steps of 1/128. `0.999 * a + 0.001 * w` changes `a` by a thousandth of "
        "the distance to `w`: less than half a step as long as `w` is less than 4 away, and rounded back to `a` then, "
        "every time. Adding up does not help, as nothing is kept of what was rounded. Gradients and activations may "
        "be in 16 bits; what is *carried along* over many steps must not be.",
        zh="在 1 附近，bfloat16 的步长是 1/128。`0.999 * a + 0.001 * w` 使 `a` 改变它到 `w` 距离的千分之一：只要 `w` "
        "相差不到 4，就不足半步，每次都被舍入回 `a`。累积也没有用，因为被舍去的部分什么也不留下。梯度和激活可以用 16 "
        "位；跨越许多步*延续*的量则不行。",
    ),
    bad="""import torch

torch.manual_seed(0)
weight = torch.linspace(1, 3, 6)
average = torch.ones(6, dtype=torch.bfloat16)  # made
for step in range(8):
    average.mul_(0.999).add_(weight, alpha=0.001)  # PL834
print(average)
""",
    good="""import torch

torch.manual_seed(0)
weight = torch.linspace(1, 3, 6)
average = torch.ones(6, dtype=torch.float32)
for step in range(8):
    average.mul_(0.999).add_(weight, alpha=0.001)
print(average)
""",
    find=find,
    traps=(
        Trap(
            "average.mul_(0.999).add_(weight, alpha=0.001)",
            "average.copy_(0.999 * average.float() + 0.001 * weight)",
            T(en="Computed in float32, it is rounded when it is stored.", zh="用 float32 计算，存回时仍被舍入。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://docs.pytorch.org/docs/stable/type_info.html",
    ),
)
