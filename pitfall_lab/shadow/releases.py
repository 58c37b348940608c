"""Differences between releases of torch, as far as they are modelled: for each, the first
release with the newer behaviour.

The engine models :data:`NEWEST`, or the release given to it: ``if e.does(CLAMP_STOPS_AT_ITS_BOUNDS): ...``. A new
release adds entries, and so does support for an older one. ``tests/shadow/test_releases.py`` runs each entry's sample
on the installed torch and on the engine, and requires that the engine gives two results for it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Release = tuple[int, ...]
"""The first two numbers of a version."""
NEWEST: Release = (2, 15)


class Difference(NamedTuple):
    """A behaviour that torch has since a release, and had not before.

    ``since`` is the first release with it, as (major, minor); ``what`` the behaviour as a sentence; ``sample`` an
    expression that shows it, over the operands of :mod:`pitfall_lab.shadow.ops.operands`.
    """

    since: Release
    what: str
    sample: str


CLAMP_STOPS_AT_ITS_BOUNDS = Difference(
    (2, 14), "clamp passes no gradient on where its operand equals a bound", "a.clamp(-1, 1)"
)
FMAX_SHARES = Difference(
    (2, 14),
    "fmax and fmin share the gradient of equal elements, as maximum does",
    "torch.fmax(a, a.detach().requires_grad_())",
)
FMAX_LOOKS_FOR_NAN = Difference(
    (2, 15), "fmax and fmin give the gradient to the element that is no NaN", "torch.fmax(a + float('nan'), b)"
)
GROUP_NORM_TAKES_ANY_STRIDES = Difference(
    (2, 14),
    "group_norm saves its input with its own strides, not a contiguous copy",
    "F.group_norm(img.transpose(2, 3), 2)",
)
ATTENTION_OF_THREE_DIMENSIONS = Difference(
    (2, 14), "attention of one batch takes the way of several", "F.scaled_dot_product_attention(q4[0], q4[0], q4[0])"
)
ATTENTION_CHECKS_ITS_MASK = Difference(
    (2, 14), "attention refuses a mask beside is_causal always, not only without its kernel",
    "F.scaled_dot_product_attention(q4, q4, q4, waves(3, 3), is_causal=True)",
)  # fmt: skip
PRODUCTS_NAME_THEMSELVES = Difference((2, 15), "mm and addmm begin their errors with their names", "a.mm(a)")
LINEAR_IS_NO_VIEW = Difference(
    (2, 15), "linear with a bias returns no view of its product", "F.linear(a[None], b, c[:2])"
)
NUMBERS_ARE_FILLED_IN = Difference(
    (2, 15),
    "x[...] = 2.0 is fill_, masked_fill_ or index_fill_, where it was a copy of a tensor of one number",
    "h.__setitem__(m, 0.0)",
)
TARGETS_MAY_BE_BYTES = Difference(
    (2, 12),
    "nll_loss and cross_entropy name both types that a target may have in their error",
    "F.nll_loss(a, p[:, 0])",
)
MSE_LOSS_MIXES_TYPES = Difference(
    (2, 12), "mse_loss of two types has a backward, which raised", "F.mse_loss(a, p.double())"
)
THE_HINT_CHECKS_NO_NAN = Difference(
    (2, 11),
    "the hint of a modified tensor is set_detect_anomaly(True, check_nan=False), where it was without check_nan",
    "[q := torch.exp(a), q.detach().mul_(2)][0]",
)
INSTANCE_NORM_ONLY_READS = Difference(
    (2, 11), "instance_norm writes running statistics back only where it changes them",
    "a * (F.instance_norm(img, d4, d4 * 2, use_input_stats=False).numel() * 0 + d4._version)",
)  # fmt: skip
NODES_ARE_NAMED_SHORT = Difference((2, 13), "errors name a node Unbind, not UnbindBackward0", "a.unbind()[0].add_(1)")
UNUSED_HAVE_AN_INDEX = Difference(
    (2, 13), "autograd.grad says which tensor was not used, by its index", "torch.autograd.grad((a * 1).sum(), b)"
)
BOOLEANS_ARE_NOT_SUBTRACTED = Difference(
    (2, 14), "a difference of booleans raises NotImplementedError, where it was RuntimeError", "~n.bool() - n.bool()"
)
REDUCTIONS_REFUSE_TYPES = Difference(
    (2, 15),
    "a mean, deviation or norm of a type that has none raises NotImplementedError, where it was RuntimeError",
    "n.mean()",
)
UNFIT_TYPES = {
    BOOLEANS_ARE_NOT_SUBTRACTED: re.compile(r"Subtraction, the `-` operator|Negation, the `-` operator"),
    REDUCTIONS_REFUSE_TYPES: re.compile(
        r"mean\(\): could not|nanmean\(\): expected|std and var only|linalg\.vector_norm: Expected a floating|Boolean "
        r"inputs not supported"
    ),
}
"""How the messages of these errors begin."""
