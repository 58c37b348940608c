"""PL854: a covariance between the rows of a table whose rows are samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

CALLS = {"cov", "corrcoef"}
DIFFERENCES, QUOTIENTS = spellings("sub", in_place=True), spellings("div", in_place=True)
MANY = 3
"""Of a covariance, so many rows for each column, if nothing else shows what the rows are."""
FEW = 2
UPWARD = 4


@dataclass(frozen=True, slots=True)
class RowsCompared:
    """``event`` is the ``cov`` or ``corrcoef`` of the table ``label``, which has ``rows`` rows and ``columns`` columns.

    ``centred`` is the call (``Event``) that subtracted the mean of each column, None if there was none.
    """

    event: Event
    label: str
    rows: int
    columns: int
    centred: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes the covariance, or the correlations, of more rows than there are
    columns, where the mean of each column was subtracted before; of a covariance also where the rows are at least
    ``MANY`` times as many.
    """
    reported = set()
    for event in story.calls(*CALLS):
        place = story.span(event.step)
        found = _compared(story, event) if event.error is None and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _compared(story: Story, event: Event) -> RowsCompared | None:
    label = event.operands[0].label if event.operands else None
    shape = story.shape(label, event.step) or ()
    if label is None or len(shape) != FEW or shape[0] <= shape[1] or shape[1] < FEW:
        return None
    centred = _centred(story, label, event.step)
    if centred is None and (event.name != "cov" or shape[0] < MANY * shape[1]):
        return None
    return RowsCompared(event, label, shape[0], shape[1], centred)


def _centred(story: Story, label: str, step: int) -> Event | None:
    """The call that subtracted from each column of a table its mean over all rows, perhaps followed by a division; None
    if there is none.
    """
    for _ in range(UPWARD):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given:
            return None
        if made.name in DIFFERENCES and len(given) == FEW:
            mean = made_by(story, given[1], made.step)
            is_mean = mean is not None and mean.name == "mean" and mean.operands[0].label == given[0]
            along = whole(argument(mean, "dim", 1)) if mean is not None and is_mean else None
            return made if along in (0, -2) else None
        if made.name not in QUOTIENTS or given[0] == label:
            return None
        label, step = given[0], made.step
    return None


def _finding(story: Story, found: RowsCompared) -> Finding:
    event, rows, columns = found.event, found.rows, found.columns
    here, table = at_line(story, story.span(event.step)), expression(story, found.label, event.step)
    result = T(en="covariance", zh="协方差") if event.name == "cov" else T(en="correlation", zh="相关系数")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} computes the {result.en} of the {rows} rows of {table.en}, {rows}×{rows}, each "
            f"with {columns} observations; a table of {rows} samples has {columns} variables.",
            zh=f"{here.zh}计算 {table.zh} 的 {rows} 行之间的{result.zh}，结果为 {rows}×{rows}，每行只有 {columns} 个"
            f"观测；若各行是 {rows} 个样本，变量应为 {columns} 个。",
        ),
        T(
            en=f"`torch.{event.name}` takes each row for a variable and each column for an observation, while tables "
            "of data usually have one row for each sample. The result compares samples with each other, and its rank "
            f"is at most {columns - 1}. Transpose the table: the result is {columns}×{columns}.",
            zh=f"`torch.{event.name}` 把每一行当作一个变量，每一列当作一次观测，而数据表通常每个样本一行。结果比较的是"
            f"样本之间的关系，它的秩至多为 {columns - 1}。请把表转置：结果为 {columns}×{columns}。",
        ),
        related=[]
        if found.centred is None
        else [
            story.related(
                "made", found.centred.step, T(en="the mean of each column is taken away", zh="在这里减去各列的均值")
            )
        ],
        fixes=_fixes(story, event),
        facts=[Fact("rows", rows, story.by(event.step)), Fact("columns", columns, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """A fix that transposes the table in the call; empty if the call is not in the program's source."""
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) != event.name:
        return ()
    is_method = not node.args and isinstance(node.func, ast.Attribute)
    table = node.func.value if is_method and isinstance(node.func, ast.Attribute) else next(iter(node.args), None)
    if table is None:
        return ()
    new = f"{operand(program, table)}.T"
    title = T(en=f"Transpose: `{new}`", zh=f"转置：`{new}`")
    return unique(program.text, [Fix(title, program.replace((table, new)), meaning="later")])


RULE = Rule(
    code="PL854",
    name="samples-taken-for-variables",
    severity="warning",
    title=T(en="A covariance between samples instead of variables", zh="算成了样本之间、而不是变量之间的协方差"),
    what=T(
        en="A program gives `torch.cov` or `torch.corrcoef` a table with one row for each sample. Both take a row for "
        "a variable, so the result relates samples to samples. No error is raised, and where the result is averaged "
        "or inverted with `pinv`, its shape does not show. Transpose the table.",
        zh="程序把每个样本一行的表交给 `torch.cov` 或 `torch.corrcoef`。二者都把一行当作一个变量，于是结果是样本与样本"
        "之间的关系。不会报错；如果结果被取平均或用 `pinv` 求逆，连形状也看不出来。请把表转置。",
    ),
    why=T(
        en="The convention is that of NumPy's `cov`, whose option `rowvar` is true by default; torch has no such "
        "option. Almost all other code keeps samples in rows.",
        zh="这个约定来自 NumPy 的 `cov`，它的选项 `rowvar` 默认为真；torch 没有这个选项。其他代码几乎都把样本放在行"
        "里。",
    ),
    bad="""import torch

torch.manual_seed(0)
samples = torch.randn(100, 3) @ torch.randn(3, 3)
centred = samples - samples.mean(0)
covariance = torch.cov(centred)  # PL854
print("mean variance", covariance.diagonal().mean())
""",
    good="""import torch

torch.manual_seed(0)
samples = torch.randn(100, 3) @ torch.randn(3, 3)
centred = samples - samples.mean(0)
covariance = torch.cov(centred.T)
print("mean variance", covariance.diagonal().mean())
""",
    find=find,
    traps=(
        Trap(
            "torch.cov(centred)",
            "torch.cov(centred, correction=0)",
            T(
                en="The divisor is another one; rows are still the variables.",
                zh="除数变了；变量仍然是行。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.cov.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.corrcoef.html",
    ),
)
