"""Stretches of a program that torch runs as one thing: transformed functions, compiled functions, tracers.

Inside them tensors are wrapped, traced or already compiled: the calls that a mode sees there are not the learner's. They are
found by the frames between the learner's line and the call, and only where one of torch's own switches says that there can be any.
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
    "torch.func": "a function transform runs the function on wrapped tensors; what came out was read afterwards",
    "torch.compile": "a compiled function runs as one piece; what came out was read afterwards",
    "torch.jit": "a tracer runs the function to write it down; what came out was read afterwards",
    "torch.fx": "a tracer runs the function on stand-ins for tensors; what came out was read afterwards",
    "torch.export": "an exporter runs the function on stand-ins for tensors; what came out was read afterwards",
}


@dataclass(frozen=True, slots=True)
class Region:
    """One such stretch, while it runs: torch's name for it, the learner's ``frame`` and the frame of torch's that it called."""

    name: str
    frame: FrameType
    entry: FrameType

    @property
    def reason(self) -> str:
        """Why its calls are not told one by one."""
        return REASONS[".".join(self.name.split(".")[:2])]

    @property
    def key(self) -> tuple[int, int]:
        """The same for all calls inside one stretch."""
        return id(self.frame), self.frame.f_lasti

    def arguments(self) -> list[Any]:
        """What the learner passed in."""
        scope = self.entry.f_locals
        return [scope.get(name) for name in ("args", "kwargs", "primals", "tangents", "example_inputs")]


def possible() -> bool:
    """Whether a call may lie in a region: a transform is on, something was compiled, or a tracer runs."""
    return tracing() or frames_compiled() > 0


def tracing() -> bool:
    """Whether a transform or a tracer is at work now: what we look at would be wrapped, or written down as the program's."""
    return (
        not has_switches
        or transform() is not None
        or jit_tracer() is not None
        or fx_tracer()
        or (dispatch_modes() and dispatch_mode(FAKE) is not None)  # torch.export runs on fake tensors
    )


def writes_down() -> bool:
    """Whether ``torch.jit.trace`` is at work: it writes down what anybody does with a size."""
    return jit_tracer is not None and jit_tracer() is not None


def around(caller: FrameType, sources: SourceMap) -> Region | None:
    """The outermost region around ``caller`` that the learner's own code entered."""
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
