"""The lines that make the values of a finding, which the code always shows. :func:`makers` returns the source and line
of each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pitfall_lab.trace import Event
from pitfall_lab.views.display_names import calls_another
from pitfall_lab.views.finding_pictures import Beat, FindingPicture
from pitfall_lab.views.label_history import Facts

MOST = 6
"""So many lines are named: each of them takes room from the lines that the finding is about."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LINE = re.compile(r"\b(?:(In \[\d+\]), )?line (\d+)\b(?! of )", re.IGNORECASE)
"""A line of the program's first source as a sentence names it."""


def makers(
    facts: Facts, finding: dict[str, Any], picture: FindingPicture | None, beats: list[Beat]
) -> list[tuple[int, int]]:
    """The lines, as pairs (source number, line), that made the values that a finding is about; at most ``MOST``.

    First come the finding's own line, the lines that its sentence names, and calls that lead to a line of the story.
    Then come lines that assigned the names of the finding's tensors, and those that made the root of the failing
    backward, the finding's tensors, and the storages in the ``picture``. Parameters of modules have no such line, since
    a library made them.
    """
    own = [(finding.get("source") or 0, finding["line"])] if isinstance(finding.get("line"), int) else []
    calls = [(beat["source"], beat["line"]) for beat in beats if beat["was"] == "forward" and beat["line"] is not None]
    events = (facts.trace.events[step] for step in _births(facts, finding, picture, beats))
    made = (place for event in events if (place := _place(facts, event)) is not None)
    return list(dict.fromkeys([*own, *_named(facts, finding), *calls, *_assigned(facts, finding), *made]))[:MOST]


def _named(facts: Facts, finding: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """The lines of the program that the finding's sentence names."""
    message, sources = finding.get("message") or "", facts.trace.sources
    parts = sources[0].parts if sources else ()
    for cell, line in _LINE.findall(message.get("en", "") if isinstance(message, dict) else str(message)):
        part = next((part for part in parts if part.name == cell), None)
        if part is not None:
            yield 0, int(line) - part.own + part.line
        elif not cell and len(parts) < 2:
            yield 0, int(line)


def _assigned(facts: Facts, finding: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """Yield the last lines up to the finding's own, in the same function, that assign the names of its tensors.

    So a tensor that another function returned is found at the line that called it: ``policy, value = model(state)``.
    """
    line, number = finding.get("line"), finding.get("source") or 0
    names = {str(name) for label in _labels(facts, finding) for name in facts.tensor(label).get("names") or ()}
    names |= {facts.names.get(label, "") for label in _labels(facts, finding)}
    if not isinstance(line, int) or not 0 <= number < len(facts.trace.sources):
        return
    try:
        tree = ast.parse(facts.trace.sources[number].text)
    except (SyntaxError, ValueError, RecursionError):
        return
    around = [
        node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    within = max(around, key=lambda node: node.lineno, default=tree)
    inner = {
        each
        for node in ast.walk(within)
        if isinstance(node, FUNCTIONS) and node is not within
        for each in ast.walk(node)
    }
    stored = (node for node in ast.walk(within) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    last: dict[str, int] = {}
    for node in stored:
        if node.id in names and node.lineno <= line and node not in inner:
            last[node.id] = max(node.lineno, last.get(node.id, 0))
    yield from ((number, each) for each in sorted(last.values()))


def _labels(facts: Facts, finding: dict[str, Any]) -> Iterator[str]:
    """Yield the tensors that a finding's facts name, without parameters of modules."""
    for fact in finding.get("facts", ()):
        for label in fact["value"] if isinstance(fact["value"], list | tuple) else (fact["value"],):
            if isinstance(label, str) and label in facts.tensors and not _is_of_module(facts, label):
                yield label


def _is_of_module(facts: Facts, label: str) -> bool:
    tensor = facts.tensor(label)
    is_leaf = tensor.get("is_leaf") and tensor.get("requires_grad")
    return bool(is_leaf) and not facts.names.get(label, "").isidentifier()


def _births(facts: Facts, finding: dict[str, Any], picture: FindingPicture | None, beats: list[Beat]) -> Iterator[int]:
    """Yield the steps at which the values of a finding were made, as far as they are known."""
    for beat in beats:
        event = facts.trace.events[beat["step"]] if beat["step"] is not None else None
        if (
            event is not None
            and event.name == "backward"
            and event.operands
            and (beat["role"] == "raised" or beat["was"] == "backward")
        ):
            yield from _born(facts, event.operands[0].label, event.step)
    for label in _labels(facts, finding):
        yield from _born(facts, label)
    for storage in picture["about"] if picture is not None else ():
        yield from _first(facts, facts.of_storage(str(storage)))


def _first(facts: Facts, labels: Iterable[str]) -> Iterator[int]:
    """Yield the step that made the oldest of these tensors; nothing for a parameter of a module."""
    oldest = next(iter(labels), "")
    return _born(facts, oldest if oldest and not _is_of_module(facts, oldest) else None)


def _born(facts: Facts, label: str | None, step: int | None = None) -> Iterator[int]:
    """Yield the step of the call that made a tensor; nothing if none was recorded."""
    born = facts.tensor(label, step).get("born")
    if isinstance(born, int) and 0 <= born < len(facts.trace.events) and label in facts.trace.events[born].results:
        yield born


def _place(facts: Facts, event: Event) -> tuple[int, int] | None:
    """The source number and line of a call that the program wrote; None for a call that a library made inside another
    one.
    """
    if event.span is None or event.op.startswith("torch.nn.init."):
        return None
    alone = all(operand.label is None for operand in event.operands)
    is_inner = alone and calls_another(facts.code(event.step), event.name)
    return None if is_inner else (event.span.source, event.span.line)
