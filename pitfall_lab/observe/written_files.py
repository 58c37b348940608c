"""Finds the tensors of an object that ``torch.save`` is writing (:func:`written`)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.frame_variables import variables

CONTAINERS = (dict, OrderedDict, list, tuple)
DEEP = 6
"""Containers nested deeper than this are left out."""
MOST = 500
"""The number of tensors that are looked at."""


def written(frame: FrameType) -> list[torch.Tensor]:
    """The tensors in the object that ``torch.save`` writes, called from the Python frame ``frame``, at most ``MOST``
    (500).

    Only plain containers are opened, so that no code of the program runs. Empty if the frame is not one of
    ``torch.save``.
    """
    save = getattr(torch.save, "__wrapped__", torch.save)
    if frame.f_code is not getattr(save, "__code__", None):
        return []
    found = _tensors(variables(frame).get("obj"), DEEP)
    return [tensor for _, tensor in zip(range(MOST), found, strict=False)]


def _tensors(value: Any, deep: int) -> Iterator[torch.Tensor]:
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        yield value
    elif type(value) in CONTAINERS and deep:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each, deep - 1)
