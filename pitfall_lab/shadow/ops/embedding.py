"""embedding, embedding_bag and one_hot."""

# ruff: noqa: A001, A002, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import INT64, type_name
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.ops import indexing, views
from pitfall_lab.shadow.ops.building import LARGE, Keep, OpRule, arrays, in_place, new, pure, records, tensor_only
from pitfall_lab.shadow.ops.creation import made
from pitfall_lab.shadow.registry import op
from pitfall_lab.shadow.storage import ShadowTensor


def _check_type(index: Any, place: int, function: str) -> None:
    if index.dtype not in ("int64", "int32"):
        wanted = f"Expected tensor for argument #{place} 'indices' to have one of the following scalar types: Long, Int"
        raise runtime(
            f"{wanted}; but got {type_name(index.dtype)} instead (while checking arguments for {function})", "dtype"
        )


def _check_indices(index: Any, weight: Any) -> None:
    tensor_only(index, weight)
    if weight.ndim != 2:
        raise runtime("'weight' must be 2-D", "shape")
    _check_type(index, 1, "embedding")
    indexing.check_rows(weight.shape, 0, index)


@op(
    "torch.embedding",
    saves="indices",
    samples=(
        "torch.embedding(a, torch.tensor([0, 1, 1]))",
        "torch.embedding(w, i, 1)",
        "torch.embedding(w, i, -1, True)",
    ),
)
def look_up(
    e: Engine, weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> ShadowTensor:
    """The rows of ``weight`` (rows, size) at ``indices`` of any shape: (*indices, size).

    The row ``padding_idx`` gets no gradient (negative: all do). With ``scale_grad_by_freq``, the gradient of a row is
    divided by the number of times that it was looked up. Raises ``ShadowError`` (torch's error) for a ``weight`` that
    is not 2-D and for indices that are not integers or out of range, and ``Unmodelled``, among others, for ``sparse``.
    """
    tensor_only(weight, indices)
    if not weight.ndim and records(e, weight):  # torch reads the number of rows for backward before it checks anything
        raise ShadowError("IndexError", "Dimension specified as 0 but tensor has no dimensions", "shape")
    _check_indices(indices, weight)
    if sparse:
        raise Unmodelled("sparse gradients")
    rows, pad = weight.shape, padding_idx

    def vjp(g: np.ndarray, s: Any) -> tuple[np.ndarray]:
        full = np.zeros(rows, g.dtype)
        share = (
            g / np.bincount(s.indices.reshape(-1), minlength=rows[0])[s.indices][..., None] if scale_grad_by_freq else g
        )
        np.add.at(full, s.indices, share)
        if pad >= 0:
            full[pad] = 0
        return (full,)

    rule = OpRule("EmbeddingBackward0", lambda w, k: w[k], (Keep("indices", 1),), vjp, edges=1)
    return pure(e, rule, (weight, indices), (*indices.shape, rows[1]), weight.dtype)


@op(
    "torch.embedding_renorm_",
    kind="inplace",
    samples=("torch.embedding_renorm_(p, i, 1.0, 2.0)", "torch.embedding_renorm_(p, i, 1.0, 1.0)"),
)
def renormalise(e: Engine, input: Any, indices: Any, max_norm: float, norm_type: float) -> ShadowTensor:
    """Rescale, in place, the looked-up rows whose norm (of order ``norm_type``) exceeds ``max_norm``; the version
    increases even when no row does.

    Raises ``ShadowError`` (torch's error) unless ``input`` is 2-D and the indices are integers, and ``Unmodelled``,
    among others, for orders of the norm other than 1 and 2, unknown indices and ones out of range, and rows that
    require grad.
    """
    tensor_only(indices, input)
    if input.ndim != 2:
        shown = (
            f"but got {input.ndim}-dimensional tensor for argument #1 'self' (while checking arguments "
            "for embedding_renorm_)"
        )
        raise runtime(f"Expected 2-dimensional tensor, {shown}", "shape")
    _check_type(indices, 2, "embedding_renorm_")
    seen = indices.window()
    if seen is None or (seen.size and (seen.min() < 0 or seen.max() >= input.shape[0])):
        raise Unmodelled(
            "embedding_renorm_ with an index that is out of range or unknown"
        )  # it fails on the way, row after row
    if norm_type not in (1, 2):
        raise Unmodelled(f"norm of order {norm_type}")

    def forward(w: np.ndarray, k: np.ndarray) -> np.ndarray:
        full = w.copy()
        for row in np.unique(k):
            length = (
                np.abs(w[row].astype(np.float64)).sum()
                if norm_type == 1
                else np.sqrt((w[row].astype(np.float64) ** 2).sum())
            )
            if length > LARGE and w.dtype == np.float32:
                raise Unmodelled("a norm whose squares overflow in float32")
            if length > max_norm:
                full[row] = w[row] * (max_norm / (length + 1e-7))
        return full

    if e.grad_enabled and input.requires_grad:
        raise Unmodelled("embedding_renorm_ has no derivative")
    return in_place(e, OpRule("", forward), (input, indices), elementwise=False)


def _row_of(padding_idx: int | None, rows: int) -> int:
    if padding_idx is None:
        return -1
    if padding_idx and not -rows <= padding_idx < rows:
        raise ShadowError("AssertionError", "Padding_idx must be within num_embeddings")
    return padding_idx % rows if padding_idx else 0


@op("F.embedding", saves="indices",
    samples=("F.embedding(torch.tensor([0, 1, 1]), a)", "F.embedding(torch.tensor([[0, 1]]), a, padding_idx=0)",
    "F.embedding(i, w, -1)", "F.embedding(i, a, max_norm=1.0)", "F.embedding(n, a)", "F.embedding(p, a)",
    "F.embedding(i, a, scale_grad_by_freq=True)", "F.embedding(i[0], p)"))  # fmt: skip
def embedding(e: Engine, input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False,
              sparse: bool = False) -> ShadowTensor:  # fmt: skip
    """``F.embedding``; ``max_norm`` first rescales rows of ``weight`` itself through a detached alias, which increases
    its version.

    Raises ``ShadowError`` (torch's error) for indices that are not integers and an index or ``padding_idx`` out of
    range, ``Unmodelled``, among others, for ``sparse``, integer weights, and weights that are not 2-D; and with
    ``max_norm`` what :func:`renormalise` raises.
    """
    tensor_only(weight, input)
    if weight.ndim != 2 or sparse:
        raise Unmodelled("an embedding whose weight is not 2-D, or with sparse gradients")
    if weight.dtype.category < 2:
        raise Unmodelled("an embedding whose weight has an integer dtype")
    if max_norm is not None:
        input = views.contiguous(e, input)
        renormalise(e, views.detach(e, weight), input, max_norm, norm_type)
    return look_up(e, weight, input, _row_of(padding_idx, weight.shape[0]), scale_grad_by_freq, sparse)


# -- bags


@op("F.embedding_bag", saves="indices, offsets and private tables; weight and per_sample_weights when those need grad",
    samples=( "F.embedding_bag(torch.tensor([[0, 1], [1, 1]]), a)",
    "F.embedding_bag(torch.tensor([[0, 1], [1, 1]]), a, mode='sum')",
    "F.embedding_bag(torch.tensor([[0, 1], [1, 1]]), a, mode='max')",
    "F.embedding_bag(torch.tensor([0, 1, 1]), a, torch.tensor([0, 2]))",
    "F.embedding_bag(torch.tensor([[0, 1, 1]]), a, mode='sum', per_sample_weights=a[:1])",
    "F.embedding_bag(torch.tensor([[0, 1], [1, 1]]), a, padding_idx=0)"))  # fmt: skip
def embedding_bag(e: Engine, input: Any, weight: Any, offsets: Any = None, max_norm: float | None = None,
                  norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Any = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> ShadowTensor:  # fmt: skip
    """Sum, mean or maximum (``mode``) of each bag of rows: (bags, size).

    The row ``padding_idx`` is left out of each bag.

    A 2-D input has one bag in each row; of a 1-D input, ``offsets`` says where each begins. ``per_sample_weights`` go
    with the sum only. Raises ``ShadowError`` (torch's error) for a weight that is not 2-D, ``per_sample_weights`` of
    another shape and a ``padding_idx`` out of range, and ``Unmodelled``, among others, for indices that are unknown or
    out of range, and for all other shapes, dtypes and options.
    """
    if isinstance(weight, ShadowTensor) and weight.dtype == INT64 and input.dtype.category > 1:
        raise Unmodelled("embedding_bag with input and weight exchanged (the old order of arguments)")
    _check_bags(input, weight, per_sample_weights, padding_idx)
    if sparse or scale_grad_by_freq or include_last_offset or mode not in ("sum", "mean", "max"):
        raise Unmodelled("embedding_bag with sparse gradients or other options")
    if (
        (input.ndim == 2) != (offsets is None)
        or input.ndim not in (1, 2)
        or (per_sample_weights is not None and mode != "sum")
    ):
        raise Unmodelled("embedding_bag with operands of incompatible shapes or dtypes")
    if weight.dtype.category < 2:
        raise Unmodelled("an embedding whose weight has an integer dtype")
    if input.ndim == 2:
        offsets = made(e, (input.shape[0],), INT64, np.arange(input.shape[0]) * input.shape[1])
        input = views.reshape(e, input, -1)
        per_sample_weights = None if per_sample_weights is None else views.reshape(e, per_sample_weights, -1)
    if offsets.dtype != INT64 or input.dtype != INT64:
        raise Unmodelled("embedding_bag with indices or offsets of another shape or dtype")
    if max_norm is not None:
        renormalise(e, views.detach(e, weight), input, max_norm, norm_type)
    return _bags(e, weight, input, offsets, per_sample_weights, mode, _row_of(padding_idx, weight.shape[0]))


def _check_bags(input: Any, weight: Any, factors: Any, pad: int | None) -> None:
    tensor_only(input, weight)
    if weight.ndim != 2:
        raise ShadowError(
            "ValueError", f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}", "shape"
        )
    if isinstance(factors, ShadowTensor) and factors.shape != input.shape:
        shapes = [f"(torch.Size({list(x.shape)}))" for x in (factors, input)]
        text = (
            f"embedding_bag: If per_sample_weights {shapes[0]} is not None, then it must have the same shape as "
            f"the input {shapes[1]}"
        )
        raise ShadowError("ValueError", text, "shape")
    rows = weight.shape[0]
    if pad is not None and not -rows <= pad < rows:
        raise runtime(
            f"padding_idx must be within the number of embeddings, -{rows} through {rows - 1}, but got {pad}", "shape"
        )
    seen = input.window()
    if seen is None or (seen.size and (seen.min() < 0 or seen.max() >= rows)):
        raise Unmodelled(
            "embedding_bag with an index out of range or unknown"
        )  # what torch says then depends on its kernels, and on their threads


def _bags(
    e: Engine, weight: ShadowTensor, index: ShadowTensor, offsets: ShadowTensor, factors: Any, mode: str, pad: int
) -> ShadowTensor:
    rows, bags = weight.shape, offsets.shape[0]

    def members(k: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
        """Return the positions in ``k`` that belong to each bag, without those of the row ``pad``."""
        ends = [*starts[1:], k.size]
        return [np.asarray([j for j in range(a, b) if k[j] != pad], int) for a, b in zip(starts, ends, strict=True)]

    def forward(w: np.ndarray, f: Any, k: np.ndarray, starts: np.ndarray) -> Any:
        total = np.zeros((bags, rows[1]))
        for bag, where in enumerate(members(k, starts)):
            seen = w[k[where]] if f is None else w[k[where]] * f[where][:, None]
            if where.size:
                total[bag] = (
                    seen.max(0)
                    if mode == "max"
                    else seen.sum(0, dtype=np.float64) / (where.size if mode == "mean" else 1)
                )
        return total, np.zeros(0), np.zeros(0), (w if mode == "max" else np.zeros(0))

    def vjp(g: np.ndarray, s: Any) -> tuple[Any, Any]:
        full, to_factors = np.zeros(rows, g.dtype), None if s.weight is None else np.zeros(s.indices.shape, g.dtype)
        for bag, where in enumerate(members(s.indices, s.offsets)):
            k = s.indices[where]
            if mode == "max":
                if where.size:
                    best = k[np.argmax(s.result3[k], 0)]
                    np.add.at(full, (best, np.arange(rows[1])), g[bag])
            else:
                share = g[bag] / (where.size if mode == "mean" and where.size else 1)
                np.add.at(
                    full,
                    k,
                    np.outer(
                        np.ones(where.size) if s.per_sample_weights is None else s.per_sample_weights[where], share
                    ),
                )
                if to_factors is not None:
                    to_factors[where] = s.weight[k] @ g[bag]
        return full, to_factors

    keeps = (Keep("indices", 2), Keep("offsets", 3), Keep("per_sample_weights", 1), Keep("weight", 0, 1))
    rule = OpRule("EmbeddingBagBackward0", forward, keeps, vjp, edges=2)
    return pure(
        e,
        rule,
        (weight, factors, index, offsets),
        (bags, rows[1]),
        weight.dtype,
        hidden=("result1", "result2", "result3"),
    )


@op(
    "F.one_hot",
    samples=("F.one_hot(i)", "F.one_hot(n, 8)", "F.one_hot(i, 1)", "F.one_hot(p)", "F.one_hot(i - 3)"),
    traits=("deterministic",),
)
def one_hot(e: Engine, tensor: Any, num_classes: int = -1) -> ShadowTensor:
    """``F.one_hot``: indices of any shape to zeros and ones of shape (*shape, classes).

    ``num_classes`` -1: one more than the largest index. Raises ``ShadowError`` (torch's error) for negative indices,
    too few classes and indices that are not int64, and ``Unmodelled``, among others, for unknown values and without
    elements.
    """
    tensor_only(tensor)
    if tensor.dtype != INT64:
        raise runtime("one_hot is only applicable to index tensor of type LongTensor.", "dtype")
    found = arrays(e, (tensor,))
    if found is None or not tensor.numel:
        raise Unmodelled("one_hot of an empty tensor, or of unknown values")
    if found[0].min() < 0:
        raise runtime("Class values must be non-negative.")
    if num_classes != -1 and num_classes <= found[0].max():
        raise runtime("Class values must be smaller than num_classes.")
    classes = int(found[0].max()) + 1 if num_classes == -1 else num_classes
    result = new(e, (*tensor.shape, classes), INT64, found[0][..., None] == np.arange(classes))
    # torch fills with zeros, then scatters ones
    e.bump(result.counter, 2) if result.counter is not None else None
    return result
