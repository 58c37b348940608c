"""Facts worth showing in a program in which no rule finds anything, from the trace alone: they are seldom intended.
:func:`notable` returns at most five of them.

They are not called mistakes: a write in place, also through another name or array on the same memory, a tensor taken
out of the graph, a result larger than both operands, and the first NaN. Each is one line of the program, with the first
step at which it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TypedDict

from pitfall_lab.trace import Event, T
from pitfall_lab.trace.state_types import Text
from pitfall_lab.trace.text import place, shape_text
from pitfall_lab.trace.used_names import operand_names
from pitfall_lab.views.label_history import Facts

MOST = 5
STRETCHED = 2
ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "radd", "rsub", "rmul", "rtruediv", "eq", "lt", "gt", "pow")

SHARING = ("detach", "numpy", "from_numpy", "as_tensor", "asarray", "frombuffer")
"""Calls whose result looks like a tensor or array of its own and shares the memory."""
PARTS = ("__getitem__", "select", "narrow", "split", "chunk", "unbind", "data", "expand", "unfold")
RENEWING = ("zero_", "fill_", "copy_", "normal_", "uniform_", "__setitem__")


class Notable(TypedDict):
    """What happened on a line.

    ``text`` says it, ``step`` is the first step at which it was seen, ``line`` the line's number, and ``place`` the
    line's name for readers (``In [3], line 28``).
    """

    step: int
    line: int
    place: Text
    text: Text


def notable(facts: Facts) -> list[Notable]:
    """The facts worth showing, NaN first and then in the order of the program; at most five, empty if there are none.

    There is one for each line and kind, but only one for NaN.
    """
    found: dict[tuple[str, int], Notable] = {}
    shared: set[str] = set()
    for event in filter(_is_own, facts.trace.events):
        line = facts.line(event.step) or 0
        for kind, said in _facts_of(facts, event):
            if kind == "shared":
                shared.update(event.writes)
            where = place(facts.trace, line, 0)
            one: Notable = {
                "step": event.step, "line": line, "place": {"en": where.en, "zh": where.zh}, "text": {"en": said.en,
                "zh": said.zh},
            }  # fmt: skip
            found.setdefault((kind, line if kind != "nan" else 0), one)
    for event in filter(_is_own, facts.trace.events) if shared else ():
        if event.name == "detach" and facts.tensor(event.results[0], event.step).get("storage") in shared:
            found.pop(("cut", facts.line(event.step) or 0), None)  # the harm is another one
    ordered = sorted(found, key=lambda key: (key[0] != "nan", found[key]["step"]))
    return [found[key] for key in ordered][:MOST]


def _is_own(event: Event) -> bool:
    """Whether the event is a call, or a write of NumPy's, on a line of the program itself that did not raise."""
    return (
        event.kind in ("call", "write")
        and event.error is None
        and event.parent is None
        and event.span is not None
        and not event.span.source
    )


def _facts_of(facts: Facts, event: Event) -> Iterator[tuple[str, T]]:
    labels = [operand.label for operand in event.operands if operand.label]
    if not labels:
        return
    operands = [facts.tensor(label, event.step - 1) or facts.tensor(label, event.step) for label in labels]
    first, names = operands[0], [facts.called(label) for label in labels]
    written = (
        event.writes
        and first.get("storage") in event.writes
        and first.get("requires_grad")
        and not first.get("is_leaf")
    )
    changed = _through_another(facts, event)
    if changed is not None:
        yield "shared", changed
    later = _read_later(facts, event) if written and changed is None else None
    if later is not None:
        yield (
            "write",
            T(
                en=f"`{names[0]}` itself gets new numbers here, and line {later} reads it afterwards. If the old ones "
                "are meant, make a new tensor here.",
                zh=f"`{names[0]}` 本身在这里得到新的数值，而第 {later} 行之后又读取它。如果那里要的是原来的数值，"
                "请在这里创建新张量。",
            ),
        )
    if event.name == "detach" and first.get("grad_fn"):
        yield (
            "cut",
            T(
                en=f"`{names[0]}` is taken out of the graph: no gradient comes back through the result.",
                zh=f"把 `{names[0]}` 从计算图中取出：梯度不会经过结果传回来。",
            ),
        )
    shapes = [list(one.get("shape") or ()) for one in operands[:STRETCHED]]
    made = list(facts.tensor(event.results[0], event.step).get("shape") or ()) if event.results else []
    if _stretches_both(event, shapes, made):
        one, other = (f"`{name}` {shape_text(shape)}" for name, shape in zip(names, shapes, strict=False))
        yield (
            "table",
            T(
                en=f"{one} and {other} are both stretched, to {shape_text(made)}.",
                zh=f"{one} 与 {other} 都被扩展成 {shape_text(made)}。",
            ),
        )
    if (
        event.results
        and _has_nan(facts, event.results[0], event.step)
        and not any(_has_nan(facts, o, event.step - 1) for o in labels)
    ):
        yield "nan", T(en="The first NaN (not a number) was seen here.", zh="在这里第一次看到 NaN（不是数）。")


def _stretches_both(event: Event, shapes: list[list[int]], made: list[int]) -> bool:
    """Whether an arithmetic operator made a larger result of two operands with the same number of elements.

    (N, 1) and (N,) are such operands.
    """
    counts = [prod(shape) for shape in shapes]
    return (
        event.name.strip("_") in ARITHMETIC
        and len(counts) == STRETCHED
        and counts[0] == counts[1] > 1
        and prod(made) > counts[0]
    )


def _read_later(facts: Facts, write: Event) -> int | None:
    """The line of the first later call on the written storage that is in another function than the write; None if none
    is.

    Only calls on the program's own lines count.
    """
    storage = facts.tensor(write.operands[0].label, write.step).get("storage")
    for event in filter(_is_own, facts.trace.events[write.step + 1 :]):
        used = (facts.tensor(o.label, event.step).get("storage") for o in event.operands if o.label)
        if event.scope != write.scope and storage in used:
            return facts.line(event.step)
    return None


def _through_another(facts: Facts, write: Event) -> T | None:
    """The sentence for a write that also changes an older tensor or array which a later line reads.

    None if there is none, if the line itself names it (``w.data.add_(…)``, but for ``h.detach().zero_()``), if one is
    an indexed part of the other, if the write changed no number, or if the line does not name what it writes.
    """
    label = write.operands[0].label
    storage = facts.tensor(label, write.step).get("storage")
    if storage is None or storage not in write.writes or not _changed(facts, storage, write.step):
        return None
    for other in facts.of_storage(storage):
        if other == label or _birth(facts, other) >= write.step or not _reaches(facts, label, other, write.step):
            continue
        link = facts.trace.events[max(_birth(facts, str(label)), _birth(facts, other))]
        read = _next_read(facts, other, write)
        here = link.span is not None and write.span is not None and link.span.line == write.span.line
        if read is None or link.name in PARTS or (here and link.name not in SHARING):
            continue
        mine = _expression(facts, str(label), write.step)
        return _shared(facts, mine, other, write, read) if mine in facts.code(write.step) else None
    return None


def _shared(facts: Facts, mine: str, other: str, write: Event, read: int) -> T:
    theirs = _expression(facts, other, write.step)
    born = facts.line(_birth(facts, other))
    if theirs != mine:
        return T(
            en=f"`{mine}` and `{theirs}` share their memory: this write changes `{theirs}` too, and line {read} reads "
            f"it. If `{theirs}` is to keep its numbers, it needs a copy (`.clone()`, of an array `.copy()`).",
            zh=f"`{mine}` 与 `{theirs}` 共用内存：这里的写入也改变了 `{theirs}`，而第 {read} 行读取它。"
            f"如果 `{theirs}` 要保留原来的数值，就需要一份副本（`.clone()`，数组用 `.copy()`）。",
        )
    return T(
        en=f"What line {born} made of `{mine}` shares its memory: this write changes that too, and line {read} reads "
        f"it. If line {born} is to keep the numbers, make a copy there (`.clone()`).",
        zh=f"第 {born} 行由 `{mine}` 得到的张量与它共用内存：这里的写入也改变了那个张量，而第 {read} 行读取它。"
        f"如果第 {born} 行要保留这些数值，请在那里复制（`.clone()`）。",
    )


def _expression(facts: Facts, label: str, step: int) -> str:
    """What the program calls a tensor or array: its last variable, else the expression from which a sharing call took
    it.

    If there is neither, the display name.
    """
    names = facts.tensor(label, step).get("names") or ()
    if names:
        return str(names[-1])
    for event in facts.trace.events:
        if event.kind == "call" and event.name in SHARING and label in {o.label for o in event.operands[:1]}:
            said = operand_names(facts.trace, event)
            if name := said.get(event.operands[0].name or 0):
                return name
    return facts.called(label)


def _birth(facts: Facts, label: str) -> int:
    history = facts.tensors.get(label, ())
    return history[0][0] if history else 0


def _changed(facts: Facts, storage: str, step: int) -> bool:
    """Whether a write changed a number; True also if the values are not known."""
    now, before = (
        next((r.get("cells") for s, r in reversed(facts.storages.get(storage, [])) if s <= at and r), None)
        for at in (step, step - 1)
    )
    differs: bool = now is None or now != before
    return differs


def _reaches(facts: Facts, label: str | None, other: str, step: int) -> bool:
    """Whether the memory ranges of the two tensors overlap; True also if a shape or stride is not known."""
    ranges = []
    for each in (label, other):
        record = facts.tensor(each, step)
        shape, stride = record.get("shape"), record.get("stride")
        if shape is None or stride is None:
            return True
        first = int(record.get("offset") or 0)
        ends = [(length - 1) * jump for length, jump in zip(shape, stride, strict=True)]
        ranges.append((first + sum(min(0, end) for end in ends), first + sum(max(0, end) for end in ends)))
    (low, high), (least, most) = ranges
    return bool(low <= most and least <= high)


def _next_read(facts: Facts, label: str, write: Event) -> int | None:
    """The line of the first later call, on another line than the write, that has the tensor as an operand.

    None if there is none, or if that call gives the tensor new numbers.
    """
    for event in filter(_is_own, facts.trace.events[write.step + 1 :]):
        if label not in {operand.label for operand in event.operands}:
            continue
        line = facts.line(event.step)
        if line == facts.line(write.step):
            continue
        renewed = event.operands[0].label == label and event.name in RENEWING
        return None if renewed else line
    return None


def _has_nan(facts: Facts, label: str | None, step: int) -> bool:
    storage = facts.tensor(label, step).get("storage")
    record = next((r for s, r in reversed(facts.storages.get(storage or "", [])) if s <= step and r), None)
    cells = record.get("cells") if record else None
    values = [value for _, value in cells.get("shown", ())] if isinstance(cells, dict) else cells or []
    return "nan" in values
