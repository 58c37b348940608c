"""The share of its points that an answer to an exercise earns: what it has that the cell as it is given has not.

The cells that are run here are ours, so they run in this process, once each.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache

from pitfall_lab.lessons.exercise import Exercise, Mark, grade


def share(properties: Iterable[tuple[bool, bool, bool]]) -> float:
    """The share from 0 to 1: properties gained, less properties lost, over those that the given cell lacks.

    A property is a triple: whether the answer has it, whether the given cell has it, whether an answer has it that does nothing. The share
    is 0 if all the properties that hold would also hold for an answer that does nothing (returns a constant, say).

    >>> share([(True, False, False), (False, False, False), (True, True, False)]), share([(True, True, True), (False, False, False)])
    (0.5, 0.0)
    """
    each = list(properties)
    if not any(holds and not idle for holds, _, idle in each):
        return 0.0
    gained, lost = sum(holds and not had for holds, had, _ in each), sum(had and not holds for holds, had, _ in each)
    return max(0.0, (gained - lost) / max(1, sum(not had for _, had, _ in each)))


def earned(exercise: Exercise, marks: Iterable[Mark]) -> float:
    """The share that an answer with these marks earns. Marks that all hold earn everything."""
    holds = [mark.holds for mark in marks]
    return 1.0 if all(holds) else share(zip(holds, had(exercise), idle(exercise), strict=True))


@cache
def had(exercise: Exercise) -> tuple[bool, ...]:
    """For each property, whether the given cell (as handed out) already has it."""
    return tuple(mark.holds for mark in grade(exercise, exercise.given).marks)


@cache
def idle(exercise: Exercise) -> tuple[bool, ...]:
    """For each property, whether an answer has it that does nothing: its functions return a constant, its names have no value."""
    cell = []
    for statement in ast.parse(exercise.given).body:
        if isinstance(statement, ast.FunctionDef):
            cell.append(f"def {statement.name}(*_, **__):\n    return torch.zeros((), requires_grad=True) * 1\n")
        elif isinstance(statement, ast.Assign):
            cell.append(f"{ast.unparse(statement.targets[0])} = None\n")
        else:
            cell.append(f"{ast.unparse(statement)}\n")
    return tuple(mark.holds for mark in grade(exercise, "".join(cell)).marks)
