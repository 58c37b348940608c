"""Two slices of a tensor that should be computed from each other's old values, where one is read after it was
overwritten.

:func:`exchanged` compares how the two written values were computed, which :func:`terms` reads from the trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

SUMS, DIFFERENCES = spellings("add"), spellings("sub")
MOST = 12
"""How many calls are followed back at most from a value that is written."""


@dataclass(frozen=True, slots=True)
class WrittenTerm:
    """A view on the written storage from which a written value was computed.

    ``label`` is the view's label, ``record`` its record in the trace, ``read`` the call (``Event``) that read it first,
    and ``way`` the calls from there to the value (without the sum or difference at the end), each as a text with its
    numeric arguments. ``sign`` is -1 if the view is subtracted at the end, else 1.
    """

    label: str
    record: Record
    read: Event
    way: tuple[str, ...]
    sign: int = 1


def exchanged(
    first: Event, one: list[WrittenTerm], two: list[WrittenTerm]
) -> tuple[WrittenTerm, WrittenTerm, bool] | None:
    """Return the slice that ``first`` overwrites, as it is read for a later value; the other slice, as it is read for
    the value of ``first``; and whether both values are computed from one slice each (``x[0] = 9 - x[1]; x[1] = 9 -
    x[0]``).

    ``first`` is an assignment to a slice of a storage, ``one`` are the :func:`terms` of its value and ``two`` those of
    a later assignment to the same storage. The values must be computed by the same calls (at least one) from the two
    slices, or be ``a - f(b)`` and ``a + f(b)`` with the same ``f``. None otherwise, and if the slice is read before
    ``first``. The caller must make sure that the two slices are the ones that are written.
    """
    if len(one) == len(two) == 1:
        (other,), (part,) = one, two
        return (part, other, True) if _is_late(part, first) and other.way == part.way != () else None
    if len(one) != 2 or len(two) != 2:
        return None
    for part in two:
        other = next(each for each in two if each is not part)
        old = next((each for each in one if _place(each.record) == _place(other.record)), None)
        own = next((each for each in one if _place(each.record) == _place(part.record)), None)
        if old is None or own is None or own is old or not _is_late(part, first) or part.way or own.way:
            continue
        if old.way == other.way != () and own.sign == part.sign == 1 and old.sign == -other.sign:
            return part, old, False
    return None


def _is_late(term: WrittenTerm, first: Event) -> bool:
    return term.read.step > first.step


def _place(record: Record) -> tuple[Any, ...]:
    return tuple(str(record.get(key)) for key in ("offset", "shape", "stride"))


def terms(story: Story, storage: str, write: Event) -> list[WrittenTerm]:
    """The views on the storage that a written value is computed from: one, or the two of a sum or difference; empty if
    the value depends on any other tensor too.
    """
    label, step = write.operands[-1].label, write.step
    made = made_by(story, label, step)
    given = [operand.label for operand in made.operands] if made is not None else []
    if made is None or made.name not in SUMS | DIFFERENCES or len(given) != 2 or None in given:
        single = _single(story, storage, label, write)
        return [single] if single is not None else []
    signs = (1, -1 if made.name in DIFFERENCES else 1)
    if made.name in ("__rsub__", "rsub"):
        signs = (-1, 1)
    found = [_single(story, storage, each, made, sign) for each, sign in zip(given, signs, strict=True)]
    return [each for each in found if each is not None] if None not in found else []


def _single(story: Story, storage: str, label: str | None, at: Event, sign: int = 1) -> WrittenTerm | None:
    """The one view on the storage from which a tensor, an operand of the call ``at``, was computed; None if there is
    none, or if another tensor was needed.
    """
    way: list[str] = []
    for _ in range(MOST):
        record = story.tensor(label, at.step)
        if label is None or record is None:
            return None
        if record.get("storage") == storage:
            return WrittenTerm(label, record, at, tuple(way), sign) if record.get("base") is not None else None
        made = made_by(story, label, at.step)
        given = [operand.label for operand in made.operands if operand.label is not None] if made is not None else []
        if made is None or made.kind != "call" or len(given) != 1:
            return None
        texts = ("" if operand.label is not None else operand.text for operand in made.operands)
        way.append(f"{made.op}({', '.join(texts)})")
        label, at = given[0], made
    return None
