"""Fused optimizer steps: one kernel that writes parameters and state directly.

No version counter is incremented: a step between forward and backward goes unnoticed, and the gradient
is silently wrong. Source in torch: ``aten/src/ATen/native/cpu/FusedAdamKernel.cpp``,
``FusedSGDKernel.cpp``, ``FusedAdagradKernel.cpp``.
"""

# ruff: noqa: A002, PLR0917 - signatures and names are torch's

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.ops.building import arrays, records, tensor_only
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, is_contiguous

LANES = 16
"""The smallest vector length, in half-precision elements, of torch's kernels."""

Array = np.ndarray


def _number(value: Any) -> float:
    """Return a learning rate as a float; it may be given as a tensor."""
    if isinstance(value, ShadowTensor):
        seen = value.window()
        if seen is None:
            raise Unmodelled("a learning rate whose value is unknown")
        return float(seen)
    return float(value)


def _update(
    e: Engine, written: Sequence[ShadowTensor], read: Sequence[ShadowTensor], compute: Callable[..., tuple[Array, ...]]
) -> None:
    """Write ``compute(*written, *read)`` into ``written`` without increasing versions; if a value
    is unknown, the results are.

    Declines a step that autograd records.
    """
    tensor_only(*written, *read)
    if records(e, *written, *read):
        raise Unmodelled("a fused optimizer step that autograd records")
    if not all(is_contiguous(t.shape, t.stride) for t in (*written, *read)):
        written, read = [_as_it_lies(t) for t in written], [_as_it_lies(t) for t in read]
    found = arrays(e, (*written, *read))
    fresh = [None] * len(written) if found is None else compute(*found)
    for target, values in zip(written, fresh, strict=True):
        e.write(target, values)


def _as_it_lies(tensor: ShadowTensor) -> ShadowTensor:
    """A flat view of numel elements from the tensor's offset: the fused kernels ignore strides.

    Declines one that ends beyond its storage.
    """
    if not tensor.ndim:
        return tensor
    if tensor.offset + tensor.numel > tensor.storage.size:
        raise Unmodelled("a fused step on an expanded tensor: the kernel writes past the end of its storage")
    return ShadowTensor(
        tensor.graph, tensor.storage, (tensor.numel,), (1,), tensor.offset, tensor.dtype, tensor.counter
    )


def _of_one_type(parameter: ShadowTensor, *others: ShadowTensor) -> None:
    """Raise torch's error unless all tensors have the parameter's dtype (after ``net.double()``
    the optimizer's state has not).
    """
    for other in others:
        if other.dtype != parameter.dtype:
            text = f"expected scalar type {parameter.dtype.scalar_name} but found {other.dtype.scalar_name}"
            raise runtime(text, "dtype", tensor=other)


def _decayed(gradient: Array, parameter: Array, weight_decay: float) -> Array:
    return gradient + weight_decay * parameter if weight_decay else gradient  # zero times infinity would be NaN


def _no_scaling(*scales: Any) -> None:
    if any(s is not None for s in scales):
        raise Unmodelled("a fused optimizer step with a GradScaler")


def _adam(*, decoupled: bool) -> Callable[..., None]:
    def run(e: Engine, params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, max_exp_avg_sqs: Any, state_steps: Any,
            *, lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
            grad_scale: Any = None, found_inf: Any = None) -> None:  # fmt: skip
        _no_scaling(grad_scale, found_inf)
        rate = _number(lr)

        def compute(p: Array, m: Array, v: Array, *rest: Array) -> tuple[Array, ...]:
            top, g, step = rest[0] if amsgrad else None, rest[-2], float(rest[-1])
            g = -g if maximize else g
            if weight_decay:
                p, g = (p - rate * weight_decay * p, g) if decoupled else (p, g + weight_decay * p)
            m = m + (g - m) * (1 - beta1)
            v = v * beta2 + (1 - beta2) * g * g
            largest = v if top is None else np.maximum(top, v)
            root = np.sqrt(largest) / np.sqrt(1 - beta2**step) + eps
            fresh = p - rate / (1 - beta1**step) * m / root
            return (fresh, m, v) if top is None else (fresh, m, v, largest)

        for k, p in enumerate(params):
            state = [exp_avgs[k], exp_avg_sqs[k], *([max_exp_avg_sqs[k]] if amsgrad else [])]
            _of_one_type(p, grads[k], *state)
            _update(e, [p, *state], [grads[k], state_steps[k]], compute)

    return run


add("torch._fused_adam_", _adam(decoupled=False), "inplace")
add("torch._fused_adamw_", _adam(decoupled=True), "inplace")


@op("torch._fused_sgd_", kind="inplace")
def fused_sgd(e: Engine, params: Any, grads: Any, momentum_buffer_list: Any, *, weight_decay: float, momentum: float,
              lr: Any, dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Any = None,
              found_inf: Any = None) -> None:  # fmt: skip
    """One step ``p -= lr * grad`` of fused SGD for each of ``params`` with its gradient in ``grads``, with the options
    of ``torch.optim.SGD``. No version counter is incremented. With ``momentum``, each buffer in
    ``momentum_buffer_list`` is written, too; ``is_first_step``: the buffers have no values yet.

    Raises ``ShadowError`` (torch's error) for operands of several dtypes, and ``Unmodelled``, among others, with a
    GradScaler (``grad_scale``, ``found_inf``), for an unknown learning rate, for larger parameters in half precision,
    and for a step that autograd records or that writes beyond a storage.
    """
    _no_scaling(grad_scale, found_inf)
    rate = _number(lr)
    if any(p.dtype in ("float16", "bfloat16") and p.numel >= LANES for p in params):
        raise Unmodelled("fused SGD in half precision: torch's vectorised kernel does not write all its results back")

    def step(p: Array, buffer: Array | None, g: Array) -> tuple[Array, ...]:
        g = _decayed(-g if maximize else g, p, weight_decay)
        if not momentum:
            return (p - rate * g,)
        buffer = g if buffer is None else buffer * momentum + g * (1 - dampening)
        return p - rate * (g + momentum * buffer if nesterov else buffer), buffer

    for k, p in enumerate(params):
        _of_one_type(p, grads[k], *([momentum_buffer_list[k]] if momentum else []))
        if momentum and is_first_step:
            # the buffer is new memory whose values are not used
            e.write(momentum_buffer_list[k], np.zeros(()))
            _update(e, [p, momentum_buffer_list[k]], [grads[k]], lambda p, _, g: step(p, None, g))
        else:
            _update(
                e, [p, *([momentum_buffer_list[k]] if momentum else [])], [grads[k]], lambda p, *r: step(p, r[0], r[-1])
            )


@op("torch._fused_adagrad_", kind="inplace")
def fused_adagrad(e: Engine, params: Any, grads: Any, state_sums: Any, state_steps: Any, *, lr: Any, lr_decay: float,
                  weight_decay: float, eps: float, maximize: bool, grad_scale: Any = None,
                  found_inf: Any = None) -> None:  # fmt: skip
    """One step of fused Adagrad for each of ``params`` with its gradient in ``grads``, its sum of squares in
    ``state_sums`` (written, too) and its count of steps in ``state_steps``. No version counter is incremented.

    Raises ``ShadowError`` (torch's error) for operands of several dtypes, and ``Unmodelled``, among others, with a
    GradScaler (``grad_scale``, ``found_inf``), for an unknown learning rate, and for a step that autograd records or
    that writes beyond a storage.
    """
    _no_scaling(grad_scale, found_inf)
    rate = _number(lr)

    def compute(p: Array, total: Array, g: Array, step: Array) -> tuple[Array, Array]:
        g = _decayed(-g if maximize else g, p, weight_decay)
        total = total + g * g
        return p - rate / (1 + (float(step) - 1) * lr_decay) * g / (np.sqrt(total) + eps), total

    for k, p in enumerate(params):
        _of_one_type(p, grads[k], state_sums[k])
        _update(e, [p, state_sums[k]], [grads[k], state_steps[k]], compute)


# -- the gradient scaler's kernels


@op("torch._amp_foreach_non_finite_check_and_unscale_", kind="inplace")
def unscale(e: Engine, tensors: Any, found_inf: Any, inv_scale: Any) -> None:
    """Multiply all ``tensors`` (gradients) in place by ``inv_scale`` (one element), and set ``found_inf`` to 1 if one
    is not finite.

    No version is incremented. Raises ``Unmodelled``, among others, for a call that autograd records, or that writes
    beyond a storage.
    """

    def compute(noted: Array, *rest: Array) -> tuple[Array, ...]:
        *gradients, factor = rest
        infinite = any(not np.isfinite(g).all() for g in gradients)
        return np.where(infinite, 1, noted), *(g * factor for g in gradients)

    _update(e, [found_inf, *tensors], [inv_scale], compute)


@op("torch._amp_update_scale_", kind="inplace")
def update_scale(e: Engine, input: ShadowTensor, growth_tracker: Any, found_inf: Any, scale_growth_factor: float,
                 scale_backoff_factor: float, growth_interval: int) -> ShadowTensor:  # fmt: skip
    """Multiply the scale ``input`` (one element) by ``scale_backoff_factor`` if ``found_inf`` is not 0; after
    ``growth_interval`` calls in a row without that, which ``growth_tracker`` counts, by ``scale_growth_factor``. Return
    ``input``.

    The scale's version is incremented in any case, that of ``growth_tracker`` never. Raises ``Unmodelled``, among
    others, for a call that autograd records, or that writes beyond a storage.
    """

    def compute(scale: Array, steps: Array, infinite: Array) -> tuple[Array, Array]:
        if infinite.any():
            return scale * scale_backoff_factor, steps * 0
        grown = int(steps) + 1 == growth_interval
        return (scale * scale_growth_factor, steps * 0) if grown else (scale, steps + 1)

    _update(e, [input, growth_tracker], [found_inf], compute)
    e.graph.bump(input.counter)
    return input
