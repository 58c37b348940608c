"""Repairs that reorder lines: write after backward, or run the forward pass again after the write."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fix
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Clash, Story
from pitfall_lab.rules.kit.syntax import assigned, reads
from pitfall_lab.trace import T


def order_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Return fixes for ``clash`` that move the write after the backward, or that run the forward pass again after the
    write (a step between two backwards).

    The latter only if a leaf that requires grad is on the written storage. The list is empty if the write or the
    backward is unknown, if no function contains both, or if no such fix can be written.
    """
    if not clash.changed_at or clash.backward is None:
        return []
    changed = list(call_chain(story, story.line_event(clash.changed_at[0])))
    backward = list(call_chain(story, story.line_event(clash.backward)))
    saved = list(call_chain(story, story.line_event(clash.saved_at)))
    pair = meeting(program, changed, backward)
    if pair is None:
        return []
    again = second_forwards(program, *pair, saved) if is_leaf_memory(story, clash.storage) else []
    return [*moves(program, *pair), *again]


def is_leaf_memory(story: Story, storage: str | None) -> bool:
    """Whether a leaf that requires grad is on the storage labelled ``storage``; its new value is still there when the
    forward pass is run again. False for None.
    """
    return any(tensor.get("is_leaf") and tensor.get("requires_grad") for _, tensor in story.tensors_on(storage))


def meeting(program: Program, first: list[ast.stmt], second: list[ast.stmt]) -> tuple[ast.stmt, ast.stmt] | None:
    """Return the two statements of one block inside which ``first`` and ``second`` run: ``opt.step()`` and
    ``loss.backward()``, or the statements that call them.

    ``first`` and ``second`` are call chains (statements and their callers, innermost first). None if no function
    contains a statement of each, or if the same statement runs both.
    """
    for one in first:
        for other in second:
            if program.function(one) is program.function(other):
                return _siblings(program, one, other)
    return None


def _siblings(program: Program, one: ast.stmt, other: ast.stmt) -> tuple[ast.stmt, ast.stmt] | None:
    around_one = [one, *(a for a in program.ancestors(one) if isinstance(a, ast.stmt))]
    around_other = [other, *(a for a in program.ancestors(other) if isinstance(a, ast.stmt))]
    for a in around_one:
        for b in around_other:
            if a is not b and program.block(a) is program.block(b):
                return a, b
    return None


def moves(program: Program, changed: ast.stmt, backward: ast.stmt) -> list[Fix | None]:
    """Return a list with the fix that moves the statement ``changed``, which writes memory, after ``backward``, the
    statement that runs backward.

    Empty if ``changed`` is already below ``backward``, if one of the two shares its lines with another statement, or if
    they overlap.
    """
    if changed.lineno > backward.lineno or not program.stands_alone(changed) or not program.stands_alone(backward):
        return []
    first, last = program.place(changed), program.place(backward)
    moved = "".join(program.lines[first.line - 1 : first.end_line])
    after = "".join(program.lines[last.line - 1 : last.end_line])
    edits = merge((Edit(last.line, last.end_line, _ended(after) + _ended(moved)),), program.delete(changed))
    shown = " ".join(program.segment(changed).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    return (
        [
            Fix(
                T(
                    en=f"Move `{shown}` after the backward pass that needs the old values",
                    zh=f"把 `{shown}` 移到需要旧值的反向传播之后",
                ),
                edits,
            )
        ]
        if edits
        else []
    )


def _ended(text: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + "\n"


def second_forwards(program: Program, changed: ast.stmt, backward: ast.stmt, saved: list[ast.stmt]) -> list[Fix | None]:
    """Return fixes that repeat the assignments which ``backward`` depends on, after the statement ``changed`` (the
    write) or right before ``backward``.

    The fixes go back over more and more assignments, of up to 6 statements and 20 lines, and preferably contain the
    line that saved the tensor; ``saved`` are the statements of that line's call chain. At most eight fixes. Where
    nothing needs the assignments before the write, they are moved after it instead. Empty if no assignment is found.
    """
    ordered = changed.lineno < backward.lineno
    needed = reads(program, backward)
    copied: list[ast.stmt] = []
    covers = {id(a) for s in saved for a in [s, *program.ancestors(s)]}
    # a forward method is called through its module, so the source does not show the caller:
    # allow any sequence of assignments
    known = any(program.function(s) is program.function(backward) for s in saved)
    fixes: list[Fix | None] = []
    others: list[Fix | None] = []
    seldom: list[Fix | None] = []
    for statement in _preceding(program, backward):
        if statement is changed or not assigned(program, statement) & needed:
            continue
        needed |= reads(program, statement)
        if ordered and statement.lineno > changed.lineno and program.block(statement) is program.block(changed):
            continue  # it runs after the write anyway
        copied.insert(0, statement)
        if len(copied) > 6 or sum(s.end_lineno - s.lineno + 1 for s in copied if s.end_lineno) > 20:
            break
        again = _touched(program, copied, covers) if known else copied
        kept = fixes if again else others
        before = _second_forward(program, backward, again or copied, after=False)
        # in a loop the write of one iteration affects the backward of the next; else lines in between may change more
        (seldom if ordered else kept).append(before)
        later = _later_forward(program, changed, again or copied) if ordered else None
        kept.append(later or _second_forward(program, changed, again or copied, after=True))
    return [*(fixes or others)[:6], *seldom[:2]]


def _touched(program: Program, copied: list[ast.stmt], covers: set[int]) -> list[ast.stmt]:
    """The assignments that contain the saving line, and those among the others that depend on them; the rest need not
    be repeated.
    """
    found: list[ast.stmt] = []
    names: set[str] = set()
    for statement in copied:
        if id(statement) in covers or reads(program, statement) & names:
            found.append(statement)
            names |= assigned(program, statement)
    return found


def _second_forward(program: Program, place: ast.stmt, copied: list[ast.stmt], *, after: bool) -> Fix:
    lines = [line for statement in copied for line in _dedented(program, statement)]
    edits = program.insert_after(place, *lines) if after else program.insert_before(place, *lines)
    shown = " ".join(program.segment(copied[0]).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    title = T(
        en=f"Run the forward pass again after the change, from `{shown}` on: it then uses the changed values",
        zh=f"在修改之后，从 `{shown}` 起重新做一次前向计算：这样用的是修改后的值",
    )
    return Fix(title, edits, meaning="recompute")


def _later_forward(program: Program, changed: ast.stmt, copied: list[ast.stmt]) -> Fix | None:
    """The fix that moves the assignments ``copied`` below the write; None if a statement in between reads what they
    assign, or assigns a name that they read or assign.
    """
    block = program.block(changed)
    if any(each not in block or not program.stands_alone(each) for each in copied):
        return None
    between = [each for each in block[block.index(copied[0]) : block.index(changed) + 1] if each not in copied]
    names, needed = ({name for each in copied for name in found(program, each)} for found in (assigned, reads))
    if any(reads(program, each) & names or assigned(program, each) & (names | needed) for each in between):
        return None
    lines = [line for statement in copied for line in _dedented(program, statement)]
    edits = merge(program.insert_after(changed, *lines), *(program.delete(each) for each in copied))
    shown = " ".join(program.segment(copied[0]).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    title = T(
        en=f"Move the forward pass after the change, from `{shown}` on: it then uses the changed values",
        zh=f"把从 `{shown}` 起的前向计算移到修改之后：这样用的是修改后的值",
    )
    return Fix(title, edits, meaning="recompute") if edits is not None else None


def _dedented(program: Program, statement: ast.stmt) -> list[str]:
    indent = program.indent(statement)
    lines = program.segment(statement).splitlines()
    return [lines[0], *(line.removeprefix(indent) for line in lines[1:])]


def _preceding(program: Program, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements that come before ``statement`` in its function, nearest first, without statements inside other
    branches or loops.
    """
    here: ast.AST | None = statement
    while isinstance(here, ast.stmt) and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        block = program.block(here)
        yield from reversed(block[: block.index(here)])
        here = next((a for a in program.ancestors(here) if isinstance(a, (ast.stmt, ast.Module))), None)
