"""Counts the large tensors that code creates where a recording does not see it (:class:`LargeResults`).

A recording sees ``torch.func.vmap(f)`` as one call with one result. What ``f`` creates for the whole batch at once is
visible only below the transform. Functions of a program that torch calls during one of its calls, such as hooks for
saved tensors, create tensors that are not in a recording either.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from pitfall_lab.observe.private import DispatchMode, leaves


class LargeResults(DispatchMode):  # type: ignore[misc]
    """Counts, as a context manager, the results on new memory whose storage has room for at least ``elements``
    elements.

    ``count`` is the number of all of them, including those that torch creates as intermediate results. ``inside`` is
    the number of those that code of the file ``file`` (a code file name) creates while it runs inside a call of torch.

    >>> queries, keys = torch.zeros(4, 5), torch.zeros(6, 5)
    >>> with LargeResults(4 * 6 + 1) as large:
    ...     found = torch.func.vmap(lambda q: ((keys - q) ** 2).sum(-1))(queries)
    >>> large.count, found.shape
    (2, torch.Size([4, 6]))
    """

    def __init__(self, elements: int, file: str = "") -> None:
        super().__init__()
        self.count = self.inside = 0
        self._elements = elements
        self._calls = _Calls(file)

    def __enter__(self) -> Self:
        self._calls.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._calls.__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        found = (result,) if type(result) is torch.Tensor else leaves(result)
        if large := [each for each in found if isinstance(each, torch.Tensor) and self._is_large(each)]:
            there = {_memory(each) for each in leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
            made = sum(_memory(each) not in there for each in large)
            self.count += made
            if made and self._calls.is_inside(sys._getframe(1)):
                self.inside += made
        return result

    def _is_large(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.untyped_storage().nbytes() >= self._elements * tensor.element_size())


class _Calls(TorchFunctionMode):
    """Stores which code of a file has made the call of torch that runs now.

    A mode is off while it handles a call, so calls inside that one are not seen here.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file
        self._caller: FrameType | None = None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before, self._caller = self._caller, self._innermost(sys._getframe(1))
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._caller = before

    def is_inside(self, frame: FrameType | None) -> bool:
        """Whether the file's code that runs now, above ``frame``, is other code than that which made the call."""
        return self._caller is not None and self._innermost(frame) is not self._caller

    def _innermost(self, frame: FrameType | None) -> FrameType | None:
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        return frame


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
