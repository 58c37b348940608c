"""Predicts from a trace what a change of one line would do: whether the program would compute anything else.

A change that alters nothing, or that only makes the program fail in a way that teaches nothing, is not worth a try.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pitfall_lab.rules.kit.overlaps import places
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, reads
from pitfall_lab.trace import Event
from pitfall_lab.trace.operation_facts import spellings

LOOKS = 3
"""How many executions of a line are examined at most."""
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign)
SHIFTS = spellings("add", "sub", in_place=True)
"""Writes through which the gradient flows unchanged, if what they add needs none."""
FILLING = "torch.nn.init."
REFUSED = {"leaf-modified", "view-of-leaf-modified", "multi-output-view-modified", "no-grad-view-modified"}


@dataclass(slots=True)
class _Touched:
    """The storages, and gradients (as ``"grad t3"``), that some calls wrote, changed in value, used otherwise, or
    needed as tensors saved by the graph nodes that a backward ran.
    """

    wrote: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    saved: set[str] = field(default_factory=set)


class ChangeEffects:
    """Answers whether changing one line of ``program`` would change what the program computes, from the ``story`` of
    its trace.

    The answer is False where the trace does not show an effect.
    """

    def __init__(self, story: Story, program: Program) -> None:
        self._story, self._program = story, program

    @cached_property
    def _by_line(self) -> dict[int, list[Event]]:
        found: dict[int, list[Event]] = defaultdict(list)
        for event in self._story.events:
            if event.kind in ("call", "write") and event.span is not None and event.span.source == 0:
                for line in range(event.span.line, event.span.end_line + 1):
                    found[line].append(event)
        return found

    def _events(self, statement: ast.stmt) -> list[Event]:
        place = self._program.place(statement)
        steps = {e.step: e for line in range(place.line, place.end_line + 1) for e in self._by_line.get(line, ())}
        return [steps[step] for step in sorted(steps)]

    def _written(self, statement: ast.stmt) -> Iterator[tuple[Event, str]]:
        """The first ``LOOKS`` writes of the statement (failed ones included), each with the label of the tensor or
        array that it wrote.
        """
        writes = [e for e in self._events(statement) if e.operands and (e.writes or e.error is not None)]
        for event in writes[:LOOKS]:
            label = event.operands[0].label
            if label is not None:
                yield event, label

    # ------------------------------------------------------------------ copies

    def copying(self, statement: ast.stmt, name: str) -> bool:
        """Whether the program would behave differently if ``statement`` wrote to a copy of ``name`` (source text)
        instead of writing in place.

        True if torch refused the write (to a leaf or a view), if a backward needed the old values, or if the storage is
        seen afterwards through another tensor or array, or under another name. In ``name[0]``, ``name`` must be a
        tensor, not a module or a list that contains it.

        Only the first ``LOOKS`` writes are examined. Initialisations (``torch.nn.init``) do not count, nor do writes to
        a leaf that requires grad, unless torch refused them: a copy would get no gradient of its own.
        """
        indexed = re.search(rf"(?<![\w.]){re.escape(name)}\[", self._program.segment(statement)) is not None
        return any(
            self._is_refused(event)
            or (
                (not indexed or self._is_called(event, label, name))
                and not self._is_leaf(event, label)
                and (
                    self._is_needed(event, label)
                    or self._has_aliases(event, label)
                    or self._has_other_names(event, label, name)
                )
            )
            for event, label in self._written(statement)
            if not event.op.startswith(FILLING)
        )

    def are_arrays(self, statement: ast.stmt) -> bool:
        """Whether the statement writes a NumPy array: arrays have no ``clone`` and no graph."""
        kinds = {(self._story.tensor(label) or {}).get("kind") for _, label in self._written(statement)}
        return "array" in kinds

    def _is_refused(self, event: Event) -> bool:
        return event.error is not None and event.error.kind in REFUSED

    def _is_called(self, event: Event, label: str, name: str) -> bool:
        storage = (self._story.tensor(label, event.step) or {}).get("storage")
        there = [label, *(other for other, _ in self._story.tensors_on(storage))] if storage else [label]
        return any(name in ((self._story.tensor(each, event.step) or {}).get("names") or ()) for each in there)

    def _is_leaf(self, event: Event, label: str) -> bool:
        record = self._story.tensor(label, event.step) or {}
        return bool(record.get("requires_grad") and record.get("is_leaf"))

    def _is_needed(self, event: Event, label: str) -> bool:
        """Whether a node created before the write had saved the storage that ``event`` wrote, and its backward then
        failed, or would fail, or used the new values.
        """
        storage = (self._story.tensor(label, event.step) or {}).get("storage")
        return any(
            int((self._story.record("nodes", node) or {}).get("born") or 0) < event.step
            for node in self._saving.get(storage, ())
            if node in self._broken
        )

    @cached_property
    def _broken(self) -> set[str | None]:
        trace = self._story.trace
        found = {failure.node for _, failure in self._story.failures("saved-tensor-modified")}
        found |= {forecast.failure.node for forecast in trace.forecasts}
        return found | {cause.node for harm in trace.harms for cause in harm.causes}

    @cached_property
    def _saving(self) -> dict[str | None, list[str]]:
        found: dict[str | None, list[str]] = defaultdict(list)
        for node, record in self._story.nodes.items():
            for slot in record.get("saved") or ():
                found[slot.get("storage")].append(node)
        return found

    def _has_aliases(self, event: Event, label: str) -> bool:
        story = self._story
        storage = (story.tensor(label, event.step) or {}).get("storage")
        for other, record in story.tensors_on(storage) if storage else ():
            if other == label or int(record.get("born") or 0) > event.step:
                continue
            then = story.tensor(other, event.step) or {}
            used = any(use.step > event.step and use.span != event.span for use in story.uses(other))
            if used or (then.get("alive") is not False and then.get("names")):
                return True
        return False

    def _has_other_names(self, event: Event, label: str, name: str) -> bool:
        """Whether a later call uses the written tensor in another function, or on a line that does not contain
        ``name``.
        """
        for use in self._story.uses(label):
            if use.step > event.step and (use.scope != event.scope or not self._says(use, name)):
                return True
        return False

    def _says(self, event: Event, name: str) -> bool:
        if event.span is None or event.span.source != 0:
            return True  # nothing is known of it
        lines = self._program.lines[event.span.line - 1 : event.span.end_line]
        return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", "".join(lines)) is not None

    # ------------------------------------------------------------------ the graph

    def unrecorded(self, statement: ast.stmt) -> bool:
        """Whether the program would behave differently if the statement's write ran under ``no_grad``: torch refused
        the write with an error that ``no_grad`` avoids, or a gradient came through it.

        An addition or subtraction of something that requires no grad does not count, as the gradient passes it
        unchanged; nor does a write that changes no value.
        """
        for event, label in self._written(statement):
            if self._is_refused(event) and event.error is not None and event.error.kind != "no-grad-view-modified":
                return True
            if self._is_needed(event, label):
                continue  # that backward fails all the same
            node = (self._story.tensor(label, event.step) or {}).get("grad_fn")
            before = (self._story.tensor(label, event.step - 1) or {}).get("grad_fn")
            others = [self._story.tensor(o.label, event.step) or {} for o in event.operands[1:] if o.label]
            passes = event.name.strip("_") in SHIFTS and not any(other.get("requires_grad") for other in others)
            ran = (self._story.record("nodes", node) or {}).get("ran") if node != before else None
            if ran is not None and not passes and self._places(event, event.writes[:1]) != set():
                return True
        return False

    def detaching(self, line: int, name: str) -> bool:
        """Whether a gradient comes through the tensor that line ``line`` assigns to ``name``, in backwards that all
        still reach a leaf without it.

        False if a backward would reach no leaf any more: that backward would only fail.
        """
        made = [
            node
            for event in self._by_line.get(line, ())
            for label in event.results
            for record in [self._story.tensor(label, event.step) or {}]
            if name in (record.get("names") or (record.get("name"),)) and (node := record.get("grad_fn"))
        ]
        through = [root for node in made[:LOOKS] for root in self._roots if node in self._behind(root)]
        return bool(through) and all(self._has_leaf(root, without={*made}) for root in dict.fromkeys(through))

    @cached_property
    def _roots(self) -> list[str]:
        """The nodes at which the backwards started, including the backwards that failed."""
        names = ("backward", "grad")
        labels = [(o.label, e.step) for e in self._story.calls(*names) for o in e.operands[:1] if o.label]
        found = ((self._story.tensor(label, step) or {}).get("grad_fn") for label, step in labels)
        return list(dict.fromkeys(str(node) for node in found if node))

    @cached_property
    def _nodes_behind(self) -> dict[str, frozenset[str]]:
        return {}

    def _behind(self, root: str) -> frozenset[str]:
        if root not in self._nodes_behind:
            self._nodes_behind[root] = frozenset(self._story.behind(root))
        return self._nodes_behind[root]

    def _has_leaf(self, root: str, without: set[str]) -> bool:
        pending, seen = [root], set(without)
        while pending:
            here = pending.pop()
            record = self._story.record("nodes", here) if here not in seen else None
            if record is None:
                continue
            seen.add(here)
            if record.get("name") == "AccumulateGrad":
                return True
            pending += [node for node in record.get("next") or () if node]
        return False

    # ------------------------------------------------------------------ gradients

    def keeping(self, clearing: ast.stmt) -> bool:
        """Whether a leaf's gradient is set or written again after the statement ``clearing`` has cleared it.

        A gradient that was set to None counts only if its values before are known and not all 0.
        """
        ends: dict[str, int] = {}
        for event in self._events(clearing):
            for effect in event.effects:
                group, label, *part = effect.path.split(".")
                if group == "tensors" and part == ["grad"] and effect.value is None:
                    before = (self._story.tensor(label, event.step - 1) or {}).get("grad")
                    if any(self._story.held(before, event.step - 1).values()):  # and not a gradient of zeros
                        ends.setdefault(label, event.step)
        for leaf, record in self._story.leaves.items():
            grads = self._story.history("tensors", leaf, "grad")
            if leaf in ends and any(label and step > ends[leaf] for step, label in grads):
                return True
            storage = (self._story.tensor(record.get("grad")) or {}).get("storage")
            steps = [e.step for e in self._events(clearing) if storage in e.writes]
            if storage and steps and self._story.writes(storage, steps[0], len(self._story.events)):
                return True
        return False

    def clearing(self, backward: ast.stmt) -> bool:
        """Whether a ``backward()`` that the statement ``backward`` ran without an error reaches a leaf that already had
        a gradient.
        """
        calls = [e for e in self._events(backward) if e.name == "backward" and e.error is None and e.operands]
        for event in calls:
            root = (self._story.tensor(event.operands[0].label, event.step) or {}).get("grad_fn")
            for node in self._behind(str(root)) if root else ():
                record = self._story.record("nodes", node) or {}
                leaf = record.get("output") if record.get("name") == "AccumulateGrad" else None
                if leaf and (self._story.tensor(leaf, event.step - 1) or {}).get("grad"):
                    return True
        return False

    # ------------------------------------------------------------------ order

    def swapping(self, first: ast.stmt, second: ast.stmt) -> bool:
        """Whether the neighbouring statements ``first`` and ``second`` can be swapped, and the program would then
        behave differently.

        They cannot if ``second`` reads a name that has no value before ``first``, or if either is not an expression or
        assignment (``return``, a loop). The order usually matters if one of them writes a storage, name or gradient
        that the other one uses or writes. False, too, if ``second`` has no recorded event or ``first`` raised an error.
        """
        if not isinstance(first, SIMPLE) or not isinstance(second, SIMPLE):
            return False
        makes, needs = self._names(first), reads(self._program, second)
        own = reads(self._program, first)
        if makes & needs and not all(self._is_bound(name, first) for name in makes & needs):
            return False
        mine, theirs = self._events(first), self._events(second)
        if not theirs or any(event.error is not None for event in mine):
            return False
        if isinstance(second, ast.Assign) and isinstance(second.value, ast.Constant) and second.value.value is None:
            return False  # then the first one has nothing to work with
        if makes & needs or self._names(second) & (own | makes):
            return True
        one, other = self._touched(mine), self._touched(theirs, before=mine[0].step if mine else 0)
        if (
            one.wrote & other.saved
            or self._is_read(mine, one.changed & other.used, theirs)
            or self._is_read(theirs, other.changed & one.used, mine)
        ):
            return True
        both = one.changed & other.changed
        if all(isinstance(each, ast.AugAssign) and isinstance(each.op, (ast.Add, ast.Sub)) for each in (first, second)):
            return False
        return bool(both) and not self._commute(mine, theirs, both)

    def _commute(self, mine: list[Event], theirs: list[Event], both: set[str]) -> bool:
        """Whether two groups of writes to the storages ``both`` give the same result in any order: all only add or
        subtract, or they change different elements.
        """
        if all(event.name.strip("_") in SHIFTS for event in (*mine, *theirs) if {*event.writes} & both):
            return True
        one, other = (
            [self._places(event, both) for event in events if {*event.writes} & both] for events in (mine, theirs)
        )
        return all(a is not None and b is not None and not a & b for a in one for b in other)

    def _is_read(self, writing: list[Event], memory: set[str], reading: list[Event]) -> bool:
        """Whether calls in ``reading`` use an element of ``memory`` that ``writing`` changes; True if ``memory``
        contains a gradient. Elements that are not in the trace count as used.
        """
        storages = {each for each in memory if not each.startswith("grad ")}
        if storages != memory:
            return True
        changed = [self._places(event, storages) for event in writing if {*event.writes} & storages]
        read = [
            (storage, places(record))
            for event in reading
            for place, operand in enumerate(event.operands)
            if operand.label and (record := self._story.tensor(operand.label, event.step)) is not None
            and (storage := str(record.get("storage"))) in storages and (place or storage not in event.writes)
        ]  # fmt: skip
        return any(
            written is None or cells is None or any((storage, cell) in written for cell in cells)
            for written in changed
            for storage, cells in read
        )

    def _places(self, event: Event, storages: Iterable[str]) -> set[tuple[str, int]] | None:
        """The (storage, index) of the elements of these storages whose value the event changed; None if the trace does
        not have all values.
        """
        found: set[tuple[str, int]] = set()
        for storage in storages:
            if storage in event.writes:
                before, after = (
                    (self._story.record("storages", storage, at) or {}).get("cells")
                    for at in (event.step - 1, event.step)
                )
                if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
                    return None
                found |= {(storage, at) for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
        return found

    def _names(self, statement: ast.stmt) -> set[str]:
        """The names that the statement assigns; none if it is an augmented assignment that writes a tensor in place."""
        in_place = isinstance(statement, ast.AugAssign) and any(event.writes for event in self._events(statement))
        return set() if in_place else assigned(self._program, statement)

    def _is_bound(self, name: str, first: ast.stmt) -> bool:
        """Whether the name is assigned on an earlier line of the same function, or is a parameter of the function."""
        function = self._program.function(first)
        line = self._program.place(first).line
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            arguments = function.args
            if name in {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}:
                return True
        earlier = (
            node
            for node in self._program.nodes
            if isinstance(node, ast.stmt) and isinstance(node, (*SIMPLE, ast.For)) and node.lineno < line
        )
        return any(
            self._program.function(node) is function
            and name in (assigned(self._program, node.target if isinstance(node, ast.For) else node))  # type: ignore[arg-type]
            for node in earlier
        )

    def _used(self, event: Event) -> Iterator[str]:
        """The storages that the call reads, except those of which its result is a view, and the gradients that it reads
        (``"grad t3"``).
        """
        story = self._story
        made = {(story.tensor(label, event.step) or {}).get("storage") for label in event.results}
        for place, operand in enumerate(event.operands):
            storage = (story.tensor(operand.label, event.step) or {}).get("storage") if operand.label else None
            written = storage in event.writes and (not place or self._puts_back(event, str(storage)))
            if storage and storage not in made and not written:
                yield storage
            if operand.label in self._gradients:
                yield f"grad {self._gradients[operand.label]}"

    def _puts_back(self, event: Event, storage: str) -> bool:
        """Whether this call is the ``__setitem__`` at the end of ``total[i] += 1``: it stores the element that is
        already written, and changes nothing.
        """
        return event.name == "__setitem__" and self._places(event, (storage,)) == set()

    def _touched(self, events: Iterable[Event], before: int = 0) -> _Touched:
        """The storages and gradients that the calls write and use; ``saved`` has only those of nodes created before the
        step ``before``.
        """
        story, found = self._story, _Touched()
        for event in list(events)[: 8 * LOOKS]:
            found.wrote.update(event.writes)
            found.changed.update(each for each in event.writes if self._places(event, (each,)) != set())
            for effect in event.effects:
                group, label, *part = effect.path.split(".")
                if group == "tensors" and part == ["grad"]:
                    found.changed.add(f"grad {label}")
            found.used.update(self._used(event))
            if event.name in ("backward", "grad") and event.operands:
                root = (story.tensor(event.operands[0].label, event.step) or {}).get("grad_fn")
                for node in self._behind(str(root)) if root else ():
                    record = story.record("nodes", node) or {}
                    if int(record.get("born") or 0) < before:
                        found.saved.update(str(each["storage"]) for each in record.get("saved") or ())
        return found

    @cached_property
    def _gradients(self) -> dict[str, str]:
        """Each tensor that is or was the ``.grad`` of a leaf, with that leaf (labels)."""
        return {
            str(label): leaf
            for leaf in self._story.leaves
            for _, label in self._story.history("tensors", leaf, "grad")
            if label
        }
