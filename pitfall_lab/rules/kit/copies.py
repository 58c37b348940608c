"""Finds in-place writes to a copy that is never read, so that the intended tensor keeps its old values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import METHOD_OPERATORS, called, root
from pitfall_lab.trace import Event, T

VIEWING = {
    "__getitem__",
    "view",
    "reshape",
    "flatten",
    "ravel",
    "t",
    "transpose",
    "permute",
    "squeeze",
    "unsqueeze",
    "select",
    "narrow",
    "detach",
    "data",
}
"""Calls whose results are views: writes to these count as writes to the tensor itself."""


@dataclass(frozen=True, slots=True)
class LostWrite:
    """A write to a copy that nothing read afterwards.

    ``write`` is the first call (``Event``) that changed the copy; the call ``copy`` made it from the tensor ``source``
    (a label). ``statement`` is the statement of that write, ``last`` the statement of the last write. ``story`` has the
    look-ups of the trace.
    """

    story: Story
    copy: Event
    source: str
    write: Event
    statement: ast.stmt
    last: ast.stmt
    name: str | None
    """The variable that holds the copy, or None; if there is one, the copy is made by an assignment before the writes.
    """


def lost_writes(story: Story, *makers: str) -> Iterator[LostWrite]:
    """Yield the writes to copies made by calls with a name in ``makers``, one :class:`LostWrite` for each copy, where
    neither torch nor the program's source reads the copy afterwards and the copied tensor is still used.

    Only if each write is a statement of its own. Yields nothing if the program did not run to its end or cannot be
    parsed.
    """
    if story.trace.outcome.kind != "finished" or story.program.tree is None:
        return
    for event in story.calls(*makers):
        if event.error is None and len(event.results) == 1 and event.operands and (source := event.operands[0].label):
            found = _lost(story, event, source)
            if found is not None:
                yield found


def _lost(story: Story, copy: Event, source: str) -> LostWrite | None:
    """Return the first write to the copy made by ``copy``; None if the copy is used other than by writes and views,
    shares its source's storage, has several names, or its source is not used later.

    None, too, if a write is not a statement that discards its result, or the source text reads the copy's name
    elsewhere.
    """
    record = story.tensor(copy.results[0]) or {}
    storage = record.get("storage")
    if (
        storage is None
        or storage == (story.tensor(source, copy.step) or {}).get("storage")
        or record.get("kind") != "tensor"
    ):
        return None
    writes: list[Event] = []
    for label, _ in story.tensors_on(storage):
        for use in story.uses(label):
            if (
                storage in use.writes
                and use.operands[0].label == label
                and all(o.label != label for o in use.operands[1:])
            ):
                writes.append(use)
            elif use.name not in VIEWING or any((story.tensor(r) or {}).get("storage") != storage for r in use.results):
                return None
    writes.sort(key=lambda event: event.step)
    statements = [story.program.statement_at(story.span(event.step)) for event in writes]
    first, last = (statements[0], statements[-1]) if statements else (None, None)
    names = {
        n
        for label, _ in story.tensors_on(storage)
        for _, given in story.history("tensors", label, "names")
        for n in given or ()
    }
    name = next(iter(names)) if len(names) == 1 and next(iter(names)).isidentifier() else None
    if (
        first is None
        or last is None
        or len(names) > 1
        or (names and name is None)
        or not _read_later(story, source, writes[-1].step)
    ):
        return None
    if not all(s is not None and _is_write(s) for s in statements) or not unread(
        story.program, name, [s for s in statements if s is not None]
    ):
        return None
    here = story.program.statement_at(story.span(copy.step))
    if (name is None and here is not first) or (
        name is not None and not (isinstance(here, ast.Assign) and here is not first)
    ):
        return None
    return LostWrite(story, copy, source, writes[0], first, last, name)


def _is_write(statement: ast.stmt) -> bool:
    """Whether a statement only writes: ``h.add_(1)`` (any call of a name that ends in ``_``),
    ``h[0] = 1``, or any ``h += 1``.
    """
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and called(statement.value).endswith("_")
    return isinstance(statement, ast.AugAssign) or (
        isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript)
    )


def unread(program: Program, name: str | None, statements: list[ast.stmt]) -> bool:
    """Whether the program's source reads ``name`` (of a copy) only in ``statements``, the ones that write it; uses such
    as printing are not in the trace.

    True if ``name`` is None.
    """
    if name is None:
        return True
    writing = {id(n) for s in statements for n in ast.walk(s)}
    return not any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and id(n) not in writing
        for n in program.nodes
    )


def _read_later(story: Story, source: str, after: int) -> bool:
    """Whether the program uses the tensor ``source``, which kept its old values, after the step ``after``: a call with
    any tensor on the same storage, or a later line that contains its name.
    """
    storage = (story.tensor(source) or {}).get("storage")
    labels = [label for label, _ in story.tensors_on(storage)]
    if any(event.step > after for label in labels for event in story.uses(label)):
        return True
    line = span.line if (span := story.span(after)) else 0
    names = {n for label in labels if (n := story.name(label, after))}
    return any(
        isinstance(n, (ast.Name, ast.Attribute)) and n.lineno > line and story.program.segment(n) in names
        for n in story.program.nodes
    )


def whole_expression(lost: LostWrite) -> ast.expr | None:
    """Return the expression that made the copy of ``lost``: ``x[mask]`` in ``x[mask].zero_()``, or the value assigned
    to the copy's name; None if the source shows none.
    """
    node = lost.story.program.at(lost.story.span(lost.copy.step))
    if lost.name is not None:
        statement = lost.story.program.statement(node)
        return statement.value if isinstance(statement, ast.Assign) else None
    if isinstance(node, ast.Expr):
        node = node.value
    # one line makes the copy and writes it: the span is that of the whole chain of calls, or of a part of it
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node).endswith("_"):
        node = node.func.value
    return node if isinstance(node, ast.expr) else None


def assigned_back(lost: LostWrite, target: ast.expr) -> Fix | None:
    """Return the fix that writes through the subscript, so that ``x`` changes: ``x[mask] = 0`` for ``x[mask].zero_()``.

    ``target`` is the expression that made the copy. None unless the statement of ``lost`` is a method call on exactly
    this expression.
    """
    program, statement = lost.story.program, lost.statement
    text = program.segment(target)
    if (
        not isinstance(statement, ast.Expr)
        or not isinstance(statement.value, ast.Call)
        or not isinstance(statement.value.func, ast.Attribute)
    ):
        return None
    call, name = statement.value, called(statement.value)
    if not isinstance(call.func, ast.Attribute) or program.segment(call.func.value) != text:
        return None
    given = program.segment(call.args[0]) if len(call.args) == 1 and not call.keywords else None
    if name == "zero_":
        new = f"{text} = 0"
    elif name in ("fill_", "copy_") and given:
        new = f"{text} = {given}"
    elif name in METHOD_OPERATORS and given:
        new = f"{text} {METHOD_OPERATORS[name]}= {given}"
    else:
        new = f"{text} = {program.segment(call)}"
    source = program.segment(root(target))
    title = T(en=f"Write into `{source}` itself: `{new}`", zh=f"直接写入 `{source}`：`{new}`")
    return Fix(title, program.replace((statement, new)), meaning="later")


def written_back(lost: LostWrite, target: str) -> Fix | None:
    """Return the fix that assigns the changed copy of ``lost`` back to ``target`` (source text) after the last write:
    ``x[mask] = rows``.

    If ``target`` does not end with an index, the fix uses ``copy_`` instead. None if the copy has no name, or the first
    and the last write are in different blocks.
    """
    program = lost.story.program
    if lost.name is None or program.block(lost.statement) is not program.block(lost.last):
        return None
    new = f"{target} = {lost.name}" if target.endswith("]") else f"{target}.copy_({lost.name}.reshape({target}.shape))"
    return Fix(
        T(en=f"Put the changed copy back: `{new}`", zh=f"把修改后的副本写回去：`{new}`"),
        program.insert_after(lost.last, new),
        meaning="later",
    )
