"""Finds in the source where the objects on a line come from: the call that made a loader, a layer or a loss.

The trace has no event for such an object. The results are used for fixes, which are run before they are offered, and to
name lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.syntax import called

DEEPEST = 6


def origins(
    program: Program, node: ast.expr | None, running: Sequence[ast.stmt] = (), depth: int = 0
) -> Iterator[ast.expr]:
    """Yield the expressions that may have made the value of ``node``, followed back through at most ``DEEPEST``
    definitions; nothing beyond that.

    A name or attribute is followed to the values assigned to it, a parameter to the arguments of its callers, a call of
    a function of the program to the values that it returns. ``node`` itself if none of these is known; nothing for
    None. ``running`` are the statements that were being executed: if some of several calls of a function are in them,
    only these count.
    """
    if node is None or depth > DEEPEST:
        return
    before = list(_before(program, node, running))
    if not before:
        yield node
    for each in before:
        yield from origins(program, each, running, depth + 1)


def made_by(program: Program, node: ast.expr | None, *names: str, running: Sequence[ast.stmt] = ()) -> list[ast.Call]:
    """Return the calls of a function or class with one of ``names`` (``"DataLoader"``) that may have made the value of
    ``node``, each once; empty if the text shows none.

    ``running`` are the statements that were being executed (see :func:`origins`).
    """
    found = [each for each in origins(program, node, running) if isinstance(each, ast.Call) and called(each) in names]
    return list(dict.fromkeys(found))


def _before(program: Program, node: ast.expr, running: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    if isinstance(node, ast.Name):
        yield from _named(program, node, running)
    elif isinstance(node, ast.Attribute):
        yield from _attribute(program, node)
    elif isinstance(node, ast.Call):
        function = _defined(program, called(node))
        for one in ast.walk(function) if function is not None else ():
            if isinstance(one, ast.Return) and one.value is not None and program.function(one) is function:
                yield one.value


def _named(program: Program, node: ast.Name, running: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    function = program.function(node)
    found = list(_assigned(program, node.id, function))
    if not found and function is not None and node.id in parameters(function):
        found = list(passed(program, function, node.id, running))
    if not found and function is not None:
        found = list(_assigned(program, node.id, None))
    yield from found


def _assigned(program: Program, name: str, function: Function | None) -> Iterator[ast.expr]:
    """Yield the values that statements of a function (None: of the top level) assign to ``name``, except values that
    read this name themselves.
    """
    for statement in program.nodes:
        if (
            isinstance(statement, ast.Assign | ast.AnnAssign)
            and statement.value is not None
            and program.function(statement) is function
        ):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for one, value in _pairs(target, statement.value):
                    if isinstance(one, ast.Name) and one.id == name and not _reads(value, name):
                        yield value


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    both = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
    if both and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
        yield from zip(target.elts, value.elts, strict=True)  # type: ignore[attr-defined]
    elif not isinstance(target, ast.Tuple | ast.List):
        yield target, value


def _attribute(program: Program, node: ast.Attribute) -> Iterator[ast.expr]:
    """Yield the values that are assigned to this attribute, other than None: for ``self``, in its own class; for
    another object, anywhere.
    """
    own = owner(program, node) if isinstance(node.value, ast.Name) and node.value.id == "self" else None
    for statement in program.nodes:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            for one, value in _pairs(target, statement.value):
                same = isinstance(one, ast.Attribute) and one.attr == node.attr and isinstance(one.value, ast.Name)
                if same and (own is None or owner(program, one) is own) and not _is_none(value):
                    yield value


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def owner(program: Program, node: ast.AST) -> ast.ClassDef | None:
    """Return the class that contains ``node``; None if none does."""
    return next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)


def parameters(function: Function) -> list[str]:
    """Return the names of all parameters of a function, without ``*args`` and ``**kwargs``."""
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def passed(program: Program, function: Function, name: str, running: Sequence[ast.stmt] = ()) -> Iterator[ast.expr]:
    """Yield the expressions that the program's calls of ``function`` pass for its parameter ``name``; if some calls are
    in the statements ``running``, only these count.

    If no call passes it, its default value. Calls with ``*arguments`` are left out; ``__init__`` is called by its
    class's name.
    """
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    inside = program.parents.get(function)
    is_method = isinstance(inside, ast.ClassDef) and names[:1] in (["self"], ["cls"])
    wanted = inside.name if isinstance(inside, ast.ClassDef) and function.name == "__init__" else function.name
    found, calls = False, [n for n in program.nodes if isinstance(n, ast.Call) and called(n) == wanted]
    now = [call for call in calls if program.statement(call) in running]
    for node in now or calls:
        if any(isinstance(a, ast.Starred) for a in node.args):
            continue
        at = names.index(name) - is_method if name in names else len(node.args)
        value = next(
            (k.value for k in node.keywords if k.arg == name), node.args[at] if 0 <= at < len(node.args) else None
        )
        if value is not None:
            found = True
            yield value
    default = _default(function, name)
    if not found and default is not None:
        yield default


def _default(function: Function, name: str) -> ast.expr | None:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    late = dict(zip(reversed(names), reversed(given.defaults), strict=False))
    late |= {
        each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    }
    return late.get(name)


def _defined(program: Program, name: str) -> Function | None:
    """The only function of the program with this name; None if there is none, or several."""
    found = [node for node in program.nodes if isinstance(node, Function) and node.name == name]
    return found[0] if len(found) == 1 else None
