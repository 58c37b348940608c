"""A limit for the processor time of one examination of the namespace (:class:`Budget`)."""

from __future__ import annotations

import time

_EVERY = 32


class Budget:
    """A limit of ``seconds`` of processor time for this thread, from now on. The clock is read only at every 32nd call
    of :meth:`goes_on`.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds
        self._count = 0
        self.spent = False
        """Whether the time limit is exceeded."""

    def goes_on(self) -> bool:
        """Whether there is time left."""
        self._count += 1
        if not self.spent and self._count % _EVERY == 0:
            self.spent = time.thread_time() > self._end
        return not self.spent
