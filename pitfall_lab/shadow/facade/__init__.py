"""A stand-in for ``import torch``: small programs run on the shadow engine alone, with torch's behaviour and errors.

There is no table of methods here: whatever has an entry in :mod:`pitfall_lab.shadow.ops` can be called.

>>> from pitfall_lab.shadow import facade as torch
>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> (x ** 2).sum().backward()
>>> x.grad
tensor([2., 4.])

In torch: random numbers come from another generator, and printing rounds differently in rare cases. Here a name without
an entry raises ``AttributeError`` (:class:`Absent`), and a call that the engine has no model of raises
``NotImplementedError``.
"""

# ruff: noqa: A001 - tables in rows; the names are torch's

from __future__ import annotations

import math
import sys
from typing import Any

from pitfall_lab.shadow import dtypes
from pitfall_lab.shadow.dtypes import DType
from pitfall_lab.shadow.errors import Absent
from pitfall_lab.shadow.facade import function, nn, optim
from pitfall_lab.shadow.facade.devices import (
    _unsafe_preserve_version_counter,
    broadcast_shapes,
    cuda,
    detect_anomaly,
    set_detect_anomaly,
)
from pitfall_lab.shadow.facade.tensors import (  # fmt: skip
    Namespace,
    Parameter,
    Size,
    Tensor,
    device,
    enable_grad,
    engine,
    inference_mode,
    is_grad_enabled,
    is_tensor,
    manual_seed,
    no_grad,
    operation,
    reset,
    set_grad_enabled,
    set_printoptions,
)

float16, half, bfloat16 = DType("float16"), DType("float16"), DType("bfloat16")
float32, float, float64, double = dtypes.FLOAT32, dtypes.FLOAT32, dtypes.FLOAT64, dtypes.FLOAT64
int8, int16, short, int32, int, int64, long, uint8 = (
    DType(n) for n in ("int8", "int16", "int16", "int32", "int32", "int64", "int64", "uint8")
)
bool, complex64, complex128 = dtypes.BOOL, DType("complex64"), DType("complex128")
preserve_format, contiguous_format, channels_last, strided = (
    "preserve_format",
    "contiguous_format",
    "channels_last",
    "strided",
)
FloatTensor = Tensor
pi, inf, nan, e = math.pi, math.inf, math.nan, math.e
__version__ = "shadow of 2.13.0"


autograd, linalg, special = (Namespace(f"{__name__}.{n}", f"torch.{n}") for n in ("autograd", "linalg", "special"))
autograd.graph = Namespace(f"{__name__}.autograd.graph", "torch.autograd.graph")  # type: ignore[attr-defined]
autograd.Function = function.Function  # type: ignore[attr-defined]
for _place in (autograd, sys.modules[__name__]):
    _place.set_detect_anomaly, _place.detect_anomaly = set_detect_anomaly, detect_anomaly  # type: ignore[attr-defined]
autograd._unsafe_preserve_version_counter = _unsafe_preserve_version_counter  # type: ignore[attr-defined]  # noqa: SLF001
autograd.no_grad, autograd.enable_grad = no_grad, enable_grad  # type: ignore[attr-defined]
autograd.grad_mode = Namespace(f"{__name__}.autograd.grad_mode", "torch.autograd.grad_mode")  # type: ignore[attr-defined]
for _mode in (no_grad, enable_grad, inference_mode, set_grad_enabled):
    for _place in (autograd, autograd.grad_mode):
        setattr(_place, _mode.__name__, _mode)


def __getattr__(name: str) -> Any:
    """Return the operation ``torch.<name>``; raise an error if the shadow engine has no entry for it."""
    found = operation(f"torch.{name}") or operation(f"torch.functional.{name}")
    if found is None:
        raise Absent(f"the shadow engine has no torch.{name}")
    return found


def set_default_dtype(dtype: DType) -> None:
    """Make ``dtype`` the default dtype: the dtype of tensors made from Python floats."""
    engine().default_float = DType(dtype)


def get_default_dtype() -> DType:
    """Return the default dtype: the dtype of tensors made from Python floats."""
    return engine().default_float


def modules() -> dict[str, Any]:
    """Return what ``sys.modules`` must contain so that ``import torch`` imports this
    stand-in; keys are module names.
    """
    return {
        "torch": sys.modules[__name__],
        "torch.nn": nn,
        "torch.nn.functional": nn.functional,
        "torch.autograd": autograd,
        "torch.optim": optim,
        "torch.nn.init": nn.init,
        "torch.nn.utils": nn.utils,
    }


__all__ = [
    "Parameter",
    "Size",
    "Tensor",
    "autograd",
    "broadcast_shapes",
    "cuda",
    "device",
    "enable_grad",
    "engine",
    "get_default_dtype",
    "inference_mode",
    "is_grad_enabled",
    "is_tensor",
    "manual_seed",
    "nn",
    "no_grad",
    "optim",
    "reset",
    "set_default_dtype",
    "set_grad_enabled",
    "set_printoptions",
]  # fmt: skip
