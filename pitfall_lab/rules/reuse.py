"""Backwards through a graph that is gone: which backward used it up, and which lines built it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.calls import call_chain
from pitfall_lab.rules.source import Program
from pitfall_lab.rules.story import Story
from pitfall_lab.trace import Event, Failure

Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Reuse:
    """One backward that torch refused because an earlier one (``freed``) had used up a part of its graph (``node``)."""

    story: Story
    step: int
    failure: Failure
    backward: Event
    freed: Event

    @property
    def root(self) -> str | None:
        """The tensor that the refused backward started from."""
        return root(self.backward)

    @property
    def born(self) -> int | None:
        """The step that made the part of the graph that is gone."""
        record = self.story.record("nodes", self.failure.node)
        return record.get("born") if record else None

    @property
    def statement(self) -> ast.stmt | None:
        """The statement of the refused backward."""
        return self.story.program.statement_at(self.story.span(self.backward.step))

    def loop(self) -> Loop | None:
        """The innermost loop whose rounds ran both backwards; None when they do not meet in one."""
        around = [loops_around(self.story, event) for event in (self.backward, self.freed)]
        return next((loop for loop in around[0] if loop in around[1]), None)

    def built_in(self, loop: Loop) -> bool:
        """Was the part of the graph that is gone built inside ``loop``?"""
        return loop in loops_around(self.story, self.story.line_event(self.born))

    def builders(self) -> list[ast.stmt]:
        """The statements, in the order of the text, that built the graph behind the refused backward, as far as they stand in it."""
        tensor = self.story.tensor(self.root, self.backward.step) or {}
        steps = {(self.story.record("nodes", node) or {}).get("born") for node in self.story.behind(tensor.get("grad_fn"))}
        found: dict[ast.stmt, None] = {}
        for step in sorted(step for step in steps if step is not None):
            for statement in list(call_chain(self.story, self.story.line_event(step)))[-1:]:
                found[statement] = None
        return sorted(found, key=lambda statement: statement.lineno)


def reuses(story: Story) -> Iterator[Reuse]:
    """Every backward that torch refused because its graph was gone, with the one that had used it."""
    for step, failure in story.failures("backward-twice"):
        backward = story.outer_call(step)
        gone = [at for at, freed in story.history("nodes", failure.node, "freed") if freed and at < step]
        freed = story.outer_call(max(gone, default=None))
        if backward is not None and freed is not None and freed.step != backward.step and story.program.tree is not None:
            yield Reuse(story, step, failure, backward, freed)


def root(backward: Event) -> str | None:
    """The tensor that a backward starts from."""
    return backward.operands[0].label if backward.operands else None


def loops_around(story: Story, event: Event | None) -> list[Loop]:
    """The loops that were being run at ``event``, innermost first, those of the callers included."""
    program = story.program
    return [around for statement in call_chain(story, event) for around in program.ancestors(statement) if isinstance(around, Loop)]


def indented(program: Program, statement: ast.stmt, indent: str) -> str:
    """The text of a whole statement, moved to another indentation, with its line end."""
    place, old = program.place(statement), program.indent(statement)
    lines = program.lines[place.line - 1 : place.end_line]
    text = "".join(indent + line.removeprefix(old) if line.strip() else line for line in lines)
    return text if text.endswith(("\n", "\r")) else text + "\n"
