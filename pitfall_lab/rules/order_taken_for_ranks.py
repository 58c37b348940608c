"""PL920: the positions that sort a tensor were taken for the ranks of its elements, and
two such orders are compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import MODULES
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, T

COMPARES = ("mul", "sub", "__mul__", "__sub__", "multiply", "mse_loss", "l1_loss", "cosine_similarity", "dot", "matmul",
            "__matmul__", "stack")  # fmt: skip
THROUGH = {"float", "to", "double", "half", "sub", "__sub__", "add", "__add__", "div", "truediv", "mul", "mean",
           "__truediv__", "view", "reshape", "flatten", "squeeze", "unsqueeze", "detach", "contiguous", "pow", "sum",
           "std", "norm", "sub_", "div_", "type"}  # fmt: skip
FURTHER = 80


@dataclass(frozen=True, slots=True)
class Orders:
    """``first`` and ``second`` are positions of two sorts, which the call ``compare``
    combines as if they were ranks.
    """

    first: Event
    second: Event
    compare: Event


def find(story: Story) -> Iterator[Finding]:
    """One finding for each pair of sorts of computed numbers whose positions are then combined as numbers,
    at the line of the first one.
    """
    told, orders = set(), dict[str, Event]()
    for event in story.calls():
        if event.error is not None or not event.results:
            continue
        given = [o.label for o in event.operands if o.label is not None]
        if event.name == "argsort" or (event.name == "sort" and len(event.results) > 1):
            if _is_float(story, given[0], event.step) and _is_float_later(story, event):
                orders[event.results[-1]] = event
            continue
        met = [orders[label] for label in given if label in orders]
        two = {sort.step for sort in met}
        if event.name in COMPARES and len(two) == 2 and all(_is_float(story, label, event.step) for label in given[:2]):
            place = story.span(met[0].step)
            if place not in told:
                told |= {place, story.span(met[1].step)}
                yield _finding(story, Orders(met[0], met[1], event))
        if event.name in THROUGH and len(two) == 1 and len(event.results) == 1:
            orders[event.results[0]] = met[0]


def _is_float(story: Story, label: str, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith(("float", "bfloat"))


def _is_float_later(story: Story, sort: Event) -> bool:
    """Whether the positions are only converted to floats; used as an index they would be right."""
    uses = [use for use in story.uses(sort.results[-1]) if use.step > sort.step]
    return bool(uses) and all(use.name in THROUGH for use in uses)


def _finding(story: Story, found: Orders) -> Finding:
    first = found.first
    here, there = at_line(story, story.span(first.step)), at_line(story, story.span(found.compare.step))
    what = expression(story, first.operands[0].label, first.step)
    return RULE.finding(
        story.span(first.step),
        first.step,
        T(
            en=f"{capital(here.en)} takes the positions that sort {what.en} for its ranks, and {there.en} compares "
            "two such lists number by number.",
            zh=f"{here.zh}把给 {what.zh} 排序的位置当作名次，而{there.zh}把两个这样的列表逐个比较。",
        ),
        T(
            en="`argsort` says where the smallest element is, where the second one is, and so on. The rank of each "
            "element is the inverse of that: `x.argsort().argsort()`. The two are equal for special orders only, so a "
            "correlation of them is some other number, mostly much smaller.",
            zh="`argsort` 说的是最小的元素在哪里、第二小的在哪里，等等。每个元素的名次是它的逆："
            "`x.argsort().argsort()`。只有在特殊的次序下两者才相等，所以用它算出的相关系数是另外一个数，多半小得多。",
        ),
        related=[
            story.related("made", found.second.step, T(en="the other list of positions", zh="另一个位置列表")),
            story.related("used", found.compare.step, T(en="compared number by number here", zh="在这里逐个比较")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("sorted", first.op, story.by(first.step))],
    )


def _fixes(story: Story, found: Orders) -> tuple[Fix, ...]:
    """At most one fix: it sorts both once more, which turns positions into ranks.

    Empty unless both are ``argsort`` without ``descending``.
    """
    program = story.program
    calls = dict.fromkeys(
        n for e in (found.first, found.second) if isinstance(n := program.at(story.span(e.step)), ast.Call)
    )
    changes: list[tuple[ast.AST, str]] = []
    for call in calls:
        owner = program.segment(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        given = call.args[1:] if owner in MODULES else call.args
        inside = ", ".join(
            [*map(program.segment, given), *(program.segment(k) for k in call.keywords if k.arg in ("dim", "axis"))]
        )
        if call_name(call) != "argsort" or any(k.arg == "descending" for k in call.keywords):
            return ()
        changes.append((call, f"{program.segment(call)}.argsort({inside})"))
    title = T(en="Sort the positions once more: `.argsort().argsort()`", zh="把位置再排序一次：`.argsort().argsort()`")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if changes else [])


RULE = Rule(
    code="PL920",
    name="order-taken-for-ranks",
    severity="warning",
    title=T(en="Positions in sorted order are taken for ranks", zh="把排序后的位置当作名次"),
    what=T(
        en="A program computes a correlation of ranks, and takes the result of `argsort` for the ranks. Those are the "
        "positions of the smallest element, the second one, and so on, which is something else. Use "
        "`x.argsort().argsort()`.",
        zh="程序计算名次的相关系数，却把 `argsort` 的结果当作名次。那其实是最小元素的位置、第二小元素的位置，等等，是"
        "另一回事。请用 `x.argsort().argsort()`。",
    ),
    why=T(
        en="For `x = [30, 10, 20]`, `argsort` gives `[1, 2, 0]`: the smallest is at position 1, the next at 2, the "
        "largest at 0. The ranks are `[2, 0, 1]`: 30 is the largest. One list is the inverse permutation of the "
        "other, and sorting the positions inverts them. Both hold the same numbers, so mean and spread agree, and "
        "nothing looks wrong.",
        zh="对 `x = [30, 10, 20]`，`argsort` 得到 `[1, 2, 0]`：最小的在位置 1，其次在 2，最大的在 0。名次却是 "
        "`[2, 0, 1]`：30 是最大的。两者互为逆排列，而对位置再排序就得到逆。两个列表含有同样的数，所以均值和方差都"
        "一致，看不出有什么不对。",
    ),
    bad="""import torch

score = torch.tensor([0.3, 0.1, 0.2, 0.9, 0.5])
truth = torch.tensor([4.0, 1.0, 3.0, 8.0, 9.0])
a = score.argsort().float()  # PL920
b = truth.argsort().float()  # made
a, b = a - a.mean(), b - b.mean()
print((a * b).sum() / (a.norm() * b.norm()))  # used
""",
    good="""import torch

score = torch.tensor([0.3, 0.1, 0.2, 0.9, 0.5])
truth = torch.tensor([4.0, 1.0, 3.0, 8.0, 9.0])
a = score.argsort().argsort().float()
b = truth.argsort().argsort().float()
a, b = a - a.mean(), b - b.mean()
print((a * b).sum() / (a.norm() * b.norm()))
""",
    find=find,
    traps=(
        Trap(
            "score.argsort().float()",
            "score.argsort(stable=True).float()",
            T(
                en="A stable sort keeps equal elements in order; the result still is a list of positions.",
                zh="稳定排序保持相等元素的次序，结果仍是位置的列表。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.argsort.html",),
)
