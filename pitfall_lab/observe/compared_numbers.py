"""The range of the targets with which a loss compares predictions, read from the tensor itself: a trace has only the
first and last values of a long tensor (:func:`compared`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from pitfall_lab.observe.recorder import Call
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = operations_that("difference_loss") | {"binary_cross_entropy", "binary_cross_entropy_with_logits"}
DIFFERENCES = {f"{owner}.{name}" for name in spellings("sub", exchanged=True) for owner in ("torch", "torch.Tensor")}
COMPARING = frozenset({*(f"torch.nn.functional.{name}" for name in LOSSES), *DIFFERENCES})
PLAIN = (torch.Tensor, torch.nn.Parameter)
LIMITS = (-1.0, 0.0, 1.0, 6.0)
"""Bounds of the ranges of activations; values below -1, below 0, above 1 and above 6 are counted."""
MARGIN = 0.05
FEWEST, MOST = 3, 1 << 24


class NumberRange(NamedTuple):
    """The range of a tensor's values: ``of`` is how many there are, ``least`` and ``most`` the smallest and the
    largest, ``whole`` True if all are integers. ``beyond`` has a pair for each of :data:`LIMITS` (-1, 0, 1, 6): the
    limit, and how many values are below it (for -1 and 0) or above it (for 1 and 6) by more than 0.05.
    """

    of: int
    least: float
    most: float
    whole: bool
    beyond: tuple[tuple[float, int], ...]


def compared(call: Call) -> NumberRange | None:
    """The range of the target with which a call compares a prediction, if some of its values are outside [0, 1] by more
    than 0.05; else None.

    The first two arguments must be plain tensors of one shape, of which exactly one requires grad (the prediction); the
    other one, the target, must be a dense, real tensor on the CPU. None, too, for fewer than ``FEWEST`` (3) or more
    than ``MOST`` (2^24) values, for infinite or NaN ones, with grad mode off, and under a dispatch mode. The call's
    name is not checked.
    """
    sides = call.args[:2]
    if call.dispatching or not call.grad or len(sides) != len(PLAIN) or not all(type(side) in PLAIN for side in sides):
        return None
    targets = [side for side in sides if not side.requires_grad]
    if len(targets) != 1 or sides[0].shape != sides[1].shape:
        return None
    return _range(targets[0])


def _range(target: Any) -> NumberRange | None:
    held = (
        target.device.type == "cpu"
        and target.layout is torch.strided
        and not target.is_complex()
        and target.dtype != torch.bool
    )
    if not held or not FEWEST <= target.numel() <= MOST:
        return None
    least, most = (float(end) for end in torch.aminmax(target.detach()))
    if not (-torch.inf < least < torch.inf and -torch.inf < most < torch.inf) or (
        least >= LIMITS[1] - MARGIN and most <= LIMITS[2] + MARGIN
    ):
        return None
    numbers = target.detach().double()
    beyond = tuple((end, int((numbers < end - MARGIN if end <= 0 else numbers > end + MARGIN).sum())) for end in LIMITS)
    return NumberRange(target.numel(), least, most, bool((numbers == numbers.trunc()).all()), beyond)
