"""Listening posts: seeing gradients pass at a node of torch's graph while a backward runs.

Torch's own node hooks are used, which see what the learner's hooks have left. They return nothing, so nothing changes, and they
are gone when the backward is over. Holding a gradient would change whether torch copies it: only its numbers are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.private import compiled_autograd

Tell = Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None]
"""``tell(key, given, outgoing)``: gradients that a node received and, once it has run, those it hands on."""


class Posts:
    """Hooks of ours on some nodes, for the length of one backward."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._handles: list[Any] = []

    def before(self, node: Any, key: Any) -> None:
        """Look at what ``node`` receives, after the hooks that are there already."""

        def look(given: tuple[Any, ...]) -> None:
            with unseen():
                self._tell(key, given, ())

        self._handles.append(node.register_prehook(look))

    def after(self, node: Any, key: Any) -> None:
        """Look at what ``node`` hands on."""

        def look(outgoing: tuple[Any, ...], given: tuple[Any, ...]) -> None:
            with unseen():
                self._tell(key, given, outgoing)

        self._handles.append(node.register_hook(look))

    def leave(self) -> None:
        """Take all hooks away again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def may_listen() -> bool:
    """Whether hooks on nodes are only hooks: compiled autograd would trace them."""
    return not compiled_autograd()
