"""Finds code in the sources of cells that computes a result with a module only if it is not cached yet (:func:`fills`).

Recognised are ``if key not in kept: kept[key] = …`` in all its forms (``is None``, ``hasattr``, an early ``return``,
``except KeyError``, ``setdefault``), and ``functools.cache``, ``lru_cache`` and ``cached_property``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

Chain = tuple[str, ...]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ADDS = {"append", "extend", "update", "add", "insert"}
_MISSES = {"KeyError", "AttributeError", "NameError", "IndexError"}
_NAMESPACES = {"globals", "locals", "vars", "dir"}
_NO_RESULT = {
    "state_dict", "parameters", "named_parameters", "buffers", "modules", "children", "eval", "train", "to", "cpu",
    "zero_grad", "requires_grad_", "load_state_dict", "apply", "register_forward_hook",
}  # fmt: skip
"""Methods of modules that compute nothing with the weights."""
_NOTHING = (frozenset[Chain](), frozenset[tuple[str, Chain]]())


class Fill(NamedTuple):
    """Code that fills a cache if something is missing in it.

    ``function`` is the name of the function that contains the code (empty: the code is in the cell itself), ``owner``
    its class if it is a method. ``holder`` is the cache as a name and attributes, which begin with ``self`` in a method
    of ``owner``. ``calls`` are the functions that the code calls to compute the result, as names and attributes;
    ``passed`` are pairs of a function called by its name and an argument passed to it; ``arguments`` are the function's
    own parameters, in order. ``default``: the parameter whose default value is the cache (empty: none). ``way`` is
    ``property``, ``cache``, or ``inner`` (another decorator is around the cache) for caches of functools, else empty.
    """

    function: str
    owner: str
    holder: Chain
    calls: frozenset[Chain]
    passed: frozenset[tuple[str, Chain]]
    arguments: tuple[str, ...]
    default: str = ""
    way: str = ""


def fills(tree: ast.Module) -> list[Fill]:
    """The code of a cell (its syntax tree) that fills a cache if something is missing in it, and calls a function to
    compute it; an empty list if there is none.
    """
    found: list[Fill] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, Function):
                    found += _of_function(method, node.name)
        elif isinstance(node, Function):
            found += _of_function(node, "")
    code = [each for each in tree.body if not isinstance(each, _DEFINITIONS)]
    for holder, region in _regions(code, {}):
        calls, passed = _computing(code, region)
        if calls or passed:
            found.append(Fill("", "", holder, calls, passed, ()))
    return found


def _of_function(node: Function, owner: str) -> Iterator[Fill]:
    arguments = tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))
    words = {last for each in node.decorator_list if (last := _last(each))}
    calls, passed = _called(_calls(node.body))
    if words & {"cache", "lru_cache"}:
        way = "cache" if _last(node.decorator_list[0]) in ("cache", "lru_cache") else "inner"
        yield Fill(node.name, owner, (owner, node.name) if owner else (node.name,), calls, passed, arguments, "", way)
        return
    if "cached_property" in words:
        yield Fill(node.name, owner, ("self", node.name), calls, passed, arguments, "", "property")
        return
    for held, region in _regions(node.body, _aliases(node)):
        holder, default = _holder(held, node, owner)
        calls, passed = _computing(node.body, region) if holder else _NOTHING
        if calls or passed:
            of = owner if holder[0] == "self" else ""
            yield Fill(node.name, of, holder, calls, passed, arguments, default)


def _holder(held: Chain, node: Function, owner: str) -> tuple[Chain, str]:
    """The expression for the cache after the function's call, and the parameter whose default value it is (or an empty
    string); an empty tuple as the expression if the cache does not exist any more after the call.
    """
    arguments = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    if owner and arguments[:1] == [held[0]]:
        return (("self", *held[1:]) if len(held) > 1 else ()), ""
    if held[0] in {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}:
        defaults = set(arguments[len(arguments) - len(node.args.defaults) :])
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        defaults |= {each.arg for each, value in named if value is not None}
        return ((node.name,), held[0]) if held[0] in defaults and len(held) == 1 and not owner else ((), "")
    declared = {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return (() if held[0] in {each.id for each in names} - declared else held), ""


def _last(node: ast.AST) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def chain(node: ast.AST | None) -> Chain:
    """The names of ``a.b.c`` as a tuple; empty for any other expression."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute) and (first := chain(node.value)):
        return (*first, node.attr)
    return ()


def _held(node: ast.AST | None, aliases: Mapping[str, Chain]) -> Chain:
    """The cache of the look-up ``kept[key]``, ``kept.get(key)`` or ``getattr(x, "kept", None)``, or of a name for such
    a look-up (``aliases``); empty if there is none.
    """
    if isinstance(node, ast.NamedExpr):
        return _held(node.value, aliases)
    if isinstance(node, ast.Subscript):
        return chain(node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "keys"):
            return chain(node.func.value)
        name = node.args[1] if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and (first := chain(node.args[0])):
            return (*first, name.value)
        return ()
    found = chain(node)
    return aliases.get(found[0], found) if len(found) == 1 else found


def _aliases(function: Function) -> dict[str, Chain]:
    """The names that a function binds to a cache look-up: ``found`` in ``found = kept.get(key)``."""
    return {
        each.targets[0].id: held
        for each in ast.walk(function)
        if isinstance(each, ast.Assign)
        and isinstance(each.targets[0], ast.Name)
        and isinstance(each.value, (ast.Call, ast.Subscript))
        and (held := _held(each.value, {}))
    }


def _missing(test: ast.AST, aliases: Mapping[str, Chain]) -> set[Chain]:
    """The caches of which a condition only asks whether something is in them; empty if the condition may depend on
    anything else.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _missing(test.operand, aliases)
    if isinstance(test, ast.BoolOp):
        parts = [_missing(each, aliases) for each in test.values]
        return set[Chain]().union(*parts) if all(parts) else set()
    held: Chain = ()
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        if isinstance(test.ops[0], (ast.In, ast.NotIn)):
            held = _held(right, aliases)
            if isinstance(right, ast.Call) and _last(right) in _NAMESPACES and isinstance(test.left, ast.Constant):
                held = (str(test.left.value),)
        elif isinstance(right, ast.Constant) and right.value is None:
            held = _held(test.left, aliases)
        elif isinstance(right, ast.Constant) and right.value == 0 and _last(test.left) == "len":
            held = _held(test.left.args[0], aliases) if isinstance(test.left, ast.Call) and test.left.args else ()
    elif isinstance(test, (ast.Name, ast.Attribute, ast.Call)):
        held = _held(test, aliases)
    return {held} if held else set()


def _stores(nodes: Sequence[ast.AST]) -> Iterator[Chain]:
    """The names and attributes that the code assigns, writes an entry of, or adds to."""
    for node in (each for one in nodes for each in ast.walk(one)):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [one for each in node.targets for one in (each.elts if isinstance(each, ast.Tuple) else [each])]
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            targets = [node.target]
        for target in targets:
            yield chain(target.value if isinstance(target, ast.Subscript) else target)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
            yield chain(node.func.value)
        if isinstance(node, ast.Call) and _last(node) == "setattr" and len(node.args) == 3:
            yield _held(ast.Call(ast.Name("getattr"), node.args[:2], []), {})


def _regions(block: Sequence[ast.stmt], aliases: Mapping[str, Chain]) -> Iterator[tuple[Chain, list[ast.AST]]]:
    """Each cache that is filled if something is missing in it, and the code that runs then."""
    code = [each for each in block if not isinstance(each, _DEFINITIONS)]
    for at, node in enumerate(code):
        rest = code[at + 1 :]
        if isinstance(node, ast.If):
            for held in sorted(_missing(node.test, aliases)):
                yield from _filled(held, [node.body, node.orelse], node.body, rest)
        elif isinstance(node, ast.Try) and any(_MISSES & _words(each.type) for each in node.handlers):
            tried = {_held(each, {}) for one in node.body for each in ast.walk(one)} - {()}
            for held in sorted(tried):
                yield from _filled(held, [[one for each in node.handlers for one in each.body]], node.body, rest)
        elif isinstance(node, (ast.Expr, ast.Assign, ast.Return)):
            for each in _calls([node]):
                if _last(each) == "setdefault" and isinstance(each.func, ast.Attribute):
                    yield chain(each.func.value), list(each.args[1:])
        for inner in _blocks(node):
            yield from _regions(inner, aliases)


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield from (getattr(node, name, []) for name in ("body", "orelse", "finalbody"))
    yield from (each.body for each in getattr(node, "handlers", ()))


def _filled(
    held: Chain, branches: Sequence[list[ast.stmt]], there: list[ast.stmt], rest: list[ast.stmt]
) -> Iterator[tuple[Chain, list[ast.AST]]]:
    """The branch that fills the cache or, if the branch ``there`` for a cached result returns it, the code after it."""
    filling = next((body for body in branches if held in _stores(body)), None)
    if filling is not None:
        yield held, list(filling)
    elif isinstance(there[-1], ast.Return):
        yield from _until_kept(held, rest)


def _until_kept(held: Chain, rest: list[ast.stmt]) -> Iterator[tuple[Chain, list[ast.AST]]]:
    last = max((at for at, each in enumerate(rest) if held in _stores([each])), default=-1)
    if last >= 0:
        yield held, list(rest[: last + 1])


def _words(node: ast.AST | None) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node is not None else set()


def _computing(
    block: Sequence[ast.AST], region: Sequence[ast.AST]
) -> tuple[frozenset[Chain], frozenset[tuple[str, Chain]]]:
    """The functions that ``region`` calls, and the arguments that it passes, to compute the cached result.

    Calls that the rest of ``block`` makes too are left out: they recompute the result, to check the cache.
    """
    inner = _calls(region)
    at = {id(each) for each in inner}
    calls, passed = _called(inner)
    return calls - _called([each for each in _calls(block) if id(each) not in at])[0], passed


def _calls(nodes: Sequence[ast.AST]) -> list[ast.Call]:
    return [each for one in nodes for each in ast.walk(one) if isinstance(each, ast.Call)]


def _called(nodes: Sequence[ast.Call]) -> tuple[frozenset[Chain], frozenset[tuple[str, Chain]]]:
    """The names of the functions that are called, and pairs of a function called by its name and an argument passed to
    it.
    """
    calls, passed = set[Chain](), set[tuple[str, Chain]]()
    for node in nodes:
        name = chain(node.func)
        if name and name[-1] not in _NO_RESULT:
            calls.add(name)
        if len(name) == 1:
            given = [*node.args, *(each.value for each in node.keywords)]
            passed |= {(name[0], each) for one in given if (each := chain(one))}
    return frozenset(calls), frozenset(passed)


def resolved(fill: Fill, all_calls: Sequence[ast.Call], functions: Mapping[str, ast.AST]) -> frozenset[Chain]:
    """All names (with attributes) that may be a module whose results the cache of ``fill`` keeps.

    ``functions`` are the notebook's functions by name: functions that they call count as well. For a parameter, the
    arguments that ``all_calls`` (the calls in the notebook) pass for it are returned.
    """
    found, calls, met = set[Chain](), set(fill.calls), set[str]()
    found |= {each for name, each in fill.passed if name in functions}
    work = [each for each in fill.calls if each[-1] in functions]
    for each in work:  # the list grows during the iteration
        function = functions[each[-1]]
        if each[-1] in met or not isinstance(function, Function):
            continue
        met.add(each[-1])
        given = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)} - {"self"}
        inner, handed = _called(_calls(function.body))
        inner = frozenset(one for one in inner if one[0] not in given and (one[0] != "self" or each[0] == "self"))
        calls |= inner
        found |= {one for name, one in handed if name in functions and one[0] not in given | {"self"}}
        work += [one for one in inner if one[-1] in functions]
    found |= calls
    arguments = {each[0]: each for each in found if each[0] in fill.arguments and each[0] != "self"}
    found = {each for each in found if each[0] not in fill.arguments or each[0] == "self"}
    for argument in arguments:
        found |= given_for(fill, argument, all_calls)
    return frozenset(found)


def given_for(fill: Fill, argument: str, calls: Sequence[ast.Call]) -> set[Chain]:
    """The arguments that calls of the function of ``fill``, among ``calls``, pass for its parameter ``argument``, as
    names and attributes; other expressions are left out.
    """
    at = fill.arguments.index(argument) - (1 if fill.arguments[:1] == ("self",) else 0)
    found = set()
    for call in calls:
        if _last(call.func) == fill.function:
            named = next((each.value for each in call.keywords if each.arg == argument), None)
            found.add(chain(named or (call.args[at] if 0 <= at < len(call.args) else None)))
    return found - {()}
