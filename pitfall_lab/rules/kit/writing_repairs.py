"""Repairs of the line that writes in place: make a new tensor instead, remove ``inplace=True``, or write to a copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fix
from pitfall_lab.rules.kit.index_repairs import in_a_comprehension, index_repairs
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import (
    FLAG_POSITIONS,
    METHOD_OPERATORS,
    ONLY_IN_PLACE,
    OPERATORS,
    binds_name,
    called,
    is_bypass,
    is_name,
    is_true,
    keeps_shape,
    operand,
    receiver,
    root,
    torch_name,
    writes,
    written_root,
)
from pitfall_lab.trace import Event, Span, T


def changing_repairs(program: Program, story: Story, step: int) -> list[Fix | None]:
    """Return fixes of the statement that wrote at ``step``: among others, make a new tensor instead, remove
    ``inplace=True``, or write to a copy (not for an array).

    None in the list is a fix that cannot be written. The list is empty if the source does not show the statement.
    """
    node = program.at(story.span(step))
    statement = program.statement(node)
    if node is None or statement is None:
        return []
    new = new_value(program, node, statement)
    found: list[Fix | None] = [_in_collection(program, statement, new), new, returned(program, node, statement)]
    found += index_repairs(program, story, step)
    event = story.event(step)
    found += flags(program, node, event)
    if event is None or event.op != "numpy":  # an array has no clone()
        found += copies_before(program, statement)
    return found


def _in_collection(program: Program, statement: ast.stmt, new: Fix | None) -> Fix | None:
    """The fix that makes a new collection, for a loop that writes each tensor of a collection in place; None for other
    statements.
    """
    written = written_root(statement)
    if new is None or written is None or len(new.edits) != 1:
        return None
    after = new.edits[0].text.strip()
    name = f"{program.segment(written)} = "
    return in_a_comprehension(program, statement, after.removeprefix(name), written) if after.startswith(name) else None


def new_value(program: Program, node: ast.AST, statement: ast.stmt) -> Fix | None:
    """Return a fix that makes a new tensor instead of writing in place: ``h = h + x`` for ``h += x``, ``h = h * 10``
    for ``h.mul_(10)``, ``f(h.relu())`` for ``f(h.relu_())``.

    ``node`` is the writing call, or a node that contains it, in ``statement``. None if there is no such form, as for
    ``h[0] += x`` or ``h.normal_()``.
    """
    if isinstance(statement, ast.AugAssign):
        return _augmented(program, statement)
    call = _written_call(node, statement)
    if call is None:
        return None
    if isinstance(statement, ast.Expr) and isinstance(whole := statement.value, ast.Call) and call in _chain(whole):
        return _statement_call(program, statement, whole)  # of h.mul_(2).add_(1) only the whole is worth a name
    changes = _plain_names(program, call)
    return _out_of_place(program.splice(*changes), program.segment(receiver(call) or call)) if changes else None


def _chain(call: ast.Call) -> Iterator[ast.AST]:
    """Yield a call, then the in-place calls that its method is called on: ``h.mul_(2).add_(1)``, then ``h.mul_(2)``."""
    node: ast.AST | None = call
    while isinstance(node, ast.Call) and writes(node):
        yield node
        node = node.func.value if isinstance(node.func, ast.Attribute) else None


def returned(program: Program, node: ast.AST, statement: ast.stmt) -> Fix | None:
    """Return a fix for a hook that writes its output in place: ``return output.mul(0.5)`` for ``output.mul_(0.5)``;
    None for other statements.

    The statement must be the last one of a function without ``return``, and write one of the function's parameters.
    """
    function, call = program.function(statement), _written_call(node, statement)
    written = written_root(statement)
    if (
        function is None
        or function.body[-1] is not statement
        or any(isinstance(n, ast.Return) for n in ast.walk(function))
    ):
        return None
    if not isinstance(written, ast.Name) or written.id not in {a.arg for a in function.args.args}:
        return None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        value = f"{written.id} {OPERATORS[type(statement.op)]} {operand(program, statement.value)}"
        edits = program.replace((statement, f"return {value}"))
    elif isinstance(statement, ast.Expr) and statement.value is call and (changes := _plain_names(program, call)):
        start = program.place(statement)
        edits = program.splice(*changes, (Span(start.line, start.column, start.line, start.column), "return "))
    else:
        return None
    return Fix(
        T(en=f"Return a new tensor instead of overwriting `{written.id}`", zh=f"返回新张量，而不是覆盖 `{written.id}`"),
        edits,
    )


def _augmented(program: Program, statement: ast.AugAssign) -> Fix | None:
    target, value = statement.target, statement.value
    name = root(target) if isinstance(target, ast.Attribute) and target.attr == "data" else target
    if not is_name(name) or isinstance(target, ast.Subscript):
        return None
    written = program.segment(name)
    text = f"{written} = {written} {OPERATORS[type(statement.op)]} {operand(program, value)}"
    return _out_of_place(program.replace((statement, text)), written)


def _statement_call(program: Program, statement: ast.Expr, call: ast.Call) -> Fix | None:
    """The fix for a statement that is only an in-place call on a whole tensor: the out-of-place call, assigned to the
    tensor's name.

    None for other statements, and for an operation that exists in place only, except ``zero_`` and ``fill_``.
    """
    target = receiver(call)
    if target is None:
        return None
    name = root(target)
    if not is_name(name):
        return None
    written = program.segment(name)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if target is not name and not keeps_shape(target):
        return None
    torch = torch_name(program)
    if (
        method in METHOD_OPERATORS
        and len(call.args) == 1
        and not call.keywords
        and (target is name or is_bypass(target))
    ):
        text = f"{written} = {written} {METHOD_OPERATORS[method]} {operand(program, call.args[0])}"
    elif method == "zero_" and torch:
        text = f"{written} = {torch}.zeros_like({written})"
    elif method == "fill_" and torch and len(call.args) == 1:
        text = f"{written} = {torch}.full_like({written}, {program.segment(call.args[0])})"
    else:
        changes = _plain_names(program, call)
        if not changes:
            return None
        start = program.place(statement)
        changes.append((Span(start.line, start.column, start.line, start.column), f"{written} = "))
        return _out_of_place(program.splice(*changes), written)
    return _out_of_place(program.replace((statement, text)), written)


def _out_of_place(edits: tuple[Edit, ...], name: str) -> Fix | None:
    if not edits:
        return None
    return Fix(T(en=f"Make a new tensor instead of overwriting `{name}`", zh=f"生成新张量，而不是覆盖 `{name}`"), edits)


def _plain_names(program: Program, call: ast.Call) -> list[tuple[Span, str]]:
    """Return the replacements that turn the in-place calls in ``call`` into out-of-place ones (``add_`` → ``add``, no
    ``inplace``, no ``out``); empty if one of the calls exists in place only.
    """
    changes: list[tuple[Span, str]] = []
    node: ast.AST | None = call
    while node is not None:
        if isinstance(node, ast.Call):
            name = called(node)
            if name.endswith("_") and not name.endswith("__"):
                if name in ONLY_IN_PLACE:
                    return []
                end = program.place(node.func)
                changes.append((Span(end.end_line, end.end_column - 1, end.end_line, end.end_column), ""))
            changes += [(span, "") for span in _flag_spans(program, node)]
            changes += [
                (_argument_span(program, node, keyword), "") for keyword in node.keywords if keyword.arg == "out"
            ]
            node = node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            node = None
    return changes


def _written_call(node: ast.AST, statement: ast.stmt) -> ast.Call | None:
    """The in-place call at ``node`` or, if ``node`` is no such call, the only in-place call of the statement; a chain
    of calls counts as its last one.

    None if there is not exactly one, or the statement has a body.
    """
    if isinstance(node, ast.Call) and writes(node):
        return node
    # nn.ReLU(inplace=True) does not write; the module it creates will
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and writes(n) and not called(n)[:1].isupper()]
    calls = [] if hasattr(statement, "body") else calls
    outer = [c for c in calls if not any(c is not o and c in ast.walk(o.func) for o in calls)]
    return outer[0] if len(outer) == 1 else None


def flags(program: Program, node: ast.AST, event: Event | None) -> list[Fix | None]:
    """Return fixes that remove one ``inplace=True`` each: from the calls in ``node`` or, if these have none, from up to
    six calls anywhere in the program, layers named like ``event`` first.

    Empty if no call has one, or if ``event`` is None and ``node`` has none.
    """
    own = [n for n in ast.walk(node) if isinstance(n, ast.Call) and _flag_spans(program, n)]
    if own:
        return [_without_flag(program, call) for call in own]
    if event is None:
        return []
    wanted = event.name.rstrip("_").replace("_", "").lower()
    built = [n for n in program.nodes if isinstance(n, ast.Call) and _flag_spans(program, n)]
    built.sort(key=lambda n: (called(n).lower() != wanted, n.lineno))
    return [_without_flag(program, call) for call in built[:6]]


def _without_flag(program: Program, call: ast.Call) -> Fix:
    name = called(call)
    edits = program.splice(*((span, "") for span in _flag_spans(program, call)))
    return Fix(
        T(
            en=f"Let this `{name}` return a new tensor: drop `inplace=True`",
            zh=f"让这个 `{name}` 返回新张量：去掉 `inplace=True`",
        ),
        edits,
    )


def _flag_spans(program: Program, call: ast.Call) -> list[Span]:
    """The spans of the arguments that make ``call`` work in place: ``inplace=True``, or ``True`` in that position."""
    spans = [_argument_span(program, call, k) for k in call.keywords if k.arg == "inplace" and is_true(k.value)]
    position = FLAG_POSITIONS.get(called(call))
    if not spans and position is not None and len(call.args) > position and is_true(call.args[position]):
        spans = [_argument_span(program, call, call.args[position])]
    return spans


def _argument_span(program: Program, call: ast.Call, argument: ast.AST) -> Span:
    """The span of an argument together with the comma that separates it."""
    own = program.place(argument)
    arguments = sorted([program.place(a) for a in [*call.args, *call.keywords]], key=lambda s: (s.line, s.column))
    number = arguments.index(own)
    if number > 0:
        before = arguments[number - 1]
        return Span(before.end_line, before.end_column, own.end_line, own.end_column)
    if len(arguments) > 1:
        after = arguments[1]
        return Span(own.line, own.column, after.line, after.column)
    return own


def copies_before(program: Program, statement: ast.stmt) -> list[Fix | None]:
    """Return fixes that insert ``h = h.clone()`` before ``statement``, which writes ``h``: first before the outermost
    loop around it, then before inner loops, then right before it.

    Empty if the statement writes to no name. Only loops of the same function count, and none outside the loop that
    assigns the name.
    """
    name = written_root(statement)
    if name is None:
        return []
    text = program.segment(name)
    bypassed = _without_data(program, statement, name)
    around = (a for a in program.ancestors(statement) if isinstance(a, (ast.For, ast.While)))
    loops = [a for a in around if program.function(a) is program.function(statement)]
    binds = next(
        (at for at, loop in enumerate(loops) if binds_name(loop, text)), len(loops)
    )  # before that loop, the name is another thing
    places = [statement, *loops[:binds]]
    fixes = []
    for place in reversed(places):
        assert isinstance(place, ast.stmt)
        edits = (
            merge(program.insert_before(place, f"{text} = {text}.clone()"), bypassed)
            if place is not statement
            else (_copy_and_unwrap(program, statement, text, name))
        )
        if edits:
            when = (
                T(en="", zh="")
                if place is statement
                else T(en=", made once before the loop", zh="，在循环之前复制一次")
            )
            fixes.append(
                Fix(T(en=f"Write into a copy of `{text}`{when.en}", zh=f"写入 `{text}` 的副本{when.zh}"), edits)
            )
    return list(fixes)


def _copy_and_unwrap(program: Program, statement: ast.stmt, text: str, name: ast.expr) -> tuple[Edit, ...] | None:
    changes = _data_changes(program, statement, name)
    place = program.place(statement)
    here = Span(place.line, place.column, place.line, place.column)
    glue = "\n" + program.indent(statement) if not program.lines[place.line - 1][: place.column].strip() else "; "
    return program.splice((here, f"{text} = {text}.clone(){glue}"), *changes)


def _without_data(program: Program, statement: ast.stmt, name: ast.expr) -> tuple[Edit, ...]:
    return program.splice(*_data_changes(program, statement, name))


def _data_changes(program: Program, statement: ast.stmt, name: ast.expr) -> list[tuple[Span, str]]:
    """Replacements that remove ``.data`` from the written expression, as a copy does not need it; empty if the
    statement uses ``.numpy``.
    """
    changes = []
    if any(isinstance(node, ast.Attribute) and node.attr == "numpy" for node in ast.walk(statement)):
        return []  # NumPy only accepts what does not require grad
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr == "data" and node.value is name:
            own, inner = program.place(node), program.place(name)
            changes.append((Span(inner.end_line, inner.end_column, own.end_line, own.end_column), ""))
    return changes
