"""Names for what a call returned among others: ``pieces[0]`` where the line is ``pieces = batch.chunk(4)``.
:func:`assigned` and :func:`indexed` return a name for each result.

The line says how a program takes the results apart: ``best, where = scores.max(1)``, ``out, (h, c) = self.lstm(x)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from pitfall_lab.trace import Event, Trace
from pitfall_lab.trace.text import source_lines

Structure = int | tuple["Structure", ...]
"""Which result is at which place of a tuple."""


def assigned(trace: Trace, event: Event, text: str, *, own: bool) -> list[str]:
    """A name for each result of a call, in order, from the assignment whose value the call is.

    It is the variable that takes the result, or ``rest[0]`` for a starred one; "" for a result that cannot be matched.
    Empty if the call is not the whole value of an assignment.

    Args:
      trace: The trace that the event is of.
      event: A call with several results.
      text: The call as the program writes it.
      own: Whether the text calls the operation itself, and no function around it.
    """
    count, span = len(event.results), event.span
    if span is None or not 0 <= span.source < len(trace.sources):
        return []
    target = _targets(trace.sources[span.source].text).get((span.line, span.column, span.end_line, span.end_column))
    if target is None:
        return []
    parts = list(_leaves(target))
    if len(parts) == count and not any(isinstance(part, ast.Starred) for part in parts):
        return [ast.unparse(part) for part in parts]
    named = dict(_matched(target, _structure(event, text))) if own else {}
    return [named.get(at, "") for at in range(count)]


def indexed(event: Event, text: str) -> list[str]:
    """A name for each result of ``event``, in order: ``text``, the call as the program writes it, with an index, as
    ``x.chunk(2)[0]``.
    """
    named = dict(_indexed(text, _structure(event, text)))
    return [named[at] for at in range(len(event.results))]


def _structure(event: Event, text: str) -> Structure:
    """How the results of a call are nested: ``torch.nn.LSTM`` returns (output, (h, c)), torch's operation all three
    flat.
    """
    count = len(event.results)
    nested = event.name == "lstm" and count == 3 and not text.startswith(("torch.", "_VF."))
    return (0, (1, 2)) if nested else tuple(range(count))


@lru_cache(maxsize=16)
def _targets(text: str) -> dict[tuple[int, int, int, int], ast.expr]:
    """The first target of each assignment of a source, by the position of the value: line, column, end line, end
    column.

    Empty if the source is not valid Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lines = source_lines(text)

    def column(line: int, count: int) -> int:
        return len(lines[line - 1].encode()[:count].decode(errors="replace")) if 0 < line <= len(lines) else count

    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            value = node.value
            end_line, end = value.end_lineno or value.lineno, value.end_col_offset or 0
            place = value.lineno, column(value.lineno, value.col_offset), end_line, column(end_line, end)
            found[place] = node.targets[0]
    return found


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _leaves(one)
    else:
        yield target


def _matched(target: ast.expr, results: Structure) -> Iterator[tuple[int, str]]:
    """Yield each result's index with the part of the target that takes it; a starred name gives ``rest[0]``, ….

    Nothing is yielded where target and results do not fit.
    """
    if not isinstance(target, ast.Tuple | ast.List):
        yield from _indexed(ast.unparse(target), results)
        return
    parts, count = target.elts, len(results) if isinstance(results, tuple) else 0
    star = next((at for at, one in enumerate(parts) if isinstance(one, ast.Starred)), None)
    if isinstance(results, int) or (len(parts) != count if star is None else len(parts) - 1 > count):
        return
    if star is None:
        for one, result in zip(parts, results, strict=True):
            yield from _matched(one, result)
        return
    after = len(parts) - star - 1
    rest = parts[star]
    for one, result in zip(parts[:star], results, strict=False):
        yield from _matched(one, result)
    if isinstance(rest, ast.Starred):
        yield from _indexed(ast.unparse(rest.value), results[star : count - after])
    for one, result in zip(parts[star + 1 :], results[count - after :], strict=True):
        yield from _matched(one, result)


def _indexed(name: str, results: Structure) -> Iterator[tuple[int, str]]:
    if isinstance(results, int):
        yield results, name
    else:
        for at, one in enumerate(results):
            yield from _indexed(f"{name}[{at}]", one)
