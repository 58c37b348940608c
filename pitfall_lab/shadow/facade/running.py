"""Run a small program on the shadow alone: ``import torch`` inside it means the facade. :func:`run` returns the
program's names, its error and what it printed.
"""

# ruff: noqa: A002 - the signature of __import__

from __future__ import annotations

import ast
import builtins
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from pitfall_lab.shadow import facade as torch
from pitfall_lab.shadow.facade import tensors
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.shadow.releases import NEWEST, Release

After = Callable[[int, dict[str, Any], str], None]


class _InPlace(ast.NodeTransformer):
    """Rewrites ``x = x + 1`` to ``x += 1``, for the belief that they are the same; likewise other
    binary operators on a plain name.
    """

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Rewrite an assignment whose value begins with its own target."""
        target, value = node.targets[0], node.value
        left = value.left if isinstance(value, ast.BinOp) else None
        if (
            isinstance(value, ast.BinOp)
            and isinstance(target, ast.Name)
            and isinstance(left, ast.Name)
            and left.id == target.id
        ):
            return ast.copy_location(ast.AugAssign(target, value.op, value.right), node)
        return node


class _ById(ast.NodeTransformer):
    """Rewrites ``a is b`` to ``id(a) == id(b)`` (``is not`` to ``!=``), for the belief
    that ``id()`` identifies memory.
    """

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Rewrite a comparison of two objects by ``is`` or ``is not``; all others stay as they are."""
        self.generic_visit(node)
        same = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}.get(type(node.ops[0])) if len(node.ops) == 1 else None
        if same is None:
            return node
        sides: list[ast.expr] = [
            ast.Call(ast.Name("id", ast.Load()), [side], []) for side in (node.left, node.comparators[0])
        ]
        return ast.copy_location(ast.Compare(sides[0], [same()], sides[1:]), node)


def step(tree: ast.Module, name: str, names: dict[str, Any], after: Callable[[int], None] | None) -> None:
    """Execute a parsed program in the namespace ``names``; ``name`` is the file name in its tracebacks.

    With ``after``, it is executed statement by statement, and ``after`` is called with the last line number of each
    top-level one. What the program raises is raised.
    """
    if after is None:
        exec(compile(tree, name, "exec"), names)  # noqa: S102 - running programs is the purpose
        return
    for statement in tree.body:
        exec(compile(ast.Module([statement], []), name, "exec"), names)  # noqa: S102 - as above
        after(statement.end_lineno or statement.lineno)


def run(
    source: str, policy: Policy = TORCH, name: str = "program.py", after: After | None = None, release: Release = NEWEST
) -> tuple[dict[str, Any], BaseException | None, str]:
    r"""Run ``source`` under ``policy``; returns its names, the exception that ended it (or None) and what it printed.

    A syntax error is raised. ``release`` is the modelled release of torch. ``after`` is called after each top-level
    statement with the number of its last line, the names, and the text printed so far; what it raises ends the program
    like an error of its own.

    >>> names, error, printed = run("import torch\nx = torch.ones(2)\ny = x\ny += 1\nprint(x)")
    >>> printed, error
    ('tensor([2., 2.])\n', None)
    >>> run("import torch\nx = torch.ones(2)\ny = x\ny += 1\nprint(x)", Policy(augmented_assignment_rebinds=True))[2]
    'tensor([1., 1.])\n'
    """
    torch.reset(policy, release=release)
    tree = ast.parse(source, name)
    if policy.assignment_writes_in_place:
        tree = ast.fix_missing_locations(_InPlace().visit(tree))
    if policy.id_tells_memory:
        tree = ast.fix_missing_locations(_ById().visit(tree))
    stand_ins: dict[str, ModuleType] = torch.modules()
    real_import = builtins.__import__

    def import_(
        module: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and module.split(".", maxsplit=1)[0] == "torch":
            if module not in stand_ins:
                raise ModuleNotFoundError(f"the shadow engine has no {module}")
            return stand_ins[module if fromlist else "torch"]
        return real_import(module, globals, locals, fromlist, level)

    replaced: dict[str, Any] = {"__import__": import_} | (
        {"id": tensors.id_of_memory} if policy.id_tells_memory else {}
    )
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": {**vars(builtins), **replaced}}
    printed = io.StringIO()
    error: BaseException | None = None
    with contextlib.redirect_stdout(printed):
        try:
            step(tree, name, names, after and (lambda line: after(line, names, printed.getvalue())))
        except BaseException as raised:
            error = raised
    return names, error, printed.getvalue()
