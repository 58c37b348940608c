"""Records the optimizers of a program (:class:`Optimizers`): the parameters each one received, its steps, and options
and averages that a loaded state has replaced.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pitfall_lab.observe import restored_options
from pitfall_lab.observe.optimizer_watch import Pace
from pitfall_lab.observe.swapping import Watching
from pitfall_lab.trace import LoadedAgain, MisplacedAverages, OptimizerMade, OptimizerStep, Restored, Span

Label = Callable[[Any], str | None]
MOST = 60
"""How many replaced options, and how many states of other parameters, are recorded at most."""


class WeaklyHeld:
    """Weak references to tensors, and the labels of those that have one.

    A tensor gets its label in the trace once an observed call has used it; :meth:`name` searches for new ones.
    """

    def __init__(self, tensors: Iterable[Any] = ()) -> None:
        self._given: list[weakref.ref[Any]] = [Watching(real) for real in tensors]
        self._labels: dict[int, str] = {}

    @property
    def count(self) -> int:
        """The number of tensors that were added to this object, including those that have no label in the trace yet."""
        return len(self._given)

    def add(self, real: Any) -> None:
        """Add a tensor."""
        self._given.append(Watching(real))

    def name(self, label: Label) -> None:
        """Look up the labels of the tensors that have none yet."""
        for place, reference in enumerate(self._given):
            real = reference() if place not in self._labels else None
            if real is not None and (found := label(real)) is not None:
                self._labels[place] = found

    @property
    def is_named(self) -> bool:
        """Whether each of the tensors has a label or no longer exists."""
        return all(place in self._labels or given() is None for place, given in enumerate(self._given))

    @property
    def labels(self) -> tuple[str, ...]:
        """The trace's labels of those tensors that an observed call has used so far, in the order in which the tensors
        were added.
        """
        return tuple(self._labels[place] for place in sorted(self._labels))


@dataclass(slots=True)
class _Made:
    """An optimizer, the tensors that it received, and the number and learning rates of its steps."""

    optimizer: weakref.ref[Any]
    kind: str
    step: int
    span: Span | None
    held: WeaklyHeld = field(default_factory=WeaklyHeld)
    pace: Pace | None = None
    given: list[float] = field(default_factory=list)
    options: dict[str, float] = field(default_factory=dict)
    """The numbers among the options with which it was created."""


class _Loaded(NamedTuple):
    """A tensor of a state that was loaded into an optimizer, its version then, and the position of that loading."""

    tensor: weakref.ref[Any]
    version: int
    span: Span | None


class Optimizers:
    """The optimizers of the program, in the order in which they were created; an optimizer is identified by its index
    among them. ``label`` returns a tensor's label in the trace, or None.

    ``steps`` are the steps that were recorded, ``restored`` the options that a loaded state has replaced, and
    ``loaded_again`` the loadings of a state whose tensors an optimizer had written since it was loaded before.
    """

    def __init__(self, label: Label) -> None:
        self._label = label
        self._made: list[_Made] = []
        self.steps: list[OptimizerStep] = []
        self.restored: list[Restored] = []
        self.loaded_again: list[LoadedAgain] = []
        self._misplaced: list[tuple[MisplacedAverages, WeaklyHeld]] = []
        self._loaded: dict[int, _Loaded] = {}

    def given(self, optimizer: Any, parameter: Any, step: int, span: Span | None, rate: float | None) -> None:
        """Called when an optimizer receives ``parameter``, in its constructor or later: add it to the record of the
        optimizer, and the learning rate of its group (None: no plain number).

        ``step`` is the number of the trace's next event, ``span`` the expression in the program (None: unknown).
        """
        number = self.number(optimizer)
        if number is None:
            made = _Made(weakref.ref(optimizer), type(optimizer).__name__, step, span)
            made.options = {
                name: value
                for name, given in optimizer.defaults.items()
                if (value := restored_options.number(given)) is not None
            }
            self._made.append(made)
        made = self._made[-1 if number is None else number]
        made.held.add(parameter)
        if rate is not None and rate not in made.given:
            made.given.append(rate)

    def stepping(self, optimizer: Any, pace: Pace, step: int, span: Span | None) -> None:
        """Called before one of an optimizer's first steps, at ``step`` of the trace: record the step, its ``pace`` (how
        often it has stepped, with which rates), and the labels of the parameters held now.
        """
        for made in self._made:
            made.held.name(self._label)
        for _, parameter in self._misplaced:
            parameter.name(self._label)
        held = (self._label(parameter) for group in optimizer.param_groups for parameter in group["params"])
        labels = tuple(label for label in held if label is not None)
        number = self.number(optimizer)
        if number is not None:
            self._made[number].pace = pace
            if not pace.steps:  # what the program has set since the loading is its own
                self.restored = [
                    each
                    for each in self.restored
                    if each.optimizer != number
                    or any(group.get(each.name) == each.loaded for group in optimizer.param_groups)
                ]
        self.steps.append(OptimizerStep(step, type(optimizer).__name__, span, labels, number))

    def restoring(self, optimizer: Any, state: restored_options.LoadedState, step: int, span: Span | None) -> None:
        """Called before a loaded ``state`` replaces an optimizer's own: record averages of other parameters, and the
        options that it changes if the optimizer has not stepped yet. Nothing is recorded for an optimizer whose
        creation was not observed.
        """
        number = self.number(optimizer)
        if number is None:
            return
        self._place(number, restored_options.misplaced(optimizer.param_groups, state), step, span)
        self._load(number, state, step, span)
        if self.steps_of(number) or len(self.restored) >= MOST:
            return
        before = self._made[:number]
        for name, given, loaded, began in restored_options.replaced(optimizer.param_groups, state.groups):
            earlier = tuple(
                made.options[name] for made in before if made.kind == type(optimizer).__name__ and name in made.options
            )
            usual = restored_options.usual(optimizer, name)
            self.restored.append(Restored(step, number, name, given, loaded, span, usual, began, earlier))

    def _load(self, number: int, state: restored_options.LoadedState, step: int, span: Span | None) -> None:
        """Store the tensors of a state that no optimizer has, and record whether some that were loaded before have been
        written since.

        A state that is an optimizer's present one is not recorded: its tensors are written by the optimizer's steps, as
        intended.
        """
        optimizers = [made.optimizer() for made in self._made]
        present = {id(entries) for each in optimizers if each is not None for entries in each.state.values()}
        is_present = any(id(entries) in present for entries in state.given)
        own = {
            id(value) for each in optimizers if each is not None for _, value in restored_options.averages(each.state)
        }
        written = list[tuple[str, _Loaded]]()
        for name, value in restored_options.averages(state.averages):
            known = self._loaded.get(id(value))
            if known is not None and known.tensor() is value:
                if value._version > known.version:
                    written.append((name, known))
            elif id(value) not in own:
                self._loaded[id(value)] = _Loaded(Watching(value), value._version, span)
        if written and not is_present and len(self.loaded_again) < MOST:
            name, known = written[0]
            self.loaded_again.append(LoadedAgain(step, number, name, len(written), span, known.span))

    def _place(
        self, optimizer: int, found: restored_options.MisplacedState | None, step: int, span: Span | None
    ) -> None:
        if found is not None and len(self._misplaced) < MOST:
            misplaced = MisplacedAverages(
                step,
                optimizer,
                found.number,
                found.entry,
                found.loaded,
                found.shape,
                found.wrong,
                found.of,
                found.groups,
                found.names,
                span,
            )
            self._misplaced.append((misplaced, WeaklyHeld([found.parameter])))

    def misplaced(self) -> tuple[MisplacedAverages, ...]:
        """Return the averages that were loaded for other parameters, each with the label of its parameter if it has
        one; empty if there are none.
        """
        for _, parameter in self._misplaced:
            parameter.name(self._label)
        return tuple(replace(each, parameter=next(iter(parameter.labels), None)) for each, parameter in self._misplaced)

    def made(self) -> tuple[OptimizerMade, ...]:
        """Return all optimizers whose creation was observed, in that order, each with the labels of those of its
        tensors that an observed call used.
        """
        for made in self._made:
            made.held.name(self._label)
        return tuple(
            OptimizerMade(
                m.step,
                m.kind,
                m.span,
                m.held.labels,
                m.pace.steps if m.pace else 0,
                tuple(m.pace.rates) if m.pace else (),
                tuple(m.given),
                m.pace.apart if m.pace else 0,
                *(m.pace.counts() if m.pace else ((), (), ())),
                tuple(m.pace.begins) if m.pace else (),
            )
            for m in self._made
        )

    def number(self, optimizer: Any) -> int | None:
        """Return the index of this optimizer among those whose creation was observed; None if it is not one of them."""
        return next((number for number, made in enumerate(self._made) if made.optimizer() is optimizer), None)

    def steps_of(self, number: int | None) -> int:
        """Return how often the optimizer with this index has stepped so far; 0 for None."""
        pace = self._made[number].pace if number is not None else None
        return pace.steps if pace is not None else 0
