"""How many large tensors a piece of code makes, also inside a function transform, whose calls a recording has as one.

A recording sees ``torch.func.vmap(f)`` as one call with one result. What ``f`` makes of all rows at once is
seen below the transform only.
"""

from __future__ import annotations

from typing import Any

import torch

from pitfall_lab.observe.private import DispatchMode, leaves


class LargeResults(DispatchMode):  # type: ignore[misc]
    """Counts, as a context manager, the results on new memory that have at least ``elements`` elements.

    >>> queries, keys = torch.zeros(4, 5), torch.zeros(6, 5)
    >>> with LargeResults(4 * 6 + 1) as large:
    ...     found = torch.func.vmap(lambda q: ((keys - q) ** 2).sum(-1))(queries)
    >>> large.count, found.shape
    (2, torch.Size([4, 6]))
    """

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.count = 0
        self._elements = elements

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        there = {_memory(each) for each in leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        made = [each for each in leaves(result) if isinstance(each, torch.Tensor) and _memory(each) not in there]
        self.count += sum(each.untyped_storage().nbytes() >= self._elements * each.element_size() for each in made)
        return result


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
