"""Finds the operation that creates the first NaN or infinity (:class:`FiniteWatch`), in forward and in backward, from
torch's own values.

It is used in a recording that is made only after another one has shown such a value: every result of every call is
read, whatever its size. Stored are only the labels of tensors, a few numbers, and their origins.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.argument_values import tensors
from pitfall_lab.observe.gradient_hooks import Posts, may_listen
from pitfall_lab.observe.recorder import BACKWARD, Call
from pitfall_lab.trace import CELL_LIMIT, Unfinite
from pitfall_lab.trace.operation_facts import spellings
from pitfall_lab.trace.text import plain
from pitfall_lab.verify.json_values import cells
from pitfall_lab.verify.shared_state import World

FINITE, INFINITE, NAN = range(3)
_WORDS: tuple[Any, ...] = ("finite", "inf", "nan")
MOST = 12
"""How many operations :meth:`FiniteWatch.finished` returns at most."""
SPREAD = 10
"""In how many later results a NaN that reaches no backward must be to be reported."""
TESTS = spellings("nan_to_num", in_place=True) | {
    "isnan", "isfinite", "isinf", "nanmean", "nansum", "nanmedian", "nanquantile",
}  # fmt: skip
"""Calls that test for NaN or infinity, or ignore them: a program that uses them expects some."""
MEANS = frozenset({"mean", "std", "var", "median"})
"""Statistics that are NaN for no values, or for one."""
LOSSES = frozenset({"cross_entropy", "nll_loss"})


@dataclass(slots=True)
class Finite:
    """What a recording is requested to find about NaN and infinity, and what it has found.

    ``closely``: search for the operations that created the first ones. ``spoiled`` is set by the recording if a
    backward began from NaN or infinity or created some, or if a tensor that is left at the end contains NaN.
    """

    closely: bool = False
    spoiled: bool = False


@dataclass(slots=True)
class _Birth:
    step: int
    kind: int
    tensor: str | None
    why: str = ""
    at: tuple[int, ...] = ()
    given: tuple[tuple[str | None, Any], ...] = ()
    source: _Birth | None = None
    spread: int = 0
    noticed: bool = False
    backward: int | None = None

    def told(self) -> Unfinite:
        source = None if self.source is None else self.source.step
        return Unfinite(
            self.step,
            _WORDS[self.kind],
            self.tensor,
            None,
            self.why,
            self.at,
            self.given,
            source,
            self.spread,
            self.noticed,
            self.backward,
        )


@dataclass(slots=True)
class _FirstUnfinite:
    """The first node of a backward that received finite gradients and returned NaN or infinity."""

    node: str | None
    kind: int
    at: tuple[int, ...]
    came: Any
    hidden: bool


@dataclass(slots=True)
class _Running:
    """The state of a backward that is running: its hooks, and what they have found."""

    posts: Posts
    seen: _FirstUnfinite | None = None


@dataclass(slots=True)
class NoWatch:
    """Has the methods of :class:`FiniteWatch` and does nothing, for recordings that do not search for NaN."""

    world: World

    def before(self, call: Call) -> None:
        """Do nothing."""

    def after(self, call: Call, result: Any, step: int) -> None:
        """Do nothing."""

    def failed(self, call: Call) -> None:
        """Do nothing."""

    def finished(self) -> tuple[Unfinite, ...]:
        """Return an empty tuple: nothing was searched for."""
        return ()


@dataclass(slots=True)
class FiniteWatch(NoWatch):
    """Receives each recorded call before and after it runs; :meth:`finished` returns the operations that created NaN or
    infinity.
    """

    _births: dict[tuple[Any, str, int], _Birth] = field(default_factory=dict)
    _origins: dict[str, _Birth | None] = field(default_factory=dict)
    """The operation in which the NaN or the infinity of a tensor was created, by the tensor's label."""
    _gradients: list[Unfinite] = field(default_factory=list)
    _told: set[Any] = field(default_factory=set)
    _noticed: bool = False
    """Whether the program has tested a gradient, or a value computed from one, for NaN."""

    def before(self, call: Call) -> None:
        """Store whether the call's operands are finite before torch runs it; before a backward whose roots are all
        finite, register hooks on the nodes of the graph.
        """
        operands = [(real, state_of(real)) for real in tensors((call.args, call.kwargs))]
        call.memory["finite"] = operands
        if call.name in BACKWARD:
            self._begin(call, operands)
        elif _short(call.name) in TESTS:
            for real, state in operands:
                self._is_tested(real, state)

    def _is_tested(self, real: torch.Tensor, state: int) -> None:
        origin = self._origins.get(self._label(real) or "") if state else None
        if origin is not None:
            origin.noticed = True
            if origin.source is not None:
                origin.source.noticed = True
        elif state:
            self._noticed = True

    def _label(self, real: Any) -> str | None:
        record = self.world.records.find(real)
        return None if record is None else record.label

    def after(self, call: Call, result: Any, step: int) -> None:
        """Search for NaN and infinity in the results of ``call`` after torch has run it (of a backward: in the
        gradients); ``step`` is its step in the trace.
        """
        operands: list[tuple[torch.Tensor, int]] = call.memory.pop("finite", [])
        if call.name in BACKWARD:
            self._ends(call, result, step)
            return
        results = list(tensors(result))
        if operands and not any(real is operands[0][0] for real in results) and _writes(call.name):
            results.append(operands[0][0])
        worst = max((state for _, state in operands), default=FINITE)
        for real in results:
            state, label = state_of(real), self._label(real)
            if state and label is not None:
                self._origins[label] = (
                    self._born(call, operands, real, state, step) if state > worst else self._handed_on(operands, state)
                )

    def _handed_on(self, operands: list[tuple[torch.Tensor, int]], state: int) -> _Birth | None:
        found = (self._origins.get(self._label(real) or "") for real, has in operands if has >= state)
        origin = next((birth for birth in found if birth is not None), None)
        if origin is not None and state == NAN:
            origin.spread += 1
        return origin

    def _born(
        self, call: Call, operands: list[tuple[torch.Tensor, int]], real: torch.Tensor, state: int, step: int
    ) -> _Birth | None:
        key = (call.span, call.name, state)
        known = self._births.get(key)
        if known is not None or _short(call.name).startswith(("empty", "new_empty", "__get__")):
            return known
        at = first_bad(real, state)
        birth = _Birth(
            step, state, self._label(real), _why(call, operands, real, state), at, self._given(operands, real, at)
        )
        if state == NAN:
            found = (self._origins.get(self._label(each) or "") for each, has in operands if has == INFINITE)
            birth.source = next((source for source in found if source is not None), None)
        self._births[key] = birth
        return birth

    def _given(
        self, operands: list[tuple[torch.Tensor, int]], real: torch.Tensor, at: tuple[int, ...]
    ) -> tuple[tuple[str | None, Any], ...]:
        """The operands, each as its label and the number from which the element ``at`` of the result was computed.

        Empty unless each element of the result is computed from one element of each operand: all broadcast to its
        shape, and none is the result itself or complex.
        """
        shape, given = tuple(real.shape), []
        for operand, _ in operands:
            if operand is real or not fits(tuple(operand.shape), shape) or operand.is_complex():
                return ()
            place = [0 if size == 1 else i for size, i in zip(reversed(operand.shape), reversed(at), strict=False)]
            given.append((self._label(operand), plain(operand.detach()[tuple(reversed(place))].item())))
        return tuple(given)

    # ------------------------------------------------------------------ backward

    def _begin(self, call: Call, operands: list[tuple[torch.Tensor, int]]) -> None:
        """A backward begins: store the backward for a root's NaN or infinity with a known origin; if all roots are
        finite, register hooks that examine each node but the leaves while it runs.
        """
        running = call.memory["nodes"] = _Running(
            Posts(lambda key, given, outgoing: self._came(running, key, given, outgoing))
        )
        roots = list(tensors(call.args[:1]))
        for real, state in operands:
            origin = (
                self._origins.get(self._label(real) or "") if state and any(real is root for root in roots) else None
            )
            if origin is not None and origin.backward is None:
                origin.backward = call.memory["step"]
        if not may_listen() or any(state and any(real is root for root in roots) for real, state in operands):
            return
        stack, done = [tensor_facts.node_of(root) for root in roots], set()
        while stack:
            node = stack.pop()
            if node is None or (key := tensor_facts.node_key(node)) in done:
                continue
            done.add(key)
            if tensor_facts.leaf_of(node) is None:
                running.posts.after(node, key)
            stack += [child for child, _ in tensor_facts.next_nodes(node)]

    def _came(self, running: _Running, key: Any, given: tuple[Any, ...], outgoing: tuple[Any, ...]) -> None:
        """Called when torch has run a node: store the first one that returned NaN or infinity for finite gradients
        (``given``).
        """
        with contextlib.suppress(Exception):  # it would be raised in the learner's backward
            if running.seen is not None or any(state_of(real) for real in tensors(given)):
                return
            bad = next((real for real in tensors(outgoing) if state_of(real)), None)
            if bad is not None:
                records = self.world.records
                running.seen = _seen(records.node_label(records.nodes.get(key)), given, bad)

    def _ends(self, call: Call, result: Any, step: int) -> None:
        running: _Running = call.memory.pop("nodes")
        running.posts.leave()
        seen = running.seen
        if seen is None or seen.node is None or (call.span, call.name) in self._told or len(self._gradients) >= MOST:
            return
        reached = next(self._reached(call, result), None)
        if reached is not None:
            self._told.add((call.span, call.name))
            leaf, numbers = reached
            self._gradients.append(
                Unfinite(
                    step,
                    _WORDS[seen.kind],
                    leaf,
                    seen.node,
                    at=seen.at,
                    backward=step,
                    came=seen.came,
                    hidden=seen.hidden,
                    numbers=numbers,
                )
            )

    def _reached(self, call: Call, result: Any) -> Iterator[tuple[str | None, Any]]:
        """The leaves (for ``autograd.grad``: the inputs) whose gradient is not finite, each with the values of that
        gradient.
        """
        if call.name == "torch.autograd.grad":
            inputs = tensors(call.args[1:2] or call.kwargs.get("inputs"))
            pairs = [(self._label(real), gradient) for real, gradient in zip(inputs, result, strict=False)]
        else:
            leaves = [
                record
                for record in self.world.records.by_mark.values()
                if record.shadow is not None and record.shadow.flag
            ]
            living = ((record, record()) for record in leaves)
            pairs = [(record.label, tensor_facts.grad_of(real)) for record, real in living if real is not None]
        for label, gradient in pairs:
            if gradient is not None and state_of(gradient):
                yield label, _shown(gradient)

    def failed(self, call: Call) -> None:
        """Called after a call has raised: discard what was read for it, and remove the hooks on its nodes."""
        call.memory.pop("finite", None)
        running = call.memory.pop("nodes", None)
        if running is not None:
            running.posts.leave()

    def finished(self) -> tuple[Unfinite, ...]:
        """Return the operations that first created a NaN or an infinity which reached a backward, or a NaN found in at
        least ``SPREAD`` (10) later results; and the operations from which these values came. Empty if there are none.

        At most ``MOST`` (12) are returned, in the order of the steps, followed by at most as many nodes that turned
        finite gradients into NaN or infinity.
        """
        chosen = [
            birth
            for birth in self._births.values()
            if birth.backward is not None or (birth.kind == NAN and birth.spread >= SPREAD)
        ]
        sources = [birth.source for birth in chosen if birth.source is not None]
        every = {id(birth): birth for birth in [*chosen, *sources]}
        told = sorted((birth.told() for birth in every.values()), key=lambda each: each.step)[:MOST]
        return (*told, *(replace(each, noticed=self._noticed) for each in self._gradients))


def state_of(real: Any) -> int:
    """Return ``NAN`` if the tensor has a NaN, else ``INFINITE`` if it has an infinity, else ``FINITE``, also if it
    cannot be read.
    """
    try:
        if not (real.is_floating_point() or real.is_complex()) or not real.numel() or real.device.type == "meta":
            return FINITE
        if tensor_facts.is_opaque(real):
            return FINITE
        largest = real.detach().abs().amax().item()
    except Exception:  # a dtype without these operations
        return FINITE
    return NAN if math.isnan(largest) else INFINITE if math.isinf(largest) else FINITE


def first_bad(real: torch.Tensor, state: int) -> tuple[int, ...]:
    """Return the index of the first element that is NaN (``state`` is ``NAN``) or infinite. The tensor must have
    one.
    """
    bad = (torch.isnan(real.detach()) if state == NAN else torch.isinf(real.detach())).reshape(-1)
    place, index = int(bad.to(torch.uint8).argmax().item()), []
    for size in reversed(real.shape):
        place, i = divmod(place, size)
        index.append(i)
    return tuple(reversed(index))


def fits(operand: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether the shape ``operand`` broadcasts to the shape ``result``."""
    pairs = zip(reversed(operand), reversed(result), strict=False)
    return len(operand) <= len(result) and all(one in (1, other) for one, other in pairs)


def _short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _writes(name: str) -> bool:
    short = _short(name)
    return short == "__setitem__" or (short.endswith("_") and not short.endswith("__"))


def _why(call: Call, operands: list[tuple[torch.Tensor, int]], real: torch.Tensor, state: int) -> str:
    """The kind of case that the call's name and operands show, in the terms of :class:`Unfinite` (``why``); else
    empty.
    """
    short = _short(call.name)
    plainly = [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, float)]
    if not operands:
        return "made"
    if any(not math.isfinite(value) for value in plainly):
        return "put"
    first = operands[0][0]
    if state == NAN and short in ("softmax", "log_softmax") and operands[0][1] == INFINITE:
        return "no-score"
    if state == NAN and short in MEANS and (not first.numel() or first.numel() == real.numel()):
        return "nothing" if not first.numel() else "single"
    if state == NAN and short in LOSSES:
        ignored = call.kwargs.get("ignore_index", -100)
        target = call.args[1] if len(call.args) > 1 else call.kwargs.get("target")
        if (
            isinstance(target, torch.Tensor)
            and not target.is_floating_point()
            and bool((target == ignored).all().item())
        ):
            return "no-target"
    return ""


def _seen(node: str | None, given: tuple[Any, ...], bad: torch.Tensor) -> _FirstUnfinite:
    state = state_of(bad)
    at = first_bad(bad, state)
    same = next((real for real in tensors(given) if real.shape == bad.shape), None)
    if same is None:
        return _FirstUnfinite(node, state, at, None, hidden=False)
    broken = ~torch.isfinite(bad.detach())
    hidden = not bool(same.detach()[broken].any().item())
    return _FirstUnfinite(node, state, at, plain(same.detach()[at].item()), hidden)


def _shown(gradient: torch.Tensor) -> Any:
    flat = gradient.detach().reshape(-1)
    bad = torch.nonzero(~torch.isfinite(flat))[:CELL_LIMIT, 0].tolist()
    if flat.numel() <= CELL_LIMIT:
        return cells(flat.double().cpu().numpy())
    return {"count": flat.numel(), "shown": [[k, plain(flat[k].item())] for k in bad]}
