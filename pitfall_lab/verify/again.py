"""Again: a line that calls over and over what it called last need not be asked for the kind of its call, nor its plan for the recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pitfall_lab.shadow.recipes import Form, Recipe

TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
OFTEN = 64
"""A kind of calls that came so often gets a function of its own: to make one takes as long as some hundred calls save."""
SAME = """
    {record} = by_id.get(id({value}))
    if {record} is None or {record}.form is not wanted[{place}] or {record}.epoch != epoch: return None
    {shadow} = {record}.shadow
    if {shadow}.counter.version != {value}._version or {value}.requires_grad is not {flag} or type({value}) not in tensors: return None
"""
"""A record goes with its tensor: what is found by the id is the tensor's."""


class Again:
    """One straight function for a kind of calls: it sees whether the arguments are what they were, and follows the recipe.

    ``follow(plan, args, kwargs, place, wanted, by_id, epoch, graph)`` returns what the shadow has done before torch
    (:data:`pitfall_lab.verify.express.Ahead`), or None if the arguments are not what is ``wanted``: the very same numbers, and tensors of
    the same forms on memory of their own.
    """

    __slots__ = ("_follow", "_recipe", "uses")

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._follow: Callable[..., Any] | None = None
        self.uses = 0

    def follow(self, wanted: tuple[Any, ...]) -> Callable[..., Any]:
        """The function, made for arguments like these when it is asked for first."""
        if self._follow is None:
            self._follow = self._made(wanted)
        return self._follow

    def _made(self, wanted: tuple[Any, ...]) -> Callable[..., Any]:
        lines = [f"if len(args) != {len(wanted)}: return None", f"{', '.join(f'a{place}' for place in range(len(wanted)))}, = args"]
        lines += [f"if a{place} is not wanted[{place}]: return None" for place, value in enumerate(wanted) if type(value) is not Form]
        tensors = [(place, form) for place, form in enumerate(wanted) if type(form) is Form]
        for number, (place, form) in enumerate(tensors):
            names = {"record": f"r{number}", "value": f"a{place}", "shadow": f"o{number}", "flag": form.requires_grad}
            lines += [line.strip() for line in SAME.format(place=place, **names).strip().splitlines()]
            lines += [f"if o{other}.storage is o{number}.storage: return None" for other in range(number)]
        records = ", ".join(f"r{number}" for number in range(len(tensors)))
        nodes = "".join(f"n{number}, " for number in range(len(self._recipe.nodes)))
        last = f"return plan, [{records}], (x0,), ({nodes}), place, args, kwargs, (), None"
        given = "plan, args, kwargs, place, wanted, by_id, epoch, graph"
        assert self._recipe.steps is not None
        return self._recipe.steps.function(given, lines, last, tensors=TENSORS)
