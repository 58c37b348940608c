"""Reads the options of an optimizer that a loaded state is about to replace: no torch call shows them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.frame_variables import variables

ABOVE = 4
"""How many frames above are looked at: a subclass of an optimizer calls the method of its base class."""


def groups(optimizer: torch.optim.Optimizer, frame: FrameType) -> list[dict[str, Any]] | None:
    """The parameter groups that ``load_state_dict`` is putting in the place of the optimizer's own; None if it is not
    running in ``frame`` or just above it (a copy of an optimizer is made by the same method).
    """
    code = getattr(inspect.unwrap(torch.optim.Optimizer.load_state_dict), "__code__", None)
    here: FrameType | None = frame
    for _ in range(ABOVE):
        if here is None:
            return None
        if here.f_code is code:
            held = variables(here)
            new = held.get("param_groups")
            return new if held.get("self") is optimizer and isinstance(new, list) else None
        here = here.f_back
    return None


def replaced(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[str, float, float, float | None]]:
    """The options of parameter groups that a loaded state changes: the name, the number before and after, and for
    ``lr`` the loaded group's ``initial_lr`` (the rate from which a scheduler started, else None).

    For ``lr`` the number before is the old group's ``initial_lr`` if it has one. Each option once, in the first group
    where it differs.
    """
    told = set()
    for one, other in zip(old, new, strict=False):
        for name in (each for each in one if each in other):
            is_rate = name == "lr"
            before = number(one.get("initial_lr", one[name]) if is_rate else one[name])
            after = number(other[name])
            if before is not None and after is not None and before != after and name not in told:
                told.add(name)
                yield name, before, after, number(other.get("initial_lr")) if is_rate else None


def number(value: Any) -> float | None:
    """An option as a number; None for a tensor, a tuple, a bool or what is not finite."""
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def usual(optimizer: torch.optim.Optimizer, name: str) -> float | None:
    """What the optimizer's class takes for an option where nothing is given; None if that is no number."""
    parameter = inspect.signature(type(optimizer).__init__).parameters.get(name)
    return number(parameter.default) if parameter is not None else None
