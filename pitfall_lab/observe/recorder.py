"""The recorder: passes each Python-level torch call of the learner's program to a listener, without changing the
program's behaviour.

It is a ``TorchFunctionMode`` that calls its :class:`Listener` before and after each call. The rest of this module keeps
the program unaffected: warnings keep the learner's file and line (see :class:`Site`), exceptions keep no additional
object alive, and an error in this package ends the recording, never the program.
"""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Protocol, Self

import torch
from torch.overrides import TorchFunctionMode

from pitfall_lab.observe import private, regions, undispatched
from pitfall_lab.observe.looking import dispatching, unseen
from pitfall_lab.observe.optimizer_watch import given_rate, taking
from pitfall_lab.observe.private import dispatch, mode_at, modes_on, pop_mode, push_mode
from pitfall_lab.observe.regions import Region
from pitfall_lab.observe.rounds import Rounds
from pitfall_lab.observe.spans import STAND_IN, SourceMap
from pitfall_lab.observe.torch_names import READS_GRAD_FN, is_quiet, name_of
from pitfall_lab.trace import Cause, Span, T

_getframe = sys._getframe
_compiler, _is_in_dynamo = private.compiler, torch.compiler.is_dynamo_compiling
_CHECKS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
STORES = (".__setitem__", ".__set__")
FETCHING = str(Path(torch.utils.data.__path__[0])) + os.sep
ROUTINE = (str(Path(torch.optim.__path__[0])) + os.sep, FETCHING)
"""The folders of torch's optimizers and data loaders, whose calls are always the same while iterations are left out of
the recording.
"""
GRAD = "torch.Tensor.grad.__get__"
ROOM = 200
"""By how many calls the recursion limit is raised while the end of a recording is reported: the program may have used
up the limit.
"""
OURS = 10
"""By how many calls the recursion limit is raised while torch calls functions of the program back, as backward does, to
make up for the recorder's own frames.
"""
BACKWARD = frozenset({"torch.Tensor.backward", "torch.autograd.backward", "torch.autograd.grad"})
"""The functions that run a backward pass."""
_PASSES = (torch.Tensor.backward, torch.autograd.backward)
"""Those of :data:`BACKWARD` that add to ``.grad``."""


class Verdict(enum.Enum):
    """How the recorder is to run a call."""

    RUN = "run it as one step"
    INSIDE = "run it as one step, but watch the learner's functions that it calls back"
    OPEN = "it is a composite written in Python: look at its parts instead"


@dataclass(slots=True)
class Call:
    """One torch call of the program. No reference to it may be kept after the call, as it would keep the operands
    alive.

    ``name`` is torch's qualified name (``torch.Tensor.add_``), ``func`` the function, ``args`` and ``kwargs`` its
    arguments. ``span`` is the expression in the learner's source (None if unknown), ``scope`` the names of the
    learner's functions around it, outermost first, ``frame`` the learner's innermost frame. ``grad`` and ``inference``:
    whether grad mode and inference mode are on. ``composite``: ``func`` is a Python function of torch whose inner torch
    calls can be recorded instead.
    """

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    span: Span | None
    scope: tuple[str, ...]
    frame: FrameType
    grad: bool
    inference: bool
    dispatching: bool
    """Whether a dispatch mode of the program is on."""
    composite: bool
    direct: bool
    """Whether the learner's own line makes the call, and not library code that it calls."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the listener stores between ``before`` and ``after``."""


class Site:
    """What the recorder knows of one instruction of a code object, in a program or in a library, that calls torch. It
    is kept from one call by this instruction to the next.
    """

    __slots__ = (
        "again",
        "alone",
        "code",
        "is_fetching",
        "is_routine",
        "is_user",
        "names",
        "number",
        "run",
        "scope",
        "scope_number",
        "span",
        "target",
    )

    def __init__(self, frame: FrameType, sources: SourceMap) -> None:
        code = frame.f_code
        #: Kept so that no other code object gets its id.
        self.code = code
        self.is_user = sources.is_user(code.co_filename) and code.co_name != STAND_IN
        self.is_routine = code.co_filename.startswith(ROUTINE)
        self.is_fetching = code.co_filename.startswith(FETCHING)
        self.span = sources.span(frame) if self.is_user else None
        #: The name that the call's result is assigned to.
        self.target = sources.target(self.span) if self.span is not None else None
        #: The scope of the site's calls if its own function is the program's only one around it;
        #: None if that is not known yet.
        self.alone: tuple[str, ...] | None = None
        #: The names in a row of the trace for a new tensor that is assigned to ``target``.
        self.names = ((self.target,), None)
        #: For the listener: the numbers of this site and of the scope of its last call.
        self.number = self.scope_number = -1
        self.scope: tuple[str, ...] | None = None
        #: For the listener: the compiled function for repeated calls of this line.
        self.again: Any = None
        # ``run(func, args, kwargs)`` has the file and line of the caller. A warning is attributed to the innermost
        # Python frame: its file, its line, and the "already shown" registry in its globals. Without this, all warnings
        # would come from here, and the learner's warning filters would act differently.
        own = _run.__code__.replace(co_filename=code.co_filename, co_firstlineno=frame.f_lineno or 1)
        self.run: Callable[..., Any] = types.FunctionType(own, frame.f_globals, _run.__name__)
        private.leave_uncompiled(self.run, alone=True)


Place = tuple[Site, Site, FrameType, tuple[str, ...]]
"""Where a call comes from: the site that makes it, the learner's site for which it is made, the learner's frame, and
its scope.
"""


class Lane(Protocol):
    """A listener's fast path: for calls that were seen before in the same form, so that what they do is known in
    advance.
    """

    functions: set[Any]
    """The functions whose calls may take the fast path."""

    def before(self, func: Any, args: Any, kwargs: Any, place: Place) -> Any:
        """Called before a call of ``func`` with ``args`` and ``kwargs`` from ``place``. Returns a value that is passed
        to :meth:`after` or :meth:`failed` as ``ahead``; None if the call must take the full path.
        """

    def after(self, ahead: Any, result: Any) -> None:
        """Called after the call has returned ``result``; ``ahead`` is what :meth:`before` returned."""

    def failed(self, ahead: Any, error: BaseException) -> None:
        """Called after the call has raised ``error``; ``ahead`` is what :meth:`before` returned."""


class Listener(Protocol):
    """What the recorder calls for each torch call and other event of the program. A ``span`` is the expression in the
    learner's source, None if unknown.
    """

    @property
    def lane(self) -> Lane | None:
        """The fast path; None if this listener has none."""

    def before(self, call: Call) -> Verdict:
        """Called before a call; returns how the recorder is to run it."""

    def after(self, call: Call, result: Any) -> None:
        """Called after a call has returned."""

    def grad_fn_read(self, real: Any) -> None:
        """Called before the program reads the grad_fn or is_leaf of the tensor ``real``, which may regenerate a stale
        grad_fn.
        """

    def given(self, optimizer: torch.optim.Optimizer, parameter: Any, span: Span | None, rate: float | None) -> None:
        """Called when an optimizer receives ``parameter``; ``rate`` is the learning rate of its parameter group, None
        if that is no plain finite number.
        """

    def composed(self, call: Call, result: Any) -> None:
        """Called after a Python function of torch whose inner torch calls were recorded one by one has returned."""

    def failed(self, call: Call, error: BaseException) -> None:
        """Called after a call has raised; the error then propagates to the program."""

    def passed_over(self, region: Region, span: Span | None, scope: tuple[str, ...]) -> None:
        """Called at least once while a region runs (code that torch runs as a whole, such as a compiled function),
        instead of for the calls inside it. ``scope`` are the names of the learner's functions around it.
        """

    def cut_short(self, call: Call, error: BaseException) -> None:
        """Called when torch itself has ended a call early with ``error`` while ``torch.utils.checkpoint`` recomputes,
        because the call's result is not needed.
        """

    def stopped(self, cause: Cause, reason: T, span: Span | None) -> None:
        """Called when the recording ends early, at ``span`` if known; the program continues. ``cause`` is the kind of
        reason, ``reason`` the sentence for the learner. Must not raise.
        """

    def paused(self, reason: T, span: Span | None) -> None:
        """Called when the recording pauses at a limit; ``reason`` is the sentence that names it. Must not raise."""

    def goes_on(self, span: Span | None) -> bool:
        """Called while the recording pauses, before a call from ``span``: return True if the recording continues with
        it.
        """

    def missed(self, span: Span | None) -> None:
        """Called for a call from ``span`` that the program makes after the recording has ended, or while it pauses."""

    def leaves_out(self) -> None:
        """Called when iterations of a loop begin that are not recorded."""

    def returns(self) -> None:
        """Called when the recording continues after iterations that were not recorded. Must not raise."""


class Recorder(TorchFunctionMode):
    """Calls ``listener`` for the torch calls that the learner's program makes in this thread while the mode is on.

    ``sources`` finds the learner's frames and lines; ``rounds`` decides which iterations of the program's loops are
    recorded (None: all).
    """

    def __init__(self, listener: Listener, sources: SourceMap, rounds: Rounds | None = None) -> None:
        super().__init__()
        #: Which rounds of the program's loops are recorded; None: all.
        self._rounds = rounds
        self._is_close = rounds is not None and rounds.closely
        self._idle: set[Any] = set()
        """Functions written in C++ that only read a tensor, whose calls are not examined while iterations are left
        out.
        """
        self._is_off = False
        """Whether the mode is removed at present, for an optimizer's step."""
        self._is_between = False
        """Whether the running iteration is not recorded; the recording then pauses as well."""
        self._listener = listener
        self._sources = sources
        self._stopped = self._is_paused = self._is_aside = self._is_on = False
        """``_is_aside``: no call may take the fast path, because the recording has ended or pauses, or torch is inside
        a region or a backward.
        """
        self._names: dict[Any, tuple[str, bool]] = {}
        self._lane = listener.lane
        self._sites: dict[tuple[int, int], Site] = {}
        self._scopes: dict[Any, tuple[tuple[str, ...], list[CodeType]]] = {}
        self._around: FrameType | None = None
        """The frame that called the program; ``_outer`` is its scope."""
        self._outer: tuple[str, ...] = ()
        self._backward_frame: FrameType | None = None
        # Tensor.backward calls autograd.backward, which is the same call; a later one comes from a checkpoint.
        self._handed_on = False
        self.backwards = 0
        """How many backward passes the program has made, recorded or not; those inside a backward do not count."""
        self._in_region = False
        # A part of a composite may have the composite's name (``super().unflatten(...)``); it must
        # not be opened again and again.
        self._opened: list[Any] = []

    def __torch_function__(  # noqa: C901, PLR0912, PLR0915 - runs at every call
        self, func: Callable[..., Any], kinds: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one call in torch, and call the listener before and after it."""
        __tracebackhide__ = True
        kwargs = kwargs or {}
        if self._is_between:
            if func in self._idle:
                return func(*args, **kwargs)
            if func in _GRADIENT:
                caller = _getframe(1)
                known = self._sites.get((id(caller.f_code), caller.f_lasti))
                if known is not None and not known.is_user:
                    return known.run(func, args, kwargs)
        # torch's Python functions also pass the class Tensor in ``kinds`` (handle_torch_function); only classes of the
        # program matter here. Functions that get or set an attribute pass Parameter, which does not handle operations.
        if kinds and kinds in (_PLAIN, _PARAMETERS):
            kinds = None
        if _is_in_dynamo() or _compiler._is_compiling_flag:
            return func(
                *args, **kwargs
            )  # torch.compile traces through modes and must not see this package in its graph
        caller = _getframe(1)
        code = caller.f_code
        if code is dispatch:
            kwargs = _all_given(func, args, kwargs, caller)
            if kwargs.get(LEVEL, 0) > TO_CALLER:
                kwargs = {**kwargs, LEVEL: kwargs[LEVEL] + DETOUR}
            caller = _caller(caller)
            code = caller.f_code
        try:
            site = self._sites.get((id(code), caller.f_lasti)) or self._site(caller)
            skipped = self._rounds is not None and (
                self._skips_routine(site)
                if site.is_routine and not self._compares(site)
                else self._leaves_out(func, args, kwargs, caller, site)
            )
        except Exception as error:
            self.stop(error)
            return func(*args, **kwargs)
        run, lane = site.run, self._lane
        if skipped:
            try:
                result = run(func, args, kwargs)
            except BaseException as error:
                self._failed_between(error, func, args, kwargs, caller)
                caller = func = args = kwargs = run = kinds = None  # type: ignore[assignment]
                BaseException.with_traceback(error, clean_traceback(error.__traceback__))
                raise
            if func in _PASSES:
                self.backwards += 1
            if self._is_close and self._rounds.closely:  # type: ignore[union-attr]
                self._looked(result)
            return result
        if lane is not None and not (kinds or self._is_aside) and func in lane.functions:
            # Most calls (of plain tensors, which no other class handles) take this path, with as few
            # Python calls of ours as possible.
            ahead, place = None, None
            try:
                if site.is_user:
                    scope = site.alone if caller.f_back is self._around else None
                    place = site, site, caller, self._scope(caller) if scope is None else scope
                else:
                    place = self._place(site, caller)
                if place is not None:
                    ahead = lane.before(func, args, kwargs, place)
            except Exception as error:
                self.stop(error, site.span)
            place = None
            if ahead is not None:
                try:
                    result = run(func, args, kwargs)
                except BaseException as error:
                    self._guarded(lane.failed, ahead, error, span=site.span)
                    ahead = caller = func = args = kwargs = run = kinds = None  # type: ignore[assignment]
                    BaseException.with_traceback(error, clean_traceback(error.__traceback__))
                    raise
                try:
                    if not (self._stopped or self._is_paused):
                        lane.after(ahead, result)
                except Exception as error:
                    self.stop(error, site.span)
                return result
        call, verdict = self._begin(func, kinds, args, kwargs, caller)
        caller = None  # type: ignore[assignment]
        try:
            if call is None:
                return (
                    run(func, args, kwargs)
                    if kinds or self._backward_frame is None
                    else self._pass_on(func, run, args, kwargs)
                )
            if verdict is Verdict.OPEN:
                self._opened.append(func)
                try:
                    with self:
                        result = run(private_copy(func), args, kwargs)
                finally:
                    self._opened.pop()
                self.tell(self._listener.composed, call, result, span=call.span)
                return result
            result = (
                self._inside(func, run, call, args, kwargs) if verdict is Verdict.INSIDE else run(func, args, kwargs)
            )
        except BaseException as error:
            if call is not None and verdict is not Verdict.OPEN:
                stopped = type(error).__name__ == private.ENOUGH_RECOMPUTED
                self.tell(self._listener.cut_short if stopped else self._listener.failed, call, error, span=call.span)
            # The traceback keeps this frame and the frames inside it alive; they must not keep the
            # call's tensors alive as well.
            call = func = args = kwargs = run = kinds = None  # type: ignore[assignment]
            BaseException.with_traceback(error, clean_traceback(error.__traceback__))
            raise
        self.tell(self._listener.after, call, result, span=call.span)
        return result

    def within(self, frame: FrameType | None) -> None:
        """Set the frame in which the program runs (None: it has ended). The names of the functions around it are then
        computed once instead of at every call.
        """
        inside = frame is not None and self._sources.is_user(frame.f_code.co_filename)  # a block of the program itself
        self._around, self._outer = frame, self._sources.scope(frame) if frame is not None and inside else ()
        if self._rounds is not None:
            self._rounds.around = frame
        self._scopes.clear()
        for site in self._sites.values():
            site.alone = None

    def start(self) -> Self:
        """Enter this function mode in the current thread, and return the recorder."""
        if private.has_modes:
            torch.overrides.has_torch_function = _unaware_of_us  # type: ignore[assignment]
        undispatched.begin()
        self._is_on = True
        self.__enter__()  # type: ignore[no-untyped-call]
        return self

    def abandon(self) -> None:
        """End the recording in a process that the program forked; the listener is notified.

        The mode itself is removed by :meth:`leave`, which is called next; where the process was forked inside a call or
        a backward, it stays on, and records nothing.
        """
        self._end("removed", FORKED)
        self._is_on = self._is_on and self._backward_frame is None and not self._opened

    def leave(self) -> None:
        """Remove the mode from this thread, also from below a mode that the program entered later and left on
        (``set_default_device``). Does nothing if it is not on.

        If the program has removed it, the listener is notified that the recording has ended.
        """
        if torch.overrides.has_torch_function is _unaware_of_us:  # else the program has replaced it
            torch.overrides.has_torch_function = _HAS_TORCH_FUNCTION
        undispatched.end()
        if not self._is_on:
            return
        self._is_on = False
        self.stepped()  # one that raised
        if not private.has_modes:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            return
        above: list[Any] = []
        while modes_on():
            mode = pop_mode()
            if mode is self:
                break
            above.append(mode)
        else:
            self._end("removed", REMOVED)
        for mode in reversed(above):
            push_mode(mode)

    def stop(self, error: Exception, span: Span | None = None) -> None:
        """End the recording because of ``error`` at ``span``: a failure of this package, or an :class:`Enough` raised
        by the listener. If that has ``only_pauses``, the recording only pauses.

        The program continues.
        """
        if isinstance(error, Enough) and error.only_pauses and not self._stopped:
            self._is_paused = self._is_aside = True
            self._listener.paused(error.why, span)
            return
        self._end("limit" if isinstance(error, Enough) else "failure", reason_of(error), span)

    def beside(self, tell: Callable[..., None], kind: str, owner: Any, frame: FrameType) -> None:
        """Call ``tell(kind, owner, frame)``, a method of the listener, for an event that is no torch call: the program
        uses a method of ``owner`` that :mod:`~pitfall_lab.observe.lookups` observes.

        If iterations are not recorded at present and no recorded one had such an event, recording resumes first.
        """
        self.stepped()
        self._notes(kind, frame)
        was, self._is_paused = self._is_paused, self._is_paused and not self._is_between
        self.tell(tell, kind, owner, frame, span=None)
        self._is_paused = self._is_paused or was

    def _notes(self, kind: str, frame: FrameType) -> None:
        if self._rounds is not None and not self._stopped and (self._is_between or not self._is_paused):
            try:
                if self._rounds.notes(kind, frame):
                    self._return()
            except Exception as error:
                self.stop(error)

    def stepping(self, optimizer: torch.optim.Optimizer, frame: FrameType | None, *, plain: bool) -> None:
        """Called before a step of ``optimizer``, which ``frame`` of the program makes (None if there is none).

        If iterations are not recorded at present, and no recorded iteration of their loop made a step at this position,
        recording resumes. If they still are not recorded and the step is ``plain`` (it runs only torch's code), the
        mode is removed during the step, because it costs time; :meth:`stepped` restores it.
        """
        self.stepped()
        if self._rounds is None:
            return
        if frame is not None:
            self._notes("step", frame)
        with (
            contextlib.suppress(Exception),
            unseen(),
        ):  # parameter groups may be anything that the program makes of them
            self._rounds.stepping(optimizer)
        if self._is_between and plain and private.has_modes and modes_on() and mode_at(modes_on() - 1) is self:
            self._is_off = True
            pop_mode()

    def stepped(self) -> None:
        """Called after an optimizer's step: restore the mode if it was removed during the step."""
        if self._is_off:
            self._is_off = False
            push_mode(self)

    def _compares(self, site: Site) -> bool:
        """Whether calls by an instruction in torch's data loaders can begin iterations, or do in the loop that is not
        recorded at present.
        """
        return site.is_fetching and (not self._is_between or self._rounds.fetches)  # type: ignore[union-attr]

    def _skips_routine(self, site: Site) -> bool:
        """Whether a call of torch's data loaders or optimizers is in an iteration that is not recorded; the call is
        counted.
        """
        if self._rounds is not None:
            if self._is_between:
                self._rounds.unseen += site.is_fetching
            else:
                self._rounds.routine += 1
        return self._is_between

    def _leaves_out(self, func: Any, args: Any, kwargs: Any, caller: FrameType, site: Site) -> bool:
        """Whether a call belongs to an iteration of a loop that is not recorded; if it repeats no recorded call,
        recording resumes with it.
        """
        rounds = self._rounds
        if self._stopped or rounds is None or (self._is_paused and not self._is_between):
            return False
        name, quiet = self._names.get(func) or self._name(func)
        if quiet and name not in READS_GRAD_FN:
            if self._is_between and not isinstance(func, types.FunctionType):
                self._idle.add(func)
            return self._is_between
        if name == GRAD and not site.is_user:
            return self._is_between
        if self._is_between:
            if regions.tracing():
                return True
            if (
                self._repeats(rounds, func, args, kwargs, caller)
                if modes_on()
                else rounds.repeats(func, args, kwargs, caller)
            ):
                return True
            self._return()
        if self._backward_frame is not None or self._opened or self._in_region or regions.possible():
            return False
        with unseen():
            self._is_between = rounds.leaves(func, args, kwargs, caller, fetches=site.is_fetching)
            if self._is_between:
                self._is_paused = self._is_aside = True
                self._listener.leaves_out()
        return self._is_between

    def _name(self, func: Any) -> tuple[str, bool]:
        """The name of a function, and whether its calls are not recorded."""
        name = name_of(func)
        known = self._names[func] = (name, is_quiet(name))
        return known

    @staticmethod
    def _repeats(rounds: Rounds, func: Any, args: Any, kwargs: Any, caller: FrameType) -> bool:
        with unseen():  # another mode would see how the shapes are read
            return rounds.repeats(func, args, kwargs, caller)

    def _looked(self, result: Any) -> None:
        """Test the result of a call that is not recorded for NaN (see :meth:`Rounds.look`); an error in the test ends
        the recording.
        """
        try:
            self._rounds.look((result,))  # type: ignore[union-attr]
        except Exception as error:
            self.stop(error)

    def _return(self) -> None:
        """Resume recording after iterations that were not recorded."""
        self._is_between = self._is_paused = False
        self._look_aside()
        self._listener.returns()

    def _failed_between(self, error: BaseException, func: Any, args: Any, kwargs: Any, caller: FrameType) -> None:
        """Record a call that has raised in an iteration that is not recorded."""
        try:
            if not self._is_between or self._stopped or not isinstance(error, Exception) or is_quiet(name_of(func)):
                return
            self._rounds.returns()  # type: ignore[union-attr]
            self._return()
        except Exception as failure:
            self.stop(failure)
        call, _ = self._begin(func, _WHOLE, args, kwargs, caller)
        if call is not None:
            self.tell(self._listener.failed, call, error, span=call.span)

    def decline(self, reason: T) -> None:
        """Notify the listener that nothing will be recorded, for ``reason``; the program runs."""
        self._end("never", reason)

    def _end(self, cause: Cause, reason: T, span: Span | None = None) -> None:
        if not self._stopped:
            self._stopped = self._is_aside = True
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + ROOM)
            try:
                self._listener.stopped(cause, reason, span)
            finally:
                sys.setrecursionlimit(limit)

    def _miss(self, func: Any, caller: FrameType) -> None:
        """Notify the listener of a call that is not recorded because the recording has ended or pauses.

        Calls that are never recorded, and reads of ``.grad`` by torch itself, do not count.
        """
        with contextlib.suppress(Exception), unseen():
            name = name_of(func)
            frame = None if is_quiet(name) else self._sources.user_frame(caller)
            if frame is not None and (name != GRAD or frame is caller):
                self._listener.missed(self._sources.span(frame))

    def _begin(
        self, func: Callable[..., Any], kinds: Any, args: tuple[Any, ...], kwargs: dict[str, Any], caller: FrameType
    ) -> tuple[Call | None, Verdict]:
        if self._stopped or (self._is_paused and not self._goes_on(func, caller)):
            self._miss(func, caller)
            return None, Verdict.RUN
        span = None
        try:
            name, quiet = self._names.get(func) or self._name(func)
            if quiet:
                if name in READS_GRAD_FN:
                    self._listener.grad_fn_read(args[0])
                    self._given(caller, args[0])
                return None, Verdict.RUN
            if (self._in_region or regions.possible()) and self._passed_over(caller):
                return None, Verdict.RUN
            frame = self._sources.user_frame(caller)
            if frame is None or self._is_machinery(frame, func, caller) or (name == GRAD and frame is not caller):
                # An optimizer reads each .grad several times; the program did not write that, and it has no effect.
                return None, Verdict.RUN
            span = self._sources.span(frame)
            if span is not None and name.endswith(STORES):
                span = self._sources.statement(span)
            call = Call(
                name, func, args, kwargs, span, self._scope(frame), frame,
                torch.is_grad_enabled(), torch.is_inference_mode_enabled(), dispatching(),
                # If a class of the program handles the call, it handles it as a whole, so its parts are not recorded.
                not kinds and func not in self._opened and is_composite(func), frame is caller,
            )  # fmt: skip
            with unseen():
                return call, self._listener.before(call)
        except Exception as error:  # an error in this package must not reach the learner's program
            self.stop(error, span)
            self._miss(func, caller)
            return None, Verdict.RUN

    def _goes_on(self, func: Any, caller: FrameType) -> bool:
        """Whether the paused recording continues with this call, because the program makes it at a line that was not
        recorded yet.
        """
        if self._backward_frame is not None or self._opened or regions.tracing():
            return False
        try:
            with unseen():
                frame = None if is_quiet(name_of(func)) else self._sources.user_frame(caller)
                self._is_paused = frame is None or not self._listener.goes_on(self._sources.span(frame))
        except Exception as error:
            self._end("failure", reason_of(error))
        self._look_aside()
        return not (self._is_paused or self._stopped)

    def _given(self, caller: FrameType, parameter: Any) -> None:
        """Notify the listener if ``parameter`` is read because an optimizer receives it."""
        optimizer = taking(caller)
        if optimizer is not None:
            frame = self._sources.user_frame(caller)
            span = self._sources.span(frame) if frame is not None else None
            self._listener.given(optimizer, parameter, span, given_rate(caller, optimizer))

    def _passed_over(self, caller: FrameType) -> bool:
        """Whether the call is inside a region that torch runs as a whole; the listener is notified of the region.

        True too while a function transform runs for which no region is found; inside a backward, only then.
        """
        region = regions.around(caller, self._sources) if self._backward_frame is None else None
        if region is not None:
            self._listener.passed_over(region, self._sources.span(region.frame), self._scope(region.frame))
        self._in_region = region is not None  # a region also makes plain calls between its transforms
        self._look_aside()
        return self._in_region or private.transform() is not None

    def _is_machinery(self, frame: FrameType, func: Any, caller: FrameType) -> bool:
        """Whether torch itself makes the call inside a backward that ``frame`` started, or a ``__torch_dispatch__`` of
        the learner makes it there.
        """
        if self._backward_frame is frame:
            return not (self._handed_on and func is undispatched.BACKWARD)
        return self._backward_frame is not None and self._handles_operations(caller)

    def _handles_operations(self, frame: FrameType) -> bool:
        """Whether a ``__torch_dispatch__`` of the learner runs the engine's operations (calls there are recorded only
        outside backward).
        """
        walk: FrameType | None = frame
        while walk is not None and walk is not self._backward_frame:
            if walk.f_code.co_name == "__torch_dispatch__":
                return True
            walk = walk.f_back
        return False

    def _pass_on(self, func: Callable[..., Any], run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a call of torch inside a backward.

        Tensor.backward calls autograd.backward, which runs the learner's hooks.
        """
        __tracebackhide__ = True
        if func is not undispatched.BACKWARD:
            return run(func, args, kwargs)
        self._handed_on = True
        with self:
            return run(private_copy(func), args, kwargs)

    def _inside(self, func: Callable[..., Any], run: Callable[..., Any], call: Call, args: Any, kwargs: Any) -> Any:
        __tracebackhide__ = True
        outer = self._backward_frame, self._handed_on
        self.backwards += outer[0] is None and func in _PASSES
        self._backward_frame, self._handed_on = call.frame, func is not torch.Tensor.backward
        self._look_aside()
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + OURS)
        try:
            with self:
                return run(private_copy(func) if call.composite else func, args, kwargs)
        finally:
            if sys.getrecursionlimit() == limit + OURS:  # else the program has set another
                sys.setrecursionlimit(limit)
            self._backward_frame, self._handed_on = outer
            self._look_aside()

    def _look_aside(self) -> None:
        self._is_aside = self._stopped or self._is_paused or self._in_region or self._backward_frame is not None

    def _guarded(self, tell: Callable[..., None], *args: Any, span: Span | None) -> None:
        if self._stopped or self._is_paused:
            return
        try:
            tell(*args)
        except Exception as error:
            self.stop(error, span)

    def tell(self, tell: Callable[..., None], *args: Any, span: Span | None) -> None:
        """Call ``tell(*args)``, a method of the listener, with function modes and dispatch modes off; an error in it
        ends the recording at ``span``, not the program. Nothing is called if the recording has ended or pauses.
        """
        with unseen():
            self._guarded(tell, *args, span=span)

    def _site(self, frame: FrameType) -> Site:
        key = (id(frame.f_code), frame.f_lasti)
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = Site(frame, self._sources)
        return site

    def _place(self, site: Site, frame: FrameType) -> Place | None:
        """Return where a call comes from: the calling site, the learner's innermost site and frame, and its scope; None
        if no frame is the learner's.
        """
        caller = site
        while not site.is_user:
            if frame.f_back is None:
                return None
            frame = frame.f_back
            site = self._site(frame)
        return caller, site, frame, self._scope(frame)

    def _scope(self, frame: FrameType) -> tuple[str, ...]:
        """Like :meth:`SourceMap.scope` (at most 12 functions), but the functions outside the program are determined
        only once.
        """
        outside = self._around
        around = []
        walk: FrameType | None = frame
        while walk is not outside:
            if walk is None:
                return self._sources.scope(frame)
            around.append(id(walk.f_code))
            walk = walk.f_back
        key = tuple(around)
        known = self._scopes.get(key)
        if known is None:
            own, walk = [], frame
            while walk is not None and walk is not outside:
                own.append(walk.f_code)
                walk = walk.f_back
            inner = tuple(c.co_qualname for c in reversed(own) if self._sources.is_learners(c))
            # The code objects are kept so that no others get their ids.
            known = self._scopes[key] = (*self._outer, *inner)[-12:], own
        if len(key) == 1:
            self._site(frame).alone = known[0]
        return known[0]


# One line: the code's line table must have no second.
# fmt: off
def _pitfall_lab_run(func, args, kwargs): return func(*args, **kwargs) if kwargs else func(*args)  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
# fmt: on


_run = _pitfall_lab_run


_GRADIENT = {torch.Tensor.grad.__get__}  # type: ignore[union-attr]
_WHOLE = (object,)
"""Passed instead of the classes that handle a call, so that the call is recorded as a whole."""
_PLAIN = (torch.Tensor,)
_PARAMETERS = (torch.nn.Parameter,)
FAST_PATHS = frozenset({"torch.nn.modules.activation", "torch.nn.modules.transformer"})
_HAS_TORCH_FUNCTION = torch.overrides.has_torch_function


def _unaware_of_us(relevant_args: Any) -> bool:
    """``torch.overrides.has_torch_function`` without this recorder, for callers whose behaviour depends on it.

    Attention and transformer layers take their fast path only if it returns False, and that path gives other values at
    padded positions.
    """
    if sys._getframe(1).f_globals.get("__name__") not in FAST_PATHS:
        return bool(_HAS_TORCH_FUNCTION(relevant_args))
    above: list[Any] = []
    while depth := modes_on():
        if not isinstance(mode_at(depth - 1), Recorder):
            break
        above.append(pop_mode())
    try:
        return bool(_HAS_TORCH_FUNCTION(relevant_args))
    finally:
        for mode in reversed(above):
            push_mode(mode)


def is_watched() -> bool:
    """Whether a recorder is on in this thread; False if torch does not show its modes."""
    return private.has_modes and any(isinstance(mode_at(place), Recorder) for place in range(modes_on()))


LEVEL, TO_CALLER, DETOUR = "_stacklevel", 3, 4
"""How many frames up softmax warns: TO_CALLER reaches its caller, whose frame the recorder replaces; further up, DETOUR
frames of torch and the recorder are in between.
"""


def _caller(frame: FrameType) -> FrameType:
    """Skip the frames of torch's dispatch, and of the functions that it dispatches: return the frame that called the
    torch function.
    """
    while frame.f_code is dispatch and frame.f_back is not None and frame.f_back.f_back is not None:
        frame = frame.f_back.f_back
    return frame


def _all_given(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dispatch: FrameType) -> dict[str, Any]:
    """Return ``kwargs``, plus the arguments that ``func`` received but did not pass on to ``handle_torch_function``.

    In torch 2.13 ``F.l1_loss`` omits ``weight``, ``torch.chain_matmul`` ``out`` and ``Tensor.dim_order``
    ``ambiguity_check``: any function mode would ignore them. They are read from the frame of ``func``, which called
    ``handle_torch_function``.
    """
    caller = dispatch.f_back
    if caller is None or caller.f_code is not getattr(func, "__code__", None):
        return kwargs
    code = caller.f_code
    positional, last = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    forgotten = [
        name
        for name in (*code.co_varnames[len(args) : positional], *code.co_varnames[positional:last])
        if name not in kwargs
    ]
    if not forgotten:
        return kwargs
    named = dict(
        zip(
            code.co_varnames[positional - len(func.__defaults__ or ()) : positional],
            func.__defaults__ or (),
            strict=True,
        )
    )
    defaults, given = named | (func.__kwdefaults__ or {}), caller.f_locals
    return kwargs | {
        name: given[name] for name in forgotten if name in given and given[name] is not defaults.get(name, _NOTHING)
    }


_NOTHING = object()


def is_composite(func: Any) -> bool:
    """Whether ``func`` is a Python function of torch that dispatches to function modes (it calls
    ``has_torch_function``), so that the torch calls inside it can be recorded.
    """
    return isinstance(func, types.FunctionType) and any(
        name in func.__code__.co_names and name in func.__globals__ for name in _CHECKS
    )


def private_copy(func: Any) -> Any:
    """Return a copy of a Python function of torch that does not dispatch to function modes.

    With the mode on, the original would call this recorder again. The function's module is not changed.
    """
    scope = dict(func.__globals__)
    for name in _CHECKS:
        if name in scope:
            scope[name] = _never
    copy = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False


class Enough(Exception):
    """Raised by a listener to end the recording; ``why`` is the reason, a sentence for the learner in English and
    Chinese.
    """

    only_pauses = False
    """Whether the recording may continue later."""

    def __init__(self, why: T) -> None:
        super().__init__(why.en)
        self.why = why


REMOVED = T(
    en="the program removed pitfall_lab's function mode from torch's stack of modes",
    zh="程序把 pitfall_lab 的函数模式从 torch 的模式栈上取走了",
)


FORKED = T(
    en="this is a process that the program forked",
    zh="这是程序 fork 出来的另一个进程",
)


def reason_of(error: Exception) -> T:
    """Return the reason why a recording ended, a sentence in English and Chinese, from the error that ended it."""
    if isinstance(error, Enough):
        return error.why
    said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    if "RecursionError" in said:  # ctypes raises an error of its own with these words
        limit = sys.getrecursionlimit()
        return T(
            en=f"the program's calls are nested almost as deep as Python allows ({limit:,} calls)",
            zh=f"程序的调用嵌套深度已接近 Python 的上限（{limit} 层）",
        )
    return T(en=f"pitfall_lab failed ({said})", zh=f"pitfall_lab 内部出错（{said}）")


private.leave_uncompiled(
    Recorder._begin, Recorder._place, Recorder._scope, Recorder._site, Recorder.tell, Recorder._guarded, Recorder._miss,
    Recorder._leaves_out,
)  # fmt: skip
private.leave_uncompiled(Recorder.__torch_function__, alone=True)

OUR_CODE = frozenset({Recorder.__torch_function__.__code__, Recorder._inside.__code__, Recorder._pass_on.__code__})


def clean_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of the recorder and of torch's dispatch to it; None if no frame is left
    or ``traceback`` is None.

    A Python function of torch appears twice (before and after the dispatch), and the first one is removed. A frame
    called by torch's dispatch for another reason has the name ``__torch_function__`` and stays.
    """
    kept: list[TracebackType] = []
    walk = traceback
    while walk is not None:
        code = walk.tb_frame.f_code
        if code not in OUR_CODE and code.co_name != STAND_IN:
            if kept and kept[-1].tb_frame.f_code is dispatch and code.co_name != "__torch_function__":
                del kept[-2:]
            kept.append(walk)
        walk = walk.tb_next
    following: TracebackType | None = None
    for item in reversed(kept):
        following = TracebackType(following, item.tb_frame, item.tb_lasti, item.tb_lineno)
    return following
