"""Compares the names of a state that is being loaded with those of the module that it is loaded into."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.stray_attributes import named

AROUND = 80
"""How many frames are looked at for the one of ``load_state_dict``."""


def loading(owner: Any) -> dict[str, Any] | None:
    """The state that ``owner`` is loading at this moment, a copy.

    None if none of the ``AROUND`` frames above is its ``load_state_dict``.
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
    """How many names the module and the loaded state both have, and pairs (name in the module, name in the state) that
    only one of them has, of tensors of the same shape.

    Each name is in one pair at most.
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
