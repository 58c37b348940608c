"""PL907: the row of an embedding that is for padding was filled with random numbers after it had been made zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat, numbers
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.value_origins import argument, origin, values, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FURTHER = 60
LEFT_OUT = spellings("masked_fill", in_place=True) | {"_pack_padded_sequence", "masked_select", "pack_padded_sequence"}
"""Calls that leave positions out."""
SCALES = spellings("div", "mul")
RANDOM = {
    "normal_",
    "uniform_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
}
"""Initializations with random numbers."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that filled a whole embedding table with random numbers, the row of
    ``padding_idx`` included, if padding was then looked up.

    Not if the row is zero again, is written afterwards, or if the positions of padding are left out later.
    """
    reported = set()
    for event in story.calls("embedding"):
        padding = whole(argument(event, "padding_idx", 2))
        if padding is None or padding < 0 or len(event.operands) < 2 or event.error is not None:
            continue
        if padding not in values(story, event.operands[0].label, event.step):
            continue
        fill = _fill(story, event)
        place = story.span(fill.step) if fill is not None else None
        if fill is None or place in reported:
            continue
        row = _row(story, event, padding)
        if (any(row) or not row) and _stays(story, fill, event, padding) and not _is_left_out(story, event, padding):
            reported.add(place)
            yield _finding(story, fill, event, padding, row)


def _fill(story: Story, event: Event) -> Event | None:
    """The last of the calls before ``event`` that filled the whole table with random numbers; None if there is none."""
    table = story.tensor(event.operands[1].label, event.step) or {}
    whole_table = (
        label for label, record in story.tensors_on(table.get("storage")) if record.get("shape") == table.get("shape")
    )
    fills = [
        use
        for label in whole_table
        for use in story.uses(label)
        if use.step < event.step and use.name in RANDOM and use.writes
    ]
    return max(fills, key=lambda use: use.step, default=None)


def _places(story: Story, event: Event, padding: int) -> set[Index]:
    """The known indices at which the tensor that was looked up holds the padding number."""
    return {index for index, value in Elements(story, event.operands[0].label, event.step).known() if value == padding}


def _row(story: Story, event: Event, padding: int) -> list[float]:
    """Return the known values of the table's row for padding, or of what was looked up there
    where the table is too large.
    """
    table = Elements(story, event.operands[1].label, event.step)
    width = table.shape[1] if len(table.shape) > 1 else 0
    row = [value for column in range(width) if (value := table.at((padding, column))) is not None]
    if row or not event.results:
        return row
    places = _places(story, event, padding)
    return [value for index, value in Elements(story, event.results[0], event.step).known() if index[:-1] in places]


def _stays(story: Story, fill: Event, event: Event, padding: int) -> bool:
    """Whether nothing but the steps of an optimizer wrote into the table after the fill, or the row's first number is
    known to be the one that the fill gave it.
    """
    table = event.operands[1].label
    storage = str((story.tensor(table, event.step) or {}).get("storage"))
    first, last = (Elements(story, table, step).at((padding, 0)) for step in (fill.step, event.step))
    later = [step for step in story.writes(storage, fill.step, event.step) if story.said(step) != "step"]
    return not later or (first is not None and first == last)


def _is_left_out(story: Story, event: Event, padding: int) -> bool:
    """Whether what was looked up for padding has no effect: its gradients are 0, or the program masks what was looked
    up.

    Without known gradients, it counts as masked if a call of ``LEFT_OUT`` uses it, or if a call combines it with a bool
    tensor or with something computed from the tokens; a factor or divisor must have a number for each position.
    """
    node = story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn")) or {}
    width = (story.shape(event.results[0], event.step) or (1,))[-1]
    places = _places(story, event, padding)
    shape = story.shape(event.operands[0].label, event.step) or ()
    flat_places = {sum(i * prod(shape[axis + 1 :]) for axis, i in enumerate(index)) for index in places}
    slopes = [value for place, value in flat(node.get("gradient")) if place // width in flat_places]
    if slopes:
        return not any(slopes)
    looked_up = list(_computed(story, event.results[0]))
    from_tokens = set(_computed(story, event.operands[0].label)) - set(looked_up)
    return any(
        use.name in LEFT_OUT
        or any(
            (o.label in from_tokens or _is_mask(story, o.label, use.step))
            and (use.name not in SCALES or prod(story.shape(o.label, use.step) or ()) >= prod(shape))
            for o in use.operands
        )
        for label in looked_up for use in story.uses(label)
    )  # fmt: skip


def _computed(story: Story, label: str | None) -> Iterator[str]:
    """Yield a tensor, and the tensors that were computed from it without looking them up in a table, nearest first."""
    pending, seen = [label], {label}
    while pending and len(seen) < FURTHER:
        here = pending.pop(0)
        if here is not None:
            yield here
        fresh = [
            result
            for use in story.uses(here)
            if use.name != "embedding"
            for result in use.results
            if result not in seen
        ]
        seen.update(fresh)
        pending += fresh


def _is_mask(story: Story, label: str | None, step: int) -> bool:
    """Whether a tensor is bool, or its values come from a bool tensor."""
    record = story.tensor(label, step) or {}
    made = origin(story, label, step) if label is not None and not record.get("requires_grad") else None
    return any(
        (story.tensor(each, step) or {}).get("dtype") == "bool"
        for each in (label, *(made.results[:1] if made is not None else ()))
    )


def _finding(story: Story, fill: Event, event: Event, padding: int, row: list[float]) -> Finding:
    span = story.span(fill.step)
    table = called(story, event.operands[1].label, None, event.step)
    here, there = at_line(story, span), at_line(story, story.span(event.step))
    now = T(en=f"; now it is {numbers(row)}", zh=f"；现在是 {numbers(row)}") if row else T(en="", zh="")
    return RULE.finding(
        span,
        fill.step,
        T(
            en=f"{capital(here.en)} fills all of {table.en} with random numbers, row {padding} for padding too, and "
            f"{there.en} looks it up.",
            zh=f"{here.zh}用随机数填满了 {table.zh}，包括用于填充的第 {padding} 行，而{there.zh}会查到它。",
        ),
        T(
            en=f"The row was 0 when the layer was made with `padding_idx={padding}`{now.en}. No gradient ever reaches "
            "this row, so these numbers stay: padding counts as a word of its own, the same in every sum and mean.",
            zh=f"用 `padding_idx={padding}` 创建该层时，这一行是 0{now.zh}。梯度从不到达这一行，所以这些数一直留着：填"
            "充被当作一个词，出现在每个总和与平均里。",
        ),
        related=[
            story.related(
                "changed", fill.step, T(en="the padding's row is overwritten here", zh="填充所在的行在这里被覆盖")
            ),
            story.related("used", event.step, T(en="padding is looked up here", zh="在这里查到填充")),
        ],
        fixes=_fixes(story, fill, event, padding),
        facts=[Fact("row", padding, story.by(fill.step)), *_holds(table, padding, row)],
    )


def _holds(table: T, padding: int, row: list[float]) -> list[Fact]:
    """The fact that compares the padding's row with zeros; empty if the row is not known."""
    head = T(en=f"row of {table.en}", zh=f"{table.zh} 的行")
    zeros = numbers([0.0] * len(row))
    return pairs(head, T(en="holds", zh="内容"), [(padding, numbers(row), zeros)] if row else [])


def _fixes(story: Story, fill: Event, event: Event, padding: int) -> tuple[Fix, ...]:
    """At most one fix: it writes zeros after the line, or after the loop over parameters, that fills the table.

    Empty if the line does more than to fill, or if the table is neither ``….weight`` nor the name of such a loop.
    """
    program, torch = story.program, torch_name(story.program) or "torch"
    node = program.at(story.span(fill.step)) if program.tree is not None else None
    statement = program.statement(node) if isinstance(node, ast.Call) else None
    if not isinstance(node, ast.Call) or statement is None or not program.stands_alone(statement):
        return ()
    given = node.args[0] if node.args and not _is_of_tensor(node) else None
    given = given if given is not None else node.func.value if isinstance(node.func, ast.Attribute) else None
    given = given.value if isinstance(given, ast.Attribute) and given.attr == "data" else given
    if isinstance(given, ast.Attribute) and given.attr == "weight":
        owner = program.segment(given.value)
        several = any(other.span == fill.span and other.results != fill.results for other in story.calls(fill.name))
    else:  # a loop over parameters: write after it, by the name that the layer has where it is called
        layer = program.at(story.span(event.step))
        loops = [each for each in program.ancestors(statement) if isinstance(each, ast.For)]
        if not isinstance(layer, ast.Call) or not loops or not isinstance(given, ast.Name):
            return ()
        owner, several, statement = program.segment(layer.func), False, loops[0]
    indent = program.indent(statement)
    zero = [f"with {torch}.no_grad():", f"    {owner}.weight[{padding}] = 0"]
    if several:  # one line for several tables
        zero = [
            f"if {owner}.padding_idx is not None:",
            f"    {zero[0]}",
            f"        {owner}.weight[{owner}.padding_idx] = 0",
        ]
    title = T(en="Make the padding's row 0 again", zh="让填充所在的行重新为 0")
    edits = merge(program.insert_after(statement, f"\n{indent}".join(zero)))
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


def _is_of_tensor(call: ast.Call) -> bool:
    """Whether a call in the source is a method of a weight, ``layer.weight.normal_(0, 1)``, and no
    function of ``torch.nn.init``.
    """
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Attribute) and owner.attr in ("weight", "data")


RULE = Rule(
    code="PL907",
    name="padding-row-overwritten",
    severity="warning",
    title=T(
        en="The embedding's row for padding was overwritten by an initialization", zh="嵌入中用于填充的行被初始化覆盖"
    ),
    what=T(
        en="A program says with `padding_idx` which word of a table of word vectors is padding, so that its vector is "
        "0 and stays 0, and then fills the whole table with random numbers. Padding now counts like a word, and that "
        "vector never learns. Set the row to 0 after the initialization.",
        zh="程序告诉词向量表哪个词是填充，让它的向量是 0 并一直是 0，随后又用随机数填满整张表。于是填充像一个词那样起"
        "作用，而且这个向量永远学不到东西。请在初始化之后把这一行设为 0。",
    ),
    why=T(
        en="`nn.Embedding(…, padding_idx=0)` does two things: it writes zeros into row 0 once, when it is made, and "
        "it gives that row no gradient. `nn.init.normal_(layer.weight)` writes every row, and the second thing then "
        "keeps the random numbers where they are.",
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
            T(
                en="The padding's vector takes part in a mean as it does in a sum.",
                zh="填充的向量在平均里和在总和里一样起作用。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
)
