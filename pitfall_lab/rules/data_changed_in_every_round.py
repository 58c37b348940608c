"""PL715: a line prepares data in place, and prepares the same data again in the next iteration: the changes pile up."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import OPERATORS, is_name, operand, written_root
from pitfall_lab.rules.kit.wording import at_line, called, capital, number, numbers
from pitfall_lab.rules.signals.modes import MEASURES
from pitfall_lab.trace import Drift, Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SHIFTS, SCALES = {"add_", "sub_"}, {"mul_", "div_"}
MASKED = {"__setitem__", "masked_fill_", "index_put_"}
"""Writes to some elements only."""
MATRIX = 2
DRAWN = {"randn", "rand", "randn_like", "rand_like", "normal", "randint", "randint_like"}
"""Calls that draw new numbers."""
SCALED = spellings("add", "clamp", "div", "mul") | spellings("sub", exchanged=True) | {"float", "to"}


@dataclass(frozen=True, slots=True)
class DataChangedInEveryRound:
    """One line changed the same elements of a storage in place twice, in different iterations, and a network used them
    in between.

    ``first`` and ``second`` are the two writes (``Event``), ``storage`` the label of the storage (``"S3"``), ``read``
    the call between them that used the elements. ``target`` is True if the elements were the target of a loss, False if
    a result that requires grad was computed from them.
    """

    first: Event
    second: Event
    storage: str
    read: Event
    target: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each storage of data of which one line changes the same elements in place twice with an
    optimizer step in between, if a call between the two computed a result that requires grad from the storage.

    The finding is about the first such line. If the line writes some elements only (by a mask), the data must also be
    the target of a loss. There is also one finding for each line that changes the stored examples of a data set, unless
    it only adds the same integer to all of them.
    """
    updates = [update.step for update in story.trace.optimizer_steps]
    reported: set[str] = set()
    lines: set[Span | None] = set()
    for (_, storage, *_), writes in _writes(story).items() if updates else ():
        first, second = writes[0], writes[-1]
        if storage not in reported and any(first.step < step < second.step for step in updates):
            following = next(w for w in writes[1:] if any(first.step < step < w.step for step in updates))
            found = _again(story, first, following, storage)
            if found is not None:
                reported.add(storage)
                lines.add(story.span(first.step))
                yield _finding(story, found)
    for drift in story.trace.beside.drifts:
        if drift.span not in lines and not _counts(drift):
            lines.add(drift.span)
            yield _of_examples(story, drift)


def _writes(story: Story) -> dict[tuple[Span, str, object, object], list[Event]]:
    """Return the writes by the program's lines into storages of data, grouped by line, storage, offset and shape.

    Left out are tensors of one element, storages of parameters, arrays, gradients, or tensors that require grad, and
    writes in an optimizer's step.
    """
    held = {label for made in story.trace.optimizers for label in made.holds}
    gradients = {label for leaf in story.leaves for _, label in story.history("tensors", leaf, "grad") if label}
    learning = {
        r.get("storage") for label, r in story.tensors.items() if _learns(r) or label in held or label in gradients
    }
    found: dict[tuple[Span, str, object, object], list[Event]] = defaultdict(list)
    for event in story.calls(*SHIFTS, *SCALES, *MASKED):
        label, place = event.operands[0].label if event.operands else None, story.span(event.step)
        record = story.tensor(label, event.step) or {}
        shape, storage = tuple(record.get("shape") or ()), record.get("storage")
        if (
            place is None
            or place.source
            or storage not in event.writes
            or prod(shape) < MATRIX
            or event.error is not None
            or event.parent
        ):
            continue
        if storage not in learning and story.said(event.step) != "step":
            found[place, str(storage), record.get("offset"), shape].append(event)
    return found


def _learns(record: Record) -> bool:
    """Whether the record is of a parameter, a NumPy array, or a tensor that requires grad."""
    return record.get("kind") in ("parameter", "array") or bool(record.get("requires_grad"))


def _again(story: Story, first: Event, second: Event, storage: str) -> DataChangedInEveryRound | None:
    between = [story.events[step] for step in story.writes(storage, first.step, second.step)]
    if first.name in MASKED:
        masks = [
            (story.tensor(o.label, first.step) or {}).get("dtype") for o in first.operands[1:] if o.label is not None
        ]
        loss = next((e for e in story.events[first.step : second.step] if _is_target(story, e, storage)), None)
        same = "bool" in {str(m).removeprefix("torch.") for m in masks} and all(e.name in MASKED for e in between)
        if loss is None or not same or _read(story, first, second, storage) is None:
            return None
        return DataChangedInEveryRound(first, second, storage, loss, target=True)
    names = {e.name for e in (first, *between)}
    noisy = all(_is_noise_on_a_part(story, event) for event in (first, *between, second))
    if not names <= SHIFTS | SCALES or not (
        noisy or names & SCALES or _is_fetched(first) or _is_for_all_rows(story, first)
    ):
        return None
    if (
        not noisy
        and not _is_fetched(first)
        and not all(_constant(story, event, first, second) for event in (first, *between, second))
    ):
        return None
    read = _read(story, first, second, storage)
    return DataChangedInEveryRound(first, second, storage, read, target=False) if read is not None else None


def _constant(story: Story, event: Event, first: Event, second: Event) -> bool:
    """Whether the write adds or multiplies by a number, or by a tensor made before ``first`` that does not require grad
    and is not written between ``first`` and ``second``.
    """
    operand = event.operands[1] if len(event.operands) > 1 else None
    if operand is None or operand.label is None:
        return operand is not None
    record = story.tensor(operand.label, event.step) or {}
    old = (record.get("born") or 0) < first.step and not _learns(record)
    return old and not story.writes(str(record.get("storage")), first.step, second.step)


def _is_fetched(event: Event) -> bool:
    """Whether the call ran inside a ``__getitem__``: a change made there, such as added noise, is intended for this one
    access.
    """
    return any(name.rsplit(".", 1)[-1] == "__getitem__" for name in event.scope)


def _is_noise_on_a_part(story: Story, event: Event) -> bool:
    """Whether newly drawn random numbers change a tensor that is smaller than its storage, such as a batch of the
    data.
    """
    record = story.tensor(event.operands[0].label, event.step) or {}
    size = (story.record("storages", record.get("storage"), event.step) or {}).get("size")
    given = event.operands[1].label if len(event.operands) > 1 else None
    return given is not None and prod(record.get("shape") or ()) < (size or 0) and _is_drawn(story, given)


def _is_drawn(story: Story, label: str, depth: int = 4) -> bool:
    """Whether a tensor consists of random numbers, perhaps scaled or converted by up to three calls."""
    born = story.event((story.tensor(label) or {}).get("born"))
    if born is None or label not in born.results or depth == 0:
        return False
    behind = [o.label for o in born.operands if o.label is not None]
    return born.name in DRAWN or (
        born.name in SCALED and bool(behind) and all(_is_drawn(story, each, depth - 1) for each in behind)
    )


def _is_for_all_rows(story: Story, event: Event) -> bool:
    """Whether the first operand has at least three dimensions and the second one fewer: one tensor is applied to every
    row of a batch, as position encodings are.
    """
    shapes = [story.shape(o.label, event.step) for o in event.operands[:2]]
    return None not in shapes and len(shapes[0] or ()) > MATRIX and len(shapes[1] or ()) < len(shapes[0] or ())


def _is_target(story: Story, event: Event, storage: str) -> bool:
    if event.kind != "call" or event.name not in MEASURES or len(event.operands) < 2:
        return False
    return bool((story.tensor(event.operands[1].label, event.step) or {}).get("storage") == storage)


def _read(story: Story, first: Event, second: Event, storage: str) -> Event | None:
    """Return the first call between two writes that computes a result which requires grad from the storage or from
    tensors computed from it; None if there is none.

    An update of a parameter does not count: its result is the parameter itself.
    """
    reached = {label for label, _ in story.tensors_on(storage)}
    for event in story.events[first.step + 1 : second.step]:
        if event.kind == "call" and event.error is None and any(o.label in reached for o in event.operands):
            results = [label for label in event.results if label not in story.leaves]
            if any((story.tensor(result, event.step) or {}).get("requires_grad") for result in results):
                return event
            reached.update(results)
    return None


def _finding(story: Story, found: DataChangedInEveryRound) -> Finding:
    span = story.span(found.first.step)
    data = called(story, found.first.operands[0].label, None, found.first.step)
    here, there = at_line(story, span), at_line(story, story.span(found.read.step))
    held = [(story.record("storages", found.storage, e.step) or {}).get("cells") for e in (found.first, found.second)]
    shown = held[0] is not None and held[1] is not None and numbers(held[0]) != numbers(held[1])
    became = T(
        en=f" After the first time the memory begins with {numbers(held[0])}, after the next with {numbers(held[1])}."
        if shown
        else "",
        zh=f"第一次之后这块内存以 {numbers(held[0])} 开头，下一次之后以 {numbers(held[1])} 开头。" if shown else "",
    )
    harm = (
        T(
            en=f"and {there.en} takes the same memory for its target.",
            zh=f"而{there.zh}把同一块内存当作目标：原来的数已经没有了。",
        )
        if found.target
        else T(
            en=f"so the changes add up in the data that {there.en} is given.",
            zh=f"所以这些修改在{there.zh}得到的数据里逐轮累积。",
        )
    )
    return RULE.finding(
        span,
        found.first.step,
        T(
            en=f"{capital(here.en)} changes {data.en} in place, and in the next round changes the same "
            f"elements again, {harm.en}",
            zh=f"{here.zh}就地修改 {data.zh}，下一轮又修改同样的元素，{harm.zh}",
        ),
        T(
            en=f"What is kept for all rounds is the changed data, not the one that was loaded.{became.en} Make a new "
            "tensor of it, or prepare the data once, before the rounds.",
            zh=f"各轮共用的是改过的数据，而不是当初载入的。{became.zh}请由它生成新的张量，或者在各轮之前只准备一次。",
        ),
        related=[
            story.related("changed", found.first.step, T(en="changed here, in every round", zh="每一轮都在这里修改")),
            story.related("used", found.read.step, T(en="what was changed is used here", zh="改过的数在这里被使用")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("storage", found.storage, story.by(found.first.step))],
    )


def _counts(drift: Drift) -> bool:
    """Whether the line added the same integer to every number that it changed: it is then a counter rather than an
    example.
    """
    steps = {after - before for before, after in zip(drift.before, drift.after, strict=True)}
    return len(steps) == 1 and all(float(step).is_integer() for step in steps)


def _of_examples(story: Story, drift: Drift) -> Finding:
    """Return the finding about a data set that makes its examples by writing into the data that it stores."""
    span = _statement_place(story, drift.span)
    here, there = at_line(story, span), at_line(story, drift.reader)
    before, after = (", ".join(number(value) for value in side) for side in (drift.before, drift.after))
    step = _first_on(story, drift)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} writes into the data that `{drift.kind}` keeps in `{drift.name}`, each time an "
            "example is made: the next epoch begins with numbers that were changed already.",
            zh=f"{here.zh}每次生成样本时都写入 `{drift.kind}` 保存在 `{drift.name}` 中的数据：下一个周"
            "期从已经改过的数开始。",
        ),
        T(
            en=f"In this pass over the loader ({there.en}) the line turned {before} into {after}, in the memory of "
            f"`{drift.name}`, which the passes before had changed as well. `a += b` and the methods that end in `_` "
            "write where the numbers are; `a = a + b` makes new ones. Work on a copy, or make a new tensor or array.",
            zh=f"在这一遍读取中（{there.zh}），这一行把 `{drift.name}` 内存中的 {before} 变成了 {after}，而之前各"
            "遍也已经改过它。`a += b` 和以 `_` 结尾的方法就地写入；`a = a + b` 则生成新的数。请在副本上处理，或者"
            "生成新的张量或数组。",
        ),
        related=[Related("changed", span, step, T(en="changed here, in every round", zh="每一轮都在这里修改"))],
        fixes=_out_of_place(story, span),
        facts=[Fact("kind", drift.kind), Fact("name", drift.name)],
        advice=T(
            en=f"{capital(here.en)}: make a new tensor or array instead of writing into the one that "
            f"`{drift.kind}` keeps.",
            zh=f"{here.zh}：生成新的张量或数组，不要写入 `{drift.kind}` 保存的那个。",
        ),
    )


def _first_on(story: Story, drift: Drift) -> int | None:
    """Return the first step of the line that changed the numbers or, if the line calls nothing of torch's, the step of
    the first pass over the loader; None if that is after the last event.
    """
    on_line = (e.step for e in story.events if e.span is not None and e.span.source == drift.span.source == 0
               and e.span.line == drift.span.line)  # fmt: skip
    passes = (each.step for each in story.trace.beside.passes if each.kind == drift.kind)
    step = next(on_line, next(passes, drift.step))
    return step if step < len(story.events) else None


def _statement_place(story: Story, span: Span) -> Span:
    """Return the source position of the whole statement on a line of the program itself; ``span`` unchanged for other
    code.
    """
    statement = story.program.statement_on(span.line) if span.source == 0 and story.program.tree is not None else None
    return story.program.place(statement) if statement is not None else span


def _out_of_place(story: Story, span: Span) -> tuple[Fix, ...]:
    """Fixes that make new numbers: ``x = x + 1`` for ``x += 1``, ``x = x.mul(2)`` for ``x.mul_(2)``, or a copy before
    the line.

    Empty if there is no statement that can be edited alone.
    """
    program = story.program
    statement = program.statement_at(span) if program.tree is not None and span.source == 0 else None
    if statement is None or not program.stands_alone(statement):
        return ()
    found = []
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        sign = next((sign for kind, sign in OPERATORS.items() if isinstance(statement.op, kind)), None)
        if sign is not None:
            new = f"{statement.target.id} = {statement.target.id} {sign} {operand(program, statement.value)}"
            title = T(en=f"Make new numbers: `{new}`", zh=f"生成新的数：`{new}`")
            found.append(Fix(title, program.replace((statement, new)), meaning="later"))
    call = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    if (
        call is not None
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.attr.endswith("_")
    ):
        name = call.func.value.id
        arguments = program.segment(call)[len(program.segment(call.func)) :]
        new = f"{name} = {name}.{call.func.attr.removesuffix('_')}{arguments}"
        title = T(en=f"Make new numbers: `{new}`", zh=f"生成新的数：`{new}`")
        found.append(Fix(title, program.replace((statement, new)), meaning="later"))
    root = written_root(statement)
    if root is not None and isinstance(root, ast.Name):
        for copy in ("clone", "copy"):
            new = f"{root.id} = {root.id}.{copy}()"
            title = T(en=f"Change a copy: `{new}` before it", zh=f"修改副本：在它之前写 `{new}`")
            if edits := program.insert_before(statement, new):
                found.append(Fix(title, edits, meaning="later"))
    return unique(program.text, found)


def _fixes(story: Story, found: DataChangedInEveryRound) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement_at(story.span(found.first.step)) if program.tree is not None else None
    root = written_root(statement) if statement is not None else None
    if statement is None or root is None or not is_name(root) or not program.stands_alone(statement):
        return ()
    name = program.segment(root)
    if isinstance(statement, ast.AugAssign) and is_name(statement.target):
        sign = next((sign for kind, sign in OPERATORS.items() if isinstance(statement.op, kind)), None)
        if sign is not None:
            new = f"{name} = {name} {sign} {program.segment(statement.value)}"
            title = T(en=f"Make a new tensor: `{new}`", zh=f"生成新的张量：`{new}`")
            return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")])
    title = T(
        en=f"Change a copy: `{name} = {name}.clone()` before it", zh=f"修改副本：在它之前写 `{name} = {name}.clone()`"
    )
    edits = program.insert_before(statement, f"{name} = {name}.clone()")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL715",
    name="data-changed-in-every-round",
    severity="warning",
    title=T(en="Data was prepared in place again in every round", zh="每一轮都就地再次处理同一份数据"),
    what=T(
        en="A program prepares its data in place, for instance subtracts the mean, and does so in every round with "
        "the same data. From the second round on it prepares what was prepared already: the numbers drift away. Make "
        "a new tensor instead.",
        zh="程序就地处理数据，例如减去平均值，而且每一轮都对同一份数据这样做。从第二轮起，它处理的是已经处理过的数据，"
        "数值越来越偏。请改为生成新的张量。",
    ),
    why=T(
        en="An element of a data set, `data[i]`, is a view: it looks at the memory of the data set. `x -= mean` "
        "writes into that memory, `x = x - mean` makes new memory. What is written stays for the next epoch. The same "
        "happens to a tensor that a function blanks out in part and that its caller uses as the original: input and "
        "target are then one memory.",
        zh="数据集的一个元素 `data[i]` 是视图：它看着数据集的内存。`x -= mean` 写进这块内存，`x = x - mean` 则使用"
        "新的内存。写进去的数会留到下一轮。如果一个函数把张量的一部分抹掉，而调用者又把它当作原件使用，也是如此："
        "输入和目标成了同一块内存。",
    ),
    advice=T(
        en="make a new tensor on {changed} instead of writing into {tensor}, or do it once, before the rounds.",
        zh="在{changed}产生新的张量，不要写入 {tensor}；或者只在各轮之前做一次。",
    ),
    bad="""import torch

data = torch.tensor([[2.0, 4.0], [6.0, 8.0]])
w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for epoch in range(3):
    for i in range(2):
        x = data[i]
        x /= 8  # PL715 changed
        loss = ((x * w).sum() - 1).square()  # used
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(data)
""",
    good="""import torch

data = torch.tensor([[2.0, 4.0], [6.0, 8.0]])
w = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for epoch in range(3):
    for i in range(2):
        x = data[i]
        x = x / 8
        loss = ((x * w).sum() - 1).square()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(data)
""",
    find=find,
    traps=(
        Trap(
            "x = data[i]",
            "x = data[i].detach()",
            T(
                en="`detach()` is about gradients; the memory is the same.",
                zh="`detach()` 只关系到梯度；内存仍是数据的内存。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_view.html",),
)
