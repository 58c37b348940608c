"""Where checked programs run: forks of one worker process (:mod:`pitfall_lab.check.worker`), never this one.
:class:`Workshop` starts it and returns what a run found.
"""

# ruff: noqa: PLC0415 - the parent process compares no facts and stays small: the worker imports them

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from pitfall_lab import processes
from pitfall_lab.rules import Finding
from pitfall_lab.trace import T, Trace

if TYPE_CHECKING:
    from pitfall_lab.check.improvement import RunFacts

TIMEOUT = 60.0
VALUE_LIMIT, LARGE_VALUE_LIMIT = 4096, 1 << 22
"""The values of tensors with at most this many elements are modelled; the second limit is
for finding wrong gradients.
"""
NO_NUMBERS = -1
"""The value limit with which no values are modelled."""
EVENT_LIMIT = 20_000
"""The default limit of recorded events; later calls are counted but not observed."""
START_SECONDS = 120.0
PATIENCE = 10
"""On a machine that is busy with other work a run is ended only after this multiple of its time limit."""
THIS = "# ── this cell ──"
AGAIN = "# ── again: "
"""The comment line put above a cell, below the definitions it uses; it marks the cell's first line after a fix has
moved it. ``AGAIN`` begins the line above an earlier cell that is run again before it.
"""
NEVER = "\0never\n"
"""The beginning of a result that says why nothing can be observed."""
_WORKER = processes.ours("pitfall_lab.check.worker")


class Unchecked(Exception):
    """The program could not be checked, or not to its end.

    The message gives the reason in a sentence or two (``said``: in English and Chinese), and ``kind`` the same reason
    as a keyword for programs. ``line`` is the line that it is about (None: none), ``file`` another file that it is
    about (empty: none). ``findings`` are those found until then.
    """

    def __init__(self, kind: str, sentence: str | T, line: int | None = None, *, file: str = "") -> None:
        self.said = T(sentence, sentence) if isinstance(sentence, str) else sentence
        super().__init__(self.said.en)
        self.kind, self.line, self.file = kind, line, file
        self.findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A program to run: ``source`` is its text, ``name`` its name in reports, ``path`` its path (``None`` for a text),
    and ``argv`` its arguments.

    ``prelude`` is code that is run before it, unobserved: the imports that a notebook cell takes from earlier cells
    (:func:`pitfall_lab.check.prelude`). ``carried`` is the path of the file with the values that it takes from there
    (:mod:`pitfall_lab.observe.carry`; empty: none). ``forgiven`` are ranges of lines (first, last) that may raise:
    cells tagged so.
    """

    source: str
    name: str
    path: str | None = None
    argv: tuple[str, ...] = ()
    prelude: str = ""
    forgiven: tuple[tuple[int, int], ...] = ()
    carried: str = ""

    @property
    def folder(self) -> str:
        """The first entry of ``sys.path``: the file's folder, as for ``python FILE``; for a text the current folder."""
        return str(Path(self.path).parent if self.path else Path.cwd())


@dataclass(eq=False)
class Workshop:
    """Runs subjects in forks of one worker process; a context manager, because that process has to end.

    Settings: ``timeout`` is in seconds for each run, ``memory`` in MiB that a run may take beyond what torch itself
    needs (``None``: no limit), ``steps`` the maximal number of observed calls, ``every_round``: whether rounds of loops
    that repeat what was recorded are recorded as well; if not, they are while the trace has fewer than ``after`` steps.
    ``behind``: the worker imports torch with low priority, and Ctrl-C is not meant for it: it belongs to a notebook's
    kernel.

    Results: ``said``: the first 1 MiB that the last run printed, with its warnings; ``printed``: the same of the last
    run other than a witness run. Of the last traced run: ``was_large``: it had storages of more than ``VALUE_LIMIT``
    elements; ``was_opened``: it could write memory without a change of version; ``needs_values``: a run with values is
    needed to find or describe mistakes; ``again``: the calls (from, to) that another run should record in full, because
    the program ended with an error there, or a gradient became infinite or NaN, in rounds that were not recorded (None:
    there are none); ``found``: a trace and what the rules found in it, where they were asked already (else None).
    Of the last traced run or that for :meth:`facts`, ``spoiled``: it saw numbers that are not finite.
    """

    timeout: float = TIMEOUT
    memory: int | None = None
    steps: int = EVENT_LIMIT
    every_round: bool = True
    after: int = 0
    behind: bool = False
    printed: str = field(default="", init=False)
    said: str = field(default="", init=False)
    was_large: bool = field(default=False, init=False)
    was_opened: bool = field(default=False, init=False)
    needs_values: bool = field(default=False, init=False)
    spoiled: bool = field(default=False, init=False)
    again: tuple[int, int] | None = field(default=None, init=False)
    found: tuple[Trace, list[Finding]] | None = field(default=None, init=False)
    _worker: processes.Popen[str] | None = field(default=None, init=False)
    folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)
    _jobs: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory(prefix="pitfall-lab-")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            assert self._worker.stdin is not None
            assert self._worker.stdout is not None
            self._worker.stdin.close()
            try:
                self._worker.wait(timeout=2)
            except processes.TimeoutExpired:
                self._worker.kill()
                self._worker.wait()
            self._worker.stdout.close()
        if self.folder is not None:
            self.folder.cleanup()

    def trace(
        self,
        subject: Subject,
        *,
        value_limit: int = VALUE_LIMIT,
        whole: bool = True,
        inside: tuple[int, int] | None = None,
        closely: bool = False,
    ) -> Trace:
        """Run ``subject`` on torch and the shadow engine and return the trace. Values of tensors with at most
        ``value_limit`` elements are modelled (:data:`NO_NUMBERS`: of none).

        Raises :class:`Unchecked` if the run did not end by itself, or could not be observed.

        From the call ``inside[0]`` on up to ``inside[1]`` (counted from 0), every round of a loop is recorded. With
        ``closely``, it is noted where each number that is not finite comes from. A trace of a program that finished and
        in which no rule finds anything is returned without its events, unless ``whole``: that saves much of the time.
        """
        head, _, trace = self._run(
            "trace", subject, value_limit=value_limit, whole=whole, inside=inside, closely=closely
        ).partition("\n")
        seen = json.loads(head)
        self.was_large, self.was_opened, self.needs_values = seen["large"], seen["opened"], seen["needs_values"]
        self.again, self.spoiled = seen["again"], seen["spoiled"]
        return Trace.from_json(trace)

    def facts(self, subject: Subject) -> RunFacts:
        """Run ``subject`` on torch and the shadow engine; return its findings, error and disagreements.

        Raises :class:`Unchecked` if the run did not end by itself, or could not be observed.
        """
        from pitfall_lab.check.improvement import RunFacts

        head, _, facts = self._run("facts", subject).partition("\n")
        self.spoiled = json.loads(head)["spoiled"]
        return RunFacts.from_json(json.loads(facts))

    def warm(self) -> None:
        """Start the worker now, in the background: it takes as long as importing torch.

        Nothing happens if it runs, or where there is no ``fork``.
        """
        if self._worker is None and hasattr(os, "fork"):
            self._start()

    def interrupt(self) -> None:
        """Called from another thread: kill the worker; the current run raises :class:`Unchecked`, the
        next one starts a new worker.
        """
        if (worker := self._worker) is not None:
            worker.kill()

    def witness(self, subject: Subject, *, meant: bool = False) -> dict[str, Any]:
        """Run ``subject`` on plain torch and return what it computed (:mod:`~pitfall_lab.verify.experiments.witness`).

        With ``meant``, saved tensors are cloned, so that later writes do not change them. Raises :class:`Unchecked` if
        the run did not end by itself, or wrote no result.
        """
        return cast("dict[str, Any]", json.loads(self._run("meant" if meant else "witness", subject)))

    def output(self, subject: Subject) -> str:
        """Run ``subject`` on plain torch and return what it printed, with the last line of its error.

        Raises :class:`Unchecked` if the run did not end by itself.
        """
        self._run("run", subject)
        return self.printed

    def _run(
        self,
        kind: str,
        subject: Subject,
        *,
        value_limit: int = VALUE_LIMIT,
        whole: bool = True,
        inside: tuple[int, int] | None = None,
        closely: bool = False,
    ) -> str:
        assert self.folder is not None
        self._jobs += 1
        result = Path(self.folder.name) / f"{self._jobs}.json"
        job = {
            "kind": kind,
            "source": subject.source,
            "name": subject.name,
            "path": subject.path,
            "folder": subject.folder,
            "pythonpath": os.environ.get("PYTHONPATH", ""),
            "argv": list(subject.argv),
            "prelude": subject.prelude,
            "carried": subject.carried,
            "result": str(result),
            "timeout": self.timeout,
            "value_limit": value_limit,
            "whole": whole,
            "forgiven": list(subject.forgiven),
            "memory": self.memory,
            "steps": self.steps,
            "every_round": self.every_round,
            "after": self.after,
            "inside": inside,
            "closely": closely,
        }
        ending = self._request(job) if hasattr(os, "fork") else _run_once(job)
        self.said = ending.get("output", "")
        if kind in ("trace", "facts", "run"):
            self.printed = self.said
        if ending["status"] == "exit" and ending["code"] == 0 and result.exists():
            text = result.read_text(encoding="utf-8")
            if text.startswith(NEVER):
                raise _unobservable(subject.name, *text.removeprefix(NEVER).split("\n", 1))
            return text
        raise _ended_badly(subject, ending, self.timeout)

    def _lost(self, name: str) -> Unchecked:
        """The error for a worker that has died; the next run starts a new one."""
        assert self._worker is not None
        self._worker.kill()
        code = self._worker.wait()
        for stream in (self._worker.stdin, self._worker.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()
        self._worker = None
        if code == 1:  # it raised while starting: the error is on standard error
            return Unchecked(
                "WorkerError",
                "The process that runs checked programs could not start; is torch installed and importable?",
            )
        return Unchecked("Crash", f"{name} ended the process that was running it, so it could not be checked.")

    def _start(self) -> None:
        words = [*_WORKER, "--behind"] if self.behind else _WORKER
        pipes = {"stdin": processes.PIPE, "stdout": processes.PIPE}
        self._worker = processes.start(words, **pipes, variables=_environment(), start_new_session=self.behind)

    def _request(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._worker is None:
            self._start()
        assert self._worker is not None
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        try:
            self._worker.stdin.write(json.dumps(job) + "\n")
            self._worker.stdin.flush()
            ready, _, _ = select.select([self._worker.stdout], [], [], PATIENCE * job["timeout"] + START_SECONDS)
            answer = self._worker.stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise self._lost(job["name"])
        return cast("dict[str, Any]", json.loads(answer))


def _environment() -> dict[str, str]:
    """Environment variables of checked programs: no plot windows, UTF-8 text, and torch threads
    that do not spin while waiting.

    A recorded program calls torch so rarely that spinning threads would waste the processor, and
    several programs run at once.
    """
    closed = {"MPLBACKEND": "Agg", "QT_QPA_PLATFORM": "offscreen", "BROWSER": "true"}
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **closed, "PYTHONIOENCODING": "utf-8"}


def _run_once(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job in a process that is started for it alone, where there is no ``fork``; return how it
    ended, as :mod:`.worker` answers.
    """
    try:
        done = processes.run(
            [*_WORKER, "--once"],
            input=json.dumps(job) + "\n",
            stdout=processes.PIPE,
            stderr=processes.STDOUT,
            errors="replace",
            timeout=job["timeout"] + 30,
            variables=_environment(),
        )
    except processes.TimeoutExpired:
        return {"status": "timeout", "code": 0}
    return {
        "status": "exit" if done.returncode >= 0 else "signal",
        "code": abs(done.returncode),
        "output": done.stdout[: 1 << 20],
    }


def _unobservable(name: str, version: str, reason: str) -> Unchecked:
    en = (
        f"{name} was not observed, so it could not be checked: pitfall_lab cannot watch programs with "
        f"{version} ({reason})."
    )
    return Unchecked(
        "Unobservable",
        T(en=en, zh=f"{name} 没有被观察，无法检查：pitfall_lab 无法在 {version} 上观察程序（{reason}）。"),
    )


def _ended_badly(subject: Subject, ending: dict[str, Any], limit: float) -> Unchecked:
    name, code = subject.name, ending["code"]
    if ending["status"] == "timeout":
        return Unchecked(
            "Timeout", f"{name} did not end within {limit:g} s and was stopped; allow more with --timeout."
        )
    if ending["status"] == "signal":
        try:
            what = signal.Signals(code).name
        except ValueError:
            what = f"signal {code}"
        return Unchecked("Crash", f"{name} crashed its process ({what}), so it could not be checked.")
    return Unchecked("Exit", f"{name} ended its own process with exit code {code} before it could be checked.")
