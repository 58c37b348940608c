"""``pitfall-lab check FILE``: run a program, say where it bites, and try the repairs before offering them.

The program never runs in this process. It runs, as often as there are repairs to try, in forks of one worker process
(:mod:`pitfall_lab.check_worker`); what comes back is a trace or a witness of values, as JSON. This module compares them and needs no torch.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self, cast

from pitfall_lab.rules import Finding, Fix, find
from pitfall_lab.rules.source import apply
from pitfall_lab.rules.story import Story
from pitfall_lab.rules.wording import difference, snippet
from pitfall_lab.trace import Language, Trace


class _CallableModule(ModuleType):
    """``pitfall_lab.check`` is this module *and* the function: both names are promised, whichever was imported first."""

    def __call__(self, source: str, name: str = "program.py") -> list[Finding]:
        return check(source, name)


sys.modules[__name__].__class__ = _CallableModule

SUMMARY = "run a program and say where it bites, with fixes that were tried"
TIMEOUT = 60.0
VALUE_LIMIT, LARGE_VALUE_LIMIT = 4096, 1 << 22
"""So many elements a tensor may have for its numbers to be modelled; the second one where a wrong gradient has to be found."""
BYPASSES = ("numpy", ".data", "__array__", "dlpack", "fused", "norm")
"""Words without which no program changes memory behind torch's version counter."""
MOST_FIXES = 2
"""So many verified fixes a finding is given: the smallest ones."""
MOST_TRIALS = 12
TRIAL_SECONDS = 60.0
"""So long repairs are tried for all findings of one program, together; the first finding always gets its trials begun."""
START_SECONDS = 120.0


class Unchecked(Exception):
    """The program could not be checked. The message is one sentence for a person; ``kind`` names the reason for programs."""

    def __init__(self, kind: str, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.kind, self.line = kind, line


@dataclass(frozen=True, slots=True)
class Subject:
    """A program to run: its text, the name shown for it, where it lies (``None`` for a text), and its arguments.

    ``prelude`` is run before it, unobserved: the imports that a notebook cell takes from earlier cells (:func:`prelude`).
    """

    source: str
    name: str
    path: str | None = None
    argv: tuple[str, ...] = ()
    prelude: str = ""

    @property
    def folder(self) -> str:
        """What ``sys.path`` begins with: the file's folder, as for ``python FILE``."""
        return str(Path(self.path).parent if self.path else Path.cwd())


@dataclass(eq=False)
class Workshop:
    """Runs subjects in forks of one worker process; a context manager, because that process has to end."""

    timeout: float = TIMEOUT
    _worker: subprocess.Popen[str] | None = field(default=None, init=False)
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)
    _jobs: int = field(default=0, init=False)
    _printed: str = field(default="", init=False)

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="pitfall-lab-")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if self._worker is not None:
            assert self._worker.stdin is not None
            assert self._worker.stdout is not None
            self._worker.stdin.close()
            try:
                self._worker.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self._worker.kill()
                self._worker.wait()
            self._worker.stdout.close()
        if self._folder is not None:
            self._folder.cleanup()

    def trace(self, subject: Subject, *, aloud: bool = False, value_limit: int = VALUE_LIMIT) -> Trace:
        """Run ``subject`` on both engines; ``aloud`` lets its prints through, to standard error. Raises :class:`Unchecked`."""
        return Trace.from_json(self._run("trace", subject, prints="aloud" if aloud else "nowhere", value_limit=value_limit))

    def witness(self, subject: Subject, *, meant: bool = False) -> dict[str, Any]:
        """Run ``subject`` on plain torch and return what it computed (:mod:`pitfall_lab.verify.witness`). Raises :class:`Unchecked`."""
        return cast("dict[str, Any]", json.loads(self._run("meant" if meant else "witness", subject)))

    def output(self, subject: Subject) -> str:
        """Run ``subject`` on plain torch and return what it printed, with the last line of its error. Raises :class:`Unchecked`."""
        self._run("run", subject, prints="kept")
        return self._printed

    def _run(self, kind: str, subject: Subject, *, prints: str = "nowhere", value_limit: int = VALUE_LIMIT) -> str:
        assert self._folder is not None
        self._jobs += 1
        result = Path(self._folder.name) / f"{self._jobs}.json"
        job = {
            "kind": kind,
            "source": subject.source,
            "name": subject.name,
            "path": subject.path,
            "folder": subject.folder,
            "argv": list(subject.argv),
            "prelude": subject.prelude,
            "result": str(result),
            "timeout": self.timeout,
            "value_limit": value_limit,
            "prints": prints,
        }
        ending = self._ask(job) if hasattr(os, "fork") else _run_once(job)
        self._printed = ending.get("output", "")
        if ending["status"] == "exit" and ending["code"] == 0 and result.exists():
            return result.read_text(encoding="utf-8")
        raise _ended_badly(subject, ending, self.timeout)

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        if self._worker is None:
            self._worker = subprocess.Popen(
                _command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=_environment()
            )
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        try:
            self._worker.stdin.write(json.dumps(job) + "\n")
            self._worker.stdin.flush()
            ready, _, _ = select.select([self._worker.stdout], [], [], job["timeout"] + START_SECONDS)
            answer = self._worker.stdout.readline() if ready else ""
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise Unchecked("WorkerError", "The process that runs checked programs did not answer; is torch installed and importable?")
        return cast("dict[str, Any]", json.loads(answer))


def _command(*flags: str) -> list[str]:
    """The worker's command line. It finds this very package, wherever that was imported from."""
    home = str(Path(__file__).resolve().parent.parent)
    start = f"import sys; sys.path.append({home!r}); from pitfall_lab.check_worker import main; main()"
    return [sys.executable, "-c", start, *flags]


def _environment() -> dict[str, str]:
    """The environment of checked programs: windows and plots stay closed, text is UTF-8."""
    return {"MPLBACKEND": "Agg", "QT_QPA_PLATFORM": "offscreen", **os.environ, "PYTHONIOENCODING": "utf-8"}


def _run_once(job: dict[str, Any]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            _command("--once"),
            input=json.dumps(job) + "\n",
            text=True,
            encoding="utf-8",
            timeout=job["timeout"] + 30,
            check=False,
            env=_environment(),
        )
    except subprocess.TimeoutExpired:
        return {"status": "timeout", "code": 0}
    return {"status": "exit", "code": done.returncode}


def _ended_badly(subject: Subject, ending: dict[str, Any], limit: float) -> Unchecked:
    name, code = subject.name, ending["code"]
    if ending["status"] == "timeout":
        return Unchecked("Timeout", f"{name} did not end within {limit:g} s and was stopped; allow more with --timeout.")
    if ending["status"] == "signal":
        try:
            what = signal.Signals(code).name
        except ValueError:
            what = f"signal {code}"
        return Unchecked("Crash", f"{name} crashed its process ({what}), so it could not be checked.")
    return Unchecked("Exit", f"{name} ended its own process with exit code {code} before it could be checked.")


# --- findings, with fixes that were tried ---------------------------------------------------------------------------


def check(source: str, name: str = "program.py", *, timeout: float = TIMEOUT) -> list[Finding]:
    """Return the findings in a program's text, each with the fixes that were applied, re-run and found good.

    The program runs in a process of its own. Raises :class:`Unchecked` when that is not possible.

    >>> [finding.rule for finding in check("import torch; w = torch.ones(2, requires_grad=True); w += 1")]
    ['PL201']
    """
    _parsed(source, name)
    with Workshop(timeout) as shop:
        subject = Subject(source, name)
        return tried(shop, subject, large_harm(shop, subject, shop.trace(subject)))


def large_harm(shop: Workshop, subject: Subject, trace: Trace) -> Trace:
    """Return ``trace``, or one with the numbers of large tensors too, where torch itself says that a gradient is not the meant one.

    Numbers of large tensors are not modelled, so a write into one that no version counts would go unnoticed. Torch tells, by a run
    with saved tensors cloned, whether there was one; only then the more costly trace is made.
    """
    if find(trace) or trace.outcome.kind != "finished" or not any(word in subject.source for word in BYPASSES):
        return trace
    if not any(
        _elements(effect.value) > VALUE_LIMIT for event in trace.events for effect in event.effects if effect.path.startswith("storages.")
    ):
        return trace
    try:
        if keeps_what_was_right(shop.witness(subject, meant=True), shop.witness(subject), "same"):
            return trace
        return shop.trace(subject, value_limit=LARGE_VALUE_LIMIT)
    except Unchecked:
        return trace


def _elements(storage: Any) -> int:
    return int(storage.get("size") or 0) if isinstance(storage, dict) else 0


def prelude(source: str, names: Mapping[str, Any]) -> str:
    """Return imports for what ``source`` uses of ``names`` (a notebook's namespace) and another process can import as well.

    >>> prelude("y = dumps(x)", {"dumps": json.dumps, "x": 3})
    'from json import dumps as dumps'
    """
    try:
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return ""
    lines = []
    for name in sorted(used & set(names)):
        value = names[name]
        module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if isinstance(value, ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif own.isidentifier() and module not in (None, "__main__") and getattr(sys.modules.get(module), own, None) is value:
            lines.append(f"from {module} import {own} as {name}")
    return "\n".join(lines)


def tried(shop: Workshop, subject: Subject, trace: Trace) -> list[Finding]:
    """Return the findings of ``trace``, keeping the fixes that hold when they are applied and run."""
    findings = find(trace)
    trial = Trial(shop, subject, trace, findings)
    return [finding.with_fixes(trial.kept(finding)) for finding in findings]


class Trial:
    """Tries the fixes of one program's findings. Runs of the unrepaired program are made once and shared."""

    def __init__(self, shop: Workshop, subject: Subject, trace: Trace, findings: list[Finding]) -> None:
        self.shop, self.subject, self.trace, self.findings = shop, subject, trace, findings
        self._before: dict[bool, dict[str, Any] | None] = {}
        self._end = time.monotonic() + TRIAL_SECONDS

    def kept(self, finding: Finding) -> tuple[Fix, ...]:
        """The first few fixes of ``finding`` that hold, in order: smallest first."""
        kept: list[Fix] = []
        for number, fix in enumerate(finding.fixes):
            late = time.monotonic() > self._end
            if len(kept) >= MOST_FIXES or number >= MOST_TRIALS or late:
                break
            if fix.meaning == "recompute" and any(other.meaning == "recompute" for other in kept):
                continue  # a longer run of the same lines is no other fix
            ending = self.ending(finding, fix)
            if ending == "finished" or (ending == "raised" and not kept):
                kept.append(fix.as_verified())
        return tuple(kept)

    def ending(self, finding: Finding, fix: Fix) -> str:
        """Apply ``fix`` and run the result: how does it end, if the finding is gone and every value that was right is the same?

        Returns ``"finished"``, ``"raised"`` (the program got further, to its next mistake) or ``""`` (the fix does not hold).
        """
        repaired = replace(self.subject, source=apply(self.subject.source, fix.edits))
        before = self._witness(meant=fix.meaning == "same")
        if before is None:
            return ""
        try:
            # the cheap run first: most candidates that are wrong compute something else, or stop
            after = self.shop.witness(repaired)
            same = keeps_what_was_right(before, after, fix.meaning, backwards_before(self.trace, finding))
            if same and finding.severity == "error" and fix.meaning == "same":
                same = same_names(before, after, read_later(self.subject.source, fix))
            trace = self.shop.trace(repaired) if same else None
        except Unchecked:
            return ""
        return trace.outcome.kind if trace is not None and is_better(finding, self.trace, self.findings, trace) else ""

    def _witness(self, *, meant: bool) -> dict[str, Any] | None:
        if meant not in self._before:
            try:
                self._before[meant] = self.shop.witness(self.subject, meant=meant)
            except Unchecked:
                self._before[meant] = None
        return self._before[meant]


def is_better(finding: Finding, trace: Trace, findings: list[Finding], after: Trace) -> bool:
    """Is ``finding`` gone in the repaired program's trace, with no new disagreement, no new finding and no earlier end?"""
    if _value_disagreements(after) > _value_disagreements(trace):
        return False
    now = find(after)
    if _text_key(trace, finding) in {_text_key(after, other) for other in now}:
        return False
    old_ones = sum(f.rule == finding.rule for f in findings)
    new_ones = sum(f.rule == finding.rule for f in now)
    others = {_text_key(trace, f) for f in findings}
    strangers = [f for f in now if f.severity != "info" and _text_key(after, f) not in others]
    if after.outcome.kind == "finished":
        return new_ones < old_ones and not strangers
    return _got_further(trace, after, now)


def _value_disagreements(trace: Trace) -> int:
    """On how many numbers, gradients, saved tensors or errors the engines differ.

    A repaired program runs further than the one that stopped. What it meets there may show a slip of the shadow engine about a
    stride or a version of something else; such a slip is reported with the trace but says nothing about the repair.
    """
    return sum(
        d.path.startswith(("outcome", "result"))
        or d.path.endswith((".grad", ".grad_fn"))
        or ".saved." in d.path
        or (d.path.endswith(".cells") and bool(difference(d.observed, d.modelled)))
        for d in trace.disagreements
    )


def _got_further(trace: Trace, after: Trace, now: list[Finding]) -> bool:
    """A program with two mistakes stops at the second when the first is repaired: later, and for a reason that a rule explains."""
    failure, later = trace.outcome.failure, after.outcome.failure
    if failure is None or later is None or failure.step is None or later.step is None:
        return False
    explained = any(f.severity == "error" for f in now)
    line = failure.span.line if failure.span else 0
    later_line = later.span.line if later.span else 0
    return explained and (later.step, later_line) > (failure.step, line) and later_line != line


def _text_key(trace: Trace, finding: Finding) -> tuple[str, ...]:
    """What tells findings apart in two versions of a program, whose lines have moved: the texts of the places, not their numbers."""
    story = Story(trace)
    places = [
        snippet(story, finding.span),
        *(f"{r.role}:{snippet(story, r.span)}" for r in finding.related if r.role in ("saved", "operand", "backward")),
    ]
    return (finding.rule, *places)


def backwards_before(trace: Trace, finding: Finding) -> int | None:
    """How many backwards ran before the one that the finding is about; ``None`` when it is about none."""
    step = next((r.step for r in finding.related if r.role == "backward"), None)
    if step is None:
        return None
    names = ("torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad")
    steps = {event.step for event in trace.events[:step] if event.kind == "call" and event.op in names}
    return sum(trace.events[at].parent not in steps for at in steps)


def keeps_what_was_right(before: dict[str, Any], after: dict[str, Any], meaning: str, number: int | None = None) -> bool:
    """Do the roots, gradients and leaves of the repaired program agree with those that were right, or meant, before?

    A forward pass that is run again changes what comes after it on purpose: backward ``number`` (from 0) is where that begins.
    """
    if set(after["warnings"]) - set(before["warnings"]):
        return False
    if meaning == "shape":
        return after["error"] == before["error"] and _shapes(before) == _shapes(after)[: len(_shapes(before))]
    if meaning == "recompute" and after["error"] is not None and before["error"] is None:
        return False
    return _same_history(before, after, number if meaning == "recompute" else None)


def _same_history(before: dict[str, Any], after: dict[str, Any], until: int | None) -> bool:
    """The same backwards with the same gradients, as far as both programs got, or as far as backward ``until``."""
    for index, (was, now) in enumerate(zip(before["backwards"], after["backwards"], strict=False)):
        if was["raised"] or now["raised"] or index == until:
            # what follows was never computed before; the leaves show that everything up to here happened as it did
            return _same_set(was["leaves"], now["leaves"])
        if not _same_backward(was, now):
            return False
    if after["error"] is None and before["error"] is None:
        return len(before["backwards"]) == len(after["backwards"]) and _same_set(before["leaves"], after["leaves"])
    return len(after["backwards"]) >= len(before["backwards"])


def same_names(before: dict[str, Any], after: dict[str, Any], names: set[str]) -> bool:
    """Do the global tensors and arrays called ``names`` end with the same values? A write that other lines rely on must still reach them.

    Only asked where torch refused to go on: where it did not, some of these values are the mistake.
    """
    if before["error"] is not None or after["error"] is not None:
        return True
    return all(_same(before["names"][name], after["names"].get(name)) for name in names & set(before["names"]))


def read_later(source: str, fix: Fix) -> set[str]:
    """The names that ``source`` reads after the lines that ``fix`` edits; all of a loop comes after its own lines."""
    tree = ast.parse(source)
    lines = {line for edit in fix.edits for line in range(edit.line, edit.end_line + 1)}
    last = max(lines, default=0)
    loops = [
        n for n in ast.walk(tree) if isinstance(n, (ast.For, ast.While)) and any(n.lineno <= line <= (n.end_lineno or 0) for line in lines)
    ]
    first = min([loop.lineno for loop in loops], default=last + 1)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.lineno >= first}


def _shapes(record: dict[str, Any]) -> list[Any]:
    return [[root and root["shape"] for root in entry["roots"]] for entry in record["backwards"]]


def _same_backward(was: dict[str, Any], now: dict[str, Any]) -> bool:
    """The same roots and the same gradients, whatever the order in which the graph is walked.

    The leaves may differ at this moment: a write that was moved behind the backward has not happened yet.
    """
    if not _same_list(was["roots"], now["roots"]) or not _same_list(was["results"], now["results"]):
        return False
    return _same_set(was["gradients"], now["gradients"])


def _same_set(one: list[Any], other: list[Any]) -> bool:
    return _same_list(sorted(one, key=_rank), sorted(other, key=_rank))


def _rank(item: Any) -> str:
    """A sort key that rounding does not disturb much: what a digest says to three digits."""
    return json.dumps(item and [item["shape"], [f"{n:.3g}" if isinstance(n, float) else n for n in item["numbers"]]])


def _same_list(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))


def _same(one: Any, other: Any) -> bool:
    """Two digests of the same values, up to rounding."""
    if one is None or other is None:
        return one is other
    if one["shape"] != other["shape"] or len(one["numbers"]) != len(other["numbers"]):
        return False
    scale = max([abs(n) for n in one["numbers"][1:2] if isinstance(n, float)], default=0.0)
    return all(_close(a, b, scale) for a, b in zip(one["numbers"], other["numbers"], strict=True))


def _close(a: Any, b: Any, scale: float) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-4 * max(abs(a), abs(b)) + 1e-5 * scale + 1e-7
    return bool(a == b)


# --- files ----------------------------------------------------------------------------------------------------------


def check_file(
    path: str | os.PathLike[str], argv: Sequence[str] = (), *, timeout: float = TIMEOUT, language: Language = "en", fixes: bool = True
) -> dict[str, Any]:
    """Return the object that ``pitfall-lab check FILE --json`` prints; a file that cannot be checked has its reason under ``error``."""
    try:
        trace, findings = examined(path, argv, timeout=timeout, fixes=fixes)
    except Unchecked as problem:
        return unchecked(str(path), problem)
    return document(str(path), trace, findings, language)


def examined(
    path: str | os.PathLike[str], argv: Sequence[str] = (), *, timeout: float = TIMEOUT, fixes: bool = True
) -> tuple[Trace, list[Finding]]:
    """Run a file and return its trace and its findings. Raises :class:`Unchecked`."""
    source = _read(Path(path))
    _parsed(source, str(path))
    subject = Subject(source, str(path), str(Path(path).resolve()), tuple(argv))
    with Workshop(timeout) as shop:
        trace = large_harm(shop, subject, shop.trace(subject, aloud=True))
        findings = tried(shop, subject, trace) if fixes else [finding.with_fixes(()) for finding in find(trace)]
    return trace, findings


def stopped_early(name: str, trace: Trace, findings: list[Finding]) -> str:
    """One sentence when the program ended with an error that no rule explains, so that the rest of it was not looked at; else empty."""
    failure = trace.outcome.failure
    if failure is None or findings:
        return ""
    where = f" on line {failure.span.line}" if failure.span else ""
    first = failure.message.strip().splitlines()[0] if failure.message.strip() else ""
    said = f" ({first[:160]})" if first else ""
    return f"{name} stopped with {failure.type}{where}{said}, so it could not be checked to its end."


def _read(path: Path) -> str:
    """The text of a Python file, in the encoding it declares."""
    try:
        if path.is_dir():
            raise Unchecked("IsADirectoryError", f"{path} is a folder; name a Python file.")
        with tokenize.open(path) as file:
            source = file.read()
    except FileNotFoundError:
        raise Unchecked("FileNotFoundError", f"There is no file {path}.") from None
    except (SyntaxError, UnicodeDecodeError, ValueError):
        raise Unchecked("UnicodeDecodeError", f"{path} is not a text file that Python can read.") from None
    except OSError as problem:
        raise Unchecked(type(problem).__name__, f"{path} cannot be read: {problem.strerror or problem}.") from None
    if not source.strip():
        raise Unchecked("EmptyFile", f"{path} is empty, so there is nothing to check.")
    return source


def _parsed(source: str, name: str) -> None:
    """Refuse what is not Python, with its line, before a process is started for it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as problem:
        where = f" (line {problem.lineno}: {problem.msg})" if problem.lineno else ""
        raise Unchecked("SyntaxError", f"{name} is not valid Python{where}.", problem.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        raise Unchecked("SyntaxError", f"{name} is not valid Python.") from None


def document(name: str, trace: Trace, findings: list[Finding], language: Language = "en") -> dict[str, Any]:
    """The JSON object of a checked program."""
    failure, agreement = trace.outcome.failure, trace.agreement
    error = None
    if failure is not None:
        error = {"type": failure.type, "message": failure.message, "line": failure.span.line if failure.span else None}
    return {
        "file": name,
        "torch": dict(trace.environment).get("torch", ""),
        "outcome": trace.outcome.kind,
        "error": error,
        "agreement": {
            "checked": agreement.checked,
            "agreed": agreement.agreed,
            "mirrored": agreement.mirrored,
            "disagreed": agreement.disagreed,
        },
        "findings": [finding.to_dict(language) for finding in findings],
    }


def unchecked(name: str, problem: Unchecked) -> dict[str, Any]:
    """The JSON object of a file that could not be checked: no findings, and the reason where the error stands."""
    return {
        "file": name,
        "torch": "",
        "outcome": "raised",
        "error": {"type": problem.kind, "message": str(problem), "line": problem.line},
        "agreement": {"checked": 0, "agreed": 0, "mirrored": 0, "disagreed": 0},
        "findings": [],
    }


# --- the command ----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab check``."""
    parser.add_argument("file", metavar="FILE", help="the Python program to run and check")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a report; the program's own prints go to standard error"
    )
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="the language of the report")
    parser.add_argument(
        "--timeout", type=_seconds, default=TIMEOUT, metavar="S", help="stop a run of the program after S seconds (default: %(default)g)"
    )
    parser.add_argument("--no-fixes", action="store_true", help="do not try repairs: the program runs once")
    parser.add_argument(
        "--args", nargs=argparse.REMAINDER, default=[], metavar="ARG", help="everything after this is passed on to the program"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError("the time must be more than 0 s")
    return value


def run(args: argparse.Namespace) -> int:
    """Check one file: 0 when there is no error or warning, 1 when there is one, 2 when the file could not be checked."""
    from pitfall_lab.report import report

    try:
        trace, findings = examined(args.file, args.args, timeout=args.timeout, fixes=not args.no_fixes)
    except Unchecked as problem:
        if args.json:
            print(json.dumps(unchecked(args.file, problem), ensure_ascii=False, indent=2))
        print(f"pitfall-lab check: {problem}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(document(args.file, trace, findings, args.language), ensure_ascii=False, indent=2))
    else:
        print(report(args.file, trace, findings, language=args.language), end="")
    if sentence := stopped_early(args.file, trace, findings):
        print(f"pitfall-lab check: {sentence}", file=sys.stderr)
        return 2
    return 1 if any(finding.severity in ("error", "warning") for finding in findings) else 0
