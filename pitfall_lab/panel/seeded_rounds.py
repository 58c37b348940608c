"""Finds, in the sources of the cells, a loop that sets a seed to the same number in each iteration and draws random
numbers (:func:`seeded`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from pitfall_lab.panel.calls_in_order import Function, key_of, keys_called, name_called, own_functions
from pitfall_lab.panel.cells_run import Cell

_RESTORES = {"fork_rng", "set_rng_state", "set_state", "setstate", "isolate_rng"}
_ALL = {"seed_everything", "set_seed", "seed_all"}
"""Functions of libraries that set the seeds of torch, NumPy and Python."""
_OF_TORCH = {
    "randperm", "randn", "rand", "randint", "randn_like", "rand_like", "randint_like", "bernoulli", "multinomial",
    "normal", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "dropout", "gumbel_softmax", "rand_int",
    "random_split", "poisson", "trunc_normal_", "rrelu",
}  # fmt: skip
"""Torch's functions and methods that draw random numbers, by their name in a cell's source."""


class Seeded(NamedTuple):
    """A loop that sets the same seed in each iteration and then draws random numbers: on ``line`` of its cell; the
    function ``setter`` (empty: the loop itself) sets the seed of ``library`` to ``seed`` (None: unknown), and ``drawn``
    (an expression) draws from it.

    ``library`` is ``torch``, ``numpy``, ``random``, or the name of a ``torch.Generator``.
    """

    line: int
    setter: str
    library: str
    seed: int | None
    drawn: str


class _Seed(NamedTuple):
    library: str
    seed: int | None
    setter: str


def seeded(last: Cell, runs: list[Cell], what: Callable[[str], str]) -> Iterator[Seeded]:
    """Yield the first loop of the cell ``last``, or of the functions that it calls, that sets the same seed in each
    iteration and draws random numbers from it; nothing if there is none. ``runs`` are the cells that have run.

    Loops whose iterations create or reset a model or an optimizer are left out, and so are loops that set the seed
    themselves, unless they train or do not read their loop variable. ``what`` returns for a name whether its object
    draws when it is used: ``dropout``, ``loader`` or an empty string; it is called only if the loop trains.
    """
    if not any(word in run.text for run in runs for word in ("seed(", *_ALL)):
        return
    functions = own_functions(runs)
    classes = (node for run in runs for node in ast.walk(run.tree) if isinstance(node, ast.ClassDef))
    modules = {node.name for node in classes if node.bases}
    for loop in _loops(last, functions):
        inside = ast.Module(loop.body, [])
        changing = _names(loop, ast.Store)
        if _makes(inside, functions, modules):
            continue
        for found in _seeds(loop.body, functions, {}, changing, 4):
            trains = ".backward(" in _text(inside, functions)
            if not found.setter and not trains and not _ignores_target(loop):
                continue
            drawn = next(_drawn(inside, found, functions, what if trains else lambda _: ""), "")
            if drawn:
                yield Seeded(loop.lineno, found.setter.lstrip("."), found.library, found.seed, drawn)
                return


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef)
_Functions = Mapping[str, Function]


def _loops(last: Cell, functions: _Functions) -> Iterator[ast.For | ast.While]:
    """The loops of the cell itself, then those of the functions that it calls, directly or indirectly."""
    code = [each for each in last.tree.body if not isinstance(each, (*_DEFINES, ast.ClassDef))]
    work: list[ast.AST] = [ast.Module(code, [])]
    met = set[str]()
    for node in work:  # the list grows during the iteration
        yield from (each for each in ast.walk(node) if isinstance(each, (ast.For, ast.While)))
        for name in keys_called(node):
            if name in functions and name not in met:
                met.add(name)
                work.append(ast.Module(functions[name].body, []))


def _all(node: ast.AST, functions: _Functions, without: str = "") -> list[ast.AST]:
    """The code, and the bodies of the functions that it calls, directly or indirectly, except the function
    ``without``.
    """
    work, met = [node], {without}
    for each in work:  # the list grows during the iteration
        for name in keys_called(each):
            if name in functions and name not in met:
                met.add(name)
                work.append(ast.Module(functions[name].body, []))
    return work


def _text(node: ast.AST, functions: _Functions) -> str:
    return "\n".join(ast.unparse(each) for each in _all(node, functions))


def _makes(inside: ast.AST, functions: _Functions, modules: Iterable[str]) -> bool:
    """Whether each iteration creates a model or an optimizer, or resets one: then the same seed is intended."""
    calls = (call for part in _all(inside, functions) for call in ast.walk(part) if isinstance(call, ast.Call))
    return any(_is_new(call, modules) for call in calls)


def _is_new(call: ast.Call, modules: Iterable[str]) -> bool:
    name, words = name_called(call), ast.unparse(call.func)
    if "optim." in words or name in ("load_state_dict", "deepcopy", "reset_parameters", "Sequential"):
        return True
    if name in modules or (words.startswith("nn.") and not words.startswith(("nn.functional.", "nn.utils."))):
        return True
    # An optimizer is made from parameters; clipping and sums read them only.
    return any(_is_parameters(each) for each in call.args) and not name.startswith(("clip_", "zip", "list", "sum"))


def _is_parameters(node: ast.expr) -> bool:
    """Whether an argument is a call of ``parameters()``, as an optimizer gets."""
    return isinstance(node, ast.Call) and name_called(node) == "parameters"


def _seeds(
    body: list[ast.stmt], functions: _Functions, given: Mapping[str, ast.expr | None], changing: set[str], depth: int
) -> Iterator[_Seed]:
    """The seeds that each run of these statements sets to a number that is the same in each iteration."""
    for statement in body:
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            restores = any(word in ast.unparse(each) for each in statement.items for word in _RESTORES)
            yield from _seeds([] if restores else statement.body, functions, given, changing, depth)
        elif isinstance(statement, (ast.For, ast.While)):
            yield from _seeds(statement.body, functions, given, changing, depth)
        elif not isinstance(statement, (ast.If, ast.Try, *_DEFINES, ast.ClassDef)):
            for call in (each for each in ast.walk(statement) if isinstance(each, ast.Call)):
                yield from _seeds_of(call, functions, given, changing, depth)


def _seeds_of(
    call: ast.Call, functions: _Functions, given: Mapping[str, ast.expr | None], changing: set[str], depth: int
) -> Iterator[_Seed]:
    function = functions.get(key_of(call)) if depth else None
    if function is None:
        constant, seed = _value(call.args[0] if call.args else None, given, changing)
        yield from (_Seed(library, seed, "") for library in _libraries(call, name_called(call)) if constant)
    elif not any(word in ast.unparse(function) for word in _RESTORES):
        found = _seeds(function.body, functions, _arguments(call, function, given), changing, depth - 1)
        yield from (each._replace(setter=key_of(call)) for each in found)


def _libraries(call: ast.Call, name: str) -> Iterator[str]:
    """The libraries, or the name of the generator, whose seed a call sets."""
    words = ast.unparse(call.func)
    if words in ("torch.manual_seed", "torch.random.manual_seed", "manual_seed"):
        yield "torch"
    elif name == "manual_seed" and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        yield call.func.value.id
    elif words in ("np.random.seed", "numpy.random.seed"):
        yield "numpy"
    elif words == "random.seed":
        yield "random"
    elif name in _ALL:
        yield from ("torch", "numpy", "random")


def _arguments(call: ast.Call, function: Function, given: Mapping[str, ast.expr | None]) -> dict[str, ast.expr | None]:
    """The values of the parameters of a function in a call of it; None for unknown ones."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    found: dict[str, ast.expr | None] = dict.fromkeys([*names, *(each.arg for each in function.args.kwonlyargs)])
    found |= dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
    found |= {each.arg: at for each, at in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)}
    positions = names[1:] if names[:1] == ["self"] else names
    passed = dict(zip(positions, call.args, strict=False))
    passed |= {each.arg: each.value for each in call.keywords if each.arg}
    for name, value in passed.items():
        found[name] = given.get(value.id, value) if isinstance(value, ast.Name) else value
    return found


def _value(node: ast.expr | None, given: Mapping[str, ast.expr | None], changing: set[str]) -> tuple[bool, int | None]:
    """Whether a seed is the same in each iteration, and its number if the source shows it (else None)."""
    if isinstance(node, ast.Name) and node.id in given:
        node = given[node.id]
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return True, node.value
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return False, None
    return not any(isinstance(each, ast.Name) and each.id in changing for each in ast.walk(node)), None


def _ignores_target(loop: ast.For | ast.While) -> bool:
    """Whether a ``for`` loop does not read its loop variable, so that its iterations differ only by what they draw."""
    if isinstance(loop, ast.While):
        return False
    read = set[str]().union(*(_names(part, ast.Load) for part in loop.body))
    return _names(loop.target, ast.Store).isdisjoint(read)


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, context)}


def _drawn(inside: ast.AST, found: _Seed, functions: _Functions, what: Callable[[str], str]) -> Iterator[str]:
    """The expressions that draw from the seeded generator in an iteration, outside the function that sets the seed;
    inside it only if that function trains.
    """
    setter = functions.get(found.setter)
    without = found.setter if setter is not None and ".backward(" not in _text(setter, functions) else ""
    parts = _all(inside, functions, without)
    for call in (each for part in parts for each in ast.walk(part) if isinstance(each, ast.Call)):
        if key_of(call) not in functions and _draws_from(call) == found.library:
            yield ast.unparse(call)
    if found.library == "torch":
        for each in (one for part in parts for one in ast.walk(part)):
            if isinstance(each, ast.Name) and (kind := what(each.id)):
                yield f"{each.id} ({kind})"


def _draws_from(call: ast.Call) -> str:
    """The generator from which a call draws: the library of a global generator, or the name of a generator; empty if it
    draws nothing.
    """
    name, words = name_called(call), ast.unparse(call.func)
    generator = next((each.value for each in call.keywords if each.arg == "generator"), None)
    if generator is not None:
        return generator.id if isinstance(generator, ast.Name) else ""
    if words.startswith(("np.random.", "numpy.random.")):
        return "numpy" if name not in ("seed", "default_rng", "get_state", "Generator", "RandomState") else ""
    if words.startswith("random."):
        return "random" if name not in ("seed", "Random", "getstate") else ""
    return "torch" if name in _OF_TORCH else ""
