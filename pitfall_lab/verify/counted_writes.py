"""Determines whether the ``_version`` of tensors counts everything that changes them (:class:`CountedWrites`).

The number alone does not show this: a program may write without changing it, by ``.data`` or through NumPy, and a write
that changes no value counts too.
"""

from __future__ import annotations

from typing import Any, Self

import torch

from pitfall_lab.observe.private import DispatchMode


class CountedWrites(DispatchMode):  # type: ignore[misc]
    """Counts, as a context manager, changes of the elements of ``tensors`` (on the CPU) that do not increment their
    versions; ``uncounted`` is the number of these after the ``with`` block.

    The elements are compared around each operation. Torch increments the version of what an operation has written only
    when the operation has ended; so the version is read at the next operation, or at the end.

    >>> w = torch.ones(2)
    >>> with CountedWrites(w) as writes:
    ...     _ = w.data.sub_(1)
    ...     _ = w.mul_(1)
    >>> w._version, writes.uncounted
    (1, 1)
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        self.uncounted = 0
        self._tensors = tensors
        self._seen: list[bytes] = []
        self._due: dict[int, int] = {}
        """Tensors that the last operation has written, by their index, with their version before it."""

    def __enter__(self) -> Self:
        self._seen = self._elements()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._look()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._look()
        versions = [each._version for each in self._tensors]
        try:
            return function(*args, **(kwargs or {}))
        finally:
            now = self._elements()
            self._due = {n: versions[n] for n, was in enumerate(self._seen) if now[n] != was}
            self._seen = now

    def _look(self) -> None:
        """Count what the last operation has changed without incrementing the version, and what has changed since
        then.
        """
        now = self._elements()
        self.uncounted += sum(self._tensors[n]._version == version for n, version in self._due.items())
        self.uncounted += sum(a != b for a, b in zip(now, self._seen, strict=True))
        self._seen, self._due = now, {}

    def _elements(self) -> list[bytes]:
        return [each.detach().numpy().tobytes() for each in self._tensors]
