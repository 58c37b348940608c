"""PL813: statistics of columns with a few missing entries are NaN, so that whole columns became NaN and then one
number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Counted, Event, T

STATISTICS = {"mean", "std", "var", "median", "average", "min", "max", "amin", "amax", "quantile", "sum"}
"""Statistics by their name in the program, of torch, NumPy and pandas."""
IN_TORCH = {"mean", "median", "sum", "quantile"}
"""The statistics of which torch has a variant that ignores NaN."""


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: statistics that are NaN made all numbers of some columns NaN, which were then filled
    with one number.

    It is about the line that computes the statistics or, if that is not known, about the line that fills the columns.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind == "blank" and event is not None and event.error is None:
            yield _finding(story, event, counted)
            return


def _computed(program: Program, names: tuple[str, ...]) -> list[ast.Call]:
    """The calls of statistics in the assignments of these variables."""
    found = []
    for node in program.nodes:
        if not isinstance(node, ast.Assign):
            continue
        targets = {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if targets & set(names):
            calls = (each for each in ast.walk(node.value) if isinstance(each, ast.Call))
            found += [each for each in calls if call_name(each) in STATISTICS]
    return found


def _finding(story: Story, event: Event, counted: Counted) -> Finding:
    program = story.program
    calls = _computed(program, counted.names)
    statement = program.statement(calls[0]) if calls else None
    span = program.place(statement) if statement is not None else story.span(event.step)
    missing, rows = (round(each) for each in counted.numbers)
    here, there = at_line(story, span), at_line(story, story.span(event.step))
    names = ", ".join(f"`{name}`" for name in counted.names)
    related = [story.related("used", event.step, T(en="the columns are filled here", zh="这些列在这里被填充"))]
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} computes {names}, NaN for {counted.count} of {counted.of} columns, in which "
            f"at most {missing} of {rows} entries are missing. After {there.en} all rows have one number there.",
            zh=f"{here.zh}算出 {names}，{counted.of} 列中有 {counted.count} 列是 NaN，而这些列里 {rows} 项最多只缺 "
            f"{missing} 项。{there.zh}之后，这些列的所有行都是同一个数。",
        ),
        T(
            en="A mean or a deviation over numbers of which one is NaN is NaN. Subtracting it, or dividing by it, "
            "makes every row of the column NaN, and filling NaN with a number afterwards leaves nothing of the column. "
            "Leave the missing entries out: `nanmean` of torch, `nanmean` and `nanstd` of NumPy.",
            zh="只要有一个数是 NaN，平均值和标准差就是 NaN。减去它或除以它，会让这一列的每一行都变成 NaN，之后再把 NaN "
            "填成一个数，这一列就什么也不剩了。请略去缺失的项：torch 的 `nanmean`，NumPy 的 "
            "`nanmean` 和 `nanstd`。",
        ),
        related=related if span != story.span(event.step) else [],
        fixes=_fixes(story, calls),
        facts=[Fact("columns", counted.count, story.by(event.step)), Fact("missing", missing, story.by(event.step))],
    )


def _fixes(story: Story, calls: list[ast.Call]) -> tuple[Fix, ...]:
    """Fixes that leave missing entries out of the statistics; empty if one of ``calls`` has no variant that ignores
    NaN.
    """
    program = story.program
    numpy = next(
        (
            alias.asname or alias.name
            for node in program.nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "numpy"
        ),
        None,
    )
    changes: list[tuple[ast.AST, str]] = []
    for call in calls:
        text = _without_nan(story, call, numpy)
        if text is None:
            return ()
        changes.append((call, text))
    title = T(en="Leave missing entries out of the statistics", zh="统计时略去缺失的项")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")]) if changes else ()


def _without_nan(story: Story, call: ast.Call, numpy: str | None) -> str | None:
    """Return the source of the call's variant that ignores NaN, of NumPy or of torch; None if there is none."""
    program, name = story.program, call_name(call)
    if not isinstance(call.func, ast.Attribute):
        return None
    owner = program.segment(call.func.value)
    arguments = [program.segment(each) for each in (*call.args, *call.keywords)]
    if any(event.name == name for event in story.within(call)):
        source = call.args[0] if owner == "torch" and call.args else call.func.value
        rest = ", ".join(arguments[1:] if owner == "torch" else arguments)
        x = operand(program, source)
        if name in IN_TORCH:
            return f"{x}.nan{name}({rest})"
        if name in ("std", "var"):
            squares = f"({x} - {x}.nanmean({rest}, keepdim=True)).square().nanmean({rest})"
            return f"{squares}.sqrt()" if name == "std" else squares
        return None
    name = {"amin": "min", "amax": "max", "average": "mean"}.get(name, name)
    if owner == numpy:
        return f"{numpy}.nan{name}({', '.join(arguments)})"
    return f"{numpy}.nan{name}({', '.join([owner, *arguments])})" if numpy is not None else None


RULE = Rule(
    code="PL813",
    name="columns-blanked",
    severity="warning",
    title=T(en="A few missing entries wiped out whole columns", zh="几个缺失的项抹掉了整列"),
    what=T(
        en="A table has a few missing entries (NaN), and the program scales its columns by their mean and spread. Both "
        "are NaN for a column with one missing entry, so the whole column is; NaN is then replaced by a number, and "
        "nothing is left of the column. Use `np.nanmean` and `np.nanstd`, or `torch.nanmean`.",
        zh="表中缺少几项（NaN），程序用每列的平均值和标准差来缩放它。只要缺一项，这一列的两个统计量就是 NaN，整列也随之"
        "变成 NaN；之后 NaN 又被换成一个数，这一列就什么也不剩了。"
        "请用 `np.nanmean` 和 `np.nanstd`，或 `torch.nanmean`。",
    ),
    why=T(
        en="NaN stands for a number that is not known, and a sum with it is not known either: `mean`, `std`, `min` and "
        "`max` return NaN. `nan_to_num` and `where(isnan(x), 0, x)` do not tell a missing entry from a whole column "
        "that became NaN on the way. The loss stays finite and the network trains on the other columns.",
        zh="NaN 表示不知道的数，含有它的总和也就不知道：`mean`、`std`、`min` 和 `max` 都返回 NaN。`nan_to_num` 和 "
        "`where(isnan(x), 0, x)` 分不清一个缺失的项和途中变成 NaN 的整列。损失仍是有限的数，网络只用其余的列训练。",
    ),
    advice=T(
        en="leave missing entries out of the statistics on {line}: `torch.nanmean` (torch has no `nanstd`), or "
        "`np.nanmean` and `np.nanstd`.",
        zh="在{line}统计时略去缺失的项：`torch.nanmean`（torch 没有 `nanstd`），或 `np.nanmean` 和 `np.nanstd`。",
    ),
    bad="""import torch

torch.manual_seed(0)
table = torch.randn(12, 3)
table[4, 1] = float("nan")
mean = table.mean(0)  # PL813
x = torch.nan_to_num(table - mean)  # used
print(x[:3])
""",
    good="""import torch

torch.manual_seed(0)
table = torch.randn(12, 3)
table[4, 1] = float("nan")
mean = table.nanmean(0)
x = torch.nan_to_num(table - mean)
print(x[:3])
""",
    find=find,
    traps=(
        Trap(
            "torch.nan_to_num(table - mean)",
            "torch.nan_to_num(table - mean, nan=1.0)",
            T(en="Another number, in all rows again.", zh="换了一个数，仍然所有行都一样。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nanmean.html",),
)
