"""PL907: the row of an embedding that is for padding was filled with random numbers after it had been made zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, numbers
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.value_origins import argument, values, whole
from pitfall_lab.trace import Event, T

RANDOM = {"normal_", "uniform_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_"}


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line that filled the padding's row of an embedding which then looked padding up."""
    reported = set()
    for event in story.calls("embedding"):
        padding = whole(argument(event, "padding_idx", 2))
        if padding is None or padding < 0 or len(event.operands) < 2 or event.error is not None:
            continue
        if padding not in values(story, event.operands[0].label, event.step):
            continue
        fill = _fill(story, event)
        place = story.span(fill.step) if fill is not None else None
        row = _row(story, event, padding)
        if fill is not None and place not in reported and any(row):
            reported.add(place)
            yield _finding(story, fill, event, padding, row)


def _fill(story: Story, event: Event) -> Event | None:
    """The last of the calls before ``event`` that filled the whole table with random numbers; None if there is none."""
    table = event.operands[1].label
    fills = [use for use in story.uses(table) if use.step < event.step and use.name in RANDOM and use.writes]
    return fills[-1] if fills else None


def _row(story: Story, event: Event, padding: int) -> list[float]:
    """Return the known values of the table's row for padding."""
    table = Elements(story, event.operands[1].label, event.step)
    width = table.shape[1] if len(table.shape) > 1 else 0
    return [value for column in range(width) if (value := table.at((padding, column))) is not None]


def _finding(story: Story, fill: Event, event: Event, padding: int, row: list[float]) -> Finding:
    span = story.span(fill.step)
    table = called(story, event.operands[1].label, None, event.step)
    here, there = at_line(story, span), at_line(story, story.span(event.step))
    return RULE.finding(
        span, fill.step,
        T(
            en=f"{capital(here.en)} fills all of {table.en} with random numbers, row {padding} for padding too, and {there.en} looks it "
            "up.",
            zh=f"{here.zh}用随机数填满了 {table.zh}，包括用于填充的第 {padding} 行，而{there.zh}会查到它。",
        ),
        T(
            en=f"The row was 0 when the layer was made with `padding_idx={padding}`; now it is {numbers(row)}. No gradient ever reaches "
            "this row, "
            "so these numbers stay: padding counts as a word of its own, the same in every sum and mean.",
            zh=f"用 `padding_idx={padding}` 创建该层时，这一行是 0；现在是 {numbers(row)}。梯度从不到达这一行，所以这些数一直留着：填充"
            "被当作一个"
            "词，出现在每个总和与平均里。",
        ),
        related=[
            story.related("changed", fill.step, T(en="the padding's row is overwritten here", zh="填充所在的行在这里被覆盖")),
            story.related("used", event.step, T(en="padding is looked up here", zh="在这里查到填充")),
        ],
        fixes=_fixes(story, fill, padding),
        facts=[Fact("row", padding, story.by(fill.step))],
    )  # fmt: skip


def _fixes(story: Story, fill: Event, padding: int) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(fill.step)) if program.tree is not None else None
    statement = program.statement(node) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or statement is None or not program.stands_alone(statement):
        return ()
    given = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(given, ast.Attribute) or given.attr != "weight":
        return ()
    owner, indent = program.segment(given.value), program.indent(statement)
    zero = [f"with {torch_name(program) or 'torch'}.no_grad():", f"    {owner}.weight[{padding}] = 0"]
    if any(other.span == fill.span and other.results != fill.results for other in story.calls(fill.name)):  # one line for several tables
        zero = [f"if {owner}.padding_idx is not None:", f"    {zero[0]}", f"        {owner}.weight[{owner}.padding_idx] = 0"]
    title = T(en="Make the padding's row 0 again", zh="让填充所在的行重新为 0")
    edits = merge(program.insert_after(statement, f"\n{indent}".join(zero)))
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL907",
    name="padding-row-overwritten",
    severity="warning",
    title=T(en="The embedding's row for padding was overwritten by an initialization", zh="嵌入中用于填充的行被初始化覆盖"),
    what=T(
        en="A program says with `padding_idx` which word of a table of word vectors is padding, so that its vector is 0 and stays 0, and "
        "then fills the whole table with random numbers. Padding now counts like a word, and that vector never learns. Set the row to 0 "
        "after the initialization.",
        zh="程序告诉词向量表哪个词是填充，让它的向量是 0 并一直是 0，随后又用随机数填满整张表。于是填充像一个词那样起作用，而且这个向量"
        "永远学不到东"
        "西。请在初始化之后把这一行设为 0。",
    ),
    why=T(
        en="`nn.Embedding(…, padding_idx=0)` does two things: it writes zeros into row 0 once, when it is made, and it gives that row "
        "no gradient. "
        "`nn.init.normal_(layer.weight)` writes every row, and the second thing then keeps the random numbers where they are.",
        zh="`nn.Embedding(…, padding_idx=0)` 做两件事：创建时把第 0 行写成零（只此一次），并且不给这一行梯"
        "度。`nn.init.normal_(layer.weight)` 会写所"
        "有的行，而第二件事又让这些随机数一直留在那里。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(4, 2, padding_idx=0)
nn.init.normal_(words.weight)  # PL907 changed
sentences = torch.tensor([[1, 2, 3], [2, 0, 0]])
out = words(sentences).sum(dim=1)  # used
out.square().sum().backward()
print(words.weight[0], out)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(4, 2, padding_idx=0)
nn.init.normal_(words.weight)
with torch.no_grad():
    words.weight[0] = 0
sentences = torch.tensor([[1, 2, 3], [2, 0, 0]])
out = words(sentences).sum(dim=1)
out.square().sum().backward()
print(words.weight[0], out)
""",
    find=find,
    traps=(
        Trap(
            "words(sentences).sum(dim=1)",
            "words(sentences).mean(dim=1)",
            T(en="The padding's vector takes part in a mean as it does in a sum.", zh="填充的向量在平均里和在总和里一样起作用。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
)
