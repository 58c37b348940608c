"""Observes the parameters that an optimizer receives (:func:`taking` and :func:`given_rate`), and those that it holds
when it steps (:class:`StepWatch`); neither is an observable torch call.

Also observed are the learning rates with which it steps, which a scheduler changes without a torch call.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pitfall_lab.observe import private
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Span

if TYPE_CHECKING:
    from pitfall_lab.observe.recorder import Recorder

STEPS = 3
"""How many steps of each optimizer are reported; later steps add nothing, and a program may make a million."""

RATES = 1000
"""How many changes of an optimizer's learning rate are recorded at most."""

UPDATES = 1000
"""For how many of an optimizer's steps the backwards before them are counted at most."""

SEVERAL = 2
LEFT = 20
"""How many clearings of gradients that no step had used are recorded at most, and how many positions of other
clearings.
"""

_TAKING = getattr(inspect.unwrap(torch.optim.Optimizer.add_param_group), "__code__", None)


def taking(frame: FrameType) -> torch.optim.Optimizer | None:
    """Return the optimizer that is adding a parameter, if ``frame`` runs ``Optimizer.add_param_group`` (where torch
    reads the parameter's is_leaf); None for any other frame.
    """
    return frame.f_locals.get("self") if frame.f_code is _TAKING else None


def given_rate(frame: FrameType, optimizer: torch.optim.Optimizer) -> float | None:
    """Return the learning rate of the parameter group that ``optimizer`` is adding in the ``frame`` of :func:`taking`;
    None if it is no plain finite number.
    """
    group = frame.f_locals.get("param_group")
    rate = group.get("lr", optimizer.defaults.get("lr")) if isinstance(group, dict) else None
    return float(rate) if isinstance(rate, float | int) and math.isfinite(rate) else None


@dataclass(slots=True)
class Pace:
    """How often an optimizer has stepped, and with which learning rates.

    ``optimizer`` refers to it weakly; ``steps`` is the number of its steps; ``rates`` has, for each change of the rate,
    the number of the first step with it (from 0) and the rate, the highest of its groups; ``rate`` is the last of
    these, None before the first.
    """

    optimizer: weakref.ref[Any]
    steps: int = 0
    rates: list[tuple[int, float]] = field(default_factory=list)
    rate: float | None = None
    begins: list[int] = field(default_factory=list)
    """For each of ``rates``, how many steps the trace had before the optimizer's first step with it."""
    apart: int = 0
    """The number of steps in which the groups had different learning rates."""
    attributes: int = -1
    """The number of the optimizer's attributes at its last reported step."""
    since: int | None = None
    """How many backwards the program had made at the optimizer's last step or clearing of gradients; None before these,
    and after a step of another optimizer.
    """
    updates: list[int] = field(default_factory=list)
    """For each step, how many backwards were made since the last step or clearing, for at most ``UPDATES`` steps."""
    left: list[tuple[int, Span | None]] = field(default_factory=list)
    """For each clearing with no step after the backwards before it, how many backwards these were, and its source
    position (None: the program ended).
    """
    cleared: dict[tuple[int, int], Span | None] = field(default_factory=dict)
    """The source positions of the clearings that followed a step, by code and instruction."""

    def step(self, backwards: int) -> None:
        """Record, for a step, the number of backwards before it; ``backwards`` is how many the program has made so
        far.
        """
        if self.since is not None and len(self.updates) < UPDATES:
            self.updates.append(backwards - self.since)
        self.since = backwards

    def counts(self) -> tuple[tuple[int, ...], tuple[tuple[int, Span | None], ...], tuple[Span, ...]]:
        """Return what a trace keeps of the backwards: ``updates``, ``left`` and the source positions of the other
        clearings; all empty if no step used the gradients of several backwards.
        """
        if all(count < SEVERAL for count in self.updates):
            return (), (), ()
        return tuple(self.updates), tuple(self.left), tuple(span for span in self.cleared.values() if span is not None)

    def clear(self, backwards: int, frame: FrameType, span: Callable[[FrameType], Span | None]) -> None:
        """Record that ``frame`` clears the gradients; ``backwards`` is how many the program has made so far, ``span``
        returns the source position of a frame.
        """
        place = id(frame.f_code), frame.f_lasti
        if self.since is not None and backwards > self.since:
            if len(self.left) < LEFT:
                self.left.append((backwards - self.since, span(frame)))
        elif self.since is not None and place not in self.cleared and len(self.cleared) < LEFT:
            self.cleared[place] = span(frame)
        self.since = backwards

    def note(self, groups: Any, written: int) -> None:
        """Count a step with these parameter groups (``optimizer.param_groups``), and record their highest learning rate
        if it differs from the last one, up to ``RATES`` (1000) times. ``written`` is how many steps the trace has.

        A rate that is a tensor or not finite is not recorded.
        """
        number, self.steps = self.steps, self.steps + 1
        rate = groups[0].get("lr") if len(groups) == 1 else _highest(groups)
        self.apart += len(groups) > 1 and any(group.get("lr") != rate for group in groups)
        if isinstance(rate, float | int) and rate != self.rate and math.isfinite(rate) and len(self.rates) < RATES:
            self.rate = rate
            self.rates.append((number, float(rate)))
            self.begins.append(written)


def _highest(groups: Any) -> Any:
    rates = [group.get("lr") for group in groups]
    return max(rates) if rates and all(isinstance(rate, float | int) for rate in rates) else None


def _is_plain(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step of the optimizer runs only torch's code: a class of ``torch.optim`` without step hooks registered
    on it.
    """
    hooks = vars(optimizer).get("_optimizer_step_pre_hooks") or vars(optimizer).get("_optimizer_step_post_hooks")
    return not hooks and type(optimizer).__module__.startswith("torch.optim.")


class StepWatch:
    """Calls ``tell(optimizer, pace, frame)`` before the first ``STEPS`` (3) steps of each optimizer in this thread, and
    before a later one if its number of attributes has changed since. ``tell`` must not raise.

    ``pace`` is the optimizer's :class:`Pace`, in which every step is counted after ``tell``. ``frame`` is the learner's
    frame that makes the step, None if there is none. ``recorder`` is notified before and after every step, and
    ``written`` returns how many steps the trace has.
    """

    def __init__(
        self,
        tell: Callable[[torch.optim.Optimizer, Pace, FrameType | None], None],
        sources: SourceMap,
        recorder: Recorder,
        written: Callable[[], int],
    ) -> None:
        self._tell = tell
        self._sources = sources
        self._thread = threading.get_ident()
        self._seen: dict[int, Pace] = {}
        self._handles: tuple[Any, ...] = ()
        self._recorder = recorder
        self._written = written

    def start(self) -> None:
        """Register hooks that torch calls before and after each optimizer step."""

        def about_to_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
            if threading.get_ident() == self._thread:
                frame = self._sources.user_frame(sys._getframe(1))
                self._recorder.stepping(optimizer, frame, plain=not (args[1:] or kwargs) and _is_plain(optimizer))
                self._step(optimizer, frame)

        def has_stepped(_optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
            if threading.get_ident() == self._thread:
                self._recorder.stepped()

        private.leave_uncompiled(about_to_step, has_stepped)
        # a compiled step is not broken in two by them
        about_to_step._torchdynamo_disable = has_stepped._torchdynamo_disable = True  # type: ignore[attr-defined]
        self._handles = register_optimizer_step_pre_hook(about_to_step), register_optimizer_step_post_hook(has_stepped)

    def stop(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def clearing(self, owner: Any, frame: FrameType) -> None:
        """Called before ``frame`` calls ``zero_grad()`` of ``owner``, an optimizer or a module: count the backwards
        whose gradients an optimizer loses by it. Nothing is raised.
        """
        with contextlib.suppress(Exception):  # parameter groups may be anything that the program makes of them
            caller = self._sources.user_frame(frame)
            if caller is None:
                return
            for pace in self._paces_of(owner):
                pace.clear(self._recorder.backwards, caller, self._sources.span)

    def _paces_of(self, owner: Any) -> list[Pace]:
        if isinstance(owner, torch.optim.Optimizer):
            pace = self._seen.get(id(owner))
            return [pace] if pace is not None and pace.optimizer() is owner else []
        held = {id(parameter) for parameter in owner.parameters()}
        known = ((pace, pace.optimizer()) for pace in self._seen.values())
        return [
            pace
            for pace, optimizer in known
            if optimizer is not None and all(id(p) in held for p in optimizer.param_groups[0]["params"])
        ]

    def finish(self) -> None:
        """Called when the program has ended: count the backwards that were made after the last step or clearing of an
        optimizer.
        """
        for pace in self._seen.values():
            if pace.since is not None and self._recorder.backwards > pace.since:
                pace.left.append((self._recorder.backwards - pace.since, None))

    def _step(self, optimizer: torch.optim.Optimizer, frame: FrameType | None) -> None:
        pace = self._seen.get(id(optimizer))
        if pace is None or pace.optimizer() is not optimizer:  # another optimizer may get the id of a dead one
            pace = self._seen[id(optimizer)] = Pace(weakref.ref(optimizer))
        if pace.steps < STEPS or len(vars(optimizer)) != pace.attributes:
            pace.attributes = len(vars(optimizer))
            self._tell(optimizer, pace, frame)
        with contextlib.suppress(Exception):  # parameter groups may be anything that the program makes of them
            pace.note(optimizer.param_groups, self._written())
        pace.step(self._recorder.backwards)
        for other in self._seen.values() if len(self._seen) > 1 else ():
            if other is not pace:
                other.since = None  # the count does not say which of the two these backwards are for
