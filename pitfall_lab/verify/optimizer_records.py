"""Records the optimizers of a program: the parameters each one received, and its steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pitfall_lab.observe.swapping import Watching
from pitfall_lab.trace import OptimizerMade, OptimizerStep, Span

Label = Callable[[Any], str | None]


@dataclass(slots=True)
class _Made:
    """An optimizer and its tensors, held by weak references. A tensor gets its label once an observed call has used it."""

    optimizer: weakref.ref[Any]
    kind: str
    step: int
    span: Span | None
    given: list[weakref.ref[Any]] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)

    def name(self, label: Label) -> None:
        for place, reference in enumerate(self.given):
            real = reference() if place not in self.labels else None
            if real is not None and (found := label(real)) is not None:
                self.labels[place] = found


class Optimizers:
    """The optimizers of the program, in the order in which they were created."""

    def __init__(self, label: Label) -> None:
        self._label = label
        self._made: list[_Made] = []
        self.steps: list[OptimizerStep] = []

    def given(self, optimizer: Any, parameter: Any, step: int, span: Span | None) -> None:
        """An optimizer receives a parameter, in its constructor or later."""
        number = self._number(optimizer)
        if number is None:
            self._made.append(_Made(weakref.ref(optimizer), type(optimizer).__name__, step, span))
        self._made[-1 if number is None else number].given.append(Watching(parameter))

    def stepping(self, optimizer: Any, step: int, span: Span | None) -> None:
        """An optimizer's step() is about to run."""
        for made in self._made:
            made.name(self._label)
        held = (self._label(parameter) for group in optimizer.param_groups for parameter in group["params"])
        labels = tuple(label for label in held if label is not None)
        self.steps.append(OptimizerStep(step, type(optimizer).__name__, span, labels, self._number(optimizer)))

    def made(self) -> tuple[OptimizerMade, ...]:
        """All optimizers, each with the labels of those of its tensors that an observed call used."""
        for made in self._made:
            made.name(self._label)
        held = [tuple(made.labels[place] for place in sorted(made.labels)) for made in self._made]
        return tuple(OptimizerMade(m.step, m.kind, m.span, labels) for m, labels in zip(self._made, held, strict=True))

    def _number(self, optimizer: Any) -> int | None:
        return next((number for number, made in enumerate(self._made) if made.optimizer() is optimizer), None)
