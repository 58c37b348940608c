"""PL920: the positions that sort a tensor were taken for the ranks of its elements: two such orders are compared, or
one is added up over the elements that something else picks or weighs.
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
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMPARES = spellings("matmul", "mul", "sub") | {"cosine_similarity", "dot", "l1_loss", "mse_loss", "stack"}  # fmt: skip
"""Calls in which two orders meet."""
THROUGH = (
    spellings("add", "mul", "pow") | spellings("div", "sub", in_place=True)
    | {"contiguous", "detach", "double", "flatten", "float", "half", "mean", "norm", "reshape", "squeeze", "std",
       "sum", "to", "type", "unsqueeze", "view"}
)  # fmt: skip
"""Calls that ranks are followed through on the way to a correlation."""
PICKS = spellings("div", "matmul", "mul") | {"__getitem__", "dot", "masked_fill", "masked_select", "where"}  # fmt: skip
"""Calls that combine each number of a row with the number, or the truth value, at the same place of another one."""
TOTALS = spellings("matmul") | {"dot", "mean", "nanmean", "nansum", "sum"}
"""Reductions of what ranks weigh."""
CURVED = {"log2", "log", "log1p", "reciprocal", "__rtruediv__", "rdiv", "__rdiv__", "exp", "sqrt", "__radd__",
          "__rsub__", "__rmul__", "long", "int"}  # fmt: skip
"""Functions of a rank that discount it, and conversions."""
COUNTS = {"arange", "linspace", "range", "tril", "triu", "ones", "zeros", "full", "ones_like", "zeros_like", "topk"}
"""Calls whose results are in no order of the elements."""
DRAWN = {"rand", "randn", "rand_like", "randn_like", "uniform_", "normal_"}
"""Calls that draw: the order of random numbers is a random order, which is no mistake."""
FURTHER = 80


@dataclass(frozen=True, slots=True)
class OrderTakenForRanks:
    """``first`` and ``second`` are the calls (``Event``) that sorted two tensors; ``compare`` is the call that combines
    the positions that they returned as if these were the ranks of the elements.
    """

    first: Event
    second: Event
    compare: Event


@dataclass(frozen=True, slots=True)
class Total:
    """``sort`` is the call (``Event``) whose positions the call ``pick`` combined with ``other``, the label of a tensor
    in the elements' own order, as if they were the elements' ranks; ``total`` is the call that added up the result.

    For ``same`` of the ``count`` elements of a row the rank and the position are equal; None if there are several rows,
    or if not all positions are known.
    """

    sort: Event
    pick: Event
    total: Event
    other: str
    count: int
    same: int | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of sorts of floating-point numbers whose positions are then combined as numbers,
    at the line of the first one; and one for each line with a sort whose positions are combined with numbers in the
    elements' own order and added up. At most one for each line.
    """
    if not any(True for _ in story.calls("argsort", "sort")):
        return
    told = set[object]()
    yield from _compared(story, told)
    for sort in story.calls("argsort", "sort"):
        place = story.span(sort.step)
        total = _total(story, sort) if place not in told else None
        if total is not None:
            told.add(place)
            yield _added_up(story, total)


def _total(story: Story, sort: Event) -> Total | None:
    """The data of the finding if the positions of a sort are combined with numbers in the elements' own order and added
    up; else None.

    None if positions are used in another way, if the numbers were drawn or are not floating-point, or if all ranks are
    known to equal the positions.
    """
    given = sort.operands[0].label if sort.operands else None
    if sort.error is not None or given is None or not sort.results or (sort.name == "sort" and len(sort.results) < 2):
        return None
    made = made_by(story, given, sort.step)
    shape = story.shape(sort.results[-1], sort.step)
    if not shape or not _is_float(story, given, sort.step) or (made is not None and made.name in DRAWN):
        return None
    found = _picked_and_added(story, sort, shape)
    same = _same(story, sort) if found is not None else None
    return None if found is None or same == shape[-1] else Total(sort, *found, shape[-1], same)


def _picked_and_added(story: Story, sort: Event, shape: tuple[int, ...]) -> tuple[Event, Event, str] | None:
    """The call that combines the positions with numbers in the elements' order, the call that adds up the result, and
    the label of these numbers.

    None if there are no such calls, or if another kind of call uses the positions before they are combined.
    """
    order, picked = sort.results[-1], dict[str, tuple[Event, str]]()
    pending, ranks = [order], {order}
    found: tuple[Event, Event, str] | None = None
    while pending and len(ranks) < FURTHER:
        here = pending.pop()
        for use in (use for use in story.uses(here) if use.step > sort.step and use.error is None):
            other = _other(story, use, here, sort, shape) if use.name in PICKS and here not in picked else None
            by = (use, other) if other is not None else picked.get(here)
            if by is None and use.name not in THROUGH | CURVED:
                return None
            if by is not None and use.name in TOTALS:
                found = found or (by[0], use, by[1])
            elif use.results and use.results[0] not in ranks and (other is not None or use.name in THROUGH | CURVED):
                ranks.add(use.results[0])
                pending.append(use.results[0])
                if by is not None:
                    picked[use.results[0]] = by
    return found


def _other(story: Story, use: Event, here: str, sort: Event, shape: tuple[int, ...]) -> str | None:
    """The label of the other operand of a call if it has the elements' shape and order, and depends neither on the sort
    nor on a counting or constant tensor (``COUNTS``); else None.

    An index counts only if it is a bool mask that picks from the positions.
    """
    given = [o.label for o in use.operands if o.label is not None]
    others = [each for each in given if each != here and story.shape(each, use.step) == shape]
    if not use.results or len(others) != 1 or (use.name == "__getitem__" and given[0] != here):
        return None
    other = others[0]
    dtype = str((story.tensor(other, use.step) or {}).get("dtype"))
    if use.name == "__getitem__" and dtype != "bool":
        return None
    return other if _is_by_element(story, other, use.step, set(sort.results)) else None


def _is_by_element(story: Story, label: str, step: int, sorts: set[str]) -> bool:
    """Whether a tensor depends on no result in ``sorts``, on no other sort, and on no counting or constant tensor
    (``COUNTS``).
    """
    pending, seen = [label], {label}
    while pending:
        here = pending.pop()
        made = made_by(story, here, step)
        if here in sorts or (made is not None and made.name in COUNTS | {"sort", "argsort", "randperm"}):
            return False
        for each in (o.label for o in made.operands) if made is not None else ():
            if each is not None and each not in seen and len(seen) < FURTHER:
                seen.add(each)
                pending.append(each)
    return True


def _same(story: Story, sort: Event) -> int | None:
    """The number of elements of a vector whose position in the sort equals their rank; None if the trace does not have
    all positions.
    """
    shape = story.shape(sort.results[-1], sort.step) or ()
    order = [int(value) for _, value in Elements(story, sort.results[-1], sort.step).known()]
    if len(shape) != 1 or sorted(order) != list(range(shape[0])):
        return None
    return sum(order[place] == rank for rank, place in enumerate(order))


def _compared(story: Story, told: set[object]) -> Iterator[Finding]:
    """Yield the findings on pairs of orders, and add the lines of both sorts to the set ``told`` of reported lines."""
    orders = dict[str, Event]()
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
                yield _finding(story, OrderTakenForRanks(met[0], met[1], event))
        if event.name in THROUGH and len(two) == 1 and len(event.results) == 1:
            orders[event.results[0]] = met[0]


def _is_float(story: Story, label: str, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith(("float", "bfloat"))


def _is_float_later(story: Story, sort: Event) -> bool:
    """Whether the positions are used, and only in arithmetic, reductions and conversions (``THROUGH``); as an index
    they would be right.
    """
    uses = [use for use in story.uses(sort.results[-1]) if use.step > sort.step]
    return bool(uses) and all(use.name in THROUGH for use in uses)


def _finding(story: Story, found: OrderTakenForRanks) -> Finding:
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
        fixes=_fixes(story, found.first, found.second),
        facts=[Fact("sorted", first.op, story.by(first.step))],
    )


def _added_up(story: Story, found: Total) -> Finding:
    """The finding for sort positions that are combined with a tensor in the order of the elements, as if they were
    ranks, and then added up.
    """
    sort, count = found.sort, found.count
    here, there = at_line(story, story.span(sort.step)), at_line(story, story.span(found.pick.step))
    what, other = expression(story, sort.operands[0].label, sort.step), shown(story, found.pick, found.other)
    agree = T(en="", zh="")
    if found.same is not None:
        agree = T(
            en=f" Here {found.same} of {count} elements have the same number as position and as rank.",
            zh=f"这里 {count} 个元素中有 {found.same} 个的位置与名次相同。",
        )
    return RULE.finding(
        story.span(sort.step),
        sort.step,
        T(
            en=f"{capital(here.en)} takes the positions that sort {what.en} for the ranks of its {count} elements, and "
            f"{there.en} combines them with {other.en}, which is in the order of the elements.",
            zh=f"{here.zh}把给 {what.zh} 排序的位置当作它 {count} 个元素的名次，而{there.zh}把它们与按元素排列的 "
            f"{other.zh} 合在一起。",
        ),
        T(
            en="`argsort` says where the smallest element is, where the second one is, and so on: entry `i` of it is "
            "not about element `i`. The rank of each element is the inverse of that: `x.argsort().argsort()`."
            f"{agree.en}",
            zh="`argsort` 说的是最小的元素在哪里、第二小的在哪里，等等：它的第 `i` 项说的不是第 `i` 个元素。每个元素的"
            f"名次是它的逆：`x.argsort().argsort()`。{agree.zh}",
        ),
        related=[story.related("used", found.pick.step, T(en="combined as ranks here", zh="在这里当作名次使用"))],
        fixes=_fixes(story, sort),
        facts=[
            Fact("sorted", sort.op, story.by(sort.step)),
            Fact("elements", count, story.by(sort.step)),
            *([Fact("same", found.same)] if found.same is not None else []),
        ],
    )


def _fixes(story: Story, *sorts: Event) -> tuple[Fix, ...]:
    """At most one fix: it sorts the positions of each sort once more, which turns them into ranks.

    Empty where the program's source shows neither an ``argsort`` nor the place where the positions are used first.
    """
    program = story.program
    calls = dict.fromkeys(n for e in sorts if isinstance(n := program.at(story.span(e.step)), ast.Call))
    changes: list[tuple[ast.AST, str]] = []
    for call in calls:
        owner = program.segment(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        given = (call.args[1:] if owner in MODULES else call.args)[:1]
        inside = ", ".join(
            [*map(program.segment, given), *(program.segment(k) for k in call.keywords if k.arg in ("dim", "axis"))]
        )
        if call_name(call) == "argsort":
            changes.append((call, f"{program.segment(call)}.argsort({inside})"))
            continue
        sort = next(e for e in sorts if program.at(story.span(e.step)) is call)
        use = next((use for use in story.uses(sort.results[-1]) if use.step > sort.step), None)
        read = written_as(story, use, sort.results[-1]) if use is not None else None
        if read is None or call_name(call) != "sort":
            return ()
        changes.append((read, f"{program.segment(read)}.argsort({inside or '-1'})"))
    title = T(en="Sort the positions once more: `.argsort().argsort()`", zh="把位置再排序一次：`.argsort().argsort()`")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")] if changes else [])


RULE = Rule(
    code="PL920",
    name="order-taken-for-ranks",
    severity="warning",
    title=T(en="Positions in sorted order are taken for ranks", zh="把排序后的位置当作名次"),
    what=T(
        en="A program computes a correlation or a sum of ranks, and takes the result of `argsort` for the ranks. Those "
        "are the positions of the smallest element, the second one, and so on, which is something else. Use "
        "`x.argsort().argsort()`.",
        zh="程序计算名次的相关系数或名次之和，却把 `argsort` 的结果当作名次。那其实是最小元素的位置、第二小元素的位置，"
        "等等，是另一回事。请用 `x.argsort().argsort()`。",
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
