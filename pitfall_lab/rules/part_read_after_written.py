"""PL736: two parts of a tensor were to be computed anew from each other, and the second was computed from what the
first had become, because their names are views.
"""

from __future__ import annotations

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.overlaps import part as selected
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called, torch_name
from pitfall_lab.rules.kit.wording import apart, at_line, capital, snippet, statement_text
from pitfall_lab.rules.signals.exchanged_parts import WrittenTerm, exchanged, terms
from pitfall_lab.rules.signals.value_origins import decimal
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SUMS, DIFFERENCES = spellings("add"), spellings("sub")
PRODUCTS, DIVISIONS = spellings("mul", "div"), spellings("div")
REPLACING = spellings("atan2") | {"hypot"}
"""Functions of two numbers whose result continues neither of them."""
PARTING = {"unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit"}
"""Calls that return several views, for which one copy of what they are called on is enough."""
HALF = 0.5
MOST = 60
"""So many calls are followed back from a value that is written."""
LATER = 200
"""So many later writes to a memory are compared with each."""


@dataclass(frozen=True, slots=True)
class Late:
    """``first`` is the call (``Event``) that wrote over ``part``, from ``part`` and ``other``; ``second`` is the call
    that then wrote over ``other``, from both. ``part`` and ``other`` are labels of views on one storage.

    ``read`` is the call that read ``part`` for the value of ``second`` after ``part`` had changed. ``alone`` is True
    where each of the two values was computed from one part alone, by the same calls: the parts were to be swapped.
    """

    part: str
    other: str
    first: Event
    read: Event
    second: Event
    alone: bool = False


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each function and tensor in which a part was read by its name after an assignment had
    replaced it, to compute another part.

    Not for parts that the same lines write again, as those of a state that is kept. Mostly not where the second part
    adds to its own value (``x[1] = b + a``) or keeps a share of it: such updates may be intended one after the other.
    """
    reported = set[Span | None]()
    for lates in _lates(story).values():
        if (place := story.span(lates[0].first.step)) not in reported:
            reported.update(story.span(late.first.step) for late in lates)
            if place is not None:
                yield _finding(story, lates)


def _lates(story: Story) -> dict[object, list[Late]]:
    """The data of the findings, by the storage that was written and the functions (``Event.scope``) that wrote it."""
    found: dict[object, list[Late]] = defaultdict(list)
    by_memory: dict[str, list[Event]] = defaultdict(list)
    for event in story.calls("__setitem__", "copy_"):
        if event.error is None and event.parent is None and len(event.writes) == 1 and len(event.operands) > 1:
            by_memory[event.writes[0]].append(event)
    for storage, writes in by_memory.items():
        if len(writes) < 2:
            continue
        changed = {event.step: _changed(story, storage, event) for event in writes}
        times = Counter((story.span(event.step), frozenset(changed[event.step])) for event in writes)
        once = [e for e in writes if changed[e.step] and times[story.span(e.step), frozenset(changed[e.step])] == 1]
        made_of = {event.step: terms(story, storage, event) for event in once}
        for number, first in enumerate(once):
            later = once[number + 1 : number + 1 + LATER]
            late = _late(story, storage, first, later, changed) or _exchange(first, later, changed, made_of)
            if late is not None:
                found[storage, first.scope].append(late)
    return found


def _changed(story: Story, storage: str, write: Event) -> set[int]:
    """The positions in the storage that a call wrote: those at which the trace shows another number than before, and
    that of the first element that the index selects, if it is known.
    """
    before, after = (_values(story, storage, at) for at in (write.step - 1, write.step))
    cells = {cell for cell in before.keys() & after.keys() if before[cell] != after[cell]}
    target = story.tensor(write.operands[0].label, write.step)
    if target is not None and write.name == "__setitem__":
        target = selected(target, write.operands[1].text) if write.operands[1].label is None else None
    return cells | {int(target["offset"])} if target is not None and target.get("offset") is not None else cells


def _values(story: Story, storage: str, step: int) -> dict[int, Any]:
    """The numbers in the storage that the trace has at ``step``, by position."""
    return story.held(next((label for label, _ in story.tensors_on(storage)), None), step)


def _late(story: Story, storage: str, first: Event, later: list[Event], changed: dict[int, set[int]]) -> Late | None:
    """The data of the finding if a later write in the same function computes another part from the part that ``first``
    has replaced, and both parts were named before.

    None if there is no such write, or if the order of the two seems intended (:func:`_continued`, :func:`_relaxed`).
    """
    used = _behind(story, first.operands[-1].label, first.step)
    views = {label: record for label in used if (record := _named_view(story, label, storage, first)) is not None}
    parts = [label for label, record in views.items() if _has(record, changed[first.step])]
    others = [label for label, record in views.items() if not _has(record, changed[first.step])]
    for second in later if parts and others else ():
        if second.scope != first.scope or changed[second.step] & changed[first.step]:
            continue
        again = _behind(story, second.operands[-1].label, second.step)
        for part in parts:
            read = again.get(part)
            if read is None or read.step < first.step or first.operands[0].label == part:
                continue
            for other in others:
                if (
                    other in again
                    and again[other].step > first.step
                    and _has(views[other], changed[second.step])
                    and second.operands[0].label != other
                    and not _met(views[part], views[other])
                    and (
                        not (
                            _continued(story, second.operands[-1].label, views[other], part, second.step)
                            or _relaxed(story, first, second, part, other)
                        )
                        or _belongs_together(story, first, second, part, other)
                    )
                ):
                    return Late(part, other, first, read, second)
    return None


def _exchange(
    first: Event, later: list[Event], changed: dict[int, set[int]], made_of: dict[int, list[WrittenTerm]]
) -> Late | None:
    """The data of the finding for two writes whose parts need no names, because the parts were to be swapped, or to
    become their sum and difference; None if there is none.

    ``made_of`` has the terms of each write's value, by its step.
    """
    for second in later if made_of[first.step] else ():
        if second.scope != first.scope or changed[second.step] & changed[first.step]:
            continue
        part, other, alone = exchanged(first, made_of[first.step], made_of[second.step]) or (None, None, False)
        if part is None or other is None or _met(part.record, other.record):
            continue
        if _has(part.record, changed[first.step]) and _has(other.record, changed[second.step]):
            return Late(part.label, other.label, first, part.read, second, alone)
    return None


def _behind(story: Story, label: str | None, step: int) -> dict[str, Event]:
    """The tensors from which the value of ``label`` was computed, each with the last call that read it for this
    value.
    """
    found: dict[str, Event] = {}
    pending = [label]
    for _ in range(MOST):
        if not pending:
            break
        here = pending.pop()
        event = story.event((story.tensor(here, step) or {}).get("born"))
        if event is None or event.kind != "call" or event.name in PARTING:
            continue
        for operand in event.operands:
            if operand.label is not None:
                known = found.get(operand.label)
                if known is None:
                    pending.append(operand.label)
                if known is None or known.step < event.step:
                    found[operand.label] = event
    return found


def _named_view(story: Story, label: str, storage: str, first: Event) -> Record | None:
    """The record of a view on the storage that was made before ``first`` in the function that writes, and that has a
    name; else None.
    """
    record = story.tensor(label, first.step)
    if record is None or record.get("storage") != storage or record.get("base") is None:
        return None
    born = story.event(record.get("born"))
    if born is None or born.step >= first.step or born.scope != first.scope or _name(story, label) is None:
        return None
    return record


def _name(story: Story, label: str) -> str | None:
    """The name of a view, also where a tensor itself was unpacked: ``r, g, b = image``; None if it has none."""
    if (name := story.name(label)) is not None:
        return name
    event = story.event((story.tensor(label) or {}).get("born"))
    targets = story.program.at(event.span) if event is not None else None
    if event is None or not isinstance(targets, ast.Tuple | ast.List) or len(targets.elts) != len(event.results):
        return None
    target = targets.elts[event.results.index(label)] if label in event.results else None
    return target.id if isinstance(target, ast.Name) and target.id != "_" else None


def _has(record: Record, cells: set[int]) -> bool:
    """Whether an element of the tensor is at one of these positions in its storage."""
    return any(_covers(record, cell) for cell in cells)


def _covers(record: Record, cell: int) -> bool:
    """Whether an element of the tensor is at a position in its storage; right for tensors whose elements do not
    overlap.
    """
    rest = cell - int(record.get("offset") or 0)
    steps = sorted(zip(record.get("stride") or (), record.get("shape") or (), strict=False), reverse=True)
    for stride, length in steps:
        if stride > 0 and rest >= 0:
            rest -= min(rest // stride, length - 1) * stride
    return rest == 0


def _met(one: Record, other: Record) -> bool:
    """Whether the first element of one of two views on a storage is an element of the other one too."""
    return _covers(one, int(other.get("offset") or 0)) or _covers(other, int(one.get("offset") or 0))


def _continued(story: Story, label: str | None, target: Record, part: str, step: int) -> bool:
    """Whether a value is that of ``target`` with something added to it, or with a factor that depends on ``part``: then
    it continues its own part, as a step of a simulation or of a flow does.

    Also True if another call combines ``target`` with something, unless its result replaces both (``REPLACING``).
    """

    def is_target(other: str) -> bool:
        record = story.tensor(other, step) or {}
        return all(record.get(key) == target.get(key) for key in ("storage", "offset", "shape", "stride"))

    pending, seen = [label], set[int]()
    while pending and len(seen) < MOST:
        event = story.event((story.tensor(pending.pop(), step) or {}).get("born"))
        if event is None or event.kind != "call" or event.step in seen:
            continue
        seen.add(event.step)
        given = [operand.label for operand in event.operands if operand.label is not None]
        if event.name in DIFFERENCES:
            given = [event.operands[0].label] if event.operands[0].label is not None else []
        if event.name in PRODUCTS:
            rest = [[other for other in given if other != one] for one in given]
            moved = any(
                is_target(one) and any(other == part or part in _behind(story, other, step) for other in others)
                for one, others in zip(given, rest, strict=True)
            )
        elif event.name in SUMS | DIFFERENCES:
            moved = any(is_target(one) for one in given)
        else:
            moved = len(given) > 1 and event.name not in REPLACING and any(is_target(one) for one in given)
        if moved:
            return True
        pending += [one for one in given if (story.tensor(one, step) or {}).get("storage") != target.get("storage")]
    return False


def _relaxed(story: Story, first: Event, second: Event, part: str, other: str) -> bool:
    """Whether the second value keeps a share of its own part, as a state that decays or is averaged does: more than a
    half, or any share if the first value does so too.

    Not for a rotation: with ``c² + s² = 1``, the values are ``c * x - s * y`` and ``s * x + c * y``.
    """
    kept = _multiple(story, second.operands[-1].label, other, second.step)
    if kept is None or not 0 < kept < 1:
        return False
    before = _multiple(story, first.operands[-1].label, part, first.step)
    crossed = [
        _multiple(story, event.operands[-1].label, label, event.step)
        for event, label in ((first, other), (second, part))
    ]
    if before is not None and crossed[0] is not None and crossed[1] is not None:
        turned = math.isclose(crossed[0], -crossed[1], rel_tol=1e-6) and math.isclose(before, kept, rel_tol=1e-6)
        if turned and math.isclose(kept**2 + crossed[0] ** 2, 1, rel_tol=1e-4):
            return False
    return kept > HALF or (before is not None and 0 < before < 1)


def _multiple(story: Story, label: str | None, of: str, step: int) -> float | None:
    """The number by which ``of`` is multiplied in a value that is a sum of multiples of tensors, 0 if the value does
    not depend on it; None if the value is something else, or if the factor is not a plain number.
    """
    if label == of:
        return 1.0
    if label is None or of not in _behind(story, label, step):
        return 0.0
    event = story.event((story.tensor(label, step) or {}).get("born"))
    if event is None or event.kind != "call" or any(operand.name for operand in event.operands):
        return None
    given = event.operands
    if event.name in SUMS | DIFFERENCES and len(given) == 2:
        found = [_multiple(story, operand.label, of, event.step) for operand in given]
        if found[0] is None or found[1] is None:
            return None
        return found[0] + found[1] if event.name in SUMS else found[0] - found[1]
    if event.name in PRODUCTS and len(given) == 2 and (given[0].label is None) != (given[1].label is None):
        number = decimal(given[1].text if given[1].label is None else given[0].text)
        inner = _multiple(story, given[0].label or given[1].label, of, event.step)
        if number is None or inner is None or (event.name in DIVISIONS and (number == 0 or given[0].label is None)):
            return None
        return inner / number if event.name in DIVISIONS else inner * number
    return None


def _belongs_together(story: Story, first: Event, second: Event, part: str, other: str) -> bool:
    """Whether two values are results of one pair of parts that are known to be used together: the mean and the
    difference, the larger and the smaller, or each divided by a number made of both.
    """
    values = [(event.operands[-1].label, event.step) for event in (first, second)]
    one, two = (story.event((story.tensor(label, step) or {}).get("born")) for label, step in values)
    if one is None or two is None:
        return False
    pair = {part, other}
    if {one.name, two.name} == {"maximum", "minimum"}:
        return _given(one) == _given(two) == pair
    if one.name in DIVISIONS and two.name in DIVISIONS:
        return all(
            event.operands[0].label == own and pair <= _behind(story, event.operands[1].label, event.step).keys()
            for event, own in ((one, part), (two, other))
        )
    total = story.event((story.tensor(one.operands[0].label, first.step) or {}).get("born"))
    return (
        one.name in PRODUCTS
        and two.name in DIFFERENCES
        and total is not None
        and total.name in SUMS
        and _given(total) == _given(two) == pair
    )


def _is_anew(story: Story, late: Late) -> bool:
    """Whether the part was made again after it had been overwritten, and not kept under a name."""
    born = (story.tensor(late.part) or {}).get("born")
    return not isinstance(born, int) or born > late.first.step


def _given(event: Event) -> set[str]:
    return {operand.label for operand in event.operands if operand.label is not None}


def _finding(story: Story, lates: list[Late]) -> Finding:
    late = lates[0]
    read, first = late.read, late.first
    span = story.span(late.second.step)
    part, other = _shown(story, late.part), _shown(story, late.other)
    here, there = at_line(story, span), at_line(story, story.span(first.step))
    before, after = (_values(story, first.writes[0], at) for at in (first.step - 1, read.step - 1))
    view = story.tensor(late.part, first.step) or {}
    cell = next((cell for cell in sorted(before) if _covers(view, cell) and before[cell] != after.get(cell)), None)
    shown = apart(before[cell], after[cell]) if cell is not None and cell in after else None
    values = T(
        en=f" An element of it was {shown[0]} before, and is {shown[1]} there." if shown else "",
        zh=f"它的一个元素之前是 {shown[0]}，到那里是 {shown[1]}。" if shown else "",
    )
    born = (story.tensor(late.part) or {}).get("born")
    kept = not _is_anew(story, late)
    what, meant = _what(part, kept=kept), _meant(part, other, statement_text(story, story.span(first.step)), late.alone)
    return RULE.finding(
        span,
        late.second.step,
        T(
            en=f"{capital(here.en)} computes with `{part}` after {there.en} has replaced it.{values.en}",
            zh=f"{here.zh}用 `{part}` 计算，而{there.zh}已经把它替换了。{values.zh}",
        ),
        T(en=f"{what.en} {meant.en} No error is raised.", zh=f"{what.zh}{meant.zh}不会报错。"),
        related=[
            *(
                [story.related("alias", born, T(en="this is a view, and no copy", zh="这是视图，不是副本"))]
                if kept
                else []
            ),
            story.related("changed", first.step, T(en=f"`{part}` is replaced here", zh=f"`{part}` 在这里被替换")),
        ],
        fixes=_fixes(story, lates),
        facts=[Fact("views", len({each.part for each in lates}), story.by(late.second.step))],
    )


def _shown(story: Story, label: str) -> str:
    """A view's name, or the expression that made it."""
    born = story.event((story.tensor(label) or {}).get("born"))
    return _name(story, label) or (snippet(story, story.span(born.step)) if born is not None else "")


def _what(part: str, *, kept: bool) -> T:
    """Why ``part`` shows new numbers: it is a view that was made before the write, or it is made again after it."""
    if kept:
        return T(
            en=f"`{part}` is a view: it has no numbers of its own and shows those of the tensor that it was taken "
            "from.",
            zh=f"`{part}` 是视图：它没有自己的数，显示的是它所取自的张量的数。",
        )
    return T(
        en=f"An assignment to `{part}` replaces its numbers at once, and what reads `{part}` after it gets the new "
        "ones.",
        zh=f"对 `{part}` 的赋值会立刻替换其中的数，在它之后读取 `{part}` 得到的是新的数。",
    )


def _meant(part: str, other: str, written: str, alone: bool) -> T:
    """What the two assignments were to do; ``written`` is the first one."""
    if alone:
        return T(
            en=f"`{written}` puts what it computes from `{other}` in place of `{part}`. What comes next is meant to "
            f"put the same of the old `{part}` in place of `{other}`, but reads the new `{part}`: both are made of "
            f"`{other}` now, and the numbers of `{part}` are lost.",
            zh=f"`{written}` 把由 `{other}` 算出的结果放到 `{part}` 处。接下来本要把由旧的 `{part}` 同样算出的结果放到 "
            f"`{other}` 处，读到的却是新的 `{part}`：现在两者都来自 `{other}`，`{part}` 的数丢失了。",
        )
    return T(
        en=f"`{written}` computes from `{part}` and `{other}` and writes into the memory of `{part}`. What comes next "
        f"is meant to replace `{other}`, from the same two, but reads the new `{part}` with the old `{other}`.",
        zh=f"`{written}` 由 `{part}` 和 `{other}` 算出结果，并写入 `{part}` 的内存。接下来本要由同样这两者替换 "
        f"`{other}`，读到的却是新的 `{part}` 和旧的 `{other}`。",
    )


def _from_a_copy(story: Story, lates: list[Late]) -> tuple[Fix, ...]:
    """A fix that copies the tensor before the first assignment, and reads the replaced parts from the copy; empty if
    they are not read by an index.
    """
    program: Program = story.program
    parts: list[ast.Subscript] = []
    for late in lates:
        born = story.event((story.tensor(late.part) or {}).get("born"))
        node = program.at(story.span(born.step)) if born is not None else None
        if isinstance(node, ast.Subscript) and node not in parts:
            parts.append(node)
    first = program.statement_at(story.span(min(late.first.step for late in lates)))
    names = {program.segment(node.value) for node in parts}
    if first is None or len(names) != 1 or program.lines[first.lineno - 1][: first.col_offset].strip():
        return ()
    whole, taken = names.pop(), {node.id for node in program.nodes if isinstance(node, ast.Name)}
    copy = next(name for name in ("old", "before", "copy_of_old") if name not in taken or name == "copy_of_old")
    start = program.place(first)
    here = Span(start.line, start.column, start.line, start.column)
    added = f"{copy} = {whole}.clone()\n{program.indent(first)}"
    edits = program.splice((here, added), *((program.place(node.value), copy) for node in parts))
    title = T(
        en=f"Read from a copy that was made before: `{copy} = {whole}.clone()`",
        zh=f"从改写之前的副本读取：`{copy} = {whole}.clone()`",
    )
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _fixes(story: Story, lates: list[Late]) -> tuple[Fix, ...]:
    """At most one fix: it copies the parts that are read too late where they are made, or copies the whole tensor
    before the first assignment; empty if the source does not show these places.
    """
    program: Program = story.program
    if any(_is_anew(story, late) for late in lates):
        return _from_a_copy(story, lates)
    nodes: list[ast.expr] = []
    for part in dict.fromkeys(late.part for late in lates):
        born = story.event((story.tensor(part) or {}).get("born"))
        node = program.at(born.span) if born is not None else None
        if born is not None and born.name in PARTING and isinstance(node, ast.Call):
            if (
                called(node) in PARTING
                and isinstance(node.func, ast.Attribute)
                and torch_name(program) != (program.segment(node.func.value))
            ):
                node = node.func.value
            else:
                node = node.args[0] if node.args else None
        elif isinstance(node, ast.Tuple | ast.List):
            statement = program.statement(node)
            node = statement.value if isinstance(statement, ast.Assign) else None
        if not isinstance(node, ast.expr):
            return ()
        if node not in nodes:
            nodes.append(node)
    fix = appended(program, *((node, ".clone()") for node in nodes))
    return unique(program.text, [Fix(fix.title, fix.edits, meaning="later")])


RULE = Rule(
    code="PL736",
    name="part-read-after-written",
    severity="warning",
    title=T(en="A part of a tensor was read after it had been replaced", zh="张量的一部分在被替换之后才被读取"),
    what=T(
        en="A program turns the centre and the width of boxes into their two ends: it names the columns of a tensor, "
        "writes `cx - w / 2` into the first, and then `cx + w / 2` into the third. By then `cx` is the new first "
        "column, so the box is cut in half. Name the columns of a copy: `out.clone().unbind(-1)`.",
        zh="程序把框的中心和宽度换算成两端：它给张量的各列取了名字，把 `cx - w / 2` 写入第一列，再把 `cx + w / 2` "
        "写入第三列。这时 `cx` 已是新的第一列，所以框只剩一半。请给副本的各列取名：`out.clone().unbind(-1)`。",
    ),
    why=T(
        en="`unbind`, `chunk`, `split` and an index of numbers and slices return views, which share the memory of "
        "the tensor. An assignment `out[..., 0] = …` copies numbers into that memory, and each view shows them from "
        "then on. To compute several parts from each other, read all of them first, or from a copy, or stack the "
        "results into a new tensor.",
        zh="`unbind`、`chunk`、`split` 以及由数字和切片组成的索引返回视图，它们与张量共用内存。赋值 `out[..., 0] = …` "
        "把数复制到这块内存里，此后每个视图显示的都是新的数。要由几个部分互相算出各自的新值，请先读完所有部分，或者"
        "从副本读取，或者把结果堆叠成新的张量。",
    ),
    advice=T(
        en="take the parts of a copy on {alias}, with `.clone()`.",
        zh="在{alias}用 `.clone()` 从副本取出各部分。",
    ),
    bad="""import torch

out = torch.tensor([[0.5, 0.5, 0.2, 0.4], [0.3, 0.6, 0.4, 0.2]])
scale = torch.ones(4, requires_grad=True)
cx, cy, w, h = out.unbind(-1)  # alias
out[..., 0] = cx - w / 2  # changed
out[..., 1] = cy - h / 2
out[..., 2] = cx + w / 2  # PL736
out[..., 3] = cy + h / 2
loss = (out * scale).sum()
loss.backward()
print(out, scale.grad)
""",
    good="""import torch

out = torch.tensor([[0.5, 0.5, 0.2, 0.4], [0.3, 0.6, 0.4, 0.2]])
scale = torch.ones(4, requires_grad=True)
cx, cy, w, h = out.clone().unbind(-1)
out[..., 0] = cx - w / 2
out[..., 1] = cy - h / 2
out[..., 2] = cx + w / 2
out[..., 3] = cy + h / 2
loss = (out * scale).sum()
loss.backward()
print(out, scale.grad)
""",
    find=find,
    traps=(
        Trap(
            "out.unbind(-1)",
            "out.detach().unbind(-1)",
            T(
                en="`detach()` is on the same memory too; only `clone()` copies.",
                zh="`detach()` 也在同一块内存上；只有 `clone()` 才复制。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_view.html",),
)
