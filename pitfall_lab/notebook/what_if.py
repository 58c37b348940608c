"""What if …: change a program, run it again on both engines, and see both runs side by side from their first
difference. :func:`what_if` returns the two runs.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

from pitfall_lab.rules import find
from pitfall_lab.rules.kit.changes import Change, changes
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import Language, T, Trace
from pitfall_lab.views import compare

Rerun = Callable[[str], Trace]
STYLE = (
    "<style>.pl-whatif{max-width:1100px}.pl-sides{display:grid;grid-template-columns:1fr 1fr;gap:8px 28px}.pl-whatif "
    "h3{margin:.4em 0}.pl-whatif section{min-width:0;overflow-wrap:anywhere}.pl-whatif table{border-spacing:12px "
    "2px}.pl-whatif td,.pl-whatif th{text-align:start}</style>"
)


@dataclass(frozen=True, repr=False)
class TwoRuns:
    """Two runs, of a program and of the changed one: drawn in a notebook, in words when printed.

    ``change`` is what was changed, ``before`` and ``after`` are the traces of the two runs, ``language`` that of the
    texts.
    """

    change: Change
    before: Trace
    after: Trace
    language: Language = "en"

    @property
    def compared(self) -> compare.ComparedRuns:
        """The comparison as plain data (see :mod:`pitfall_lab.views.compare`)."""
        return compare.compare(self.before, self.after)

    def __repr__(self) -> str:
        return f"{self.change.title.say(self.language)}\n{compare.text(self.compared, self.language)}".rstrip("\n")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        from pitfall_lab.views.encoding import clean

        title = clean(self.change.title.say(self.language))
        page = f'<div class="pl-whatif">{STYLE}<h2>{title}</h2>{compare.html(self.compared, self.language)}</div>'
        return {"text/html": page, "text/plain": repr(self)}


@overload
def what_if(source: str | Trace) -> tuple[Change, ...]: ...
@overload
def what_if(source: str | Trace, change: str | Change, *, language: Language = ...) -> TwoRuns: ...
def what_if(
    source: str | Trace, change: str | Change | None = None, *, language: Language = "en"
) -> tuple[Change, ...] | TwoRuns:
    """Change a program and compare the two runs; without a ``change``, return the changes that are offered.

    ``source`` is a program's text or a trace of one; ``change`` one of the offered changes, its ``id``, or the text of
    another program, of at least two lines. The programs run in a process of their own; a trace is not run again.

    Raises:
        ValueError: there is no change of that id.
        pitfall_lab.check.Unchecked: one of the programs could not be run.
    """
    from pitfall_lab.check import Subject, Workshop

    with Workshop() as shop:
        before = source if isinstance(source, Trace) else shop.trace(Subject(source, "program.py"))
        offered = changes(before, find(before))
        if change is None:
            return offered
        chosen, text = _chosen(change, before, offered)
        name = before.sources[0].name if before.sources else "program.py"
        return TwoRuns(chosen, before, shop.trace(Subject(text, name)), language)


def _chosen(change: str | Change, before: Trace, offered: tuple[Change, ...]) -> tuple[Change, str]:
    if isinstance(change, str) and "\n" in change:
        return Change("other", T("Another program", "另一个程序"), ()), change
    found = change if isinstance(change, Change) else next((one for one in offered if one.id == change), None)
    if found is None:
        known = ", ".join(one.id for one in offered) or "none"
        raise ValueError(f"There is no change {change!r} of this program; there is: {known}.")
    return found, apply(before.sources[0].text, found.edits)
