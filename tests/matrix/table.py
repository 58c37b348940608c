"""The table: a row for each cell, in markdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

HEAD = (
    "torch",
    "Python",
    "NumPy",
    "how made",
    "engine tests passed",
    "failed",
    "random programs",
    "differing",
    "`check` differs",
    "min",
)


def render(rows: Iterable[dict[str, Any]]) -> str:
    """A markdown table; a cell that could not be made has its reason."""
    lines = [" | ".join(HEAD), " | ".join("---" for _ in HEAD), *(" | ".join(cells(row)) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def cells(row: dict[str, Any]) -> list[str]:
    """The columns of one result."""
    first = [row["torch"], row["python"], row["numpy"]]
    if row.get("unmade"):
        return [*first, f"not made: {row['unmade']}"] + ["–"] * (len(HEAD) - len(first) - 1)
    engine, fuzz, differing = row["engine"], row["fuzz"], row["check_differing"]
    counts = [engine["passed"], engine["failed"], fuzz["programs"], fuzz["failed"]]
    last = [f"{len(differing)} of {len(row['check'])}", f"{row['seconds'] / 60:.0f}"]
    return [*first, row["how"], *(f"{count:,}" for count in counts), *last]


def failing(row: dict[str, Any]) -> bool:
    """Whether anything in a cell went wrong; a Python that is not on this machine is said, and
    is no failure of the engine.
    """
    if row.get("unmade"):
        return not row["unmade"].startswith("no Python")
    return bool(
        row["engine"]["failed"] or row["fuzz"]["failed"] or not row["fuzz"]["programs"] or row["check_differing"]
    )


def differences(here: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """The test programs on which ``check`` did not see what it sees with the reference,
    or saw nothing, or disagreed.
    """
    return sorted(
        name
        for name in here.keys() | reference.keys()
        if here.get(name) != reference.get(name)
        or here.get(name, {}).get("disagreed")
        or not here.get(name, {}).get("observed")
    )
