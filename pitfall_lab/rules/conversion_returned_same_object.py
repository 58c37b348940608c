"""PL705: a conversion that had nothing to convert returned the tensor itself, and a write through one variable changed
the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, written_root
from pitfall_lab.rules.kit.wording import at_line, capital, statement_text
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

CONVERTING = (
    spellings("as_tensor")
    | {"bfloat16", "bool", "contiguous", "cpu", "double", "dropout", "float", "half", "int", "long", "positive", "to",
       "type", "type_as"}
)  # fmt: skip
"""Calls that return their operand itself if there is nothing to do."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each conversion (``float()``, ``to``, ``contiguous``, …) assigned to a variable that
    returned its own argument, if the tensor is then written through one of its two variables in the same function and
    both variables are read later.

    Only in programs that finished.
    """
    if story.trace.outcome.kind != "finished" or story.program.tree is None:
        return
    reported = set()
    for event in story.calls(*CONVERTING):
        span = story.span(event.step)
        is_same = bool(event.results and event.operands) and event.results[0] == event.operands[0].label
        if event.error is None and is_same and span not in reported:
            found = _written(story, event)
            if found is not None:
                reported.add(span)
                yield _finding(story, event, *found)


def _written(story: Story, event: Event) -> tuple[tuple[str, str, str], int] | None:
    """Return a tuple of the result's name, the source's name and the one of the two that is written, and the step of
    the write; None if the program does not read both names after the write.

    None also if the conversion is not assigned to a variable, or if the write is in another function or after a new
    assignment of one of the names.
    """
    program, label = story.program, event.results[0]
    statement = program.statement_at(story.span(event.step))
    if not isinstance(statement, ast.Assign) or not is_name(statement.targets[0]):
        return None
    if statement.value is not program.at(story.span(event.step)):
        return None
    source = _source(statement.value)
    if source is None or not is_name(source):
        return None
    new, old = program.segment(statement.targets[0]), program.segment(source)
    storage = (story.tensor(label, event.step) or {}).get("storage")
    for step in story.writes(str(storage), event.step, len(story.events)) if new != old else ():
        written = program.statement_at(story.span(step))
        target = written_root(written) if written is not None else None
        if target is None or written is None or program.segment(target) not in (new, old):
            continue
        if program.function(written) is not program.function(statement):
            continue
        if _assigned_between(story, statement, written, new, old):
            return None
        later = [use.step for use in story.uses(label) if use.step > step]
        if later and all(_read_after(story, written, name) for name in (new, old)):
            return (new, old, program.segment(target)), step
    return None


def _source(node: ast.expr) -> ast.expr | None:
    """Return the expression ``x`` of ``x.float()``, ``x.to("cpu").contiguous()`` or ``torch.as_tensor(x)``; None if
    ``node`` is no call or has no argument.
    """
    if not isinstance(node, ast.Call):
        return None
    if call_name(node) in spellings("as_tensor") | {"dropout", "positive"}:
        return node.args[0] if node.args else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and call_name(node) in CONVERTING:
        node = node.func.value
    return node


def _assigned_between(story: Story, made: ast.stmt, written: ast.stmt, *names: str) -> bool:
    """Whether an assignment on a line between the two statements assigns one of the names."""
    program = story.program
    return any(
        isinstance(n, ast.Assign)
        and made.lineno < n.lineno < written.lineno
        and any(program.segment(t) in names for t in n.targets)
        for n in program.nodes
    )


def _read_after(story: Story, written: ast.stmt, name: str) -> bool:
    """Whether ``name`` is read on a later line of the same function before it is bound to another value."""
    program, here = story.program, story.program.function(written)
    nodes = [
        n
        for n in program.nodes
        if isinstance(n, ast.Name | ast.Attribute) and n.lineno > (written.end_lineno or written.lineno)
    ]
    mine = [n for n in nodes if program.segment(n) == name and program.function(n) is here]
    first = min(mine, key=lambda n: (n.lineno, isinstance(n.ctx, ast.Store), n.col_offset), default=None)
    return first is not None and isinstance(first.ctx, ast.Load)


def _finding(story: Story, event: Event, names: tuple[str, str, str], written: int) -> Finding:
    new, old, through = names
    span, program = story.span(event.step), story.program
    here, there = at_line(story, span), at_line(story, story.span(written))
    node = program.at(span)
    code, write = statement_text(story, span), statement_text(story, story.span(written))
    fix = appended(program, (node, ".clone()")) if isinstance(node, ast.expr) else None
    record, other = story.tensor(event.results[0], event.step) or {}, old if through == new else new
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} has nothing to convert and gives back `{old}` itself, so {there.en} "
            f"changes `{other}` too.",
            zh=f"{here.zh}没有什么可转换的，给回的就是 `{old}` 本身，所以{there.zh}把 `{other}` 也改变了。",
        ),
        T(
            en=f"`{old}` is already of type {record.get('dtype')} and in place, so `{code}` returns the same object, "
            f"and `{new}` and `{old}` are two names of one tensor. `{write}` writes into it. With another type the "
            "same line would have copied.",
            zh=f"`{old}` 本来就是 {record.get('dtype')} 类型，位置也合适，所以 `{code}` 返回同一个对象，`{new}` 和 "
            f"`{old}` 是同一个张量的两个名字。`{write}` 写入的就是它。如果类型不同，同一行代码就会复制。",
        ),
        related=[
            story.related(
                "alias",
                event.step,
                T(en=f"`{new}` becomes another name of `{old}`", zh=f"`{new}` 成为 `{old}` 的另一个名字"),
            ),
            story.related("changed", written, T(en="the one tensor is written here", zh="这同一个张量在这里被写入")),
        ],
        fixes=unique(program.text, [fix and Fix(fix.title, fix.edits, meaning="later")]),
        facts=[
            Fact("tensor", event.results[0], story.by(event.step)),
            Fact("dtype", record.get("dtype"), story.by(event.step)),
        ],
    )


RULE = Rule(
    code="PL705",
    name="conversion-returned-same-object",
    severity="warning",
    title=T(
        en="A conversion gave back the same tensor, which was then written", zh="转换返回了同一个张量，随后又被写入"
    ),
    what=T(
        en="A program made a version of a tensor with `x.float()` or `x.to(device)` and changed that version. The "
        "tensor was of that type already, so there was no second version: the original changed. Write "
        "`x.float().clone()` where a copy is meant.",
        zh="程序用 `x.float()` 或 `x.to(device)` 得到张量的另一个版本，并修改那个版本。但张量本来就是那种类型，所以根"
        "本没有第二个版本：改变的是原来的张量。需要副本的地方请写 `x.float().clone()`。",
    ),
    why=T(
        en="`to`, `float`, `double`, `cpu`, `contiguous` and `as_tensor` promise a tensor of the wanted type, place "
        "or layout, and not a new one. If nothing has to be done they return their argument, the very object; `y is "
        "x` is then true. Otherwise they copy. So the same function shares memory with a `float32` argument and does "
        "not with a `float64` one, or shares it on the CPU and not on a GPU. `clone()` always copies, and `to(…, "
        "copy=True)` does both.",
        zh="`to`、`float`、`double`、`cpu`、`contiguous` 和 `as_tensor` 承诺给出所要的类型、位置或布局的张量，而不是新"
        "的张量。如果什么也不用做，它们就返回参数本身，即同一个对象；这时 `y is x` 为真。否则它们会复制。所以同一个函"
        "数，参数是 `float32` 时共用内存，是 `float64` 时不共用；或者在 CPU 上共用，在 GPU 上不共用。`clone()` 总是复"
        "制，`to(…, copy=True)` 则两件事都做。",
    ),
    advice=T(
        en="copy on {alias} where a copy is meant (`.clone()`), so that {changed} changes nothing else.",
        zh="如果{alias}本意是复制，请加 `.clone()`，这样{changed}不会改变别的张量。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 6.0])
w = torch.tensor(1.0, requires_grad=True)
centred = x.float()  # PL705 alias
centred -= centred.mean()  # changed
loss = (w * x).sum() + (w * centred).square().sum()
loss.backward()
print(x, w.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 6.0])
w = torch.tensor(1.0, requires_grad=True)
centred = x.float().clone()
centred -= centred.mean()
loss = (w * x).sum() + (w * centred).square().sum()
loss.backward()
print(x, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "centred = x.float()",
            "centred = x.contiguous()",
            T(
                en="`contiguous()` also copies only when it has to.",
                zh="`contiguous()` 同样只在必要时才复制。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.contiguous.html",
    ),
)
