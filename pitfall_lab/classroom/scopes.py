"""Which variable a name of a program is: :class:`Scopes` reads its tree, and never runs it.

A library's short name, ``F`` say, is many a program's own variable as well. Where each use of it is seen to be that
variable, nothing is handed on; where it may be the library, what the program does with it is out of sight.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_PARAMETER, _ANY, _IMPORTED, _CHAIN = "parameter", "any", "imported", "chain"
"""How a name is bound: as a parameter, somehow, by an import, or as another name of what a chain of names is."""


@dataclass(eq=False)
class _Scope:
    kind: str
    above: tuple[_Scope, ...] = ()
    bound: dict[str, set[str]] = field(default_factory=dict)
    outside: dict[str, _Scope] = field(default_factory=dict)

    def bind(self, name: str, how: str) -> None:
        at = self.outside.get(name, self)
        at.bound.setdefault(name, set()).add(how)


@dataclass(frozen=True)
class _Use:
    name: ast.Name
    parent: ast.AST
    scope: _Scope


class Scopes:
    """The variables of a program, read from its source.

    ``is_python`` is False for a source with a syntax error: it never runs, so nothing in it counts as harmful.
    ``is_read`` is False for such a source, and for one whose tree is too deep to be read, where nothing counts as
    proven.
    """

    def __init__(self, source: str) -> None:
        self.is_read, self.is_python = False, True
        self._body: list[ast.stmt] = []
        self._uses: list[_Use] = []
        self._scopes: list[_Scope] = []
        self._first_parameters: set[_Scope] = set()
        self._asked: dict[str, bool] = {}
        self._bound_first: dict[str, bool] = {}
        self.attributes: set[str] = set()
        """Names that the program gives to attributes, parameters, functions and classes."""
        self.in_classes: set[str] = set()
        """Names that are bound in the body of a class."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
            self._read(tree)
        except (SyntaxError, ValueError):
            self.is_python = False
        except (RecursionError, MemoryError):
            pass

    def passes_on(self, name: str) -> bool:
        """Whether the program may use the library called ``name`` as a value, such as by passing it to a function.

        No such use are the beginning of a chain (``F.relu``), an assignment to a single name, and the first argument of
        a ``getattr`` with a literal name. A use that is seen to be the program's own variable does not count. If the
        source could not be read: True, but False if it is no Python.
        """
        if not self.is_read:
            return self.is_python
        if name not in self._asked:
            self._asked[name] = any(
                use.name.id == name and not self._is_own(name, use.scope) and not _is_plain(use) for use in self._uses
            )
        return self._asked[name]

    def is_self(self) -> bool:
        """Whether each ``self`` in the program is the first parameter of a method, and is never bound otherwise."""
        if not self.is_read:
            return not self.is_python
        holders = {scope for scope in self._scopes if "self" in scope.bound}
        return all(
            scope in self._first_parameters and scope.bound["self"] == {_PARAMETER} for scope in holders
        ) and all(not holders.isdisjoint((use.scope, *use.scope.above)) for use in self._uses if use.name.id == "self")

    def sets(self, name: str) -> bool:
        """Whether a variable of this name is bound otherwise than as a parameter."""
        return any(scope.bound.get(name, set()) - {_PARAMETER} for scope in self._scopes)

    def _is_own(self, name: str, scope: _Scope) -> bool:
        """Whether ``name`` in this scope is surely a variable of the program, whichever code has run before."""
        at = self._holder(name, scope)
        hows = at.bound.get(name, set())
        if at.kind == "module":
            if name not in self._bound_first:
                self._bound_first[name] = hows == {_ANY} and self._begins_by_binding(name)
            return self._bound_first[name]
        return hows <= {_ANY, _PARAMETER}

    def _holder(self, name: str, scope: _Scope) -> _Scope:
        """The scope (a function's, or else the module's) whose variable ``name`` is when it is read in ``scope``.

        A class body's variable does not count, since it may not be bound yet.
        """
        for each in (scope, *scope.above):
            at = each.outside.get(name, each)
            if at.kind == "module" or (at.kind != "class" and name in at.bound):
                return at
        return self._scopes[0]

    def _begins_by_binding(self, name: str) -> bool:
        """Whether a statement that always assigns to the module's variable ``name`` runs before every statement that
        reads it.
        """
        uses = {
            id(use.name) for use in self._uses if use.name.id == name and self._holder(name, use.scope).kind == "module"
        }
        return _is_bound_first(self._body, name, uses, bound=False)

    def _read(self, tree: ast.Module) -> None:
        top = _Scope("module")
        self._body, self._scopes = tree.body, [top]
        waiting: list[tuple[ast.AST, ast.AST, _Scope]] = [(each, tree, top) for each in reversed(tree.body)]
        while waiting:  # each part once, however deep it is
            node, parent, scope = waiting.pop()
            for name, how in _bindings(node, parent):
                at = scope
                while isinstance(node, ast.NamedExpr) and at.kind == "comprehension":
                    at = at.above[0]
                at.bind(name, how)
            if isinstance(node, ast.Global):
                scope.outside.update(dict.fromkeys(node.names, top))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._uses.append(_Use(node, parent, scope))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.attributes.add(node.attr)
            elif isinstance(node, ast.arg | ast.keyword) and node.arg:
                self.attributes.add(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.attributes.add(node.name)
            waiting += [(each, node, at) for each, at in reversed([*self._parts(node, scope)])]
        self.in_classes = {name for scope in self._scopes if scope.kind == "class" for name in scope.bound}
        self.attributes |= self.in_classes
        self.is_read = True

    def _parts(self, node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.AST, _Scope]]:
        """The child nodes of a node, each with the scope in which it is evaluated."""
        if isinstance(node, _FUNCTIONS):
            yield from self._of_function(node, scope)
        elif isinstance(node, ast.ClassDef):
            inner = self._inside(scope, "class")
            yield from ((each, scope) for each in (*node.bases, *node.keywords, *node.decorator_list))
            yield from ((each, inner) for each in node.body)
        elif isinstance(node, _COMPREHENSIONS):
            inner, first = self._inside(scope, "comprehension"), node.generators[0]
            yield first.iter, scope
            yield from ((each, inner) for each in (first.target, *first.ifs))
            yield from ((each, inner) for each in ast.iter_child_nodes(node) if each is not first)
        else:
            yield from ((each, scope) for each in ast.iter_child_nodes(node))

    def _inside(self, scope: _Scope, kind: str) -> _Scope:
        self._scopes.append(_Scope(kind, (scope, *scope.above)))
        return self._scopes[-1]

    def _of_function(self, node: _Function, scope: _Scope) -> Iterator[tuple[ast.AST, _Scope]]:
        inner = self._inside(scope, "function")
        positional = [*node.args.posonlyargs, *node.args.args]
        if scope.kind == "class" and not isinstance(node, ast.Lambda) and positional and positional[0].arg == "self":
            self._first_parameters.add(inner)
        yield from ((each, scope) for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None)
        variadic = (each for each in (node.args.vararg, node.args.kwarg) if each is not None)
        for each in (*positional, *node.args.kwonlyargs, *variadic):
            inner.bind(each.arg, _PARAMETER)
            self.attributes.add(each.arg)
            if each.annotation is not None:
                yield each.annotation, scope
        if isinstance(node, ast.Lambda):
            yield node.body, inner
            return
        yield from ((each, scope) for each in (*node.decorator_list, *([node.returns] if node.returns else [])))
        yield from ((each, inner) for each in node.body)


def _is_bound_first(body: Iterable[ast.stmt], name: str, uses: set[int], *, bound: bool) -> bool:
    """Whether ``name`` is bound before each of its ``uses`` in the statements of ``body``, which run in this order.

    ``uses`` are the ``id`` of name nodes. ``bound``: the name is bound already before the first statement.
    """
    for statement in body:
        blocks = [*_blocks(statement)]
        inside = {id(node) for block, _ in blocks for each in block for node in ast.walk(each)}
        if not bound and not uses.isdisjoint({id(node) for node in ast.walk(statement)} - inside):
            return False
        if not all(_is_bound_first(block, name, uses, bound=bound or name in given) for block, given in blocks):
            return False
        bound = bound or (isinstance(statement, ast.Assign) and name in _names(statement))
    return True


def _blocks(statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], set[str]]]:
    """The blocks of statements within a compound statement, each with the names that are bound when it begins.

    A function or class definition has none here, since its body runs in a scope of its own.
    """
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    yield from ((block, set()) for each in ("orelse", "finalbody") if (block := getattr(statement, each, [])))
    targets = [getattr(statement, "target", None), *(item.optional_vars for item in getattr(statement, "items", ()))]
    given = {name for each in targets if each is not None for node in ast.walk(each) for name in _names(node)}
    yield getattr(statement, "body", []), given
    for handler in getattr(statement, "handlers", ()):
        yield handler.body, {handler.name}
    for case in getattr(statement, "cases", ()):
        yield case.body, {name for node in ast.walk(case.pattern) for name, _ in _bindings(node, node)}


def _names(node: ast.AST) -> tuple[str, ...]:
    """The names of variables that a node itself reads or binds, without those of the nodes in it."""
    if isinstance(node, ast.Name):
        return (node.id,)
    return tuple(name for name, _ in _bindings(node, node))


def _bindings(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that a node itself binds, with how: one of ``_ANY``, ``_IMPORTED`` and ``_CHAIN``."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        if not isinstance(parent, ast.Assign | ast.Tuple | ast.List):
            yield node.id, _ANY
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from (
                (each.id, _how(value)) for each, value in _pairs(target, node.value) if isinstance(each, ast.Name)
            )
    elif (
        isinstance(node, ast.Tuple | ast.List)
        and isinstance(node.ctx, ast.Store)
        and not isinstance(parent, ast.Assign)
    ):
        yield from ((each.id, _ANY) for each in node.elts if isinstance(each, ast.Name))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (((each.asname or each.name).partition(".")[0], _IMPORTED) for each in node.names)
    elif name := getattr(node, _NAMED.get(type(node), ""), None):
        yield name, _ANY


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Pairs of a target and the value that is assigned to it.

    A tuple of targets is split up if the value is a tuple of the same length; else each target gets the whole value.
    """
    if not isinstance(target, ast.Tuple | ast.List):
        return [(target, value)]
    values = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    if len(values) != len(target.elts):
        values = [value] * len(target.elts)
    return [*zip(target.elts, values, strict=True)]


_NAMED: dict[type, str] = {ast.FunctionDef: "name", ast.AsyncFunctionDef: "name", ast.ClassDef: "name"}
_NAMED |= {ast.ExceptHandler: "name", ast.MatchAs: "name", ast.MatchStar: "name", ast.MatchMapping: "rest"}
"""What binds a name that is a text in the tree, and where that is."""


def _how(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return _CHAIN if isinstance(value, ast.Name) else _ANY


def _is_plain(use: _Use) -> bool:
    """Whether this use of a library shows which of its names is used, so that it is not passed on out of sight.

    That is an attribute of it, a statement of its own, an assignment to one name outside of classes, or ``getattr``
    with a constant.
    """
    parent = use.parent
    if isinstance(parent, ast.Attribute | ast.Expr):
        return True
    if isinstance(parent, ast.Assign):
        return use.scope.kind != "class" and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name)
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Name)
        and parent.func.id == "getattr"
        and len(parent.args) > 1
        and parent.args[0] is use.name
        and isinstance(parent.args[1], ast.Constant)
    )
