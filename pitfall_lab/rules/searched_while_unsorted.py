"""PL853: a binary search through numbers that are not sorted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.trace import Counted, Event, T

PLACES = {"searchsorted": ("sorted_sequence", 0), "bucketize": ("boundaries", 1)}
"""For each call the name and the place of the argument that has to be sorted."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``searchsorted`` or ``bucketize`` of which the trace records that the numbers to be
    searched are not sorted.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind == "unsorted" and event is not None and event.name in PLACES and event.error is None:
            yield _finding(story, event, counted)


def _label(event: Event) -> str | None:
    """The label of the tensor that is searched; None if it is not known."""
    name, place = PLACES[event.name]
    given = next((o for o in event.operands if o.name == name), None)
    if given is None and len(event.operands) > place and not event.operands[place].name:
        given = event.operands[place]
    return given.label if given is not None else None


def _finding(story: Story, event: Event, counted: Counted) -> Finding:
    here, rows = at_line(story, story.span(event.step)), expression(story, _label(event), event.step)
    before, after = counted.numbers
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} searches {rows.en} as if it were sorted, but {number(after)} comes after "
            f"{number(before)} in it.",
            zh=f"{here.zh}把 {rows.zh} 当作已排序的来查找，但其中 {number(after)} 排在 {number(before)} 之后。",
        ),
        T(
            en=f"`{event.name}` halves the numbers again and again and compares with the one in the middle, which is "
            f"right only if they ascend. Here {counted.count} of {counted.of} numbers are smaller than the one before. "
            "It does not check that, and returns some place for each value. Sort first; where the places are "
            "used to read from another tensor, bring that into the same order, or give the order as `sorter`.",
            zh=f"`{event.name}` 不断对半缩小范围，与中间的数比较，只有这些数递增时才对。这里 {counted.of} 个数中有 "
            f"{counted.count} 个比前一个小。它不检查这一点，对每个值总会返回某个位置。请先排序；如果要用这些位置去读"
            "另一个张量，那个张量也要用同样的次序，或者用 `sorter` 给出次序。",
        ),
        fixes=_fixes(story, event),
        facts=[Fact("smaller", counted.count, story.by(event.step)), Fact("of", counted.of, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """A fix that sorts the numbers in the call; empty if the call is not in the program's source."""
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) != event.name:
        return ()
    name, place = PLACES[event.name]
    given = next((word.value for word in node.keywords if word.arg == name), None)
    if given is None and len(node.args) > place:
        given = node.args[place]
    if given is None:
        return ()
    new = f"{operand(program, given)}.sort().values"
    title = T(en=f"Sort first: `{new}`", zh=f"先排序：`{new}`")
    return unique(program.text, [Fix(title, program.replace((given, new)), meaning="later")])


RULE = Rule(
    code="PL853",
    name="searched-while-unsorted",
    severity="warning",
    title=T(en="A search for sorted numbers was given unsorted ones", zh="要求有序的查找用在了未排序的数上"),
    what=T(
        en="A program gives `searchsorted` or `bucketize` numbers that do not ascend, such as event times in the order "
        "of the patients. The places that come back are wrong, and no error is raised. Sort the numbers first.",
        zh="程序把不递增的数交给 `searchsorted` 或 `bucketize`，例如按病人次序排列的事件时间。返回的位置是错的，而且不"
        "报错。请先把这些数排序。",
    ),
    why=T(
        en="Both calls do a binary search, which looks at a few of the numbers only. To find out whether all of them "
        "ascend would take longer than the search itself, so it is not checked. Results of the right shape and in the "
        "right range come out, and many of them are even right.",
        zh="这两个调用都做二分查找，只看其中几个数。检查所有的数是否递增，比查找本身还费时间，所以不检查。结果的形状和"
        "范围都对，其中许多甚至是对的。",
    ),
    bad="""import torch

torch.manual_seed(0)
times = torch.rand(50)
grid = torch.linspace(0, 1, 6)
at_risk = len(times) - torch.searchsorted(times, grid)  # PL853
print(at_risk)
""",
    good="""import torch

torch.manual_seed(0)
times = torch.rand(50)
grid = torch.linspace(0, 1, 6)
at_risk = len(times) - torch.searchsorted(times.sort().values, grid)
print(at_risk)
""",
    find=find,
    traps=(
        Trap(
            "searchsorted(times, grid)",
            "searchsorted(times.flip(0), grid)",
            T(
                en="Turned round, numbers in no order are still in no order.",
                zh="没有次序的数反过来仍然没有次序。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.searchsorted.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.bucketize.html",
    ),
)
