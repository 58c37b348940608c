"""What is known about a refusal beyond its own line: where the mistake was made, and how to repair it there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.trace import Given, Span, T


@dataclass(frozen=True, slots=True)
class Remedy:
    """Where the mistake behind a refusal was made, and how to repair it there.

    ``said`` and ``accepts`` replace the case's sentences unless they are None. ``place`` is the span of the mistake if
    torch raised on another line, ``step`` the step of its event; each is None if there is none. ``related`` are further
    lines. ``fixes`` are tried before those of the case, ``last`` after them.
    """

    fixes: tuple[Fix, ...] = ()
    said: T | None = None
    accepts: T | None = None
    place: Span | None = None
    step: int | None = None
    related: tuple[Related, ...] = ()
    last: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """A refusal as a remedy sees it: ``refused`` is the refused call, ``wrong`` the wrong argument, ``other`` the
    argument that it does not fit; each argument is None if none was found.

    ``match`` is the match of the case's pattern in torch's message.
    """

    refused: Refused
    wrong: Given | None
    other: Given | None
    match: re.Match[str]


Finder = Callable[[Error], Remedy | None]
"""Returns a remedy, or None if nothing more is known than the case says."""
