"""Writing values of the learner's down as source, so that a cell can be tried in another process with what it began with."""

from __future__ import annotations

import ast
import inspect
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

LIMIT = 4096


def restate(source: str, names: Mapping[str, Any]) -> str:
    r"""Return assignments and definitions for what ``source`` uses of ``names``; what cannot be said exactly is left out.

    Numbers, text and small plain leaf tensors become assignments; functions and classes of earlier cells become their source.

    >>> restate("y = x * k", {"x": torch.ones(2, requires_grad=True), "k": 3})
    "k = 3\nx = __import__('torch').tensor([1.0, 1.0], dtype=__import__('torch').float32).reshape((2,)).clone().requires_grad_(True)"
    """
    try:
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError):
        return ""
    return "\n".join(line for name in sorted(used & set(names)) for line in _stated(name, names[name]))


def _stated(name: str, value: Any) -> list[str]:
    try:
        return list(_lines(name, value))
    except Exception:  # torch refuses to describe some tensors, and an object of the learner's may refuse anything
        return []


def _lines(name: str, value: Any) -> Iterator[str]:
    if type(value) in (int, bool, str, type(None)) or (type(value) is float and math.isfinite(value)):
        yield f"{name} = {value!r}"
    elif type(value) is torch.Tensor and _is_plain(value):
        yield f"{name} = {_tensor(value)}"
        if value.grad is not None and _is_plain(value.grad):
            yield f"{name}.grad = {_tensor(value.grad)}"
    elif isinstance(value, (types.FunctionType, type)) and value.__module__ == "__main__" and value.__name__ == name:
        try:
            yield inspect.getsource(value)
        except (OSError, TypeError):
            return


def _is_plain(tensor: torch.Tensor) -> bool:
    plain = (
        tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.is_leaf and tensor.numel() <= LIMIT
        and not tensor.is_inference() and tensor._base is None and tensor.is_contiguous()
        and not tensor.is_quantized and not tensor.dtype.is_complex
    )  # fmt: skip
    return plain and (not tensor.dtype.is_floating_point or bool(torch.isfinite(tensor.detach()).all()))


def _tensor(tensor: torch.Tensor) -> str:
    torch_ = "__import__('torch')"
    numbers, dtype = tensor.detach().reshape(-1).tolist(), str(tensor.dtype).removeprefix("torch.")
    made = f"{torch_}.tensor({numbers!r}, dtype={torch_}.{dtype}).reshape({tuple(tensor.shape)!r}).clone()"
    return f"{made}.requires_grad_(True)" if tensor.requires_grad else made
