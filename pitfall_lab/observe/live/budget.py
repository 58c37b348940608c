"""Processor time that a look may take."""

from __future__ import annotations

import time

_EVERY = 32


class Budget:
    """So much processor time of this thread. The clock is read for every 32nd question only."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds
        self._count = 0
        self.spent = False
        """Whether it has run out."""

    def goes_on(self) -> bool:
        """Whether there is time for one more thing."""
        self._count += 1
        if not self.spent and self._count % _EVERY == 0:
            self.spent = time.thread_time() > self._end
        return not self.spent
