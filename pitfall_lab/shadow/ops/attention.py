"""Scaled dot product attention: one fused node where torch uses its CPU kernel, else several operations.

Source: ``aten/src/ATen/native/transformers/attention.cpp`` and ``sdp_utils_cpp.cpp`` (the choice between the two).
"""

# ruff: noqa: PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import BOOL
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled, runtime
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.ops import pointwise, views
from pitfall_lab.shadow.ops.building import LARGE, Keep, OpRule, broadcast, new, pure, tensor_only
from pitfall_lab.shadow.ops.dropout import drop
from pitfall_lab.shadow.ops.matmul import matmul
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.releases import ATTENTION_CHECKS_ITS_MASK, ATTENTION_OF_THREE_DIMENSIONS
from pitfall_lab.shadow.storage import ShadowTensor


@op("F.scaled_dot_product_attention",
    saves="fused: attn_mask, key, query, value, output, and private sums; else as matmul, softmax and dropout",
    samples=( "F.scaled_dot_product_attention(q4, q4, q4)",
    "F.scaled_dot_product_attention(q4, q4, q4, is_causal=True)",
    "F.scaled_dot_product_attention(q4, q4 * 2, q4 + 1, waves(3, 3) > 0)",
    "F.scaled_dot_product_attention(q4, q4, q4, waves(3, 3), scale=0.3)",
    "F.scaled_dot_product_attention(q4, q4, q4, waves(3, 3).requires_grad_())",
    "F.scaled_dot_product_attention(q4[0], q4[0], q4[0])",
    "F.scaled_dot_product_attention(q4[0], q4[1], q4[0], is_causal=True)",
    "F.scaled_dot_product_attention(q4.detach(), q4, q4)", "F.scaled_dot_product_attention(a, b, p)",
    "F.scaled_dot_product_attention(q4.transpose(1, 2), q4.transpose(1, 2), q4.transpose(1, 2))",
    "F.scaled_dot_product_attention(q4[:, :, :2], q4, q4)",
    "F.scaled_dot_product_attention(q4, q4, q4, waves(3, 3), is_causal=True)",
    "F.scaled_dot_product_attention(q4, q4, q4[..., :2])",
    "F.scaled_dot_product_attention(q4, q4, q4, torch.zeros(3, 3) > 0)"), traits=("products",))  # fmt: skip
def scaled_dot_product_attention(e: Engine, query: Any, key: Any, value: Any, attn_mask: Any = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> ShadowTensor:  # fmt: skip
    """``F.scaled_dot_product_attention`` of a ``query`` (..., L, E), ``key`` (..., S, E) and ``value`` (..., S, V):
    (..., L, V).

    A bool ``attn_mask`` is True where attention is allowed, any other is added to the scores; ``scale`` defaults to ``1
    / sqrt(E)``; ``dropout_p`` is the probability with which weights are zeroed. Raises ``ShadowError`` (torch's error)
    for a mask together with ``is_causal`` (in older releases only where the fused kernel is not used), and
    ``Unmodelled``, among others, for half precision, several dtypes, empty operands, shapes that do not fit and
    ``enable_gqa``.
    """
    tensor_only(query, key, value, *(() if attn_mask is None else (attn_mask,)))
    if enable_gqa or not query.dtype == key.dtype == value.dtype or query.dtype not in ("float32", "float64"):
        raise Unmodelled("attention with enable_gqa, of several dtypes, or of a dtype other than float32 and float64")
    if (
        min(x.ndim for x in (query, key, value)) < 2
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
        or 0 in (*query.shape, *key.shape, *value.shape)
    ):
        raise Unmodelled("attention with operands of incompatible shapes, or with empty ones")
    if attn_mask is not None and attn_mask.dtype not in (BOOL, query.dtype):
        raise Unmodelled("attention with a mask whose dtype is neither bool nor that of the query")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    needs_grad = attn_mask is not None and attn_mask.requires_grad
    mask = _as_numbers(e, attn_mask, query) if attn_mask is not None and attn_mask.dtype == BOOL else attn_mask
    if mask is not None and is_causal and e.does(ATTENTION_CHECKS_ITS_MASK):
        raise runtime(MASK_AND_CAUSAL)
    alone = e.does(ATTENTION_OF_THREE_DIMENSIONS) and query.ndim == key.ndim == value.ndim == 3
    if alone and not query.shape[0] == key.shape[0] == value.shape[0]:
        raise Unmodelled("3-D attention whose operands differ in their first dimension")
    if alone:
        query, key, value = (views.unsqueeze(e, x, 0) for x in (query, key, value))
        mask = views.unsqueeze(e, mask, 0) if mask is not None and mask.ndim == 3 else mask
    if dropout_p == 0 and not needs_grad and _fits_the_kernel(query, key, value, mask):
        result = _fused(e, query, key, value, mask, is_causal, factor)
    else:
        result = _composed(e, query, key, value, mask, dropout_p, is_causal, factor)
    return views.squeeze(e, result, 0) if alone else result


MASK_AND_CAUSAL = "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"


def _as_numbers(e: Engine, mask: ShadowTensor, like: ShadowTensor) -> ShadowTensor:
    """A bool mask as a float mask: 0 where it is True, -inf where it is False."""
    seen = mask.window()
    return new(e, mask.shape, like.dtype, None if seen is None else np.where(seen, 0, -np.inf), preserved(mask))


def _fits_the_kernel(query: ShadowTensor, key: ShadowTensor, value: ShadowTensor, mask: ShadowTensor | None) -> bool:
    """Whether torch uses the fused kernel of the CPU.

    All operands have four dimensions, a last stride of 1 and equal batches, heads and last sizes; a mask has two or
    four dimensions and broadcasts to the scores.
    """
    if any(x.ndim != 4 or x.stride[-1] != 1 for x in (query, key, value)):
        return False
    if (
        not query.shape[:2] == key.shape[:2] == value.shape[:2]
        or not query.shape[-1] == key.shape[-1] == value.shape[-1]
    ):
        return False
    if mask is None:
        return True
    wanted = (*query.shape[:3], key.shape[2])
    return mask.ndim in (2, 4) and all(n in (1, w) for n, w in zip(mask.shape, wanted[4 - mask.ndim :], strict=True))


def _masked(scores: np.ndarray, mask: Any, is_causal: bool) -> np.ndarray:
    scores = scores if mask is None else scores + mask
    return np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf) if is_causal else scores


def _softmax(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last dimension; rows that are -inf throughout become zeros."""
    top = scores.max(-1, keepdims=True)
    shifted = np.where(np.isneginf(top), 0, np.exp(scores - np.where(np.isneginf(top), 0, top)))
    total = shifted.sum(-1, keepdims=True)
    return shifted / np.where(total == 0, 1, total)


def _fused(
    e: Engine,
    query: ShadowTensor,
    key: ShadowTensor,
    value: ShadowTensor,
    mask: ShadowTensor | None,
    is_causal: bool,
    factor: float,
) -> ShadowTensor:
    def scores(q: np.ndarray, k: np.ndarray, m: Any) -> np.ndarray:
        return _masked(q.astype(np.float64) @ np.swapaxes(k, -1, -2) * factor, m, is_causal)

    def forward(q: np.ndarray, k: np.ndarray, v: np.ndarray, m: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if not all(np.isfinite(x).all() and (x.dtype != np.float32 or np.abs(x).max() < LARGE) for x in (q, k, v)):
            return None  # the kernel's results for NaN and inf, also as intermediate results, depend on its block size
        found = scores(q, k, m)
        top = found.max(-1, keepdims=True)
        return _softmax(found) @ v, top + np.log(np.exp(found - top).sum(-1, keepdims=True))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, ...]:
        if g.dtype == np.float32 and np.abs(s.logsumexp).max() > 64:
            raise Unmodelled(
                "the gradient of attention with a logsumexp over 64, whose rounding exceeds a comparison's tolerance"
            )
        # backward recomputes the weights from the operands' present values, but divides by the sums saved in forward.
        found = scores(s.query, s.key, s.attn_mask)
        w = np.where(np.isneginf(found), 0, np.exp(found - s.logsumexp))
        to_scores = w * (g @ np.swapaxes(s.value, -1, -2) - (g * s.output).sum(-1, keepdims=True)) * factor
        # the kernel writes all three gradients as (B, L, heads, E) and returns transposed views
        flows = to_scores @ s.key, np.swapaxes(to_scores, -1, -2) @ s.query, np.swapaxes(w, -1, -2) @ g
        return tuple(np.swapaxes(np.array(np.swapaxes(x, 1, 2), g.dtype, order="C"), 1, 2) for x in flows)

    keeps = (Keep("attn_mask", 3), Keep("key", 1), Keep("query", 0), Keep("value", 2), Keep("output", "result"))
    rule = OpRule("ScaledDotProductFlashAttentionForCpuBackward0", forward, keeps, vjp, edges=3)
    shape = (*query.shape[:-1], value.shape[-1])
    return pure(e, rule, (query, key, value, mask), shape, query.dtype, stride=preserved(query), hidden=("logsumexp",))


SAFE_SOFTMAX = OpRule(
    "SafeSoftmaxBackward0",
    _softmax,
    (Keep("result", "result"),),
    lambda g, s: (s.result * (g - np.sum(g * s.result, axis=-1, keepdims=True)),),
)


def _composed(
    e: Engine,
    query: ShadowTensor,
    key: ShadowTensor,
    value: ShadowTensor,
    mask: ShadowTensor | None,
    dropout_p: float,
    is_causal: bool,
    factor: float,
) -> ShadowTensor:
    if mask is not None and is_causal:
        raise runtime(MASK_AND_CAUSAL)
    root = math.sqrt(factor)
    if is_causal:
        allowed = np.tri(query.shape[-2], key.shape[-2]) > 0
        mask = new(e, allowed.shape, query.dtype, np.where(allowed, 0, -np.inf))
    scaled = pointwise.mul_number(e, query, root)
    scores = matmul(e, scaled, pointwise.mul_number(e, views.transpose(e, key, -2, -1), root))
    if mask is not None:
        if broadcast(scores.shape, mask.shape) != scores.shape:
            raise Unmodelled("an attention mask that does not broadcast to the shape of the scores")
        scores = pointwise.add_in_place(e, scores, mask)
    weights = pure(e, SAFE_SOFTMAX, (scores,), scores.shape, scores.dtype)
    if dropout_p:
        weights = drop(e, weights, dropout_p, training=True, inplace=False)
    return matmul(e, weights, value)
