"""Finds the rounds (iterations) of a program's loops, and lets those go unrecorded that only repeat what was recorded
(:class:`Rounds`).

A round is seen from torch's calls alone: a call in a function of the program comes from an earlier place than the one
before. No line is traced and no code is changed. Three kinds of loops are left: those whose rounds make an optimizer
step, those whose rounds run a module, and any other one that has made many calls since it began; loops inside a module
are parts of its call. A loop is left at the head of a round, after rounds without anything new, and only if the graphs
that are alive do not grow from round to round. While it is left, each call is compared with those of the recorded
rounds; the first that differs is recorded again, with what follows it.
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
"""The number of rounds of a loop that are recorded before it may be left."""
OFTEN = 40
"""For this many rounds of a loop, graphs that have grown are counted in every round.

Later they are counted each time that a fourth more rounds have passed, because counting takes ever longer.
"""
LENGTHY = 1000
"""The number of calls after which a loop may be left whose rounds make no optimizer step and run no module."""
DISTANCE = 3
"""A round is recorded as a sample whenever the number of rounds is this many times that at the last sample."""
VARIANTS = 8
"""How often the same call may come with other shapes before they are no longer counted as new."""
SHOWN = 3000
"""A recording that is drawn has so many steps before a loop is left: short programs are shown whole, long ones soon."""
LAST = 4
"""The number of rounds that are recorded in full before an error."""
GLANCE = 61
"""The operands of one in so many calls of rounds that are not recorded are tested for NaN."""
MANY = 4
"""The number of tensors of a list that are compared."""

_is_grad_enabled = torch.is_grad_enabled
_BACKWARD = {torch.Tensor.backward, torch.autograd.backward}
_FLOATS = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_TORCH = str(torch.__path__[0])
_WRAPPERS = _TORCH + "/utils/_contextlib.py"


@dataclass(slots=True)
class Loop:
    """A loop of the program, whose rounds (iterations) are counted.

    ``head`` is a hash of the place of the first call of a round; ``code`` and ``at`` are the function that contains the
    loop and the instruction in it (``f_lasti``), ``line`` its source line; ``level`` is how many functions of the
    program are around that function. ``rounds`` counts its rounds, ``recorded`` those that were recorded; when there
    are ``sample`` rounds, one more is recorded. ``length`` is the number of calls in a recorded round, ``steps`` how
    many optimizer steps there were when the present round began, ``trains`` True if the last recorded round made such a
    step.
    """

    head: int
    level: int
    at: int
    code: CodeType
    inside: set[int] = field(default_factory=set)
    """The calls of its recorded rounds."""
    began: int | None = None
    """The number of the call with which the present round began; None while the loop does not run."""
    since: int = 0
    """The number of the call with which its first round began, since it runs; those of torch's data
    loaders and optimizers count.
    """
    partly: bool = False
    """Whether the recording was resumed inside the present round and not at its beginning."""
    rounds: int = 0
    recorded: int = 0
    sample: int = 2 * FIRST
    length: int = 0
    steps: int = 0
    trains: bool = False
    is_made: bool = False
    """Whether its rounds are calls of a function of the program, or of the data loader's own, that torch makes."""
    fetches: bool = False
    """Whether torch's data loader makes the calls with which its rounds begin."""
    is_plain: bool = False
    """Whether its rounds make no step and run no module."""
    nodes: int = -1
    """The number of nodes that the graphs of the living tensors had; ``most`` and ``grown``:
    the most, and in which round.
    """
    most: int = -1
    grown: int = 0
    due: int = 0
    """The round before which the graphs are not counted again."""
    line: int = 0


@dataclass(slots=True)
class CallPath:
    """``path``: the functions of the program around the latest calls, outermost first, each as the id of its frame, its
    code and the instruction (``f_lasti``). ``head``: a hash of the call, and its caller, at which a round is seen to
    begin among these calls. ``loop``: the loop of these rounds, None if none was seen.
    """

    path: list[tuple[int, CodeType, int]]
    head: int
    is_made: bool = False
    """Whether a function of the program makes the calls that torch called."""
    times: dict[int, int] = field(default_factory=dict)
    """How often each other call came since the head."""
    loop: Loop | None = None


Calls = tuple[int, int]
"""From which call on and up to which one, counted from the beginning of the program."""


@dataclass(slots=True)
class Sampling:
    """Which calls a recording leaves out, and at its end which ones another run should record.

    Calls between the two numbers of ``whole`` are all recorded (None: none are asked for). No loop is left before the
    trace has ``after`` steps. With ``closely`` each result in a round that is left out is tested for NaN, else only
    some. At the end ``again`` are the calls around the first gradient that was not finite, or the first NaN, in a round
    that was left out (None if there was none), and ``last`` those of the last rounds (None if no loop was left).
    """

    whole: Calls | None = None
    closely: bool = False
    again: Calls | None = None
    last: Calls | None = None
    after: int = 0


class Rounds:
    """Decides which calls of the program are recorded.

    ``nodes()`` returns the number of nodes in the graphs that are alive, ``written()`` the number of steps of the
    trace; ``sampling`` says what has to be recorded in any case, and gets the results. ``gaps`` are the places in the
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
        """How many steps the program's optimizers have made, and how many calls were not recorded."""
        self.routine = 0
        """How many recorded calls were made by torch's data loaders and optimizers."""
        self.left: Loop | None = None
        """The loop whose rounds are not recorded at present."""
        self.loops: dict[tuple[int, int], Loop] = {}
        self._calls: list[int] = []
        self._known: set[int] = set()
        self._variants: dict[int, int] = {}
        self.varied: set[int] = set()
        """The calls that came with so many shapes that these are no longer compared."""
        self._fresh = self._module = -1
        self._path: list[tuple[int, CodeType, int]] = []
        self._entry = CallPath([], 0)
        self._is_own = False
        self._counted = self._gone = 0
        self.gaps: list[Gap] = []
        self._kinds: dict[CodeType, int] = {}

    def leaves(self, func: Any, args: Any, kwargs: Any, caller: FrameType, *, fetches: bool = False) -> bool:
        """Note a call of ``func``, from the frame ``caller``, that may be recorded; return True if it begins a round of
        a loop that need not be recorded, which is ``left`` from then on.

        ``fetches``: it is made by torch's data loader.
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
        """Whether a call in a round that is not recorded repeats a recorded one; if it does not, recording resumes.
        Must be called only while a loop is ``left``.

        False too, and recording resumes, at the head of a round that is to be a sample.
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
        """Whether the rounds that are not recorded begin with calls of torch's data loader."""
        return self.left is not None and self.left.fetches

    @property
    def closely(self) -> bool:
        """Whether the result of each call that is not recorded is to be tested by :meth:`look`."""
        return self._sampling.closely and self._sampling.again is None

    def look(self, values: Iterable[Any], *, infinite: bool = False) -> None:
        """Test tensors of a round that is not recorded for NaN (``infinite``: and infinity), until one has been found.
        ``values`` are tensors or lists of them; others are passed over.

        The calls around the first one are then in ``Sampling.again``.
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
        """Note a use of a method that is no torch call; ``kind`` names it (:mod:`~pitfall_lab.observe.lookups`),
        ``frame`` uses it.

        Return True if rounds were not recorded and it is new in them, so that recording has resumed.
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
        """Called when the program has ended: keep the last rounds' calls in ``Sampling.last``, and add a gap if the
        program ended in rounds that are not recorded.
        """
        self._sampling.last = self._around_now()
        if self.left is not None:
            self._note_gap()

    def _note_gap(self) -> None:
        if self.unseen > self._gone:
            self.gaps.append(Gap(self._written(), self.unseen - self._gone))

    def stepping(self, optimizer: torch.optim.Optimizer) -> None:
        """Called before a step of an optimizer: count it.

        In a round that is not recorded, also test the last gradient: if it is not finite, another run is to record the
        calls around it. Must be called while torch functions are unobserved.
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
        """Return a number for the place of a call, and the program's functions around it (frame,
        code, position), outermost first.

        Those that torch or a module called are left out, and of a function that calls itself all calls but the
        outermost: a recursion is a loop.
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
        """The loop that begins another round with the call at ``path``; None if the call begins no round.

        ``own`` is the number of the call and its caller alone.
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
        """Whether the call begins a round that its path does not show: a round of a single call, or one
        that torch makes of a function.

        Calls with the same path follow each other; the first of them is the head of the rounds, or one
        that comes often without it.
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
        """The loop with the head ``place``; a new :class:`Loop` if it is seen to repeat for the first time.

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
        """Whether the rounds of ``loop`` from now on need not be recorded; called when a round was
        recorded and the next begins.
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
        """Whether the graphs have as many nodes as a round before; False where they are not counted in this round.

        In a plain loop (``is_plain``) their number may vary from round to round: there, whether it was largest in round
        ``grown`` and has not exceeded that in more rounds than ``grown`` since.
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
    """Whether a dense tensor of floats, or one of the first ``MANY`` in a list, has a NaN
    (``infinite``: or an infinity).

    It is the sum that is tested.
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
    """Return a hash of a call: its place, the grad mode, the shapes and dtypes of its tensors, whether these
    require grad, and its flags.

    Of a list only the first ``MANY``; the place alone if a tensor has no shape.
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
    """Return the number of nodes in the graphs of the nodes ``starts`` (of the shadow engine; None is passed over) that
    a backward can still go through.

    A node is not counted if a backward from it would come to one whose saved tensors are freed: nothing that the
    program computes later can depend on whether the calls that made such a graph were recorded.
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
