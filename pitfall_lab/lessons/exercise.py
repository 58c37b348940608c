"""Exercises: properties that the learner's own cell must have, each checked on what it really does.

An unsolved exercise is no error: it shows which properties hold, which do not, and why not.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mark:
    """One property: the sentence that states it, whether it holds, and what went wrong if checking it raised."""

    sentence: str
    holds: bool
    reason: str = ""

    def __str__(self) -> str:
        """Return the mark as a line: a glyph, the sentence, the reason."""
        return f"{'✓' if self.holds else '○'} {self.sentence}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True)
class Grade:
    """The marks of one exercise."""

    marks: tuple[Mark, ...]

    @property
    def solved(self) -> bool:
        """Whether every property holds."""
        return all(m.holds for m in self.marks)

    def __str__(self) -> str:
        """Return the marks and a closing line."""
        held = sum(m.holds for m in self.marks)
        closing = "Solved." if self.solved else f"{held} of {len(self.marks)} hold. Edit the cell above and run both again."
        return "\n".join([*map(str, self.marks), closing])

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        """Return the marks as plain text and as HTML (escaped)."""
        edge = "#009E73" if self.solved else "#E69F00"
        style = f"border-left:6px solid {edge};padding:4px 14px;margin:6px 0;white-space:pre-wrap;line-height:1.6"
        return {"text/plain": str(self), "text/html": f'<div class="pl-grade" style="{style}">{html.escape(str(self))}</div>'}


def grade(properties: Mapping[str, Callable[[], object]]) -> Grade:
    """Check each property (a sentence and a function without arguments that returns whether it holds).

    >>> print(grade({"two is even": lambda: 2 % 2 == 0, "it divides": lambda: 1 / 0}))
    ✓ two is even
    ○ it divides (ZeroDivisionError: division by zero)
    1 of 2 hold. Edit the cell above and run both again.
    """
    marks: list[Mark] = []
    for sentence, holds in properties.items():
        mark = _mark(sentence, holds)
        # One broken line usually breaks every property in the same way; saying so once is enough.
        repeated = bool(mark.reason) and any(m.reason == mark.reason for m in marks)
        marks.append(replace(mark, reason="the same") if repeated else mark)
    return Grade(tuple(marks))


def _mark(sentence: str, holds: Callable[[], object]) -> Mark:
    """Check one property; an exception from the learner's code is a reason, not a crash."""
    try:
        return Mark(sentence, bool(holds()))
    except Exception as error:
        return Mark(sentence, False, textwrap.shorten(f"{type(error).__name__}: {error}".rstrip(": "), 160, placeholder=" …"))
