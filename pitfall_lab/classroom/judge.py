"""Deciding what a cell is worth, from data: the learner's code runs elsewhere (:mod:`pitfall_lab.classroom.room`).
:func:`judged` returns the :class:`CellOutcome` of a cell.
"""

# ruff: noqa: PLC0415 - the commands for teachers start fast: each imports what it needs

from __future__ import annotations

import atexit
import contextlib
import json
import os
import random
import select
import signal
import tempfile
import textwrap
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, Self

from pitfall_lab import processes
from pitfall_lab.classroom import grading_budget as budget
from pitfall_lab.classroom import kernel, submissions
from pitfall_lab.classroom.submissions import same
from pitfall_lab.classroom.unneeded import LONGEST as SHOWN
from pitfall_lab.classroom.unneeded import unneeded
from pitfall_lab.lessons.attempt import Observation, Problem, Request
from pitfall_lab.lessons.credit import had as _had
from pitfall_lab.lessons.credit import had_beside, share, why_nothing
from pitfall_lab.lessons.credit import idle as _idle
from pitfall_lab.lessons.exercise import Exercise, Result, Runner, grade
from pitfall_lab.trace import T

Status = Literal[
    "solved",
    "partly",
    "failed",
    "unsolved",
    "missing",
    "error",
    "timeout",
    "memory",
    "output",
    "exit",
    "crash",
    "tampered",
    "ungraded",
]
START_SECONDS = 180.0
LONGEST = 600
"""Characters of a reason."""
MOST_PARTS = 1_000_000
"""Lists and objects of a report: what is observed of an exercise has a few thousand."""
PATIENCE = 20
"""The judge waits for the room for more than this multiple of a run's time limit: longer than the
room itself waits for a run.
"""

SAYS: dict[str, T] = {
    "solved": T(en="every property holds", zh="所有性质都成立"),
    "partly": T(en="some properties hold", zh="部分性质成立"),
    "failed": T(en="no property holds", zh="没有性质成立"),
    "unsolved": T(en="the cell is unchanged", zh="单元格与原题相同"),
    "missing": T(en="there is no such cell", zh="没有这个单元格"),
    "error": T(en="it raises an error", zh="它抛出错误"),
    "timeout": T(en="it did not end in time and was stopped", zh="没有在限定时间内结束，已被终止"),
    "memory": T(en="it needed more memory than it may have", zh="请求的内存超过上限"),
    "output": T(
        en="it printed more than it may, or wrote more into files, and was stopped",
        zh="输出或写入文件的内容超过上限，已被终止",
    ),
    "exit": T(en="it ended its own process", zh="它结束了自己的进程"),
    "crash": T(en="it crashed its process", zh="它使进程崩溃"),
    "tampered": T(
        en="it reached for what observes it, or replaced a function of torch or of the grader: no marks",
        zh="它试图接触观察它的代码，或替换了 torch 或评分程序的函数：不计分",
    ),
    "ungraded": T(
        en="the grader itself failed here; look at the cell yourself", zh="评分程序本身在此出错；请人工查看此单元格"
    ),
}
"""What each verdict about a cell means."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one cell may cost: ``timeout`` in seconds for all its runs together, and for each run ``memory`` in MiB
    beyond what torch needs.

    Seconds in which a run waits for a processor that does something else are not counted. ``draw`` is added to the
    seeds of what cells are tried on: 0 are the numbers of the notebook, which students can read off.
    """

    timeout: float = 10.0
    memory: int = 1024
    draw: int = 0


@dataclass(frozen=True, slots=True)
class JudgedProperty:
    """One property of an exercise, judged for one answer. Texts are in English and Chinese.

    ``sentence`` says what has to hold, ``holds`` whether it does, ``had`` whether it holds for the given cell,
    ``reason`` why it does not hold (two empty texts if it does, or nothing is known). ``idle``: it holds for an answer
    that does nothing at all, too.
    """

    sentence: tuple[str, str]
    holds: bool
    had: bool = False
    reason: tuple[str, str] = ("", "")
    idle: bool = False


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """What one cell was worth.

    ``key`` is the exercise, ``status`` how the cell ended, ``marks`` its judged properties. ``detail`` is half a
    sentence on how it ended, such as the error, the limit or what was tampered with (empty: nothing to say),
    ``seconds`` how long grading took, ``source`` the cell (a long one is cut). ``skipped`` is what has a meaning in a
    notebook only, as the cell has it: ``%time``, ``!ls``.
    ``unneeded`` are words of a cell with points that no exercise needs: :mod:`pitfall_lab.classroom.unneeded`.
    """

    key: str
    status: Status
    marks: tuple[JudgedProperty, ...] = ()
    detail: str = ""
    seconds: float = 0.0
    source: str = ""
    skipped: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Cut the detail, whatever it comes from: names that a cell has made up may have millions of letters."""
        object.__setattr__(self, "detail", _cut(self.detail))

    @property
    def held(self) -> int:
        """Return the number of properties that hold."""
        return sum(mark.holds for mark in self.marks)

    @property
    def credit(self) -> float:
        """The fraction of the points that the answer earns: :mod:`pitfall_lab.lessons.credit`."""
        if self.status == "solved":
            return 1.0
        return share((mark.holds, mark.had, mark.idle) for mark in self.marks)

    @property
    def why_nothing(self) -> T | None:
        """Why the answer earns nothing though properties hold that the given cell lacks; None if there is nothing to
        explain.
        """
        return why_nothing(((mark.holds, mark.had) for mark in self.marks), self.credit)

    def says_detail(self, *, to_student: bool) -> bool:
        """Whether there is a detail to show to the teacher or, with ``to_student``, to the student: the detail of a
        failure of the grader itself is for the teacher alone, since it may name files.
        """
        return bool(self.detail) and not (to_student and self.status == "ungraded")

    def to_dict(self) -> dict[str, Any]:
        """The outcome as a dictionary that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CellOutcome:
        """The outcome from ``values``, a dictionary as :meth:`to_dict` returns it. For other data an error is raised,
        usually ``KeyError``, ``IndexError`` or ``TypeError``.
        """
        marks = tuple(
            JudgedProperty(_two(m["sentence"]), bool(m["holds"]), bool(m["had"]), _two(m["reason"]), bool(m["idle"]))
            for m in values["marks"]
        )
        lists = {name: tuple(map(str, values.get(name, ()))) for name in ("skipped", "unneeded")}
        return cls(**{**values, "marks": marks, **lists})


class RoomError(Exception):
    """The process in which submissions run cannot be used; the message is one sentence."""


@dataclass(eq=False)
class Room:
    """The judge's side of :mod:`pitfall_lab.classroom.room`, the process in which submissions run; a context manager,
    because that process has to end. It starts at the first run.

    ``fenced``: the kernel keeps cells from files, network and processes; ``hidden`` are folders that they may not read
    in any case.
    """

    fenced: bool = True
    hidden: tuple[str, ...] = ()
    _process: processes.Popen[str] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self, requests: Sequence[Request], limits: Limits, seconds: float) -> dict[str, Any]:
        """Run ``requests`` (cells with their checks) in a process of their own, for at most ``seconds``; return a dict
        with how that process ended: ``status``, ``code``, ``seconds``, ``output`` (what was printed) and ``report``
        (None if there is none). If the room twice gives no answer, the status is ``"signal"``.

        Raises :class:`RoomError` if the room cannot be started.
        """
        ipython = any(kernel.needed(request.cell) for request in requests)
        asked = [request.to_json() for request in requests]
        job = json.dumps({"requests": asked, "ipython": ipython, "timeout": seconds, "memory": limits.memory})
        for _ in range(2):  # a room that was lost is replaced once
            if self._process is None:
                self._start()
            assert self._process is not None
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(job + "\n")
                self._process.stdin.flush()
                if answer := self._answer(PATIENCE * (seconds + 4)):
                    found: dict[str, Any] = json.loads(answer)
                    return found
            self.end()
        return {"status": "signal", "code": signal.SIGKILL, "seconds": seconds, "output": "", "report": None}

    def forget(self) -> None:
        """End the process in which the present submission's cells run.

        The process for the next submission is a new fork, which has seen nothing of the present one.
        """
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
            if self._answer(START_SECONDS):
                return
        self.end()

    def _start(self) -> None:
        # C keeps them where a cell can read them, so there are none but those that Python needs.
        keep = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "TMPDIR", "PYTHONDONTWRITEBYTECODE")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment |= {
            "HOME": tempfile.gettempdir(),
            "OMP_NUM_THREADS": "1",
            "PYTHONIOENCODING": "utf-8",
            "LANG": "C.UTF-8",
        }
        # Torch refuses a backward in a process that was forked after one that started threads
        # for a GPU: the room has none.
        environment["CUDA_VISIBLE_DEVICES"] = ""
        command = processes.ours("pitfall_lab.classroom.room")
        self._process = processes.start(command, stdin=processes.PIPE, stdout=processes.PIPE, variables=environment)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"fenced": self.fenced, "hidden": self.hidden}) + "\n")
        self._process.stdin.flush()
        if self._answer(START_SECONDS) != "ready\n":
            self.end()
            raise RoomError("The process in which submissions run could not start; its reason is above.")

    def _answer(self, seconds: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return self._process.stdout.readline() if ready else ""

    def end(self) -> None:
        """End the process."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except processes.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@dataclass(eq=False)
class _Sitting:
    """Runs one cell for :func:`~pitfall_lab.lessons.exercise.grade`, within the cell's limits.

    After a run that was stopped, crashed or tampered with the grader, ``ended`` says so and nothing more is run.
    """

    room: Room
    limits: Limits
    chance: random.Random
    left: float = field(init=False)
    ended: Status | None = field(default=None, init=False)
    detail: str = field(default="", init=False)
    skipped: dict[str, None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.left = self.limits.timeout

    @property
    def is_tampered(self) -> bool:
        """Whether a run reached for the grader, or its report was forged or unreadable."""
        return self.ended == "tampered"

    def __call__(self, requests: Sequence[Request]) -> list[Observation]:
        """Run the requests and return their observations.

        If this run or an earlier one ended badly, each observation has nothing but that error, also as the value of
        every expression.
        """
        seen = self._seen(requests) if requests and self.ended is None else None
        if seen is not None:
            return seen
        gone = Problem("Stopped", SAYS[self.ended or "crash"].en)
        return [
            Observation(error=gone, in_cell=True, values=dict.fromkeys(request.expressions, gone))
            for request in requests
        ]

    def _seen(self, requests: Sequence[Request]) -> list[Observation] | None:
        """Run the requests and return their observations; None if the run ended badly, and then ``ended`` says how."""
        asked = [self._with_questions(request) for request in requests]
        answer = _bounded(self.room.run([request for request, _ in asked], self.limits, max(self.left, 0.1)))
        self.left -= answer["seconds"]
        if answer["status"] != "done":
            self.ended, self.detail = _ending(answer)
            if self.ended == "timeout":
                self.detail = f"the limit is {self.limits.timeout:g} s"
            return None
        try:
            report = json.loads(answer["report"])
            tampered = [str(name) for name in report["tampered"]]
            observed = [Observation.from_json(text) for text in report.get("observations", ())]
            self.skipped.update(
                dict.fromkeys(str(name)[:41] for name in report.get("skipped", ())[: kernel.MOST_SKIPPED])
            )
            for (request, known), seen in zip(asked, observed, strict="failed" not in report):
                tampered += [f"the answer to {e}" for e, value in known.items() if not _knows(seen, e, value)]
                assert set(seen.values) == set(request.expressions)
        except Exception:  # what the learner's process wrote may be anything at all
            self.ended, self.detail = "tampered", "the report of what was observed cannot be read"
            return None
        if tampered:
            self.ended, self.detail = "tampered", ", ".join(tampered[:5])
        elif (
            report.get("failed") == "MemoryError"
            or report.get("full")
            or any(seen.error and _out_of_memory(seen.error) for seen in observed)
        ):
            self.ended, self.detail = "memory", f"more than {self.limits.memory} MiB"
        elif any(seen.error and seen.error.type == "TooMuchOutput" for seen in observed):
            self.ended = "output"
        elif "failed" in report:
            self.ended, self.detail = "crash", f"what it left behind cannot be observed: {str(report['failed'])[:80]}"
        if self.ended is not None:
            return None
        return [
            replace(seen, values={e: seen.values[e] for e in request.expressions})
            for request, seen in zip(requests, observed, strict=True)
        ]

    def _with_questions(self, request: Request) -> tuple[Request, dict[str, Any]]:
        """The request with a few more expressions at random places, and the values of these
        expressions, which the judge knows.

        Wrong values show a forged report.
        """
        a, b = self.chance.randrange(2, 10**6), self.chance.randrange(2, 10**6)
        known: dict[str, Any] = {
            f"{a} * {b}": a * b,
            f"shares(__import__('torch').ones({a % 7 + 1}), __import__('torch').ones({b % 7 + 1}))": False,
            f"float(__import__('torch').full(({a % 5 + 1},), {b}.0).sum())": float((a % 5 + 1) * b),
            f"bool(__import__('torch').equal(__import__('torch').ones(2), __import__('torch').full((2,), {a}.0)))": False,  # noqa: E501
        }
        expressions = [*request.expressions]
        for question in known:
            expressions.insert(self.chance.randrange(len(expressions) + 1), question)
        return replace(request, expressions=tuple(expressions)), known


def _knows(seen: Observation, question: str, answer: Any) -> bool:
    """Whether the expression ``question`` was reported with the known value ``answer``; True
    also if the cell itself raised.
    """
    return seen.values[question] == answer or (seen.error is not None and seen.in_cell)


def _bounded(answer: dict[str, Any]) -> dict[str, Any]:
    """The room's answer; if its report has too many lists and objects, the same without the report, as status
    ``"report"``.

    Each list or object would take memory of this process once the report is parsed.
    """
    report = answer["report"] or ""
    return (
        answer
        if report.count("[") + report.count("{") <= MOST_PARTS
        else {**answer, "status": "report", "report": None}
    )


_TOO_MUCH = {"output": "print", "report": "report", "disk": "write into files"}


def _ending(answer: dict[str, Any]) -> tuple[Status, str]:
    if answer["status"] == "timeout":
        return "timeout", ""
    if answer["status"] == "forged":
        return "tampered", "something else was written into the report of what was observed"
    if answer["status"] in _TOO_MUCH:
        return "output", f"more than a run may {_TOO_MUCH[answer['status']]}"
    if answer["status"] == "signal":
        try:
            return "crash", signal.Signals(answer["code"]).name
        except ValueError:
            return "crash", f"signal {answer['code']}"
    return "exit", f"exit code {answer['code']}"


def _out_of_memory(problem: Problem) -> bool:
    return (
        problem.type == "MemoryError"
        or "can't allocate memory" in problem.message
        or "std::bad_alloc" in problem.message
    )


def judged(exercise: Exercise, source: str | None, room: Room, limits: Limits) -> CellOutcome:
    """Grade ``source`` as the answer to ``exercise``; ``None`` means that the submission has no such cell.

    Whatever the answer does when it runs, it raises nothing here: its outcome says how it ended. :class:`RoomError` is
    raised if the process for runs cannot be started.
    """
    blank = CellOutcome(
        exercise.key,
        "missing",
        tuple(
            JudgedProperty(_pair(prop.sentence), False, had)
            for prop, had in zip(exercise.properties, _had(exercise, limits.draw), strict=True)
        ),
    )
    if source is None:
        return blank
    blank = replace(blank, source=source if len(source) <= SHOWN else source[:SHOWN] + "\n…")
    if same(source, exercise.given):
        return replace(blank, status="unsolved")
    if len(source) > submissions.LONGEST:
        return replace(blank, status="error", detail=f"it has more than {submissions.LONGEST} characters")
    _raised(exercise, limits.draw)  # runs of our own cells are kept, and are not part of what this one costs
    sitting, started = _Sitting(room, limits, random.SystemRandom()), time.monotonic()
    try:
        with budget.within():
            result = grade(exercise, source, sitting, draw=limits.draw)
        blank = replace(blank, seconds=round(time.monotonic() - started, 2))
        if sitting.ended is None:
            had_beside(exercise, [mark.holds for mark in result.marks], limits.draw)  # kept, and no part of it either
        with budget.within():
            return _decided(exercise, source, sitting, result, blank)
    except budget.Spent:
        room.end()  # it may have been asked something, and its answer would be taken for the next one
        detail = f"it takes more than {budget.SECONDS:g} s to look at what it left"
        return replace(blank, status="ungraded", marks=(), detail=detail)


def _decided(exercise: Exercise, source: str, sitting: _Sitting, result: Result, blank: CellOutcome) -> CellOutcome:
    """Decide what an answer that was run is worth; ``blank`` is what it is worth where that cannot be decided."""
    if sitting.ended is not None:
        return replace(blank, status=sitting.ended, detail=sitting.detail)
    blank = replace(blank, skipped=tuple(sitting.skipped)[: kernel.MOST_SKIPPED])
    if result.error and result.error.type == "SystemExit":
        return replace(blank, status="exit", detail="SystemExit")
    found = _found(exercise, result, source, sitting, draw=sitting.limits.draw)
    if (
        sitting.is_tampered
    ):  # in the run that shows whether it depends on its input; any other end of that run does not count
        return replace(blank, status="tampered", detail=sitting.detail, skipped=())
    words = unneeded(source, (exercise.given, *exercise.right)) if found.credit else ()
    return replace(found, seconds=blank.seconds, source=blank.source, skipped=blank.skipped, unneeded=words)


def known(exercise: Exercise, source: str) -> CellOutcome:
    """Return what ``source`` is worth, an answer that comes with the course; it is trusted, so it runs in
    this process.
    """
    return replace(_found(exercise, grade(exercise, source), source), source=source)


def _found(exercise: Exercise, result: Result, source: str, *runner: Runner, draw: int = 0) -> CellOutcome:
    holds = [mark.holds for mark in result.marks]
    idle = _idle(exercise, source, holds, *runner, draw=draw)
    found = zip(result.marks, zip(had_beside(exercise, holds, draw), idle, strict=True), strict=True)
    marks = tuple(JudgedProperty(_pair(m.sentence), m.holds, had, _pair(m.reason), idle) for m, (had, idle) in found)
    held = sum(mark.holds for mark in marks)
    error = None if result.error and result.error.type == _raised(exercise, draw) else result.error
    status: Status = "solved" if held == len(marks) else "error" if error else "partly" if held else "failed"
    detail = textwrap.shorten(error.say().en if error else "", 300, placeholder=" …")
    return CellOutcome(exercise.key, status, marks, detail)


@cache
def _raised(exercise: Exercise, draw: int) -> str:
    """The type of the error that the exercise's first right answer raises (some tasks ask for an
    error); "" if it raises none.
    """
    error = grade(exercise, exercise.right[0], draw=draw).error
    return error.type if error else ""


def lacking(exercise: Exercise) -> int:
    """How many of the exercise's properties do not hold for the cell as it is given to students; at least 1."""
    return max(1, sum(not had for had in _had(exercise)))


def _pair(text: T | None) -> tuple[str, str]:
    """A text as a pair of its English and Chinese versions, each cut to ``LONGEST`` characters; ("", "") for None."""
    return (_cut(text.en), _cut(text.zh)) if text else ("", "")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def _two(values: Sequence[str]) -> tuple[str, str]:
    return str(values[0]), str(values[1])


# --- a whole submission ----------------------------------------------------------------------------------------------

_here = threading.local()


def sit(
    cells: dict[str, str], keys: Sequence[str], limits: Limits, *, fenced: bool, hidden: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Grade the cells of a submission and return one outcome for each of ``keys``, as :meth:`CellOutcome.to_dict` gives
    it.

    ``cells`` are the sources of the cells by the key of the exercise; a key without a cell is graded as missing. The
    cells run in another process, a :class:`Room` with these ``fenced`` and ``hidden``, which is kept for the next
    submission. Raises :class:`RoomError` if that process cannot be started.
    """
    from pitfall_lab.lessons.exercises import exercises

    room: Room | None = getattr(_here, "room", None)
    if room is None or (room.fenced, room.hidden) != (fenced, tuple(hidden)):
        if room is not None:
            room.end()
        room = _here.room = Room(fenced, tuple(hidden))
        atexit.register(room.end)
    outcomes = [_guarded(exercises()[key], cells.get(key), room, limits).to_dict() for key in keys]
    room.forget()
    return outcomes


def _guarded(exercise: Exercise, source: str | None, room: Room, limits: Limits) -> CellOutcome:
    """Grade the answer as :func:`judged` does; if grading itself raises (a bug of ours), the outcome is
    ``ungraded`` with the error.

    So one bug does not prevent the table of the whole class.
    """
    try:
        return judged(exercise, source, room, limits)
    except RoomError:
        raise
    except Exception as problem:
        detail = textwrap.shorten(f"{type(problem).__name__}: {problem}", 200, placeholder=" …")
        return CellOutcome(exercise.key, "ungraded", (), detail, source=source or "")
