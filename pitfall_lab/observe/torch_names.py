"""Determines torch's qualified names of functions, and which functions only read from a tensor (:func:`name_of` and
:func:`is_quiet`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType
from typing import Any

import torch

from pitfall_lab.observe.private import names_of_functions

_OPERATORS = (type(torch.ops.aten.add.Tensor), type(torch.ops.aten.add))

#: Calls that neither create a tensor, nor change one, nor start a backward. They are not recorded.
QUIET_GETTERS = frozenset({
    "shape", "dtype", "device", "layout", "requires_grad", "grad_fn", "is_leaf", "_version", "ndim", "names",
    "itemsize", "nbytes", "is_cpu", "is_cuda", "is_meta", "is_mkldnn", "is_mps", "is_nested", "is_quantized",
    "is_sparse", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu", "is_mtia", "is_maia", "is_ipu", "_base", "output_nr",
    "name", "volatile", "retains_grad", "_backward_hooks", "_post_accumulate_grad_hooks", "__cuda_array_interface__",
    "grad_dtype",
})  # fmt: skip
QUIET_METHODS = frozenset({
    "dim", "size", "numel", "stride", "storage_offset", "data_ptr", "untyped_storage", "storage", "_typed_storage",
    "element_size", "is_contiguous", "is_complex", "is_floating_point", "is_signed", "is_inference", "is_shared",
    "is_pinned", "is_same_size", "get_device", "nelement", "_parse_to", "ndimension", "type_as_", "__len__", "__repr__",
    "__format__", "__hash__", "__dir__", "has_names", "__reduce_ex__", "__reduce__", "__dlpack_device__", "is_set_to",
    "_is_view", "_nnz", "is_conj", "is_neg", "is_coalesced", "is_distributed", "is_nonzero_", "dim_order", "is_tensor",
    "is_storage", "result_type", "promote_types", "can_cast", "get_default_dtype", "is_grad_enabled",
    "is_inference_mode_enabled", "_has_compatible_shallow_copy_type", "_is_all_true", "_assert_async",
    "is_autocast_enabled", "_record_function_enter_new", "_record_function_exit", "_set_grad_enabled", "device",
    "_assert", "set_default_dtype", "get_num_threads", "manual_seed", "seed", "initial_seed", "get_rng_state",
    "set_rng_state",
})  # fmt: skip


COMMON = {"torch.spmm": "torch.mm"}
"""Names that torch's table has for functions which programs call by another name: both name the same function, and the
table has only the last one.
"""


def name_of(func: Callable[..., Any]) -> str:
    """Return torch's qualified name of ``func``, such as ``"torch.Tensor.add_"``.

    Without one, its name, after the name of its module if that is torch's.

    >>> import torch
    >>> name_of(torch.Tensor.add_)
    'torch.Tensor.add_'
    """
    resolved = str(func) if isinstance(func, _OPERATORS) else names_of_functions.get(func)
    if resolved:
        return COMMON.get(resolved, resolved)
    own = str(getattr(func, "__name__", type(func).__name__))
    field = getattr(func, "__self__", None)
    if own == "__delete__" and isinstance(field, GetSetDescriptorType):
        return f"torch.Tensor.{field.__name__}.{own}"  # ``del x.grad``, which is missing in torch's table
    module = str(getattr(func, "__module__", "") or "")
    return f"{module}.{own}" if module.startswith("torch") else own


READS_GRAD_FN = frozenset({
    "torch.Tensor.grad_fn.__get__", "torch.Tensor.is_leaf.__get__", "torch.Tensor.__repr__", "torch.Tensor.__format__",
})  # fmt: skip
"""Quiet calls that make torch regenerate the grad_fn of a view whose base was written in place."""


def is_quiet(name: str) -> bool:
    """Whether calls of a function are not recorded, mostly because it neither creates nor changes a tensor and starts
    no backward.

    ``name`` is what :func:`name_of` returns for it.
    """
    parts = name.split(".")
    if name == "torch.Tensor._backward_hooks.__set__":
        # called by torch while it regenerates a view's grad_fn: it holds a lock, and reading the grad_fn would hang
        return True
    if parts[-1] == "__get__" and len(parts) > 1:
        return parts[-2] in QUIET_GETTERS
    return parts[-1] in QUIET_METHODS or name.startswith("profiler.") or "._record_function" in name
