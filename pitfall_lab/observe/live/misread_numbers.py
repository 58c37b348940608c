"""Finds, in the graphs of losses, inputs of another kind or shape than the loss expects (:func:`misread`).

A column of N predictions and a list of N targets give N × N differences; a loss that expects logits may have been given
probabilities. Both are found from the graph alone: from the names of its nodes, and from the shapes of their outputs,
which the nodes store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path

NEAR = 16
"""About how many nodes, starting at the loss, are examined: a loss uses its inputs near its end of the graph."""
_COMPARES = {"SubBackward0", "RsubBackward1", "MulBackward0", "DivBackward0"}
_KEEPS = {
    "ViewBackward0",
    "UnsafeViewBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "TransposeBackward0",
    "PermuteBackward0",
}
_PLACED = {"UnsqueezeBackward0", "TBackward0", "TransposeBackward0", "PermuteBackward0", tensor_facts.ACCUMULATE}
"""If one of these nodes produced the operand, or the operand is a leaf that requires grad, comparing every pair is
intended.
"""
_SCORES = {"AddmmBackward0", "ConvolutionBackward0"}
_TAKES = {
    ("LogSoftmaxBackward0", "SoftmaxBackward0"): "softmax-twice",
    ("BinaryCrossEntropyWithLogitsBackward0", "SigmoidBackward0"): "sigmoid-twice",
    **{(nll, "SoftmaxBackward0"): "no-logarithm" for nll in ("NllLossBackward0", "NllLoss2DBackward0")},
    **{(nll, scores): "no-logarithm" for nll in ("NllLossBackward0", "NllLoss2DBackward0") for scores in _SCORES},
}  # fmt: skip
TABLE = 2
_Shape = tuple[int, ...]


class Misread(NamedTuple):
    """A loss computed from inputs of another kind or shape than it expects.

    ``name`` is the expression for the loss, ``path`` the names and keys that lead to it, ``node`` the name of the node
    that shows it. ``why`` is ``softmax-twice`` or ``sigmoid-twice`` (the loss applies it itself), ``no-logarithm``
    (``nll_loss`` of values that are no log-probabilities), or ``every-pair``: N values were compared with N others,
    which gives N × N results. Only for ``every-pair`` are ``given`` and ``made`` the shapes of the operand with a graph
    and of the result, else empty.
    """

    name: str
    path: Path
    why: str
    node: str
    given: _Shape
    made: _Shape


def misread(roots: Sequence[Root], budget: Budget) -> list[Misread]:
    """One record for each tensor with one element among ``roots`` (named tensors with a graph) that was computed from
    inputs of another kind or shape than its loss expects. ``budget`` is the time limit.
    """
    found = []
    for root in roots:
        if root.thing.value.numel() != 1:
            continue
        one = next((said for node in _near(root.node, budget) if (said := _of(root, node)) is not None), None)
        if one is not None:
            found.append(one)
    return found


def _near(node: Any, budget: Budget) -> list[Any]:
    near = [node]
    for each in near:  # the list grows during the iteration
        if len(near) >= NEAR or not budget.goes_on():
            break
        near += [following for following, _ in each.next_functions if following is not None and following not in near]
    return near


def _of(root: Root, node: Any) -> Misread | None:
    name, path, made = root.thing.text, root.thing.path, node.name()
    for following, _ in node.next_functions:
        behind = _behind(following)
        why = _TAKES.get((made, behind.name())) if behind is not None else None
        if why is not None:
            return Misread(name, path, why, made, (), ())
        stretched = (
            following is not None and following.name() == "ExpandBackward0" and ("Loss" in made or made in _COMPARES)
        )
        if stretched and (pair := _pair(following)):
            return Misread(name, path, "every-pair", made, *pair)
    pair = _pair(node) if made in _COMPARES else None
    return Misread(name, path, "every-pair", made, *pair) if pair else None


def _pair(node: Any) -> tuple[_Shape, _Shape] | None:
    """The shapes of a node's only operand with a graph and of its result; None if there are several such operands, one
    of :data:`_PLACED` made it, or N values (a column or a vector) did not become N × N.
    """
    leads = [(following, at) for following, at in node.next_functions if following is not None]
    if len(leads) != 1 or leads[0][0].name() in _PLACED:
        return None
    following, at = leads[0]
    [(made, _), *_] = tensor_facts.outputs_of(node) or [((), "")]
    given = next((shape for shape, _ in tensor_facts.outputs_of(following)[at:]), ())
    is_square = len(made) == TABLE and made[0] == made[1] > 1
    return (given, made) if is_square and given in ((made[0], 1), made[:1]) else None


def _behind(node: Any) -> Any:
    """The node that computed the values: the given one, or the one reached through nodes that only rearrange values;
    None if there is none.
    """
    while node is not None and node.name() in _KEEPS:
        node = node.next_functions[0][0]
    return node
