"""Makes ``torch.autograd.backward`` dispatch to function modes while recording; torch does so itself only from 2.11 on
(:func:`begin` and :func:`end`).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function, is_tensor_like

BACKWARD = torch.autograd.backward
"""Torch's function."""
DISPATCHES = "handle_torch_function" in BACKWARD.__code__.co_names


@wraps(BACKWARD)
def _dispatching(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands in for ``torch.autograd.backward``: dispatches to function modes, as torch 2.11 does itself.

    Errors in the arguments are left to torch.
    """
    several = isinstance(tensors, (list, tuple))
    inputs = kwargs.get("inputs", args[4] if len(args) > 4 else None)
    roots = [*(tensors if several else [tensors]), *(inputs if isinstance(inputs, (list, tuple)) else [inputs])]
    relevant = tuple(each for each in roots if is_tensor_like(each))  # type: ignore[no-untyped-call]
    if has_torch_function(relevant):
        return handle_torch_function(BACKWARD, relevant, tensors, *args, **kwargs)
    return BACKWARD(tensors, *args, **kwargs)


def begin() -> None:
    """Replace ``torch.autograd.backward`` if it does not dispatch itself and the program has not replaced it."""
    if not DISPATCHES and torch.autograd.backward is BACKWARD:
        torch.autograd.backward = _dispatching


def end() -> None:
    """Restore torch's function, unless the program has replaced ours."""
    if torch.autograd.backward is _dispatching:
        torch.autograd.backward = BACKWARD
