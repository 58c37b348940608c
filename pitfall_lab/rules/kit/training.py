"""The history of each ``.grad`` in a training program: a backward adds to it, an update uses it, ``zero_grad`` clears
it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import flat
from pitfall_lab.trace import Event, OptimizerStep

BACKWARDS = {"torch.Tensor.backward", "torch.autograd.backward"}
# writes to a parameter that are not gradient steps: projections and initialisations
NO_STEP = {
    "clamp_",
    "clamp_min_",
    "clamp_max_",
    "clip_",
    "zero_",
    "fill_",
    "normal_",
    "uniform_",
    "trunc_normal_",
    "renorm_",
    "requires_grad_",
}
"""In-place calls on a parameter that are not updates with its gradient."""


Kind = Literal["added", "cleared", "changed", "used", "frozen"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One event in the history of a leaf's ``.grad``: ``event`` at ``step`` (for ``added``, the backward itself).

    ``grad`` is the label of the gradient and ``storage`` its storage after the event; None if there was none. ``kind``
    says what happened:

    - ``added``: a backward added to it (``fresh``: there was no gradient before);
    - ``cleared``: it became zero or ``None``;
    - ``changed``: it was written otherwise (clipping, scaling, noise);
    - ``used``: the leaf was written, or got another storage, after its gradient had been read: an update;
    - ``frozen``: the leaf stopped requiring grad.
    """

    kind: Kind
    step: int
    event: Event
    grad: str | None = None
    storage: str | None = None
    fresh: bool = False


@dataclass(slots=True)
class _Leaf:
    """The state of a leaf's ``.grad`` at one point while the trace is read from its beginning."""

    storage: str | None = None
    grad: str | None = None
    added: int = -1
    read: int = -1


@lru_cache(maxsize=1)
def lives(story: Story) -> dict[str, list[Moment]]:
    """Return the history of ``.grad`` for each leaf that received a gradient from a backward: by the leaf's label, its
    moments in order.

    Leaves with a name in the program come first.
    """
    return _Reader(story).read()


class _Reader:
    def __init__(self, story: Story) -> None:
        self.story = story
        self.leaves: dict[str, _Leaf] = defaultdict(_Leaf)
        self.on: dict[str, set[str]] = defaultdict(set)  # leaves by their storage
        self.owner: dict[str, str] = {}  # leaves by the storage of their gradient
        self.of: dict[str, str] = {}  # leaves by the label of their gradient
        self.moments: dict[str, list[Moment]] = defaultdict(list)

    def read(self) -> dict[str, list[Moment]]:
        for event in self.story.events:
            self._operands(event)
            self._effects(event)
            self._writes(event)
        labels = [label for label, moments in self.moments.items() if any(m.kind == "added" for m in moments)]
        labels.sort(key=lambda label: (self.story.name(label) is None, int(label[1:])))  # prefer a leaf that has a name
        return {label: self.moments[label] for label in labels}

    def _operands(self, event: Event) -> None:
        if event.kind != "call" or event.op in BACKWARDS:
            return
        for operand in event.operands:
            if operand.label in self.of:
                self.leaves[self.of[operand.label]].read = event.step

    def _effects(self, event: Event) -> None:
        for effect in event.effects:
            if not effect.path.startswith("tensors."):
                continue
            _, label, *rest = effect.path.split(".")
            if not rest and isinstance(effect.value, dict):
                self._born(label, effect.value)
            elif rest == ["storage"]:
                self._born(label, {"storage": effect.value, "is_leaf": True})
                if label in self.moments and self.leaves[label].read > self.leaves[label].added:
                    self._note("used", label, event)  # `.data = …`
            elif rest == ["requires_grad"] and not effect.value and label in self.moments:
                self._note("frozen", label, event)
            elif rest == ["grad"]:
                self._grad(label, effect.value, event, self._backward(event))

    def _born(self, label: str, record: dict[str, Any]) -> None:
        storage = record.get("storage")
        if storage is not None and record.get("is_leaf"):
            self.leaves[label].storage = storage
            self.on[storage].add(label)
        if record.get("grad") is not None:  # from before the recording: the cell was run once already
            self._holds(label, record["grad"])

    def _holds(self, label: str, grad: str) -> None:
        self.leaves[label].grad = grad
        self.of[grad] = label
        leaf = self.leaves[grad]
        leaf.storage = leaf.storage or (self.story.tensor(grad) or {}).get(
            "storage"
        )  # a gradient with a graph is no leaf
        if leaf.storage is not None:
            self.owner[leaf.storage] = label

    def _grad(self, label: str, grad: str | None, event: Event, backward: Event | None) -> None:
        leaf = self.leaves[label]
        fresh, leaf.grad = leaf.grad is None, grad
        if grad is not None:
            self._holds(label, grad)
        if backward is not None:
            self._added(label, backward, fresh=fresh)
        else:
            self._note("cleared" if grad is None else "changed", label, event)

    def _writes(self, event: Event) -> None:
        backward = self._backward(event) if event.writes else None
        for storage in event.writes:
            label = self.owner.get(storage)
            if label is not None and self._grad_storage(label) == storage:
                if backward is not None:
                    self._added(label, backward, fresh=False)
                else:
                    self._note("cleared" if self._is_zero(event, storage) else "changed", label, event)
            for written in self.on.get(storage, ()) if backward is None and event.name not in NO_STEP else ():
                leaf = self.leaves[written]
                if written in self.moments and leaf.read > leaf.added:
                    self._note("used", written, event)

    def _backward(self, event: Event) -> Event | None:
        outer = self.story.outer_call(event.step)
        return outer if outer is not None and outer.op in BACKWARDS else None

    def _is_zero(self, event: Event, storage: str) -> bool:
        cells = next((e.value for e in event.effects if e.path == f"storages.{storage}.cells"), None)
        return event.name in ("zero_", "_foreach_zero_") or (
            cells is not None and all(value == 0 for _, value in flat(cells))
        )

    def _grad_storage(self, label: str) -> str | None:
        grad = self.leaves[label].grad
        return self.leaves[grad].storage if grad is not None and grad in self.leaves else None

    def _added(self, label: str, backward: Event, *, fresh: bool) -> None:
        moments = self.moments[label]
        self.leaves[label].added = backward.step
        if not (moments and moments[-1].kind == "added" and moments[-1].step == backward.step):
            self._note("added", label, backward, fresh=fresh)

    def _note(self, kind: Kind, label: str, event: Event, *, fresh: bool = False) -> None:
        if kind != "added" and label not in self.moments:
            return
        self.moments[label].append(
            Moment(kind, event.step, event, self.leaves[label].grad, self._grad_storage(label), fresh)
        )


def joint_updates(story: Story, label: str) -> Iterator[tuple[OptimizerStep, list[Event]]]:
    """Yield, for each update of the leaf ``label`` with the sum of the gradients of several backwards, the last
    recorded optimizer step up to it that held the leaf, and these backwards in order.

    An update without such a step is left out. Backwards count from the last update or clearing of the gradient on.
    """
    added: list[Event] = []
    for moment in lives(story).get(label, ()):
        if moment.kind == "added":
            added.append(moment.event)
        elif moment.kind == "used":
            update = next(
                (u for u in reversed(story.trace.optimizer_steps) if u.step <= moment.step and label in u.holds), None
            )
            if update is not None and len(added) > 1:
                yield update, added
            added = []
        elif moment.kind == "cleared":
            added = []


def cells(story: Story, storage: str | None, step: int) -> Any:
    """Return the values in ``storage`` after ``step``, in one of the forms in which a trace stores them (see
    :func:`~pitfall_lab.rules.kit.wording.flat`); None if they are unknown.
    """
    return (story.record("storages", storage, step) or {}).get("cells")


def is_nothing(story: Story, storage: str | None, step: int) -> bool:
    """Whether ``storage`` (a label) held only zeros after ``step``; False if not all of its values are in the trace, or
    the label is None.
    """
    held = cells(story, storage, step)
    return held is not None and not isinstance(held, dict) and all(value == 0 for _, value in flat(held))


def stepper(story: Story, step: int) -> str | None:
    """Return the source of the optimizer, ``"opt"``, if the source at ``step`` is a call ``opt.step()`` or
    ``scaler.step(opt)``; None if no method ``step`` is called there.

    A ``scaler`` is recognised by ``scaler.scale(`` in the program. Any other object with a method ``step``, such as a
    scheduler, is returned like an optimizer.
    """
    program = story.program
    node = program.at(story.span(step)) if program.tree is not None else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
        return None
    name = program.segment(node.func.value)
    return program.segment(node.args[0]) if node.args and f"{name}.scale(" in program.text else name


def same_update(story: Story, one: Moment, other: Moment) -> bool:
    """Whether two updates were made by the same line or by the same optimizer (by the source of its name)."""
    if story.span(one.step) == story.span(other.step):
        return True
    name = stepper(story, one.step)
    return name is not None and name == stepper(story, other.step)
