"""Finds the call that computed a tensor's values, looking back through views and other calls that keep values."""

from __future__ import annotations

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

SAME_NUMBERS = (
    spellings("cat", "clamp", "expand", "transpose")
    | {"T", "__getitem__", "alias", "chunk", "clamp_min", "clone", "contiguous", "cpu", "data", "detach", "double",
       "expand_as", "flatten", "float", "identity", "mT", "movedim", "narrow", "permute", "ravel", "requires_grad_",
       "reshape", "select", "split", "squeeze", "stack", "t", "to", "unbind", "unflatten", "unsqueeze", "view",
       "view_as"}
)  # fmt: skip
"""Calls whose result consists of values of the (first) operand: all of them, some, reordered, or clamped."""
LIMIT = 100


def origin(story: Story, label: str | None, step: int) -> Event | None:
    """Return the call that computed the values of the tensor ``label`` at ``step``, looking back through calls that
    only copy, convert, reshape, select, join or clamp.

    Of several joined tensors the first one is followed. None if there is no such call, or the values were overwritten
    since.
    """
    for _ in range(LIMIT):
        record = story.tensor(label, step) or {}
        event = story.event(record.get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        if story.writes(str(record.get("storage")), event.step, step):
            return None
        if event.name not in SAME_NUMBERS:
            return event
        given = [operand.label for operand in event.operands if operand.label is not None]
        if not given or given[0] == label:
            return None
        label, step = given[0], event.step
    return None


def argument(event: Event, name: str, position: int | None = None) -> str | None:
    """Return the text of an argument of the call ``event`` that is no tensor, by its name or else by its position among
    all operands; None if it was not passed.
    """
    for operand in event.operands:
        if operand.name == name:
            return operand.text if operand.label is None else None
    if position is not None and position < len(event.operands):
        operand = event.operands[position]
        return operand.text if not operand.name and operand.label is None else None
    return None


def decimal(text: str | None) -> float | None:
    """Return the number in the text of an argument; None if it is not one.

    >>> decimal("1e-3"), decimal("rate"), decimal(None)
    (0.001, None, None)
    """
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None


def whole(text: str | None) -> int | None:
    """Return the integer in the text of an argument; None if it is not one.

    >>> whole("-1"), whole("None"), whole(None)
    (-1, None, None)
    """
    return int(text) if text is not None and text.lstrip("-").isdigit() else None


def values(story: Story, label: str | None, step: int) -> list[float]:
    """Return the known values of the tensor ``label`` at ``step``, in the order of its storage; without bools, NaN and
    infinity, and each only once where a tensor is expanded.

    Of a view, those are only the values that it shows, not the others of its storage.
    """
    return [float(value) for _, value in Elements(story, label, step).known()]
