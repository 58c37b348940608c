"""Where gradients come from: the formula that made one, or the two that it is the sum of. See :mod:`pitfall_lab.shadow.rounding`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pitfall_lab.shadow.graph import Arrays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pitfall_lab.shadow.gradient import Gradient
    from pitfall_lab.shadow.graph import Node, Vjp


ATTENDED = "output"
"""What attention saves: it was rounded apart from the values that it is a mean of, even where it equals them."""


class Step:
    """A formula that ran, with what it was given and what it read; ``own`` names what only the node has seen."""

    __slots__ = ("given", "own", "saved", "vjp", "width")

    def __init__(self, vjp: Vjp | None, given: Sequence[Gradient | None], saved: Arrays, own: Iterable[str] = (), width: int = 0) -> None:
        self.vjp, self.given, self.saved = vjp, tuple(given), saved
        self.own = frozenset(own)
        self.width = width
        """How many gradients the formula takes in a list; 0: it takes one, as it is."""

    @classmethod
    def of(cls, node: Node, given: Sequence[Gradient | None], saved: Arrays) -> Step:
        """The step of a node."""
        own = (s.name for s in node.saved if s.own or s.name == ATTENDED)
        return cls(node.vjp, given, saved, own, len(node.outputs) if node.multiple else 0)


class Part(NamedTuple):
    """A gradient is what the formula of a step gave for this input."""

    step: Step
    place: int


class Sum(NamedTuple):
    """A gradient is the sum of two."""

    one: Gradient
    other: Gradient


def hooked(before: Gradient, after: Gradient) -> Gradient:
    """What a hook has made of a gradient; rounding from before it comes out as much larger, or smaller, as the gradient itself."""
    was, now = before.array, after.array
    if was is not None and now is not None and was.shape == now.shape and was.dtype == now.dtype and was.dtype.kind == "f":
        with np.errstate(all="ignore"):
            by = np.abs(now).max(initial=0) / (np.abs(was).max(initial=0) or 1)
        after.origin = Part(Step(lambda g, _: (now + (g - was) * by,), [before], Arrays({})), 0)
    return after


Origin = Part | Sum | None
"""None: the caller gave it, or the program's own code."""
