"""Where a gradient came from: the formula that computed it, or the two gradients whose sum it is. It is in
``Gradient.origin``.

Used by :mod:`pitfall_lab.shadow.rounding`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pitfall_lab.shadow.graph import Arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pitfall_lab.shadow.gradient import Gradient
    from pitfall_lab.shadow.graph import Node, Vjp


ATTENDED = "output"
"""The saved tensor of attention that is rounded on its own, even where it equals one of the values it is a mean of."""


CANCELLING = {"LogSoftmaxBackward0"}
"""Nodes whose saved result is a difference of large numbers (a log-probability near 0) and, inside a cross entropy, has
no values of torch's to be compared with.
"""


class Step:
    """A formula that ran in backward.

    ``vjp`` is the formula (None: none is known), ``given`` its incoming gradients (None: none for that output),
    ``saved`` the values that its node saved, by name. ``own`` are the names of the saved values that only the node has,
    ``cancelled`` the names of those that are differences of large numbers.
    """

    __slots__ = ("cancelled", "given", "own", "saved", "vjp", "width")

    def __init__(  # noqa: PLR0917 - its facts
        self,
        vjp: Vjp | None,
        given: Sequence[Gradient | None],
        saved: Arrays,
        own: Iterable[str] = (),
        width: int = 0,
        cancelled: Iterable[str] = (),
    ) -> None:
        self.vjp, self.given, self.saved = vjp, tuple(given), saved
        self.own, self.cancelled = frozenset(own), frozenset(cancelled)
        self.width = width
        """The number of gradients that the formula takes as a list; 0: it takes a single gradient."""

    @classmethod
    def of(cls, node: Node, given: Sequence[Gradient | None], saved: Arrays) -> Step:
        """The step for a node that runs."""
        own = (s.name for s in node.saved if s.own or s.name == ATTENDED)
        cancelled = (s.name for s in node.saved if node.name in CANCELLING)
        return cls(node.vjp, given, saved, own, len(node.outputs) if node.multiple else 0, cancelled)


class FormulaPart(NamedTuple):
    """Origin of a gradient that a formula computed: ``step`` is the run of the formula, ``place`` the index of the
    gradient among what it returned.
    """

    step: Step
    place: int


class Sum(NamedTuple):
    """Origin of a gradient that is the sum of the gradients ``one`` and ``other``."""

    one: Gradient
    other: Gradient


def hooked(before: Gradient, after: Gradient) -> Gradient:
    """Return the gradient ``after``, which a hook made of ``before``, with ``origin`` set to a formula that scales
    ``before`` by the ratio of their largest values: so its earlier rounding errors are scaled like the gradient.

    Nothing is changed where values are unknown, for other types than floats, or where shape or dtype differ.
    """
    was, now = before.array, after.array
    if (
        was is not None
        and now is not None
        and was.shape == now.shape
        and was.dtype == now.dtype
        and was.dtype.kind == "f"
    ):
        with np.errstate(all="ignore"):
            by = np.abs(now).max(initial=0) / (np.abs(was).max(initial=0) or 1)
        after.origin = FormulaPart(Step(lambda g, _: (now + (g - was) * by,), [before], Arrays({})), 0)
    return after


Origin = FormulaPart | Sum | None
"""None: passed in by the caller, or returned by user code."""
