"""PL657: the steps of an attack are limited, each by itself, and their sum is not, so it leaves the intended range."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import apart, at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by, unscaled
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

LIMITS = spellings("hardtanh") | spellings("clamp", in_place=True)
BOUNDS = spellings("clamp", in_place=True) | {"max", "maximum", "min", "minimum"}
"""Calls that limit a tensor by another one."""
SUMS = spellings("add", "sub", in_place=True)
PLAIN = SAME_NUMBERS | {"data.__get__", "requires_grad_", "detach_", "data"}
"""Calls that the disturbed input is followed through."""
SIGNS = spellings("sign", in_place=True) | {"sgn"}
CHANCE = {"uniform_", "rand", "rand_like", "zeros", "zeros_like", "new_zeros", "zero_", "fill_", "normal_"}
"""Calls by which an attack makes its start."""
FURTHER, ROUNDS = 14, 2
SLACK = 1.001
"""How much larger than the limit a change must be, so that rounding is none."""


@dataclass(frozen=True, slots=True)
class StepLimitedNotSum:
    """``limited`` is the call (``Event``) that kept a step within ``limit`` of 0, or a point within ``limit`` of where
    it just was.

    ``event`` is the call that added the step, each number of which is as large as ``size``, to the tensor ``point``,
    which gave the tensor ``result``; both are labels.
    """

    limited: Event
    event: Event
    point: str
    result: str
    limit: float
    size: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that limits the size of single steps of a point, if at least ``ROUNDS`` of these
    steps together moved it further than that limit.

    Not where the sum is limited too.
    """
    moves: dict[Span | None, list[StepLimitedNotSum]] = defaultdict(list)
    for event in story.calls(*BOUNDS | LIMITS):
        found = _move(story, event) if event.error is None and event.results else None
        if found is not None:
            moves[story.span(found.event.step)].append(found)
    for several in moves.values():
        for chain in _chains(story, several):
            finding = _finding(story, chain) if len(chain) >= ROUNDS else None
            if finding is not None:
                yield finding
                break


def _move(story: Story, event: Event) -> StepLimitedNotSum | None:
    """The data of a step that a call limits, and of the point that it is added to; None if the call limits no step."""
    labels = [o.label for o in event.operands if o.label is not None]
    if len(labels) == 1 and event.name in LIMITS:
        first, last = _limits(story, event)
        size = _size(story, labels[0], event.step)
        if last is None or first != -last or size is None:
            return None
        found = next(_added(story, event.results[0], event.step), None)
        return StepLimitedNotSum(event, *found, last, min(size, last)) if found is not None else None
    for label in labels[1:] if event.name in BOUNDS else ():
        bound = made_by(story, label, event.step)
        around = _shifted(story, bound) if bound is not None else None
        moved = _moved(story, labels[0], event.step) if around is not None else None
        if around is not None and moved is not None:
            sizes = {o.label: _size(story, o.label, moved.step) for o in moved.operands if o.label is not None}
            source = next(each for each, size in sizes.items() if size is None)
            size = next(size for size in sizes.values() if size is not None)
            if _same(story, around[0], source, event.step):
                return StepLimitedNotSum(event, moved, source, moved.results[0], around[1], min(size, around[1]))
    return None


def _limits(story: Story, event: Event) -> tuple[float | None, float | None]:
    names = ("min_val", "max_val") if event.name == "hardtanh" else ("min", "max")
    texts = [argument(event, name, place) for place, name in enumerate(names, 1)]
    low, high = (constant(story, None, text or "", event.step) for text in texts)
    return low, high


def _size(story: Story, label: str, step: int) -> float | None:
    """The absolute value of the number by which a ``sign`` was multiplied to give a tensor; None if the tensor is no
    multiple of a sign.
    """
    source, by = unscaled(story, label, step)
    made = made_by(story, source, step)
    return abs(by) if made is not None and made.name in SIGNS else None


def _added(story: Story, label: str, step: int) -> Iterator[tuple[Event, str, str]]:
    """Yield the sums of a step and a point: each call, the point before it and after it."""
    pending, seen = [label], {label}
    while pending and len(seen) < FURTHER:
        here = pending.pop()
        for use in (use for use in story.uses(here) if use.step > step and use.error is None and use.results):
            others = [o.label for o in use.operands if o.label is not None and o.label != here]
            if use.name in SUMS and len(others) == 1 and others[0] is not None:
                yield use, others[0], use.results[0]
            elif use.name in PLAIN and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])


def _shifted(story: Story, event: Event) -> tuple[str, float] | None:
    """The label of the tensor to which a call added, or from which it subtracted, one number, and the absolute value of
    that number; None if the call did neither.
    """
    given = [o for o in event.operands if o.label is not None]
    if event.name not in SUMS or len(given) != 1 or len(event.operands) != len(("point", "limit")):
        return None
    other = next(o for o in event.operands if o is not given[0])
    by = constant(story, None, other.text, event.step)
    return (str(given[0].label), abs(by)) if by else None


def _moved(story: Story, label: str, step: int) -> Event | None:
    """The call that added a step to a point, perhaps before other limits; None if there is none."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or given[0] is None:
            return None
        if made.name in SUMS and len(given) == ROUNDS:
            sizes = [_size(story, each, made.step) for each in given if each is not None]
            return made if sizes.count(None) == 1 else None
        if made.name not in PLAIN | BOUNDS or given[0] == label:
            return None
        label, step = given[0], made.step
    return None


def _plain(story: Story, label: str, step: int) -> str:
    """The label of the tensor whose numbers a point has, before views, copies and ``.data``; the point itself if there
    are none.
    """
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        own = made is not None and (made.name in PLAIN or made.op.endswith("data.__get__"))
        if made is None or not own or not given or given[0] in (None, label):
            return label
        label, step = str(given[0]), made.step
    return label


def _same(story: Story, one: str, other: str, step: int) -> bool:
    a, b = (_plain(story, each, step) for each in (one, other))
    return a == b


def _chains(story: Story, moves: list[StepLimitedNotSum]) -> Iterator[list[StepLimitedNotSum]]:
    """Yield the moves in runs: within a run, each move starts from the result of the one before it."""
    run: list[StepLimitedNotSum] = []
    for move in moves:
        if run and run[-1].event is move.event:
            continue
        if run and not (run[-1].limit == move.limit and _follows(story, run[-1], move)):
            yield run
            run = []
        run.append(move)
    yield run


def _follows(story: Story, one: StepLimitedNotSum, other: StepLimitedNotSum) -> bool:
    """Whether the point of a move was computed from the result of another move."""
    return _between(story, one, other) is not None


def _between(story: Story, one: StepLimitedNotSum, other: StepLimitedNotSum) -> list[Event] | None:
    """The calls that computed the point of a move from the result of another move, with the writes into that result;
    None if the point does not come from it.
    """
    memory = (story.tensor(one.result, one.event.step) or {}).get("storage")
    label, step, calls = other.point, other.event.step, list[Event]()
    for _ in range(FURTHER):
        if label == one.result or (memory and (story.tensor(label, step) or {}).get("storage") == memory):
            writes = story.writes(str(memory), one.event.step, other.event.step) if memory else ()
            return [*calls, *(story.events[at] for at in writes if story.events[at] is not one.event)]
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or given[0] in (None, label) or made.step < one.event.step:
            return None
        calls.append(made)
        label, step = str(given[0]), made.step
    return None


def _is_free(story: Story, chain: list[StepLimitedNotSum]) -> bool:
    """Whether no call between two moves keeps the point near to where it began: there are only copies, limits by plain
    numbers, and limits around the point's current numbers.
    """
    for one, other in pairwise(chain):
        for call in _between(story, one, other) or ():
            tensors = [o for o in call.operands if o.label is not None]
            is_plain = call.name in PLAIN | LIMITS and len(tensors) == 1
            if not is_plain and not call.op.endswith("data.__set__") and _move(story, call) is None:
                return False
    return True


def _base(story: Story, move: StepLimitedNotSum) -> str | None:
    """The label of the tensor around which the first point of an attack was chosen; None for zero.

    It is zero if the first point itself was drawn within the limit, or set to zero.
    """
    label, step = _plain(story, move.point, move.event.step), move.event.step
    made = made_by(story, label, step)
    given = [str(o.label) for o in made.operands if o.label is not None] if made is not None else []
    if made is not None and made.name in SUMS and len(given) == ROUNDS:
        small = [_is_start(story, each, made.step, move.limit) for each in given]
        if small.count(True) == 1:
            return _plain(story, given[small.index(False)], made.step)
    return None if _is_start(story, label, step, move.limit) else label


def _is_start(story: Story, label: str, step: int, limit: float) -> bool:
    """Whether a tensor was drawn or set to zero, perhaps scaled, and no known number of it is beyond the limit."""
    source, _ = unscaled(story, label, step)
    made = made_by(story, source, step)
    record = story.tensor(source, step) or {}
    written = {story.events[at].name for at in story.writes(str(record.get("storage")), record.get("born") or 0, step)}
    if made is None or not (made.name in CHANCE or written & CHANCE):
        return False
    known = [abs(value) for _, value in Elements(story, label, step - 1).known()]
    if not known:  # more numbers than a trace keeps: drawn within limits that the call was given, or zero
        calls = [made, *(story.events[at] for at in story.writes(str(record.get("storage")), made.step, step))]
        given = [constant(story, None, o.text, step) for call in calls for o in call.operands if o.label is None]
        sizes = [abs(each) for each in given if each is not None]
        drawn = any(call.name in {"uniform_", "zero_", "zeros_like", "zeros"} for call in calls)
        return drawn and max(sizes, default=0) <= limit * SLACK
    return max(known) <= limit * SLACK


def _change(story: Story, base: str | None, move: StepLimitedNotSum, before: int, *, after: bool) -> float | None:
    """The largest known absolute difference of the point from ``base`` (from 0 if that is None), before a move, or
    after it with ``after``; None if it is not known.

    ``before`` is the step of the first move: ``base`` is read as it was before that step.
    """
    label, step = (move.result, move.event.step) if after else (move.point, move.event.step - 1)
    if after:
        label, step = _limited_further(story, move)
    now = Elements(story, label, step)
    if base is None:
        return max((abs(value) for _, value in now.known()), default=None)
    start = Elements(story, base, before - 1)
    if start.shape != now.shape:
        return None
    first = dict(start.known())
    return max((abs(value - first[at]) for at, value in now.known() if at in first), default=None)


def _limited_further(story: Story, move: StepLimitedNotSum, *, views: bool = True) -> tuple[str, int]:
    """The label of a move's result after all limits that are applied to it, and the step of the last one.

    With ``views``, calls of ``detach`` may come in between.
    """
    label, step = move.result, move.event.step
    for _ in range(FURTHER):
        use = next((use for use in story.uses(label) if use.step > step and use.error is None and use.results), None)
        if use is None or use.name not in BOUNDS | ({"detach"} if views else set()) or use.operands[0].label != label:
            break
        label, step = use.results[0], use.step
    return label, step


def _is_trained(story: Story, move: StepLimitedNotSum) -> bool:
    """Whether the point is a parameter of a module, or one of what an optimizer holds."""
    memory = (story.tensor(move.point, move.event.step) or {}).get("storage")
    held = {label for each in story.trace.optimizers for label in each.holds}
    return any(label in held or record.get("kind") == "parameter" for label, record in story.tensors_on(memory))


def _finding(story: Story, chain: list[StepLimitedNotSum]) -> Finding | None:
    """The finding for a run of moves that left the range around where they began; None if they did not."""
    first, last = chain[0], chain[-1]
    if _is_trained(story, first):
        return None
    base = _base(story, first)
    changes = [_change(story, base, last, first.event.step, after=each) for each in (False, True)]
    inside, furthest = changes[0], len(chain) * first.size  # the first: of the rounds before, after all limits
    if inside is None and not _is_free(story, chain):
        return None
    largest = furthest if inside is None else max(each for each in changes if each is not None)
    if (largest if inside is None else inside) <= first.limit * SLACK:
        return None
    texts = apart(largest, first.limit)
    if texts is None:
        return None
    here, there = at_line(story, story.span(first.limited.step)), at_line(story, story.span(first.event.step))
    around = expression(story, base, first.event.step) if base is not None else T(en="0", zh="0")
    came = T(
        en=f"after {len(chain)} steps the largest change is {texts[0]}",
        zh=f"{len(chain)} 步之后，最大的改变是 {texts[0]}",
    )
    if inside is None:  # more numbers than a trace keeps
        came = T(
            en=f"{len(chain)} steps of {number(first.size)} go as far as {texts[0]}",
            zh=f"{len(chain)} 步，每步 {number(first.size)}，可以走到 {texts[0]}",
        )
    return RULE.finding(
        story.span(first.limited.step),
        first.limited.step,
        T(
            en=f"{capital(here.en)} limits each step to {texts[1]} by itself, and not their sum: {came.en}.",
            zh=f"{here.zh}把每一步单独限制在 {texts[1]} 以内，而没有限制它们的和：{came.zh}。",
        ),
        T(
            en=f"{capital(there.en)} adds one step after the other, and each one starts from where the one before it "
            f"ended. To stay within {texts[1]} of {around.en}, limit the sum of all steps: the difference from "
            f"{around.en}, after each step.",
            zh=f"{there.zh}一步接一步地相加，每一步都从上一步结束的地方开始。要保持在 {around.zh} 的 {texts[1]} 以内，"
            f"请限制所有步的和：在每一步之后，限制与 {around.zh} 的差。",
        ),
        related=[story.related("used", first.event.step, T(en="added up here", zh="在这里相加"))],
        fixes=_fixes(story, chain, base),
        facts=[
            Fact("limit", first.limit, story.by(first.limited.step)),
            Fact("change", largest, story.by(last.event.step)),
        ],
    )


def _fixes(story: Story, chain: list[StepLimitedNotSum], base: str | None) -> tuple[Fix, ...]:
    """At most one fix, a limit of the sum after the statement that makes the new point.

    Empty where the function of that statement has no name for what the sum is to stay near to.
    """
    program, first = story.program, chain[0]
    statement = program.statement_at(story.span(_limited_further(story, first, views=False)[1]))
    if statement is None or not program.stands_alone(statement):
        return ()
    limit, around = _limit_text(story, first), ""
    if base is not None:
        around = _name(story, base, statement) or ""
        if not around:
            return ()
    low, high = (f"{around} - {limit}", f"{around} + {limit}") if around else (f"-{limit}", limit)
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        name = statement.targets[0].id
        text = f"{name} = {name}.clamp({low}, {high})"
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        name = program.segment(statement.targets[0])
        text = f"{name} = {name}.clamp({low}, {high})"
    elif isinstance(statement, ast.AugAssign):
        text = f"{program.segment(statement.target)}.clamp_({low}, {high})"
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        written = written_as(story, first.event, first.point)
        if written is None:
            return ()
        text = f"{program.segment(written)}.clamp_({low}, {high})"
    else:
        return ()
    title = T(en=f"Limit the sum too: `{text}`", zh=f"也限制它们的和：`{text}`")
    return unique(program.text, [Fix(title, program.insert_after(statement, text), meaning="later")])


def _limit_text(story: Story, move: StepLimitedNotSum) -> str:
    """The limit as the program writes it, if the program's source shows it; else the number."""
    program = story.program
    node = program.at(story.span(move.limited.step))
    if isinstance(node, ast.Call) and len([o for o in move.limited.operands if o.label is not None]) == 1:
        named = [k.value for k in node.keywords if k.arg in ("max", "max_val")]
        last = [*named, *node.args[::-1]]
        if last and not isinstance(last[0], ast.Starred):
            return operand(program, last[0])
    return repr(move.limit)


def _name(story: Story, label: str, statement: ast.stmt) -> str | None:
    """The name by which the function of a statement gives the tensor to a call; None if there is none."""
    program = story.program
    function = program.function(statement)
    for use in story.uses(label):
        written = written_as(story, use, label)
        if isinstance(written, ast.Name | ast.Attribute) and program.function(written) is function:
            return program.segment(written)
    return None


RULE = Rule(
    code="PL657",
    name="step-limited-not-sum",
    severity="warning",
    title=T(en="Each step is limited, and not the sum of all steps", zh="限制的是每一步，而不是所有步的和"),
    what=T(
        en="A program changes a picture in small steps, and no pixel is to change by more than a limit. It cuts each "
        "step to the limit, but the steps add up, and after twenty of them a pixel has changed many times as much. "
        "Limit the sum: `new = new.clamp(x - limit, x + limit)` after each step.",
        zh="程序一小步一小步地改变一张图片，而每个像素的改变不应超过一个界限。它把每一步截到这个界限以内，但各步会累加，二"
        "十步之后像素的改变就是界限的许多倍。请限制它们的和：每一步之后 `new = new.clamp(x - limit, x + limit)`。",
    ),
    why=T(
        en="Projected gradient descent has two parts: a step along the sign of the gradient, and a projection of the "
        "result onto the points that are allowed, a box around the clean input. A clamp of the step alone does "
        "nothing where the step is smaller than the box, and no later step looks back at where the first one started. "
        "So the attack is stronger than it says, and the robustness comes out too low.",
        zh="投影梯度下降有两部分：沿梯度的符号走一步，再把结果投影到允许的点上，即干净输入周围的一个方盒。步长比方盒小时，"
        "只截断步长不起任何作用，而后面的步也不会回头看第一步从哪里开始。于是攻击比它所说的更强，测得的鲁棒性就太低。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, w = torch.rand(2, 3), torch.randn(3)
moved = x.clone()
for _ in range(4):
    moved.requires_grad_()
    (slope,) = torch.autograd.grad((moved @ w).tanh().sum(), moved)
    step = (0.05 * slope.sign()).clamp(-0.1, 0.1)  # PL657
    moved = (moved + step).detach()
print((moved - x).abs().max())
""",
    good="""import torch

torch.manual_seed(0)
x, w = torch.rand(2, 3), torch.randn(3)
moved = x.clone()
for _ in range(4):
    moved.requires_grad_()
    (slope,) = torch.autograd.grad((moved @ w).tanh().sum(), moved)
    step = (0.05 * slope.sign()).clamp(-0.1, 0.1)
    moved = (moved + step).detach()
    moved = moved.clamp(x - 0.1, x + 0.1)
print((moved - x).abs().max())
""",
    find=find,
    traps=(
        Trap(
            "(0.05 * slope.sign()).clamp(-0.1, 0.1)",
            "(0.05 * slope.sign()).clamp(-0.06, 0.06)",
            T(
                en="A smaller limit of the step is no limit of the sum either.",
                zh="把步的界限改小，也还是没有限制它们的和。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.clamp.html",),
)
