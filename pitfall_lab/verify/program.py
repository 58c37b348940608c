"""Runs a program while recording it, and returns the trace (:func:`trace_program`, :func:`trace_callable`,
:class:`Session`).
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn, Self

import torch

from pitfall_lab.observe import Recorder, release
from pitfall_lab.observe.forks import ForkWatch
from pitfall_lab.observe.hashed_tensors import HashWatch
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.lookups import Kind, LookupWatch
from pitfall_lab.observe.optimizer_watch import Pace, StepWatch
from pitfall_lab.observe.recorder import reason_of
from pitfall_lab.observe.refused_call import uncaught
from pitfall_lab.observe.rounds import SHOWN, Rounds, Sampling
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.observe.swapping import SwapWatch
from pitfall_lab.trace import Failure, Note, Outcome, Part, Source, Span, Trace
from pitfall_lab.verify.finite_watch import Finite
from pitfall_lab.verify.lockstep import Lockstep

#: Larger tensors are modelled without values, so that the cost of a trace does not grow with their size.
VALUE_LIMIT = 4096
#: A limit below the size of every tensor, even an empty one: no values are modelled.
NO_VALUES = -1


def for_drawing() -> Sampling:
    """Return the sampling for a recording that will be drawn: everything is recorded of a short program.

    Of a long one, iterations of a loop that repeat earlier ones are left out once the trace has ``SHOWN`` (3000) steps.
    """
    return Sampling(after=SHOWN)


class Session:
    """Records the code inside a ``with`` block, as a context manager; call :meth:`finish` afterwards for the trace.

    ``filename`` is the code file name of the program's frames (or a tuple of them), ``name`` the program's name in the
    trace, ``text`` its source. Tensors with more than ``value_limit`` elements are modelled without values. With
    ``values=False`` no values are modelled at all: shapes, strides, dtypes, versions, aliasing, the graph, saved
    tensors and errors still are, and recording costs much less. ``limit`` is the number of events after which only
    lines that had not called torch before are recorded, until there are twice as many (:mod:`.reach`). With ``finite``,
    values that are not finite are searched for (:mod:`~pitfall_lab.verify.finite_watch`). With ``sampling``, iterations
    of loops that repeat what was recorded are not recorded (:mod:`~pitfall_lab.observe.rounds`). ``parts``, ``places``
    and ``begins`` are for a text that is made of several cells, see :class:`~pitfall_lab.observe.spans.SourceMap`.
    """

    def __init__(
        self, filename: str | tuple[str, ...], name: str, text: str, value_limit: int = VALUE_LIMIT, *,
        values: bool = True, limit: int | None = None, finite: Finite | None = None,
        parts: tuple[Part, ...] = (), places: Sequence[tuple[str, int, int, int]] = (),
        begins: int = 1, sampling: Sampling | None = None,
    ) -> None:  # fmt: skip
        self.sources = SourceMap(filename, name, text, parts, places, begins=begins)
        self._lockstep = Lockstep(self.sources, value_limit if values else NO_VALUES, limit, finite)
        self._rounds = Rounds(self.sources, self._lockstep.living_nodes, self._lockstep.written, sampling or Sampling())
        self._recorder = Recorder(self._lockstep, self.sources, self._rounds if sampling is not None else None)
        self._steps = StepWatch(self._stepping, self.sources, self._recorder, self._lockstep.written)
        self._lookups = LookupWatch(self._looked_up)
        self._hashes = HashWatch(self.sources, self._lockstep.written, self._lockstep.label)
        self._swaps = SwapWatch(self._swapping, self._swapped)
        self._forks = ForkWatch(self._started, self._forked)
        self._process = os.getpid()
        self._text = text

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked by the program; then nothing is recorded and the program ends as it would
        without a recording.
        """
        return os.getpid() != self._process

    def __enter__(self) -> Self:
        self.begin(sys._getframe(1))
        return self

    def begin(self, around: FrameType | None) -> None:
        """Start recording; ``around`` is the frame that called the program. If nothing can be recorded, the trace
        contains the reason, and nothing is raised.
        """
        try:
            forbidden = release.forbids()
            if forbidden is not None:
                self._recorder.decline(forbidden)
                return
            self._lockstep.expect_unseen(self._text)
            self._recorder.within(around)
            self._steps.start()
            self._lookups.start()
            self._hashes.start()
            self._swaps.start()
            self._lockstep.other_threads.start()
            self._forks.start()
            self._recorder.start()
        except Exception as error:  # the program runs even if recording cannot start
            self._recorder.decline(reason_of(error))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._forks.stop()
        self._lockstep.lines.stop()
        self._recorder.leave()
        self._recorder.within(None)
        self._lockstep.other_threads.stop()
        self._swaps.stop()
        self._hashes.stop()
        self._lookups.stop()
        self._steps.stop()

    def finish(self, error: BaseException | None = None) -> Trace:
        """Return the trace; ``error`` is the exception that ended the program, if any (``SystemExit`` without a code,
        or with 0, counts as none).
        """
        ended = None if error is None or (isinstance(error, SystemExit) and not error.code) else self._outcome(error)
        self._rounds.finish()
        self._steps.finish()
        return self._lockstep.finish(ended, self._rounds, self._hashes.finished())

    @staticmethod
    def aside() -> AbstractContextManager[Any]:
        """Return a context in which torch calls are not recorded, because they are not the program's."""
        return unseen()

    @staticmethod
    def unparsable(text: str, error: BaseException) -> Trace:
        """Return the trace of a cell that could not be parsed and so never ran."""
        return _unparsable(text, "cell", error)

    def _stepping(self, optimizer: torch.optim.Optimizer, pace: Pace, frame: FrameType | None) -> None:
        self._recorder.tell(self._lockstep.stepping, optimizer, pace, frame, span=None)

    def _looked_up(self, kind: Kind, owner: Any, frame: FrameType) -> None:
        if kind == "clearing":
            self._steps.clearing(owner, frame)
        else:
            self._recorder.beside(self._lockstep.looked_up, kind, owner, frame)

    def _swapping(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self._recorder.tell(self._lockstep.swapping, one, other, sys._getframe(2), span=None)

    def _swapped(self, one: torch.Tensor, other: torch.Tensor) -> None:
        self._recorder.tell(self._lockstep.swapped, one, other, sys._getframe(2), span=None)

    def _started(self, frame: FrameType) -> None:
        self._recorder.tell(self._lockstep.process_started, frame, span=None)

    def _forked(self) -> None:
        self._recorder.abandon()
        self.__exit__(None, None, None)

    def _outcome(self, error: BaseException) -> Failure:
        last = self._lockstep.last_failure
        mine = last is not None and last[:2] == (type(error).__name__, str(error))
        if mine and last is not None and last[2].origin != "program":
            return last[2]
        # code of the program that torch called (a hook, for instance) has its own line
        step = last[2].step if mine and last is not None else None
        failure = Failure(type(error).__name__, _text(error), "other", step, self._place(error.__traceback__))
        with contextlib.suppress(Exception), unseen():  # facts that cannot be read are left out
            failure = uncaught(error, failure, self.sources, self._lockstep.label)
        if last is not None and any(last[:2] == (type(cause).__name__, str(cause)) for cause in _causes(error)):
            failure = replace(
                failure, step=last[2].step
            )  # the program raised an error of its own because of torch's error
        refused = self._lockstep.label(_refused_by_optimizer(error))
        return failure if refused is None else replace(failure, kind="non-leaf-optimized", tensor=refused)

    def _place(self, traceback: TracebackType | None) -> Span | None:
        found = None
        while traceback is not None:
            frame = traceback.tb_frame
            if self.sources.is_user(frame.f_code.co_filename):
                found = self.sources.line_span(frame.f_code.co_filename, traceback.tb_lineno) or found
            traceback = traceback.tb_next
        return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions that led to this one: its ``__cause__`` or ``__context__``, and theirs."""
    seen: set[int] = set()
    cause = error.__cause__ or error.__context__
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _refused_by_optimizer(error: BaseException) -> torch.Tensor | None:
    """The non-leaf tensor that an optimizer rejected, read from the frame that raised (no torch function is called with
    it); or None.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    frame = traceback.tb_frame if traceback is not None else None
    if (
        frame is None
        or frame.f_code.co_name != "add_param_group"
        or frame.f_globals.get("__name__") != "torch.optim.optimizer"
    ):
        return None
    given = frame.f_locals.get("param")
    return given if isinstance(error, ValueError) and isinstance(given, torch.Tensor) and not given.is_leaf else None


def trace_program(
    source: str,
    name: str = "program.py",
    namespace: dict[str, Any] | None = None,
    filename: str | None = None,
    argv: Sequence[str] = (),
    *,
    value_limit: int = VALUE_LIMIT,
    values: bool = True,
    tree: ast.Module | None = None,
    limit: int | None = None,
    finite: Finite | None = None,
    sampling: Sampling | None = None,
    leaving: Callable[[Trace], None] | None = None,
) -> Trace:
    """Run ``source`` on torch and the shadow, and return the trace.

    The program runs in this process, in ``namespace`` (a new one by default), and with ``argv``, if given, as the
    arguments after its name. Its exceptions are not raised here but become the trace's outcome (also a syntax error,
    with which nothing runs); only KeyboardInterrupt is raised, and in a process that the program forked any exception.
    ``name`` is its name in the trace, ``filename`` that of its code (derived from ``name`` by default).
    ``values=False`` records without values; for ``value_limit``, ``limit``, ``finite`` and ``sampling`` see
    :class:`Session`. ``tree`` is a syntax tree to run instead of ``source``. ``leaving`` is called with the trace if
    the program ends the process by ``os._exit``, just before that.
    """
    filename = filename or f"<pitfall_lab:{name}>"
    try:
        code = compile(source if tree is None else tree, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError) as error:
        return _unparsable(source, name, error)
    scope = (
        {"__name__": "__main__", "__builtins__": __builtins__, "__file__": filename} if namespace is None else namespace
    )
    known = linecache.cache.get(filename)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    arguments = sys.argv
    try:
        if argv:
            sys.argv = [name, *argv]
        session = Session(
            filename, name, source, value_limit, values=values, limit=limit, finite=finite, sampling=sampling
        )
        with contextlib.nullcontext() if leaving is None else _before_leaving(session, leaving):
            return _run(code, scope, session)
    finally:
        sys.argv = arguments
        if known is None:
            linecache.cache.pop(filename, None)
        else:
            linecache.cache[filename] = known


def trace_callable(function: Callable[[], Any], *, values: bool = True, sampling: Sampling | None = None) -> Trace:
    """Call ``function`` while recording and return the trace; the source is the function's file.

    Its exceptions become the trace's outcome, except KeyboardInterrupt, and any exception in a process that it forked.
    ``values=False`` records no values; for ``sampling`` see :class:`Session`. Raises TypeError for a callable that is
    not written in Python.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        raise TypeError("record() needs a program as text or a function written in Python.")
    text = "".join(linecache.getlines(code.co_filename))
    session = Session(code.co_filename, Path(code.co_filename).name, text, values=values, sampling=sampling)
    failed: BaseException | None = None
    try:
        with session:
            function()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if session.is_forked:
            raise
        failed = error
    try:
        return session.finish(failed)
    finally:
        failed = None


@contextlib.contextmanager
def _before_leaving(session: Session, leaving: Callable[[Trace], None]) -> Iterator[None]:
    """While the context is active, ``os._exit`` first passes the trace to ``leaving``; in a process forked by the
    program it only exits.
    """
    leave = os._exit

    def finish_and_leave(status: int) -> NoReturn:
        os._exit = leave
        if not session.is_forked:
            with contextlib.suppress(Exception):
                session.__exit__(None, None, None)
                ended = SystemExit(status)
                ended.__context__ = sys.exc_info()[1]
                here = sys._getframe(1)
                leaving(session.finish(ended.with_traceback(TracebackType(None, here, here.f_lasti, here.f_lineno))))
        leave(status)

    os._exit = finish_and_leave
    try:
        yield
    finally:
        os._exit = leave


def _run(code: CodeType, scope: dict[str, Any], session: Session) -> Trace:
    failed: BaseException | None = None
    try:
        with session:
            exec(code, scope)  # noqa: S102 - running the learner's program is the purpose
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # any way in which a program can end is an outcome
        if session.is_forked:
            raise
        failed = error
    try:
        return session.finish(failed)
    finally:
        # the frames of the traceback keep the program's tensors alive
        failed = None


def _unparsable(source: str, name: str, error: BaseException) -> Trace:
    span = None
    if isinstance(error, SyntaxError) and error.lineno:
        column = max((error.offset or 1) - 1, 0)
        span = Span(error.lineno, column, error.lineno, column + 1, (column, column + 1))
    failure = Failure(type(error).__name__, _text(error), "other", None, span)
    note = Note("unseen", "The program was not run: Python could not parse it.", "程序没有运行:Python 无法解析它。")
    return Trace((Source(name, source),), outcome=Outcome("raised", failure), notes=(note,))


def _text(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg or "invalid syntax"
    try:
        return str(error)
    except Exception:  # an exception class of the learner's whose own __str__ fails
        return ""
