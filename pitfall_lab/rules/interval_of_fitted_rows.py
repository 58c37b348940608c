"""PL991: the width of a prediction interval is a quantile of the errors on the rows that the model was trained with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod, sqrt

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument, decimal, values
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SAME = {"float", "double", "to", "view", "reshape", "flatten", "squeeze", "contiguous", "clone", "detach", "cpu"}
"""Calls that do not change the numbers."""
DIFFERENCES = spellings("sub") | {"rsub", "__rsub__"}
"""Calls whose result is an error, if their operands are a prediction and a target."""
ABSOLUTE = spellings("abs")
BOUNDS = {"add", "__add__", "__radd__", *DIFFERENCES}
COMPARED = spellings("ge", "gt", "le", "lt")
"""Comparisons with a bound of the interval."""
BOTH = spellings("bitwise_and", "mul") | {"logical_and"}
"""Calls that combine two comparisons."""
UPWARD, FURTHER, FEWEST, PAIR = 400, 60, 20, 2
SHORT = 0.1
"""The least difference between the level and the measured share, if there are many rows."""

Piece = tuple[str, int, tuple[int, ...]]
"""A tensor as a part of its storage: the storage, the offset and the shape."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """A prediction interval that is too narrow, because its width comes from rows that the network was trained with.

    ``quantile`` is the call (``Event``) that took the quantile at ``level`` of the errors on the data labelled
    ``rows``, and ``backward`` the backward that trained with these rows. ``inside`` is the call that averages, over
    ``new`` other rows, whether the error is below the quantile; the result is ``covered``.
    """

    quantile: Event
    level: float
    rows: str
    backward: Event
    inside: Event
    covered: float
    new: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes a quantile of the errors on rows which a network was trained with,
    where the program measures how many errors of other rows are below it, and these are far fewer than the quantile's
    level.

    Only for quantiles above the median, and at least ``FEWEST`` other rows.
    """
    told: set[Span | None] = set()
    for quantile in story.calls("quantile", "nanquantile"):
        place = story.span(quantile.step)
        found = _narrow(story, quantile) if place not in told and quantile.error is None else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _narrow(story: Story, quantile: Event) -> Narrow | None:
    if not quantile.results or prod(story.shape(quantile.results[0], quantile.step) or ()) != 1:
        return None
    level, errors = _level(story, quantile), _errors(story, quantile)
    if level is None or errors is None or not 1 / 2 < level < 1:
        return None
    given = list(_given(story, errors))
    inside = next(iter(_inside(story, quantile.results[0])), None)
    if not given or inside is None:
        return None
    counted, held = inside, values(story, inside.results[0], inside.step)
    new = prod(story.shape(counted.operands[0].label, counted.step) or ())
    if len(held) != 1 or new < FEWEST or held[0] > level - max(SHORT, 4 * sqrt(level * (1 - level) / new)):
        return None
    compared = {_piece(story, label, step) for label, step in _behind(story, counted.operands[0].label, counted.step)}
    for backward in story.backwards():
        if backward.error is not None or backward.step > quantile.step or not backward.operands:
            continue
        fitted = {_piece(story, label, at) for label, at in _behind(story, backward.operands[0].label, backward.step)}
        if all(_piece(story, label, errors.step) in fitted for label in given):
            own = {_piece(story, label, errors.step) for label in given}
            others = compared - fitted
            if others and not any(new == piece[2][0] for piece in own if piece[2]):
                return Narrow(quantile, level, given[0], backward, counted, held[0], new)
            return None
    return None


def _level(story: Story, quantile: Event) -> float | None:
    text = argument(quantile, "q", 1)
    if text is not None:
        return decimal(text)
    label = quantile.operands[1].label if len(quantile.operands) > 1 else None
    held = values(story, label, quantile.step) if label is not None else []
    return held[0] if len(held) == 1 else None


def _errors(story: Story, quantile: Event) -> Event | None:
    """Return the call that subtracted predictions and targets, if the quantile is taken of the absolute values of its
    result; else None.
    """
    label, step, absolute = quantile.operands[0].label, quantile.step, False
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands:
            return None
        if made.name in DIFFERENCES:
            return made if absolute and len([o for o in made.operands if o.label is not None]) == PAIR else None
        absolute = absolute or made.name in ABSOLUTE
        if made.name not in SAME and made.name not in ABSOLUTE:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _given(story: Story, errors: Event) -> Iterator[str]:
    """Yield the data behind the operands of a difference: for each operand, the first tensor on the way back that was
    not computed with a parameter.
    """
    for operand in errors.operands:
        label, step = operand.label, errors.step
        for _ in range(FURTHER):
            made = made_by(story, label, step)
            if made is None or made.step < 0 or not _meets_weights(story, label, step):
                if label is not None:
                    yield label
                break
            label, step = made.operands[0].label, made.step


def _meets_weights(story: Story, label: str | None, step: int) -> bool:
    """Whether a tensor was computed with a parameter or another leaf that requires grad."""
    stepped = {each for update in story.trace.optimizer_steps for each in update.holds}
    return any(each in stepped or each in story.leaves for each, _ in _behind(story, label, step))


def _behind(story: Story, label: str | None, step: int) -> Iterator[tuple[str, int]]:
    """Yield a tensor and those that it was computed from, nearest first, each with the step at which it is looked
    at.
    """
    pending, seen = [(label, step)], {label}
    for here, at in pending:
        if here is None:
            continue
        yield here, at
        made = made_by(story, here, at)
        for operand in made.operands if made is not None and len(seen) < UPWARD else ():
            if operand.label is not None and operand.label not in seen and made is not None:
                seen.add(operand.label)
                pending.append((operand.label, made.step))


def _piece(story: Story, label: str, step: int) -> Piece:
    record = story.tensor(label, step) or {}
    return str(record.get("storage")), int(record.get("offset") or 0), tuple(record.get("shape") or ())


def _inside(story: Story, width: str) -> Iterator[Event]:
    """Yield the means of comparisons that show which numbers are at most ``width`` away from others."""
    pending, seen = [(width, False)], {width}
    while pending and len(seen) < FURTHER:
        label, is_answer = pending.pop(0)
        for use in story.uses(label):
            if use.error is not None or not use.results:
                continue
            if use.name == "mean" and is_answer:
                if _is_between(story, use, width):
                    yield use
                continue
            answers = use.name in COMPARED or (is_answer and use.name in BOTH | SAME)
            if (answers or (not is_answer and use.name in BOUNDS | SAME)) and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append((use.results[0], answers))


def _is_between(story: Story, mean: Event, width: str) -> bool:
    """Whether the mean is over two combined comparisons (both bounds), or over distances compared with ``width``
    itself.
    """
    label, step = mean.operands[0].label, mean.step
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands:
            return False
        if made.name in BOTH:
            return True
        if made.name in COMPARED:
            above = made.operands[0].label == width
            return (above and made.name.strip("_") in ("ge", "gt")) or (
                made.operands[-1].label == width and made.name.strip("_") in ("le", "lt")
            )
        if made.name not in SAME:
            return False
        label, step = made.operands[0].label, made.step
    return False


def _finding(story: Story, found: Narrow) -> Finding:
    step = found.quantile.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.inside.step))
    rows = expression(story, found.rows, step)
    level, covered = f"{100 * found.level:.0f} %", f"{100 * found.covered:.0f} %"
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} takes the width of an interval from the errors on {rows.en}, to which the model "
            f"was fitted: {level} of these lie inside, and of the {found.new} other rows of {there.en} only {covered}.",
            zh=f"{here.zh}用 {rows.zh} 上的误差来定区间的宽度，而模型正是在这些行上拟合的：其中 {level} 落在区间内，而"
            f"{there.zh}的另外 {found.new} 行只有 {covered}。",
        ),
        T(
            en="The weights were changed to make just these errors small, so they are smaller than those on rows that "
            "the model has not seen. The quantile of the absolute errors is a promise for new rows only if it is taken "
            "on rows that took no part in the training: keep some for that, and take it there.",
            zh="权重正是为了减小这些误差而改变的，所以它们比模型没有见过的行上的误差小。只有在没有参与训练的行上取绝对误"
            "差的分位数，它对新的行才是一个保证：请为此留出一些行，在那里取分位数。",
        ),
        related=[
            story.related("backward", found.backward.step, T(en="fitted to these rows here", zh="在这里对这些行拟合")),
            story.related("used", found.inside.step, T(en="used for other rows here", zh="在这里用于另外的行")),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("level", found.level, story.by(step)),
            Fact("covered", found.covered, story.by(found.inside.step)),
        ],
    )


def _fixes(story: Story, found: Narrow) -> tuple[Fix, ...]:
    """At most one fix: it takes the errors on other rows that the program has split off in the same way and never
    reads; empty if there are none.
    """
    program, errors = story.program, _errors(story, found.quantile)
    statement = program.statement_at(story.span(errors.step)) if errors is not None else None
    if errors is None or statement is None:
        return ()
    names = [n for n in program.nodes if isinstance(n, ast.Name)]
    idle = {n.id for n in names if isinstance(n.ctx, ast.Store)} - {n.id for n in names if isinstance(n.ctx, ast.Load)}
    used = [n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    rows = [
        [t.id if isinstance(t, ast.Name) else "" for t in node.targets[0].elts]
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
    ]
    own = next((each for each in rows if {n.id for n in used} & set(each)), [])
    places = [(n, own.index(n.id)) for n in used if n.id in own]
    others = [each for each in rows if len(each) == len(own) and all(each[i] in idle for _, i in places)]
    if not places or len(others) != 1:
        return ()
    changes = [(node, others[0][i]) for node, i in places]
    title = T(en="Take the errors on the rows that are kept for it", zh="在为此保留的行上取误差")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])


RULE = Rule(
    code="PL991",
    name="interval-of-fitted-rows",
    severity="warning",
    title=T(
        en="The width of an interval is taken from the errors on fitted rows", zh="区间的宽度取自拟合所用各行上的误差"
    ),
    what=T(
        en="A program says how far its predictions may be off: 90 of 100 errors are smaller than a width, which it "
        "measures. But it measures it on the very examples that the network has learned, where the errors are smallest."
        " New examples lie outside far more often. Measure the width on examples that were kept out of the training.",
        zh="程序要说明预测可能偏离多少：100 个误差中有 90 个小于它测得的宽度。可是它是在网络已经学过的样本上测的，那里"
        "误差最小。新样本落在区间外的情况要多得多。请在没有参加训练的样本上测量宽度。",
    ),
    why=T(
        en="A quantile of absolute errors is a width for new examples if these and the measured ones are alike: "
        "*split conformal prediction*. Training makes them unlike: a net with many weights can bring the errors on its "
        "own rows close to zero. `torch.quantile` does not know where its numbers come from, and the share on the same "
        "rows is right by construction, so it has to be counted on others.",
        zh="如果新样本与被测的样本是同一类，绝对误差的分位数就是适用于新样本的宽度：*分裂共形预测*。训练使两者不再相同："
        "权重很多的网络可以把自己那些行上的误差降到接近零。`torch.quantile` 不知道这些数从哪里来，而在同样的行上比例必"
        "然正确，所以必须在另外的行上统计。",
    ),
    advice=T(
        en="take the quantile on {line} over the errors on rows that no backward was run for.",
        zh="{line}的分位数应取自没有做过反向传播的各行上的误差。",
    ),
    bad="""import torch

torch.manual_seed(0)
x_fit, y_fit = torch.randn(12, 8), torch.randn(12)
x_held, y_held = torch.randn(40, 8), torch.randn(40)
x_new, y_new = torch.randn(100, 8), torch.randn(100)
w = torch.zeros(8, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.3)
for _ in range(60):
    opt.zero_grad()
    (x_fit @ w - y_fit).square().mean().backward()  # backward
    opt.step()
with torch.no_grad():
    width = (x_fit @ w - y_fit).abs().quantile(0.9)  # PL991
    inside = ((x_new @ w - y_new).abs() <= width).float().mean()  # used
print(f"width {width:.2f}, 90 % meant, {100 * inside:.0f} % inside")
""",
    good="""import torch

torch.manual_seed(0)
x_fit, y_fit = torch.randn(12, 8), torch.randn(12)
x_held, y_held = torch.randn(40, 8), torch.randn(40)
x_new, y_new = torch.randn(100, 8), torch.randn(100)
w = torch.zeros(8, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.3)
for _ in range(60):
    opt.zero_grad()
    (x_fit @ w - y_fit).square().mean().backward()
    opt.step()
with torch.no_grad():
    width = (x_held @ w - y_held).abs().quantile(0.9)
    inside = ((x_new @ w - y_new).abs() <= width).float().mean()
print(f"width {width:.2f}, 90 % meant, {100 * inside:.0f} % inside")
""",
    find=find,
    traps=(
        Trap(
            "quantile(0.9)",
            "quantile(0.95)",
            T(
                en="A higher level of the same small errors is a guess, and still too narrow.",
                zh="对同样偏小的误差取更高的分位数只是猜测，仍然太窄。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.quantile.html",),
)
