"""One run of a learner's cell, and what was seen of it, as plain data.

What decides an exercise never touches the learner's objects: it sends expressions, which are evaluated where the cell
ran, and gets arrays, numbers and texts back. So the cell may as well run in another process: a :class:`Request` and an
:class:`Observation` travel as JSON, and :func:`observe` is what the other side does.
"""

# ruff: noqa: PLC0415 - a run on the shadow engine needs no torch; verify is imported for runs on torch

from __future__ import annotations

import builtins
import contextlib
import io
import itertools
import json
import linecache
import math
import operator
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np

from pitfall_lab.lessons import demonstrations, worlds
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.run_here import failing_line, undisturbed
from pitfall_lab.shadow.facade import tensors as facade
from pitfall_lab.trace import T, Trace

NAME = "<exercise>"
SETUP = "import numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
"""What every exercise's cell finds imported."""
AS_TORCH = "torch"
"""In the place of a misconception's key: the world of the shadow engine in which everything is as in torch."""
PRINTED = 20_000
"""Characters of output that are kept."""
MOST_PRINTED = 1 << 22
"""Characters that a cell may print; more of them end it."""
MOST_WARNED, LONGEST_WARNING = 200, 1000
"""Warnings of a cell that are kept, and their characters."""
_WORD = re.compile(r"[^\W\d]\w*")
_LACKS = re.compile(r"'([\w.]+)' object has no attribute '(\w+)'")

UNMODELLED = "Unmodelled"
"""The type of a :class:`Problem` that says that the shadow engine cannot run a program."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An exception: its type's name, its message, and the line of the cell that raised it.

    ``line`` is None if the exception was raised outside the cell.
    """

    type: str
    message: str
    line: int | None = None

    def say(self) -> T:
        """Return the problem as half a sentence."""
        what = f"{self.type}: {self.message}".rstrip(": ")
        what = what if len(what) <= 160 else what[:158] + " …"
        if self.line is None and self.type == "AttributeError" and (lacks := _LACKS.match(self.message)):
            kind, name = lacks.groups()
            return T(en=f"a value of type {kind} has no `{name}`", zh=f"类型为 {kind} 的值没有 `{name}`")
        if self.line is None:
            return T(en=what, zh=what)
        return T(en=f"line {self.line} raises {what}", zh=f"第 {self.line} 行抛出 {what}")


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that cannot be sent between processes; ``kind`` is the name of its type."""

    kind: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run ``setup``, ``cell``, ``inputs`` and ``drive`` in this order, and then to evaluate
    ``expressions``.

    The first four are program texts, run in a fresh namespace. Names that ``inputs`` and ``drive`` assign are not in
    the cell's own namespace: its functions get only their arguments. The random number generators are seeded with
    ``seed`` before the cell, and again before ``inputs``. The values that ``inputs`` made are copied before ``drive``
    runs: expressions see them as ``before``. ``watched``: cell, inputs and drive are recorded. ``believing`` is the key
    of a misconception, or :data:`AS_TORCH`: then all is run on the shadow engine, under that belief or as torch does
    it, and nothing is recorded (empty: on torch). If ``without`` names functions, statements below the cell's last
    definition that use them are left out (:mod:`pitfall_lab.lessons.demonstrations`).
    """

    cell: str
    setup: str = ""
    inputs: str = ""
    drive: str = ""
    seed: int = 0
    expressions: tuple[str, ...] = ()
    watched: bool = False
    believing: str = ""
    without: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The request as JSON text."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Request:
        """The request from the JSON text that :meth:`to_json` returns."""
        values = json.loads(text)
        return cls(**{**values, "expressions": tuple(values["expressions"]), "without": tuple(values["without"])})


@dataclass(frozen=True, slots=True)
class Observation:
    """What was observed in one run of a learner's cell.

    ``error`` is the exception that ended the program (None: it ran to its end); ``in_cell``: the cell itself did not
    reach its end. ``printed`` is what was printed. ``warned`` are the different warnings of the learner's code, and a
    line with the number of those beyond the first :data:`MOST_WARNED`. ``values`` has the value of each expression:
    ``None``, a bool, number, string, array (also for a tensor), a list, tuple or dict of such values, :class:`Opaque`,
    or the :class:`Problem` that evaluating it raised. ``trace`` is the recording (None: the run was not recorded).
    ``made`` is the first line of the recorded text that belongs to ``inputs``, ``driven`` the first that belongs to
    ``drive``.
    """

    error: Problem | None = None
    in_cell: bool = False
    printed: str = ""
    warned: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    trace: Trace | None = None
    made: int = 0
    driven: int = 0

    def to_json(self) -> str:
        """The observation as JSON text."""
        return json.dumps(
            {
                "error": _packed(self.error),
                "in_cell": self.in_cell,
                "printed": self.printed,
                "warned": self.warned,
                "values": [[key, _packed(value)] for key, value in self.values.items()],
                "trace": self.trace.to_json() if self.trace else None,
                "made": self.made,
                "driven": self.driven,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Observation:
        """The observation from JSON text; raises ``ValueError``, ``KeyError``, ``TypeError`` or ``TraceError`` for
        other text.
        """
        read = json.loads(text)
        return cls(
            _unpacked(read["error"]),
            bool(read["in_cell"]),
            str(read["printed"]),
            tuple(map(str, read["warned"])),
            {str(key): _unpacked(value) for key, value in read["values"]},
            Trace.from_json(read["trace"]) if read["trace"] else None,
            int(read["made"]),
            int(read["driven"]),
        )


A = TypeVar("A")
Steps = Generator[tuple[Callable[..., Any], tuple[Any, ...]], Any, A]
"""What is to be done one after the other: a function and its arguments at a time; what it
returned, or raised, comes back.
"""


def observe(request: Request) -> Observation:
    r"""Run a request in this process and return the observation.

    The caller's output, warning filters, random streams and torch settings are unchanged afterwards. Exceptions of the
    cell, the inputs, the drive and the expressions are part of the observation, except ``KeyboardInterrupt``, which is
    raised; so is an exception of ``setup``.

    >>> seen = observe(Request("def double(a):\n    return 2 * a", drive="b = double(21)", expressions=("b", "c")))
    >>> seen.values["b"], seen.values["c"].type
    (42, 'NameError')
    """
    return driven(observing(request), _nothing)


def driven(steps: Steps[A], after: Callable[[], object]) -> A:
    """Run ``steps``, a generator of function calls, to its end and return what it returns; call ``after`` after each
    call.

    The generator yields a function and its arguments, and gets the result sent or the exception thrown. It is on the
    stack only while it runs, so no frame below the learner's code holds anything that observes it.
    """
    answer, problem = None, None
    while True:
        try:
            do, words = steps.send(answer) if problem is None else steps.throw(problem)
        except StopIteration as end:
            found: A = end.value
            return found
        answer, problem = None, None
        try:
            answer = do(*words)
        except BaseException as raised:
            problem = _Carried(raised) if isinstance(raised, StopIteration) else raised
        after()


class _Carried(BaseException):
    """Wraps a StopIteration that the learner's code raised, for throwing it into a generator.

    Thrown in itself, it would become a RuntimeError.
    """

    def __init__(self, error: StopIteration) -> None:
        super().__init__()
        self.error = error


def _as_raised(error: BaseException) -> BaseException:
    return error.error if type(error) is _Carried else error


def _nothing() -> None:
    """Do nothing: the check that is called between the steps of an observation if the cell is trusted."""


Where = Literal["near", "program", "all", "watching"]
"""What is compared: what expressions and the observer itself use, that and all that a program uses, or everything.

``"watching"``: none of the learner's code has run, and what is replaced now is what the watching of a run replaces.
"""
Look = Callable[[Where], object]
"""Called as soon as code of the learner's has run, before anything of ours is used again."""


def _looked(look: Look, where: Where, do: Callable[..., Any], *words: Any) -> Steps[Any]:
    """Do one step that may run the learner's code, then call ``look(where)`` to check what that code has changed."""
    try:
        return (yield do, words)
    finally:
        look(where)


def observing(request: Request, look: Look = lambda _: None) -> Steps[Observation]:
    """The steps of :func:`observe` as a generator for :func:`driven`, which returns the observation.

    ``look`` is called after each step in which code of the learner's may have run.
    """
    if request.without:
        request = replace(request, cell=demonstrations.without(request.cell, request.without), without=())
    if request.believing:
        return (yield from _believed(request, look))
    cell = request.cell.rstrip("\n") + "\n"
    made = cell.count("\n") + 1
    driven = made + request.inputs.count("\n") + 1
    text = f"{cell}{request.inputs}\n{request.drive}\n"
    stage = _Stage(request, made, driven, look)
    caught = _Warned()
    with undisturbed("torch"), _fresh_streams(), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = caught.add  # as its documentation says
        linecache.cache[NAME] = (len(text), None, text.splitlines(keepends=True), NAME)
        try:
            yield from stage.run(text)
            values = {}
            for expression in request.expressions:
                values[expression] = yield from stage.value(expression)
        finally:
            linecache.cache.pop(NAME, None)
    warned = caught.texts()
    return Observation(stage.error, stage.in_cell, stage.printed[:PRINTED], warned, values, stage.trace, made, driven)


class _Warned:
    """Collects the warnings of the learner's code: the first ``MOST_WARNED``, and the number of the others."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Any]] = []
        self._more = 0

    def add(self, message: Any, category: type, filename: str, *_: object, **__: object) -> None:
        """Keep a warning, or count it. Its text is made in :meth:`texts`: it may be an object of the cell."""
        if filename != NAME:
            return
        if len(self._kept) < MOST_WARNED:
            self._kept.append((category.__name__, message))
        else:
            self._more += 1

    def texts(self) -> tuple[str, ...]:
        """The different texts of the warnings, each cut to ``LONGEST_WARNING`` characters, and a line on those not
        kept.
        """
        texts = dict.fromkeys(f"{kind}: {message}"[:LONGEST_WARNING] for kind, message in self._kept)
        return (*texts, *([f"{self._more} more warnings"] if self._more else []))


_BUILTINS = types.MappingProxyType({name: value for name, value in vars(builtins).items() if not name.startswith("_")})
"""An expression means these, even where the cell has a function called `list` or `all`."""


def _believed(request: Request, look: Look) -> Steps[Observation]:
    """Run a request on the shadow engine, under its misconception.

    If the engine has no model of something in the program, the observation's error is of type :data:`UNMODELLED`.
    """
    look("all")  # at what the cells of earlier requests have left
    program = f"{SETUP}\n{request.setup}\n{request.cell}\n{request.inputs}\n{request.drive}\n"
    world = worlds.TORCH if request.believing == AS_TORCH else MISCONCEPTIONS[request.believing](worlds.TORCH)
    ran = yield from _looked(look, "near", worlds.run, program, world)
    if ran is None:
        unknown = Problem(UNMODELLED, "the shadow engine has no model of something in it")
        return Observation(unknown, in_cell=True, values=dict.fromkeys(request.expressions, unknown))
    names, error, _ = ran
    names |= {
        **_BUILTINS,
        "__builtins__": __builtins__,
        "shares": shares,
        "memory": memory,
    }  # expressions ask the real torch
    problem = None if error is None else Problem(type(error).__name__, (yield from _message(error, look)))
    values = {}
    for expression in request.expressions:
        values[expression] = yield from _evaluated(expression, names, problem, look)
    return Observation(problem, values=values)


def _evaluated(expression: str, names: dict[str, Any], error: Problem | None, look: Look) -> Steps[Any]:
    """The value of an expression as :func:`plain` returns it, or a :class:`Problem` if evaluating it raises.

    If an error had ended the program before (``error``), that error is the problem.
    """
    try:
        return plain((yield from _looked(look, "near", eval, expression, names)))
    except KeyboardInterrupt:
        raise
    except BaseException as caught:  # an expression about something that the cell did not make
        raised = _as_raised(caught)
        return error or Problem(type(raised).__name__, (yield from _message(raised, look)))


def _valued(expression: str, names: dict[str, Any]) -> Any:
    """Evaluate an exercise's own expression with torch's functions, also where a class of the
    learner's would override them.
    """
    with sys.modules["torch"]._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - only this layer asks
        return eval(expression, names)  # noqa: S307 - not the learner's


def _message(error: BaseException, look: Look) -> Steps[str]:
    try:
        return str.__str__((yield from _looked(look, "near", _text, error)))
    except (Exception, _Carried):  # an exception class of the learner's whose own __str__ fails
        return ""


def _text(error: BaseException) -> str:
    return str(error.msg or "") if isinstance(error, SyntaxError) else str(error)


class _Stage:
    """A namespace in which a learner's cell, its inputs and the code that uses it run one after the other."""

    def __init__(self, request: Request, made: int, driven: int, look: Look) -> None:
        self.request = request
        self.look = look
        self.starts = {"inputs": made, "drive": driven}
        self.names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
        self.driven: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        self.ours: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.before: dict[str, _Before] = {}
        self.error: Problem | None = None
        self.in_cell = False
        self.printed = ""
        self.trace: Trace | None = None
        self.aside: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    def run(self, text: str) -> Steps[None]:
        """Run setup, cell, inputs and drive in this order, up to the first error; keep the error
        and, if ``watched``, the trace.
        """
        _seed(self.request.seed)
        exec(compile(SETUP + self.request.setup, "<setup>", "exec"), self.names)  # noqa: S102 - the exercise's own program
        self.ours = {name: value for name, value in self.names.items() if not name.startswith("__")}
        modes = _modes()
        if not self.request.watched:
            failed = yield from self._programs()
            _leave(modes)
            yield from self._settle(failed)
            return
        from pitfall_lab.verify import Session
        from pitfall_lab.verify.experiments.witness import prepare

        prepare(
            self.request.setup + text
        )  # what torch imports when an optimizer first steps takes ten times as long while watched
        self.look("all")  # at what the cells of earlier requests have left
        session = Session(NAME, "exercise", text)
        self.aside = session.aside
        with session:
            self.look("watching")
            failed = yield from self._programs()
        _leave(modes)
        yield from self._settle(failed)
        self.trace = yield from _looked(self.look, "near", session.finish, failed)

    def _programs(self) -> Steps[BaseException | None]:
        """Run cell, inputs and drive; return the exception that ended them, None if they ran to their end."""
        said, look, modes = _Said(), self.look, _modes()
        where: Where = "all" if self.request.watched else "program"
        hooks = _hooks()
        self.in_cell = True
        try:
            with contextlib.redirect_stdout(said):
                _seed(self.request.seed)
                yield from _looked(
                    look, where, exec, compile(self.request.cell, NAME, "exec", dont_inherit=True), self.names
                )
            self.in_cell = False
            with contextlib.redirect_stdout(_Said()):
                _seed(self.request.seed)
                # A cell that calls something of its own `torch` is tried with torch all the same.
                # One that calls something `len` or `getattr`, too: what uses the cell means Python's own.
                own = {name: value for name, value in self.names.items() if name not in _BUILTINS}
                self.made = {**own, **self.ours, "__builtins__": __builtins__}
                self.driven = {**self.made}
                yield from _looked(look, "near", exec, self._part("inputs"), self.driven)
                with self.aside():
                    # a cell that shows what it does may have names like those of the inputs
                    self.before = {
                        n: _Before(value) for n, value in self.driven.items() if value is not self.made.get(n, self)
                    }
                try:
                    yield from _looked(look, where, exec, self._part("drive"), self.driven)
                finally:
                    self._refuse_own_methods()
                    self._refuse_modes(modes, hooks)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # any way in which a program can end is an answer
            return _as_raised(error)
        finally:
            self.printed = io.StringIO.getvalue(said)
        return None

    def _refuse_own_methods(self) -> None:
        """Raise if the cell gave a tensor an attribute with the name of one of torch's methods:
        expressions would call it instead.
        """
        for value in self.driven.values():
            for each in value if type(value) in (list, tuple) else (value,):
                if _is_tensor(each) and (own := next(filter(_methods().__contains__, _attributes(each)), None)):
                    self.in_cell = True  # whatever it answers, nothing of this run is known
                    raise TypeError(f"a tensor was given a {own} of its own")

    def _refuse_modes(self, modes: tuple[int, int, Any], hooks: Any) -> None:
        """Leave torch's function and dispatch modes that the cell entered and did not leave; raise ``TypeError`` if
        there were any.

        ``TypeError`` is also raised if other hooks for saved tensors than ``hooks`` are active. A default device is
        reset without an error; grad mode is not looked at. ``modes`` is :func:`_modes` before the cell.
        """
        if _leave(modes):
            self.in_cell = True
            raise TypeError("a mode of torch was entered and not left")
        if _hooks() is not hooks:
            self.in_cell = True
            raise TypeError("hooks for saved tensors were entered and not left")

    def _part(self, part: str) -> types.CodeType:
        """The compiled ``inputs`` or ``drive`` of the request, with the line numbers that they have in the recorded
        text.
        """
        text = "\n" * (self.starts[part] - 1) + getattr(self.request, part)
        return compile(text, NAME, "exec", dont_inherit=True)

    def _settle(self, failed: BaseException | None) -> Steps[None]:
        """Store the exception that ended the program, if there is one."""
        self.error = None if failed is None else (yield from self._problem(failed))

    def _problem(self, error: BaseException) -> Steps[Problem]:
        line = failing_line(error, NAME)
        message = yield from _message(error, self.look)
        return Problem(
            type(error).__name__, message, line if line is not None and line < self.starts["inputs"] else None
        )

    def value(self, expression: str) -> Steps[Any]:
        """The value of an expression after the run, as :func:`plain` returns it, or a :class:`Problem` if it has none.

        The problem is the error of the run, if the cell itself raised or if the expression fails after a run that
        raised.
        """
        if self.error is not None and self.in_cell:
            return self.error
        helpers = {
            "shares": shares,
            "memory": memory,
            "before": self.before,
            "unchanged": self._unchanged,
            "in_place": self._in_place,
        }
        try:
            self.after = self.after or self._asked()
            names = {**self.after, **_BUILTINS, **self.ours, **helpers}
            calls = any(callable(self.after.get(word)) for word in _WORD.findall(expression))
            where: Where = "program" if calls else "near"  # what it calls may be the cell's, or may call that
            return plain((yield from _looked(self.look, where, _valued, expression, names)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an expression about something that the cell did not make
            return self.error or (yield from self._problem(_as_raised(error)))

    def _asked(self) -> dict[str, Any]:
        """The variables after the run, as expressions see them: those of the cell, and those that inputs and drive
        assigned.
        """
        driven = {name: value for name, value in self.driven.items() if value is not self.made.get(name, self)}
        given = {name for name, was in self.before.items() if driven.get(name) is was.itself}
        answers = {name: value if name in given else _as_answer(value) for name, value in driven.items()}
        return {name: _without_class(value) for name, value in {**self.names, **answers}.items()}

    def _unchanged(self, name: str) -> bool:
        was, now = self.before[name], self.driven[name]
        return bool(was.values == _bytes(now) and was.storage == _bytes(_whole(now)))

    def _in_place(self, name: str) -> bool:
        was, now = self.before[name], self.driven[name]
        return was.memory == memory(now) and was.where == id(now) and bool(was.values != _bytes(now))


class TooMuchOutput(BaseException):  # no Exception: the loop that prints for ever may have an `except` in it
    """The cell printed more than it may."""


class _Said(io.StringIO):
    """The text that a cell prints, of which only the beginning is kept: endless output must not fill the memory."""

    left = MOST_PRINTED

    def write(self, text: str, /) -> int:
        """Keep the beginning, count the rest.

        Raises :class:`TooMuchOutput` once the cell has printed more than it may.
        """
        self.left -= len(text)
        if self.left < 0:
            raise TooMuchOutput(f"more than {MOST_PRINTED} characters")
        super().write(text[: max(0, PRINTED - self.tell())])
        return len(text)


class _Before:
    """The state of a variable before the drive: its object, its memory, its values, and the
    values of its whole storage.
    """

    def __init__(self, value: Any) -> None:
        self.where = id(value)
        self.itself = value
        self.memory = memory(value)
        self.values = _bytes(value)
        self.storage = _bytes(_whole(value))
        self.value = (
            _as_is(value).clone() if _is_tensor(value) else value.copy() if isinstance(value, np.ndarray) else value
        )


def _is_tensor(value: Any) -> bool:
    """Whether it is a tensor of torch's, or of the world of a misconception; an object of the
    learner's may answer to every name.
    """
    return issubclass(type(value), (sys.modules["torch"].Tensor, facade.Tensor))


@cache
def _methods() -> frozenset[str]:
    tensor = sys.modules["torch"].Tensor
    return frozenset(name for name in dir(tensor) if callable(getattr(tensor, name, None)))


def _attributes(tensor: Any) -> Mapping[str, Any]:
    """The attributes in a tensor's own ``__dict__``, which code has set on this tensor."""
    found: Mapping[str, Any] = object.__getattribute__(tensor, "__dict__") if hasattr(type(tensor), "__dict__") else {}
    return found


def _as_is(value: Any) -> Any:
    """A tensor on the same memory, with torch's own class and without attributes, hooks or history.

    The learner's class, and modes that the learner entered, have no effect on this.
    """
    torch = sys.modules["torch"]
    if not issubclass(type(value), torch.Tensor):
        return value.detach()
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():  # noqa: SLF001 - modes and classes of the learner's
        return torch._C.TensorBase.detach(value)  # noqa: SLF001 - the method that cannot be replaced


def _modes() -> tuple[int, int, Any]:
    """The number of torch function modes, the number of dispatch modes, and the default device."""
    torch = sys.modules["torch"]
    library, default = torch._C, getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)  # noqa: SLF001 - only this layer asks
    return library._len_torch_function_stack(), library._len_torch_dispatch_stack(), default and default.device  # noqa: SLF001 - as above


def _hooks() -> Any:
    """The pack hook for saved tensors that is active now; None if there is none."""
    top = sys.modules["torch"]._C._autograd._top_saved_tensors_default_hooks  # noqa: SLF001 - only this layer asks
    found = top(True)
    return found and found[0]


def _leave(modes: tuple[int, int, Any]) -> int:
    """Leave the modes that were entered since ``modes`` was taken (:func:`_modes`), and return how many there were.

    A changed default device is reset, and its mode is not counted.
    """
    torch = sys.modules["torch"]
    functions, below, device = modes
    if _modes()[2] != device:
        torch.set_default_device(device)
    left = torch._C._len_torch_function_stack() - functions, torch._C._len_torch_dispatch_stack() - below  # noqa: SLF001 - as above
    for _ in range(left[0]):
        torch._C._pop_torch_function_stack()  # noqa: SLF001 - as above
    for _ in range(left[1]):
        torch._C._pop_torch_dispatch_stack(None)  # noqa: SLF001 - as above
    return sum(int(each) for each in left if each > 0)


def _whole(value: Any) -> Any:
    """Return all elements of the storage if ``value`` is a tensor; any other value unchanged."""
    if not _is_tensor(value):
        return value
    value = _as_is(value)
    if str(value.layout) != "torch.strided" or value.device.type == "meta":
        return value
    length = value.untyped_storage().nbytes() // value.element_size()
    return value.as_strided((length,), (1,), 0)


def _bytes(value: Any) -> Any:
    """A key that is equal for two values if they are equal, with NaN equal to NaN.

    For a tensor or array: shape, dtype and bytes; any other value is its own key.
    """
    seen = plain(value)
    return (seen.shape, seen.dtype.str, seen.tobytes()) if isinstance(seen, np.ndarray) else seen


def memory(value: Any) -> int | None:
    """Return the address at which a tensor's storage or an array's data begins; None for anything else.

    It can be used in the expressions of exercises, as ``memory(t)``.
    """
    if _is_tensor(value):
        return int(_as_is(value).untyped_storage().data_ptr())
    if isinstance(value, np.ndarray):
        return int(value.__array_interface__["data"][0])
    return None


def shares(a: Any, b: Any) -> bool:
    """Whether two tensors share a storage, or an array shares memory with a tensor or an array. It can be used in the
    expressions of exercises.

    Raises ``TypeError`` for anything else.
    """
    if _is_tensor(a) and _is_tensor(b):
        return memory(a) == memory(b)
    arrays = [_whole(x).numpy() if _is_tensor(x) else x for x in (a, b)]
    if not all(
        isinstance(x, np.ndarray) for x in arrays
    ):  # NumPy would ask anything else for its elements, without end
        raise TypeError("only tensors and arrays have memory to share")
    return bool(np.shares_memory(*arrays))


_EXACT: Mapping[type, Callable[[Any], Any]] = types.MappingProxyType(
    {int: int.__int__, float: float.__float__, complex: complex.__complex__, str: str.__str__}
)
"""A number or text of a learner's own class may call itself equal to everything: what is
compared is the number in it.
"""


def _without_class(value: Any) -> Any:
    """``value`` without a class of the learner's, if it is a number, string, dict or array; other values unchanged.

    The elements of lists, tuples and dicts are treated in the same way, one level deep.
    """
    kind = type(value)
    if kind in (list, tuple):
        inner = [_number_or_text(item) for item in value]
        return value if all(map(operator.is_, inner, value)) else kind(inner)
    if kind is dict or (issubclass(kind, dict) and _is_own(kind)):
        items = [*dict.items(value)]
        inner = [_number_or_text(part) for pair in items for part in pair]
        same = kind is dict and all(map(operator.is_, inner, itertools.chain.from_iterable(items)))
        return value if same else dict(zip(inner[::2], inner[1::2], strict=True))
    return _number_or_text(value)


def _number_or_text(value: Any) -> Any:
    kind = type(value)
    if kind in _EXACT or kind is bool or issubclass(kind, np.generic):
        return value
    if issubclass(kind, np.ndarray):
        return np.ndarray.view(value, np.ndarray) if _is_own(kind) else value
    return next((exact(value) for base, exact in _EXACT.items() if issubclass(kind, base)), value)


def _as_answer(value: Any) -> Any:
    """A value that the drive assigned, without methods of the learner's own, which expressions would call.

    A list or tuple of any class becomes a plain one with its own elements; an object of a class of the learner's that
    is not derived from torch's becomes an empty object.
    """
    kind = type(value)
    for base in (list, tuple):
        if issubclass(kind, base):
            inner = [_bare(item) for item in base.__iter__(value)]
            same = not _is_own(kind) and all(map(operator.is_, inner, base.__iter__(value)))
            return value if same else base(inner)
    return _bare(value)


def _bare(value: Any) -> Any:
    kind = type(value)
    if not _is_own(kind):
        return value
    if issubclass(kind, tuple(_EXACT)):
        return _number_or_text(value)
    if issubclass(kind, (list, tuple)):
        return _as_answer(value)
    if issubclass(kind, (dict, np.ndarray)):
        return _without_class(value)
    if _is_tensor(value) or issubclass(kind, (np.generic, *_torch_kinds())):
        return value
    return type(str.__str__(type.__dict__["__name__"].__get__(kind)), (), {})()


@cache
def _torch_kinds() -> tuple[type, ...]:
    """The classes of torch from which an exercise may ask the learner to derive a class."""
    torch = sys.modules["torch"]
    return torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler


def _is_own(kind: type) -> bool:
    """Whether a class is the learner's: one that was made while Python ran, and that no module has under its name."""
    if not type.__dict__["__flags__"].__get__(kind) & _MADE_LATE:
        return False
    names = type.__dict__["__dict__"].__get__(kind)
    module, path = names.get("__module__"), type.__dict__["__qualname__"].__get__(kind)
    found: Any = sys.modules.get(module) if type(module) is str else None
    for name in path.split(".") if found is not None else ():
        found = getattr(found, name, None)
    return found is not kind


_MADE_LATE = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: the class was made by a ``class`` statement or by a call, and is
none of the interpreter's own.
"""


def plain(value: Any) -> Any:
    """Return a copy of ``value`` without objects of the learner's classes: numbers, text, arrays, lists, tuples and
    dicts stay, tensors become their numbers, torch's dtypes, devices and the like text, and any other object an
    :class:`Opaque` with the name of its class.

    >>> plain({"a": (1, [2.5, None])}), plain(object()).kind
    ({'a': (1, [2.5, None])}, 'object')
    """
    kind = type(value)  # what an object of the learner's says of itself is not asked
    if value is None or kind is bool:
        return value
    for base, exact in _EXACT.items():
        if issubclass(kind, base):
            return exact(value)
    if issubclass(kind, (np.ndarray, np.generic)):
        return np.array(value) if value.dtype.kind in "biufc" else Opaque(kind.__name__)
    if _is_tensor(value):
        return _numbers(value)
    if issubclass(kind, (list, tuple)):
        is_list = issubclass(kind, list)
        inner = [plain(item) for item in (list if is_list else tuple).__iter__(value)]
        return inner if is_list else tuple(inner)
    if issubclass(kind, dict):
        return {_key(key): plain(item) for key, item in dict.items(value)}
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout", "memory_format"):
        return str(value)
    return Opaque(kind.__name__)


def _key(key: Any) -> Any:
    """A key of a dict without a class of the learner's, whose hash would be different where the key is read.

    A number or string keeps its value; any other key becomes its ``str``.
    """
    kind = type(key)
    if kind is bool:
        return key
    base = next((base for base in (int, float, str) if issubclass(kind, base)), None)
    return str(key) if base is None else _EXACT[base](key)


def _numbers(tensor: Any) -> Any:
    try:
        seen = _as_is(tensor).resolve_conj().resolve_neg().cpu()
        if str(seen.layout) != "torch.strided":
            seen = seen.to_dense()
        if str(seen.dtype) == "torch.bfloat16":
            seen = seen.float()
        return np.array(seen.numpy())
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return Opaque(f"Tensor ({error})"[:80])


def _packed(value: Any) -> Any:
    """A value of :func:`plain` as JSON can hold it: what JSON has no type for is an object with one key."""
    if isinstance(value, np.ndarray):
        numbers = value.view(value.real.dtype) if value.dtype.kind == "c" else value
        return {"array": numbers.ravel().tolist(), "shape": value.shape, "dtype": value.dtype.str}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return {"tuple": [_packed(item) for item in value]}
    if isinstance(value, list):
        return [_packed(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[key, _packed(item)] for key, item in value.items()]}
    if isinstance(value, Problem):
        return {"problem": [value.type, value.message, value.line]}
    return {"opaque": value.kind} if isinstance(value, Opaque) else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    key = next(iter(value))
    inner = value[key]
    if key == "array":
        kind, shape = np.dtype(value["dtype"]), tuple(map(int, value["shape"]))
        # a few letters may ask for any amount of memory: by the length of a text, or by a shape
        if kind.kind not in "biufc" or math.prod(shape) != len(inner) // (1 + (kind.kind == "c")):
            raise ValueError("this is no array of numbers")
        numbers = np.array(inner, kind if kind.kind != "c" else kind.type(0).real.dtype)
        return numbers.view(kind).reshape(shape)
    if key == "tuple":
        return tuple(_unpacked(item) for item in inner)
    if key == "dict":
        return {name: _unpacked(item) for name, item in inner}
    if key == "problem":
        kind, message, line = inner
        return Problem(str(kind), str(message), None if line is None else int(line))
    return complex(*inner) if key == "complex" else Opaque(str(inner))


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the stream that learners' programs draw from
    sys.modules["torch"].manual_seed(seed)


@contextlib.contextmanager
def _fresh_streams() -> Iterator[None]:
    """Put the random streams of Python and NumPy back afterwards; torch's is put back by :func:`undisturbed`."""
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002 - as above
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002 - as above
