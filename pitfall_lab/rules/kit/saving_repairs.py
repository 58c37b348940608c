"""Repairs by copying: on the line whose operation saves a tensor, or where an alias of its storage is made."""

from __future__ import annotations

import ast
from dataclasses import replace

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Clash, Story
from pitfall_lab.rules.kit.syntax import binds_name, called, is_name, operand, root, written_root
from pitfall_lab.trace import Span, T
from pitfall_lab.trace.operation_facts import spellings


def alias_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Return fixes for ``clash`` that copy where an alias of the storage is made: ``h.detach().clone()``,
    ``h.numpy().copy()``; not if one statement both makes the alias and writes it.

    The list also has fixes that copy a tensor before a view of it is made and, for writes to arrays, fixes that copy
    the array, or copy at conversions between tensor and array. Empty if the source does not show where to copy.
    """
    found: list[Fix | None] = []
    for step in clash.changed_at[:3]:
        event = story.event(step)
        label = event.operands[0].label if event and event.operands else None
        tensor = story.tensor(label, step)
        if tensor and tensor.get("born") not in (None, step):
            birth = program.at(story.span(tensor["born"]))
            inside = program.statement(birth) is program.statement_at(story.span(step))
            if isinstance(birth, ast.expr) and tensor["born"] != clash.saved_at and not inside:
                is_array = tensor.get("kind") == "array"
                copied = appended(program, (birth, ".copy()" if is_array else ".clone()"))
                # The author took the array for a copy, so later results computed from the tensor were wrong as well.
                found.insert(0, replace(copied, meaning="later")) if is_array else found.append(copied)
            found += _clone_base(program, birth)
        if event is not None and (event.kind == "write" or (tensor or {}).get("kind") == "array"):
            found += _numpy_bridges(program, story.span(step))
            found += _array_copy(program, story.span(step))
    return found


def _clone_base(program: Program, birth: ast.AST | None) -> list[Fix | None]:
    """At most one fix, which copies before a view is made: ``weights = weights.clone()`` on a line before ``row =
    weights[0]``.

    Empty if ``birth`` is not an expression of views and in-place calls on a name, or is in the header of a block.
    """
    statement = program.statement(birth)
    if not isinstance(birth, ast.expr) or statement is None or hasattr(statement, "body"):
        return []
    name = root(birth)
    if name is birth or not is_name(name):
        return []
    text = program.segment(name)
    return [
        Fix(
            T(en=f"Use a copy of `{text}` from here on", zh=f"从这里起改用 `{text}` 的副本"),
            program.insert_before(statement, f"{text} = {text}.clone()"),
        )
    ]


def _numpy_bridges(program: Program, span: Span | None) -> list[Fix | None]:
    """Fixes that copy where a tensor and an array begin to share memory (``numpy()``, ``from_numpy()``, …): at most
    three that copy at one such call, then, for statements with several such calls, one that copies at all of them.

    Calls whose statement shares a name with the writing line come first; calls on the writing line itself are left out.
    """
    bridges = []
    for node in program.nodes:
        if isinstance(node, ast.Call) and (
            called(node) in spellings("as_tensor") | {"from_dlpack", "from_numpy", "frombuffer", "numpy"}
        ):
            to_tensor = called(node) in {"from_numpy", "as_tensor", "frombuffer", "from_dlpack"}
            bridges.append((node, ".clone()" if to_tensor else ".copy()"))
    here = program.statement_at(span)
    bridges = [
        bridge for bridge in bridges if program.statement(bridge[0]) is not here
    ]  # a copy that is written at once would be lost
    near = _names_at(program, span)

    def distance(item: tuple[ast.Call, str]) -> tuple[bool, int]:
        statement = program.statement(item[0])
        names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if statement else set()
        return (not names & near, item[0].lineno)

    nearest = sorted(bridges, key=distance)[:3]
    beside = [
        [other for other in bridges if program.statement(other[0]) is program.statement(one)] for one, _ in nearest
    ]
    alone: list[Fix | None] = [appended(program, one) for one in nearest]
    return alone + [appended(program, *every) for every in beside if len(every) > 1]


def _array_copy(program: Program, span: Span | None) -> list[Fix | None]:
    """At most one fix, which copies an array before it is written: ``a = a.copy()`` before ``a[0] = 1``.

    Empty if the statement writes to no name, or if a loop around it assigns that name.
    """
    statement = program.statement_at(span)
    name = written_root(statement) if statement is not None else None
    if statement is None or name is None:
        return []
    text = program.segment(name)
    if any(binds_name(loop, text) for loop in program.ancestors(statement)):
        return []  # a loop over an array's rows is there to fill the array: what is written into copies of them is lost
    return [
        Fix(
            T(en=f"Write into a copy of the array `{text}`", zh=f"写入数组 `{text}` 的副本"),
            program.insert_before(statement, f"{text} = {text}.copy()"),
        )
    ]


def _names_at(program: Program, span: Span | None) -> set[str]:
    statement = program.statement_at(span)
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if statement is not None else set()


def saving_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Return at most one fix for ``clash``: it copies the tensor that the operation saves, as ``sigmoid(x).clone()`` if
    that is its result, or ``sin(x.clone())`` if it is an input (at each occurrence of its name in the expression).

    Empty if the saving line does not show that tensor.
    """
    node = program.at(story.span(clash.saved_at))
    event = story.line_event(clash.saved_at)
    if event is None or not isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute)):
        return []
    shared = {label for label, _ in story.tensors_on(clash.storage)}
    if any(label in shared for label in event.results):
        return [appended(program, (node, ".clone()"))]
    names = {name for label in shared for name in (story.tensor(label) or {}).get("names", ()) if name}
    names |= {name for label in shared if (name := story.name(label, clash.saved_at))}
    inputs = [n for n in ast.walk(node) if isinstance(n, ast.expr) and is_name(n) and program.segment(n) in names]
    if not inputs or (isinstance(node, ast.Call) and node.func in inputs):
        return []
    first = program.segment(inputs[0])
    title = T(en=f"Let backward keep its own copy of `{first}`", zh=f"让反向传播保留自己的 `{first}` 副本")
    return [Fix(title, program.replace(*((n, program.segment(n) + ".clone()") for n in inputs)))]


def appended(program: Program, *copied: tuple[ast.expr, str]) -> Fix:
    """Return the fix that appends a text, ``.clone()`` or ``.copy()``, to each expression in ``copied`` (pairs of an
    expression and the text).
    """
    shown = [" ".join(program.segment(node).split()) for node, _ in copied]
    names = [f"`{name if len(name) <= 40 else name[:39] + '…'}`" for name in shown]
    own = "has memory of its own" if len(names) == 1 else "have memory of their own"
    return Fix(
        T(
            en=f"Copy here, so that {' and '.join(names)} {own}",
            zh=f"在这里复制，让 {' 和 '.join(names)} 拥有自己的内存",
        ),
        program.replace(*((node, operand(program, node) + text) for node, text in copied)),
    )
