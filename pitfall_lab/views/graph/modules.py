"""Which module each operation of a program belongs to, as far as the trace tells, which function of the learner's
inside it, and the tree of boxes that this makes. :func:`modules` returns the path of the module of each node and
parameter.

A parameter's name (``net.blocks.0.mlp.2.weight``) says which module it is of: an operation that reads one is
placed for sure. The others:

- In the same call expression as operations with parameters (what ``nn.Sequential`` runs beside its layers):
  the module that these share.
- In the learner's own ``forward``: the module whose ``forward`` it is. The outermost one is the model; for
  one inside it, the parameters
  that it reads in one go tell which. Its depth is the same in each of its calls.
- Outside of any ``forward``, or where both neighbours could be meant: no module, or the smallest that holds both.
- In a function that a ``forward`` calls: the module of what this ``forward`` does before and after the call.

A function is a box ("attention()") inside of its module where it only computes: one in which a module is called or
a backward runs is around boxes, and no part of the model. Calls of a function one right after the other are one box.

So a box may be too large for an operation, never a wrong one beside it, as long as a ``forward``
runs from its top to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pitfall_lab.trace import Event, Span
from pitfall_lab.views.label_history import Facts

Path = tuple[str, ...]
"""The way to a module from its model, as names of attributes; a later call of a module has its
number behind its name: "ln ·2".
"""


def modules(facts: Facts, many: int = 0) -> dict[str, Path]:
    """The path of the module that each node and parameter of a graph belongs to, by label.

    A path has names of attributes, then those of functions inside the module. Nodes in no module are left out. If a
    program has no modules and the graph more than ``many`` nodes, the program's functions take their place.
    """
    owner = _owners(facts)
    calls = [event for event in facts.trace.events if event.kind == "call"]
    of_event = _events(calls, owner, functions=bool(owner) or len(facts.nodes) > many)
    found: dict[str, Path] = {label: path for label, path in owner.items() if path}
    for label, history in facts.nodes.items():
        record = history[-1][1] or {}
        fills = record.get("output") if record.get("name") == "AccumulateGrad" else None
        path = found.get(fills) if fills else of_event.get(history[0][0])
        if path:
            found[label] = path
    return _merged(found)


def _owners(facts: Facts) -> dict[str, Path]:
    """The path of the module of each parameter, by label; without the model's own name if there is only one model."""
    paths: dict[str, Path] = {}
    for label, history in facts.tensors.items():
        record = history[-1][1] or {}
        *path, _ = str(record.get("name") or "").split(".")
        if record.get("kind") == "parameter" and path:
            paths[label] = tuple(path)
    # `model.0.weight` is the parameter's own name for someone outside, `self.0.weight` for the module itself.
    if len({path[0] for path in paths.values()}) == 1:
        paths = {label: path[1:] for label, path in paths.items()}
    return paths


def _events(calls: list[Event], owner: dict[str, Path], *, functions: bool) -> dict[int, Path]:
    """The path of the module of each event, by step, with the functions in it if ``functions``.

    The module follows from the parameters that the event reads, else from the frames of ``forward``, else from the
    calls around it. Events in no module are left out. Calls that write a parameter do not count as reading it.
    """
    sure: dict[int, Path] = {}
    read: dict[int, list[str]] = {}
    for event in calls:
        labels = [o.label for o in event.operands if o.label in owner]
        if labels and not event.writes:
            read[event.step] = labels
            sure[event.step] = _common([owner[label] for label in labels])
    depths = _depths(calls, sure, set(owner.values()))
    before = _neighbours(calls, sure)
    after = _neighbours(reversed(calls), sure)
    plain: dict[int, Path] = {}
    for event in calls:
        path = sure.get(event.step)
        if path is None:
            path = _beside(event, before.get(event.step), after.get(event.step), sure, depths)
        if path:
            plain[event.step] = path
    numbered = _numbered(calls, plain, read)
    return _Functions(calls, numbered, depths).placed() if functions else numbered


class _Functions:
    """The learner's functions as boxes, each in the module whose ``forward`` calls it."""

    def __init__(self, calls: list[Event], of_event: dict[int, Path], depths: dict[tuple[str, ...], int]) -> None:
        self.calls = calls
        self.depths = depths
        self.paths = dict(of_event)
        self.counts: Counter[Path] = Counter()
        self.around = self._around(of_event)

    def placed(self) -> dict[int, Path]:
        """For the step of each event, the path of the module that it belongs to, extended by the learner's functions
        that were running inside the innermost ``forward``.
        """
        of_event = dict(self.paths)
        start = 0
        for chain, group in groupby(self.calls, key=lambda event: event.scope[: _home(event.scope) + 1]):
            run = list(group)
            home = chain[: _home(chain)]
            if chain != home:
                self._place(run, len(home), self._module(start, start + len(run), home, of_event))
            start += len(run)
        return self.paths

    def _place(self, run: list[Event], depth: int, path: Path) -> None:
        """Give consecutive events, which are ``depth`` frames deep in the box ``path``, their paths, with a box per
        function.
        """
        for chain, group in groupby(run, key=lambda event: event.scope[: depth + 1]):
            inside = list(group)
            if len(chain) == depth:
                own = [event.step for event in inside if len(self.paths.get(event.step, ())) <= len(path)]
                self.paths.update(dict.fromkeys(own, path) if path else {})
                continue
            name = chain[-1].rpartition(".")[2]
            box = path
            if name.isidentifier() and chain not in self.around:  # a lambda has no name
                self.counts[(*path, name)] += 1
                number = self.counts[(*path, name)]
                box = (*path, f"{name}()" if number == 1 else f"{name}() ·{number}")
            self._place(inside, depth + 1, box)

    def _around(self, of_event: dict[int, Path]) -> set[tuple[str, ...]]:
        """The chains of frames that get no box: those around all events, around a call of a module, or around a
        backward.
        """
        whole = _common(event.scope for event in self.calls) if self.calls else ()
        chains = {whole}
        for event in self.calls:
            home = _home(event.scope)
            path = of_event.get(event.step, ())
            deeper = len(path) > (self.depths.get(event.scope[:home], len(path)) if home else 0)
            chains.add(event.scope if deeper or event.name == "backward" else event.scope[:home])
        return {chain[:depth] for chain in chains for depth in range(1, len(chain) + 1)}

    def _module(self, start: int, end: int, home: tuple[str, ...], of_event: dict[int, Path]) -> Path:
        """The module whose ``forward`` (``home``) called the function in which the calls from ``start`` to ``end`` ran.

        It is the module of what that ``forward`` did before and after; if these differ, the smallest module around
        both.
        """
        found = []
        for places in (range(start - 1, -1, -1), range(end, len(self.calls))):
            for event in map(self.calls.__getitem__, places):
                if event.scope == home:
                    found.append(of_event.get(event.step, ())[: self.depths.get(home, 0)])
                if event.scope == home or event.scope[: len(home)] != home:
                    break
        return _common(found) if home and found else ()


def _home(scope: tuple[str, ...]) -> int:
    """The number of frames up to and including the last ``forward``; 0 if there is none."""
    return max((place + 1 for place, name in enumerate(scope) if name.endswith(".forward")), default=0)


def _beside(
    event: Event, last: Event | None, following: Event | None, sure: dict[int, Path], depths: dict[Path, int]
) -> Path:
    """The module of an operation that reads no parameters, judged by the nearest calls before and after that read some.

    Empty (no module) outside of any inner ``forward``, unless those calls are in the same call expression.
    """
    near = [one for one in (last, following) if one is not None and one.scope == event.scope]
    same = [sure[one.step] for one in near if one.span == event.span and event.span is not None]
    if same:  # one call expression, run by library code
        path = _common(same)
        return path if len(set(same)) > 1 else path[:-1]
    if _frames(event.scope) < 2:
        return ()
    depth = depths.get(event.scope)
    if depth is None:
        return ()
    for one in near:
        first, second = (one, event) if one is last else (event, one)
        if _goes_on(first.span, second.span):
            return sure[one.step][:depth]
    return _common([sure[one.step] for one in near])[:depth] if near else ()


def _frames(scope: tuple[str, ...]) -> int:
    return sum(name.endswith(".forward") for name in scope)


def _depths(calls: list[Event], sure: dict[int, Path], homes: set[Path]) -> dict[tuple[str, ...], int]:
    """For each chain of frames, the depth of the module whose ``forward`` is the last frame."""
    depths: dict[tuple[str, ...], int] = {}
    runs: dict[tuple[str, ...], list[Event]] = {}
    for event in calls:
        if event.step not in sure:
            continue
        run = runs.setdefault(event.scope, [])
        if run and not _goes_on(run[-1].span, event.span):
            run.clear()
        run.append(event)
        shared = _common([sure[one.step] for one in run])
        # A parameter of the program itself is in no module: nothing is above it.
        depth = max(
            0,
            min(
                len(shared),
                min(len(sure[one.step]) for one in run) - (0 if run[0].span is None else _called(run, sure)),
            ),
        )
        while depth and all(part.isdigit() for part in _children(shared[:depth], homes)):
            depth -= 1  # a list or a Sequential has no forward of the learner's
        depths[event.scope] = min(depth, depths.get(event.scope, depth))
    return depths


def _called(run: list[Event], sure: dict[int, Path]) -> int:
    """1 if all calls of a run are of one module, which is then one level below the ``forward`` that called it;
    else 0.
    """
    return int(len({sure[one.step] for one in run}) == 1)


def _children(path: Path, homes: set[Path]) -> set[str]:
    return {home[len(path)] for home in homes if home[: len(path)] == path and len(home) > len(path)}


def _neighbours(calls: Iterable[Event], sure: dict[int, Path]) -> dict[int, Event]:
    """For each event, the last event before it that reads parameters; with reversed ``calls``, the next one
    after it.
    """
    out: dict[int, Event] = {}
    last: Event | None = None
    for event in calls:
        if last is not None:
            out[event.step] = last
        if event.step in sure:
            last = event
    return out


def _goes_on(first: Span | None, second: Span | None) -> bool:
    """Whether ``second`` is evaluated after ``first`` in one pass through a function: it is below it or contains it."""
    if first is None or second is None or first.source != second.source:
        return False
    start, end = (second.line, second.column), (second.end_line, second.end_column)
    behind = start >= (first.end_line, first.end_column)
    holds = start <= (first.line, first.column) and end >= (first.end_line, first.end_column)
    return behind or holds


@dataclass(slots=True)
class _Run:
    """One call of a module that has not returned yet: the parameters it has read, and the calls inside it."""

    name: str
    read: set[str] = field(default_factory=set)
    inside: dict[str, _Run] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def enter(self, part: str, *, anew: bool) -> _Run:
        if anew or part not in self.inside:
            self.counts[part] = self.counts.get(part, 0) + 1
            number = self.counts[part]
            self.inside[part] = _Run(part if number == 1 else f"{part} ·{number}")
        return self.inside[part]


def _numbered(calls: list[Event], plain: dict[int, Path], read: dict[int, list[str]]) -> dict[int, Path]:
    """The module path of each event, in which the second and later calls of one module have names of their own.

    A new call begins where a parameter is read again after another module was called.
    """
    top = _Run("")
    last: Path = ()
    out: dict[int, Path] = {}
    for event in calls:
        path = plain.get(event.step)
        if not path:
            last = last if event.step in plain or event.scope else ()
            continue
        labels = set(read.get(event.step, ()))
        run, seen = top, False
        for part in path:
            following = run.inside.get(part)
            if following is None:
                break
            run = following
        seen = bool(labels & run.read)
        fork = len(_common([last, path])) if seen and last != path else len(path)
        run, names = top, []
        for place, part in enumerate(path):
            run = run.enter(part, anew=place == fork)
            names.append(run.name)
        run.read |= labels
        out[event.step], last = tuple(names), path
    return out


def _common(paths: Iterable[Path]) -> Path:
    """Return the longest path with which all ``paths`` (at least one) begin."""
    first, *rest = paths
    length = 0
    while length < len(first) and all(len(path) > length and path[length] == first[length] for path in rest):
        length += 1
    return first[:length]


def _merged(found: dict[str, Path]) -> dict[str, Path]:
    """The paths with levels joined that contain nothing but one further level: ``blocks`` and ``0`` become
    ``blocks.0``.
    """
    held: dict[Path, set[Any]] = {}
    for label, path in found.items():
        for depth in range(len(path)):
            held.setdefault(path[:depth], set()).add(path[depth])
        held.setdefault(path, set()).add((label,))
    out = {}
    for label, path in found.items():
        parts: list[str] = []
        for depth, part in enumerate(path):
            alone = depth and len(held[path[:depth]]) == 1
            if alone:
                parts[-1] += f".{part}"
            else:
                parts.append(part)
        out[label] = tuple(parts)
    return out
