"""The Explorer: a trace and its pictures as one widget that needs no kernel once it is shown."""

# ruff: noqa: PLC0415 - the widget is shown before the scenes are computed: what computes them is imported then

from __future__ import annotations

import contextvars
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import traitlets

from pitfall_lab.rules import find
from pitfall_lab.rules.kit.changes import Change, changes
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import LANGUAGES, Language, T, Trace
from pitfall_lab.views.stored import with_page
from pitfall_lab.views.stories import step_on_line
from pitfall_lab.widgets.front_end import DrawnWidget

if TYPE_CHECKING:
    from pitfall_lab.rules.kit.finding import Finding
    from pitfall_lab.views.label_history import Facts

UNSENT = frozenset({"code", "folds", "jumps", "story"})
"""Parts of a scene that the script finds in the trace by itself."""


SEVERITIES = ("error", "warning", "info")
"""From the worst on: the page shows findings in this order."""


class TrialProgress(Protocol):
    """How far trials have come, and the findings with what holds so far."""

    @property
    def done(self) -> int: ...  # noqa: D102
    @property
    def total(self) -> int: ...  # noqa: D102
    @property
    def findings(self) -> tuple[Finding, ...]: ...  # noqa: D102


class ExplorerLab(Protocol):
    """Tries what an Explorer offers, in a process of its own; ``said`` is why it cannot, ``stopped``
    whether the reader ended it.
    """

    said: T | None
    stopped: bool

    def trials(self) -> Iterator[TrialProgress]:
        """Try the fixes of the findings, one by one."""

    def rerun(self, text: str) -> Trace:
        """Run another text in the program's place."""

    def stop(self) -> None:
        """End the trials and the rerun that are in progress; called from another thread."""


class Explorer(DrawnWidget):
    """One trace in linked views: code, graph, storages, broadcasting, versions.

    Args:
        trace: What to show.
        findings: What the rules found in it; their stories and fixes are shown beside the views.
        language: ``"en"`` or ``"zh"``; the reader can switch.
        lab: Tries fixes, and other texts of the program. With it, the reader can try changes ("what if …"),
            and :meth:`try_fixes` works; where its ``said`` is set, neither is offered.
        step: Where to open; by default at the write that breaks something, else at what is worth a look, else
            at the end. -1 is before the
            first event.
        whole: Whether large pictures are complete from the beginning; otherwise
            :meth:`complete` brings the rest of them.
        again: Shows a MIME bundle and its metadata in place of those that were displayed. It is called once, when the
            fixes have been tried, if one was verified: the stored page then has it.

    ``step``, ``focus`` and ``language`` follow the reader, and the reader follows them:

    >>> from pitfall_lab.trace import Trace
    >>> explorer = Explorer(Trace())
    >>> explorer.step, explorer.language
    (-1, 'en')
    """

    # All deflated: JSON says the same keys and labels again and again, and a saved notebook keeps what was sent.
    _trace = traitlets.Bytes().tag(sync=True)
    _scene = traitlets.Bytes().tag(sync=True)
    #: What comes after the first drawing, in place of parts of the scene: the rest of large pictures; "stories" and
    #: "changes", how far the "trials" are, and whether they are still "trying".
    _rest = traitlets.Bytes().tag(sync=True)
    _tried = traitlets.Bytes().tag(sync=True)
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
        lab: ExplorerLab | None = None,
        whole: bool = True,
        again: Callable[[dict[str, Any], dict[str, Any]], None] | None = None,
        **traits: Any,
    ) -> None:
        self.trace = trace
        self.findings = self._found = tuple(findings)
        self._again = again
        self._displayed: tuple[dict[str, Any], dict[str, Any], Language] | None = None
        self._lab = lab
        # A program that cannot be run again has no changes to try: what the fixes are refused for holds for them too.
        asks = lab is not None and lab.said is None
        self._changes = {change.id: change for change in changes(trace, self.findings)} if asks else {}
        self._facts = _gathered(trace)
        self._shown: dict[str, Any] = {}
        scene = _scene(trace, self.findings, self._changes.values(), self._facts, first=not whole)
        if step is None:
            step = next((one["step"] for one in scene.get("worth", ())), None) or opening_step(trace, self.findings)
        written = trace.events[step].writes if 0 <= step < len(trace.events) else ()
        self._outlined = self._facts if not whole and self._facts is not None and self._facts.outlined else None
        self._stories = scene.get("stories", [])
        super().__init__(
            _trace=deflated(trace.to_json()),
            _scene=packed(scene),
            language=language,
            step=step,
            **{"focus": written[0] if written else "", **traits},
        )
        self.on_msg(self._received)

    def complete(self) -> None:
        """Compute the parts of large views that were left out at first, in the background,
        and send them to the browser.

        Once, if there are any.
        """
        facts, self._outlined = self._outlined, None
        if facts is not None:
            self._behind(lambda: self._completing(facts))

    def _completing(self, facts: Facts) -> None:
        from pitfall_lab import views

        self._rest = packed(views.rest(facts))

    def try_fixes(self, *, behind: bool = True) -> None:
        """Try the fixes of the findings, in the background, while a page shows them as they come; with ``behind=False``
        return when all are tried.

        Nothing happens for an Explorer that was made without the means to run programs.
        """
        self._behind(self._trying) if behind else self._trying()

    def _trying(self) -> None:
        lab = self._lab
        if lab is None:
            return
        progress, ending = None, "done"
        try:
            if lab.said is None:
                self._tell("trying", None)
                for progress in lab.trials():
                    if progress.done < progress.total:
                        self._tell("trying", progress)
        except Exception:  # a fix that cannot be tried is not offered
            ending = "stopped" if lab.stopped else "failed"
        self._tell(ending if lab.said is None else "refused", progress)
        self._store_fixes()

    def _store_fixes(self) -> None:
        """Put the verified fixes into the stored page, if there are any: only its findings are written anew."""
        displayed, self._displayed, again = self._displayed, None, self._again
        if displayed is None or again is None:
            return
        if any(fix.verified for finding in self.findings for fix in finding.fixes):
            from pitfall_lab.views.document import retold

            data, metadata, language = displayed
            page = retold(data["text/html"], self.trace, [*self._found], [*self.findings], language)
            again({**data, "text/html": page}, metadata)

    def _tell(self, state: str, progress: TrialProgress | None) -> None:
        """Let the page know how far the trials are, and what holds so far."""
        lab, later = self._lab, {}
        done, total = (progress.done, progress.total) if progress is not None else (0, 0)
        said = lab.said if lab is not None else None
        if progress is not None and progress.findings != self.findings:
            from pitfall_lab import views

            self.findings = progress.findings
            offered = changes(self.trace, self.findings)
            self._changes.update((change.id, change) for change in offered)
            later = {
                "stories": views.later_stories(self.trace, self.findings, self._stories),
                "changes": _named(offered),
            }
        trials = {"state": state, "done": done, "total": total, "said": said and {"en": said.en, "zh": said.zh}}
        self._shown |= {**later, "trying": state == "trying", "trials": trials}
        self._tried = packed(self._shown)

    @staticmethod
    def _behind(work: Callable[[], None]) -> None:
        # With the cell's context, what is sent belongs to the cell's output.
        threading.Thread(target=contextvars.copy_context().run, args=(work,), name="pitfall_lab", daemon=True).start()

    def _received(self, _: Any, content: Any, __: Any) -> None:
        """Handle the page's message: try a change, named by its ``id``, or end all trials.

        The page never sends code.
        """
        if not isinstance(content, dict) or self._lab is None:
            return
        if content.get("stop") is True:
            self._lab.stop()
        name = content.get("what_if")
        change = self._changes.get(name) if isinstance(name, str) else None
        if change is not None:
            self._behind(lambda: self._what_if(change))

    def _what_if(self, change: Change) -> None:
        assert self._lab is not None
        try:
            from pitfall_lab.views.compare import compare

            after = self._lab.rerun(apply(self.trace.sources[0].text, change.edits))
            answer = {"what_if": change.id, "compared": compare(self.trace, after)}
            self.send(answer, buffers=[deflated(after.to_json()), packed(_scene(after, find(after)))])
        except Exception as error:
            text = getattr(error, "text", None)
            said = {"en": text.en, "zh": text.zh} if isinstance(text, T) else (str(error) or type(error).__name__)[:300]
            self.send({"what_if": change.id, "failed": said})

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The MIME bundle and its metadata: a widget for a live page, a page that needs no scripts for a
        dead one, and the same as text.
        """
        facts, self._facts = self._facts, None  # a second display is rare: nothing is kept for it
        bundle = with_page(
            super()._repr_mimebundle_(**options), _static(self.trace, self.findings, self.language, facts)
        )
        if self._again is not None and "text/html" in bundle[0]:
            self._displayed = (*bundle, self.language)
        return bundle


def opening_step(trace: Trace, findings: Sequence[Finding] = ()) -> int:
    """The step at which the Explorer opens: the last write that broke something, if the worst finding is about it, else
    that finding's step, else the failure.

    Without any of these, the last step.
    """
    worst = sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    failure = trace.outcome.failure
    failures = [one for one in (failure, *(forecast.failure for forecast in trace.forecasts)) if one is not None]
    causes = [cause for harm in trace.harms for cause in harm.causes]
    writes = [
        steps[-1] for steps in (*(one.changed_at for one in failures), *(one.changed_at for one in causes)) if steps
    ]
    named = [step for finding in worst if (step := _step_of(trace, finding)) is not None]
    raised = [failure.step] if failure is not None and failure.step is not None else []
    # What is drawn is the worst finding: a write that only another one is about comes after its step.
    its = {worst[0].step, *(related.step for related in worst[0].related)} if worst else set(writes)
    first = [step for step in writes if step in its]
    return next(iter([*first, *named, *writes, *raised]), len(trace.events) - 1)


def _step_of(trace: Trace, finding: Finding) -> int | None:
    """The finding's step; if its event is on another line than the finding, that of the last call before it on the
    finding's line.

    Where no event has its line (an optimizer that skips all), where a graph was cut, else the last step that it names.
    """
    place = finding.span
    happened = place is None or any(event.span is not None and event.span.line == place.line for event in trace.events)
    named = [related.step for related in finding.related if related.step is not None]
    named += [
        related.step for related in finding.related if related.step is not None and related.role in ("copied", "cut")
    ]
    if finding.step is None or (named and not happened):
        return None if finding.step is None else named[-1]
    return finding.step if place is None else step_on_line(trace, finding.step, place.line, place.source)


def deflated(text: str) -> bytes:
    """Return data for the browser, compressed."""
    return zlib.compress(text.encode(), 6)  # 9 takes three times as long for 3 % less


def _gathered(trace: Trace) -> Facts | None:
    """The trace indexed by label, from which both the scene and the static page are made;
    None if the trace is damaged.
    """
    try:
        from pitfall_lab.views.label_history import gather

        return gather(trace)
    except Exception:
        return None


def _scene(
    trace: Trace,
    findings: Sequence[Finding],
    offered: Iterable[Change] = (),
    facts: Facts | None = None,
    *,
    first: bool = False,
) -> dict[str, Any]:
    """The pictures' data.

    Without it the Explorer still shows the code and the text, so a failure here costs only pictures.
    """
    try:
        from pitfall_lab import views

        scene = {
            key: value for key, value in views.scene(trace, findings, facts, first=first).items() if key not in UNSENT
        }
        scene["events"] = [{"step": event["step"], "sentence": event["sentence"]} for event in scene["events"]]
        scene["changes"] = _named(offered)
    except Exception:
        return {}
    return scene


def packed(scene: dict[str, Any]) -> bytes:
    """Return a scene in the form in which it is sent to the browser."""
    return deflated(json.dumps(scene, ensure_ascii=False, separators=(",", ":")))


def _named(offered: Iterable[Change]) -> list[dict[str, Any]]:
    return [{"id": c.id, "title": {"en": c.title.en, "zh": c.title.zh}} for c in offered]


def _static(trace: Trace, findings: Sequence[Finding], language: Language, facts: Facts | None) -> dict[str, str]:
    try:
        from pitfall_lab import views

        listed = "".join(f"\n{each.rule} {each.name}: {each.message.say(language)}" for each in findings)
        return {
            "text/html": views.page(trace, findings, language, facts=facts),
            "text/plain": views.text(trace, facts=facts) + listed,
        }
    except Exception:
        return {"text/plain": f"Explorer of {len(trace.events)} events"}
