"""Which names a text takes from what ran before it: read before it binds them, at its top level or in the functions
that it defines. :func:`taken` returns them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def taken(text: str) -> set[str]:
    r"""Return the names that a text reads before it binds them, builtins among them; the empty set for a text that
    Python cannot parse.

    A name that only one branch binds counts as bound.

    >>> sorted(taken("h = act(x)\nh.mul_(k)\ndef act(v):\n    return v * scale"))
    ['act', 'k', 'scale', 'x']
    >>> sorted(taken("x = 1\ny = [x * i for i in z]\ni"))
    ['i', 'z']
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return set()
    reading = _Reading()
    reading.all(body)
    while reading.later:  # functions run after all names are defined
        reading.inside(reading.later.pop())
    return reading.wanted


class _Reading(ast.NodeVisitor):
    """Walks through a scope in the order in which Python runs it."""

    def __init__(self, made: Iterable[str] = ()) -> None:
        self.made, self.wanted = set(made), set[str]()
        self.later: list[_Scope] = []

    def all(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit the nodes one after the other."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def inside(self, function: _Scope) -> None:
        """Read a function's body as it is run in the end: its own names hide those outside."""
        body = [function.body] if isinstance(function, ast.Lambda) else function.body
        given = [each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)]
        outer = {
            name for node in body for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names
        }
        bound = {
            each.id
            for node in body
            for each in ast.walk(node)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        within = _Reading(self.made | set(given) | (bound - outer))
        within.all(body)
        self.wanted |= within.wanted
        while within.later:
            within.inside(within.later.pop())
        self.wanted |= within.wanted

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.made.add(node.id)
        elif node.id not in self.made:
            self.wanted.add(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.all([node.value, *node.targets])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.all([node.value, node.target] if node.value is not None else [])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id not in self.made:
            self.wanted.add(node.target.id)
        self.all([node.value, node.target])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.all([node.value, node.target])

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.all([node.iter, node.target, *node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815 - as ast calls its nodes

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        within = _Reading(self.made)
        for each in node.generators:
            within.all([each.iter, each.target, *each.ifs])
        within.all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.wanted |= within.wanted
        self.later += within.later

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension  # noqa: N815 - as ast calls its nodes

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.all([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults])
        self.made.add(node.name)
        self.later.append(node)

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815 - as ast calls its nodes

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.all([*node.args.defaults, *node.args.kw_defaults])
        self.later.append(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.all([*node.decorator_list, *node.bases, *(each.value for each in node.keywords)])
        within = _Reading(self.made)
        within.all(node.body)
        self.wanted |= within.wanted
        self.later += within.later
        self.made.add(node.name)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.made |= {each.asname or each.name.partition(".")[0] for each in node.names}

    visit_Import = visit_ImportFrom = _import  # noqa: N815 - as ast calls its nodes

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.all([node.type])
        self.made |= {node.name} if node.name else set()
        self.all(node.body)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.all([node.pattern])
        self.made |= {node.name} if node.name else set()

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.made |= {node.name} if node.name else set()
