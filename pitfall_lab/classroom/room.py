"""The process in which submissions run: it imports torch once and forks for every run. It does not have the answers.

Each run answers a few :class:`requests <pitfall_lab.lessons.attempt.Request>` about one cell in a process of its own,
behind the :mod:`fence <pitfall_lab.classroom.fence>`, in an empty folder that is its HOME. What the cell does is
observed there and sent back as data; which properties hold is decided by :mod:`pitfall_lab.classroom.judge` in another
process, which has the answers and never runs a line of the learner's.

The learner's code shares its process with what observes it. So the report begins with a word that is drawn for each
run, functions that were put in the place of torch's or ours are looked for before the report is written, and the judge
evaluates expressions to which it knows the answer. The documentation says how far that goes.
"""

# ruff: noqa: PLC0415 - imported once in the process from which the rooms are forked, so that no cell waits for it

from __future__ import annotations

import _thread
import bisect
import builtins
import contextlib
import dis
import gc
import importlib.util
import itertools
import json
import mmap
import operator
import os
import re
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pitfall_lab.check.worker import adopt_orphans, end_group, end_orphans, prctl, redirect
from pitfall_lab.classroom import guards, kernel, vocabulary
from pitfall_lab.classroom.fence import LARGEST, Fence, FenceError, limit, list_path, processor
from pitfall_lab.classroom.folders import emptied, is_overfull, removed, unlinked
from pitfall_lab.lessons.attempt import Look, Request, Steps, Where, driven, observe, observing

Job = dict[str, Any]
Space = tuple[str, Mapping[str, Any], list[str], list[Any], frozenset[str] | None]
"""A module's or class's names: its own name, the names as they are, those that are compared, their values,
and all where none may come.
"""
_NAME = "pitfall-lab-room-"
PRINTED = 4 << 20
"""Bytes that a run may write to its output; more of them end it."""
REPORTED = 32 << 20
"""Bytes that its report may have."""
WRITTEN, FILES = 64 << 20, 1000
"""Bytes and files that it may have in its folder; more of either end it."""
_RESERVE = 48 << 20
"""Bytes that are kept from the run, so that one which took all the memory it may have can still be reported."""
_POLL = 0.02
_NEEDED_IPYTHON = 2
"""How a process that has answered a submission ends where it had to import IPython."""
_SAID = 4096
"""Bytes of a sentence about a fence that could not be made."""
PATIENCE = 15
"""A run is ended after this multiple of its limit, plus as many seconds, of wall-clock time, even
if it waited for a processor.
"""
_EXAMPLE = """\
net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
for kind in (torch.optim.SGD, torch.optim.Adam):
    step = kind(net.parameters(), lr=0.1)
    step.zero_grad()
    F.mse_loss(net(torch.rand(4, 2)), torch.from_numpy(np.ones((4, 1), np.float32))).backward()
    step.step()
"""
"""Run once before anything else: torch imports parts of itself, and replaces functions of its own,
when an optimizer first steps.
"""
_WATCHED = (
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.autograd",
    "torch.optim",
    "torch.linalg",
    "numpy",
    "builtins",
    "json",
    "json.encoder",
    "io",
    "os",
    "re",
    "torch.optim.optimizer",
    "torch.optim.lr_scheduler",
)
_USED = (
    "ast",
    "contextlib",
    "copy",
    "dataclasses",
    "functools",
    "inspect",
    "linecache",
    "logging",
    "random",
    "traceback",
    "weakref",
    "torch.overrides",
)
"""Modules that the observer calls, and what takes frames: of these, and of all of ours,
the classes are compared too.
"""
"""Modules whose functions are compared afterwards, besides all of ours.

All of torch's would take as long as the run.
"""
_WHOLE = ("pitfall_lab.classroom.room", "pitfall_lab.classroom.kernel", "pitfall_lab.lessons.attempt")
"""Modules of which everything is compared, constants too."""


_SET = ("torch.Storage",)
"""Names that torch itself rebinds when the default dtype changes; the observer restores that
setting at the end of a run.
"""
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)+")
_CHANGING = {"__main__", "gc", "sys", "warnings"}
"""Modules whose functions change in any run: streams have hooks, warnings are kept, and the collector's ``set_debug``
is refused.
"""
_OBSERVER = ("pitfall_lab.lessons.", "contextlib.", "traceback.", "logging")
_OURS = ("pitfall_lab.lessons.", "pitfall_lab.classroom.")
"""What observes and reports: its instructions are compared as well."""
_CLASSES_OF = (
    "torch.nn.modules.",
    "torch.optim.",
    "torch.utils.data.dataset",
    "torch.utils.data.dataloader",
    "torch.utils.data.sampler",
    "torch.utils._contextlib",
    "torch.autograd.",
    "torch.amp.",
    "torch.nn.utils.",
    "torch.nn.parameter",
    "torch.distributions.",
)
"""Modules of torch's of whose classes the methods are compared: an exercise's own program uses them."""
_NEAR = (
    "builtins",
    "json",
    "numpy",
    "torch",
    "torch.Tensor",
    "torch.nn.functional",
    "contextlib",
    "traceback",
    "linecache",
    "sys.modules",
    "torch.Module",
    "torch.Parameter",
    "torch.Optimizer",
    "torch.linalg",
    "torch.autograd",
    "itertools",
    "operator",
    "types",
    "random",
    "re",
    "io",
    "math",
)
"""What expressions and the observer itself use, which is compared whenever code of the learner's has
run; everything is at the end.
"""


def main() -> None:
    """Serve one job per line of standard input, ``{"requests", "ipython", "timeout", "memory"}``; answer each with a
    line.

    An empty line ends a submission. The first line is ``{"fenced", "hidden"}``. ``ipython``: the cells may have syntax
    of IPython.
    """
    jobs = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the learner's code prints must not mix with the answers
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the judge
    adopt_orphans()
    _sweep()
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    except OSError as problem:
        sys.exit(f"There can be no folder for a submission in {tempfile.gettempdir()}: {problem.strerror}.")
    try:
        _serve(_fenced(folder), folder, jobs, answers)
    except FenceError as problem:
        sys.exit(f"Submissions cannot be run here: {problem}")
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        _remove(folder)


def _fenced(folder: Path) -> Fence | None:
    """The fence, made by a process that ends at once; None if the settings ask for no fence.

    A cell can read all memory of its process, and freed memory is not erased. So the process from which all others are
    forked never reads the first line, which names the teacher's folders: it gets the finished rules as an open file.
    Raises :class:`FenceError` if the fence cannot be made.
    """
    ours, theirs = socket.socketpair()
    helper = os.fork()
    if helper == 0:
        try:
            prctl(1, signal.SIGKILL)
            with os.fdopen(os.dup(0), encoding="utf-8") as line:
                settings = json.loads(line.readline())
            made = [Fence(folder, [Path(path) for path in settings["hidden"]])] if settings["fenced"] else []
            socket.send_fds(theirs, [b"made" if made else b"none"], [each.rules for each in made])
        except FenceError as problem:
            theirs.sendall(str(problem).encode()[:_SAID])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        said, rules, *_ = socket.recv_fds(ours, _SAID, 1)
    os.waitpid(helper, 0)
    if said == b"none":
        return None
    if not rules:
        raise FenceError(said.decode("utf-8", "replace") or "The process that makes the fence ended without it.")
    return Fence.of(rules[0])


def _serve(fence: Fence | None, folder: Path, jobs: TextIO, answers: TextIO) -> None:
    originals = _warm()
    list_path()
    trial = {"requests": [Request("x = 6 * 7", expressions=("x",)).to_json()], "timeout": 60, "memory": 256}
    ending = _forked(trial, folder, fence, originals, ())
    if ending["status"] != "done" or json.loads(ending["report"])["tampered"]:
        # what goes wrong with a harmless cell is not the learners' fault, so none of theirs is run
        raise FenceError(
            f"a harmless cell could not be run: {ending['status']} {ending['code']} "
            f"{ending['output'] or ending['report']}"
        )
    answers.write("ready\n")
    answers.flush()
    while _seated(folder, fence, originals, jobs, answers):
        pass


def _seated(folder: Path, fence: Fence | None, originals: Originals, jobs: TextIO, answers: TextIO) -> bool:
    """Answer the jobs of one submission in a process of its own; return whether another submission may follow.

    A cell can read all memory of its process, and freed memory is not erased. So the process from which all others are
    forked never reads a submission.
    """
    room = os.getpid()
    desk = os.fork()
    if desk:
        ending = os.waitstatus_to_exitcode(os.waitpid(desk, 0)[1])
        if ending == _NEEDED_IPYTHON:
            kernel.prepare()  # once, for all that come after
        return ending in (0, _NEEDED_IPYTHON)
    ending = 1
    try:
        prctl(1, signal.SIGKILL)
        adopt_orphans()
        if os.getppid() == room:
            ending = _answered(folder, fence, originals, jobs, answers)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(ending)


def _answered(folder: Path, fence: Fence | None, originals: Originals, jobs: TextIO, answers: TextIO) -> int:
    """Answer jobs up to an empty line, and return the exit status for this process.

    0 or ``_NEEDED_IPYTHON`` (a job needed IPython) where another submission may follow; 1 where none may, as the
    folder could not be emptied or no empty line came.
    """
    ending = 0
    for line in jobs:
        if not line.strip():
            answers.write("\n")
            answers.flush()
            return ending
        job = json.loads(line)
        answers.write(json.dumps(_forked(job, folder, fence, originals, (jobs.fileno(), answers.fileno()))) + "\n")
        answers.flush()
        if not emptied(folder):
            break  # nothing of one run is there for the next; the judge starts another room
        ending = _NEEDED_IPYTHON if job["ipython"] else ending
    return 1


def _sweep() -> None:
    """Remove the folders of earlier room processes that were killed before they could do it."""
    for left in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        owner = left.name.removeprefix(_NAME).partition("-")[0]
        if owner.isdecimal() and Path("/proc/self").exists() and not Path("/proc", owner).exists():
            _remove(left)


def _remove(folder: Path) -> None:
    if not removed(folder):
        print(
            f"The folder {folder} of submissions that have ended could not be removed; delete it.",
            file=sys.stderr,
            flush=True,
        )


def _warm() -> Originals:
    """Import everything that a run needs, use it once, and return every function as it is now, for later comparison."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pitfall_lab.lessons.tensors_alive
        import pitfall_lab.lessons.turns  # these may list objects and trace, since they were there before the cell
        import pitfall_lab.verify.counted_writes
        import pitfall_lab.verify.large_results  # noqa: F401 - so that forks find it, verify and torch imported

        guards.close()
        sys.modules["torch"].set_num_threads(1)
        example = observe(Request(_EXAMPLE, watched=True))
        assert example.error is None, example.error
        example.to_json()
        kernel.give()
        _made_once()
        _differentiated_forwards()
        originals = Originals()
    gc.collect()
    gc.freeze()
    return originals


def _made_once() -> None:
    """Make an optimizer of each kind: torch replaces the ``step`` of a kind when the first one is made."""
    torch = sys.modules["torch"]
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer:
            kind([torch.nn.Parameter(torch.ones(2, 2))])


def _differentiated_forwards() -> None:
    """Compute one derivative in forward mode: for the first one torch imports a module that compiles functions for
    TorchScript, and looks at frames for the names in them, which no cell may.
    """
    torch = sys.modules["torch"]
    torch.func.jvp(torch.sin, (torch.ones(1),), (torch.ones(1),))


def _forked(
    job: Job, home: Path, fence: Fence | None, originals: Originals, private: tuple[int, ...]
) -> dict[str, Any]:
    """Run one job in a process of its own and return a dictionary that says how it ended.

    Its ``status`` is ``"done"`` (``report`` has what was observed), ``"exit"`` or ``"signal"`` (with a ``code``),
    ``"timeout"``, ``"output"``, ``"report"`` or ``"disk"`` (too much of it was written), or ``"forged"`` (something
    other than the observer wrote into the report). ``seconds`` is the time that counts, ``output`` the beginning of
    what was printed.
    """
    word = secrets.token_hex(16)
    prints, report, room = Channel(PRINTED), Channel(REPORTED), os.getpid()
    if job.get("ipython"):
        kernel.prepare()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            prctl(1, signal.SIGKILL)
            if os.getppid() != room:
                os._exit(70)
            for file in private:
                os.close(file)
            os.dup2(prints.mouth, 1)
            os.dup2(prints.mouth, 2)
            _perform(job, home, fence, originals, mouth=report.mouth, word=word)
        finally:
            os._exit(70)
    prints.listen()
    report.listen()
    clock = Clock(child)
    try:
        status, code = _watched(child, clock, job["timeout"], home, prints, report)
    finally:
        end_group(child)
        end_orphans()
    text = report.text()
    said, _, body = text.partition("\n")
    answer = {"status": status, "code": code, "seconds": clock.seconds, "output": prints.text()[:4000], "report": None}
    if secrets.compare_digest(said.encode(), word.encode()):
        answer |= {"status": "done", "report": body} if status == "exit" and code == 0 else {}
    elif text:
        answer["status"] = "forged"
    return answer


class Clock:
    """How long a run has taken: from its start, without the time in which it was ready and waited for a processor.

    On a busy machine a cell has as much time as on an idle one, and a cell that sleeps reaches its limit too. Where
    the kernel does not report how long a process has waited, processor time is counted, and :data:`PATIENCE` is the
    limit for a cell that sleeps.
    """

    def __init__(self, process: int) -> None:
        self._tasks = Path(f"/proc/{process}/task")
        self._times = Path(f"/proc/{process}/stat")
        self._started = time.monotonic()
        self._waited = 0
        self.seconds = 0.0

    @property
    def elapsed(self) -> float:
        """The seconds of wall-clock time since the start."""
        return time.monotonic() - self._started

    def read(self) -> float:
        """Return the seconds that count towards the limit; if the process has ended, the last number that was read."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            self.seconds = self._counted()
        return self.seconds

    def _counted(self) -> float:
        elapsed = self.elapsed
        try:
            waited = sum(int((task / "schedstat").read_bytes().split()[1]) for task in self._first_two())
            self._waited = max(self._waited, waited)  # a thread that has ended is not there any more
        except FileNotFoundError:
            fields = self._times.read_bytes().rpartition(b")")[2].split()
            return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
        return elapsed - self._waited / 1e9

    def _first_two(self) -> list[Path]:
        """The process's first two threads: the main one, which waits, and the one in which the cell runs.

        The cell's own threads come later.
        """
        return sorted(self._tasks.iterdir(), key=lambda task: int(task.name))[:2]


def _watched(child: int, clock: Clock, most: float, home: Path, *channels: Channel) -> tuple[str, int]:
    """Read the output of a run until it ends or exceeds a limit; return how it ended, and its exit status or signal.

    The second value is 0 if the run was ended at a limit. A run that a limit of processor time killed has ended as
    ``"timeout"``.
    """
    names, look = ("output", "report"), 0.0
    while clock.read() < most and clock.elapsed < PATIENCE * most + PATIENCE:
        if time.monotonic() > look:
            look = time.monotonic() + 0.1
            if is_overfull(home, size=WRITTEN - unlinked(child, home, largest=LARGEST), files=FILES):
                end_group(child)
                os.waitpid(child, 0)
                return "disk", 0
        open_ones = [channel for channel in channels if channel.is_open]
        if open_ones:
            select.select(open_ones, [], [], _POLL)
        else:
            time.sleep(0.002)
        for name, channel in zip(names, channels, strict=True):
            if not channel.read():
                end_group(child)
                os.waitpid(child, 0)
                return name, 0
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            clock.read()  # while it can still be read
            _, status, used = os.wait4(child, 0)
            for channel in channels:
                channel.read()
            if not os.WIFSIGNALED(status):
                return "exit", os.WEXITSTATUS(status)
            code = os.WTERMSIG(status)
            # Any program can send itself these signals: they are a limit's where time was used. The kernel counts whole
            # ticks for the limit and parts of them here, which on a busy machine are fewer.
            is_limit = code in (signal.SIGXCPU, signal.SIGKILL) and used.ru_utime + used.ru_stime > processor(most) / 2
            return ("timeout", 0) if is_limit else ("signal", code)
    end_group(child)
    os.waitpid(child, 0)
    return "timeout", 0


class Channel:
    """A pipe from the process of a run; up to ``most`` bytes of what it writes are kept."""

    def __init__(self, most: int) -> None:
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)
        self._kept = bytearray()
        self._most = most
        self.is_open = True

    def fileno(self) -> int:
        """The descriptor of the end that is read, for ``select``."""
        return self._ear

    def listen(self) -> None:
        """In the parent process: close the end that is written."""
        os.close(self.mouth)

    def read(self) -> bool:
        """Read the available output; return False if more than the limit has been written in all."""
        with contextlib.suppress(BlockingIOError):
            while self.is_open and len(self._kept) <= self._most:
                piece = os.read(self._ear, 1 << 16)
                self._kept += piece
                if not piece:
                    self._close()
        return len(self._kept) <= self._most

    def text(self) -> str:
        """Everything that was kept; closes the pipe."""
        self._close()
        return self._kept.decode("utf-8", "replace")

    def _close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self._ear)


# --- in the run's own process ----------------------------------------------------------------------------------------


def _perform(job: Job, home: Path, fence: Fence | None, originals: Originals, *, mouth: int, word: str) -> None:
    """Observe the job's requests behind the closed fence, write the report, and end the process."""
    redirect()
    os.chdir(home)
    os.environ.clear()
    os.environ.update({"HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "MPLBACKEND": "Agg"})
    tempfile.tempdir = str(home)
    sys.argv = [""]
    reserve = mmap.mmap(
        -1, _RESERVE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # reserved and never touched, it costs no time
    limit(memory=job["memory"], seconds=job["timeout"])
    if fence is not None:
        fence.close()
    # Without it, a sparse tensor may have places that are far outside of it, and what adds to them writes there.
    sys.modules["torch"].sparse.check_sparse_tensor_invariants.enable()
    reached: list[str] = []
    originals.keep_frames(originals.frames, reached)
    replaced, still, waiting = originals.replaced, gc.disable, _thread.allocate_lock()
    writes, ends, dumps = os.write, os._exit, json.dumps
    quoted = json.encoder.encode_basestring_ascii
    found: list[dict[str, Any]] = []
    requests = _requests(job)
    kept = [*_SET, *(name for request in requests for name in _assigned(request))]
    ours = [*kept]

    def finish(text: str) -> None:
        report = f"{word}\n{text}".encode()
        while report:
            report = report[writes(mouth, report) :]
        ends(0)

    def look(where: Where) -> None:
        gone = replaced(where)
        if where == "watching":
            ours[:] = [*gone, *kept]
        elif gone := [name for name in gone if name not in ours]:  # it may be what writes the report
            finish(f'{{"tampered": [{", ".join([quoted(name) for name in [*reached, *gone][:20]])}], "failed": ""}}')

    def keep(seen: dict[str, Any]) -> None:
        found.append(seen)
        waiting.release()

    waiting.acquire()
    # On a stack of its own: no frame that the cell could get hold of leads to the names above.
    _thread.start_new_thread(driven, (_seen(requests, look, keep), _uncompiled()))
    waiting.acquire()
    reserve.close()
    still()  # no callback of the cell's comes between looking and writing
    ours.clear()
    look("all")
    finish(dumps({"tampered": reached[:20], "skipped": kernel.skipped, **found[0]}))


def _seen(requests: list[Request], look: Look, keep: Callable[[dict[str, Any]], None]) -> Steps[None]:
    """Make all observations and pass them to ``keep``; if observing itself failed, pass the type of the error instead.

    Observing fails if memory is exhausted, for instance; ``"full"`` then says that no memory is left.
    """
    try:
        observations = []
        for request in requests:
            seen = yield from observing(request, look)
            look("all")  # leaving what surrounds a run may have called the cell
            observations.append(seen.to_json())
        keep({"observations": observations})
    except BaseException as problem:
        keep({"failed": type(problem).__name__, "full": _is_full()})


def _assigned(request: Request) -> list[str]:
    """The dotted names that the exercise's own program assigns while it runs, as in ``torch.optim = Refused()``."""
    lines = [line for text in (request.setup, request.inputs, request.drive) for line in text.splitlines()]
    return [name for line in lines for name in _DOTTED.findall(line.partition(" = ")[0]) if " = " in line]


def _uncompiled() -> Callable[[], object]:
    """A function that switches off the callback that torch's compiler calls for each frame."""
    return partial(sys.modules["torch._C._dynamo.eval_frame"].set_eval_frame, None)


def _is_full() -> bool:
    """Whether no memory is left: torch and Python report that by errors of several types and with several messages."""
    try:
        mmap.mmap(-1, _RESERVE // 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except (OSError, MemoryError):
        return True
    return False


def _requests(job: Job) -> list[Request]:
    """The requests, their cells as Python: IPython's syntax is read here, behind the fence and within the limits."""
    requests = [Request.from_json(text) for text in job["requests"]]
    return [replace(each, cell=kernel.as_python(each.cell)) for each in requests] if job.get("ipython") else requests


class Originals:
    """The functions, classes and modules that torch, NumPy and this package have, noted before a cell runs, to see
    afterwards whether one was replaced.
    """

    def __init__(self) -> None:
        frames = _own_copy("pitfall_lab.classroom.frames")
        self.frames, self.keep_frames = frames.known(), frames.keep_frames
        self._spaces: list[Space] = []
        public = {*_WATCHED, *vocabulary.PUBLIC, *_used_by_ours()} - _CHANGING
        for name, module in sorted(sys.modules.items()):
            used = name.startswith("pitfall_lab") or name in _USED
            if isinstance(module, types.ModuleType) and (name in public or used):
                self._note(name, vars(module))
                if used:
                    for inner, value in list(vars(module).items()):
                        if isinstance(value, type) and value.__module__ == name:
                            self._note(f"{name}.{inner}", vars(value))
        self._note("json.encoder.JSONEncoder", vars(json.JSONEncoder))
        self._note("json._default_encoder", vars(json.dumps.__globals__["_default_encoder"]), closed=True)
        watched = [name for name, *_ in self._spaces if name in sys.modules]
        self._spaces.append(("sys.modules", sys.modules, watched, [sys.modules[name] for name in watched], None))
        torch = sys.modules["torch"]
        for owner in (torch.Tensor, torch.Tensor.__base__, torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer):
            self._note(f"torch.{owner.__name__}", vars(owner), closed=True)
        for name, module in sorted(sys.modules.items()):
            for inner, value in list(vars(module).items()) if name.startswith(_CLASSES_OF) else ():
                if isinstance(value, type) and value.__module__ == name and value.__name__ != "Optimizer":
                    self._note(f"{name}.{inner}", vars(value))
        self._note("warnings.catch_warnings", vars(warnings.catch_warnings))
        self._spaces.append(("warnings", vars(warnings), ["catch_warnings"], [warnings.catch_warnings], None))
        self._note("numpy.random", vars(np.random))
        self.replaced = self._watch()

    def _note(self, name: str, space: Mapping[str, Any], *, closed: bool = False) -> None:
        kept = {key: value for key, value in list(space.items()) if name in _WHOLE or _acts(value)}
        self._spaces.append((name, space, [*kept], [*kept.values()], frozenset(space) if closed else None))

    def _watch(self) -> Callable[[Where], list[str]]:
        """Return a function that compares everything that was noted, and returns the names of what was replaced.

        It runs a copy of :func:`_replaced`, so that a later change of that function has no effect on it. Its argument
        says how much is compared: after each expression there is only time for the names in ``_NEAR`` and the
        observer's.
        """
        near = [space for space in self._spaces if space[0] in _NEAR or space[0].startswith(_OBSERVER)]
        used = [space for space in self._spaces if space in near or not space[0].startswith("pitfall_lab")]
        tools = {"__builtins__": {}, "every": all, "each": map, "same": operator.is_, "Missing": KeyError}
        copied = types.FunctionType(_replaced.__code__, tools)
        spaces: dict[Where, list[Space]] = {"near": near, "program": used, "all": self._spaces}
        prepared = {where: (_touched(_at_once(each)), _changed_functions(each)) for where, each in spaces.items()}
        prepared["watching"] = prepared["all"]
        rewritten = _rewritten([space for space in self._spaces if space[0].startswith(_OURS)])
        return lambda where: copied(*prepared[where]) + (rewritten() if where == "all" else [])


Compared = tuple[Space, Callable[[Any], Any], list[Any]]
"""A namespace, a function that reads all of its values at once, and the expected values."""


def _at_once(spaces: list[Space]) -> list[Compared]:
    """Each namespace with a function that reads all of its compared values at once, and the expected values.

    ``operator.itemgetter`` returns a tuple only for two or more keys, so the first key is given twice.
    """
    each = [(space, [*space[2], *space[2][:1]], [*space[3], *space[3][:1]]) for space in spaces]
    return [(space, operator.itemgetter(*keys) if keys else tuple, values) for space, keys, values in each]


def _replaced(touched: Callable[[], list[Compared]], changed: Callable[[], list[str]]) -> list[str]:
    """The full names of functions that have other code now, of values that are another object, and of names that were
    added.

    Added names are reported only for namespaces that may get none, such as ``torch.Tensor``.
    """
    found = changed()
    for (name, space, keys, values, names), get_all, meant in touched():
        get = space.get
        try:
            unchanged = every(each(same, get_all(space), meant))  # type: ignore[name-defined]  # noqa: F821 - see Originals._watch
        except Missing:  # type: ignore[name-defined]  # noqa: F821 - as above
            unchanged = False
        if not unchanged:
            found += [f"{name}.{key}" for key in keys if get(key) is not values[keys.index(key)]]
        if names is not None and not names.issuperset(space):
            found += [
                f"{name}.{key}" for key in space if key not in names and key != "__slotnames__"
            ]  # Python's own copying leaves that
    return found


_WORDS, _TYPE, _LENGTH, _TABLE, _SPLIT = 6, 1, 2, 4, 5
"""How many words the head of a dictionary has, and which of them are its type, the number of its keys, where its table
is, and where its values are if they are not in that table (0 for a dictionary of its own).
"""


class _Words:
    """This process's memory as an array of words; only the words that are indexed are read."""

    __array_interface__ = {"data": (8, False), "shape": (1 << 44,), "typestr": "=u8", "version": 3}  # noqa: RUF012 - NumPy's protocol


def _touched(spaces: list[Compared]) -> Callable[[], list[Compared]]:
    """Return a function that lists the namespaces whose dictionary has changed in memory since now, as candidates.

    A changed dictionary proves nothing yet, since a name that is not compared may have been added. Comparing the values
    themselves would take ten milliseconds for thirty thousand names after each step of a cell, and would write to each
    object's reference count, so that the forked process copies their memory pages.
    """
    memory = np.asarray(_Words())
    found = [(each, _entries(each[0], memory)) for each in spaces]
    always = [each for each, places in found if places is None]
    ordered = [(each, places) for each, places in found if places is not None]
    places = np.concatenate([np.zeros(0, np.int64), *(places for _, places in ordered)])
    ends = np.cumsum([8 * len(places) for _, places in ordered]).tolist()
    parts = [(slice(begin, end), each) for begin, end, (each, _) in zip([0, *ends], ends, ordered, strict=False)]
    before = memory[places].tobytes()

    def touched() -> list[Compared]:
        now = memory[places].tobytes()
        return always if now == before else [*always, *(each for part, each in parts if now[part] != before[part])]

    return touched


def _entries(space: Space, memory: np.ndarray) -> np.ndarray | None:
    """The indices in ``memory`` of the words that stay equal while a namespace is unchanged; None if they are not
    found.

    They are the number of names (if none may be added), the address of the dictionary's table, and in that table the
    key and the value of each compared name. The pairs are searched for, so this does not depend on how a release of
    Python lays the table out.
    """
    _, names, keys, values, closed = space
    held = names if isinstance(names, dict) else gc.get_referents(names)[0]
    if type(held) is not dict:
        return None
    start = id(held) // 8 - 1
    header = memory[start : start + dict.__basicsize__ // 8].tolist()
    # in a build of Python whose dictionaries begin otherwise, nothing is read
    if len(header) != _WORDS or header[_LENGTH] != len(held) or header[_TYPE] != id(dict) or header[_SPLIT]:
        return None
    table = header[_TABLE] // 8 - 1
    words = memory[table : table + (held.__sizeof__() - dict.__basicsize__) // 8].tolist()
    at = {pair: place for place, pair in enumerate(itertools.pairwise(words))}
    kept = {key: id(key) for key in held}
    pairs = [at.get((kept[key], id(value))) for key, value in zip(keys, values, strict=True)]
    if None in pairs:
        return None
    fixed = [start + _TABLE, *([start + _LENGTH] if closed is not None else [])]
    return np.array([*fixed, *(table + place + more for place in pairs for more in (0, 1))], np.int64)


def _changed_functions(spaces: list[Space]) -> Callable[[], list[str]]:
    """Return a function that lists the names of the functions whose code or default values have been replaced since
    now.

    It compares pointers in memory: reading a function's code would report each read to audit hooks, and there are ten
    thousand functions.
    """
    here = [
        (f"{name}.{key}", value) for name, _, keys, values, _ in spaces for key, value in zip(keys, values, strict=True)
    ]
    functions = [(name, value) for name, value in here if isinstance(value, types.FunctionType)]
    memory, fields = np.asarray(_Words()), _fields()
    places = np.array([id(value) // 8 - 1 + field for _, value in functions for field in fields])
    before, size = memory[places].tobytes(), 8 * len(fields)
    parts = [(slice(size * n, size * (n + 1)), name) for n, (name, _) in enumerate(functions)]

    def changed() -> list[str]:
        now = memory[places].tobytes()
        return [] if now == before else [name for part, name in parts if now[part] != before[part]]

    return changed


def _rewritten(spaces: list[Space]) -> Callable[[], list[str]]:
    """Return a function that lists the names of the functions whose bytecode has been overwritten in memory since now.

    The code object is the same then, so comparing objects does not find it. Python itself replaces some instructions by
    quicker ones while they run, and writes caches beside them: a quick instruction counts as the one that it replaces,
    and caches are not compared.
    """
    codes: dict[int, tuple[str, types.CodeType]] = {}
    for name, _, keys, values, _ in spaces:
        for key, value in zip(keys, values, strict=True):
            for each in (getattr(value, "__func__", value), getattr(value, "fget", None)):
                waiting = [each.__code__] if isinstance(each, types.FunctionType) else []
                while waiting:
                    code = waiting.pop()
                    codes.setdefault(id(code), (f"{name}.{key}", code))
                    waiting += [inner for inner in code.co_consts if type(inner) is types.CodeType]
    memory, meant = np.asarray(_Words()).view(np.uint16), _instructions()
    kept, places = [], [np.zeros(0, np.int64)]
    for name, code in codes.values():
        units = np.frombuffer(code.co_code, np.uint16)
        at = np.flatnonzero(units & 255)  # the others are notes
        places.append((id(code) + type(code).__basicsize__ - 8) // 2 + at)
        kept.append((name, len(at)))
    every = np.concatenate(places)
    before = meant[memory[every]]

    def rewritten() -> list[str]:
        different = np.flatnonzero(meant[memory[every]] != before)
        ends = list(itertools.accumulate(length for _, length in kept)) if len(different) else []
        return [*dict.fromkeys(kept[bisect.bisect_right(ends, place)][0] for place in different.tolist())]

    return rewritten


def _instructions() -> np.ndarray:
    """A table from the two bytes of an instruction and its argument to the instruction that it stands for, with
    argument.

    A specialised instruction is mapped to its general one; the index is the two bytes as a 16-bit word of this machine.
    """
    numbers: dict[str, int] = getattr(dis, "_all_opmap", dis.opmap)
    plain = np.arange(256, dtype=np.uint16)
    for quick, base in getattr(dis, "deoptmap", {}).items():
        plain[numbers[quick]] = numbers[base]
    if sys.version_info >= (3, 12):  # there a trace puts an instruction of its own in the place of any
        plain[max(dis.opmap.values()) + 1 :] = 0
    units = np.arange(1 << 16, dtype=np.uint16)
    found: np.ndarray = (units & 0xFF00) | plain[units & 0xFF]
    return found


def _fields() -> list[int]:
    """The offsets, in words of memory, at which a function object has the pointers to its code and its defaults."""

    def example(_: int = 1, *, a: int = 2) -> None: ...

    words = np.asarray(_Words())[np.arange(id(example) // 8 - 1, id(example) // 8 + 15)].tolist()
    return [words.index(id(each)) for each in (example.__code__, example.__defaults__, example.__kwdefaults__)]


def _own_copy(name: str) -> Any:
    """Import a module a second time, outside ``sys.modules``: a change of the first copy does not change this one."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins)}
    spec.loader.exec_module(module)
    return module


def _used_by_ours() -> set[str]:
    """The names of the modules that are global variables in modules of this package."""
    ours = [module for name, module in [*sys.modules.items()] if name.startswith("pitfall_lab")]
    held = (value for module in ours for value in [*vars(module).values()])
    return {value.__name__ for value in held if isinstance(value, types.ModuleType)}


def _acts(value: Any) -> bool:
    return isinstance(value, (types.ModuleType, type, property, classmethod, staticmethod)) or callable(value)


if __name__ == "__main__":
    main()
