"""How much of a checked program was observed: a sentence when observation stopped early, and counts of calls for the
JSON output (:func:`unobserved` and :func:`as_data`).
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.check.scripts import Script
from pitfall_lab.check.workshop import Unchecked
from pitfall_lab.trace import Language, Note, T, Trace, extent

UNOBSERVED = "Unobserved"
"""The ``kind`` of an :class:`Unchecked` when observation stopped before the program ended."""


def unobserved(name: str, script: Script | None, trace: Trace) -> Unchecked | None:
    """Why observation stopped although the program continued, as an exception of kind :data:`UNOBSERVED` that is not
    raised.

    ``name`` is the file's name in the sentence; ``script`` names lines of a notebook by their cells (None: plain
    lines). None if observation did not stop.
    """

    def place(line: int) -> str:
        return script.place_text(line) if script is not None else str(line)

    note, said = trace.stopped, extent.stop(trace, place)
    if note is None or said is None:
        return None
    line = _line(note)
    where = name if line is None else f"{name}:{place(line)}"
    own = script.place(line)[1] if script is not None else line
    more = (
        T(en=" Look further with --steps.", zh="可用 --steps 看得更远。") if note.cause == "limit" else T(en="", zh="")
    )
    return Unchecked(UNOBSERVED, T(en=f"{where}: {said.en}{more.en}", zh=f"{where}：{said.zh}{more.zh}"), own)


def as_data(trace: Trace, script: Script | None, language: Language) -> dict[str, Any]:
    """The value of ``observation`` in the JSON of a file, with texts in ``language``; lines of a notebook are numbered
    within their cell, which is added.
    """
    stopped, reach = trace.stopped, trace.reach
    stop = None
    if stopped is not None:
        later = [_place(line, script) for line in reach.later]
        stop = {
            "cause": stopped.cause or "failure",
            **_said(stopped, script, language),
            "calls_after": reach.missed,
            "lines_after": later,
        }
    unseen = [_said(note, script, language) for note in trace.unseen]
    counts = {"calls": trace.calls, "mirrored": trace.agreement.mirrored, "lines": reach.lines}
    return {"complete": stop is None and not unseen, "stopped": stop, **counts, "unseen": unseen}


def nothing_observed(problem: Unchecked | None, language: Language) -> dict[str, Any]:
    """The value of ``observation`` in the JSON of a file without a trace; its message is that of ``problem``, empty for
    None.
    """
    message = problem.said.say(language) if problem is not None else ""
    never: dict[str, Any] = {"cause": "never", "message": message, "line": None, "calls_after": 0, "lines_after": []}
    return {"complete": False, "stopped": never, "calls": 0, "mirrored": 0, "lines": 0, "unseen": []}


def _said(note: Note, script: Script | None, language: Language) -> dict[str, Any]:
    return {"message": T(note.en, note.zh).say(language), **_place(_line(note), script)}


def _line(note: Note) -> int | None:
    """The line in the program itself; ``None`` when the note is about another module."""
    return note.span.line if note.span is not None and note.span.source == 0 else None


def _place(line: int | None, script: Script | None) -> dict[str, Any]:
    if script is None or not script.cells:
        return {"line": line}
    cell, own = script.place(line)
    return {"cell": cell, "line": own}
