"""Finds, in the sources of the cells, the statement that turned a model's output into values without a graph on the way
to a name (:func:`cut`), or ran code in inference mode.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.name_flow import binds, flow, reads, simple, statements

_METHODS = {"detach", "numpy", "item", "tolist", "data"}
"""Methods and attributes in a cell's source that return values without the graph."""
_FUNCTIONS = {"tensor", "as_tensor", "from_numpy", "asarray", "array", "float", "int"}
"""Functions in a cell's source that make values without a graph from a tensor."""
_CONTEXTS = {"no_grad", "inference_mode"}


class CutStatement(NamedTuple):
    """A statement that ends the graph, on the way from the output of the model ``module`` (a name) to another name.

    It is on ``line`` (None: unknown) of the run with the number ``cell``; ``words`` is what ends the graph:
    ``.detach()``, ``torch.tensor(…)``, ``with no_grad``.
    """

    cell: int
    line: int | None
    words: str
    module: str


def cut(name: str, ran: Ran, is_module: Callable[[str], bool], last: Cell | None = None) -> CutStatement | None:
    """Of the statements that end the graph of the model's output from which ``name`` was computed, the one nearest to
    the model; None if there is none or no model is found. ``is_module``: whether a name is a model.

    Names are followed backwards from run to run of ``ran``, and within a run from statement to statement. ``last``: a
    run that is not in ``ran``.
    """
    wanted, found = {name}, None
    for run in reversed([*ran.since(0), *([last] if last is not None else [])]):
        for statement in reversed(_ordered(run.tree)):
            if not wanted & set(binds(statement)):
                continue
            sources = set(reads(statement)) | read_in_functions(statement, ran)
            found = next(_cutting(statement, run, ran), found)
            module = next((each for each in sorted(sources) if is_module(each)), "")
            if module:
                found = found or next(_in_class_of(module, ran), None)
                return found._replace(module=module) if found is not None else None
            wanted = (wanted - set(binds(statement))) | sources
    return None


def _ordered(tree: ast.Module) -> list[ast.stmt]:
    """The statements in the order of the source; the headers of loops and ``with`` as assignments (``x = xs`` for ``for
    x in xs``).
    """
    return sorted(
        statements(tree),
        key=lambda each: getattr(each, "lineno", 0) or getattr(getattr(each, "value", None), "lineno", 0),
    )


def _cutting(statement: ast.stmt, run: Cell, ran: Ran) -> Iterator[CutStatement]:
    """The parts of a statement that end the graph, nearest to the model first: its own, those of functions that it
    calls, and a ``with`` around it.
    """
    line = getattr(statement, "lineno", None) if run.whole else None
    words = _words(statement)
    if words.startswith("."):
        yield CutStatement(run.count, line, words, "")
    for other, function in functions_of(statement, ran):
        for name in map(_name, function.decorator_list):
            if name in _CONTEXTS:
                yield CutStatement(other.count, function.lineno if other.whole else None, f"@{name}", "")
        blocks = [node for node in ast.walk(function) if _context(node)]
        for inner in [*blocks, *simple(function.body)]:
            if inside := _context(inner) or _words(inner):
                yield CutStatement(other.count, getattr(inner, "lineno", None) if other.whole else None, inside, "")
    if words:
        yield CutStatement(run.count, line, words, "")
    for node in ast.walk(run.tree):
        if (words := _context(node)) and any(each is statement for each in ast.walk(node)):
            yield CutStatement(run.count, line, words, "")


def _in_class_of(module: str, ran: Ran) -> Iterator[CutStatement]:
    """The statements in the class of a module, if a cell defines it, that switch grad mode off: in ``forward``, or in a
    method that ``forward`` uses.
    """
    trees = [(run, node) for run in reversed(list(ran.since(0))) for node in run.tree.body]
    makes = (node.value for _, node in trees if isinstance(node, ast.Assign) and module in binds(node))
    made = {_name(each) for value in makes for each in ast.walk(value) if isinstance(each, ast.Call)}
    run, cls = next(
        ((run, node) for run, node in trees if isinstance(node, ast.ClassDef) and node.name in made), (None, None)
    )
    methods = {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)} if cls is not None else {}
    work = [methods[name] for name in ("forward",) if name in methods]
    for method in work:  # the list grows during the iteration
        line = method.lineno if run is not None and run.whole else None
        yield from (
            CutStatement(run.count, line, f"@{name}", module)
            for name in map(_name, method.decorator_list)
            if run and name in _CONTEXTS
        )
        for node in ast.walk(method):
            if run is not None and (words := _context(node)):
                yield CutStatement(run.count, getattr(node, "lineno", None) if run.whole else None, words, module)
            if isinstance(node, ast.Attribute) and (each := methods.get(node.attr)) is not None and each not in work:
                work.append(each)


def _context(node: ast.AST) -> str:
    """Return ``with no_grad`` for a ``with`` statement that switches grad mode off; else an empty string."""
    names = [_name(item.context_expr) for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else []
    return next((f"with {name}" for name in names if name in _CONTEXTS), "")


def in_inference_mode(ran: Ran) -> list[Cell]:
    """The runs that executed code in inference mode, themselves or in functions of the notebook that they call, as far
    as their sources show; oldest first.
    """
    if not any("inference_mode" in run.text for run in ran.since(0)):
        return []
    return [run for run in ran.since(0) if any(_is_inference(each, ran) for each in run.tree.body)]


def _is_inference(statement: ast.stmt, ran: Ran) -> bool:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    functions = [function for _, function in functions_of(statement, ran)]
    decorators = [_name(each) for function in functions for each in function.decorator_list]
    inside = [_context(node) for part in (statement, *functions) for node in ast.walk(part)]
    return "inference_mode" in decorators or "with inference_mode" in inside


def functions_of(statement: ast.AST, ran: Ran) -> Iterator[tuple[Cell, ast.FunctionDef]]:
    """The notebook's functions that a statement calls by name, each preceded by the cell of ``ran`` that defines it;
    only functions defined by a top-level ``def``.
    """
    called = {
        node.func.id for node in ast.walk(statement) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    for other in ran.since(0) if called else ():
        for node in other.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name in called:
                yield other, node


def read_in_functions(statement: ast.stmt, ran: Ran) -> set[str]:
    """The names of the notebook that are read in its functions which the statement calls by name
    (:func:`functions_of`); an empty set if there are none.
    """
    found: set[str] = set()
    for _, function in functions_of(statement, ran):
        arguments = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        found |= flow(ast.Module(function.body, []))[0] - arguments
    return found


def _words(statement: ast.AST) -> str:
    """The part of a statement that ends a graph, the innermost if there are several: ``.detach()``,
    ``torch.tensor(…)``; empty if there is none.
    """
    found = ""
    for node in ast.walk(statement):  # from the outside to the inside
        if isinstance(node, ast.Attribute) and node.attr in _METHODS and _name(node.value) != "utils":
            found = f".{node.attr}" + ("" if node.attr == "data" else "()")
        elif isinstance(node, ast.Call) and not found and _name(node) in _FUNCTIONS:
            found = f"{ast.unparse(node.func)}(…)"
    return found


def _name(node: ast.AST) -> str:
    """Return the last part of a name, also of a called one: ``no_grad`` for ``torch.no_grad()``."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
