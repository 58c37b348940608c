"""Observes where a program uses tensors as keys of dictionaries or as elements of sets (:class:`HashWatch`): such a
tensor is found only as the same object, not by its value.

While a program is recorded, a descriptor replaces ``Tensor.__hash__``. It returns the method itself, bound as usual,
like the descriptors of :mod:`~pitfall_lab.observe.lookups`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe.frame_variables import variables
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.observe.swapping import Watching
from pitfall_lab.trace import Hashed, Span

LOOKS = 200
"""How many tensors are examined at most on each line of the program."""
PLACES = 100
"""How many lines of the program are examined at most."""
LARGEST = 16
"""Tensors with more elements are ignored: states and single values have few elements, parameters many."""
COLLECTIONS = str(Path(sys.modules["collections"].__file__ or "").parent)
"""The folder of the module whose ``Counter`` hashes elements on behalf of the program."""

Value = tuple[tuple[int, ...], tuple[int | float | bool, ...]]


@dataclass(slots=True)
class _HashPlace:
    """What was seen at one call that hashes tensors: how many tensors, the latest object with each value, and how many
    tensors had the same value as a different object.
    """

    step: int
    span: Span
    label: str | None
    objects: int = 0
    repeated: int = 0
    latest: dict[Value, Any] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    shown: Value | None = None


class _HashLookup:
    """A descriptor that replaces ``Tensor.__hash__`` and reports each tensor whose hash is computed."""

    __slots__ = ("method", "tell")

    def __init__(self, method: Any, tell: Callable[[Any, FrameType], None]) -> None:
        self.method, self.tell = method, tell

    def __get__(self, owner: Any, cls: type | None = None) -> Any:
        if owner is not None:
            self.tell(owner, sys._getframe(1))
        return self.method.__get__(owner, cls)


class HashWatch:
    """Examines the tensors that this thread's program, in its own code, puts into a set or uses as a key of a
    dictionary: dense real CPU tensors of 1 to ``LARGEST`` (16) elements that do not require grad and are 0-dimensional,
    not floating point, or a view.

    ``written()`` is the number of the trace's events so far; ``label`` returns a tensor's label in the trace, or None.
    """

    def __init__(self, sources: SourceMap, written: Callable[[], int], label: Callable[[Any], str | None]) -> None:
        self._sources, self._written, self._label = sources, written, label
        self._thread = threading.get_ident()
        self._lookup: _HashLookup | None = None
        self._places: dict[tuple[int, int], _HashPlace | None] = {}
        self._last: _HashPlace | None = None

    def start(self) -> None:
        """Replace torch's method by the descriptor."""
        self._lookup = _HashLookup(vars(torch.Tensor)["__hash__"], self._hashed)
        torch.Tensor.__hash__ = self._lookup  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        """Restore torch's method, unless the program has replaced it."""
        lookup, self._lookup = self._lookup, None
        if lookup is not None and vars(torch.Tensor).get("__hash__") is lookup:
            torch.Tensor.__hash__ = lookup.method  # type: ignore[method-assign, union-attr]

    def finished(self) -> tuple[Hashed, ...]:
        """The lines on which tensors with equal values were different keys, and the line of the very last key; empty if
        no tensor was examined.
        """
        known = [place for place in self._places.values() if place is not None]
        return tuple(
            Hashed(
                each.step,
                each.span,
                each.objects,
                len(each.latest),
                each.repeated,
                each.shown[1] if each.shown is not None else (),
                tuple(each.names),
                each.label,
                each is self._last,
            )
            for each in known
            if each.repeated or each is self._last
        )

    def _hashed(self, owner: Any, frame: FrameType) -> None:
        key = id(frame.f_code), frame.f_lasti
        if key in self._places:
            place = self._places[key]
            if place is None:
                return
            if place.objects >= LOOKS:
                self._last = place
                return
        if threading.get_ident() != self._thread:
            return
        with contextlib.suppress(Exception), unseen():  # facts that cannot be read are left out
            self._look(owner, frame, key)

    def _look(self, owner: Any, frame: FrameType, key: tuple[int, int]) -> None:
        caller = self._caller(frame)
        if key not in self._places:
            span = self._sources.span(caller) if caller is not None and len(self._places) < PLACES else None
            self._places[key] = _HashPlace(self._written(), span, self._label(owner)) if span is not None else None
        place = self._places[key]
        if place is None or caller is None:
            return
        value = _value(owner)
        if value is None:
            return
        self._last = place
        before = place.latest.get(value)
        if before is None or before() is not owner:
            place.objects += 1
            place.repeated += before is not None
            place.shown = value if before is not None or place.shown is None else place.shown
            place.latest[value] = Watching(owner)
        for name, held in variables(caller).items():
            if held is owner and name.isidentifier():
                place.names[name] = None

    def _caller(self, frame: FrameType) -> FrameType | None:
        """The program's frame that computes the hash, or that calls ``Counter``, which does so on its behalf; None if
        it is no frame of the program.
        """
        around: FrameType | None = frame
        while around is not None and around.f_code.co_filename.startswith(COLLECTIONS):
            around = around.f_back
        return around if around is not None and self._sources.is_user(around.f_code.co_filename) else None


def _value(tensor: Any) -> Value | None:
    """The shape and the values of a small plain tensor that is 0-dimensional, not floating point, or a view; None for
    any other.
    """
    if type(tensor) is not torch.Tensor or tensor.requires_grad or tensor.layout is not torch.strided:
        return None
    if tensor.device.type != "cpu" or not 0 < tensor.numel() <= LARGEST or tensor.is_complex():
        return None
    if tensor.dim() and tensor.is_floating_point() and tensor._base is None:
        return None  # a buffer, such as running statistics: known by the object, and equal to others by chance
    numbers = tensor.reshape(-1).tolist()
    return tuple(tensor.shape), tuple(numbers)
