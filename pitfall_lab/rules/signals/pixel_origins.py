"""Which pixel of a stored image a single pixel was computed from, followed through calls that move pixels and layers
that keep them in their position.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.signals.element_origins import unflat
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import key
from pitfall_lab.rules.signals.sequences import KEEPING
from pitfall_lab.rules.signals.takes import positions, take
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

Index = tuple[int, ...]
CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv_transpose1d": 1, "conv_transpose2d": 2}
"""Convolutions, each with the number of spatial axes."""
SCALING = {
    "max_pool1d": 1, "max_pool2d": 2, "avg_pool1d": 1, "avg_pool2d": 2, "adaptive_avg_pool2d": 2,
    "adaptive_max_pool2d": 2, "interpolate": 2, "upsample": 2, "upsample_nearest2d": 2, "upsample_bilinear2d": 2,
}  # fmt: skip
"""Layers that change the resolution, each with the number of spatial axes."""
MOVERS = {"flip", "fliplr", "flipud", "roll", "rot90"}
"""Calls that move pixels."""
FACTORIES = {"rand", "randn", "randint", "normal", "rand_like", "randn_like", "zeros", "ones", "zeros_like",
             "ones_like", "full", "full_like", "empty", "bernoulli", "tensor", "arange"}  # fmt: skip
"""Calls that create tensors not computed from other ones."""
SAME_PLACES = (
    KEEPING - spellings("cat") - {"linear", "layer_norm", "softmax", "_softmax", "log_softmax", "rms_norm", "glu"}
    | spellings("abs", "bitwise_not", "ge", "gt", "lt")
    | {"__imul__", "__isub__", "__itruediv__", "__rsub__", "__rtruediv__", "bernoulli", "bool", "byte", "celu",
       "clamp_", "cos", "cpu", "dropout2d", "elu_", "exp", "float", "floor", "group_norm", "hardsigmoid", "hardswish",
       "hardtanh", "identity", "instance_norm", "int", "leaky_relu_", "logical_not", "logit", "logsigmoid", "long",
       "normal", "prelu", "relu6", "round", "rsub", "silu_", "sin", "square_", "sub_", "type"}
)  # fmt: skip
"""Calls that compute each element from the elements at the same index of their operands."""
OVER_CHANNELS = {"softmax", "_softmax", "log_softmax", "layer_norm", "rms_norm"}
"""Calls that compute a pixel from all channels at its position."""
RESHAPES = {"reshape", "view", "flatten", "unflatten", "ravel"}
"""Calls that keep the order of the elements."""
TURNS = spellings("transpose") | {"T", "__getitem__", "mT", "movedim", "permute", "t", "where"}
"""Views, and calls with a third operand for each element: elements do not keep their index in these."""
OVER_ITSELF = spellings("add", "clamp", "div", "mul", "sigmoid", "sub") | {
    "dropout",
    "elu",
    "hardtanh",
    "leaky_relu",
    "relu",
    "silu",
}
"""Operations that, in place, compute each element from the old element at the same index (names without the in-place
underscore).
"""
PIECES = spellings("cat") | {"stack"}
DEEPEST, BUDGET = 120, 400
PAIR = 2


@dataclass(frozen=True, slots=True)
class Pixel:
    """The pixel from which an element was computed: the element ``index`` of the tensor ``label`` (usually the first
    tensor on its storage), as it was after ``step``.

    Of the calls in between, ``moved`` are those that rotate, flip or roll images, the last one first, and ``layers``
    the labels of the weights of convolutions; ``seen`` are the labels of the tensors on the way. ``around`` is the
    number of pixels by which ``index`` may be wrong, as layers changed the resolution.
    """

    label: str
    index: Index
    step: int
    moved: tuple[Event, ...] = ()
    layers: tuple[str, ...] = ()
    around: float = 0.0
    seen: tuple[str, ...] = ()
    rows: tuple[Hashable, ...] = ()
    """The index tensors, with values that the trace does not have, by which rows were selected on the way."""


class Pixels:
    """Follows single pixels back to where they were first stored."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._budget = BUDGET

    def origin(self, label: str | None, index: Index, step: int) -> Pixel | None:
        """Return the pixel of a stored image from which the element ``index`` of the tensor ``label`` at ``step``
        comes; None if it is unknown, or if the tensor found requires grad.

        If it may come from several operands, the first one that was not created by a call of ``FACTORIES`` counts, else
        the first one.
        """
        self._budget = BUDGET
        return self._follow(Pixel(label, index, step, seen=(label,))) if label is not None else None

    def _follow(self, here: Pixel) -> Pixel | None:
        for _ in range(DEEPEST):
            self._budget -= 1
            ways = self._ways(here) if self._budget >= 0 else None
            if ways is None:
                return None
            here, before = ways
            if not before:
                return None if (self.story.tensor(here.label, here.step) or {}).get("requires_grad") else here
            if len(before) == 1:
                here = before[0]
                continue
            found = [each for each in (self._follow(way) for way in before) if each is not None]
            return next((each for each in found if not self._is_drawn(each)), found[0] if found else None)
        return None

    def _ways(self, here: Pixel) -> tuple[Pixel, list[Pixel]] | None:
        """The same element in the first tensor on its storage, and the elements from which it was computed (none if it
        was stored there); None if it is unknown.
        """
        story, record = self.story, self.story.tensor(here.label, here.step) or {}
        shape, stride = record.get("shape") or (), record.get("stride") or ()
        first = next(iter(story.tensors_on(record.get("storage"))), None)
        if record.get("storage") is None or first is None or len(here.index) != len(shape):
            return None
        if any(n > 1 and not step for n, step in zip(shape, stride, strict=True)):
            return here, []  # expanded: each element is many pixels
        at, made = _place(record, here.index), story.event(first[1].get("born"))
        start = made.step if made is not None else -1
        index = _index(story.tensor(first[0], start if made is not None else here.step) or first[1], at)
        if index is None:
            return None
        here = _with(here, first[0], index, here.step)
        written = story.writes(str(record["storage"]), start, here.step + 1)
        if written:
            before = self._written(here, story.events[written[-1]], at)
            return (here, [before] if isinstance(before, Pixel) else []) if before is not True else None
        is_call = made is not None and made.kind == "call" and made.error is None and here.label in made.results
        return here, list(self._before(here, made)) if made is not None and is_call else []

    def _is_drawn(self, here: Pixel) -> bool:
        made = self.story.event((self.story.tensor(here.label) or {}).get("born"))
        return made is not None and made.name in FACTORIES and not here.rows

    def _written(self, here: Pixel, event: Event, at: int) -> Pixel | bool:
        """The pixel before a call that wrote its storage; True if that is unknown, False if the call stored a new
        value.
        """
        if event.name.rstrip("_").strip("_").removeprefix("i") in OVER_ITSELF:
            return _with(here, here.label, here.index, event.step - 1)
        given = [o.label for o in event.operands if o.label is not None]
        if event.name != "__setitem__" or len(given) != PAIR + 1:
            return False
        # x[mask] = value: the rows that are true, one after the other
        record = self.story.tensor(given[1], event.step) or {}
        whole_table = self.story.tensor(given[0], event.step) or {}
        index = _index(whole_table, at)
        if record.get("dtype") != "bool" or len(record.get("shape") or ()) != 1 or index is None:
            return False
        chosen = [Elements(self.story, given[1], event.step, answers=True).at((row,)) for row in range(index[0] + 1)]
        if None in chosen:
            return True
        if not chosen[-1]:
            return _with(here, here.label, here.index, event.step - 1)
        return _with(here, given[2], (sum(bool(each) for each in chosen) - 1, *index[1:]), event.step - 1)

    def _before(self, here: Pixel, event: Event) -> Iterator[Pixel]:
        """The elements of the operands from which the element was computed; several if it is unclear which operand is
        the image.
        """
        given = [o.label for o in event.operands if o.label is not None]
        if not given:
            return
        shapes = [self.story.shape(each, event.step) or () for each in given]
        name = event.name
        if name in MOVERS:
            moved = _moved(event, here.index, shapes[0])
            if moved is not None:
                yield _with(here, given[0], moved, event.step, moved=(*here.moved, event))
        elif name in CONVOLUTIONS or name in SCALING:
            yield from self._layer(here, event, given, shapes[0])
        elif name in PIECES:
            yield from self._pieces(here, event, given, shapes)
        elif name in ("__getitem__", "index_select") and len(given) == PAIR:
            yield from self._taken(here, event)
        elif name in SAME_PLACES | OVER_CHANNELS and name not in RESHAPES | TURNS:
            own = self.story.shape(here.label, event.step) or ()
            for label, shape in zip(given, shapes, strict=True):
                if shape == own and label != here.label:
                    yield _with(here, label, here.index, event.step)
        else:
            yield from self._placed(here, event, given, shapes)

    def _layer(self, here: Pixel, event: Event, given: list[str], shape: Index) -> Iterator[Pixel]:
        """The operand's pixel at the corresponding position of an image of another resolution; for a convolution, in
        the first channel.
        """
        name, index = event.name, here.index
        count = CONVOLUTIONS.get(name) or min(SCALING[name], max(len(shape) - PAIR, 1))
        size, own = shape[-count:], (self.story.shape(here.label, event.step) or ())[-count:]
        if len(shape) != len(index) or not all(own) or any(n < PAIR for n in size):
            return
        scale = tuple(n / m for n, m in zip(size, own, strict=True))
        places = tuple(int((i + 0.5) * s) for i, s in zip(index[-count:], scale, strict=True))
        lead = index[:-count]
        lead = (*lead[:-1], 0) if name in CONVOLUTIONS and lead else lead
        around = here.around + (max(max(s, 1 / s) for s in scale) if any(s != 1 for s in scale) else 0)
        layers = (*here.layers, given[1]) if name in CONVOLUTIONS and len(given) > 1 else here.layers
        yield _with(here, given[0], (*lead, *places), event.step, layers=layers, around=around)

    def _placed(self, here: Pixel, event: Event, given: list[str], shapes: list[Index]) -> Iterator[Pixel]:
        """The operand's pixel before a selection by ``where``, a padding or a reshape that copied."""
        index, step = here.index, event.step
        if event.name == "where" and len(given) == PAIR + 1:
            chosen = Elements(self.story, given[0], step, answers=True).at(index)
            if chosen is not None:
                which = 1 if chosen else 2
                yield _with(here, given[which], _spread(index, shapes[which]), step)
        elif event.name == "pad" and len(shapes[0]) == len(index):
            sizes = _literal(event.operands[1].text) if len(event.operands) > 1 else None
            if isinstance(sizes, tuple | list):
                left = [0] * (len(index) - len(sizes) // 2) + [int(n) for n in sizes[::2]][::-1]
                before = tuple(i - n for i, n in zip(index, left, strict=True))
                if all(0 <= i < n for i, n in zip(before, shapes[0], strict=True)):
                    yield _with(here, given[0], before, step)
        elif event.name in RESHAPES and len(given) == 1:
            at = _flat(index, self.story.shape(here.label, step) or ())
            yield _with(here, given[0], unflat(at, shapes[0]), step)

    def _pieces(self, here: Pixel, event: Event, given: list[str], shapes: list[Index]) -> Iterator[Pixel]:
        axis = whole(argument(event, "dim", len(given))) or 0
        axis %= len(here.index)
        rest = here.index[axis]
        if event.name == "stack":
            if rest < len(given):
                yield _with(here, given[rest], here.index[:axis] + here.index[axis + 1 :], event.step)
            return
        if here.layers and axis == 1:  # channels of a network that a skip connection brought: any of them
            for label in given:
                yield _with(here, label, (*here.index[:1], 0, *here.index[2:]), event.step)
            return
        for label, shape in zip(given, shapes, strict=True):
            if len(shape) == len(here.index) and rest < shape[axis]:
                yield _with(here, label, (*here.index[:axis], rest, *here.index[axis + 1 :]), event.step)
                return
            rest -= shape[axis] if len(shape) > axis else 0

    def _taken(self, here: Pixel, event: Event) -> Iterator[Pixel]:
        found = take(self.story, event)
        if found is None:
            return
        at, rows = here.index[found.axis], here.rows
        count = (self.story.shape(found.source, event.step) or (0,) * (found.axis + 1))[found.axis]
        if str((self.story.tensor(found.index, event.step) or {}).get("dtype")) == "bool":
            entries = Elements(self.story, found.index, event.step, answers=True)
            chosen = [entries.at((row,)) for row in range(count)]
            known = None if None in chosen else [row for row, each in enumerate(chosen) if each]
        else:
            known = positions(self.story, found.index, event.step)
        if known is None:
            if found.axis:
                return
            rows = (*rows, key(self.story, found.index, event.step))
        row = known[at] % count if known is not None else at % count
        yield _with(here, found.source, (*here.index[: found.axis], row, *here.index[found.axis + 1 :]), event.step,
                    rows=rows)  # fmt: skip


def _with(here: Pixel, label: str, index: Index, step: int, **more: Any) -> Pixel:
    seen = here.seen if here.seen[-1:] == (label,) else (*here.seen, label)
    return replace(here, label=label, index=index, step=step, seen=seen, **more)


def _moved(event: Event, index: Index, shape: Index) -> Index | None:
    """The index in the operand of the element that a call of ``MOVERS`` puts at ``index``; None if its arguments are
    unknown.
    """
    if event.name == "rot90":
        k = _literal(argument(event, "k", 1) or "1")
        axes = _axes(argument(event, "dims", 2) or "(0, 1)", len(index))
        if not isinstance(k, int) or len(axes) != PAIR:
            return None
        found, (one, other) = list(index), axes
        size = [shape[one], shape[other]]
        i, j = found[one], found[other]
        # torch turns from the first axis towards the second
        i, j = {0: (i, j), 1: (j, size[1] - 1 - i), 2: (size[0] - 1 - i, size[1] - 1 - j), 3: (size[0] - 1 - j, i)}[
            k % 4
        ]
        found[one], found[other] = i, j
        return tuple(found)
    found = list(index)
    if event.name == "roll":
        shifts = _literal(argument(event, "shifts", 1) or "None")
        axes = _axes(argument(event, "dims", 2), len(index))
        shifts = [shifts] if isinstance(shifts, int) else list(shifts) if isinstance(shifts, tuple | list) else []
        if not axes or len(shifts) != len(axes):
            return None
        for axis, shift in zip(axes, shifts, strict=True):
            found[axis] = (found[axis] - int(shift)) % shape[axis]
        return tuple(found)
    named = {"fliplr": "1", "flipud": "0"}.get(event.name)
    texts = [o.text for o in event.operands[1:] if o.label is None and (not o.name or o.name == "dims")]
    axes = _axes(named, len(index)) if named else [a for text in texts for a in _axes(text, len(index))]
    if not axes:
        return None
    for axis in axes:
        found[axis] = shape[axis] - 1 - found[axis]
    return tuple(found)


def _axes(text: str | None, count: int) -> list[int]:
    given = _literal(text) if text is not None else None
    given = [given] if isinstance(given, int) else given if isinstance(given, tuple | list) else []
    return [each % count for each in given if isinstance(each, int)]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _place(record: Record, index: Index) -> int:
    steps = tuple[int, ...](record.get("stride") or ())
    return int(record.get("offset") or 0) + sum(i * n for i, n in zip(index, steps, strict=True))


def _index(record: Record, at: int) -> Index | None:
    """The index, in the tensor, of the element ``at`` of its storage; None if the tensor does not contain it."""
    shape, stride = tuple(record.get("shape") or ()), tuple(record.get("stride") or ())
    rest, found = at - int(record.get("offset") or 0), [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda each: -stride[each]):
        if stride[axis] > 0 and shape[axis] > 1:
            found[axis], rest = divmod(rest, stride[axis])
    return tuple(found) if rest == 0 and all(0 <= i < n for i, n in zip(found, shape, strict=True)) else None


def _spread(index: Index, shape: Index) -> Index:
    """The index of the element that is broadcast to ``index``."""
    own = index[len(index) - len(shape) :]
    return tuple(0 if n == 1 else i for i, n in zip(own, shape, strict=True))


def _flat(index: Index, shape: Index) -> int:
    return sum(i * prod(shape[axis + 1 :]) for axis, i in enumerate(index))
