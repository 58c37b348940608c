"""Builds a warning as the protocol defines it (:func:`warning`)."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.protocol import text
from pitfall_lab.trace import T

Level = Literal["error", "silent", "note"]
Role = Literal["saved", "changed", "made", "stale"]
SEPARATOR = "\x1f"


class Said(NamedTuple):
    """The texts of a warning, each in English and Chinese: ``sentence``, ``explanation`` and ``fix`` (None if there is
    none).

    ``row`` is the path (name and keys) of the object that the warning is about, ``root`` the path of the object that
    would fail, if that is another one; each is empty if there is none.
    """

    sentence: T
    explanation: T
    fix: T | None
    row: tuple[str, ...]
    root: tuple[str, ...] = ()


def warning(
    kind: str,
    level: Level,
    said: Said,
    cells: list[dict[str, Any]],
    rule: str = "",
    *,
    failed: bool = False,
    copy: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A warning as it is sent, a dict that can be written as JSON; its id consists of its kind and the paths of its
    objects.

    ``level`` is ``error`` (it will raise), ``silent`` (wrong values without an error) or ``note``; ``cells`` are made
    by :func:`cell`; ``rule`` is the code of its rule, empty if there is none. ``failed``: the error has occurred.
    ``copy`` is a name, with the cell and line of the statement before which copying it would help; None if there is
    none.
    """
    return {
        "id": ":".join((kind, SEPARATOR.join(said.root), SEPARATOR.join(said.row))),
        "row": SEPARATOR.join(said.row) or None,
        "level": level,
        "kind": kind,
        "sentence": text(said.sentence),
        "explanation": text(said.explanation),
        "fix": text(said.fix) if said.fix is not None else None,
        "cells": cells,
        "rule": rule,
        "failed": failed,
        "copy": copy,
        "again": None,
    }


def cell(ran: Ran, count: int | None, role: Role, name: str = "", line: int | None = None) -> list[dict[str, Any]]:
    """The run with the number ``count``, in a list, as a warning refers to it: its number, id, line (None if unknown)
    and ``role``, what the cell has done; an empty list if the run is unknown.

    Without ``line``, the line is that of the cell's only statement, or of the only one that changes the object of
    ``name`` in place.
    """
    run = ran.get(count)
    if run is None:
        return []
    return [{"count": run.count, "id": run.id, "line": line if line and run.whole else run.line(name), "role": role}]


def is_same_cell(one: Cell, other: Cell) -> bool:
    """Whether two runs are of one cell: by its id, or by its source if one of them has no id."""
    return one.id == other.id if one.id and other.id else one.text == other.text


def called(count: int | None) -> str:
    """Return ``In [8]`` for a run's number; an empty string for None or 0."""
    return f"In [{count}]" if count else ""
