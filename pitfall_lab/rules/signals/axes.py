"""Follows one axis of a result through element-wise calls and views to the calls that reduce, contract or index along
an axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import operations_that, spellings

ELEMENTWISE = (
    spellings("add", "clamp", "neg", "sigmoid", "sub")
    | {"clamp_min", "clone", "contiguous", "detach", "double", "dropout", "elu", "float", "gelu", "half", "leaky_relu",
       "log", "masked_fill", "relu", "silu", "tanh", "to", "where"}
)  # fmt: skip
"""Calls that leave every axis in its position."""
LAYERS = {"linear", "layer_norm"}
"""Layers that work along the last axis, and leave the other axes in their positions."""
PRODUCTS = spellings("mul")
VIEWS = (
    spellings("expand", "transpose")
    | {"T", "__getitem__", "flatten", "mT", "movedim", "permute", "reshape", "squeeze", "t", "unflatten", "unsqueeze",
       "view"}
)  # fmt: skip
"""Calls that may move the axis; if the result is on the same storage, the strides show to which position."""
RESHAPES = {"flatten", "reshape", "unflatten", "view"}
"""Calls that split or join axes and keep the order of the elements."""
PICKS = {"argmax": 1, "max": 1, "topk": 2, "softmin": 1}
"""Calls that select along an axis, each with the position of its argument ``dim``."""
FURTHER = 300


@dataclass(frozen=True, slots=True)
class Use:
    """A call that works along an axis: ``event`` is the call (``Event``) that reduced, contracted or indexed the tensor
    ``label`` (a label) along its axis ``axis``.

    ``followed`` is the index that the axis being followed has in this tensor. Axes count from 0.
    """

    event: Event
    label: str
    axis: int
    followed: int
    weighted: bool
    """Whether the tensor had been multiplied by another tensor before."""


def uses_of_axis(story: Story, label: str, axis: int, step: int, *, copies: bool = False) -> Iterator[Use]:
    """Yield the calls (:class:`Use`) after ``step`` that work along any axis (matrix products, sums, selections, some
    losses) of the tensor ``label``, or of a tensor computed from it, each with the index that ``axis`` has there.

    Only the ``FURTHER`` events after ``step`` are searched, and ``axis`` is followed only through element-wise calls,
    products, layers and views; with ``copies`` also where a ``reshape`` had to copy.
    """
    followed: dict[str, tuple[int, bool]] = {label: (axis, False)}
    for event in story.events[step + 1 : step + FURTHER]:
        if event.kind != "call" or event.error is not None:
            continue
        for place, operand in enumerate(event.operands):
            if operand.label not in followed:
                continue
            here, weighted = followed[operand.label]
            shape = story.shape(operand.label, event.step) or ()
            along = _along(event, place, len(shape))
            if along is not None and 0 <= along < len(shape):
                yield Use(event, operand.label, along, here, weighted)
            elif event.results and event.results[0] not in followed:
                new = _carried(story, event, place, here)
                if new is None and copies and place == 0 and event.name in RESHAPES:
                    new = _kept(shape, story.shape(event.results[0], event.step) or (), here)
                if new is not None:
                    others = [o.label for o in event.operands if o.label is not None and o.label != operand.label]
                    followed[event.results[0]] = new, weighted or (event.name in PRODUCTS and bool(others))
            break


def _kept(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """The axis of the new shape that has the same length as ``axis`` and as many elements after it; None if there is
    none, as when ``axis`` was joined with another or split.
    """
    inner = prod(before[axis + 1 :])
    found = [i for i, n in enumerate(after) if n == before[axis] > 1 and prod(after[i + 1 :]) == inner]
    return found[0] if len(found) == 1 else None


def against(story: Story, label: str, axis: int, step: int) -> tuple[Use | None, bool]:
    """Return a pair: the first use of the tensor ``label`` which shows that values adding up to 1 along ``axis`` should
    do so along another axis, and whether ``axis`` itself is used too.

    If ``axis`` itself is used, the first item is None. ``(None, False)`` if no use shows anything.
    """
    wrong = None
    shape = story.shape(label, step) or ()
    for use in uses_of_axis(story, label, axis, step):
        if use.axis == use.followed:
            return None, True
        if wrong is None and _shows(story, use, shape):
            wrong = use
    return wrong, False


def _shows(story: Story, use: Use, shape: tuple[int, ...]) -> bool:
    """Whether this use along another axis shows that the values were normalised along the wrong axis.

    A sum over the examples, or a product of several transition matrices, does not show it.
    """
    name, record = use.event.name, story.tensor(use.label, use.event.step) or {}
    there = story.shape(use.label, use.event.step) or ()
    if there[use.axis] < 2:
        return False
    if name in ("nll_loss", "multinomial", "kl_div", "ctc_loss"):
        return True
    if name in ("sum", "mean"):
        return use.weighted and use.followed == 0
    if name in ("argmax", "max", "topk"):
        return len(shape) == 2 and use.followed == 0 and use.axis == 1
    stride = record.get("stride") or ()
    return all(one >= other for one, other in pairwise(stride))  # not turned round on purpose


def dimension(story: Story, event: Event) -> int | None:
    """Return the axis of the softmax ``event``, counted from 0; if none was passed, torch's default.

    None if the tensor has no axis, its shape is unknown, or the argument is not an integer.
    """
    shape = story.shape(event.operands[0].label, event.step)
    if shape is None or not shape:
        return None
    text = argument(event, "dim", 1)
    given = whole(text)
    if given is None:
        if text not in (None, "None"):
            return None
        return 0 if len(shape) in (1, 3) else 1
    return given % len(shape)


def _along(event: Event, place: int, count: int) -> int | None:
    """Return the axis of the operand with index ``place`` along which the call works; None if there is none."""
    if event.name in operations_that("matrix_product") and count > 1:
        return count - 1 if place == 0 else None
    if event.name == "einsum":
        return _contracted(event, place)
    if event.name == "nll_loss" and place == 0:
        return 1 if count > 1 else 0
    if event.name in ("multinomial", "ctc_loss") and place == 0:
        return count - 1
    if event.name == "kl_div" and place == 0 and count == 2 and "batchmean" in (argument(event, "reduction") or ""):
        return 1
    if event.name in ("sum", "mean") and place == 0:
        axis = whole(argument(event, "dim", 1))
        return axis % count if axis is not None and count else None
    if event.name in PICKS and place == 0:
        axis = whole(argument(event, "dim", PICKS[event.name]))
        return axis % count if axis is not None and count else None
    return None


def _contracted(event: Event, place: int) -> int | None:
    """Return the only axis of the operand at ``place`` that an ``einsum`` sums over; None if it sums over several or
    none, or has a ``...``.
    """
    given, arrow, result = event.operands[0].text.strip("'\"").replace(" ", "").partition("->")
    terms = given.split(",")
    if not arrow or "." in given or not 0 < place <= len(terms):
        return None
    term = terms[place - 1]
    summed = [axis for axis, letter in enumerate(term) if letter not in result]
    return summed[0] if len(summed) == 1 else None


def _carried(story: Story, event: Event, place: int, axis: int) -> int | None:
    """Return the axis of the result that ``axis`` becomes in an element-wise call, a product, a layer or a view.

    None if that is unknown, if the axis changes its length, or if it is the last axis of a layer's input.
    """
    source, result = (
        story.tensor(label, event.step) or {} for label in (event.operands[place].label, event.results[0])
    )
    before, after = list(source.get("shape") or ()), list(result.get("shape") or ())
    if event.name in ELEMENTWISE or event.name in PRODUCTS:
        new = axis + len(after) - len(before)
        return new if 0 <= new < len(after) and after[new] == before[axis] else None
    if event.name in LAYERS and place == 0:
        return axis if axis < len(before) - 1 and len(after) == len(before) else None
    if event.name in VIEWS and place == 0 and source.get("storage") == result.get("storage"):
        step, length = (source.get("stride") or [])[axis], before[axis]
        found = [
            i for i, pair in enumerate(zip(result.get("stride") or (), after, strict=False)) if pair == (step, length)
        ]
        return found[0] if len(found) == 1 and length > 1 else None
    return None
