"""The share of its points that an answer to an exercise earns: for the properties that it has and the exercise's given
cell lacks. :func:`earned` returns it for a cell that is run here, :func:`share` for properties that are known.

What does not depend on the input is worth nothing: an answer earns no points if its functions return the same whatever
they are given (or their argument as it is, or a tensor filled with one number), and everything that holds would hold
for functions that only do that.

What the given cell has only because it raises or does nothing is not lost by an answer that does something: see
:func:`had_beside`.

The cells that are run in this process are ours; a learner's is run by the ``runner`` that graded it.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from pitfall_lab.lessons.attempt import Observation, Request, observe
from pitfall_lab.lessons.exercise import Exercise, Runner, grade
from pitfall_lab.trace import T

_CONSTANT = "torch.zeros((), requires_grad=True) * 1"
"""A constant that fails no backward."""
MOST_NUMBERS, MOST_STORED, LONGEST, MOST_PARAMETERS = 4096, 1 << 20, 100_000, 4
"""Numbers of a tensor that is written out as a constant, and of its storage; characters of a constant; parameters of a
function that are tried for the shape of what it returns.
"""


def share(properties: Iterable[tuple[bool, bool, bool]]) -> float:
    """The share of the points, from 0 to 1: properties gained, less properties lost, over those that the given cell
    lacks.

    Each property is a triple of bools: the answer has it, the given cell has it, an answer that does nothing (returns a
    constant, for instance) would have it. The share is 0 if all properties that the answer has would also hold for an
    answer that does nothing.

    >>> share([(True, False, False), (False, False, False), (True, True, False)]), share([(True, True, True), (False, False, False)])
    (0.5, 0.0)
    """  # noqa: E501
    each = list(properties)
    if not any(holds and not idle for holds, _, idle in each):
        return 0.0
    return gained([(holds, had) for holds, had, _ in each])


def gained(properties: Iterable[tuple[bool, bool]]) -> float:
    """The share of the points, from 0 to 1, of an answer that does something.

    ``properties`` are pairs: whether the answer has a property, and whether the cell as it is given has it. A property
    that only the answer has counts for it, one that only the given cell has counts against it.
    """
    each = list(properties)
    more, less = sum(holds and not had for holds, had in each), sum(had and not holds for holds, had in each)
    return max(0.0, (more - less) / max(1, sum(not had for _, had in each)))


_IDLE = T(
    en="What holds here also holds for an answer that does nothing, so it earns nothing.",
    zh="此处成立的性质，什么都不做的答案也具备，因此不得分。",
)
_LOST = T(
    en="You fixed something, but broke at least as much that worked before: no points.",
    zh="你修好了一些，但弄坏的原本成立的性质不比修好的少，因此不得分。",
)


def why_nothing(properties: Iterable[tuple[bool, bool]], share: float) -> T | None:
    """Why an answer whose ``share`` is 0 earns nothing though it has properties that the given cell lacks;
    None if it has none of these, or the share is not 0.

    A property is a pair, as in :func:`gained`.
    """
    each = list(properties)
    if share or not any(holds and not had for holds, had in each):
        return None
    return _IDLE if gained(each) else _LOST


def earned(exercise: Exercise, source: str, holds: Sequence[bool]) -> float:
    """The share of the points, from 0 to 1, that the cell ``source`` earns; it may be run in this process for that.

    ``holds`` says which properties it has; if it has all, the share is 1.
    """
    return (
        1.0
        if all(holds)
        else share(zip(holds, had_beside(exercise, holds), idle(exercise, source, holds), strict=True))
    )


@cache
def had(exercise: Exercise, draw: int = 0) -> tuple[bool, ...]:
    """For each property of ``exercise``, whether the given cell (as handed out) already has it; ``draw`` is added to
    all seeds.
    """
    return tuple(mark.holds for mark in grade(exercise, exercise.given, draw=draw).marks)


def had_beside(exercise: Exercise, holds: Sequence[bool], draw: int = 0) -> tuple[bool, ...]:
    """For each property, whether the given cell has it when compared with an answer that has the properties in
    ``holds``.

    A property that the answer lacks, and that the given cell has only because it raises or does nothing, counts as
    lacking there, too: an answer that computes a gradient has not lost the property of computing none. ``draw`` is
    added to all seeds.
    """
    before = had(exercise, draw)
    if not any(there and not it for there, it in zip(before, holds, strict=True)):
        return before
    empty = _had_by_doing_nothing(exercise, draw)
    return tuple(there and (it or not idle) for there, it, idle in zip(before, holds, empty, strict=True))


@cache
def _had_by_doing_nothing(exercise: Exercise, draw: int) -> tuple[bool, ...]:
    """For each property, whether the given cell has it only because it does nothing.

    That is so if a cell that returns a constant has the property as well, and the given cell raises or does nothing in
    the runs that decide it.
    """
    both = zip(had(exercise, draw), _held(exercise, _returning(exercise, {}), draw), strict=True)
    noting = _noting(exercise, alike=False)
    return tuple(
        all(pair)
        and all(
            _did_nothing(replace(run, drive=noting + run.drive, expressions=("_returned",), watched=True))
            for run in _given_runs(replace(exercise, properties=(prop,)), draw)
        )
        for prop, pair in zip(exercise.properties, both, strict=True)
    )


def _given_runs(exercise: Exercise, draw: int) -> Iterable[Request]:
    """The different runs of the given cell by which its exercise is decided, without those under a misconception."""
    runs: dict[Request, None] = {}

    def asked(requests: Sequence[Request]) -> list[Observation]:
        runs.update((replace(each, expressions=(), watched=False), None) for each in requests if not each.believing)
        return _here(requests)

    grade(exercise, exercise.given, asked, draw=draw)
    return runs


def _did_nothing(run: Request) -> bool:
    """Whether the cell raised in a watched run, or its functions did nothing when they were called.

    They do nothing if they call nothing of torch and return None or an argument. False if none of them was called.
    """
    seen = observe(run)
    if seen.error is not None:
        return seen.in_cell or seen.error.line is not None
    returned = seen.values["_returned"]
    if not isinstance(returned, list) or not returned or seen.trace is None:
        return False
    spans = [event.span for event in seen.trace.events if event.span is not None and event.span.source == 0]
    return all(span.line >= seen.made for span in spans) and all(
        value is None or (isinstance(value, dict) and set(value) == {"argument"}) for _, value in returned
    )


def _here(requests: Sequence[Request]) -> list[Observation]:
    return [observe(request) for request in requests]


def idle(
    exercise: Exercise, source: str, holds: Sequence[bool], runner: Runner = _here, *, draw: int = 0
) -> tuple[bool, ...]:
    """For each property, whether an answer that does nothing has it, too: one whose functions return a constant.

    If the results of the cell ``source`` do not depend on its inputs, and an answer that only returns these results has
    all properties in which ``holds`` is True, then the properties of that answer count as well. ``runner`` runs the
    cell again to find this out, up to four times. ``draw`` is added to all seeds.
    """
    constant = _held(exercise, _returning(exercise, {}), draw)
    if all(holds) or not share(zip(holds, had(exercise, draw), constant, strict=True)):
        return constant
    for cell in _only_returning(exercise, source, runner, draw):
        # what a constant has (it changes no argument, it fails no backward), an answer may have that does nothing else
        does = tuple(map(any, zip(constant, _held(exercise, cell, draw), strict=True)))
        if all(there for there, it in zip(does, holds, strict=True) if it):
            return does
    return constant


@lru_cache(maxsize=512)
def _held(exercise: Exercise, cell: str, draw: int) -> tuple[bool, ...]:
    return tuple(mark.holds for mark in grade(exercise, cell, draw=draw).marks)


def _returning(exercise: Exercise, forms: Mapping[str, str]) -> str:
    """The given cell with its functions replaced by ones that only return something; variables are None.

    A function returns the expression that ``forms`` has for its name, else a constant; methods without a form stay as
    given. In a form, ``{1}`` stands for the function's second parameter.
    """
    tree = ast.parse(exercise.given)
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            statement.value = ast.Constant(None)
    for name, function in _functions(tree):
        if form := forms.get(name, "" if "." in name else _CONSTANT):
            function.decorator_list.clear()
            function.body = [ast.Return(ast.parse(form.format(*_parameters(function)), mode="eval").body)]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a cell and the methods of its classes (``"Net.forward"``), each with its name.

    ``__init__`` and methods with decorators are left out.
    """
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement.name, statement
        if isinstance(statement, ast.ClassDef):
            methods = [each for each in statement.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
            yield from ((f"{statement.name}.{each.name}", each) for each in methods if not each.decorator_list)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


# ---------------------------------------------------------------- whether an answer depends on what it is given

_NOTING = """\
_returned = []


def _kept(value, arguments):
    for place, argument in enumerate(arguments):
        if value is argument and isinstance(value, torch.Tensor):
            return {{"argument": place}}
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        values, stored = value.detach().clone(), value.untyped_storage().nbytes() // value.element_size()
        return values if stored <= values.numel() else {{"stored": stored, "values": values}}
    if isinstance(value, dict):
        value = [*value.items()]
    return [_kept(part, arguments) for part in value] if isinstance(value, (list, tuple)) else value


def _noted(name, function):
    def call(*arguments, **named):
        if {alike}:
            torch.manual_seed(0)
            np.random.seed(0)
            __import__("random").seed(0)
        try:
            result = function(*arguments, **named)
        except Exception as error:
            _returned.append([name, error])
            raise
        _returned.append([name, _kept(result, arguments)])
        return result

    return call


{wrapped}
"""
"""Notes what functions return; ``alike``: each call with the same random numbers, since those that a cell draws are no
work of its own.
"""
Results = dict[str, list[Any]]
"""What functions, by their names, returned in all calls of all runs, as plain data."""


def _only_returning(exercise: Exercise, source: str, runner: Runner, draw: int) -> Iterator[str]:
    """Yield cells that only return what the functions of ``source`` return, if that is equal in all runs of the
    exercise.

    None is yielded if the results of the right answer are equal in all runs, too.
    """
    if not _noting_runs(exercise, draw) or all(map(_forms, _of_the_right_one(exercise, draw).values())):
        return
    # At first as it was graded: a cell can see by the seed that its numbers are made alike, and do something else then.
    for alike in (False, True):
        asked = [replace(request, cell=source) for request in _noting_runs(exercise, draw, alike=alike)]
        # Most answers return other results for other input: two runs and the first once more show that already.
        few = [*asked[:2], asked[0]]
        if len(asked) < len(few) or any(_cells_for(exercise, runner(few))):
            yield from _cells_for(exercise, runner([*asked, asked[0]]))


def _cells_for(exercise: Exercise, seen: Sequence[Observation]) -> Iterator[str]:
    """Yield the cells of :func:`_only_returning` for these observations, of which the last repeats the first run."""
    results, once, again = _noted(seen[:-1]), _noted(seen[:1]), _noted(seen[-1:])
    # What is not the same for the same input (the time of day, numbers of the system's) is no work on the input.
    drawn = {name for name in results if not _is_same(once.get(name), again.get(name))}
    forms = {name: _forms(values[:1] if name in drawn else values) for name, values in results.items()}
    for n in range(max(map(len, forms.values()), default=0)) if all(forms.values()) else ():
        # a form for more parameters than a function has, or too deep for a program: it comes from a learner's process
        with contextlib.suppress(IndexError, SyntaxError, RecursionError, MemoryError):
            yield _returning(exercise, {name: own[min(n, len(own) - 1)] for name, own in forms.items()})


def _forms(values: Sequence[Any]) -> list[str]:
    """Expressions for what a function returns, if all ``values`` are equal, or are arrays filled with the same number.

    Empty otherwise, and if the expression would be too long.

    >>> _forms([3, 3]), _forms([3, 4]), _forms([{"argument": 1}] * 2)
    (['3'], [], ['{1}'])
    >>> _forms([np.zeros(2), np.zeros(3)])[0]
    'torch.full_like({0}, 0.0)'
    """
    try:
        if len(set(map(_exactly, values))) == 1:
            form = _as_source(values[0])
            return [form] if 0 < len(form) < LONGEST else []
    except RecursionError:
        return []
    filled = [each.flat[0].item() if isinstance(each, np.ndarray) and each.size else None for each in values]
    if None in filled or len(set(filled)) > 1 or not all((each == filled[0]).all() for each in values):
        return []
    return [f"torch.full_like({{{n}}}, {filled[0]!r})" for n in range(MOST_PARAMETERS)]


def _exactly(value: Any) -> Any:
    """A key that two values share if they are equal to the last digit, since inputs may differ only in small
    numbers.
    """
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        value = [*value.items()]
    return tuple(map(_exactly, value)) if isinstance(value, (list, tuple)) else repr(value)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal to the last digit; True also if they are nested too deeply to be compared."""
    try:
        return bool(_exactly(one) == _exactly(other))
    except RecursionError:
        return True


def _as_source(value: Any) -> str:
    """An expression for a value, made of literals only, since the value comes from a learner's process; "" if there is
    none.

    >>> _as_source((np.ones(2, np.float32), [True, None])), _as_source(object())
    ('(torch.tensor([1.0, 1.0], dtype=torch.float32), [True, None, ], )', '')
    >>> _as_source({"argument": 1}), _as_source({"argument": -1}), _as_source({"argument": True})
    ('{1}', '', '')
    """
    match value:
        case np.ndarray() if value.size <= MOST_NUMBERS and value.dtype.kind in "biufc":
            numbers = str(value.tolist()).replace("nan", "torch.nan").replace("inf", "torch.inf")
            return f"torch.tensor({numbers}, dtype=torch.{value.dtype.name})"
        case list() | tuple():
            parts = [_as_source(part) for part in value]
            inner = "".join(f"{part}, " for part in parts)
            return "" if not all(parts) else f"[{inner}]" if isinstance(value, list) else f"({inner})"
        case {"argument": int(place)} if type(place) is int and 0 <= place < LONGEST:
            return f"{{{place}}}"
        case {"stored": int(stored), "values": np.ndarray() as values} if values.size < stored < MOST_STORED and (
            form := _as_source(values)
        ):
            more = stored - values.size
            return f"F.pad({form}.flatten(), (0, {more}))[:-{more}].view({values.shape})"
        case None | bool() | int() | float() | str():
            return repr(value).replace("{", "{{").replace("}", "}}")
    return ""


@cache
def _of_the_right_one(exercise: Exercise, draw: int) -> Results:
    return _noted(_here(_noting_runs(exercise, draw)))


def _noted(seen: Iterable[Observation]) -> Results:
    """What each function returned in all calls of all runs, by its name; empty if one of the runs could not be made."""
    results: Results = {}
    for observation in seen:
        match observation.values["_returned"]:
            case list() as returned if all(
                isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in returned
            ):
                for name, value in returned:
                    results.setdefault(name, []).append(value)
            case _:
                return {}
    return results


@cache
def _noting_runs(exercise: Exercise, draw: int, *, alike: bool = True) -> tuple[Request, ...]:
    """The runs by which the exercise is decided, with code in the drive that notes what functions with parameters
    return.

    Empty if no function has parameters. None of the runs is watched or under a misconception. ``alike``: each call
    draws the same random numbers.
    """
    noting = _noting(exercise, alike=alike)
    runs: dict[Request, None] = {}

    def asked(requests: Sequence[Request]) -> list[Observation]:
        for each in requests:
            if not each.believing:
                expressions = (*each.expressions, "_returned")
                runs[replace(each, watched=False, drive=noting + each.drive, expressions=expressions)] = None
        return _here(requests)

    if noting:
        grade(exercise, exercise.right[0], asked, draw=draw)
    return tuple(runs)


def _noting(exercise: Exercise, *, alike: bool) -> str:
    """Code that notes what each function of the cell with parameters returns; "" if there are none."""
    functions = [
        name for name, function in _functions(ast.parse(exercise.given)) if set(_parameters(function)) - {"self"}
    ]
    wrapped = "\n".join(f"{name} = _noted({name!r}, {name})" for name in functions)
    return _NOTING.format(alike=alike, wrapped=wrapped) if functions else ""
