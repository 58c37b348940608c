"""Traces a tensor that does not require grad back to the calls whose inputs did, and at which the graph ended."""

from __future__ import annotations

import ast
import contextlib
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal, Self

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, called, reads, root
from pitfall_lab.rules.kit.wording import flat
from pitfall_lab.trace import Event, OptimizerStep, Span
from pitfall_lab.trace.operation_facts import spellings

Kind = Literal["number", "copy", "integer", "no_grad", "detach", "gradient"]
"""How the graph ended: the value became a Python number, was copied into a new tensor (``torch.tensor``), was converted
to an integer or bool dtype, was computed under no_grad, was detached, or is a gradient computed without
``create_graph``.
"""

ORDER: tuple[Kind, ...] = ("gradient", "number", "copy", "integer", "no_grad", "detach")  # rarely intended ones first
TO_PYTHON = {"item", "tolist", "__float__", "__int__"}
"""Calls that return Python numbers or lists of them."""
FACTORIES = {"tensor", "as_tensor", "full", "from_numpy"}
"""Calls that make a tensor without a graph from Python numbers or an array."""
SUMS = spellings("add", in_place=True) | spellings("sub", in_place=True, exchanged=True)
FACTORS = spellings("div", "mul", "neg") | {"mean", "squeeze", "sum"}
"""Calls, without underscores, that scale, average, sum or reshape one term of a sum."""
LIMIT = 2000  # calls to walk through before giving up
ROUNDS, MOST = 3, 12
"""``ROUNDS``: in how many executions at least a number must be the same multiple of another one; ``MOST``: how many
executions after the first are compared at most.
"""
NEAR = 1e-5


@dataclass(frozen=True, slots=True)
class Cut:
    """A call at which the graph ended: ``event`` took ``tensor`` (a label), which required grad, and returned a result
    (a tensor, an array or a number) that does not.

    ``kind`` says how ("number", "copy", "integer", "no_grad", "detach" or "gradient"). ``user`` is the call that used
    the resulting Python number; None for other kinds.
    """

    kind: Kind
    event: Event
    tensor: str
    user: Event | None = None


@dataclass(frozen=True, slots=True)
class LostTerm:
    """A term of a loss that gets no gradient: ``term`` is its label, ``backward`` the backward (``Event``) that starts
    from the loss.

    ``at`` is the step at which the term was added to the loss; ``cuts`` are the calls at which its graph had ended.
    """

    backward: Event
    term: str
    at: int
    cuts: list[Cut]


@dataclass(frozen=True, slots=True)
class Unreached:
    """An optimizer step (``update``) with ``parameters`` (labels) that the last backward before it, ``backward``, did
    not reach because the graph ended at the call ``cut``.
    """

    update: OptimizerStep
    backward: Event
    cut: Cut
    parameters: tuple[str, ...]


class Flow:
    """Look-ups from results back to the calls that made them, and to the leaves they were computed from, in the trace
    of one story.
    """

    def __new__(cls, story: Story) -> Self:
        """Return the one object for this story: all rules share it, so that its tables are computed once."""
        kept: Self = vars(story).setdefault(cls.__qualname__, object.__new__(cls))
        return kept

    def __init__(self, story: Story) -> None:
        self.story = story

    @cached_property
    def _made(self) -> dict[str, list[Event]]:
        """Return the calls that returned each tensor or wrote each storage, by label."""
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.story.calls():
            for label in dict.fromkeys((*event.results, *event.writes)):
                found[label].append(event)
        return found

    @cached_property
    def _off(self) -> set[int]:
        """Return the steps of the calls made under no_grad or inference_mode."""
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
        """The calls that returned Python numbers or arrays, each with its statement and the names that this statement
        assigns or appends to.

        A call inside a function is listed once more for each statement that called the function.
        """
        program = self.story.program
        found = []
        for event in self.story.calls(*TO_PYTHON, "numpy"):
            # a returned value is named where the function is called
            found += [
                (event, place, assigned(program, place) | _appended(program, place))
                for place in call_chain(self.story, event)
            ]
        return found

    def cuts(self, label: str | None, step: int, *, along_the_graph: bool = False) -> list[Cut]:
        """Return the calls (:class:`Cut`) at which the graph of the tensor ``label`` (at ``step``) ended, searching
        back through the calls it was computed from; empty if there are none.

        Rarely intended kinds come first; within a kind usually the nearest. With ``along_the_graph`` the search also
        goes through inputs that require grad, back to the leaves, and so finds a cut in one of several branches. At
        most about ``LIMIT`` calls are examined.
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
                    before = (
                        self.story.tensor(source, through.step - 1) or self.story.tensor(source, through.step) or {}
                    )
                    kind = self._kind(through, here) if user is None else "number"
                    if through.name == "grad":
                        found.setdefault(("gradient", through.step), Cut("gradient", through, source))
                    elif not before.get("requires_grad") or (connected and user is None):
                        pending.append((source, through.step - 1))
                    elif kind is not None:
                        found.setdefault((kind, through.step), Cut(kind, through, source, user))
        return sorted(found.values(), key=lambda cut: ORDER.index(cut.kind))

    def lost_terms(self) -> Iterator[LostTerm]:
        """Yield the terms of a loss that do not require grad although they were computed from a leaf that the loss
        trains.

        Once for each pair of the backward's line and the line of the addition. Only terms added to a one-element loss
        are searched: a factor or target without grad is usually intended.
        """
        story, reported = self.story, set[tuple[Span | None, Span | None]]()
        for backward in story.backwards():
            start = backward.operands[0].label if backward.operands and backward.error is None else None
            for term, at in self._plain_terms(start, backward.step):
                place = (story.span(backward.step), story.span(at))
                if place in reported:
                    continue
                reported.add(place)
                cuts = self.cuts(term, at)
                trained = self.leaves(start, backward.step)
                if cuts and self.leaves(cuts[0].tensor, cuts[0].event.step) & trained:
                    yield LostTerm(backward, term, at, cuts)

    def unreached(self) -> Iterator[Unreached]:
        """Yield, for each optimizer step, the calls that cut the last backward before it off from parameters which the
        optimizer holds but which were never updated, and which that backward did not reach otherwise.

        Each line of a cut is reported once; for each step's line, all cuts by no_grad count as one. A result of
        ``autograd.grad`` is not taken for a cut.
        """
        story, reported = self.story, set[object]()
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
                        missed.setdefault(place, (cut, set()))[1].update(
                            *(self.leaves(g, cut.event.step) for g in given)
                        )
                reached = self.leaves(start, backward.step)
                for where, (cut, leaves) in missed.items():
                    if leaves & passed_over and not leaves & passed_over & reached and where not in reported:
                        reported.add(where)
                        yield Unreached(
                            update,
                            backward,
                            cut,
                            tuple(label for label in update.holds if label in leaves & passed_over),
                        )

    def _passed_over(self, held: tuple[str, ...]) -> set[str]:
        """Return those of ``held`` that are leaves with requires_grad and were not written after the first backward;
        empty if there was no backward.
        """
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
        """Yield the terms of the sum ``start`` that do not require grad, each with the step at which it was added.

        Only one-element tensors are followed, through sums and through calls of ``FACTORS`` with a single tensor
        operand; a term must have been made by a recorded call.
        """
        story, pending = self.story, [start]
        while pending:
            label = pending.pop()
            record = story.tensor(label, step) or {}
            event = story.event(record.get("born"))
            if event is None or not record.get("requires_grad") or any(n != 1 for n in record.get("shape") or ()):
                continue
            if not (story.tensor(label, event.step) or {}).get("requires_grad"):
                continue  # a result of a custom Function, which got its graph after forward
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

    def leaves(self, label: str | None, step: int) -> set[str]:
        """Return the labels of the leaves that require grad from which a tensor was computed; for such a leaf itself,
        its own label.

        For a leaf that is a view (made under no_grad), those of its base. Empty if there are none.
        """
        record = self.story.tensor(label, step) or {}
        if record.get("is_leaf"):
            if (base := record.get("base")) is not None:  # a view made under no_grad
                return self.leaves(base, step)
            return {label} if label is not None and record.get("requires_grad") else set()
        nodes = (self.story.record("nodes", node) or {} for node in self.story.behind(record.get("grad_fn")))
        return {str(node["output"]) for node in nodes if node.get("name") == "AccumulateGrad" and node.get("output")}

    def _makers(self, label: str | None, step: int) -> Iterator[Event]:
        """The calls up to ``step`` that computed or wrote a tensor's values, the last one first."""
        storage = (self.story.tensor(label, step) or {}).get("storage")
        events = {
            event.step: event
            for key in (label, storage)
            if key
            for event in self._made.get(key, ())
            if event.step <= step
        }
        yield from (events[at] for at in sorted(events, reverse=True))

    def _sources(self, event: Event, label: str | None) -> Iterator[tuple[str, Event, Event | None]]:
        """Yield the tensors that a call depends on: its operands, and the tensors that were converted to the Python
        numbers among its arguments.

        Each as its label, the call that reads it, and, for a converted number, the call that received the number (else
        None). Of ``autograd.grad`` only the first operand; ``label`` itself only for ``detach_``.
        """
        if event.name == "grad":
            if event.operands and event.operands[0].label is not None:
                yield event.operands[0].label, event, None
            return
        for operand in event.operands:
            if operand.label is not None and (operand.label != label or event.name == "detach_"):
                yield operand.label, event, None
        if any(operand.label is None for operand in event.operands) or (event.name in FACTORIES and not event.operands):
            for number in self._handed(event):
                if number.operands and number.operands[0].label is not None:
                    yield number.operands[0].label, number, event

    def _kind(self, event: Event, label: str | None) -> Kind | None:
        record = self.story.tensor(label, event.step) or {}
        if event.name.endswith("_like"):
            return None  # only the shape was read
        if event.name in spellings("detach", in_place=True) | {"data"}:
            return "detach"
        if event.name in FACTORIES:
            return "copy"
        if event.step in self._off:
            return "no_grad"
        if any(
            (self.story.tensor(other, event.step) or {}).get("grad_fn") for other in event.results if other != label
        ):
            return None  # positions beside values (``topk``): what was meant to go on are the values
        dtype = str(record.get("dtype") or "")
        return (
            "integer"
            if dtype and not dtype.startswith(("float", "bfloat", "complex")) and record.get("kind") != "array"
            else None
        )

    def _handed(self, event: Event) -> list[Event]:
        """Return the calls (``item()``, …) that made the Python numbers used by ``event``: those in its own expression,
        else the last 50 earlier ones that reach it through variables of its function.

        If the source shows none, :meth:`_equal` looks for one by its value. Empty if that finds none.
        """
        program, span = self.story.program, event.span
        node = program.at(span) if program.tree else None
        if node is None or span is None:
            return []
        found = self._just_before(event, span)
        statement = program.statement(node)
        if statement is None or found:
            return found
        near = self._named_by(node, statement)
        near = near[: bisect_left(near, event.step, key=attrgetter("step"))]
        return near[-50:] or self._equal(event)

    def _just_before(self, event: Event, span: Span) -> list[Event]:
        """The calls that made Python numbers or arrays right before ``event``, as arguments are computed just before a
        call.

        The search goes back to the nearest earlier event that is the same call in the previous iteration, or that is
        neither in the expression ``span`` nor in a function called from the event's function.
        """
        events, end = self.story.events, event.step
        if event.scope not in self._outside:
            outside: list[int] = []
            self._outside[event.scope] = outside
            for each in events:
                deeper = len(each.scope) > len(event.scope) and each.scope[: len(event.scope)] == event.scope
                is_passed = deeper and each.kind == "call"
                outside.append((outside[-1] if outside else -1) if is_passed else each.step)
        start, outside = end, self._outside[event.scope]
        while start > 0 and (before := outside[start - 1]) >= 0:
            earlier = events[before]
            is_own = earlier.span == span and earlier.op == event.op  # the same call in the round before
            if earlier.kind != "call" or is_own or not _inside(earlier.span, span):
                break
            start = before
        start = outside[start - 1] if start else -1
        made, of_step = self._conversions, attrgetter("step")
        return made[bisect_right(made, start, key=of_step) : bisect_left(made, end, key=of_step)]

    @cached_property
    def _outside(self) -> dict[tuple[str, ...], list[int]]:
        """By scope: for each step, the last step up to it (itself included) that is not a call made inside a function
        called from that scope; -1 if there is none.
        """
        return {}

    @cached_property
    def _conversions(self) -> list[Event]:
        return list(self.story.calls(*TO_PYTHON, "numpy"))

    def _named_by(self, node: ast.AST, statement: ast.stmt) -> list[Event]:
        """The calls that made the Python numbers or arrays which ``node`` reads through variables of its function, in
        order.
        """
        if (node, statement) not in self._converted:
            names = self._names(node, statement)
            self._converted[node, statement] = sorted(
                (n for n, place, targets in self._numbers
                 if targets & names and _shares(self.story.program, place, statement)), key=attrgetter("step")
            )  # fmt: skip
        return self._converted[node, statement]

    @cached_property
    def _converted(self) -> dict[tuple[ast.AST, ast.stmt], list[Event]]:
        """Cache of :meth:`_named_by`."""
        return {}

    def _equal(self, event: Event) -> list[Event]:
        """The conversions to a Python number (``item()``), one of which gave ``event`` its argument; empty if none is
        found.

        They are recognised by their values: in each of at least ``ROUNDS`` executions of the call (of the first ``MOST
        + 1``), the argument is the same multiple of the number converted since the previous execution.
        """
        story = self.story
        steps = story.steps_at[event.span, event.op]
        given = {step: number for step in steps[: MOST + 1] if (number := _number(story.events[step])) is not None}
        if len(given) < ROUNDS or len(set(given.values())) < ROUNDS or event.step not in given or not self._numbers:
            return []
        ratios: dict[Span | None, list[float]] = defaultdict(list)
        found: dict[Span | None, Event] = {}
        before = -1
        for step, number in given.items():
            last = {e.span: e for e in story.calls(*TO_PYTHON) if before < e.step < step}
            before = step
            for span, conversion in last.items():
                value = converted(self.story, conversion)
                if value:
                    ratios[span].append(number / value)
                    if step == event.step:
                        found[span] = conversion
        return [
            conversion for span, conversion in found.items()
            if len(ratios[span]) == len(given) and all(abs(r / ratios[span][0] - 1) < NEAR for r in ratios[span])
        ]  # fmt: skip

    def _names(self, node: ast.AST, statement: ast.stmt) -> set[str]:
        """Return the names that ``node`` reads, and the names from which these are computed by assignments anywhere in
        the function of ``statement``, followed back in three passes over the assignments.
        """
        if (node, statement) not in self._named:
            names = reads(self.story.program, node)
            for _ in range(3):
                for targets, read in self._assignments[self.story.program.function(statement)]:
                    if targets & names:
                        names = names | read
            self._named[node, statement] = names
        return self._named[node, statement]

    @cached_property
    def _named(self) -> dict[tuple[ast.AST, ast.stmt], set[str]]:
        """Cache of :meth:`_names`: in a loop the same names are asked for in each iteration."""
        return {}

    @cached_property
    def _assignments(self) -> dict[Function | None, list[tuple[set[str], set[str]]]]:
        """The assignments of each function, in order: the names that each assigns and the names that its value
        reads.
        """
        program = self.story.program
        found: dict[Function | None, list[tuple[set[str], set[str]]]] = defaultdict(list)
        for node in program.nodes:
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                found[program.function(node)].append((assigned(program, node), reads(program, node.value)))
        return found


def converted(story: Story, conversion: Event) -> float | None:
    """Return the finite number that ``item()``, ``float()`` or the like converted, if the trace has it; else None."""
    label = conversion.operands[0].label if conversion.operands else None
    record = story.tensor(label, conversion.step) or {}
    held = (
        (story.record("storages", record.get("storage"), conversion.step) or {}).get("cells")
        if label is not None
        else None
    )
    value = dict(flat(held)).get(record.get("offset") or 0)
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        else None
    )


def _number(event: Event) -> float | None:
    """The only Python number among the positional arguments of a call; None if there is none or several, or it is zero
    or not finite.
    """
    found = []
    for operand in event.operands:
        with contextlib.suppress(ValueError):
            if operand.label is None and not operand.name:
                found.append(float(operand.text))
    return found[0] if len(found) == 1 and found[0] and math.isfinite(found[0]) else None


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
