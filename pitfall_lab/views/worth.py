"""Facts worth showing in a program in which no rule finds anything, from the trace alone: they are seldom intended.

They are not called mistakes: a write in place, a tensor taken out of the graph, a result larger than both
operands, a parameter that no backward reached, and the first NaN. Each is one line of the program, with the
first step at which it was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TypedDict

from pitfall_lab.trace import Event, T
from pitfall_lab.trace.state_types import Text
from pitfall_lab.trace.text import place, shape_text
from pitfall_lab.views.label_history import Facts

MOST = 5
STRETCHED = 2
ARITHMETIC = ("add", "sub", "mul", "div", "truediv", "radd", "rsub", "rmul", "rtruediv", "eq", "lt", "gt", "pow")


class Notable(TypedDict):
    """A fact with its step, line and place."""

    step: int
    line: int
    place: Text
    text: Text


def notable(facts: Facts) -> list[Notable]:
    """The facts, NaN first and then in the order of the program, one for each line and kind; at most five."""
    found: dict[tuple[str, int], Notable] = {}
    for event in filter(_is_own, facts.trace.events):
        line = facts.line(event.step) or 0
        for kind, said in _facts_of(facts, event):
            where = place(facts.trace, line, 0)
            one: Notable = {
                "step": event.step, "line": line, "place": {"en": where.en, "zh": where.zh}, "text": {"en": said.en,
                "zh": said.zh},
            }  # fmt: skip
            found.setdefault((kind, line if kind != "nan" else 0), one)
    ordered = sorted(found, key=lambda key: (key[0] != "nan", found[key]["step"]))
    return [found[key] for key in ordered][:MOST]


def _is_own(event: Event) -> bool:
    """Whether the event is a call on a line of the program itself that did not raise."""
    return (
        event.kind == "call"
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
    later = _read_later(facts, event) if written else None
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
    """Whether an arithmetic operator made a larger result of two operands with one number of
    elements, such as (N, 1) and (N,).
    """
    counts = [prod(shape) for shape in shapes]
    return (
        event.name.strip("_") in ARITHMETIC
        and len(counts) == STRETCHED
        and counts[0] == counts[1] > 1
        and prod(made) > counts[0]
    )


def _read_later(facts: Facts, write: Event) -> int | None:
    """The line of the first later call that has a tensor on the written storage and is made in
    another function than the write.

    None if there is none; only calls on the program's own lines count.
    """
    storage = facts.tensor(write.operands[0].label, write.step).get("storage")
    for event in filter(_is_own, facts.trace.events[write.step + 1 :]):
        used = (facts.tensor(o.label, event.step).get("storage") for o in event.operands if o.label)
        if event.scope != write.scope and storage in used:
            return facts.line(event.step)
    return None


def _has_nan(facts: Facts, label: str | None, step: int) -> bool:
    storage = facts.tensor(label, step).get("storage")
    record = next((r for s, r in reversed(facts.storages.get(storage or "", [])) if s <= step and r), None)
    cells = record.get("cells") if record else None
    values = [value for _, value in cells.get("shown", ())] if isinstance(cells, dict) else cells or []
    return "nan" in values
