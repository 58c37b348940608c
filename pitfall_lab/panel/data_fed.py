"""Reads from the sources of cells on which data a model is trained, and which data is only passed to it
(:class:`Uses`).

The statements are followed in their order, through the notebook's functions that they call by name, together with the
names from which each value was computed.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

DEPTH = 4
STEPS = 4000
_NOT_NUMBERS = {"shape", "dtype", "device", "ndim", "size", "dim", "numel"}
_LOOKS = {"len", "type", "isinstance", "id"}
_COLLECTS = {"append", "extend", "update", "add"}
Sources = frozenset[str]
_NONE: Sources = frozenset()


class Uses:
    """What the cells that were read (:meth:`read`) do with names. ``functions`` are the notebook's functions by name,
    whose statements are followed where they are called.

    ``trained``: the names from which the roots of backwards were computed. ``fed``: for each call of a model, its name
    and the names from which its inputs were computed. ``called``: the names of the functions and methods that were
    called. ``atoms`` are expressions (``loader``, ``parts[0]``), and ``models`` the names of models, that are not
    followed further back.
    """

    def __init__(self, functions: Mapping[str, ast.AST], atoms: Collection[str], models: Collection[str] = ()) -> None:
        self.trained: set[str] = set()
        self.fed: list[tuple[str, Sources]] = []
        self.called: set[str] = set()
        self._functions, self._atoms, self._models = functions, frozenset(atoms).union(models), frozenset(models)
        self._globals: dict[str, Sources] = {}
        self._left = STEPS
        self._depth = 0

    def read(self, tree: ast.Module) -> None:
        """Follow the statements of one more cell."""
        self._left = STEPS
        self._body(tree.body, self._globals)

    def _body(self, body: Sequence[ast.stmt], env: dict[str, Sources]) -> Sources:
        """Follow statements; return the names from which the values of their ``return`` statements were computed."""
        returned = _NONE
        for statement in body:
            self._left -= 1
            if self._left < 0:
                break
            returned |= self._statement(statement, env)
        return returned

    def _statement(self, node: ast.stmt, env: dict[str, Sources]) -> Sources:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return _NONE
        if isinstance(node, ast.Return):
            return self._of(node.value, env) if node.value is not None else _NONE
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if node.value is not None:
                    self._assign(target, node.value, env)
        elif isinstance(node, ast.AugAssign):
            self._add(node.target, self._of(node.value, env), env)
        else:
            self._header(node, env)
        blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [handler.body for handler in getattr(node, "handlers", ())]
        return _NONE.union(*(self._body(block, env) for block in blocks if block))

    def _header(self, node: ast.stmt, env: dict[str, Sources]) -> None:
        """Follow the expressions that a statement evaluates before the statements inside it."""
        if isinstance(node, (ast.For, ast.AsyncFor)):
            self._bind(node.target, self._of(node.iter, env), env)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                sources = self._of(item.context_expr, env)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, sources, env)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._of(child, env)

    def _assign(self, target: ast.expr, value: ast.expr, env: dict[str, Sources]) -> None:
        if (
            isinstance(target, (ast.Tuple, ast.List))
            and isinstance(value, (ast.Tuple, ast.List))
            and len(target.elts) == len(value.elts)
        ):
            made = [self._of(each, env) for each in value.elts]
            for one, sources in zip(target.elts, made, strict=True):
                self._bind(one, sources, env)
        else:
            self._bind(target, self._of(value, env), env)

    def _bind(self, target: ast.expr, sources: Sources, env: dict[str, Sources]) -> None:
        if isinstance(target, ast.Name):
            env[target.id] = frozenset({target.id}) if env is self._globals and target.id in self._atoms else sources
        elif isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, sources, env)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, sources, env)
        else:
            self._add(target, sources, env)

    def _add(self, target: ast.expr, sources: Sources, env: dict[str, Sources]) -> None:
        """Record that a value with these sources was written into an object, which then counts as computed from them as
        well.
        """
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            target = target.value
        if isinstance(target, ast.Name) and not (env is self._globals and target.id in self._atoms):
            env[target.id] = self._name(target.id, env) | sources

    def _name(self, name: str, env: Mapping[str, Sources]) -> Sources:
        return env[name] if name in env else self._globals.get(name, frozenset({name}))

    def _of(self, node: ast.AST, env: dict[str, Sources]) -> Sources:
        """The names from which an expression is computed; calls in it are followed."""
        if isinstance(node, ast.Name):
            return self._name(node.id, env)
        if isinstance(node, (ast.Subscript, ast.Attribute)) and (text := ast.unparse(node)) in self._atoms:
            return frozenset({text})
        if isinstance(node, ast.Attribute) and node.attr in _NOT_NUMBERS:
            return _NONE
        if isinstance(node, ast.Call):
            return self._call(node, env)
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            env = dict(env) if env is not self._globals else dict(self._globals)
            for each in node.generators:
                self._bind(each.target, self._of(each.iter, env), env)
        if isinstance(node, ast.NamedExpr):
            self._bind(node.target, self._of(node.value, env), env)
            return self._of(node.target, env)
        return _NONE.union(*(self._of(child, env) for child in ast.iter_child_nodes(node)))

    def _call(self, node: ast.Call, env: dict[str, Sources]) -> Sources:
        func = node.func
        name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        if name in _LOOKS and isinstance(func, ast.Name):
            return _NONE
        self.called.add(name)
        owner = self._of(func.value, env) if isinstance(func, ast.Attribute) else self._of(func, env)
        given = [self._of(each, env) for each in node.args]
        named = {each.arg or "": self._of(each.value, env) for each in node.keywords}
        data = _NONE.union(*given, *named.values())
        if name == "backward" and isinstance(func, ast.Attribute):
            self.trained |= owner
        elif name == "grad":
            self.trained |= given[0] if given else _NONE
        elif name in _COLLECTS and isinstance(func, ast.Attribute):
            self._add(func.value, data, env)
        if given:
            self.fed += [(model, data) for model in sorted(owner & self._models)]
        function = self._functions.get(name)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or self._depth >= DEPTH or self._left < 0:
            return owner | data
        asked = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        if asked[:1] in (["self"], ["cls"]):
            given.insert(0, owner)
        inner = dict(zip(asked, given, strict=False))
        inner |= {key: each for key, each in named.items() if key}
        known = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        inner |= dict.fromkeys(known - inner.keys(), _NONE)
        self._depth += 1
        returned = self._body(function.body, inner)
        self._depth -= 1
        return returned
