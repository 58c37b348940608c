"""An inline cache for each line (:class:`CallCompiler`): a line that repeats its last call runs a compiled function,
without the lookup of key and plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pitfall_lab.shadow.graph import Graph
from pitfall_lab.shadow.recipes import Form, Recipe, Window

TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
OFTEN = 64
"""After how many calls with one plan a specialized function is compiled; compiling costs what about 100 calls save."""
SAME = """
{r} = get(id({a}))
if {r} is None or {r}.form is not w{place} or {r}.epoch != epoch: return None
if {r}.window is None:
    {o} = {r}.made
    if {o}.counter.version != {a}._version: return None
    {p} = {o}.node
elif {a}._version: return None
else: {p} = {r}.node
if {a}.requires_grad is not {flag} or type({a}) not in tensors: return None
"""
"""Source that checks one tensor argument. A record is removed when its tensor dies, so a record found by id belongs to
this tensor.

A record without a shadow was never written.
"""
APART = "if {r} is {q} or ({r}.window is {q}.window is None and {r}.made.storage is {q}.made.storage): return None"
"""Source that checks that two tensors have separate storages. A record without a shadow has its own storage."""


class CallCompiler:
    """Compiles one function for the calls of a plan: it checks that the arguments are the expected ones, and follows
    the recipe (what the shadow does in such a call).

    The function ``follow(args, kwargs, place, epoch)`` returns what the shadow did (:data:`.lane.Ahead`), or None if
    the arguments are not the expected ones: the identical plain values, and tensors of the same forms with separate
    storages. It creates the shadow of the result only if a node saves it.
    """

    __slots__ = ("_bind", "_recipe", "uses")

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._bind: Callable[..., Callable[..., Any]] | None = None
        self.uses = 0

    def follow(self, wanted: tuple[Any, ...], plan: Any, by_id: dict[int, Any], graph: Graph) -> Callable[..., Any]:
        """Return the function ``follow(args, kwargs, place, epoch)`` (see the class) for calls with the arguments
        ``wanted``: for each, the required plain value or form of the tensor.

        Its source is generated when this method is first called. ``by_id`` has the records of the known tensors by the
        ``id`` of the tensor.
        """
        if self._bind is None:
            self._bind = self._made(wanted)
        return self._bind(plan, by_id.get, graph, *wanted)

    def _made(self, wanted: tuple[Any, ...]) -> Callable[..., Callable[..., Any]]:
        steps = self._recipe.steps
        window = self._recipe.results[0]
        assert steps is not None
        assert isinstance(window, Window)
        lines = [
            f"if len(args) != {len(wanted)}: return None",
            f"{', '.join(f'a{place}' for place in range(len(wanted)))}, = args",
        ]
        lines += [
            f"if a{place} is not w{place}: return None" for place, value in enumerate(wanted) if type(value) is not Form
        ]
        tensors = [(place, form) for place, form in enumerate(wanted) if type(form) is Form]
        for k, (place, form) in enumerate(tensors):
            lines += (
                SAME.format(a=f"a{place}", p=f"p{k}", o=f"o{k}", r=f"r{k}", place=place, flag=form.requires_grad)
                .strip()
                .splitlines()
            )
            lines += [APART.format(r=f"r{k}", q=f"r{other}") for other in range(k)]
        is_kept = not window.is_plain or steps.name("x0", but_for_tensors=True)
        lines += [
            f"o{k} = r{k}.shadow" for k in range(len(tensors)) if steps.name(f"o{k}", but_for_tensors=not is_kept)
        ]
        lines += [*steps.nodes, *(steps.tensors if is_kept else ()), *steps.keeps]
        records = ", ".join(f"r{number}" for number in range(len(tensors)))
        nodes = "".join(f"n{number}, " for number in range(len(self._recipe.nodes)))
        lines.append(f"return plan, [{records}], ({'x0,' * is_kept}), ({nodes}), place, args, kwargs, (), None")
        inner = ["def follow(args, kwargs, place, epoch):", *(f"    {line}" for line in lines), "return follow"]
        return steps.function(
            ", ".join(["plan, get, graph", *(f"w{place}" for place in range(len(wanted)))]), inner, tensors=TENSORS
        )
