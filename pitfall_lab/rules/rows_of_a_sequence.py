"""PL447: a sequence was reshaped into a table row by row, and the next row is taken for the next step, although it is
far away in the sequence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, T

LOSSES = ("cross_entropy", "nll_loss")
SHAPING = {"view", "reshape", "unflatten"}
"""Calls that cut a sequence into rows."""
FLATTENING = {"view", "reshape", "flatten", "ravel", "contiguous"}
"""Calls that make one sequence of rows."""
LOOKUPS = {"embedding", "one_hot"}
TABLE = 2


@dataclass(frozen=True, slots=True)
class RowsOfASequence:
    """``made`` is the call (``Event``) that reshaped the sequence labelled ``source`` into rows of ``width``; ``loss``
    is the call that compares what the call ``given`` looked up with the part of the table that begins one row later.
    """

    made: Event
    source: str
    width: int
    given: Event
    loss: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that reshapes a sequence into the rows of a table, if the target of a loss begins
    one row after the input.
    """
    reported = set()
    for event in story.calls(*LOSSES):
        found = _cut(story, event) if event.error is None and len(event.operands) > 1 else None
        if found is not None and (place := story.span(found.made.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def _cut(story: Story, loss: Event) -> RowsOfASequence | None:
    target = story.tensor(loss.operands[1].label, loss.step) or {}
    table = _table(story, str(target.get("storage")))
    if table is None:
        return None
    made, source, width = table
    for label, record in story.tensors_on(str(target.get("storage"))):
        given = next(
            (use for use in story.uses(label) if use.name in LOOKUPS and made.step < use.step < loss.step), None
        )
        apart = (target.get("offset") or 0) - (record.get("offset") or 0)
        if given is not None and apart == width and _is_whole(record, width) and _is_newest(story, given, loss):
            return RowsOfASequence(made, source, width, given, loss)
    return None


def _table(story: Story, storage: str) -> tuple[Event, str, int] | None:
    """The call that made a table out of a one-dimensional sequence on this storage, the label of the sequence, and the
    number of columns; None if there is none.
    """
    for label, record in story.tensors_on(storage):
        made = story.event(record.get("born"))
        shape, stride = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
        if (
            made is None
            or made.name not in SHAPING
            or label not in made.results
            or len(shape) != TABLE
            or stride != (shape[1], 1)
        ):
            continue
        source = made.operands[0].label
        if (
            source is not None
            and min(shape) > 1
            and len(story.shape(source, made.step) or ()) == 1
            and not _was_a_table(story, source)
        ):
            return made, source, shape[1]
    return None


def _was_a_table(story: Story, label: str | None) -> bool:
    """Whether the sequence, or the tensor that it is a slice of, was flattened from a table, or joined from several
    sequences.
    """
    while label is not None:
        made = story.event((story.tensor(label) or {}).get("born"))
        if made is None or label not in made.results or not made.operands:
            return False
        if made.name in FLATTENING | {"stack", "cat"}:
            return True
        label = made.operands[0].label if made.name == "__getitem__" else None
    return False


def _is_whole(record: Record, width: int) -> bool:
    """Whether the slice consists of whole rows."""
    shape, stride = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    return (shape[-1:] == (width,) and stride == (width, 1)) or (
        len(shape) == 1 and stride == (1,) and shape[0] % width == 0
    )


def _is_newest(story: Story, given: Event, loss: Event) -> bool:
    """Whether no backward ran between the look-up and the loss."""
    return not any(given.step < backward.step < loss.step for backward in story.backwards())


def _finding(story: Story, found: RowsOfASequence) -> Finding:
    span = story.span(found.made.step)
    here, there = at_line(story, span), at_line(story, story.span(found.loss.step))
    name, width = called(story, found.source, None, found.made.step), found.width
    return RULE.finding(
        span,
        found.made.step,
        T(
            en=f"{capital(here.en)} cuts {name.en} into rows of {width}, and the target of {there.en} is one row "
            f"after the input: that is {width} places later in {name.en}, not the next one.",
            zh=f"{here.zh}把 {name.zh} 切成每行 {width} 个，而{there.zh}的目标比输入晚一行：在 {name.zh} 中那是往后 "
            f"{width} 个位置，而不是下一个。",
        ),
        T(
            en=f"A table is filled row by row, so what follows each other in {name.en} is side by side. Where "
            "rows are the steps of time and columns are examples, each column has to hold a stretch of the sequence: "
            f"cut it into {width} long rows first, and exchange the axes then.",
            zh=f"表是按行填的，所以在 {name.zh} 中相继的数排在同一行里。如果行是时间步、列是样本，每一列应当是序列中连"
            f"续的一段：先切成 {width} 个长行，再交换两个轴。",
        ),
        related=[
            story.related("made", found.made.step, T(en="the table is made here", zh="在这里做成表")),
            story.related("used", found.given.step, T(en="the input of the net", zh="网络的输入")),
            Related(
                "read",
                story.span(found.loss.step),
                found.loss.step,
                T(en="the target is one row later", zh="目标晚一行"),
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("width", width, story.by(found.made.step)),
            *pairs(
                T(en=f"input: index in {name.en}", zh=f"输入：{name.zh} 中的位置"),
                T(en="target: index", zh="目标的位置"),
                [(place, place + width, place + 1) for place in range(2 * width)],
                (story.shape(found.source, found.made.step) or (0,))[0] - width,
            ),
        ],
    )


def _fixes(story: Story, found: RowsOfASequence) -> tuple[Fix, ...]:
    """At most one fix: it reshapes the sequence into as many long rows as the table has columns, and exchanges the
    axes.

    Empty unless the line is a method ``view`` or ``reshape`` to two sizes.
    """
    program = story.program
    node = program.at(story.span(found.made.step)) if program.tree is not None else None
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or call_name(node) not in ("view", "reshape")
    ):
        return ()
    sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
    if len(sizes) != TABLE:
        return ()
    rows, columns = (program.segment(each) for each in sizes)
    new = f"{operand(program, node.func.value)}.{call_name(node)}({columns}, {rows}).t().contiguous()"
    title = T(en=f"Let each column be a stretch of the sequence: `{new}`", zh=f"让每一列是序列中连续的一段：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL447",
    name="rows-of-a-sequence",
    severity="warning",
    title=T(en="The next row of a table is taken for the next step of a sequence", zh="把表的下一行当成了序列的下一步"),
    what=T(
        en="A text of many tokens is cut into columns that are trained side by side: `tokens.view(-1, 8)`. The target "
        "is one row further down. But a table is filled row by row, so the row below is 8 tokens later in the text, "
        "and the model learns to predict that one. Write `tokens.view(8, -1).t()`.",
        zh="一段很长的词元序列被切成并排训练的几列：`tokens.view(-1, 8)`，目标是往下一行。但表是按行填的，下面一行在文"
        "本中要晚 8 个词元，模型学到的是预测那一个。请写 `tokens.view(8, -1).t()`。",
    ),
    why=T(
        en="`view` and `reshape` keep the order of the numbers in memory and let the last axis run fastest. "
        "To get columns that hold consecutive tokens, the sequence has to be cut into rows that hold them, "
        "and the axes exchanged: `t()` changes which axis runs fastest, a `view` never does. Shapes and "
        "losses look right either way.",
        zh="`view` 和 `reshape` 保持数在内存中的次序，最后一个轴变化最快。要得到由相继词元组成的列，应当先把序列切成由"
        "它们组成的行，再交换两个轴：`t()` 会改变哪个轴变化最快，`view` 从不改变。两种写法的形状和损失看上去都对。",
    ),
    advice=T(
        en="cut the sequence into long rows on {made} and exchange the axes: `.view(columns, -1).t()`.",
        zh="在{made}先把序列切成长行，再交换两个轴：`.view(columns, -1).t()`。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
tokens = torch.arange(60) % 10
table = tokens.view(-1, 4)  # PL447 made
embed, out = nn.Embedding(10, 5), nn.Linear(5, 10)
opt = torch.optim.SGD([*embed.parameters(), *out.parameters()], lr=0.5)
for start in range(0, 12, 6):
    inputs, targets = table[start : start + 6], table[start + 1 : start + 7]
    scores = out(embed(inputs))  # used
    loss = nn.functional.cross_entropy(scores.view(-1, 10), targets.reshape(-1))  # read
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
tokens = torch.arange(60) % 10
table = tokens.view(4, -1).t().contiguous()
embed, out = nn.Embedding(10, 5), nn.Linear(5, 10)
opt = torch.optim.SGD([*embed.parameters(), *out.parameters()], lr=0.5)
for start in range(0, 12, 6):
    inputs, targets = table[start : start + 6], table[start + 1 : start + 7]
    scores = out(embed(inputs))
    loss = nn.functional.cross_entropy(scores.view(-1, 10), targets.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "tokens.view(-1, 4)",
            "tokens.reshape(15, 4).contiguous()",
            T(en="Other words for the same table: it is filled row by row.", zh="同一张表的另一种写法：仍然按行填。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.view.html",),
)
