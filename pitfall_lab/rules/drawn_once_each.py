"""PL963: a resampling by weights draws without replacement, and as many as there are, so that each is drawn exactly
once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

FEWEST = 3
"""The least number of weights."""


@dataclass(frozen=True, slots=True)
class DrawnOnceEach:
    """``draw`` is the call (``Event``) of ``multinomial`` that drew all ``count`` indices of the tensor ``weights`` (a
    label) without replacement; ``used`` is the call that selected the rows of a table by these indices, and whose
    result replaces the table.
    """

    draw: Event
    used: Event
    weights: str
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws as many indices as there are weights (at least ``FEWEST``), without
    replacement, if the known weights differ and a table is then replaced by its rows at these indices.
    """
    reported = set()
    for draw in story.calls("multinomial"):
        place = story.span(draw.step)
        found = _drawn(story, draw) if place not in reported and draw.error is None else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _drawn(story: Story, draw: Event) -> DrawnOnceEach | None:
    weights = draw.operands[0].label if draw.operands else None
    shape = story.shape(weights, draw.step) or ()
    count = whole(argument(draw, "num_samples", 1))
    if weights is None or count is None or len(shape) != 1 or shape[0] != count or count < FEWEST or not draw.results:
        return None
    known = [value for _, value in Elements(story, weights, draw.step).known()]
    if argument(draw, "replacement", 2) == "True" or len(set(known)) <= 1:
        return None
    used = next((use for use in story.uses(draw.results[0]) if _replaces(story, use, draw.results[0], count)), None)
    return None if used is None else DrawnOnceEach(draw, used, weights, count)


def _replaces(story: Story, use: Event, index: str, count: int) -> bool:
    """Whether a call selects rows of a table of ``count`` rows by ``index``, and the program assigns the result to the
    table's variable.
    """
    if use.name not in ("__getitem__", "index_select") or use.error is not None or use.operands[0].label == index:
        return False
    if (story.shape(use.operands[0].label, use.step) or (0,))[0] != count:
        return False
    program = story.program
    node = program.at(story.span(use.step)) if program.tree is not None else None
    statement = program.statement(node)
    table: ast.expr | None = None
    if isinstance(node, ast.Subscript):
        table = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        table = node.func.value
    if table is None or not isinstance(statement, ast.Assign):
        return False
    targets = [part for t in statement.targets for part in (t.elts if isinstance(t, ast.Tuple) else [t])]
    return any(program.segment(target) == program.segment(table) for target in targets)


def _finding(story: Story, found: DrawnOnceEach) -> Finding:
    step, count = found.draw.step, found.count
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.used.step))
    weights = expression(story, found.weights, step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} draws all {count} indices without replacement: each one comes exactly once, so the "
            f"weights {weights.en} decide their order only, and {there.en} keeps every row.",
            zh=f"{here.zh}不放回地抽出全部 {count} 个下标：每个恰好一次，所以权重 {weights.zh} 只决定次序，而"
            f"{there.zh}保留了所有的行。",
        ),
        T(
            en="`torch.multinomial` draws without replacement by default. A resampling is meant to "
            "repeat the likely rows and drop the unlikely ones; here it only shuffles them, and the weights are gone "
            "afterwards. Say `replacement=True`.",
            zh="除非另行说明，`torch.multinomial` 是不放回抽取。重采样本该重复可能性大的行、丢掉可能性小的行；这里只是"
            "打乱了次序，之后权重也没有了。请写 `replacement=True`。",
        ),
        related=[story.related("used", found.used.step, T(en="the rows are taken here", zh="在这里取出各行"))],
        fixes=_fixes(story, found),
        facts=[Fact("drawn", count, story.by(step))],
    )


def _fixes(story: Story, found: DrawnOnceEach) -> tuple[Fix, ...]:
    """A fix that draws with replacement; empty if the program does not call ``multinomial`` there."""
    program = story.program
    node = program.at(story.span(found.draw.step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ()
    is_function = isinstance(node.func.value, ast.Name) and node.func.value.id == "torch"
    given = next((word.value for word in node.keywords if word.arg == "replacement"), None)
    place = 2 if is_function else 1
    given = node.args[place] if given is None and len(node.args) > place else given
    last = node.args[-1] if node.args else None
    if last is None:
        return ()
    edit = (given, "True") if given is not None else (last, f"{program.segment(last)}, replacement=True")
    title = T(en="Draw with replacement: `replacement=True`", zh="放回抽取：`replacement=True`")
    return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])


RULE = Rule(
    code="PL963",
    name="drawn-once-each",
    severity="warning",
    title=T(en="A resampling by weights kept every row once", zh="按权重重采样，却把每一行各保留了一次"),
    what=T(
        en="A program draws as many rows as there are, by weights, to repeat the likely ones. It draws without "
        "replacement, so every row is drawn once, in another order, and the weights have no effect. Say "
        "`replacement=True`.",
        zh="程序按权重抽取与总数一样多的行，想让可能性大的重复出现。但抽取是不放回的，于是每一行都恰好抽到一次，只是次序不同，"
        "权重不起作用。请写 `replacement=True`。",
    ),
    why=T(
        en="`torch.multinomial(weights, n)` has `replacement=False` by default, `random.choices` and "
        "`numpy.random.choice` draw with replacement. With fewer draws than rows the weights still matter; with all of "
        "them nothing is left to choose. A particle filter then never drops a particle.",
        zh="`torch.multinomial(weights, n)` 默认 `replacement=False`，而 `random.choices` 和 `numpy.random.choice` "
        "是放回抽取。抽取数少于行数时权重还有作用；全部抽完就无可选择了。粒子滤波器于是从不淘汰任何粒子。",
    ),
    bad="""import torch

torch.manual_seed(0)
particles = torch.randn(6)
weights = torch.softmax(-4 * (particles - 1).square(), 0)
index = torch.multinomial(weights, 6)  # PL963
particles = particles[index]  # used
print(particles.mean(), particles.std())
""",
    good="""import torch

torch.manual_seed(0)
particles = torch.randn(6)
weights = torch.softmax(-4 * (particles - 1).square(), 0)
index = torch.multinomial(weights, 6, replacement=True)
particles = particles[index]
print(particles.mean(), particles.std())
""",
    find=find,
    traps=(
        Trap(
            "-4 * (particles",
            "-9 * (particles",
            T(
                en="Sharper weights change the order in which all of them are drawn, and nothing else.",
                zh="更尖锐的权重只改变抽出的次序，仍然全部抽到。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",),
)
