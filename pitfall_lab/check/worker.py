"""The process in which checked programs run: it imports torch once and forks for every run (:func:`main`).

Nothing a program does (exit, crash, patch torch, change directory, never end) affects the next run or the checker. The
checker writes one JSON job per line to standard input and reads one JSON line back: how the run's process ended. What
the run found is in the file the job names. Where there is no ``fork``, each job gets a process of its own (``--once``).
"""

# ruff: noqa: PLC0415 - the worker imports once what its forks need, after it has been set up; `resource` is only on
# Unix

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import json
import os
import random
import select
import signal
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from pitfall_lab.check.module_path import as_for_python
from pitfall_lab.check.scripts import forgiving
from pitfall_lab.check.workshop import AGAIN, NEVER, PATIENCE, THIS, VALUE_LIMIT
from pitfall_lab.trace import Trace

if TYPE_CHECKING:
    from pitfall_lab.observe.rounds import Sampling
    from pitfall_lab.verify.finite_watch import Finite

Job = dict[str, Any]
POLL = 0.002
LOOK = 5.0
"""So often, in seconds, an idle worker looks whether its checker is still there."""
LOW = 2
"""The priority (``nice``) with which a worker of a notebook imports torch: two thirds of what
the notebook's own cell gets.
"""
_THERE: set[str] = set()
"""The modules that are imported before any program runs."""
BIND = "__pitfall_lab_bind__"
"""The name of a function in the program's namespace that defines the values of earlier cells; it is called once."""


def main() -> None:
    """Serve jobs until standard input ends or Ctrl-C is pressed; with ``--once`` among the process's arguments perform
    the one job there in this process, and end.
    """
    if "--once" in sys.argv:
        perform(json.loads(sys.stdin.readline()))
        return
    with contextlib.suppress(KeyboardInterrupt):
        _serve()


def _serve() -> None:
    jobs = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the program's prints must not mix with the answers
    adopt_orphans()
    checker = os.getppid()
    never = _in_low_priority(_import_all) if "--behind" in sys.argv else _import_all()
    _THERE.update(sys.modules)
    gc.collect()
    gc.freeze()  # objects made so far are never freed: exclude them from garbage collection
    while line := _next(jobs, checker):
        job = json.loads(line)
        if never:
            Path(job["result"]).write_text(never, encoding="utf-8")
            ending: dict[str, Any] = {"status": "exit", "code": 0}
        else:
            from pitfall_lab.verify.experiments.witness import prepare

            prepare(job["source"])
            ending = _forked(job, (jobs.fileno(), answers.fileno()))
        if not _sent(answers, ending):
            return


def _sent(answers: TextIO, ending: dict[str, Any]) -> bool:
    """Send an answer; false if the checker, which reads it, has ended in the meantime."""
    try:
        answers.write(json.dumps(ending) + "\n")
        answers.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, answers.fileno())  # what is still to be written when Python ends would fail once more
        os.close(nowhere)
        return False
    return True


def _next(jobs: TextIO, checker: int) -> str:
    """The next line of ``jobs``; "" at its end, or if the checker has ended.

    The checker may have ended although the pipe is still open, in another process that the checker forked.
    """
    while os.getppid() == checker:
        if select.select([jobs], [], [], LOOK)[0]:
            return jobs.readline()
    return ""


def _in_low_priority(work: Callable[[], str]) -> str:
    """Do the work in a thread with low priority.

    Where priority belongs to a process (not on Linux), do it without changing that.

    The low priority ends with the thread; a process could not raise its own priority again.
    """
    if sys.platform != "linux":
        return work()
    answers: list[str] = []

    def behind() -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW)
        answers.append(work())

    thread = threading.Thread(target=behind)
    thread.start()
    thread.join()
    return answers[0]


def _import_all() -> str:
    """Import what every fork needs; returns the reason when that fails (no torch, or an unsupported
    release), else an empty text.
    """
    try:
        with _quietly():
            import numpy.random  # noqa: F401 - perform() seeds it

            import pitfall_lab.check.improvement
            import pitfall_lab.verify.experiments.witness  # noqa: F401
            from pitfall_lab.rules import found_in
            from pitfall_lab.rules.kit.story import Story
            from pitfall_lab.verify import trace_program
            from pitfall_lab.verify.fastpath.plans import forget_plans

            # Import and compile once, before forking. Run no backward here: with a GPU it starts
            # threads, and torch refuses a backward in a process that is forked after that.
            trace = trace_program(
                "import torch\nx = torch.ones(2, requires_grad=True)\ny = (x * 2).sum()\ntext = str(y)"
            )
            found_in(Story(trace))
            trace.to_json()
            forget_plans()
    except Exception as error:
        return unobservable(error)
    return ""


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Import modules with warnings suppressed, but keep the warning filters that they install,
    which the program relies on.
    """
    warnings.filterwarnings("ignore", ".*")
    ours = warnings.filters[0]
    try:
        yield
    finally:
        cast("list[Any]", warnings.filters).remove(ours)


def unobservable(error: Exception) -> str:
    """The result text of every job when programs cannot be observed on this machine, because of ``error``."""
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    version = f"torch {torch}" if torch else "this Python"
    said = str(error).strip().splitlines()[:1] or [""]
    return f"{NEVER}{version}\n{type(error).__name__}: {said[0][:300]}"


def _forked(job: Job, private: tuple[int, ...]) -> dict[str, Any]:
    """Run one job in a process of its own and say how that ended: ``{"status": "exit" | "signal" | "timeout",
    "code": n, "output": text}``.

    ``output`` is the beginning of what it printed. The process has none of the files in ``private``.
    """
    prints, worker, checker = Prints(), os.getpid(), os.getppid()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            _end_with(worker, job["timeout"])
            for file in private:
                os.close(file)
            prints.into()
            perform(job)
        finally:
            os._exit(70)
    allowed = Allowance(child, job["timeout"])
    try:
        while not allowed.over() and os.getppid() == checker:  # the checker has ended: no reply is needed
            prints.read()
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                killed = os.WIFSIGNALED(status)
                code = os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
                return {"status": "signal" if killed else "exit", "code": code, "output": prints.text()}
            time.sleep(POLL)
        end_group(child)
        os.waitpid(child, 0)
        return {"status": "timeout", "code": 0, "output": prints.text()}
    finally:
        end_group(child)
        end_orphans()
        prints.close()


class Allowance:
    """The time that a run, the process with the id ``process``, may take from now on: ``seconds``, without those in
    which it waited for a processor that others were using.

    So a busy machine gives the same report. Linux counts that wait (the second number of ``schedstat``, in
    nanoseconds); elsewhere it counts as time of the run. After ``PATIENCE`` (10) times ``seconds`` the time is always
    up.
    """

    def __init__(self, process: int, seconds: float) -> None:
        self._begun, self._seconds, self._waits = time.monotonic(), seconds, Path(f"/proc/{process}/schedstat")

    def over(self) -> bool:
        """Whether the time is up; never before ``seconds`` have passed, and always after ``PATIENCE`` times as many."""
        passed = time.monotonic() - self._begun
        if passed < self._seconds or passed >= PATIENCE * self._seconds:
            return passed >= self._seconds
        return passed - self._waited() >= self._seconds

    def _waited(self) -> float:
        try:
            return int(self._waits.read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0


class Prints:
    """The output of a run, through a pipe: the first 1 MiB is kept, the rest is read and discarded, so that endless
    output fills no memory and no disk.
    """

    LIMIT = 1 << 20

    def __init__(self) -> None:
        self._out, self._in = os.pipe()
        os.set_blocking(self._out, False)
        self._kept = bytearray()

    def into(self) -> None:
        """In the child: redirect standard output and standard error into this pipe."""
        os.dup2(self._in, 1)
        os.dup2(self._in, 2)

    def read(self) -> None:
        """Read the available output, without waiting."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._out, 1 << 16):
                self._kept += piece[: max(self.LIMIT - len(self._kept), 0)]
                if len(self._kept) >= self.LIMIT:
                    return

    def text(self) -> str:
        """Return everything that was read and kept."""
        self.read()
        return self._kept.decode("utf-8", "replace")

    def close(self) -> None:
        """Close both ends of the pipe."""
        os.close(self._out)
        os.close(self._in)


def end_group(leader: int) -> None:
    """Kill the processes in the group of the process ``leader``, a program that ran: those that it started and left
    running.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def adopt_orphans() -> None:
    """On Linux: become the parent of processes that a checked program leaves running, also in other process groups."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def _end_with(worker: int, timeout: float) -> None:
    """In the child: end when the worker ends; where the system does not support that, set a limit on processor time."""
    prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != worker:
        os._exit(70)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        seconds = int((timeout + 30) * (os.cpu_count() or 1))  # threads take processor time side by side
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def prctl(option: int, value: int) -> None:
    """Call Linux's ``prctl``, and ignore errors; does nothing on other systems."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_orphans() -> None:
    """On Linux: kill every adopted process: the program's own has ended, so all remaining
    children were started by it.
    """
    me = os.getpid()
    listed = Path(f"/proc/{me}/task/{me}/children")
    for _ in range(20):  # killing one may orphan others
        try:
            children = [int(word) for word in listed.read_text(encoding="ascii").split()]
        except (OSError, ValueError):
            return
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if not children:
            return


def perform(job: Job) -> None:
    """Run the program of ``job`` as ``python file`` would, write what was found to ``job["result"]``, and end this
    process; it does not return.
    """
    redirect()
    namespace = _as_main(job)
    _limit_memory(job["memory"])
    random.seed(0)
    import numpy as np

    np.random.seed(0)  # noqa: NPY002 - the program's own draws must be the same before and after a fix
    if job["pythonpath"]:
        os.environ["PYTHONPATH"] = job["pythonpath"]
    process = os.getpid()
    with as_for_python(job["folder"], job["pythonpath"]):
        try:
            answer = _answer(job, namespace)
        except BaseException as error:  # the program's errors are caught inside: this one is ours
            if os.getpid() != process:
                _end_forked(error)
            if not isinstance(error, Exception):
                raise
            answer = unobservable(error)
    if os.getpid() != process:
        _end_forked(None)
    _deliver(job, answer)


def _deliver(job: Job, answer: str) -> NoReturn:
    """Write the result to the file that the job names, and end the process."""
    partial = Path(job["result"] + ".part")
    partial.write_text(answer, encoding="utf-8")
    partial.replace(job["result"])
    _flush()
    os._exit(0)


def _end_forked(error: BaseException | None) -> NoReturn:
    """End a process that the program forked and that reached the end of the program; it must not write the result."""
    code: Any = error.code if isinstance(error, SystemExit) else None if error is None else 1
    if error is not None and not isinstance(error, SystemExit):
        traceback.print_exception(error)
    elif isinstance(code, str):
        print(code, file=sys.stderr)
    _flush()
    os._exit(0 if code is None else code if isinstance(code, int) else 1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have replaced them
            stream.flush()


def _answer(job: Job, namespace: dict[str, Any]) -> str:
    """Run the program in the mode given by the job, and return the result for the checker."""
    if job["prelude"]:
        exec(compile(job["prelude"], "<prelude>", "exec"), namespace)  # noqa: S102 - imports of earlier cells
    if job["kind"] == "run":
        return _alone(job, namespace)
    tree = forgiving(job["source"], job["forgiven"]) if _needs_tree(job) else None
    if job["carried"]:
        tree = _carrying(job, tree, namespace)
    if job["kind"] not in ("trace", "facts"):
        from pitfall_lab.verify.experiments.witness import witness

        program = job["source"] if tree is None else tree
        return json.dumps(witness(program, job["name"], namespace, meant=job["kind"] == "meant"), allow_nan=False)
    from pitfall_lab.observe.rounds import Sampling
    from pitfall_lab.verify import trace_program
    from pitfall_lab.verify.finite_watch import Finite

    inside = job["inside"] and tuple(job["inside"])
    sampling = None if job["every_round"] else Sampling(inside, closely=job["closely"], after=job["after"])
    finite = Finite(job["closely"])
    trace = trace_program(
        job["source"],
        name=job["name"],
        namespace=namespace,
        filename=job["path"],
        value_limit=job["value_limit"],
        values=job["value_limit"] >= 0,
        tree=tree,
        limit=job["steps"],
        sampling=sampling,
        finite=finite,
        leaving=lambda trace: _deliver(job, _result_text(trace, job, sampling, finite)),
    )
    return _result_text(trace, job, sampling, finite)


def _result_text(trace: Trace, job: Job, sampling: Sampling | None, finite: Finite) -> str:
    """The result of a traced run as JSON text: :func:`look_at`'s facts and the trace; for a
    repaired program, what is compared.
    """
    gc.disable()  # the program has ended, and so will this process
    again = None
    if sampling is not None:
        finite.spoiled = finite.spoiled or sampling.again is not None
        again = sampling.again if trace.outcome.kind == "finished" or job["closely"] else sampling.last
    if job["kind"] == "facts":
        return json.dumps({"spoiled": finite.spoiled}) + "\n" + _facts(trace)
    seen, trace = look_at(trace, job, spoiled=finite.spoiled)
    return json.dumps({**seen, "again": again}) + "\n" + trace.to_json()


def _facts(trace: Trace) -> str:
    """The facts of a trace by which a repaired program is compared with the original, as JSON."""
    from pitfall_lab.check.improvement import RunFacts
    from pitfall_lab.rules.kit.story import Story

    return json.dumps(RunFacts.of(Story(trace)).to_json())


WAYS_AROUND = {
    "data": ".data", "numpy": "numpy", "__array__": "numpy", "as_tensor": "numpy", "asarray": "numpy",
}  # fmt: skip
"""Calls after which a tensor's memory can be written without torch, each with a word that a
program which does so contains.
"""
UNOBSERVED = ("from_numpy", "frombuffer", "dlpack", "storage", "data_ptr", "version_counter")
"""Words in programs that reach a tensor's memory without a torch function, so that a trace may not show it."""
PACKING = ("saved_tensors", "save_on_cpu")
"""Words in programs that replace saved tensors."""


def look_at(trace: Trace, job: Job, *, spoiled: bool = False) -> tuple[dict[str, bool], Trace]:
    """The facts that the checker needs of a trace, and the trace, without its events if it finished without a finding.

    With ``job["whole"]`` the events are kept: writing and reading a long trace takes as long as a short training run.
    The facts are booleans. ``large`` is :func:`is_large`, ``opened`` is :func:`is_opened`, ``spoiled`` says that the
    run computed numbers that are not finite. ``needs_values`` says that values are needed, also if the trace has them:
    for a finding, for a rule that asked for some, because the program raised, or because only values show some
    mistakes.
    """
    text = own_text(job)
    opened = is_opened(trace, text)
    needs_values = opened or spoiled or trace.outcome.kind != "finished" or any(word in text for word in PACKING)
    seen = {"large": is_large(trace), "opened": opened, "needs_values": needs_values, "spoiled": spoiled}
    if not job["whole"] and trace.outcome.kind == "finished":
        from pitfall_lab.rules import found_in
        from pitfall_lab.rules.kit.story import Story

        story = Story(trace)
        found = bool(found_in(story))
        seen["needs_values"] |= found or story.needs_values
        if not found:
            trace = replace(trace, events=())
    return seen, trace


def own_text(job: Job) -> str:
    """The source of the job's program, with that of the modules in its folder (or below) that it has imported;
    installed libraries are left out.
    """
    texts, installed = [job["source"]], (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parent.parent))
    for name, module in list(sys.modules.items()):
        if name in _THERE:
            continue
        file = str(getattr(module, "__file__", None))
        if file.startswith(job["folder"] + os.sep) and file.endswith(".py") and not file.startswith(installed):
            with contextlib.suppress(OSError, ValueError):
                texts.append(Path(file).read_text(encoding="utf-8"))
    return "\n".join(texts)


def is_large(trace: Trace) -> bool:
    """Whether the program had a storage of more elements than ``VALUE_LIMIT`` (4096), so that its values were not
    modelled.
    """
    for event in trace.events:
        for effect in event.effects:
            if (
                effect.path.startswith("storages.")
                and isinstance(effect.value, dict)
                and int(effect.value.get("size") or 0) > VALUE_LIMIT
            ):
                return True
    return False


def is_opened(trace: Trace, source: str) -> bool:
    """Whether the program of ``trace`` may write tensor memory without changing the version counter.

    That is possible through memory shared with NumPy, ``.data``, a fused optimizer, and running statistics that batch
    norm in eval mode has saved. Libraries use all but the last correctly, so these count only if a word for them is in
    ``source``, the program's own text. A word of ``UNOBSERVED`` (such as ``data_ptr``) in ``source`` is enough alone.
    """
    if any(word in source for word in UNOBSERVED):
        return True
    for event in trace.events:
        if WAYS_AROUND.get(event.name, "\0") in source or (event.name.startswith("_fused_") and "fused" in source):
            return True
        if (
            event.name in ("batch_norm", "instance_norm")
            and not event.writes
            and any(e.path.startswith("nodes.") for e in event.effects)
        ):
            return True
    return False


def _carrying(job: Job, tree: ast.Module | None, namespace: dict[str, Any]) -> ast.Module | None:
    """The program with a call, before the first line of the checked cell, that defines the values of earlier cells.

    At that position the classes that the values need are defined already. If no such line is found, the values are
    defined at once, and ``tree`` is returned unchanged.
    """
    from pitfall_lab.observe import carry, looking

    def bind() -> None:
        del namespace[BIND]
        with looking.unseen():
            carry.unpack(Path(job["carried"]).read_bytes(), namespace)

    namespace[BIND] = bind
    lines = job["source"].split("\n")
    line = next((number for number, text in enumerate(lines, 1) if text == THIS or text.startswith(AGAIN)), None)
    if line is None:
        bind()
        return tree
    tree = tree or ast.parse(job["source"])
    first = next((n for n, statement in enumerate(tree.body) if statement.lineno >= line), len(tree.body))
    call = ast.Expr(ast.Call(ast.Name(BIND, ast.Load()), [], []))
    for node in ast.walk(call):
        node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
        node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    tree.body.insert(first, call)
    return tree


def _needs_tree(job: Job) -> bool:
    """Whether the program is a notebook that cannot be compiled unchanged.

    That is so if it has cells that may raise, or the word ``await``.
    """
    return bool(job["forgiven"] or (job["prelude"] and "await" in job["source"]))


def _alone(job: Job, namespace: dict[str, Any]) -> str:
    """Run the program without observing it; return its exit code as text, or the text that it gave to ``sys.exit``.

    "1" if it raised. Only the last line of its error is printed, and only the message of a warning.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, category, *_: print(f"{category.__name__}: {message}", file=sys.stderr)
        try:
            program = forgiving(job["source"], ()) if _needs_tree(job) else job["source"]
            exec(compile(program, job["name"], "exec", dont_inherit=True), namespace)  # noqa: S102 - running the program is the purpose
        except SystemExit as stop:
            return str(stop.code or 0)
        except BaseException as error:
            print("".join(traceback.format_exception_only(error)), end="", file=sys.stderr)
            return "1"
    return "0"


def redirect() -> None:
    """Give the program an empty standard input, and fresh streams for its prints."""
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.close(empty)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115


def _limit_memory(mebibytes: int | None) -> None:
    """Limit the memory (in MiB) that the program may allocate beyond what this process has; a larger
    request raises inside the program.

    No limit with None, and where the system has no such limit.
    """
    if mebibytes is None:
        return
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        now = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (now + (mebibytes << 20),) * 2)


def _as_main(job: Job) -> dict[str, Any]:
    """A fresh ``__main__`` with the names a script finds."""
    main_module = types.ModuleType("__main__")
    namespace = main_module.__dict__
    namespace["__builtins__"] = __builtins__
    if job["path"]:
        namespace["__file__"] = job["path"]
    sys.modules["__main__"] = main_module
    sys.argv = [job["path"] or job["name"], *job["argv"]]
    return namespace


if __name__ == "__main__":
    main()
