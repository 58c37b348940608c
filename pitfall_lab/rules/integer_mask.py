"""PL807: an integer mask was used where a bool mask was intended: ``~`` inverted its bits, or an index selected the
rows 0 and 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

WHOLE = {"int8", "int16", "int32", "int64"}
TURNED = {"__invert__", "bitwise_not"}
OF_BITS = spellings("bitwise_and", in_place=True)
"""Calls that can keep the lowest bit of the inverted numbers, which is right."""
POSITIONS = {"argmax", "argmin", "argsort", "sort", "topk", "max", "min", "nonzero", "randint", "randperm",
             "multinomial", "searchsorted", "bucketize", "unique", "arange"}  # fmt: skip
"""Calls whose integers are positions in a tensor, even if only 0 and 1 occur."""
FEW = 3
"""The largest number of rows that a program may select by 0 and 1 on purpose."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that uses an integer tensor, whose known values are 0 and 1, as a mask: ``~``
    inverts its bits, or an index by it selects the rows 0 and 1.

    Nothing if every use of the inverted numbers is a bitwise and. An index must have one number for each row, for more
    than ``FEW`` rows, and not be positions that a call such as ``argmax`` returned.
    """
    reported = set()
    for event in story.calls(*TURNED, "__getitem__"):
        place = story.span(event.step)
        mask = _mask(story, event) if place not in reported and event.error is None and event.results else None
        if mask is not None:
            reported.add(place)
            yield _finding(story, event, mask)


def _mask(story: Story, event: Event) -> str | None:
    """Return the label of the operand that is an integer mask, with the values 0 and 1; None if there is none.

    As an index it must have one dimension with as many elements as the table has rows, more than ``FEW``, and not be
    uint8, which torch takes as a mask. For ``~`` it may be uint8, and have any shape with at least one dimension.
    """
    labels = [o.label for o in event.operands]
    label = labels[0] if event.name in TURNED else labels[1] if len(labels) > 1 else None
    record = story.tensor(label, event.step) or {}
    dtypes = WHOLE | {"uint8"} if event.name in TURNED else WHOLE
    if (
        label is None
        or str(record.get("dtype")).removeprefix("torch.") not in dtypes
        or set(values(story, label, event.step)) != {0.0, 1.0}
    ):
        return None
    if event.name in TURNED:
        uses = story.uses(event.results[0])
        return label if record.get("shape") and not (uses and all(use.name in OF_BITS for use in uses)) else None
    made = story.event(record.get("born"))
    if made is not None and made.name in POSITIONS:
        return None
    rows, shape = story.shape(labels[0], event.step) or (0,), tuple(record.get("shape") or ())
    return label if len(shape) == 1 and shape[0] == rows[0] and rows[0] > FEW else None


def _finding(story: Story, event: Event, mask: str) -> Finding:
    span = story.span(event.step)
    here, name = at_line(story, span), expression(story, mask, event.step)
    record = story.tensor(mask, event.step) or {}
    dtype = str(record.get("dtype")).removeprefix("torch.")
    turned, (zero, one) = event.name in TURNED, (255, 254) if dtype == "uint8" else (-1, -2)
    what = (
        T(
            en=f"turns every bit of {name.en}, whole numbers 0 and 1: they become {zero} and "
            f"{one}, and none becomes 0.",
            zh=f"把 {name.zh}（整数 0 和 1）的每一位取反：它们变成 {zero} 和 {one}，没有一个变成 0。",
        )
        if turned
        else T(
            en=f"takes {name.en} for row numbers and not for a mask: the result is rows 0 and 1, again and again.",
            zh=f"把 {name.zh} 当作行号而不是遮罩：结果只是反复取第 0 行和第 1 行。",
        )
    )
    inverted = "255 - n" if dtype == "uint8" else "-n - 1"
    why = (
        T(
            en=f"`~` inverts a mask only for `torch.bool`; for this dtype `~n` is `{inverted}`.",
            zh=f"只有对 `torch.bool`，`~` 才把遮罩取反；对这种 dtype，`~n` 是 `{inverted}`。",
        )
        if turned
        else T(
            en="An index of `torch.bool` selects rows where it is true; one of this dtype is a list of row numbers.",
            zh="`torch.bool` 的索引挑选为真的行；这种 dtype 的索引则是一串行号。",
        )
    )
    return RULE.finding(
        span,
        event.step,
        T(en=f"{capital(here.en)} {what.en}", zh=f"{here.zh}{what.zh}"),
        T(
            en=f"{capital(name.en)} has dtype {dtype}. {why.en}",
            zh=f"{name.zh} 的 dtype 是 {dtype}。{why.zh}",
        ),
        related=[
            story.related("made", record.get("born"), T(en="the mask is made here", zh="遮罩在这里产生")),
            story.related("used", event.step, T(en="used as if its dtype were bool", zh="在这里被当作 bool 使用")),
        ],
        fixes=_fixes(story, event, turned=turned),
        facts=[Fact("dtype", dtype, story.by(event.step))],
    )


def _fixes(story: Story, event: Event, *, turned: bool) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree is not None else None
    inner: ast.expr | None = None
    if turned and isinstance(node, ast.UnaryOp):
        inner = node.operand
    elif not turned and isinstance(node, ast.Subscript):
        inner = node.slice
    if inner is None:
        return ()
    new = f"{in_parentheses(program, inner)}.bool()"
    title = T(en=f"Use a bool mask: `{new}`", zh=f"使用 bool 遮罩：`{new}`")
    return unique(program.text, [Fix(title, program.replace((inner, new)), meaning="shape")])


RULE = Rule(
    code="PL807",
    name="integer-mask",
    severity="warning",
    title=T(en="Integers 0 and 1 were used as a bool mask", zh="整数 0 和 1 被当作 bool 遮罩使用"),
    what=T(
        en="A program marks elements with the integers 0 and 1 and then uses the marks as if they were false and "
        "true. As an index they take the rows 0 and 1 over and over, and `~` turns them into -1 and -2 (for unsigned "
        "ones, 255 and 254). Make a bool mask of them with `.bool()`.",
        zh="程序用整数 0 和 1 标记元素，然后把标记当作假和真来使用。作为索引，它们只会反复取第 0 行和第 1 行；而 `~` "
        "把它们变成 -1 和 -2（无符号整数则变成 255 和 254）。请用 `.bool()` 把它们变成 bool 遮罩。",
    ),
    why=T(
        en="Torch decides by dtype alone whether an index is a mask or a list of row numbers. `x[m]` with "
        "`torch.bool` keeps the rows where `m` is true; with `torch.int64` it takes row `m[0]`, then row `m[1]`, and "
        "so on. (`torch.uint8` is still taken for a mask, with a warning.) `~` inverts bits: `~True` is `False`, but "
        "`~n` is `-n - 1` in signed integers and `255 - n` in `torch.uint8`. None of this raises, and indexing with "
        "row numbers returns one row for each of them.",
        zh="torch 只凭 dtype 区分遮罩和行号。`x[m]` 在 `m` 是 `torch.bool` 时保留为真的行；是 `torch.int64` 时依次取第 "
        "`m[0]` 行、第 `m[1]` 行……。（`torch.uint8` 仍被当作遮罩，并给出警告。）`~` 按位取反：`~True` 是 `False`，而 "
        "`~n` 对有符号整数是 `-n - 1`，对 `torch.uint8` 是 `255 - n`。这些都不报错；用行号索引时，每个行号各得到一行。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
labelled = torch.tensor([0, 1, 1, 0])  # made
chosen = x[labelled]  # PL807 used
chosen.sum().backward()
print(chosen, x.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
labelled = torch.tensor([0, 1, 1, 0])
chosen = x[labelled.bool()]
chosen.sum().backward()
print(chosen, x.grad)
""",
    find=find,
    traps=(
        Trap(
            "x[labelled]",
            "x[labelled.int()]",
            T(en="Another type of whole numbers is still one of row numbers.", zh="换一种整数类型，仍然是行号。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_view.html",),
)
