"""Finds regions: code that torch runs as a whole, such as transformed, compiled and traced functions (:func:`around`
returns the outermost).

Inside a region tensors are wrapped, traced or already compiled, so the calls that a mode sees there are not the
learner's. A region is found from the frames between the learner's line and the call, which are searched only if torch's
state shows that there may be one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

from pitfall_lab.observe.private import (
    ENTRIES,
    FAKE,
    dispatch_mode,
    dispatch_modes,
    frames_compiled,
    fx_tracer,
    has_switches,
    jit_tracer,
    transform,
)
from pitfall_lab.observe.spans import SourceMap

REASONS = {
    "torch.func": "a function transform runs the function on wrapped tensors; its results were read afterwards",
    "torch.compile": "a compiled function runs as one step; its results were read afterwards",
    "torch.jit": "a tracer runs the function to record it; its results were read afterwards",
    "torch.fx": "a tracer runs the function on proxies for tensors; its results were read afterwards",
    "torch.export": "an exporter runs the function on fake tensors; its results were read afterwards",
}


@dataclass(frozen=True, slots=True)
class Region:
    """A region that is running: ``name`` is torch's name for it (``torch.func.vmap``, ``torch.compile``), ``frame`` the
    learner's frame that entered it, ``entry`` the frame of the torch function that runs it.
    """

    name: str
    frame: FrameType
    entry: FrameType

    @property
    def reason(self) -> str:
        """Why the calls inside are not recorded one by one."""
        return REASONS[".".join(self.name.split(".")[:2])]

    @property
    def key(self) -> tuple[int, int]:
        """A key that all calls inside one region share."""
        return id(self.frame), self.frame.f_lasti

    def arguments(self) -> list[Any]:
        """Return what the learner's code passed to the region: the values of the variables ``args``, ``kwargs``,
        ``primals``, ``tangents`` and ``example_inputs`` of the entry frame, in this order, None for one that it does
        not have.
        """
        scope = self.entry.f_locals
        return [scope.get(name) for name in ("args", "kwargs", "primals", "tangents", "example_inputs")]


def possible() -> bool:
    """Whether a call may be inside a region: a transform or tracer is running, or torch.compile has compiled something
    in this process.
    """
    return tracing() or frames_compiled() > 0


def tracing() -> bool:
    """Whether a transform or tracer is running now: tensors that we read would be wrapped, or our reads traced. True
    also if this release of torch does not show it.
    """
    return bool(
        not has_switches
        or transform() is not None
        or jit_tracer() is not None
        or fx_tracer()
        or (dispatch_modes() and dispatch_mode(FAKE) is not None)  # torch.export runs on fake tensors
    )


def writes_down() -> bool:
    """Whether ``torch.jit.trace`` is running, which also records reads of a tensor's sizes."""
    return jit_tracer is not None and jit_tracer() is not None


def around(caller: FrameType, sources: SourceMap) -> Region | None:
    """Return the outermost region around the frame ``caller`` that the learner's code entered; None if there is none.
    ``sources`` determines which frames are the learner's.
    """
    found: Region | None = None
    entry: tuple[str, FrameType] | None = None
    walk: FrameType | None = caller
    while walk is not None:
        code = walk.f_code
        name = _entry(code.co_filename, code.co_qualname)
        if name is not None:
            entry = name, walk
        elif entry is not None and sources.is_user(code.co_filename):
            found, entry = Region(entry[0], walk, entry[1]), None
        walk = walk.f_back
    return found


@cache
def _entry(filename: str, qualname: str) -> str | None:
    for end, beginning, name in ENTRIES:
        if filename.endswith(end) and qualname.startswith(beginning):
            return name.format(qualname.split(".", maxsplit=1)[0])
    return None
