"""What takes long runs in turns: a part of it each day, all of it within a few days, and everything
with ``PITFALL_EVERYTHING=1``.

The head of a run names its turn; ``PITFALL_TURN=N`` repeats it on another day. A run with
``-k`` takes all of what it names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")
# Set here once: pytest's workers take it over, so that all of them collect the same tests around midnight too.
TURN = int(os.environ.setdefault("PITFALL_TURN", str(datetime.now(UTC).toordinal())))
if any(word.startswith("-k") for word in sys.argv):
    os.environ["PITFALL_EVERYTHING"] = "1"  # who names tests wants these
EVERYTHING = bool(os.environ.get("PITFALL_EVERYTHING"))
WHOLE = "PITFALL_WHOLE"
"""Set while all tests are run: then what has no turn in a run of named files takes turns too."""


def in_whole_runs(items: Iterable[T], *, of: int) -> list[T]:
    """Those whose turn it is, each every ``of`` days, where all tests are run; all of them in a run of named files."""
    return todays(items, of=of) if WHOLE in os.environ else list(items)


def todays(
    items: Iterable[T], *, of: int, kind: Callable[[T], Hashable] = lambda _: None, begin: int = 0, every: int = 1
) -> list[T]:
    """The items whose turn it is, where each has it every ``of`` days.

    Of each ``kind`` there is one each day: where it has fewer than ``of`` items, each has its turn more often.
    ``begin`` is for several lists of the same items: another number for each gives them different items on one day.
    ``every`` is for lists of what runs itself only every so many days: each such day has the next items.
    """
    items = list(items)
    if EVERYTHING:
        return items
    sizes: dict[Hashable, int] = {}
    places: list[tuple[Hashable, int]] = []
    for item in items:
        kind_of = kind(item)
        places.append((kind_of, sizes.get(kind_of, 0)))
        sizes[kind_of] = places[-1][1] + 1
    return [
        item
        for item, (kind_of, place) in zip(items, places, strict=True)
        if (place + TURN // every + begin) % min(of, sizes[kind_of]) == 0
    ]
