"""Finds aliases (detach, view, numpy) that a program keeps as if they were copies, although it keeps writing the same
storage.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called, is_name, written_root
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMPARING = spellings("eq", "ne", "sub") | {"allclose", "dist", "equal", "isclose", "l1_loss", "mse_loss"}
"""Calls that compare old and new values."""
MIXING = ("add_", "sub_", "lerp_")
"""In-place operations that average a tensor with another one."""
COMPARED_ARRAYS = {"allclose", "array_equal", "isclose", "array_equiv"}
PAIR = 2
MANY = 3
"""From this number of aliases made by one line and alive at once, they are taken to be in a collection."""
WRAPPING = {"dict", "list", "tuple", "OrderedDict"}
"""Calls that make new containers of the same tensors."""
COLLECTING = {"append", "extend", "add", "insert", "put", "setdefault"}


BETTER = (ast.Lt, ast.Gt, ast.LtE, ast.GtE)
"""The comparisons by which a program decides what the best one so far is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """An alias of a storage that a program kept as if it were a copy, and used after the storage had been written.

    ``made`` is the call (``Event``) that returned the tensor ``label``, an alias on the storage ``storage``; both are
    labels. The storage was written at the step ``changed``, and the alias used as if unchanged at the step ``used``
    (for ``collected``, the step that made the last alias; for ``altered``, the step that used another tensor on the
    storage). ``how`` says in which way:

    - ``compared``: with a tensor on the same storage, so that the difference is always zero;
    - ``mixed``: averaged with a tensor on the same storage, so that the average never differs from it;
    - ``collected``: several times by one line, always from the same storage, so that all entries are equal;
    - ``altered``: the alias was written, and both it and another tensor on its storage are read later;
    - ``activated``: a layer that works in place, called inside a module, wrote the tensor before the alias was first
      read;
    - ``best``: assigned in a loop where a comparison held, as the best one so far, and read after a later iteration had
      written it.
    """

    how: Literal["compared", "mixed", "collected", "altered", "activated", "best"]
    made: Event
    label: str
    storage: str
    changed: int
    used: int


class Aliases:
    """The tensors and arrays that calls named ``makers`` (``"detach"``, ``"numpy"``, …) returned in one trace.

    ``made`` has a triple for each: the call (``Event``), the label of its result, and the label of the result's
    storage. It is empty if the program cannot be parsed.
    """

    def __init__(self, story: Story, *makers: str) -> None:
        self.story = story
        self.made: list[tuple[Event, str, str]] = []
        for event in story.calls(*makers):
            if event.name in ("grad", "data") and not event.op.endswith("__get__"):
                continue
            label = event.results[0] if event.results and event.error is None else None
            storage = (story.tensor(label, event.step) or {}).get("storage")
            if label is not None and storage is not None and story.program.tree is not None:
                self.made.append((event, label, storage))

    def kept(self) -> Iterator[Kept]:
        """Yield the aliases that were used as if they were copies, one for each line that makes them: the compared,
        collected, altered and activated ones, in this order.

        Those of :meth:`best` are not included.
        """
        reported = set()
        for found in (*self.compared(), *self.collected(), *self.altered(), *self.activated()):
            place = self.story.span(found.made.step)
            if place not in reported:
                reported.add(place)
                yield found

    def _written(self, storage: str, after: int, until: int) -> int | None:
        return next(iter(self.story.writes(storage, after, until)), None)

    def compared(self) -> Iterator[Kept]:
        """Yield aliases that were subtracted from, compared with or averaged with the tensor they are an alias of,
        after a write to the storage.

        The two tensors must have the same storage, offset, shape and strides, and the alias must be made in another
        statement. For arrays, comparisons are found in the source, and only the storage must be the same.
        """
        story = self.story
        by_label = defaultdict(list)
        for made in self.made:
            by_label[made[1]].append(made)
        for event in story.calls(*COMPARING, *MIXING) if self.made else ():
            labels = [o.label for o in event.operands if o.label is not None][:2]
            records = [story.tensor(label, event.step) or {} for label in labels]
            if len(labels) < 2 or any(
                records[0].get(k) != records[1].get(k) for k in ("storage", "offset", "shape", "stride")
            ):
                continue
            here = story.program.statement_at(story.span(event.step))
            mixes = event.name in MIXING
            for each in labels[:1] if mixes and labels[0] != labels[1] else () if mixes else dict.fromkeys(labels):
                found = (self._stale(*made, event, here) for made in by_label[each])
                yield from [replace(kept, how="mixed") if mixes else kept for kept in found if kept is not None][:1]
        yield from self._compared_arrays()

    def _stale(self, made: Event, label: str, storage: str, event: Event, here: ast.stmt | None) -> Kept | None:
        elsewhere = made.step < event.step and self.story.program.statement_at(self.story.span(made.step)) is not here
        changed = self._written(storage, made.step, event.step) if elsewhere else None
        return None if changed is None else Kept("compared", made, label, storage, changed, event.step)

    def _compared_arrays(self) -> Iterator[Kept]:
        """Yield arrays that were compared with, or subtracted from, arrays on the same
        memory, as the source shows it.
        """
        program = self.story.program
        arrays = [
            m for m in self.made if (self.story.tensor(m[1]) or {}).get("kind") == "array" and self.story.name(m[1])
        ]
        for node in program.nodes if arrays else ():
            sides: list[ast.expr] = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                sides = [node.left, node.right]
            elif isinstance(node, ast.Compare) and len(node.comparators) == 1:
                sides = [node.left, node.comparators[0]]
            elif isinstance(node, ast.Call) and called(node) in COMPARED_ARRAYS:
                sides = node.args[:2]
            if len(sides) < PAIR:
                continue
            for kept, other in (sides, sides[::-1]):
                text = program.segment(kept)
                inside = {
                    (self.story.tensor(r) or {}).get("storage") for e in self.story.within(other) for r in e.results[:1]
                }
                steps = [e.step for e in self.story.within(other)]
                for made, label, storage in arrays:
                    if self.story.name(label) == text and storage in inside and steps[-1] > made.step:
                        changed = self._written(storage, made.step, steps[-1])
                        if changed is not None:
                            yield Kept("compared", made, label, storage, changed, steps[-1])

    def collected(self) -> Iterator[Kept]:
        """Yield aliases of one storage that one line made several times, with a write to the storage between the first
        and the last; only the first of them is yielded.

        The line must put them into a container, or at least ``MANY`` of them must be alive when the last is made; the
        first must be alive then in any case.
        """
        story, places = self.story, defaultdict(list)
        for made in self.made:
            places[made[0].span, made[2]].append(made)
        for (span, storage), rounds in places.items():
            first, last = rounds[0], rounds[-1]
            alive = [made for made in rounds if self._lives_at(made[1], last[0].step)]
            several = (
                len({label for _, label, _ in alive}) >= MANY
            )  # one tensor, such as w.grad, lives without being collected
            if len(rounds) > 1 and (several or is_collected(story.program, story.program.at(span))):
                changed = self._written(storage, first[0].step, last[0].step)
                if changed is not None and first in alive:
                    yield Kept("collected", first[0], first[1], storage, changed, last[0].step)

    def _lives_at(self, label: str, step: int) -> bool:
        """Whether the alias was still held by the program at ``step``."""
        return all(alive or died > step for died, alive in self.story.history("tensors", label, "alive"))

    def altered(self) -> Iterator[Kept]:
        """Yield aliases assigned to a name that were then written through that name, if both they and another tensor on
        the same storage are read afterwards.
        """
        story, program = self.story, self.story.program
        for made, label, storage in self.made:
            statement = program.statement_at(story.span(made.step))
            if not isinstance(statement, ast.Assign) or not is_name(statement.targets[0]):
                continue
            if statement.value is not program.at(story.span(made.step)):
                continue
            name = program.segment(statement.targets[0])
            for step in story.writes(storage, made.step, len(story.events)):
                written = program.statement_at(story.span(step))
                target = written_root(written) if written is not None else None
                if target is None or program.segment(target) != name or not self._read(label, name, step):
                    continue
                others = [
                    other
                    for other, record in story.tensors_on(storage)
                    if other != label and record.get("kind") != "array"
                ]
                uses = (use for other in others for use in story.uses(other))
                if used := [
                    use.step for use in uses if use.step > step and use.name not in ("detach", "data", "numpy")
                ]:
                    yield Kept("altered", made, label, storage, step, min(used))
                    break

    def activated(self) -> Iterator[Kept]:
        """Yield aliases (``detach``, ``.data``) of a computed tensor that were first read after a layer had written
        that tensor in place.

        No line of the program shows this write: the layer's functional was called inside torch.
        """
        story = self.story
        for made, label, storage in self.made:
            source = made.operands[0].label if made.operands else None
            born = story.event((story.tensor(source, made.step) or {}).get("born"))
            if made.name not in ("detach", "data") or born is None or not born.operands or source not in born.results:
                continue
            step = self._written(storage, made.step, len(story.events))
            event = story.event(step)
            if (
                step is None
                or event is None
                or not event.op.startswith("torch.nn.functional.")
                or story.said(step) == event.name
            ):
                continue
            uses = [use.step for use in story.uses(label) if use.step > made.step]
            if uses and uses[0] > step and [o.label for o in event.operands[:1]] == [source]:
                yield Kept("activated", made, label, storage, step, uses[0])

    def best(self) -> Iterator[Kept]:
        """Yield aliases that were assigned in a loop under an ``if`` with ``<``, ``>``, ``<=`` or ``>=`` (usually the
        best result so far), and were read after another statement had written the storage.

        An ``if`` that only tests whether the name is still None does not count: there the alias is intended.
        """
        story, program = self.story, self.story.program
        for made, label, storage in self.made:
            node = program.at(story.span(made.step))
            statement = program.statement(node)
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is not node:
                continue
            around = list(program.ancestors(statement))
            test = next((each.test for each in around if isinstance(each, ast.If)), None)
            is_in_loop = any(isinstance(each, ast.For | ast.While) for each in around)
            tests = [n for n in ast.walk(test) if isinstance(n, ast.Compare)] if test is not None and is_in_loop else []
            if not any(isinstance(op, BETTER) for each in tests for op in each.ops):
                continue
            changed = self._written(storage, made.step, len(story.events))
            # The alias of a round that was not recorded is first seen where it is read.
            known = {
                label,
                *(other for other, record in story.tensors_on(storage) if self._is_first_seen(other, record, changed)),
            }
            uses = sorted(
                use.step for each in known for use in story.uses(each) if changed is not None and use.step > changed
            )
            if changed is not None and uses and program.statement_at(story.span(changed)) is not statement:
                yield Kept("best", made, label, storage, changed, uses[0])

    def _is_first_seen(self, label: str, record: Record, changed: int | None) -> bool:
        """Whether the tensor does not require grad, was returned by no recorded call, and first occurs in the trace
        after the step ``changed``.
        """
        born = record.get("born")
        event = self.story.event(born)
        is_made = event is not None and label in event.results
        return (
            changed is not None
            and born is not None
            and born > changed
            and not is_made
            and not record.get("requires_grad")
        )

    def _read(self, label: str, name: str, step: int) -> bool:
        """Whether the tensor ``label`` is read after ``step``: on a later line by the name ``name``, or by a call that
        has it as first operand and writes nothing.
        """
        if any(use.step > step and use.operands[0].label == label and not use.writes for use in self.story.uses(label)):
            return True
        line = span.end_line if (span := self.story.span(step)) else 0
        program = self.story.program
        return any(
            isinstance(n, ast.Name | ast.Attribute)
            and isinstance(n.ctx, ast.Load)
            and n.lineno > line
            and program.segment(n) == name
            for n in program.nodes
        )


def is_collected(program: Program, node: ast.AST | None) -> bool:
    """Whether ``node`` is put into a container: as an argument of ``append`` or the like, or assigned to ``d[key]``;
    False for None.

    ``node`` may also be inside a list, tuple, dictionary or comprehension that is put there.
    """
    return _put(program, node) is not None


def _put(program: Program, node: ast.AST | None) -> ast.Call | ast.Subscript | None:
    """The call, or the target of the assignment, that puts ``node`` into a container; None if nothing does."""
    while node is not None:
        parent = program.parents.get(node)
        if isinstance(parent, ast.Call) and node in parent.args and called(parent) in WRAPPING:
            node = parent
            continue
        if isinstance(parent, ast.Call):
            return parent if node in parent.args and called(parent) in COLLECTING else None
        if isinstance(parent, ast.Assign):
            target = parent.targets[0]
            return target if isinstance(target, ast.Subscript) else None
        if not isinstance(parent, ast.List | ast.Tuple | ast.Dict | ast.ListComp | ast.DictComp):
            return None
        node = parent
    return None


def relied_on(story: Story, kept: Kept, text: T) -> list[Related]:
    """Return, in a list, the related line (with the message ``text``) that used the alias ``kept`` as if it were
    unchanged.

    For collected aliases, it is the first line after the loop that reads the container. Empty if the source shows no
    such line.
    """
    if kept.how != "collected":
        return [story.related("used", kept.used, text)]
    program = story.program
    node = program.at(story.span(kept.made.step))
    put = _put(program, node)
    into = put.value if isinstance(put, ast.Subscript) else put.func if put is not None else None
    into = into.value if isinstance(put, ast.Call) and isinstance(into, ast.Attribute) else into
    loops = [each for each in program.ancestors(node) if isinstance(each, ast.For | ast.While)] if node else []
    if into is None or not loops:
        return []
    last, name, function = loops[-1].end_lineno or 0, program.segment(into), program.function(into)
    reads = [
        each
        for each in program.nodes
        if isinstance(each, ast.Name | ast.Attribute)
        and isinstance(each.ctx, ast.Load)
        and each.lineno > last
        and program.function(each) is function
        and program.segment(each) == name
    ]
    first = min(reads, key=lambda each: (each.lineno, each.col_offset), default=None)
    if first is None:
        return []
    seen = (e.step for e in story.calls() if e.step > kept.used and e.span is not None and e.span.line == first.lineno)
    return [Related("used", program.place(first), next(seen, None), text)]


def copied_where_made(story: Story, kept: Kept) -> tuple[Fix, ...]:
    """Return at most one fix, which copies where the alias ``kept`` is made: ``w.detach().clone()`` for ``w.detach()``,
    ``h.numpy().copy()`` for an array, a clone of each tensor for ``state_dict()``.

    Empty if the source shows no such expression.
    """
    program = story.program
    node = program.at(story.span(kept.made.step))
    if not isinstance(node, ast.expr):
        return ()
    if isinstance(node, ast.Call) and called(node) == "state_dict":
        text = program.segment(node)
        new = f"{{name: value.clone() for name, value in {text}.items()}}"
        title = T(en="Keep a copy of each tensor", zh="为每个张量保留一份副本")
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    array = (story.tensor(kept.label) or {}).get("kind") == "array"
    fix = appended(program, (node, ".copy()" if array else ".clone()"))
    return unique(program.text, [Fix(fix.title, fix.edits, meaning="later")])
