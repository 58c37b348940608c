"""The Explorer: a trace and its pictures as one widget that needs no kernel once it is shown."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from pitfall_lab.rules import find
from pitfall_lab.rules.changes import Change, changes
from pitfall_lab.rules.source import apply
from pitfall_lab.trace import LANGUAGES, Language, Trace

if TYPE_CHECKING:
    from pitfall_lab.rules.finding import Finding
    from pitfall_lab.views.facts import Facts

STATIC = Path(__file__).parent.parent / "static"
UNSENT = frozenset({"code", "folds", "jumps", "story"})
"""Parts of a scene that the script finds in the trace by itself."""


class Explorer(anywidget.AnyWidget):
    """One trace in linked views: code, graph, storages, broadcasting, versions.

    Args:
        trace: What to show.
        findings: What the rules found in it; their stories and fixes stand beside the views.
        language: ``"en"`` or ``"zh"``; the reader can switch.
        rerun: Runs a program's text and returns its trace. With it, the reader can try changes of the program ("what if …").
        step: Where to open; by default at the write that breaks something, else at the end. -1 is before the first event.

    ``step``, ``focus`` and ``language`` follow the reader, and the reader follows them:

    >>> from pitfall_lab.trace import Trace
    >>> explorer = Explorer(Trace())
    >>> explorer.step, explorer.language
    (-1, 'en')
    """

    _esm = STATIC / "explorer.js"
    _style = traitlets.Bytes().tag(sync=True)
    # All deflated: JSON says the same keys and labels again and again, and a saved notebook keeps what was sent.
    _trace = traitlets.Bytes().tag(sync=True)
    _scene = traitlets.Bytes().tag(sync=True)
    step = traitlets.Int(-1).tag(sync=True)
    focus = traitlets.Unicode("").tag(sync=True)
    language = traitlets.Enum(LANGUAGES, "en").tag(sync=True)

    def __init__(
        self,
        trace: Trace,
        findings: Sequence[Finding] = (),
        *,
        language: Language = "en",
        step: int | None = None,
        rerun: Callable[[str], Trace] | None = None,
        **traits: Any,
    ) -> None:
        self.trace = trace
        self.findings = tuple(findings)
        self._rerun = rerun
        self._changes = {change.id: change for change in changes(trace, self.findings)} if rerun is not None else {}
        step = opening_step(trace, self.findings) if step is None else step
        written = trace.events[step].writes if 0 <= step < len(trace.events) else ()
        self._facts = _gathered(trace)
        super().__init__(
            _style=style(),
            _trace=deflated(trace.to_json()),
            _scene=deflated(_scene(trace, self.findings, self._changes.values(), self._facts)),
            language=language,
            step=step,
            **{"focus": written[0] if written else "", **traits},
        )
        self.on_msg(self._hear)

    def _hear(self, _: Any, content: Any, __: Any) -> None:
        """The page asks for a change by its ``id``; it never sends code."""
        name = content.get("what_if") if isinstance(content, dict) else None
        change = self._changes.get(name) if isinstance(name, str) else None
        if change is None or self._rerun is None:
            return
        try:
            from pitfall_lab.views.compare import compare

            after = self._rerun(apply(self.trace.sources[0].text, change.edits))
            told = {"what_if": name, "told": compare(self.trace, after)}
            self.send(told, buffers=[deflated(after.to_json()), deflated(_scene(after, find(after)))])
        except Exception as error:
            said = str(error) or type(error).__name__
            self.send({"what_if": name, "failed": said[:300]})

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The widget for a live page, a page that needs no scripts for a dead one, and the same as text."""
        live = super()._repr_mimebundle_(**options)
        bundle, metadata = live if isinstance(live, tuple) else (live or {}, {})
        facts, self._facts = self._facts, None  # a second display is rare: nothing is kept for it
        return {**bundle, **_static(self.trace, self.findings, self.language, facts)}, metadata


def opening_step(trace: Trace, findings: Sequence[Finding] = ()) -> int:
    """The step that tells most: the last write that broke something, else what a rule points at, else the failure, else the end."""
    failure = trace.outcome.failure
    failures = [one for one in (failure, *(forecast.failure for forecast in trace.forecasts)) if one is not None]
    causes = [cause for harm in trace.harms for cause in harm.causes]
    writes = [one.changed_at[-1] for one in (*failures, *causes) if one.changed_at]
    named = [finding.step for finding in findings if finding.step is not None]
    raised = [failure.step] if failure is not None and failure.step is not None else []
    return next(iter([*writes, *named, *raised]), len(trace.events) - 1)


@cache
def style() -> bytes:
    """The sheet of everything drawn in the browser. Its own trait: it is no script, and it goes into a shadow root, not into the page."""
    return deflated((STATIC / "explorer.css").read_text(encoding="utf-8"))


def deflated(text: str) -> bytes:
    """What goes to the browser, smaller."""
    return zlib.compress(text.encode(), 9)


def _gathered(trace: Trace) -> Facts | None:
    """What the scene and the static page both begin with; ``None`` where a trace is not what it should be: each says so in its way."""
    try:
        from pitfall_lab.views.facts import gather

        return gather(trace)
    except Exception:
        return None


def _scene(trace: Trace, findings: Sequence[Finding], offered: Iterable[Change] = (), facts: Facts | None = None) -> str:
    """The pictures' data as JSON. Without it the Explorer still shows the code and the text, so a failure here costs only pictures."""
    try:
        from pitfall_lab import views

        scene = {key: value for key, value in views.scene(trace, findings, facts).items() if key not in UNSENT}
        scene["events"] = [{"step": event["step"], "sentence": event["sentence"]} for event in scene["events"]]
        scene["changes"] = [{"id": c.id, "title": {"en": c.title.en, "zh": c.title.zh}} for c in offered]
        return json.dumps(scene, ensure_ascii=False, separators=(",", ":"))
    except Exception:
        return "{}"


def _static(trace: Trace, findings: Sequence[Finding], language: Language, facts: Facts | None) -> dict[str, str]:
    try:
        from pitfall_lab import views

        told = "".join(f"\n{each.rule} {each.name}: {each.message.say(language)}" for each in findings)
        return {"text/html": views.page(trace, findings, language, facts=facts), "text/plain": views.text(trace, facts=facts) + told}
    except Exception:
        return {"text/plain": f"Explorer of {len(trace.events)} events"}
