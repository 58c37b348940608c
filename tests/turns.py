"""What takes long runs in turns: a part of it each day, all of it within a few days, and everything
with ``PITFALL_ALL_VARIANTS=1``.

The head of a run names its turn; ``PITFALL_TURN=N`` repeats it on another day. A run with
``-k`` takes all of what it names.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

T = TypeVar("T")
# Set here once: pytest's workers take it over, so that all of them collect the same tests around midnight too.
TURN = int(os.environ.setdefault("PITFALL_TURN", str(datetime.now(UTC).toordinal())))
if any(word.startswith("-k") for word in sys.argv):
    os.environ["PITFALL_ALL_VARIANTS"] = "1"  # who names tests wants these
EVERYTHING = bool(os.environ.get("PITFALL_ALL_VARIANTS"))


def todays(items: Sequence[T], *, of: int) -> list[T]:
    """The items whose turn it is, where each has it every ``of`` days."""
    return [item for number, item in enumerate(items) if EVERYTHING or (number + TURN) % of == 0]
