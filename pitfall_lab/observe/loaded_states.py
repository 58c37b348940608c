"""Compares the names in a state dict that is being loaded with those of the module into which it is loaded
(:func:`compared`).
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.stray_attributes import named

AROUND = 80
"""How many frames are examined at most to find that of ``load_state_dict``."""


def loading(owner: Any) -> dict[str, Any] | None:
    """Return a copy of the state (a dict of values by name) that ``load_state_dict`` is loading into the module
    ``owner`` at this moment.

    None if none of the ``AROUND`` (80) frames above is a ``Module.load_state_dict``, or if the innermost of these loads
    into another module.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(AROUND):
        if frame is None:
            return None
        if frame.f_code is _code():
            held = variables(frame)
            state = held.get("state_dict")
            return dict(state) if held.get("self") is owner and isinstance(state, dict) else None
        frame = frame.f_back
    return None


def _code() -> Any:
    method = vars(torch.nn.Module)["load_state_dict"]
    return getattr(getattr(method, "method", method), "__code__", None)


def compared(module: torch.nn.Module, state: dict[str, Any]) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return how many names of parameters and buffers the module and the loaded ``state`` have in common, and pairs of
    names: one of the module that the state lacks, and one of the state, for a tensor of the same shape, that the module
    lacks.

    Each name is in at most one pair; without pairs the tuple is empty.
    """
    own = dict(named(module))
    left = {
        name: tuple(value.shape) for name, value in state.items() if type(value) is torch.Tensor and name not in own
    }
    pairs = []
    for name, value in own.items():
        other = (
            next((each for each, shape in left.items() if shape == tuple(value.shape)), None)
            if name not in state
            else None
        )
        if other is not None:
            del left[other]
            pairs.append((name, other))
    return sum(name in state for name in own), tuple(pairs)
