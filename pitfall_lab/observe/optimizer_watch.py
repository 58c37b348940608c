"""Observes the parameters that an optimizer receives, and those that it holds when it steps; neither is an observable torch call."""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import Span

STEPS = 3
"""The number of steps of each optimizer that are observed; later steps add nothing, and a program may make a million."""

_TAKING = getattr(inspect.unwrap(torch.optim.Optimizer.add_param_group), "__code__", None)


def taking(frame: FrameType) -> torch.optim.Optimizer | None:
    """The optimizer that is adding a parameter in ``frame``, where torch reads the parameter's is_leaf; None in any other frame."""
    return frame.f_locals.get("self") if frame.f_code is _TAKING else None


class StepWatch:
    """Calls ``tell(optimizer, span)`` before the first steps of each optimizer in this thread. ``tell`` must not raise."""

    def __init__(self, tell: Callable[[torch.optim.Optimizer, Span | None], None], sources: SourceMap) -> None:
        self._tell = tell
        self._sources = sources
        self._thread = threading.get_ident()
        self._seen: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._handle: Any = None

    def start(self) -> None:
        """Register a hook that torch calls before each optimizer step."""

        def about_to_step(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
            self._step(optimizer)

        about_to_step._torchdynamo_disable = True  # type: ignore[attr-defined] # a compiled step is not broken in two by it
        self._handle = register_optimizer_step_pre_hook(about_to_step)

    def stop(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()

    def _step(self, optimizer: torch.optim.Optimizer) -> None:
        if threading.get_ident() != self._thread:
            return
        known, steps = self._seen.get(id(optimizer), (None, 0))
        if known is None or known() is not optimizer:  # another optimizer may get the id of a dead one
            known, steps = weakref.ref(optimizer), 0
        if steps < STEPS:
            self._seen[id(optimizer)] = known, steps + 1
            self._tell(optimizer, self._place())

    def _place(self) -> Span | None:
        frame = sys._getframe(2)
        while frame is not None and not self._sources.is_user(frame.f_code.co_filename):
            frame = frame.f_back  # type: ignore[assignment]
        return self._sources.span(frame) if frame is not None else None
