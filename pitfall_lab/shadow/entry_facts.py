"""Collects what the entries define about operations, by short name, for :mod:`pitfall_lab.trace.operation_facts`.

``python -m pitfall_lab.shadow.entry_facts`` writes the table there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pitfall_lab.shadow.facade.tensors import AUGMENTED, OPERATORS
from pitfall_lab.shadow.ops import ENTRIES, Op
from pitfall_lab.trace.operation_facts import TABLE, OperationFacts, Spelled

OF_TENSORS = ("torch", "torch.Tensor", "torch.nn.functional")
"""Where a short name means the operation itself: ``torch.norm`` and ``torch.linalg.norm`` are two functions."""


def facts() -> OperationFacts:
    """Return the table of :mod:`pitfall_lab.trace.operation_facts`.

    ``spelled`` has, for each operation with several short names, these names in three lists: ``same``, ``in_place``,
    and ``exchanged`` (names that take the two operands in reverse order). ``traits`` has, for each trait of
    :class:`Op`, the short names of the operations with it. All lists are sorted, so that the table changes only if an
    entry does.
    """
    entries = list({id(entry): entry for entry in ENTRIES.values()}.values())
    groups: dict[str, dict[str, set[str]]] = {}
    for entry in entries:
        short = list(_names(entry, anywhere=bool(entry.computes)))
        if short:
            plain = next((name for name in short if not name.startswith("__")), short[0])
            operation = entry.computes or plain.removesuffix("_" if entry.kind == "inplace" else "")
            how = "in_place" if entry.kind == "inplace" else "exchanged" if "exchanged" in entry.traits else "same"
            groups.setdefault(operation, {}).setdefault(how, set()).update(short)
    for method, name in OPERATORS.items():
        _add(groups, name, method)
    for method, name, _ in AUGMENTED:
        _add(groups, name, method)
    spelled = {operation: _spelled(found) for operation, found in groups.items() if sum(map(len, found.values())) > 1}
    traits: dict[str, list[str]] = {
        trait: sorted({name for entry in entries if trait in entry.traits for name in _names(entry, anywhere=True)})
        for trait in sorted({trait for entry in entries for trait in entry.traits})
    }
    return {"spelled": dict(sorted(spelled.items())), "traits": traits}


def _names(entry: Op, *, anywhere: bool = False) -> Iterator[str]:
    """The short names of an entry, without those of private functions; only names of :data:`OF_TENSORS` unless
    ``anywhere``.
    """
    for full in entry.names:
        where, _, short = full.rpartition(".")
        if (anywhere or where in OF_TENSORS) and (short.startswith("__") or not short.startswith("_")):
            yield short


def _add(groups: dict[str, dict[str, set[str]]], known: str, method: str) -> None:
    """Add the name ``method`` of an operator to every group of names that contains ``known``, the operation that it
    calls.
    """
    for found in groups.values():
        for names in found.values():
            if known in names:
                names.add(method)


def _spelled(found: dict[str, set[str]]) -> Spelled:
    """The sorted names of an operation, with each operator method listed both with and without its underscores."""

    def names(how: str) -> list[str]:
        given = found.get(how, set())
        return sorted(given | {name.strip("_") for name in given if name.startswith("__")})

    return {"same": names("same"), "in_place": names("in_place"), "exchanged": names("exchanged")}


if __name__ == "__main__":
    TABLE.write_text(json.dumps(facts(), indent=1) + "\n", encoding="utf-8")
