"""Pictures of a trace: one folder per view, each a pure projection with a static picture.

``scene`` gathers all projections for the browser, ``page`` makes self-contained HTML that works without scripts and
without a kernel, ``text`` is the same as plain text. Positions are computed here, once, on the finished trace.

A view is a folder with ``project(trace, facts) -> dict``; folders are found, not listed.
"""

# ruff: noqa: PLC0415 - a scene needs no page: what draws pages is imported by those who ask for one

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any, Literal, NotRequired, TypedDict

from pitfall_lab.trace import Language, T, Trace
from pitfall_lab.trace.extent import headline, stop
from pitfall_lab.trace.slice import behind_failures, failures, story
from pitfall_lab.trace.state_types import Text
from pitfall_lab.trace.text import excerpt
from pitfall_lab.views.folds import Fold, folds
from pitfall_lab.views.help import Help, texts
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.runs import LineRuns, runs
from pitfall_lab.views.stories import DAMAGED, StoryScene, fixes, stories
from pitfall_lab.views.two_languages import in_two_languages
from pitfall_lab.views.worth import Notable, notable

__all__ = ["fragment", "later_stories", "names", "page", "rest", "scene", "text"]


class SceneEvent(TypedDict):
    """A step in a sentence; ``matters`` if a failure or a finding depends on it.
    A look at live tensors has no lines.
    """

    step: int
    sentence: Text
    line: NotRequired[int | None]
    code: NotRequired[str]
    matters: NotRequired[bool]


class Jumps(TypedDict):
    """The steps to which the key E jumps."""

    saved: list[int]
    changed: list[int]
    raised: list[int]


class FailedScene(TypedDict):
    """A view that raised: the type of its error."""

    failed: str


class Trials(TypedDict):
    """How many fixes have been tried; ``said`` is why they cannot be."""

    state: Literal["trying", "done", "stopped", "failed", "refused"]
    done: int
    total: int
    said: Text | None


class Offered(TypedDict):
    """A change of the program that the reader can let be tried: the ``id`` by which the browser requests it, and its
    title.
    """

    id: str
    title: Text


class CommonScene(TypedDict, total=False):
    """What is drawn beside the views: sentences, display names, findings, the headline, and why observation stopped."""

    events: list[SceneEvent]
    names: dict[str, str]
    stories: list[StoryScene]
    head: Text | None
    why: Text | None
    worth: list[Notable]
    help: Help
    palette: list[str]
    story: list[int]
    jumps: Jumps
    touched: dict[str, list[int]]
    folds: list[Fold]
    runs: LineRuns
    changes: list[Offered]
    trying: bool
    trials: Trials


def names() -> tuple[str, ...]:
    """The views, in alphabetical order: every folder of this package."""
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if m.ispkg))


def scene(
    trace: Trace, findings: Iterable[Any] = (), facts: Facts | None = None, *, first: bool = False
) -> dict[str, Any]:
    """Everything the browser needs to draw ``trace``, as JSON-able data; ``facts`` may be given if they exist already.

    With ``first``, views that have an ``outline(trace, facts) -> dict | None`` give that instead of their whole
    picture, unless it is None, so that something is shown soon; :func:`rest` returns the pictures left out. A view that
    raises is replaced by ``{"failed": its error's type}``, so that the others are still shown. ``worth`` is empty if
    there are stories (of findings, or of the error that ended the program).
    """
    found = list(findings)
    facts = facts or gather(trace)
    plain = [in_two_languages(finding) for finding in found]
    out: dict[str, Any] = {name: _project(name, facts, first=first) for name in names()}
    steps = [s for finding in plain for s in _steps(finding)]
    matters = behind_failures(trace) | set(steps)
    out["events"] = [
        {
            "step": e.step,
            "sentence": {"en": t.en, "zh": t.zh},
            "line": e.span.line if e.span else None,
            "code": excerpt(trace, e.span),
            "matters": e.step in matters,
        }
        for e, t in zip(trace.events, facts.sentences(), strict=True)
    ]
    facts.called(None)
    out["names"] = facts.names
    out["stories"] = stories(facts, plain)
    out["head"], out["why"] = _said(headline(trace)), _said(stop(trace))
    out["worth"] = [] if out["stories"] else _worth(facts)
    out["help"] = texts()
    out["palette"] = _palette(facts, out["stories"])
    out["memory"] = _with_bands(facts, out["memory"], out["stories"])
    out["story"] = list(story(trace, steps))
    out["jumps"] = _jumps(trace)
    out["touched"] = _touched(facts)
    out["folds"] = folds(trace)
    out["runs"] = runs(trace)
    return out


def _worth(facts: Facts) -> list[Notable]:
    try:
        return notable(facts)
    except DAMAGED:
        return []


def rest(facts: Facts) -> dict[str, Any]:
    """The pictures of a scene for which :func:`scene` gave only an outline, by view; empty if there are none."""
    wanted = [name for name in names() if f"{__name__}.{name}" in facts.outlined]
    for name in wanted:
        del facts.drawn[f"{__name__}.{name}"]
    facts.outlined.clear()
    return {name: _project(name, facts) for name in wanted}


def later_stories(trace: Trace, findings: Iterable[Any], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stories ``before`` (as :func:`scene` returns them) with the explanations and fixes of ``findings``.

    ``findings`` are the same findings after their fixes were tried. If their rules, in order, are not those of the
    stories, all stories are made anew.
    """
    plain = [in_two_languages(finding) for finding in findings]
    if [one["rule"] for one in plain] != [one["rule"] for one in before]:
        return [{**story} for story in stories(gather(trace), plain)]
    return [
        {**story, "explanation": finding.get("explanation") or "", "fixes": fixes(trace, finding)}
        for story, finding in zip(before, plain, strict=True)
    ]


def page(
    trace: Trace, findings: Iterable[Any] = (), language: Language = "en", *, key: str = "", facts: Facts | None = None
) -> str:
    """A complete HTML document on a trace and its findings: code with marks, storyboard, pictures, explanation, a
    stepper without scripts.

    ``key`` sets the prefix of the ids in it (random when empty), so that several pages can be in one notebook.
    """
    from pitfall_lab.views.document import render

    return render(trace, list(findings), language, key, facts)


def fragment(trace: Trace, findings: Iterable[Any] = (), language: Language = "en", *, key: str = "") -> str:
    """The content of :func:`page` as one ``<div>`` with its own stylesheet, for inclusion in another page (a notebook's
    output). ``key`` is the prefix of the ids in it (random when empty).
    """
    from pitfall_lab.views.document import fragment as render

    return render(trace, list(findings), language, key)


def text(trace: Trace, language: Language = "en", facts: Facts | None = None, *, labels: bool = False) -> str:
    """The trace as plain text: source, steps as sentences, storages, counters, outcome.

    With ``labels``, tensors and storages also have the labels of the trace (``t2``, ``S1``).
    """
    from pitfall_lab.views.plain_text import render

    return render(trace, language, facts, labels=labels)


def _palette(facts: Facts, shown: list[StoryScene]) -> list[str]:
    """The storages that get a colour: the first six of the first finding, or those of the facts if it has none."""
    return [*dict.fromkeys(storage for story in shown[:1] for storage in story["slice"]["storages"])][
        :6
    ] or facts.palette


def _with_bands(facts: Facts, drawn: dict[str, Any], shown: list[StoryScene]) -> dict[str, Any]:
    """The picture of memory, drawn again if a storage of a finding has no band in it, so that each has one."""
    from pitfall_lab.views.memory import project

    wanted = {storage for story in shown for storage in story["slice"]["storages"]}
    if not drawn.get("others") or wanted <= {band["id"] for band in drawn["bands"]}:
        return drawn
    return dict(project(facts.trace, facts, wanted))


def _said(text: T | None) -> Text | None:
    return None if text is None else {"en": text.en, "zh": text.zh}


def _project(name: str, facts: Facts, *, first: bool = False) -> dict[str, Any]:
    try:
        drawn: dict[str, Any] = facts.projected(importlib.import_module(f"{__name__}.{name}"), first=first)
    except Exception as error:
        return {"failed": type(error).__name__}
    return drawn


def _steps(finding: dict[str, Any]) -> list[int]:
    steps = [related.get("step") for related in finding.get("related", [])] + [finding.get("step")]
    return [step for step in steps if isinstance(step, int)]


def _jumps(trace: Trace) -> Jumps:
    """The steps to which the key E jumps, for the first error of a backward and the first silently wrong gradient.

    They are the steps that saved a tensor, changed it, and raised (or computed the wrong value); an entry without steps
    is empty.
    """
    saved: set[int] = set()
    changed: set[int] = set()
    raised: set[int] = set()
    for failure in failures(trace)[:1]:
        saved |= {failure.saved_at} if failure.saved_at is not None else set()
        changed |= set(failure.changed_at)
        raised |= {failure.step} if failure.step is not None else set()
    for harm in trace.harms[:1]:
        saved |= {c.saved_at for c in harm.causes if c.saved_at is not None}
        changed |= {s for c in harm.causes for s in c.changed_at}
        raised.add(harm.step)
    return {"saved": sorted(saved), "changed": sorted(changed), "raised": sorted(raised)}


def _touched(facts: Facts) -> dict[str, list[int]]:
    """For each storage, the steps of events that wrote it, or that had a tensor on it as operand or result."""
    home: dict[str, list[str]] = {}
    for storage, labels in facts.in_storage.items():
        for label in labels:
            home.setdefault(label, []).append(storage)
    out: dict[str, list[int]] = {}
    for event in facts.trace.events:
        labels = [o.label for o in event.operands if o.label] + list(event.results)
        for storage in sorted({s for label in labels for s in home.get(label, ())} | set(event.writes)):
            out.setdefault(storage, []).append(event.step)
    return out
