"""Docstrings of public functions name what their body raises, and say when there is nothing to return."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "pitfall_lab"
LEFT_OUT = ("frontend", "labextension", "lessons/gpu/programs")
"""Folders without modules of ours: built files, and programs that are run, not imported."""
OURS = {"AssertionError", "NotImplementedError"}
"""Raised for a fault of ours, or by a method that subclasses define: no caller waits for it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """The functions of one module, by class and name, and what their bodies raise."""

    def __init__(self, source: str) -> None:
        self.body = ast.parse(source).body
        self.functions = [*self._in(self.body, "", public=True)]
        self.by_name = {(owner, f.name): f for owner, f, _ in self.functions}
        self.imported = {
            name.asname or name.name: name.name
            for node in self.body
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        self.raises = "raise " in source
        self._statements: dict[int, list[tuple[ast.Raise | ast.Call, list[str]]]] = {}

    def _in(self, body: list[ast.stmt], owner: str, *, public: bool) -> Iterator[tuple[str, Function, bool]]:
        for node in body:
            if isinstance(node, Function):
                yield owner, node, public and not node.name.startswith("_")
            elif isinstance(node, ast.ClassDef):
                yield from self._in(node.body, node.name, public=public and not node.name.startswith("_"))

    def raised(self, owner: str, function: Function, met: tuple[Function, ...] = ()) -> Iterator[tuple[str, list[str]]]:
        """The exceptions that a function's body raises by name, or a private function of the module that it calls,
        each with what an ``except`` or ``suppress`` round it catches.
        """
        if id(function) not in self._statements:
            self._statements[id(function)] = [*_statements(function.body)]
        for node, caught in self._statements[id(function)]:
            if isinstance(node, ast.Raise):
                if node.exc is not None and (name := self._kind(owner, node.exc)):
                    yield name, caught
            elif (called := self._private(owner, node)) is not None and called[1] not in (*met, function):
                for name, inside in self.raised(*called, (*met, function)):
                    yield name, [*inside, *caught]

    def _kind(self, owner: str, raised: ast.expr) -> str | None:
        """The class of what is raised: called, or returned by the function that is called; None for a variable."""
        made = raised.func if isinstance(raised, ast.Call) else raised
        name = made.attr if isinstance(made, ast.Attribute) else made.id if isinstance(made, ast.Name) else ""
        if name.lstrip("_")[:1].isupper():
            return name
        if not isinstance(raised, ast.Call):
            return None
        ours = self.by_name.get((owner if isinstance(made, ast.Attribute) else "", name))
        returns = _returned(ours) if ours is not None else makers().get(self.imported.get(name, name))
        return None if returns in {None, "Exception", "BaseException"} else returns

    def _private(self, owner: str, call: ast.AST) -> tuple[str, Function] | None:
        """The private function, or method of the same object, that a call calls, if it is of this module."""
        match call:
            case ast.Call(func=ast.Name(id=name)):
                place = ("", name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name)):
                place = (owner, name)
            case _:
                return None
        return (place[0], self.by_name[place]) if name.startswith("_") and place in self.by_name else None


def _returned(function: Function) -> str | None:
    return None if function.returns is None else ast.unparse(function.returns).strip("'\"").rpartition(".")[2]


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.Raise | ast.Call, list[str]]]:
    """What a body raises and calls, without the functions defined in it, each with what is caught round it."""
    todo: list[tuple[ast.AST, list[str]]] = [(node, []) for node in body]
    while todo:
        node, caught = todo.pop()
        if isinstance(node, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise | ast.Call):
            yield node, caught
        inside = caught
        if isinstance(node, ast.Try):
            inside = [*caught, *(name for each in node.handlers for name in _names(each.type))]
        elif isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            passed = [each for call in calls if ast.unparse(call.func).endswith("suppress") for each in call.args]
            inside = [*caught, *(name for each in passed for name in _names(each))]
        for field, value in ast.iter_fields(node):
            covered = field == "body" and isinstance(node, ast.Try | ast.With)
            parts = value if isinstance(value, list) else [value]
            todo += [(each, inside if covered else caught) for each in parts if isinstance(each, ast.AST)]


def _names(caught: ast.expr | None) -> list[str]:
    if caught is None:
        return ["BaseException"]
    return [ast.unparse(one).rpartition(".")[2] for one in (caught.elts if isinstance(caught, ast.Tuple) else [caught])]


@cache
def modules() -> dict[str, Module]:
    """The package's modules by their paths in it."""
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {
        name: Module(path.read_text(encoding="utf-8")) for name, path in paths.items() if not name.startswith(LEFT_OUT)
    }


@cache
def makers() -> dict[str, str]:
    """The package's public functions that return an exception, with its class."""
    return {
        name: kind
        for module in modules().values()
        for (owner, name), function in module.by_name.items()
        if not owner and (kind := _returned(function)) is not None and kind in parents()
    }


@cache
def parents() -> dict[str, tuple[str, ...]]:
    """The classes that an exception inherits from, itself first: builtin ones, and the package's by their names."""
    found: dict[str, tuple[str, ...]] = {
        name: tuple(one.__name__ for one in kind.__mro__)
        for name, kind in vars(builtins).items()
        if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    bases = {
        node.name: [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        for module in modules().values()
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }
    while new := {
        name: (name, *(each for base in of for each in found.get(base, ())))
        for name, of in bases.items()
        if name not in found and any(base in found for base in of)
    }:
        found |= new
    return found


def unnamed(module: Module) -> list[str]:
    """The public functions of a module that raise what their docstring does not name.

    >>> unnamed(Module('def f(x):\\n    "Half."\\n    if x % 2:\\n        raise ValueError(x)\\n    return x // 2'))
    ['f: ValueError']
    >>> unnamed(Module('def f(x):\\n    "Half. Raises ``ValueError`` for others."\\n    raise ValueError(x)'))
    []
    >>> unnamed(Module('def f(x):\\n    "Half."\\n    return _g(x)\\n\\ndef _g(x):\\n    raise KeyError(x)'))
    ['f: KeyError']
    >>> unnamed(Module('def f(x):\\n  "Half."\\n  try:\\n    raise KeyError(x)\\n  except LookupError:\\n    pass'))
    []
    """
    found = []
    for owner, function, public in module.functions:
        docstring = ast.get_docstring(function)
        if not (public and docstring and module.raises):
            continue
        for name in sorted({name for name, caught in module.raised(owner, function) if not _is_caught(name, caught)}):
            said = [each for each in parents().get(name, (name,)) if each not in {"Exception", "BaseException"}]
            if name not in OURS and not any(re.search(rf"\b{each}\b", docstring) for each in said):
                found.append(f"{owner + '.' if owner else ''}{function.name}: {name}")
    return found


def _is_caught(name: str, caught: list[str]) -> bool:
    return any(each in parents().get(name, (name,)) for each in caught)


def silent_about_none(module: Module) -> list[str]:
    """The public functions of a module that may return None although their docstring does not speak of None.

    >>> silent_about_none(Module('def f(x: int) -> int | None:\\n    "Half of an even number."'))
    ['f']
    >>> silent_about_none(Module('def f(x: int) -> int | None:\\n    "Half of an even number; None for others."'))
    []
    """
    found = []
    for owner, function, public in module.functions:
        docstring = ast.get_docstring(function)
        returns = "" if function.returns is None else ast.unparse(function.returns).strip("'\"")
        if public and docstring and returns.endswith("| None") and not re.search(r"\bNone\b", docstring):
            found.append(f"{owner + '.' if owner else ''}{function.name}")
    return found


def test_docstrings_name_what_is_raised():
    """As ``Raises ``X`` if …``: who reads a docstring sees neither the body nor the functions that it calls."""
    assert [f"{path} {each}" for path, module in modules().items() for each in unnamed(module)] == []


def test_docstrings_say_when_there_is_nothing_to_return():
    assert [f"{path} {each}" for path, module in modules().items() for each in silent_about_none(module)] == []


def unconditional(module: Module) -> list[str]:
    """The public functions of a module whose docstring says that they raise something, and not when.

    >>> unconditional(Module('def f(x):\\n    "Half. Raises ``ValueError``."'))
    ['f']
    >>> unconditional(Module('def f(x):\\n    "Half. Raises ``ValueError`` for odd numbers."'))
    []
    """
    bare = re.compile(r"\braises\s+(?::\w+:)?`+[^`]+`+\s*(?:[.;]|$)", re.IGNORECASE)
    return [
        f"{owner + '.' if owner else ''}{function.name}"
        for owner, function, public in module.functions
        if public and bare.search(ast.get_docstring(function) or "")
    ]


def test_docstrings_say_when_it_is_raised():
    assert [f"{path} {each}" for path, module in modules().items() for each in unconditional(module)] == []


def test_the_sentences_of_this_module_hold():
    import doctest
    import sys

    assert doctest.testmod(sys.modules[__name__]).failed == 0
