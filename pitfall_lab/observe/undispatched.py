"""``torch.autograd.backward`` asks for function modes since torch 2.11; before, what stands in front of it while we record asks."""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function, is_tensor_like

BACKWARD = torch.autograd.backward
"""Torch's own function."""
ASKS = "handle_torch_function" in BACKWARD.__code__.co_names


@wraps(BACKWARD)
def _asking(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Does what torch 2.11 begins with; errors in what is given are left to torch."""
    several = isinstance(tensors, (list, tuple))
    inputs = kwargs.get("inputs", args[4] if len(args) > 4 else None)
    roots = [*(tensors if several else [tensors]), *(inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    relevant = tuple(each for each in roots if is_tensor_like(each))
    if has_torch_function(relevant):
        return handle_torch_function(BACKWARD, relevant, tensors, *args, **kwargs)
    return BACKWARD(tensors, *args, **kwargs)


def begin() -> None:
    """Stand in front, where torch does not ask itself."""
    if not ASKS and torch.autograd.backward is BACKWARD:
        torch.autograd.backward = _asking


def end() -> None:
    """Step aside; what the program may have put there stays."""
    if torch.autograd.backward is _asking:
        torch.autograd.backward = BACKWARD
