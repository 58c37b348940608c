"""Finds updates that rebind a name instead of changing the parameter: ``w = w - lr * w.grad`` makes a new tensor."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Event


@dataclass(frozen=True, slots=True)
class Rebinding:
    """An assignment, ``statement``, that computed a new tensor ``result`` from the parameter ``leaf`` (both labels) by
    the call ``event``, and gave the parameter's name to it.

    ``trouble`` is the step at which this first had an effect; None if the new tensor is never used.
    """

    statement: ast.Assign
    event: Event
    leaf: str
    result: str
    trouble: int | None


@lru_cache(maxsize=1)
def rebindings(story: Story) -> tuple[Rebinding, ...]:
    """Return the assignments such as ``w = w - lr * w.grad`` that gave a parameter's name to a new tensor, at most one
    for each assignment.

    Only those that had an effect; for a loop variable instead those whose new tensor is never used. Empty if there is
    none, or the program cannot be parsed.
    """
    if story.program.tree is None:
        return ()
    return tuple(
        found
        for node in story.program.nodes
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _reads_its_target(story, node)
        for found in _harmful(story, node)
    )


def _reads_its_target(story: Story, node: ast.Assign) -> bool:
    target = story.program.segment(node.targets[0])
    inner = (n for n in ast.walk(node.value) if isinstance(n, ast.Name | ast.Attribute | ast.Subscript))
    return any(story.program.segment(n) == target for n in inner)


def _harmful(story: Story, statement: ast.Assign) -> Iterator[Rebinding]:
    events = story.within(statement)
    place = story.program.place(statement.value)
    is_loop_variable = _is_loop_variable(story, statement)
    gradients = {
        event.operands[0].label for event in events if event.op == "torch.Tensor.grad.__get__" and event.operands
    }
    for event in events:
        given = [o.label for o in event.operands if o.label is not None]
        if event.span != place or event.error is not None or not event.results or event.results[0] in given:
            continue
        if is_loop_variable:  # `p = p * m + q * (1 - m)`: the parameter is given to a part of the whole
            given = [
                o.label
                for part in events
                for o in part.operands
                if o.label is not None and _is_parameter(story, o.label)
            ]
        leaf = next((label for label in given if label in story.leaves or _is_parameter(story, label)), None)
        if leaf is None or not (is_loop_variable or leaf in gradients) or _is_leaf(story, event.results[0], event.step):
            continue
        if is_loop_variable:
            if not story.uses(event.results[0]):
                yield Rebinding(statement, event, leaf, event.results[0], None)
                return
        elif (trouble := _trouble(story, event, event.results[0])) is not None:
            yield Rebinding(statement, event, leaf, event.results[0], trouble)
            return


def _is_parameter(story: Story, label: str | None) -> bool:
    """Whether the tensor is an ``nn.Parameter``, with or without requires_grad (averages of weights are kept in
    parameters without).
    """
    return (story.tensor(label) or {}).get("kind") == "parameter"


def _is_leaf(story: Story, label: str, step: int) -> bool:
    """Whether the tensor is a leaf that requires grad at its next use after ``step``, or in its last known state if it
    is not used again.
    """
    later = next((use.step for use in story.uses(label) if use.step > step and use.name != "requires_grad"), None)
    record = story.tensor(label, later) or {}
    return bool(record.get("is_leaf") and record.get("requires_grad"))


def _is_loop_variable(story: Story, statement: ast.Assign) -> bool:
    """Whether ``statement`` assigns to the variable of the innermost loop around it, which is a ``for`` loop, and no
    later line of the loop reads that variable.
    """
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return False
    loop = next((a for a in story.program.ancestors(statement) if isinstance(a, ast.For | ast.While)), None)
    if not isinstance(loop, ast.For):
        return False
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    last = statement.end_lineno or statement.lineno
    read = any(
        isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load) and n.lineno > last
        for part in loop.body
        for n in ast.walk(part)
    )
    return target.id in names and not read


def _trouble(story: Story, event: Event, result: str) -> int | None:
    """The first step at which the new tensor has an effect: its ``.grad``, which is None, is read, or a backward from a
    tensor computed from it fails as there is no gradient to compute.

    The event's own step if the program ends with a ``TypeError`` right after it (a module refuses a plain tensor for a
    parameter). None if there is no effect.
    """
    failed = {step for step, failure in story.failures("no-gradient") if _descends(story, failure.tensor, result)}
    unread = {
        use.step
        for use in story.uses(result)
        if use.op == "torch.Tensor.grad.__get__"
        and not use.results
        and not (story.tensor(result, use.step) or {}).get("grad")
    }
    ended = story.trace.outcome.failure
    if (
        ended is not None
        and ended.type == "TypeError"
        and all(later.name == "type" for later in story.events[event.step + 1 :])
    ):
        failed.add(event.step)  # a module refuses to assign a plain tensor to a parameter
    return min(failed | unread, default=None)


def _descends(story: Story, label: str | None, ancestor: str) -> bool:
    """Whether the tensor ``label`` was computed, directly or through others, from ``ancestor``."""
    reached = {ancestor}
    start = (story.tensor(ancestor) or {}).get("born") or 0
    for event in story.events[start:]:
        if event.kind == "call" and any(o.label in reached for o in event.operands):
            reached.update(event.results)
    return label in reached
