"""Programs in two worlds: torch's, and the one in which a misconception is true. :func:`ending` returns how a program
ends on the engine, :func:`real` how it ends on torch.

Both are the shadow engine's; its predictions for torch's world are compared with the real torch by the tests.
"""

from __future__ import annotations

import ast
import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pitfall_lab import shadow
from pitfall_lab.lessons.misconceptions import Misconception
from pitfall_lab.lessons.run_here import ProgramRan, execute, failing_line
from pitfall_lab.shadow.facade.running import After
from pitfall_lab.shadow.releases import NEWEST, Release

NAME = "<world>"
TORCH = shadow.TORCH


@dataclass(frozen=True, slots=True)
class Ending:
    """How a program ends.

    ``printed`` is its output, ``error`` the type of the exception that ended it and ``line`` the line that raised;
    these are empty and None if none did.
    """

    printed: str = ""
    error: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return the ending as text: the output, then the error on its own line."""
        return self.printed.rstrip("\n") + (f"\n{self.error} in line {self.line}" if self.error else "")


PRINTED, RAISED = "print()", "raise"
"""The keys of a state (:func:`_state`) for its output and its error; no variable can have such a name."""


@cache
def _release() -> Release:
    """The release (major, minor) of the installed torch, which the engine's world of torch follows; else the newest
    one.
    """
    with contextlib.suppress(PackageNotFoundError):
        major, minor = version("torch").split(".")[:2]
        return int(major), int(minor)
    return NEWEST


def run(
    program: str, policy: shadow.Policy, after: After | None = None
) -> tuple[dict[str, Any], BaseException | None, str] | None:
    """Run ``program`` on the engine under ``policy``; return its names, the error that ended it (or None), and its
    output.

    None if the engine has no model of something in it, if it is not valid Python, or if it ended with an exception that
    is no ``Exception`` (``SystemExit``). ``KeyboardInterrupt`` is raised. ``after`` is called after each top-level
    statement with its last line, the names, and the text printed so far.
    """
    try:
        compile(program, NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names, error, printed = shadow.run(program, policy, NAME, after, _release())
    if isinstance(error, KeyboardInterrupt):
        raise error
    unknown = isinstance(error, (shadow.Absent, NotImplementedError, ModuleNotFoundError))
    if unknown or (error is not None and not isinstance(error, Exception)):
        return None
    return names, error, printed


def ending(program: str, policy: shadow.Policy) -> Ending | None:
    r"""How ``program`` ends on the engine under ``policy``; None if :func:`run` returns None.

    >>> str(ending("import torch\nx = torch.ones(2)\nx.clone().add_(1)\nprint(x.tolist())", shadow.Policy(clone_shares_memory=True)))
    '[2.0, 2.0]'
    """  # noqa: E501
    ran = run(program, policy)
    if ran is None:
        return None
    _, error, printed = ran
    return Ending(printed, type(error).__name__ if error else "", failing_line(error, NAME))


def real(program: str) -> Ending:
    """Return how ``program`` ends on the real torch, here and now."""
    ran = execute(program, NAME)
    return Ending(ran.printed, type(ran.error).__name__ if ran.error else "", ran.line)


@dataclass(frozen=True, slots=True)
class Parting:
    """The first ``line`` after which a run under a belief differs from one under torch's rules.

    ``rows`` are the differences as (what, its value under the belief, its value on torch), all text.
    """

    line: int
    rows: tuple[tuple[str, str, str], ...]


def parting(
    program: str, belief: Misconception | Callable[[shadow.Policy], shadow.Policy], *, values: bool = False
) -> Parting | None:
    r"""The first line after which a run under ``belief`` differs from one under torch's rules.

    None if no line shows a difference, or the engine has no model of something in the program. With ``values``, lines
    after which only version counters differ are passed over if values differ at a later line: a learner who predicted a
    value has not thought of counters.

    >>> from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
    >>> parting("import torch\nx = torch.ones(2)\ny = x\ny += 1\nz = 0", MISCONCEPTIONS["augmented_assignment_rebinds"])
    Parting(line=4, rows=(('x', '[1, 1]', '[2, 2]'), ('x._version', '0', '1'), ('y._version', '0', '1')))
    """
    yours, torchs = unfolded(program, belief(shadow.TORCH)), _torchs(program)
    first = None
    for (line, a), (_, b) in zip(yours or (), torchs or (), strict=False):
        rows = tuple(
            (what, a.get(what, "—"), b.get(what, "—")) for what in dict.fromkeys((*b, *a)) if a.get(what) != b.get(what)
        )
        if not rows:
            continue
        if not values or not all(what.endswith("._version") for what, *_ in rows):
            of_values = all(RAISED not in state for state in (a, b))
            return Parting(line, rows) if first is None or of_values else first
        first = first or Parting(line, rows)
    return first


@lru_cache(maxsize=8)
def _torchs(program: str) -> list[tuple[int, dict[str, str]]] | None:
    """:func:`unfolded` of the program under torch's rules, cached because every belief is compared with it.

    None if the engine has no model of something in the program.
    """
    return unfolded(program, shadow.TORCH)


def unfolded(program: str, policy: shadow.Policy) -> list[tuple[int, dict[str, str]]] | None:
    """For each statement of ``program`` its last line and the observable values after it, on the engine under
    ``policy``.

    Values are text, and include gradients, versions, the error and the output. None if the engine has no model of
    something in the program.
    """
    states: list[tuple[int, dict[str, str]]] = []
    ran = run(program, policy, lambda line, names, printed: states.append((line, _state(names, None, printed))))
    return None if ran is None else [*states, *_ending(program, len(states), *ran)]


def real_unfolded(program: str, ran: ProgramRan) -> list[tuple[int, dict[str, str]]]:
    """For each statement its last line and the observable values after it, on the real torch.

    Empty if reading the values makes the program end in another way than in the run ``ran``.
    """
    states: list[tuple[int, dict[str, str]]] = []
    looked = execute(program, NAME, lambda line, names, printed: states.append((line, _state(names, None, printed))))
    if (type(looked.error), looked.line, looked.printed) != (type(ran.error), ran.line, ran.printed):
        return []
    return [*states, *_ending(program, len(states), looked.namespace, looked.error, looked.printed)]


def _ending(
    program: str, done: int, names: dict[str, Any], error: BaseException | None, printed: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the last line of the statement that raised, with the observable values then.

    ``done`` statements ran before it.

    Yields nothing if no statement raised.
    """
    if error is not None and not isinstance(error, SyntaxError):
        statement = ast.parse(program).body[done]
        yield statement.end_lineno or statement.lineno, _state(names, error, printed)


def seen(program: str, policy: shadow.Policy) -> dict[str, str] | None:
    """Return all observable values after ``program`` on the engine under ``policy``, as text; None if the engine has no
    model of something in it.
    """
    ran = run(program, policy)
    return None if ran is None else _state(*ran)


def real_seen(program: str) -> dict[str, str]:
    """Return all observable values after ``program`` on the real torch, as text."""
    ran = execute(program, NAME)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _state(
            {name: value for name, value in ran.namespace.items() if not name.startswith("__")}, ran.error, ran.printed
        )


def _state(names: dict[str, Any], error: BaseException | None, printed: str) -> dict[str, str]:
    """The observable values at one moment, as text: values, gradients, versions, the error and the output."""
    seen = {}
    for name, value in names.items():
        if not name.startswith("__"):
            seen.update(_look(name, value))
    for name, value in names.items():
        if _is_tensor(value):
            seen[f"{name}._version"] = str(value._version)  # noqa: SLF001 - the name that torch gives it
    if printed:
        seen[PRINTED] = printed.rstrip("\n")
    if error is not None:
        seen[RAISED] = type(error).__name__
    return seen


def _look(name: str, value: Any) -> dict[str, str]:
    if _is_tensor(value):
        seen = {name: say(value)}
        if value.requires_grad:
            seen[f"{name}.requires_grad"] = "True"
        with contextlib.suppress(RuntimeError):  # reading the grad_fn of this view raises
            if value.is_leaf and value.grad is not None:
                seen[f"{name}.grad"] = say(value.grad)
        return seen
    if isinstance(value, (bool, int, float, str, list, tuple)) or value is None or hasattr(value, "tolist"):
        return {name: say(value)}
    return {}


def _is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor, of torch or of the shadow engine."""
    return hasattr(type(value), "grad_fn") and hasattr(type(value), "_version")


def say(value: Any) -> str:
    """A value as text that torch and the engine agree on and a person can read: tensors as lists, floats with four
    digits.

    >>> say((1.0, [2 / 3, None, "x"])), say((3,))
    ("(1, [0.6667, None, 'x'])", '(3,)')
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(say(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(value)


def separating(sources: Iterable[str], beliefs: Iterable[Misconception]) -> str | None:
    """The program of ``sources`` that has the most different endings under ``beliefs``; of several, the shortest.

    Programs that the engine cannot run under one of the beliefs are left out. None if no program has two endings.
    """
    held = list(beliefs)
    best: tuple[int, str] = (1, "")
    for program in sorted(sources, key=lambda source: (len(source), source)):
        endings = {ending(program, m(shadow.TORCH)) for m in held}
        if None not in endings and len(endings) > best[0]:
            best = (len(endings), program)
        if best[0] == len(held):
            break
    return best[1] or None
