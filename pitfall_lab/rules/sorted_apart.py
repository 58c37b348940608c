"""PL442: what belongs together row by row is sorted apart: each column of a table is sorted by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SORTS = ("sort", "msort")
COMPARED = (
    spellings("eq", "ge", "gt", "le", "lt", "ne") | spellings("sub", exchanged=True)
    | {"allclose", "cdist", "dist", "isclose", "isin", "l1_loss", "max", "maximum", "min", "minimum", "mse_loss",
       "print", "searchsorted", "smooth_l1_loss"}
)  # fmt: skip
"""Calls that may combine two sorted columns: two distributions are compared by their sorted numbers."""
TOGETHER = {"corrcoef", "cov"}
TURNED = {"t", "T", "mT", "transpose", "permute", "clone", "contiguous", "to", "float", "double", "detach"}
"""Calls after which a table is still the whole table."""
LOOKS = {"shape", "size", "dim", "tolist", "numpy", "item", "__getitem__"}
"""Calls that only look at a tensor."""
MATRIX, FEWEST, MOST, FURTHER = 2, 3, 8, 300


@dataclass(frozen=True, slots=True)
class SortedApart:
    """``sort`` is the call (``Event``) that sorted the columns of a table, or its rows, each by itself, along the axis
    ``axis``; ``used`` is a later call that combines several of them, or uses the table as rows.
    """

    sort: Event
    axis: int
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a sort of the columns of a table (or of its rows), each by itself, where a
    later call combines numbers of different columns as if they still belonged together.

    Only tables with 2 to ``MOST`` columns, fewer than rows, of which there are at least ``FEWEST``. A comparison of
    columns alone does not count.
    """
    reported = set()
    for event in story.calls(*SORTS):
        place, axis = story.span(event.step), _axis(story, event)
        used = _combined(story, event, axis) if axis is not None and place not in reported else None
        if used is not None and axis is not None:
            reported.add(place)
            yield _finding(story, SortedApart(event, axis, used))


def _axis(story: Story, event: Event) -> int | None:
    """The axis along which a matrix of few columns (or few rows) was sorted, if that is the
    long one; None for other sorts.
    """
    given = (
        story.shape(event.operands[0].label, event.step)
        if event.operands and event.results and event.error is None
        else None
    )
    if given is None or len(given) != MATRIX:
        return None
    axis = (
        0
        if event.name == "msort"
        else (whole(argument(event, "dim", 1)) or 0) % MATRIX
        if argument(event, "dim", 1)
        else 1
    )
    return axis if given[axis] >= FEWEST and 1 < given[1 - axis] <= MOST and given[1 - axis] < given[axis] else None


def _combined(story: Story, sort: Event, axis: int) -> Event | None:
    """The first call that combines numbers of different columns in the sorted table; else None.

    A comparison of columns alone does not count, calls that take the whole table (``TOGETHER``) do.
    """
    table, rows = (
        story.tensor(sort.results[0], sort.step) or {},
        (story.shape(sort.results[0], sort.step) or (0, 0))[axis],
    )
    columns: dict[str, frozenset[int]] = {}
    whole_table, mixed = {sort.results[0]}, set[str]()
    for event in story.events[sort.step + 1 : sort.step + FURTHER]:
        given = (
            [o.label for o in event.operands if o.label is not None]
            if event.kind == "call" and event.error is None
            else []
        )
        if whole_table & set(given):
            if event.name in TOGETHER:
                return event
            whole_table.update(event.results if event.name in TURNED else ())
        for label in event.results if given else ():
            column = _column(story, label, event, table, axis)
            if column is not None:
                columns.setdefault(label, frozenset((column,)))
        known = [columns[label] for label in dict.fromkeys(given) if label in columns]
        together = frozenset().union(*known)
        if len(known) > 1 and len(together) > max(map(len, known)):
            if event.name not in COMPARED or mixed & set(given):
                return event
            continue
        for label in event.results if together and event.name not in LOOKS and _is_as_long(story, event, rows) else ():
            columns.setdefault(label, together)
            if len(set(given)) > 1 or label in mixed or mixed & set(given):
                mixed.add(label)
    return None


def _is_as_long(story: Story, event: Event, rows: int) -> bool:
    """Whether a result still has a number for each row, or for each pair of neighbours: a statistic of a column, which
    may be combined with others, has not.
    """
    return bool({rows, rows - 1} & set(story.shape(event.results[0], event.step) or ()))


def _column(story: Story, label: str, event: Event, table: dict[str, object], axis: int) -> int | None:
    """The number of the column of the sorted table that a tensor is a view of; None if it is no such view."""
    record = story.tensor(label, event.step) or {}
    shape, stride, full = list(record.get("shape") or ()), list(record.get("stride") or ()), table.get("stride")
    if record.get("storage") != table.get("storage") or not isinstance(full, list) or len(full) != MATRIX:
        return None
    along, across = full[axis], full[1 - axis]
    long = [place for place, each in enumerate(stride) if each == along and shape[place] > 1]
    if len(long) != 1 or any(n > 1 for place, n in enumerate(shape) if place != long[0]):
        return None
    start = int(record.get("offset") or 0) - int(str(table.get("offset") or 0))
    return int(start % along // across if along > across else start // across)


def _finding(story: Story, found: SortedApart) -> Finding:
    sort, used = found.sort, found.used
    here, there = at_line(story, story.span(sort.step)), at_line(story, story.span(used.step))
    table = expression(story, sort.operands[0].label, sort.step)
    count = (story.shape(sort.operands[0].label, sort.step) or (0, 0))[1 - found.axis]
    kind = T(en="columns", zh="列") if found.axis == 0 else T(en="rows", zh="行")
    return RULE.finding(
        story.span(sort.step),
        sort.step,
        T(
            en=f"{capital(here.en)} sorts the {count} {kind.en} of {table.en} each by itself, and {there.en} combines "
            "them: numbers that were side by side no longer are.",
            zh=f"{here.zh}把 {table.zh} 的 {count} {kind.zh}各自单独排序，而{there.zh}把它们一起使用："
            "原来并排的数不再并排。",
        ),
        T(
            en=f"A sort along axis {found.axis} looks at nothing but that axis: each of the {kind.en} gets an "
            f"order of its own. To move whole entries, sort the numbers that decide, and take all {kind.en} by "
            "the indices of that sort.",
            zh=f"沿第 {found.axis} 轴的排序只看这个轴：每一{kind.zh}各有各的次序。要整体移动，请只对起决定作用的数排"
            f"序，再按那次排序的索引来取所有的{kind.zh}。",
        ),
        related=[story.related("used", used.step, T(en="they are used together here", zh="它们在这里一起使用"))],
        fixes=_fixes(story, found),
        facts=[Fact("axis", found.axis, story.by(sort.step)), Fact("columns", count, story.by(sort.step))],
    )


def _fixes(story: Story, found: SortedApart) -> tuple[Fix, ...]:
    """At most one fix: it sorts by the first column (or row) and moves the others with it.

    Empty unless a table with a name is sorted and only the sorted values are used (``.values``, ``[0]``, or a pair
    whose positions are unused).
    """
    program = story.program
    call = program.at(story.span(found.sort.step)) if program.tree is not None else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    method = story.said(found.sort.step) in SORTS and not (
        isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    )
    source = call.func.value if method else call.args[0] if call.args else None
    if source is None or not is_name(source):
        return ()
    table = program.segment(source)
    kept = "".join(f"{program.segment(k)}" for k in call.keywords if k.arg == "descending")
    key = f"{table}[:, 0]" if found.axis == 0 else f"{table}[0]"
    order = f"{key}.argsort({kept})"
    new = f"{table}[{order}]" if found.axis == 0 else f"{table}[:, {order}]"
    title = T(en=f"Move them as a whole: `{new}`", zh=f"整体移动：`{new}`")
    outer, statement = program.parents.get(call), program.statement(call)
    if (isinstance(outer, ast.Attribute) and outer.attr == "values") or call_name(call) == "msort":
        return unique(
            program.text,
            [Fix(title, program.replace((outer if isinstance(outer, ast.Attribute) else call, new)), meaning="later")],
        )
    if isinstance(outer, ast.Subscript) and isinstance(outer.slice, ast.Constant) and outer.slice.value == 0:
        return unique(program.text, [Fix(title, program.replace((outer, new)), meaning="later")])
    if isinstance(statement, ast.Assign) and statement.value is call and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Tuple) and not story.uses(found.sort.results[1]):
            change = program.replace((target, program.segment(target.elts[0])), (call, new))
            return unique(program.text, [Fix(title, change, meaning="later")])
    return ()


RULE = Rule(
    code="PL442",
    name="sorted-apart",
    severity="warning",
    title=T(en="The columns of a table were sorted each by itself", zh="表的各列被各自单独排序"),
    what=T(
        en="A program wants the rows of a table in order, by time for instance, and sorts the whole table along its "
        "first axis. That sorts every column by itself, so the numbers of one row are spread over others. Sort one "
        "column and take the rows by its order: `table[table[:, 0].argsort()]`.",
        zh="程序想让表的各行按次序（例如时间）排列，却把整张表沿第一个轴排序。这会让每一列各自排序，于是同一行的数散到"
        "了别的行里。请只对一列排序，再按它的次序取各行：`table[table[:, 0].argsort()]`。",
    ),
    why=T(
        en="`sort(dim=0)` compares numbers along axis 0 and along no other: a table of two columns gives two sorted "
        "columns with two different orders, which the second result, the indices, shows. For a statistic of each "
        "column (its median, its distance to another sorted column) this is right. Where a row is one observation it "
        "is not, and all columns rise together afterwards, whatever they did before.",
        zh="`sort(dim=0)` 只沿第 0 轴比较，别的轴一概不看：两列的表得到两列排好的数，次序却是两种，第二个结果（索引）"
        "可以看出来。对每列各自的统计量（中位数、与另一列排序后的距离）这是对的。如果一行是一次观测就不对了：排序之后"
        "各列都一起上升，不管原来如何。",
    ),
    bad="""import torch

torch.manual_seed(0)
time = torch.rand(6)
value = 1 - time
table = torch.stack([time, value], dim=1)
table = table.sort(dim=0).values  # PL442
t, v = table[:, 0], table[:, 1]
print(torch.trapezoid(v, t), (t * v).mean())  # used
""",
    good="""import torch

torch.manual_seed(0)
time = torch.rand(6)
value = 1 - time
table = torch.stack([time, value], dim=1)
table = table[table[:, 0].argsort()]
t, v = table[:, 0], table[:, 1]
print(torch.trapezoid(v, t), (t * v).mean())
""",
    find=find,
    traps=(
        Trap(
            "table.sort(dim=0)",
            "table.sort(dim=1)",
            T(en="Along the other axis each row is sorted by itself.", zh="沿另一个轴，则是每一行各自排序。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.sort.html",),
)
