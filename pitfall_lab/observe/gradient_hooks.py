"""Reads the gradients at nodes of torch's graph while a backward runs: :class:`Posts` passes them to a function.

Uses torch's node hooks, which run after the learner's tensor hooks, return None, so that they change nothing, and are
removed after the backward. Keeping a reference to a gradient could change whether torch copies it, so only its values
are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.private import compiled_autograd

Tell = Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None]
"""``tell(key, given, outgoing)``: the gradients that a node received and, after it has run, those that it returns."""


class Posts:
    """Hooks on nodes (``grad_fn``) of the graph, registered for one backward; each calls ``tell(key, given,
    outgoing)``, see :data:`Tell`.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._handles: list[Any] = []

    def before(self, node: Any, key: Any) -> None:
        """Register a hook on ``node`` that calls ``tell`` with the gradients that the node receives, after the hooks
        already registered; ``outgoing`` is empty. ``key`` is any value by which ``tell`` identifies the node.
        """

        def look(given: tuple[Any, ...]) -> None:
            with unseen():
                self._tell(key, given, ())

        self._handles.append(node.register_prehook(look))

    def after(self, node: Any, key: Any) -> None:
        """Register a hook on ``node`` that calls ``tell`` with the gradients that the node has received and those that
        it returns. ``key`` is any value by which ``tell`` identifies the node.
        """

        def look(outgoing: tuple[Any, ...], given: tuple[Any, ...]) -> None:
            with unseen():
                self._tell(key, given, outgoing)

        self._handles.append(node.register_hook(look))

    def leave(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def may_listen() -> bool:
    """Whether node hooks can be used: not with compiled autograd, which would trace them."""
    return not compiled_autograd()
