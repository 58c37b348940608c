"""Run a small program here and now, on the real torch, and say what came of it. :func:`execute` returns what the
program did.

The program is trusted (it is part of the lesson) and runs inside this process, so it sees the torch that the
learner uses. It gets a fresh ``__main__``-like namespace, and torch's random stream and modes are put back
afterwards: showing a claim must not change the numbers that the learner's next cell draws.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pitfall_lab.shadow.facade.running import After, step


@dataclass(frozen=True, slots=True)
class ProgramRan:
    """What a program did: ``namespace`` has its names, ``printed`` is its printed text, and ``error`` the exception
    that ended it; ``error`` and ``line`` are None when it finished.
    """

    namespace: dict[str, Any] = field(repr=False)
    printed: str
    error: Exception | None
    line: int | None
    """Line of the program that was running when the exception left it, from 1."""


def execute(source: str, name: str = "<lesson>", after: After | None = None) -> ProgramRan:
    r"""Execute ``source`` in a fresh namespace and return what it did.

    Its exceptions are part of the result, except ``SystemExit`` and ``KeyboardInterrupt``, which are raised. ``after``
    is called after each top-level statement with its last line, the names, and what has been printed.

    >>> execute("print(6 * 7)").printed
    '42\n'
    >>> type(execute("x = 1\n1 / 0").error).__name__
    'ZeroDivisionError'
    """
    # Tracebacks (torch's anomaly mode prints one) show source lines only for files that linecache knows.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    printed = io.StringIO()
    error: Exception | None = None
    with undisturbed(source), contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            step(
                ast.parse(source, name),
                name,
                namespace,
                after and (lambda line: after(line, namespace, printed.getvalue())),
            )
        except Exception as caught:
            error = caught
    return ProgramRan(namespace, printed.getvalue(), error, failing_line(error, name))


def failing_line(error: BaseException | None, name: str) -> int | None:
    """The innermost line of the program ``name`` in the traceback of ``error``; None if there is none.

    For a SyntaxError in the program itself, which then has not run, it is the line that the error names. No method of
    the error's own class is called, since the class may be the learner's.
    """
    if error is None:
        return None
    found, frame = None, _of_python(BaseException, "__traceback__", error)
    while frame:
        if frame.tb_frame.f_code.co_filename == name:
            found = frame.tb_lineno
        frame = frame.tb_next
    if found is None and issubclass(type(error), SyntaxError):
        file, line = (_of_python(SyntaxError, word, error) for word in ("filename", "lineno"))
        found = line if type(file) is str and file == name and type(line) is int else None
    return found


def _of_python(kind: type, name: str, value: object) -> Any:
    """The value of the attribute ``name`` as the built-in class ``kind`` defines it, whatever a derived class
    overrides.
    """
    return vars(kind)[name].__get__(value)


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Drop what compiled libraries write straight to the process's error stream: torch's
    profiler reports its stages there.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # a process without an error stream has nothing to keep quiet
        yield
        return
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


# Settings of the whole process: how to read and write each (names below ``torch``), and the
# name or value a lesson starts from.
_SETTINGS: tuple[tuple[str, str, object], ...] = (
    ("get_rng_state", "set_rng_state", None),
    ("get_num_threads", "set_num_threads", None),
    ("is_grad_enabled", "set_grad_enabled", True),
    ("is_anomaly_enabled", "set_anomaly_enabled", False),
    ("get_default_dtype", "set_default_dtype", "float32"),
    ("get_deterministic_debug_mode", "set_deterministic_debug_mode", 0),
    # torch says many of its warnings once in a process: what a lesson shows must not depend on what ran before it.
    ("is_warn_always_enabled", "set_warn_always", True),
)


@contextlib.contextmanager
def undisturbed(source: str) -> Iterator[None]:
    """A context manager that runs a lesson with torch's default settings, and restores the learner's settings
    afterwards.

    ``source`` is the program. This layer does not import torch for itself; but if the program mentions torch, it is
    imported first, so that there are settings to restore.
    """
    if "torch" in source and "torch" not in sys.modules:
        with contextlib.suppress(ImportError):
            exec("import torch", {})  # noqa: S102 - a constant; see above
    torch = sys.modules.get("torch")
    noted = (
        [(getattr(torch, write), getattr(torch, read)(), fresh) for read, write, fresh in _SETTINGS] if torch else []
    )
    try:
        for write, _, fresh in noted:
            if fresh is not None:
                write(getattr(torch, fresh) if isinstance(fresh, str) else fresh)
        with _quiet_libraries():
            yield
    finally:
        for write, value, _ in noted:
            write(value)
