"""Where numbers came from: from a tensor without a graph back to the calls at which its inputs still had one, and lost it."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, called, reads, root
from pitfall_lab.trace import Event, OptimizerStep, Span

Kind = Literal["number", "copy", "integer", "no_grad", "detach", "gradient"]
"""Became a Python number · was copied as plain data · became whole numbers or truth values · was computed while recording was off ·
was detached · is a gradient that was itself computed without a record."""

ORDER: tuple[Kind, ...] = ("gradient", "number", "copy", "integer", "no_grad", "detach")  # seldom meant first
TO_PYTHON = {"item", "tolist", "__float__", "__int__"}
FACTORIES = {"tensor", "as_tensor", "full", "from_numpy"}
SUMS = {"add", "sub", "radd", "rsub", "iadd", "isub", "subtract"}
FACTORS = {"mul", "div", "truediv", "true_divide", "rmul", "multiply", "divide", "neg", "mean", "sum", "squeeze"}
LIMIT = 2000  # calls to walk through before giving up


@dataclass(frozen=True, slots=True)
class Cut:
    """``event`` was given ``tensor``, which had a way back, and returned something that has none.

    ``user`` is the call that went on from a Python number.
    """

    kind: Kind
    event: Event
    tensor: str
    user: Event | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """``term`` was added, at step ``at``, to the loss that ``backward`` started from, and no gradient can come of it: see ``cuts``."""

    backward: Event
    term: str
    at: int
    cuts: list[Cut]


@dataclass(frozen=True, slots=True)
class Unreached:
    """The ``parameters`` that ``update`` was to change stood behind ``cut`` when ``backward``, the last one before it, ran."""

    update: OptimizerStep
    backward: Event
    cut: Cut
    parameters: tuple[str, ...]


class Flow:
    """Look-ups from results to calls, over one story."""

    def __init__(self, story: Story) -> None:
        self.story = story

    @cached_property
    def _made(self) -> dict[str, list[Event]]:
        """The calls that returned a tensor, or wrote a memory."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.story.calls():
            for label in dict.fromkeys((*event.results, *event.writes)):
                found[label].append(event)
        return found

    @cached_property
    def _off(self) -> set[int]:
        """The steps of calls made while nothing was recorded."""
        found, modes = set(), {"grad": True, "inference": False}
        for event in self.story.events:
            for effect in event.effects:
                if effect.path.startswith("mode."):
                    modes[effect.path.removeprefix("mode.")] = bool(effect.value)
            if modes["inference"] or not modes["grad"]:
                found.add(event.step)
        return found

    @cached_property
    def _numbers(self) -> list[tuple[Event, ast.stmt, set[str]]]:
        """Calls that handed numbers to Python, with their statement and the names that it gives a value or appends to."""
        program = self.story.program
        found = []
        for event in self.story.calls(*TO_PYTHON, "numpy"):
            # the values that a function returns get their names where it is called
            found += [(event, place, assigned(program, place) | _appended(program, place)) for place in call_chain(self.story, event)]
        return found

    def cuts(self, label: str | None, step: int, *, along_the_graph: bool = False) -> list[Cut]:
        """Where the inputs of ``label``, as it was at ``step``, lost their way back; the ones seldom meant first, then the nearest.

        ``along_the_graph`` walks also through what still has a way back, up to the leaves: a cut of one branch of several.
        """
        found: dict[tuple[Kind, int], Cut] = {}
        pending: deque[tuple[str | None, int]] = deque([(label, step)])
        seen: set[str | None] = set()
        walked = 0
        while pending and walked < LIMIT:
            here, at = pending.popleft()
            if here in seen:
                continue
            seen.add(here)
            record = self.story.tensor(here, at) or {}
            connected = along_the_graph and bool(record.get("requires_grad"))
            if connected and record.get("is_leaf"):
                continue
            for event in self._makers(here, at):
                walked += 1
                for source, through, user in self._sources(event, here):
                    before = self.story.tensor(source, through.step - 1) or self.story.tensor(source, through.step) or {}
                    kind = self._kind(through, here) if user is None else "number"
                    if through.name == "grad":
                        found.setdefault(("gradient", through.step), Cut("gradient", through, source))
                    elif not before.get("requires_grad") or (connected and user is None):
                        pending.append((source, through.step - 1))
                    elif kind is not None:
                        found.setdefault((kind, through.step), Cut(kind, through, source, user))
        return sorted(found.values(), key=lambda cut: ORDER.index(cut.kind))

    def lost_terms(self) -> Iterator[Lost]:
        """Parts of a loss, each place once, that are plain numbers although they come from the very parameters that the loss trains.

        Only what is added to the loss is looked at. A factor or a target without a way back has its reasons.
        """
        story, told = self.story, set[tuple[Span | None, Span | None]]()
        for backward in story.backwards():
            start = backward.operands[0].label if backward.operands and backward.error is None else None
            for term, at in self._plain_terms(start, backward.step):
                place = (story.span(backward.step), story.span(at))
                if place in told:
                    continue
                told.add(place)
                cuts = self.cuts(term, at)
                trained = self._leaves(start, backward.step)
                if cuts and self._leaves(cuts[0].tensor, cuts[0].event.step) & trained:
                    yield Lost(backward, term, at, cuts)

    def unreached(self) -> Iterator[Unreached]:
        """Parameters that an optimizer holds and passes over, because the loss before its step was computed past them.

        Each place once; a stretch without a record is one place.
        """
        story, told = self.story, set[object]()
        for update in story.trace.optimizer_steps:
            passed_over = self._passed_over(update.holds)
            before = [b for b in story.backwards() if b.step < update.step and b.error is None] if passed_over else []
            for backward in before[-1:]:
                start = backward.operands[0].label if backward.operands else None
                missed: dict[object, tuple[Cut, set[str]]] = {}
                for cut in self.cuts(start, backward.step, along_the_graph=True):
                    place = (update.span, cut.kind) if cut.kind == "no_grad" else story.span(cut.event.step)
                    if cut.kind != "gradient":
                        given = (cut.tensor, *(o.label for o in cut.event.operands))
                        missed.setdefault(place, (cut, set()))[1].update(*(self._leaves(g, cut.event.step) for g in given))
                reached = self._leaves(start, backward.step)
                for where, (cut, leaves) in missed.items():
                    if leaves & passed_over and not leaves & passed_over & reached and where not in told:
                        told.add(where)
                        yield Unreached(update, backward, cut, tuple(label for label in update.holds if label in leaves & passed_over))

    def _passed_over(self, held: tuple[str, ...]) -> set[str]:
        """Those of the parameters that nothing has changed since the first backward."""
        story = self.story
        first = next((b.step for b in story.backwards() if b.error is None), None)
        if first is None:
            return set()
        leaves = ((label, story.tensor(label) or {}) for label in held)
        return {
            label for label, record in leaves
            if record.get("is_leaf") and record.get("requires_grad")
            and not story.writes(str(record.get("storage")), first, len(story.events))
        }  # fmt: skip

    def _plain_terms(self, start: str | None, step: int) -> Iterator[tuple[str, int]]:
        """What is added up to the single number ``start`` and does not require a gradient, with the step of the sum."""
        story, pending = self.story, [start]
        while pending:
            label = pending.pop()
            record = story.tensor(label, step) or {}
            event = story.event(record.get("born"))
            if event is None or not record.get("requires_grad") or any(n != 1 for n in record.get("shape") or ()):
                continue
            name = event.name.strip("_")
            given = [o.label for o in event.operands if o.label is not None and o.label != label]
            if name in SUMS:
                for each in given:
                    before = story.tensor(each, event.step) or {}
                    if before.get("requires_grad"):
                        pending.append(each)
                    elif before.get("born") is not None and before["born"] != event.step:
                        yield each, event.step
            elif name in FACTORS and len(given) == 1:
                pending += given

    def _leaves(self, label: str | None, step: int) -> set[str]:
        """The parameters that a tensor was computed from, as far as its record tells; a parameter is its own."""
        record = self.story.tensor(label, step) or {}
        if record.get("is_leaf"):
            if (base := record.get("base")) is not None:  # a view that was made while nothing was recorded
                return self._leaves(base, step)
            return {label} if label is not None and record.get("requires_grad") else set()
        nodes = (self.story.record("nodes", node) or {} for node in self.story.behind(record.get("grad_fn")))
        return {str(node["output"]) for node in nodes if node.get("name") == "AccumulateGrad" and node.get("output")}

    def _makers(self, label: str | None, step: int) -> Iterator[Event]:
        """The calls up to ``step`` that gave a tensor its numbers, the last one first."""
        storage = (self.story.tensor(label, step) or {}).get("storage")
        events = {event.step: event for key in (label, storage) if key for event in self._made.get(key, ()) if event.step <= step}
        yield from (events[at] for at in sorted(events, reverse=True))

    def _sources(self, event: Event, label: str | None) -> Iterator[tuple[str, Event, Event | None]]:
        """What a call was given: tensors, and tensors that became Python numbers on the way to it (then with the call itself)."""
        if event.name == "grad":
            if event.operands and event.operands[0].label is not None:
                yield event.operands[0].label, event, None
            return
        for operand in event.operands:
            if operand.label is not None and (operand.label != label or event.name == "detach_"):
                yield operand.label, event, None
        if any(operand.label is None for operand in event.operands):
            for number in self._handed(event):
                if number.operands and number.operands[0].label is not None:
                    yield number.operands[0].label, number, event

    def _kind(self, event: Event, label: str | None) -> Kind | None:
        record = self.story.tensor(label, event.step) or {}
        if event.name in ("detach", "detach_", "data"):
            return "detach"
        if event.name in FACTORIES:
            return "copy"
        if event.step in self._off:
            return "no_grad"
        dtype = str(record.get("dtype") or "")
        return "integer" if dtype and not dtype.startswith(("float", "bfloat", "complex")) and record.get("kind") != "array" else None

    def _handed(self, event: Event) -> list[Event]:
        """The calls that made the Python numbers which ``event`` was given: inside its own expression, or by a name read there."""
        program, span = self.story.program, event.span
        node = program.at(span) if program.tree else None
        if node is None or span is None:
            return []
        found: list[Event] = []
        for earlier in reversed(self.story.events[: event.step]):  # arguments are computed just before
            deeper = len(earlier.scope) > len(event.scope) and earlier.scope[: len(event.scope)] == event.scope
            if earlier.kind != "call" or not (deeper or _inside(earlier.span, span)):
                break
            if earlier.name in TO_PYTHON or earlier.name == "numpy":
                found.insert(0, earlier)
        statement = program.statement(node)
        if statement is None or found:
            return found
        names = self._names(node, statement)
        near = [n for n, place, targets in self._numbers if n.step < event.step and targets & names and _shares(program, place, statement)]
        return near[-50:]

    def _names(self, node: ast.AST, statement: ast.stmt) -> set[str]:
        """The names that ``node`` reads, and those their values were computed from nearby."""
        program = self.story.program
        names = reads(program, node)
        for _ in range(3):
            for other in (n for n in program.nodes if isinstance(n, (ast.Assign, ast.AugAssign)) and _shares(program, n, statement)):
                if assigned(program, other) & names:
                    names = names | reads(program, other.value)
        return names


def _appended(program: Program, statement: ast.stmt) -> set[str]:
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and called(n) in ("append", "extend")]
    return {program.segment(root(call.func.value)) for call in calls if isinstance(call.func, ast.Attribute)}


def _shares(program: Program, one: ast.stmt, other: ast.stmt) -> bool:
    return program.function(one) is program.function(other)


def _inside(inner: Span | None, outer: Span) -> bool:
    if inner is None or inner.source != outer.source:
        return False
    starts = (inner.line, inner.column) >= (outer.line, outer.column)
    return starts and (inner.end_line, inner.end_column) <= (outer.end_line, outer.end_column)
