"""Finds the iterations of a program's loops, and leaves those unrecorded that only repeat what was recorded
(:class:`Rounds`).

An iteration is found from torch's calls alone: a call in a function of the program comes from an earlier instruction
than the one before. No line is traced and no code is changed. Iterations of three kinds of loops may go unrecorded: of
those whose iterations make an optimizer step, of those whose iterations run a module, and of any other that has made
many calls since it began; loops inside a module belong to its call. This begins at the start of an iteration, after
iterations without anything new, and only if the live graphs do not grow from iteration to iteration. Each unrecorded
call is compared with those of the recorded iterations; at the first that differs, recording resumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch

from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Gap

FIRST = 5
"""How many iterations of a loop are recorded before others may go unrecorded."""
OFTEN = 40
"""For how many iterations of a loop grown graphs are counted in every iteration.

Later they are counted each time that a fourth more iterations have passed, because counting takes ever longer.
"""
LENGTHY = 1000
"""After how many calls iterations of a loop may go unrecorded that make no optimizer step and run no module."""
DISTANCE = 3
"""An iteration is recorded as a sample whenever the number of iterations is this many times that at the last sample."""
VARIANTS = 8
"""How often the same call may have other shapes before other shapes no longer count as new."""
SHOWN = 3000
"""How many steps a recording that is drawn has before iterations go unrecorded: short programs are shown whole, long
ones soon.
"""
LAST = 4
"""The number of iterations that are recorded in full before an error."""
GLANCE = 61
"""The operands of one in this many unrecorded calls are tested for NaN."""
MANY = 4
"""How many tensors of a list are compared at most."""

_is_grad_enabled = torch.is_grad_enabled
_BACKWARD = {torch.Tensor.backward, torch.autograd.backward}
_FLOATS = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_TORCH = str(torch.__path__[0])
_WRAPPERS = _TORCH + "/utils/_contextlib.py"


@dataclass(slots=True)
class Loop:
    """A loop of the program, whose iterations are counted.

    ``head`` is a hash of the position of the first call of an iteration; ``code`` and ``at`` are the function that
    contains the loop and the instruction in it (``f_lasti``), ``line`` its source line; ``level`` is how many functions
    of the program are around that function. ``rounds`` counts its iterations, ``recorded`` those that were recorded;
    when there are ``sample`` iterations, one more is recorded. ``length`` is the number of calls in a recorded
    iteration, ``steps`` how many optimizer steps there were when the current iteration began, ``trains`` True if the
    last recorded iteration made such a step.
    """

    head: int
    level: int
    at: int
    code: CodeType
    inside: set[int] = field(default_factory=set)
    """The calls of its recorded iterations."""
    began: int | None = None
    """The number of the call with which the current iteration began; None while the loop does not run."""
    since: int = 0
    """The number of the call with which the first iteration of the current run of the loop began; calls of torch's data
    loaders and optimizers count.
    """
    partly: bool = False
    """Whether recording resumed inside the current iteration and not at its beginning."""
    rounds: int = 0
    recorded: int = 0
    sample: int = 2 * FIRST
    length: int = 0
    steps: int = 0
    trains: bool = False
    is_made: bool = False
    """Whether its iterations are calls, made by torch, of a function of the program or of the data loader."""
    fetches: bool = False
    """Whether torch's data loader makes the calls with which its iterations begin."""
    is_plain: bool = False
    """Whether its iterations make no step and run no module."""
    nodes: int = -1
    """The number of nodes that the graphs of the live tensors had; ``most`` and ``grown``: the highest number, and in
    which iteration.
    """
    most: int = -1
    grown: int = 0
    due: int = 0
    """The iteration before which the graphs are not counted again."""
    line: int = 0


@dataclass(slots=True)
class CallPath:
    """The functions of the program around the latest calls, and the loop whose iterations these calls begin.

    ``path``: these functions, outermost first, each as the id of its frame, its code and the instruction (``f_lasti``).
    ``head``: a hash of the call, and its caller, that counts as the beginning of an iteration among these calls.
    ``loop``: the loop of these iterations, None if none was found.
    """

    path: list[tuple[int, CodeType, int]]
    head: int
    is_made: bool = False
    """Whether a function of the program makes the calls that torch called."""
    times: dict[int, int] = field(default_factory=dict)
    """How often each other call was made since the head."""
    loop: Loop | None = None


Calls = tuple[int, int]
"""The numbers of the first call and of the one after the last, counted from the beginning of the program."""


@dataclass(slots=True)
class Sampling:
    """Which calls a recording leaves out, and at its end which ones another run should record.

    Calls between the two numbers of ``whole`` are all recorded (None: no such request). No iterations go unrecorded
    before the trace has ``after`` steps. With ``closely`` each result in an unrecorded iteration is tested for NaN,
    else only some. At the end ``again`` are the calls around the first gradient that was not finite, or the first NaN,
    in an unrecorded iteration (None if there was none), and ``last`` those of the last iterations (None if all were
    recorded).
    """

    whole: Calls | None = None
    closely: bool = False
    again: Calls | None = None
    last: Calls | None = None
    after: int = 0


class Rounds:
    """Decides which calls of the program are recorded.

    ``nodes()`` returns the number of nodes in the live graphs, ``written()`` the number of steps of the trace;
    ``sampling`` determines what must be recorded in any case, and gets the results. ``gaps`` are the positions in the
    trace where calls were left out.
    """

    def __init__(
        self, sources: SourceMap, nodes: Callable[[], int], written: Callable[[], int], sampling: Sampling
    ) -> None:
        self._sources, self._nodes, self._written, self._sampling = sources, nodes, written, sampling
        self._latest: Loop | None = None
        self.around: FrameType | None = None
        """The frame that called the program."""
        self.steps = self.unseen = 0
        """How many steps the program's optimizers have made (``steps``), and how many calls were not recorded
        (``unseen``).
        """
        self.routine = 0
        """How many recorded calls were made by torch's data loaders and optimizers."""
        self.left: Loop | None = None
        """The loop whose iterations are not recorded at present; None if there is none."""
        self.loops: dict[tuple[int, int], Loop] = {}
        self._calls: list[int] = []
        self._known: set[int] = set()
        self._variants: dict[int, int] = {}
        self.varied: set[int] = set()
        """The calls that had so many different shapes that these are no longer compared."""
        self._fresh = self._module = -1
        self._path: list[tuple[int, CodeType, int]] = []
        self._entry = CallPath([], 0)
        self._is_own = False
        self._counted = self._gone = 0
        self.gaps: list[Gap] = []
        self._kinds: dict[CodeType, int] = {}

    def leaves(self, func: Any, args: Any, kwargs: Any, caller: FrameType, *, fetches: bool = False) -> bool:
        """Register a call of ``func``, from the frame ``caller``, that may be recorded; return True if it begins an
        iteration of a loop that need not be recorded, which is ``left`` from then on.

        ``fetches``: torch's data loader makes the call.
        """
        place, path = self._path_of(func, caller)
        own = hash((func, id(caller.f_code), caller.f_lasti))
        loop = self._round_of(place, own, path, caller, fetches=fetches)
        if not fetches:
            self._path = path
        elif loop is not None:
            loop.fetches = True
        if (
            loop is not None
            and self._ends_round(loop)
            and not self._is_whole
            and self._written() >= self._sampling.after
        ):
            self._latest = loop
            loop.began, self.left, self._counted, self._gone = None, loop, self.unseen, self.unseen
            loop.recorded -= 1
            return True
        call = _whole(place, args, kwargs)
        if call not in self._known and place not in self.varied:
            self._known.add(call)
            self._fresh = len(self._calls)
            self._variants[place] = count = self._variants.get(place, 0) + 1
            if count > VARIANTS:
                self.varied.add(place)
        self._calls.append(call)
        return False

    def repeats(self, func: Any, args: Any, kwargs: Any, caller: FrameType) -> bool:
        """Whether a call in an unrecorded iteration repeats a recorded one; if it does not, recording resumes. Must be
        called only while a loop is ``left``.

        False too, and recording resumes, at the beginning of an iteration that is to be a sample.
        """
        loop, around = self.left, self.around
        assert loop is not None
        way, frame = [func], caller
        add, last, last_at = way.append, None, -1
        while frame is not around and frame is not None:
            code, at = frame.f_code, frame.f_lasti
            if code is not last or at != last_at:
                add(id(code))
                add(at)
                last, last_at = code, at
            frame = frame.f_back  # type: ignore[assignment]
        place = hash(tuple(way))
        if _whole(place, args, kwargs) not in loop.inside and place not in self.varied:
            self._return()
            return False
        if (
            place == loop.head
            and self.unseen - self._counted >= loop.length // 2
            and (self.steps > loop.steps or not loop.trains)
        ):
            self._counted, loop.steps = self.unseen, self.steps
            loop.rounds += 1
            if loop.rounds >= loop.sample or self._is_whole:
                loop.recorded += 1
                self._return(at_head=True)
                return False
        self.unseen += 1
        if self._sampling.again is None and (func in _BACKWARD or self.unseen % GLANCE == 0):
            self.look(args, infinite=func in _BACKWARD)
        return True

    @property
    def fetches(self) -> bool:
        """Whether the unrecorded iterations begin with calls of torch's data loader."""
        return self.left is not None and self.left.fetches

    @property
    def closely(self) -> bool:
        """Whether the result of each call that is not recorded is to be tested by :meth:`look`."""
        return self._sampling.closely and self._sampling.again is None

    def look(self, values: Iterable[Any], *, infinite: bool = False) -> None:
        """Test tensors of an unrecorded iteration for NaN (``infinite``: and infinity), until one has been found.

        ``values`` are tensors or lists of them; others are ignored. The calls around the first one are then in
        ``Sampling.again``.
        """
        if self._sampling.again is not None:
            return
        with unseen():
            found = any(_is_nan(value, infinite=infinite) for value in values)
        if found:
            self._sampling.again = self._around_now()
            if self.left is not None:
                self.left.sample = 0  # the next round is recorded

    def notes(self, kind: str, frame: FrameType) -> bool:
        """Register a use of a method that is no torch call; ``kind`` names it (:mod:`~pitfall_lab.observe.lookups`),
        ``frame`` uses it.

        Return True if iterations were not recorded and no recorded one has such a use, so that recording has resumed.
        """
        place, _ = self._path_of(kind, frame)
        if self.left is not None and place in self.left.inside:
            return False
        resumes = self.left is not None
        if resumes:
            self._return()
        self._known.add(place)
        self._calls.append(place)
        return resumes

    @property
    def _is_whole(self) -> bool:
        whole = self._sampling.whole
        return whole is not None and whole[0] <= len(self._calls) + self.unseen < whole[1]

    def _around_now(self) -> Calls | None:
        if self._latest is None:
            return None
        now, some = len(self._calls) + self.unseen, LAST * self._latest.length
        return max(0, now - some), now + some

    def finish(self) -> None:
        """Called when the program has ended: store the calls of the last iterations in ``Sampling.last``, and add a gap
        if the program ended in unrecorded iterations.
        """
        self._sampling.last = self._around_now()
        if self.left is not None:
            self._note_gap()

    def _note_gap(self) -> None:
        if self.unseen > self._gone:
            self.gaps.append(Gap(self._written(), self.unseen - self._gone))

    def stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before a step of an optimizer: count it.

        In an unrecorded iteration, also test the last gradient: if it is not finite, another run is to record the calls
        around it. Must be called while torch functions are unobserved.
        """
        self.steps += 1
        if self.left is None or self._sampling.again is not None:
            return
        gradient = next((p.grad for p in reversed(optimizer.param_groups[-1]["params"]) if p.grad is not None), None)
        if gradient is not None and gradient.is_floating_point() and not math.isfinite(gradient.detach().sum().item()):
            self._sampling.again = self._around_now()
            self.left.sample = 0  # the next round is recorded

    def returns(self) -> None:
        """Resume recording if it was off, for a reason other than a new call."""
        if self.left is not None:
            self._return()

    def _return(self, *, at_head: bool = False) -> None:
        loop, self.left = self.left, None
        assert loop is not None
        self._note_gap()
        if not loop.is_made:
            self._entry = CallPath([], 0)
        loop.began, loop.steps, loop.sample = len(self._calls), self.steps, max(loop.sample, DISTANCE * loop.rounds)
        loop.partly = not at_head

    def _path_of(self, func: Any, caller: FrameType) -> tuple[int, list[tuple[int, CodeType, int]]]:
        """Return a hash of the position of a call, and the program's functions around it (frame, code, instruction),
        outermost first.

        Functions that torch or a module called are left out, and of a function that calls itself all calls but the
        outermost: a recursion counts as a loop.
        """
        way, frame, kinds = [func], caller, self._kinds
        path: list[tuple[int, CodeType, int]] = []
        around, last, last_at = self.around, None, -1
        while frame is not around and frame is not None:
            code, at = frame.f_code, frame.f_lasti
            if code is last and at == last_at:
                if path:
                    path[-1] = (id(frame), code, at)
                frame = frame.f_back  # type: ignore[assignment]
                continue
            last, last_at = code, at
            way += id(code), at
            kind = kinds.get(code)
            if kind is None:
                kind = kinds[code] = self._kind(code)
            if kind == _OWN:
                path.append((id(frame), code, at))
            elif kind == _MODULE:
                path.clear()
                self._module = len(self._calls)
            elif kind == _LIBRARY:
                path.clear()
            frame = frame.f_back  # type: ignore[assignment]
        path.reverse()
        self._is_own = kinds.get(caller.f_code) == _OWN
        return hash(tuple(way)), path

    def _kind(self, code: CodeType) -> int:
        name = code.co_filename
        if self._sources.is_user(name):
            return _OWN
        if not name.startswith(_TORCH) or name == _WRAPPERS:
            return _OTHER
        return _MODULE if code.co_name in ("_wrapped_call_impl", "_call_impl") else _LIBRARY

    def _round_of(
        self, place: int, own: int, path: list[tuple[int, CodeType, int]], caller: FrameType, *, fetches: bool
    ) -> Loop | None:
        """The loop that begins another iteration with the call at ``path``; None if the call begins no iteration.

        ``own`` is a hash of the call and its caller alone.
        """
        level = None if fetches else self._level_of(path)
        if level is not None:
            return self._running(place, level, *path[level][1:])
        if not (path and (self._is_own or fetches) and self._goes_around(own, path, caller)):
            return None
        entry = self._entry  # calls that torch makes are inside the rounds of a loop around them
        entry.loop = loop = self._running(place, len(path) - 1 + entry.is_made, *path[-1][1:])
        loop.is_made = entry.is_made
        return loop

    def _goes_around(self, own: int, path: list[tuple[int, CodeType, int]], caller: FrameType) -> bool:
        """Whether the call begins an iteration that its path does not show: an iteration of a single call, or one that
        is a call by torch of a function.

        Calls with the same path follow each other; the first of them, or one that is made often without it, is the head
        of the iterations.
        """
        entry = self._entry
        if path != entry.path:
            if entry.loop is not None and entry.is_made:
                entry.loop.began = None
            self._entry = CallPath(path, own, path[-1][0] != id(caller))
            return False
        if own != entry.head:
            entry.times[own] = times = entry.times.get(own, 0) + 1
            if times < OFTEN:
                return False
            entry.head = own
        entry.times.clear()
        return True

    def _running(self, place: int, level: int, code: CodeType, at: int) -> Loop:
        """The loop with the head ``place``; a new :class:`Loop` if it is found to repeat for the first time.

        Loops inside it, or after it in the same function, no longer run.
        """
        for other in self.loops.values():
            if other.began is not None and (other.level > level or (other.level == level and other.at > at)):
                other.began = None
        key = place, level  # a round of a loop may begin with that of a loop in a function that it calls
        loop = self.loops.get(key)
        if loop is None:
            loop = self.loops[key] = Loop(place, level, at, code, line=_line(code, at))
        return loop

    def _level_of(self, path: list[tuple[int, CodeType, int]]) -> int | None:
        for level, (before, now) in enumerate(zip(self._path, path, strict=False)):
            if before == now:
                continue
            if before[0] == now[0] and before[1] is now[1]:
                return level if now[2] < before[2] else None
            return level - 1 if level else None
        return None

    def _ends_round(self, loop: Loop) -> bool:
        """Whether the iterations of ``loop`` from now on need not be recorded; called when one was recorded and the
        next begins.
        """
        now, steps = len(self._calls), self.steps
        if loop.began is None:
            loop.began, loop.since, loop.steps = now, now + self.routine, steps
            loop.rounds += 2  # the first one, and the one that begins
            loop.recorded += 2
            if loop.is_made and loop.nodes >= 0:  # graphs that grew in between did so in another loop
                loop.nodes = loop.most = self._nodes()
                loop.grown = loop.due = 0
            return loop.nodes >= 0 and self._fresh < now - loop.length and self._is_stable(loop)
        trains = steps > loop.steps
        loop.is_plain = not trains and self._module < loop.began
        may_be_left = not loop.is_plain or now + self.routine - loop.since >= LENGTHY
        loop.inside.update(self._calls[loop.began :])
        alike = self._fresh < loop.began
        if not loop.partly:
            loop.length = now - loop.began
        loop.began, loop.steps, loop.trains, loop.partly = now, steps, trains, False
        loop.rounds += 1
        loop.recorded += 1
        return may_be_left and alike and loop.rounds > FIRST and self._is_stable(loop)

    def _is_stable(self, loop: Loop) -> bool:
        """Whether the graphs have as many nodes as an iteration before; False where they are not counted in this
        iteration.

        In a plain loop (``is_plain``) their number may vary from iteration to iteration: there, whether it was highest
        in iteration ``grown``, and more than ``grown`` iterations since have not exceeded it.
        """
        if loop.rounds < loop.due:
            return False
        before, loop.nodes = loop.nodes, self._nodes()
        if loop.nodes <= loop.most:
            return loop.rounds > 2 * loop.grown if loop.is_plain else loop.nodes == before
        loop.most, loop.grown = loop.nodes, 0 if before < 0 else loop.rounds
        if loop.rounds > OFTEN and loop.rounds > loop.due:  # twice in a row, which shows whether a round made it longer
            loop.due = loop.rounds + loop.rounds // 4
        return False


_OWN, _MODULE, _LIBRARY, _OTHER = range(4)


def _is_nan(value: Any, *, infinite: bool) -> bool:
    """Whether a dense tensor of floats, or one of the first ``MANY`` in a list, has a NaN (``infinite``: or an
    infinity).

    Only the sum is tested.
    """
    if type(value) in (list, tuple):
        return any(_is_nan(each, infinite=infinite) for each in value[:MANY] if type(each) in _TENSORS)
    if (
        type(value) not in _TENSORS
        or value.dtype not in _FLOATS
        or not value.numel()
        or value.layout is not torch.strided
    ):
        return False
    if value.device.type == "meta":
        return False
    total = value.detach().sum().item()
    return not math.isfinite(total) if infinite else math.isnan(total)


def _line(code: CodeType, at: int) -> int:
    """Return the source line of the instruction at the offset ``at``."""
    return next(
        (line for begin, end, line in code.co_lines() if begin <= at < end and line is not None), code.co_firstlineno
    )


def _whole(place: int, args: Any, kwargs: Any) -> int:
    """Return a hash of a call: its position, the grad mode, the shapes and dtypes of its tensors, whether these require
    grad, and its boolean arguments.

    Of a list only the first ``MANY`` entries count; the position alone if a tensor has no shape.
    """
    whole = place + _is_grad_enabled()
    try:
        for value in args:
            kind = type(value)
            if kind in _TENSORS:
                whole = hash((whole, value.shape, value.dtype, value.requires_grad))
            elif kind is bool:
                whole = whole * 31 + value + 1
            elif kind is list or kind is tuple:
                whole = _several(whole, value)
        return _several(hash(whole), kwargs.values()) if kwargs else hash(whole)
    except Exception:  # a tensor without a shape (nested, for instance)
        return place


def _several(whole: int, values: Iterable[Any]) -> int:
    for number, value in enumerate(values):
        if number == MANY:
            break
        if type(value) in _TENSORS:
            whole = hash((whole, value.shape, value.dtype, value.requires_grad))
        elif type(value) is bool:
            whole = whole * 31 + value + 1
    return hash(whole)


def living_nodes(starts: Iterable[Any]) -> int:
    """Return the number of nodes in the graphs of the nodes ``starts`` (of the shadow engine; None is ignored) through
    which a backward can still go.

    A node is not counted if a backward from it would reach one whose saved tensors are freed: nothing that the program
    computes later can depend on whether the calls that made such a graph were recorded.
    """
    usable: dict[int, bool] = {}
    stack = [node for node in starts if node is not None]
    while stack:
        node = stack[-1]
        if id(node) in usable:
            stack.pop()
            continue
        if node.freed and node.saved:
            usable[id(node)] = False
            continue
        children = [child for child in node.children if child is not None]
        waiting = [child for child in children if id(child) not in usable]
        if waiting:
            stack += waiting
        else:
            usable[id(node)] = all(usable[id(child)] for child in children)
    return sum(usable.values())
