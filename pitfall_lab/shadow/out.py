"""``out=``: compute as usual, then write the result into memory that the program already has. :func:`run_into` returns
that memory's tensors.

Source in torch: ``tools/autograd/gen_variable_type.py`` (the refusal),
``aten/src/ATen/native/Resize.cpp`` (``resize_output``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.shadow.errors import ShadowError, Unmodelled, runtime
from pitfall_lab.shadow.layout import overlaps_itself
from pitfall_lab.shadow.registry import ENTRIES, Op
from pitfall_lab.shadow.storage import ShadowTensor

if TYPE_CHECKING:
    from pitfall_lab.shadow.engine import Engine

WHY = "but one of the arguments requires grad."
REFUSED_AS = {
    "PowBackward0": "pow", "LinalgVectorNormBackward0": "linalg_vector_norm", "MaximumBackward0": "maximum",
    "MinimumBackward0": "minimum",
}  # fmt: skip
"""For functions composed of several operations: the name in torch's error, by the node of the operation that raises."""


def run_into(e: Engine, entry: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run the operation ``entry`` and write what it makes into ``kwargs["out"]`` (a tensor, or one for each result);
    return those. The version of each is increased once (not with the trait ``out_uncounted``).

    With ``out=None`` it runs as usual. Raises ``ShadowError`` (torch's error) if an argument or ``out`` requires grad
    (unless grad mode is off), and ``Unmodelled``, among others, for ``out`` of another dtype, of another shape unless
    its storage is empty, one that overlaps an operand or itself, and functions whose ``out`` is not modelled.
    """
    out = kwargs["out"]
    if out is None:
        return entry.run(e, *args, **{key: value for key, value in kwargs.items() if key != "out"})
    targets = list(out) if isinstance(out, tuple | list) else [out]
    if entry.kind != "pure" or not all(
        isinstance(t, ShadowTensor) and (e.inference or not t.inference) for t in targets
    ):
        raise Unmodelled("out= is not modelled here")
    sequence = e.graph.sequence
    made = _made(e, entry, args, kwargs, targets)
    results = list(made) if isinstance(made, tuple | list) else [made]
    short = entry.names[0].rpartition(".")[2]
    if kwargs.get("requires_grad") or "out_without_derivative" in entry.traits:
        raise Unmodelled(
            "out= together with requires_grad=True, or for a function where torch does not check gradients"
        )
    if len(results) != len(targets) or any(t.dtype != r.dtype for t, r in zip(targets, results, strict=True)):
        raise Unmodelled("out= with another number of tensors than the function has results, or of another dtype")
    if any(r.node is not None for r in results) or (
        e.grad_enabled and not e.inference and any(t.requires_grad for t in targets)
    ):
        e.graph.created, e.graph.sequence = [], sequence  # torch refuses before it makes a node
        text = (
            f"{_refused_as(short, results)}(): functions with out=... arguments don't support automatic "
            f"differentiation, {WHY}"
        )
        raise runtime(text, "other", tensor=targets[0])
    operands = [
        x for x in (*args, *kwargs.values()) if isinstance(x, ShadowTensor) and not any(x is t for t in targets)
    ]
    for target, result in zip(targets, results, strict=True):
        _fits(
            target,
            result,
            [*args, *operands],
            "out_may_be_operand" in entry.traits or f"torch.Tensor.{short}_" in ENTRIES,
        )
    for target, result in zip(targets, results, strict=True):
        if target.shape != result.shape:
            target.storage.size, target.shape, target.stride = result.numel, result.shape, result.stride
            target.storage.data = None
        e.write(target, result.window())
        if "out_uncounted" not in entry.traits:
            e.graph.bump(target.counter)
    return out


def _made(e: Engine, entry: Op, args: Sequence[Any], kwargs: dict[str, Any], targets: Sequence[Any]) -> Any:
    try:
        return entry.run(e, *args, **{key: value for key, value in kwargs.items() if key != "out"})
    except ShadowError as error:
        # torch refuses gradients first, and looks at shapes and histories later
        if (
            e.grad_enabled
            and not e.inference
            and any(isinstance(x, ShadowTensor) and x.requires_grad for x in (*args, *targets))
        ):
            raise Unmodelled(f"out= in a call that also fails for another reason: {error.message}") from None
        raise


def _refused_as(short: str, results: Sequence[ShadowTensor]) -> str:
    """Return the function name in torch's error for ``out=``: for a composite, that of the inner operation that raises.

    The name is ``short`` if no result has a node. Raises :class:`Unmodelled` for composites that are not in
    :data:`REFUSED_AS`.
    """
    node = next((r.node for r in results if r.node is not None), None)
    if node is None:
        return short
    own = node.name.rpartition("Backward")[0].lower()
    if own == short.replace("_", "") or short == "matmul":
        return short
    if node.name not in REFUSED_AS:
        raise Unmodelled("out= of a function that torch composes of several operations")
    return REFUSED_AS[node.name]


def _fits(target: ShadowTensor, result: ShadowTensor, operands: Sequence[Any], in_place: bool) -> None:
    """Raise :class:`Unmodelled` for an ``out=`` tensor for which the outcome depends on the kernel.

    These are tensors that overlap an operand or themselves, or have another shape than the result. An empty one that is
    alone on its storage may have another shape, and an operand may be written if ``in_place``.
    """
    if result.storage is target.storage or target.inference:
        raise Unmodelled("out= that the result already shares memory with, or that is an inference tensor")
    taken = target.storage.size or target.offset or target.storage.shared or any(x is target for x in operands)
    if target.shape != result.shape and taken:
        raise Unmodelled("out= of another shape than the result")
    if overlaps_itself(target):
        raise Unmodelled("out= in which several elements share one memory location")
    for x in operands:
        if isinstance(x, ShadowTensor) and x.storage is target.storage and not (x is target and in_place):
            raise Unmodelled("out= that shares memory with an operand")
        if isinstance(x, tuple | list) and any(isinstance(y, ShadowTensor) and y.storage is target.storage for y in x):
            raise Unmodelled("out= that shares memory with an operand")
