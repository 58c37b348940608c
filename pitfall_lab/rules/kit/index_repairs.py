"""Repairs that replace writes into an index, into a pre-allocated tensor, or into the tensors of a collection by new
tensors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import OPERATORS, called, is_name, operand, torch_name
from pitfall_lab.trace import Event, T

FACTORIES = {"zeros", "empty", "ones", "full", "new_zeros", "new_empty", "new_ones", "new_full"}
"""Calls in the program's source that allocate a tensor which a loop then fills."""


def index_repairs(program: Program, story: Story, step: int) -> Iterator[Fix | None]:
    """Yield fixes for the write to an index at ``step`` (``h[mask] = 0``, ``h[i] = v``, ``h[:, 0] *= 2``): they make a
    new tensor with those elements changed.

    A None among them is a fix that cannot be written. Yields nothing for other writes, or if the indexed expression is
    not a name.
    """
    event = story.event(step)
    statement = program.statement_at(story.span(step))
    target = _target(statement)
    if event is None or event.name != "__setitem__" or statement is None or target is None or not is_name(target.value):
        return
    yield _collected(program, story, statement, target, event)
    name, torch = program.segment(target.value), torch_name(program)
    value = _value(program, statement, target)
    if torch is None or value is None:
        return
    text, constant = value
    mask = _mask(story, event)
    if mask:
        yield _renewed(
            program, statement, name, _masked(program, target, statement, (name, torch, text), constant=constant)
        )
        return
    place = _place(target.slice)
    if place is None:
        return
    dim, index = place
    if constant:
        part = program.segment(target)
        fill = f"{torch}.zeros_like({part})" if text in ("0", "0.0") else f"{torch}.full_like({part}, {text})"
    else:
        fill = text
    if isinstance(index, ast.Slice):
        begin, end = (program.segment(each) if each is not None else "None" for each in (index.lower, index.upper))
        more = f", {begin}, {end}" if end != "None" else f", {begin}" if begin != "None" else ""
        yield _renewed(program, statement, name, f"{name}.slice_scatter({fill}, {dim}{more})")
    else:
        yield _renewed(program, statement, name, f"{name}.select_scatter({fill}, {dim}, {program.segment(index)})")


def _target(statement: ast.stmt | None) -> ast.Subscript | None:
    """The subscript that an assignment with a single target assigns to; None if the target is no subscript, or for
    other statements.
    """
    if isinstance(statement, ast.AugAssign):
        return statement.target if isinstance(statement.target, ast.Subscript) else None
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0] if isinstance(statement.targets[0], ast.Subscript) else None
    return None


def _value(program: Program, statement: ast.stmt, target: ast.Subscript) -> tuple[str, bool] | None:
    """The source of the value that the statement assigns, and whether that is a plain number (a constant, or a call of
    ``float``); None for other statements.
    """
    if isinstance(statement, ast.Assign):
        value = statement.value
        plain = isinstance(value, ast.Constant) or (
            isinstance(value, ast.UnaryOp) and isinstance(value.operand, ast.Constant)
        )
        plain = plain or (isinstance(value, ast.Call) and called(value) == "float")
        return program.segment(value), plain
    if isinstance(statement, ast.AugAssign) and type(statement.op) in OPERATORS:
        return f"{program.segment(target)} {OPERATORS[type(statement.op)]} {operand(program, statement.value)}", False
    return None


def _mask(story: Story, event: Event) -> bool:
    """Whether the event has three operands (tensor, index, value), and the index is one tensor of booleans."""
    index = event.operands[1] if len(event.operands) == 3 else None
    return index is not None and (story.tensor(index.label, event.step) or {}).get("dtype") == "bool"


def _masked(
    program: Program, target: ast.Subscript, statement: ast.stmt, words: tuple[str, str, str], *, constant: bool
) -> str | None:
    name, torch, text = words
    mask = program.segment(target.slice)
    if constant:
        return f"{name}.masked_fill({mask}, {text})"
    if isinstance(statement, ast.AugAssign):
        return (
            f"{torch}.where({mask}, {name} {OPERATORS[type(statement.op)]} {operand(program, statement.value)}, {name})"
        )
    value = statement.value if isinstance(statement, ast.Assign) else None
    if isinstance(value, ast.Subscript) and program.segment(value.slice) == mask:
        return f"{torch}.where({mask}, {program.segment(value.value)}, {name})"
    return f"{name}.masked_scatter({mask}, {text})"


def _place(index: ast.expr) -> tuple[int, ast.expr] | None:
    """The dimension and the index or slice, if the index selects in one dimension only: 1 and ``0`` for ``[:, 0]``.

    The dimension is -1 for ``[..., 0]``. None if the index selects in no or several dimensions, is a slice with a step,
    or is a call, a list or another subscript.
    """
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    ellipsis = isinstance(parts[0], ast.Constant) and parts[0].value is Ellipsis
    chosen = [(at, part) for at, part in enumerate(parts) if not _is_all(part)]
    if len(chosen) != 1 or (ellipsis and chosen[0][0] != len(parts) - 1):
        return None
    at, part = chosen[0]
    if isinstance(part, ast.Slice):
        return (-1 if ellipsis else at, part) if part.step is None else None
    whole = isinstance(part, ast.Constant | ast.UnaryOp | ast.Name | ast.BinOp)
    return (
        (-1 if ellipsis else at, part)
        if whole and not (isinstance(part, ast.Constant) and not isinstance(part.value, int))
        else None
    )


def _is_all(part: ast.expr) -> bool:
    whole = isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None
    return whole or (isinstance(part, ast.Constant) and part.value is Ellipsis)


def _renewed(program: Program, statement: ast.stmt, name: str, text: str | None) -> Fix | None:
    if text is None:
        return None
    scatter = re.search(r"\w+_scatter(?=\()", text)
    does_en = f" (`{scatter[0]}`: a copy with this part replaced)" if scatter else ""
    does_zh = f"（`{scatter[0]}`：替换了这一部分的副本）" if scatter else ""
    title = T(
        en=f"Make a new tensor instead of overwriting `{name}`{does_en}",
        zh=f"生成新张量，而不是覆盖 `{name}`{does_zh}",
    )
    return Fix(title, program.replace((statement, f"{name} = {text}")))


# --- a prepared tensor, filled in a loop ----------------------------------------------------------------------------


def _collected(program: Program, story: Story, statement: ast.stmt, target: ast.Subscript, event: Event) -> Fix | None:
    """The fix for ``states[t + 1] = …`` in a loop that collects the values in a list and stacks them.

    None unless the trace shows that the indices were 0, 1, 2, … up to the last one, every use of the name can also be
    written with a list, and the name is used after the loop.
    """
    function = program.function(statement)
    loop = next(
        (a for a in program.ancestors(statement) if isinstance(a, ast.For) and program.function(a) is function), None
    )
    name, torch = target.value, torch_name(program)
    dim = _filled(story, event)
    if (
        loop is None
        or not isinstance(name, ast.Name)
        or not isinstance(statement, ast.Assign)
        or torch is None
        or dim is None
    ):
        return None
    own = [n for n in program.nodes if isinstance(n, ast.Name) and n.id == name.id and program.function(n) is function]
    made = [program.statement(n) for n in own if isinstance(n.ctx, ast.Store)]
    block = program.block(loop)
    if (
        len(made) != 1
        or not isinstance(made[0], ast.Assign)
        or made[0] not in block
        or called_or_none(made[0].value) not in FACTORIES
    ):
        return None
    begin, here = made[0], block.index(loop)
    first = [
        s
        for s in block[block.index(begin) + 1 : here]
        if (t := _target(s)) is not None and program.segment(t.value) == name.id
    ]
    known = {id(n) for s in [begin, statement, *first] for n in ast.walk(s) if n is not None}
    inside = [n for n in own if id(n) not in known and n in set(ast.walk(loop))]
    inside += [n for n in own if n in set(ast.walk(statement.value))]
    after = [n for n in own if id(n) not in known and n not in inside and n.lineno > (loop.end_lineno or 0)]
    reads = [program.parents.get(n) for n in inside]
    if len(first) > 1 or not after or any(not isinstance(r, ast.Subscript) or _index_at(r, dim) is None for r in reads):
        return None
    if len(known & {id(n) for n in own}) + len(inside) + len(after) < len(own):
        return None  # it is used in a way that a list may not allow
    value = first[0].value if first and isinstance(first[0], ast.Assign) else None
    start = f"{name.id} = [{program.segment(value)}]" if value is not None else f"{name.id} = []"
    appended = f"{name.id}.append({_with_list(program, statement.value, inside, dim)})"
    stacked = f"{torch}.stack({name.id})" if dim == 0 else f"{torch}.stack({name.id}, dim={dim})"
    changes: list[tuple[ast.AST, str]] = [(begin, start), (statement, appended)]
    elsewhere = [r for r in reads if r is not None and r not in set(ast.walk(statement))]
    changes += [
        (r, f"{name.id}[{program.segment(_index_at(r, dim) or r)}]") for r in elsewhere if isinstance(r, ast.Subscript)
    ]
    edits = [program.delete(first[0])] if first else []
    if len(after) == 1:
        changes.append((after[0], stacked))
    else:
        edits.append(program.insert_after(loop, f"{name.id} = {stacked}"))
    merged = merge(program.replace(*changes), *edits)
    title = T(
        en=f"Collect the parts of `{name.id}` in a list and stack them",
        zh=f"把 `{name.id}` 的各部分收集到列表中，再堆叠起来",
    )
    return Fix(title, merged) if merged else None


def called_or_none(node: ast.expr) -> str:
    """Return the name of the called function; empty for other expressions."""
    return called(node) if isinstance(node, ast.Call) else ""


def _filled(story: Story, event: Event) -> int | None:
    """The dimension along which the tensor that ``event`` writes to was filled, by one write for each index, in order,
    from 0 to the last; None if it was not filled so.
    """
    label = event.operands[0].label if event.operands else None
    shape = story.shape(label, event.step)
    written = [
        e for e in story.uses(label) if e.name == "__setitem__" and e.error is None and e.operands[0].label == label
    ]
    found = [
        re.fullmatch(r"\(?((?::, )*)(\d+)(?:, :)*\)?", e.operands[1].text) if len(e.operands) > 1 else None
        for e in written
    ]
    places = {(match[1].count(":"), int(match[2])) if match is not None else None for match in found}
    dims = {place[0] for place in places if place is not None}
    if shape is None or None in places or len(dims) != 1:
        return None
    dim = dims.pop()
    order = [int(match[2]) for match in found if match is not None]
    return dim if dim < len(shape) and order == list(range(shape[dim])) else None


def _index_at(read: ast.Subscript, dim: int) -> ast.expr | None:
    """The index that a read has in the dimension ``dim``, if it selects one index in that dimension only: ``t`` in
    ``states[t]``, or in ``states[:, t]`` for dimension 1; else None.
    """
    place = _place(read.slice)
    return place[1] if place is not None and place[0] == dim and not isinstance(place[1], ast.Slice) else None


def _with_list(program: Program, value: ast.expr, inside: list[ast.Name], dim: int) -> str:
    """The source of a value in which reads of the tensor are replaced by reads of a list: ``states[t]`` for ``states[:,
    t]``.

    Unchanged for dimension 0 and for a value on several lines; ``inside`` are the occurrences of the tensor's name in
    the loop.
    """
    text, start = program.segment(value), program.place(value)
    reads = [
        r for n in inside if (r := program.parents.get(n)) in set(ast.walk(value)) and isinstance(r, ast.Subscript)
    ]
    if dim == 0 or start.line != start.end_line:
        return text
    for read in sorted(reads, key=lambda r: -r.col_offset):
        place, index = program.place(read), _index_at(read, dim)
        if index is not None:
            own = f"{program.segment(read.value)}[{program.segment(index)}]"
            text = text[: place.column - start.column] + own + text[place.end_column - start.column :]
    return text


# --- the tensors of a collection --------------------------------------------------------------------------------------


def in_a_comprehension(program: Program, statement: ast.stmt, value: str | None, name: ast.expr | None) -> Fix | None:
    """Return the fix for a ``for`` loop whose only statement, ``statement``, writes each tensor of a list or
    dictionary: it makes a new collection of new tensors. None if the loop is not of this kind.

    ``for w, g in zip(weights, grads): w.sub_(g)`` becomes ``weights = [w - g for w, g in zip(weights, grads)]``.
    ``value`` is the source of the new tensor (None: no fix), ``name`` the expression of the tensor that is written.
    """
    loop = program.parents.get(statement)
    if (
        not isinstance(loop, ast.For)
        or loop.body != [statement]
        or loop.orelse
        or value is None
        or not isinstance(name, ast.Name)
    ):
        return None
    parts = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    zipped = isinstance(loop.iter, ast.Call) and called(loop.iter) == "zip"
    sources = loop.iter.args if zipped and isinstance(loop.iter, ast.Call) else [loop.iter]
    text, target, over = program.segment(loop.target), program.segment(loop.target), program.segment(loop.iter)
    if zipped and len(parts) == len(sources):
        at = next((k for k, part in enumerate(parts) if isinstance(part, ast.Name) and part.id == name.id), None)
        if at is None:
            return None
        source = sources[at]
    else:
        at, source = None, loop.iter
    method = called(source) if isinstance(source, ast.Call) else ""
    holder = source.func.value if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute) else source
    if not is_name(holder) or (isinstance(source, ast.Call) and method not in ("values", "items")):
        return None
    held = program.segment(holder)
    if method == "values":
        key = "name" if not any(isinstance(n, ast.Name) and n.id == "name" for n in ast.walk(loop)) else "key"
        over = over.replace(f"{held}.values()", f"{held}.items()", 1)
        target = (
            ", ".join(f"({key}, {name.id})" if k == at else program.segment(p) for k, p in enumerate(parts))
            if at is not None
            else (f"{key}, {name.id}")
        )
        new = f"{held} = {{{key}: {value} for {target} in {over}}}"
    elif method == "items":
        key_node = parts[0] if at is None and len(parts) == 2 else None
        if key_node is None:
            return None
        new = f"{held} = {{{program.segment(key_node)}: {value} for {text} in {over}}}"
    elif at is None and len(parts) > 1:
        return None
    else:
        new = f"{held} = [{value} for {text} in {over}]"
    title = T(
        en=f"Make new tensors instead of overwriting those in `{held}`", zh=f"生成新张量，而不是覆盖 `{held}` 中的张量"
    )
    return Fix(title, program.replace((loop, new)))
