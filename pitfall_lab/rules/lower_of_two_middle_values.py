"""PL833: the median of a few numbers, an even count of them, is the lower of the two in the middle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

MEDIANS = {"median": "quantile", "nanmedian": "nanquantile"}
VIEWS = {"squeeze", "unsqueeze", "view", "reshape", "flatten", "detach", "clone", "float", "double", "to", "expand",
         "contiguous", "expand_as", "T", "t", "transpose", "__getitem__"}  # fmt: skip
"""Views, and copies with the same elements, that a tensor is followed through."""
CALCULATING = (
    spellings("cat", "matmul", "pow") | spellings("add", "mul", in_place=True)
    | spellings("div", "sub", in_place=True, exchanged=True) | operations_that("difference_loss")
    | {"addmm", "copy_", "dist", "exp", "gaussian_nll_loss", "lerp", "linear", "log", "mean", "stack", "std", "sum",
       "var"}
)  # fmt: skip
"""Calls that calculate with a median: of a comparison the lower one is as good, as it cuts the numbers in halves."""
MOST, SHOWN, CLOSE, FURTHER = 12, 6, 1e-3, 20


@dataclass(frozen=True, slots=True)
class Middle:
    """``event`` is the call (``Event``) that took the median of an even number ``count`` of values in each row, of
    which ``rows`` were looked at; ``used`` is the call that calculates with the medians.

    One median was ``lower``, the lower of the two values in the middle; ``mean`` is the mean of these two. Over these
    rows the medians are below such means by ``below`` on average; 0 where only one row was looked at.
    """

    event: Event
    count: int
    used: Event
    lower: float
    mean: float
    rows: int = 1
    below: float = 0.0


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes a median of an even number of floating-point values, at most ``MOST``,
    whose two middle values differ, if a call calculates with it.
    """
    told = set()
    for event in story.calls(*MEDIANS):
        place = story.span(event.step)
        found = _middle(story, event) if place not in told and event.error is None and event.results else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _middle(story: Story, event: Event) -> Middle | None:
    """The data of the finding for a median whose two middle values are known to differ.

    None if they are not, if the count is odd or above ``MOST``, if the values are not floating-point, if the indices
    that ``median`` returns are used, or if nothing calculates with the median.
    """
    label = event.operands[0].label
    shape = story.shape(label, event.step) or ()
    axis = whole(argument(event, "dim", 1))
    if axis is not None and not -len(shape) <= axis < len(shape):
        return None
    count = prod(shape) if axis is None else shape[axis]
    if count % 2 or not 2 <= count <= MOST or any(story.uses(each) for each in event.results[1:]):
        return None
    if not str((story.tensor(label, event.step) or {}).get("dtype")).startswith(("float", "bfloat")):
        return None
    used = _used(story, event)
    if used is None:
        return None
    middles = (each for each in story.trace.beside.counted if each.step == event.step and each.kind == "middle")
    counted = next(middles, None)
    if counted is not None:
        lower, upper, below = counted.numbers
        return Middle(event, count, used, lower, (lower + upper) / 2, counted.of, below)
    numbers = Elements(story, label, event.step)
    along = range(len(shape)) if axis is None else [axis % len(shape)]
    lengths = [range(1 if place in along else length) for place, length in enumerate(shape)]
    for row in [*_few(lengths), *_few([each[::-1] for each in lengths])]:
        places = product(*(range(n) if place in along else (row[place],) for place, n in enumerate(shape)))
        known = sorted(value for value in map(numbers.at, places) if value is not None)
        if len(known) == count:
            lower, upper = known[count // 2 - 1], known[count // 2]
            if upper - lower > CLOSE * (known[-1] - known[0]):
                return Middle(event, count, used, lower, (lower + upper) / 2)
    return None


def _few(lengths: list[range]) -> list[tuple[int, ...]]:
    return [index for index, _ in zip(product(*lengths), range(SHOWN), strict=False)]


def _used(story: Story, event: Event) -> Event | None:
    """The first call that calculates with the medians; None if they are only shown, compared or sorted."""
    pending, seen = [event.results[0]], {event.results[0]}
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.name in CALCULATING:
                return use
            new = [each for each in use.results if each not in seen] if use.name in VIEWS else []
            seen.update(new)
            pending += new
    return None


def _finding(story: Story, found: Middle) -> Finding:
    here, there = (at_line(story, story.span(event.step)) for event in (found.event, found.used))
    data = expression(story, found.event.operands[0].label, found.event.step)
    lower, mean = number(found.lower), number(found.mean)
    much = T(en="", zh="")
    if found.rows > 1:
        much = T(
            en=f" The {found.rows:,} medians are on average {number(found.below)} below the mean of their two.",
            zh=f"这 {found.rows:,} 个中位数平均比各自两数的平均值低 {number(found.below)}。",
        )
    return RULE.finding(
        story.span(found.event.step),
        found.event.step,
        T(
            en=f"{capital(here.en)} takes a median of {found.count} numbers, and torch returns the lower of the two "
            f"in the middle: {lower}, where their mean is {mean}.",
            zh=f"{here.zh}取 {found.count} 个数的中位数，而 torch 返回中间两个数里较小的一个：{lower}，而它们的平均值"
            f"是 {mean}。",
        ),
        T(
            en=f"With an even count of numbers in {data.en} there is none in the middle. NumPy takes the mean of the "
            f"two beside it, torch the lower one, so all that is calculated from it on {there.en} is too low, and the "
            f"fewer the numbers, the more.{much.en} `quantile(0.5)` gives the mean of the two.",
            zh=f"{data.zh} 中数的个数是偶数，没有正中间的数。NumPy 取中间两个数的平均值，torch 取较小的一个，所以"
            f"{there.zh}由它算出的一切都偏低，数越少偏得越多。{much.zh}`quantile(0.5)` 给出两者的平均值。",
        ),
        related=[story.related("used", found.used.step, T(en="the medians are used here", zh="这里用到这些中位数"))],
        fixes=_fixes(story, found.event),
        facts=[Fact("lower", found.lower, story.by(found.event.step)), Fact("mean", found.mean)],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """The fix that takes the quantile 0.5; empty where the program's source does not show the call and its
    arguments.
    """
    program = story.program
    node = program.at(story.span(event.step))
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in MEDIANS:
        return ()
    owner = node.func.value
    given = list(node.args)
    if isinstance(owner, ast.Name) and owner.id == "torch":
        owner = given.pop(0) if given else owner
    further = [program.segment(each) for each in given[1:]]
    dim = [f"dim={program.segment(given[0])}"] if given else []
    options = [f"{k.arg}={program.segment(k.value)}" for k in node.keywords if k.arg != "input"]
    keep = [f"keepdim={further[0]}"] if further else []
    text = f"{operand(program, owner)}.{MEDIANS[node.func.attr]}({', '.join(['0.5', *dim, *keep, *options])})"
    title = T(en=f"Take the mean of the two: `{text}`", zh=f"取两者的平均值：`{text}`")
    if len(event.results) == 1:
        return unique(program.text, [Fix(title, program.replace((node, text)), meaning="later")])
    parent, changes = program.parents.get(node), list[tuple[ast.AST, str]]()
    is_first = isinstance(parent, ast.Subscript) and program.segment(parent.slice) == "0"
    if parent is not None and (is_first or (isinstance(parent, ast.Attribute) and parent.attr == "values")):
        changes = [(parent, text)]
    elif isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
        changes = [(parent.targets[0], program.segment(parent.targets[0].elts[0])), (node, text)]
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if changes else [])


RULE = Rule(
    code="PL833",
    name="lower-of-two-middle-values",
    severity="warning",
    title=T(
        en="The median of an even count of numbers is the lower of the two in the middle",
        zh="偶数个数的中位数取了中间两个数中较小的一个",
    ),
    what=T(
        en="A program takes the middle one of four numbers. There is none: two are in the middle, and torch returns "
        "the smaller one, where NumPy returns their mean. What is calculated from it is too low. Use "
        "`x.quantile(0.5, dim=1)`.",
        zh="程序取四个数中间的那一个。其实没有：中间有两个数，torch 返回较小的一个，而 NumPy 返回它们的平均值。由它算"
        "出的结果会偏低。请用 `x.quantile(0.5, dim=1)`。",
    ),
    why=T(
        en="`torch.median` also returns an index, so its value must be one of the numbers; of an even count it is the "
        "lower of the two in the middle. Of a thousand numbers the two hardly differ. Of two, four or six they do, "
        "always in the same direction, and a mean over many such medians keeps the whole error.",
        zh="`torch.median` 还返回索引，所以它的值必须是其中一个数；个数为偶数时，它是中间两个数里较小的一个。对一千个数"
        "来说两者几乎没有差别。对两个、四个或六个数则有差别，而且方向总是相同，所以许多这样的中位数再取平均，误差仍全部保留。",
    ),
    bad="""import torch

ratings = torch.tensor([[1.0, 2.0, 4.0, 9.0], [3.0, 5.0, 6.0, 6.5]])
target = ratings.median(dim=1).values  # PL833
print(target, target.mean())  # used
""",
    good="""import torch

ratings = torch.tensor([[1.0, 2.0, 4.0, 9.0], [3.0, 5.0, 6.0, 6.5]])
target = ratings.quantile(0.5, dim=1)
print(target, target.mean())
""",
    find=find,
    traps=(
        Trap(
            "ratings.median(dim=1).values",
            "ratings.sort(dim=1).values[:, ratings.shape[1] // 2]",
            T(en="This is the higher of the two.", zh="这是两者中较大的一个。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.median.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.quantile.html",
    ),
)
