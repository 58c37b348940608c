"""``with pitfall_lab.watching():``, which checks a part of a script or test while it runs (:class:`watching`)."""

# ruff: noqa: PLC0415 - a conftest may import this before torch: the recorder comes when a test is watched

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from pitfall_lab.check.ignores import without_ignored
from pitfall_lab.check.settings import near
from pitfall_lab.check.terminal import Paint, Style, report, wants_colours
from pitfall_lab.rules import Finding, find
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.trace import Language, Trace

NESTED = T(
    en="pitfall_lab.watching: this part is watched already, by what is around it; the report will be there.",
    zh="pitfall_lab.watching：外层已经在观察这一部分；报告会在那里给出。",
)


class watching:  # noqa: N801 - read as a word: with watching():
    """Record the calls to torch in the ``with`` block, and report at its end what was found.

    The report goes to standard error, or to ``file``, in ``language``. Rounds of a training loop that repeat what was
    recorded before are not recorded, which the report says. Nothing is run a second time, so no fix is tried. ``steps``
    is the maximal number of recorded steps. Afterwards ``findings`` are those that settings and ignore comments do not
    leave out, ``trace`` is the recording, and ``text`` the report. An error in the block is explained, and raised.
    Inside another such block nothing is recorded: ``findings`` stay empty and ``trace`` None.

    >>> import io, torch
    >>> with watching(file=io.StringIO()) as watched:
    ...     loss = torch.nn.functional.mse_loss(torch.zeros(3, 1), torch.zeros(3))
    >>> [finding.rule for finding in watched.findings]
    ['PL401']
    """

    findings: tuple[Finding, ...] = ()
    trace: Trace | None = None
    text = ""

    def __init__(self, *, steps: int | None = None, file: TextIO | None = None, language: Language = "en") -> None:
        self._limit, self._file, self._language = steps, file, language
        self._name = ""

    def __enter__(self) -> Self:
        from pitfall_lab.check.workshop import EVENT_LIMIT
        from pitfall_lab.observe.recorder import is_watched
        from pitfall_lab.observe.rounds import Sampling
        from pitfall_lab.verify import Session

        self._session: Session | None = None
        if is_watched():
            self._say(NESTED.say(self._language) + "\n")
            return self
        frame = sys._getframe(1)  # noqa: SLF001 - the block is there
        file = frame.f_code.co_filename
        self._name, text = Path(file).name, "".join(linecache.getlines(file, frame.f_globals))
        self._path, self._source = Path(file), text
        self._session = Session(file, self._name, text, limit=self._limit or EVENT_LIMIT, sampling=Sampling())
        self._session.begin(frame.f_back)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        session.__exit__(kind, error, traceback)
        if session.is_forked:
            return
        with session.aside():
            self.trace = session.finish(error)
            self.findings = tuple(self._found(self.trace))
            stream = self._file or sys.stderr
            self.text = report(
                self._name, self.trace, self.findings, Style(self._language, Paint(colours=wants_colours(stream)))
            )
            self._say(self.text)

    def _found(self, trace: Trace) -> Sequence[Finding]:
        settings = near(self._path)
        chosen = [finding.with_fixes(()) for finding in find(trace) if settings.wants(finding.rule, self._path)]
        kept, _ = without_ignored(chosen, self._source, wanted=lambda _: True, complete=False)
        return sorted(kept, key=lambda finding: finding.severity == "info")

    def _say(self, text: str) -> None:
        print(text, end="", file=self._file or sys.stderr, flush=True)
