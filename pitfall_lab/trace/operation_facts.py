"""Facts on torch's operations, by short name (``event.name``), for rules that must not import the shadow engine.

They are what the entries of the shadow engine say (:class:`~pitfall_lab.shadow.registry.Op`).
``python -m pitfall_lab.shadow.entry_facts`` writes them to ``operation_facts.json``; a test compares the two.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TypedDict

TABLE = Path(__file__).with_name("operation_facts.json")


class Spelled(TypedDict):
    """The short names of one operation: ``same`` are those of the same function, ``in_place`` those of its in-place
    variants, ``exchanged`` those that take the operands the other way round. Each list may be empty but ``same``.
    """

    same: list[str]
    in_place: list[str]
    exchanged: list[str]


class OperationFacts(TypedDict):
    """What the entries of the shadow engine say. ``spelled``: by short name, the names of an operation that has
    several; ``traits``: by trait, the short names of the operations that have it.
    """

    spelled: dict[str, Spelled]
    traits: dict[str, list[str]]


@cache
def _facts() -> OperationFacts:
    found: OperationFacts = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


def spellings(*operations: str, in_place: bool = False, exchanged: bool = False) -> set[str]:
    """All short names under which a program may call one of ``operations`` (short names): torch's other names for the
    function, and the methods that Python calls for an operator, with and without their underscores.

    With ``in_place``, those of the variants that write their first operand are among them; with ``exchanged``, those
    that take the operands the other way round. Raises KeyError for an operation that has one name only, or none.

    >>> sorted(spellings("pow", exchanged=True))
    ['__pow__', '__rpow__', 'pow', 'rpow']
    """
    return set(_spellings(operations, in_place, exchanged))


@cache
def _spellings(operations: tuple[str, ...], in_place: bool, exchanged: bool) -> frozenset[str]:
    known = [_facts()["spelled"][name] for name in operations]
    return frozenset(
        name
        for each in known
        for name in (*each["same"], *(each["in_place"] if in_place else ()), *(each["exchanged"] if exchanged else ()))
    )


def operations_that(trait: str) -> set[str]:
    """The short names of the operations whose entries have a trait of :data:`pitfall_lab.shadow.registry.Trait`.

    Raises KeyError where no entry has it.

    >>> sorted(operations_that("recurrent"))
    ['gru', 'lstm', 'rnn_relu', 'rnn_tanh']
    """
    return set(_facts()["traits"][trait])
