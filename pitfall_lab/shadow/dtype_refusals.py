"""Which operations raise for integer, bool or complex dtypes, with torch's messages, and for which dtypes the shadow
engine makes no prediction (``Unmodelled``).

In torch each kernel lists the types it was compiled for (``AT_DISPATCH_*`` in ``aten/src/ATen/native/cpu``); what is
missing there is found here. The rest of the table are operations whose own checks or promotions for such types are not
modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pitfall_lab.shadow.errors import Unmodelled, no_kernel
from pitfall_lab.shadow.registry import ENTRIES, Op
from pitfall_lab.shadow.storage import ShadowTensor

if TYPE_CHECKING:
    from pitfall_lab.shadow.engine import Engine

WHOLE = {
    "GeluKernelImpl": "F.gelu",
    "elu_cpu": "F.elu F.elu_",
    "frac_cpu": "torch.frac .frac_",
    "hypot_cpu": "torch.hypot .hypot_",
    "leaky_relu_cpu": "F.leaky_relu F.leaky_relu_",
    "logaddexp2_cpu": "torch.logaddexp2",
    "logaddexp_cpu": "torch.logaddexp",
    "multi_margin_loss_cpu_kernel": "F.multi_margin_loss",
    "multilabel_margin_loss_forward_out_frame": "F.multilabel_margin_loss",
    "nextafter_cpu": "torch.nextafter",
    "silu_cpu": "F.silu",
    "softplus_cpu": "F.softplus",
}
"""Kernels that raise for integer dtypes, each with its operations: ``F.`` is
torch.nn.functional, a leading dot a method.
"""
TRUTH = {
    "GeluKernelImpl": "F.gelu",
    "abs_cpu": "torch.abs .abs_ torch.absolute F.softsign",
    "addcmul_cpu_out": "torch.addcmul .addcmul_",
    "ceil_vml_cpu": "torch.ceil .ceil_",
    "elu_cpu": "F.elu F.elu_",
    "floor_vml_cpu": "torch.floor .floor_",
    "frac_cpu": "torch.frac .frac_",
    "hypot_cpu": "torch.hypot .hypot_",
    "kthvalue_cpu": "torch.kthvalue",
    "leaky_relu_cpu": "F.leaky_relu F.leaky_relu_",
    "logaddexp2_cpu": "torch.logaddexp2",
    "logaddexp_cpu": "torch.logaddexp",
    "median_cpu": "torch.nanmedian",
    "multi_margin_loss_cpu_kernel": "F.multi_margin_loss",
    "multilabel_margin_loss_forward_out_frame": "F.multilabel_margin_loss",
    "nextafter_cpu": "torch.nextafter",
    "round_vml_cpu": "torch.round .round_",
    "silu_cpu": "F.silu",
    "softplus_cpu": "F.softplus",
    "trace": "torch.trace",
    "trunc_vml_cpu": "torch.trunc .trunc_",
}
"""The same for bool."""
WHOLE_DECLINED = """
    torch._weight_norm torch.functional.cdist torch.norm_except_dim
    F.batch_norm F.glu F.nll_loss
    F.hardtanh F.relu6 .clamp_min_ .clamp_max_ torch.addcdiv .addcdiv_ torch.var torch.std
    torch.logsumexp F.hardtanh_ torch.embedding_renorm_ torch.linalg.vecdot torch.std_mean torch.var_mean
    torch.dist F.pairwise_distance F.soft_margin_loss F.gaussian_nll_loss F.hinge_embedding_loss F.margin_ranking_loss
    F.cosine_embedding_loss F.triplet_margin_loss F.triplet_margin_with_distance_loss torch.quantile F.unfold F.fold
    torch.nanquantile
"""
"""Operations that are not modelled for integer dtypes."""
TRUTH_DECLINED = """
    torch._weight_norm torch.functional.cdist torch.norm_except_dim torch.functional.einsum torch.functional.tensordot torch.inner F.pad
    torch.pow torch.fmod .fmod_ torch.remainder .remainder_ F.batch_norm F.glu F.nll_loss
    torch.relu .relu_ torch.sign .sign_ torch.square .square_ F.relu F.hardtanh F.relu6 .clamp_
    .clamp_min_ .clamp_max_ torch.addcdiv .addcdiv_ torch.argmax torch.argmin torch.var torch.std
    torch.logsumexp torch.functional.meshgrid torch.positive F.hardtanh_ F.softmin torch.topk torch.median torch.sgn
    torch.embedding_renorm_ F.embedding F.embedding_bag torch.linalg.vecdot torch.std_mean torch.var_mean torch.dist torch.matmul
    torch.mm torch.addmm torch.mv torch.bmm torch.vdot torch.dot torch.cross F.linear
    F.soft_margin_loss F.gaussian_nll_loss F.hinge_embedding_loss F.margin_ranking_loss F.cosine_embedding_loss torch.quantile
    F.unfold F.fold torch.nanquantile
"""  # noqa: E501
"""Operations that are not modelled for bool."""
COMPLEX_DECLINED = """
    .clamp_ .clamp_max_ .clamp_min_ .ge_ .gt_ .le_ .lt_ torch.amax torch.amin torch.aminmax torch.argmax torch.argmin torch.argsort
    torch.bucketize torch.clamp torch.clamp_max torch.clamp_min torch.dist torch.embedding torch.isfinite torch.isneginf torch.isposinf
    torch.kthvalue torch.log_softmax torch.logit torch.max torch.maximum torch.median torch.min torch.minimum torch.mode torch.msort
    torch.nanmedian torch.nanquantile torch.norm_except_dim torch.polygamma torch.quantile torch.select_scatter torch.signbit torch.slice_scatter
    torch.softmax torch.sort torch.special.entr torch.special.xlog1py torch.std torch.std_mean torch.topk torch.var torch.var_mean
    torch._weight_norm F.batch_norm F.cross_entropy F.embedding F.embedding_bag F.gaussian_nll_loss F.gelu F.glu F.hardtanh F.hardtanh_
    F.instance_norm F.kl_div F.layer_norm F.leaky_relu F.leaky_relu_ F.log_softmax F.multi_margin_loss F.multilabel_margin_loss
    F.nll_loss F.pairwise_distance F.prelu F.relu6 F.silu F.softmax F.softplus F.triplet_margin_loss F.triplet_margin_with_distance_loss
"""  # noqa: E501
"""Operations that are not modelled for complex dtypes."""


def check_operands(e: Engine, entry: Op, args: Sequence[Any]) -> None:
    """Raise ``ShadowError`` for what torch refuses before the operation ``entry`` checks its arguments ``args``: an
    in-place write that autograd forbids, and operands of a dtype that its kernel lacks (:func:`check_types`).

    Raises ``Unmodelled`` for an argument of a Python type that torch would refuse, too, and perhaps first.
    """
    if entry.kind == "inplace" and args and "unchecked" not in entry.traits:
        target = args[0]
        if isinstance(target, ShadowTensor) and target.requires_grad and not e.inference:
            if len(args) > 1 and (isinstance(args[1], str) or (isinstance(args[1], int) and abs(args[1]) >= 1 << 63)):
                raise Unmodelled("an argument of a Python type that torch cannot convert")
            e.graph.check_inplace(target, any_requires_grad=True)
    if entry.refuses:
        check_types(entry, args)


def check_types(entry: Op, args: Sequence[Any]) -> None:
    """Raise ``ShadowError`` for operands of a dtype that torch's kernel for the operation was not compiled for.

    The first tensor's dtype decides. Raises ``Unmodelled`` for complex operands of an operation in the table, for a
    negative number with uint8, for dtypes for which the table has no kernel's name (no prediction is made), and for
    calls with several dtypes, shapes or overlapping memory, which may fail in another way.
    """
    tensors = [x for x in args if isinstance(x, ShadowTensor)]
    if 3 in entry.refuses and any(x.dtype.is_complex for x in tensors):
        raise Unmodelled(f"{entry.names[0]} of a complex tensor")
    if tensors and tensors[0].dtype == "uint8" and any(isinstance(x, int | float) and x < 0 for x in args):
        raise Unmodelled("a negative number together with an unsigned tensor")
    if not tensors or tensors[0].dtype.category not in entry.refuses:
        return
    kernel = entry.refuses[tensors[0].dtype.category]
    if not kernel or any(x.dtype != tensors[0].dtype for x in tensors):
        raise Unmodelled(f"{entry.names[0]} of dtype {tensors[0].dtype[:]}")
    if any(x.shape != tensors[0].shape for x in tensors):
        raise Unmodelled("which of two errors torch raises first: for the shapes, or for the dtype")
    if entry.kind == "inplace" and tensors[0].is_expanded:
        raise Unmodelled("which of two errors torch raises first: for overlapping memory, or for the dtype")
    raise no_kernel(kernel, tensors[0].dtype.scalar_name)


def apply() -> None:
    """Put the tables of this module into ``Op.refuses`` of the entries; to be called once, after all operations are
    registered.
    """
    none: dict[str, str] = {}
    for category, kernels, declined in (
        (1, WHOLE, WHOLE_DECLINED),
        (0, TRUTH, TRUTH_DECLINED),
        (3, none, COMPLEX_DECLINED),
    ):
        words = {name: kernel for kernel, names in kernels.items() for name in names.split()} | dict.fromkeys(
            declined.split(), ""
        )
        for name, kernel in words.items():
            full = (
                f"torch.nn.functional.{name[2:]}"
                if name.startswith("F.")
                else f"torch.Tensor{name}"
                if name.startswith(".")
                else name
            )
            entry = ENTRIES[full]
            narrowed = replace(entry, refuses={**entry.refuses, category: kernel})
            for spelled in entry.names:
                ENTRIES[spelled] = narrowed
