"""Backwards through a graph that was freed: which backward freed it, and which lines built it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event, Failure

Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Reuse:
    """A backward, ``backward``, that raised because an earlier one, ``freed``, had freed the saved tensors of a node of
    its graph; both are calls (``Event``).

    ``failure`` is torch's error, which names the node; ``step`` is the step of the event that raised it. ``story`` has
    the look-ups of the trace.
    """

    story: Story
    step: int
    failure: Failure
    backward: Event
    freed: Event

    @property
    def root(self) -> str | None:
        """Return the label of the tensor on which the failing backward was called; None if it is unknown."""
        return root(self.backward)

    @property
    def born(self) -> int | None:
        """Return the step of the call that created the freed node; None if it was not recorded."""
        record = self.story.record("nodes", self.failure.node)
        return record.get("born") if record else None

    @property
    def statement(self) -> ast.stmt | None:
        """Return the statement that called the failing backward; None if there is none."""
        return self.story.program.statement_at(self.story.span(self.backward.step))

    def loop(self) -> Loop | None:
        """Return the innermost loop that ran the two backwards in different iterations; None if there is none."""
        around = [loops_around(self.story, event) for event in (self.backward, self.freed)]
        return next((loop for loop in around[0] if loop in around[1] and not self._in_one_round(loop)), None)

    def _in_one_round(self, loop: Loop) -> bool:
        """Whether both backwards ran in one iteration of the loop, judged by the order of the executed statements."""
        if self.freed.span == self.backward.span:
            return False
        program, last = self.story.program, -1
        for event in self.story.events[self.freed.step : self.backward.step + 1]:
            at = _place_in(program, loop, event) if event.kind == "call" and event.parent is None else None
            if at is not None and at < last:
                return False
            last = last if at is None else at
        return True

    def shared(self) -> str | None:
        """Return the label of the tensor whose graph both backwards went through: of those that both reach, the one
        nearest to the root of the failing backward.

        None if there is none.
        """
        ways = [list(self.story.behind(self._begins(each))) for each in (self.freed, self.backward)]
        walked = set(ways[0])
        for node in ways[1]:
            record = self.story.record("nodes", node) or {}
            if node in walked and record.get("output") is not None and record.get("name") != "AccumulateGrad":
                return str(record["output"])
        return None

    def carried(self) -> list[str]:
        """Return the labels of the tensors that were created before the first backward, are used between the two, and
        whose graph the failing backward goes through.
        """
        story = self.story
        behind = set(story.behind((story.tensor(self.root, self.backward.step) or {}).get("grad_fn")))
        found: dict[str, None] = {}
        for event in story.events[self.freed.step + 1 : self.backward.step]:
            for label in (operand.label for operand in event.operands) if event.kind == "call" else ():
                tensor = story.tensor(label, event.step)
                if label and tensor and tensor.get("grad_fn") in behind and (tensor.get("born") or 0) < self.freed.step:
                    found[label] = None
        return list(found)

    def _begins(self, backward: Event) -> str | None:
        tensor = self.story.tensor(root(backward), backward.step) or {}
        node = tensor.get("grad_fn")
        return str(node) if node is not None else None

    def built_in(self, loop: Loop) -> bool:
        """Whether the freed node was created by a statement inside ``loop``, or by a line that ran again between the
        two backwards.

        The latter counts only if the root of the failing backward was created after the first backward.
        """
        event = self.story.line_event(self.born)
        return loop in loops_around(self.story, event) or self._made_again(event)

    def _made_again(self, event: Event | None) -> bool:
        """Whether the line of ``event`` ran again between the two backwards, and the root of the failing backward was
        created after the first one.
        """
        new = ((self.story.tensor(self.root) or {}).get("born") or 0) > self.freed.step
        passes = self.story.steps_at[event.span, event.op] if event is not None and event.span is not None else []
        return new and any(self.freed.step < step < self.backward.step for step in passes)


def reuses(story: Story) -> Iterator[Reuse]:
    """Yield the backwards that raised because their graph had been freed, each with the backward that freed it.

    Yields nothing if the program cannot be parsed; a failure is left out if both backwards are the same call or the
    freeing was not recorded.
    """
    for step, failure in story.failures("backward-twice"):
        backward = story.outer_call(step)
        gone = [at for at, freed in story.history("nodes", failure.node, "freed") if freed and at < step]
        freed = story.outer_call(max(gone, default=None))
        if (
            backward is not None
            and freed is not None
            and freed.step != backward.step
            and story.program.tree is not None
        ):
            yield Reuse(story, step, failure, backward, freed)


def builders(story: Story, backward: Event) -> list[ast.stmt]:
    """Return the statements, in source order, that made the calls which built the graph of ``backward``; for a call
    inside functions, the outermost caller that is known, usually outside any function.
    """
    tensor = story.tensor(root(backward), backward.step) or {}
    steps = {(story.record("nodes", node) or {}).get("born") for node in story.behind(tensor.get("grad_fn"))}
    found: dict[ast.stmt, None] = {}
    for step in sorted(step for step in steps if step is not None):
        for statement in list(call_chain(story, story.line_event(step)))[-1:]:
            found[statement] = None
    return sorted(found, key=lambda statement: statement.lineno)


def _place_in(program: Program, loop: Loop, event: Event) -> int | None:
    """The index of the statement in the loop's body in which an event happened.

    None if it is not in the body itself (but in ``else`` or in a called function).
    """
    node: ast.AST | None = program.at(event.span)
    while node is not None:
        if program.parents.get(node) is loop:
            return loop.body.index(node) if node in loop.body else None
        node = program.parents.get(node)
    return None


def root(backward: Event) -> str | None:
    """Return the label of the tensor on which this backward was called; None if it is unknown."""
    return backward.operands[0].label if backward.operands else None


def loops_around(story: Story, event: Event | None) -> list[Loop]:
    """Return the loops around the statements that were being executed at ``event``, innermost first, including loops
    around the callers; empty for None.
    """
    program = story.program
    return [
        around
        for statement in call_chain(story, event)
        for around in program.ancestors(statement)
        if isinstance(around, Loop)
    ]


def indented(program: Program, statement: ast.stmt, indent: str) -> str:
    """Return the text of the whole statement, moved to the indentation ``indent``, with its line end."""
    place, old = program.place(statement), program.indent(statement)
    lines = program.lines[place.line - 1 : place.end_line]
    text = "".join(indent + line.removeprefix(old) if line.strip() else line for line in lines)
    return text if text.endswith(("\n", "\r")) else text + "\n"
