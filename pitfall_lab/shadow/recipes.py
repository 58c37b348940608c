"""Recipes: what an operation did once to operands of one kind, it does again.

A recipe is derived from what the engine itself did with a call: which nodes it made, what they saved, what memory the results lie
on. Following it makes the same things for other operands of the same kind (:class:`Form`) without working out again why. Only
calls that make new tensors or windows have recipes; what they change besides, they must not change: no memory, no history, no
counter. Numbers have no part in it: recipes belong to an engine that follows none (``value_limit`` below zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import ref

from pitfall_lab.shadow.dtypes import Device, DType
from pitfall_lab.shadow.engine import Applied
from pitfall_lab.shadow.graph import Edge, Graph, Meta, Node, Saved
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, Storage, ViewOf


class Form:
    """All that the course of an operation can depend on in an operand, but for its numbers and its history. One object for each kind."""

    __slots__ = ("is_flagged", "requires_grad")

    def __init__(self, shadow: ShadowTensor) -> None:
        self.is_flagged = shadow.flag
        self.requires_grad = shadow.requires_grad


class Forms:
    """Finds the form of a tensor."""

    def __init__(self) -> None:
        self._known: dict[Any, Form] = {}

    def of(self, x: ShadowTensor) -> Form | None:
        """The form of ``x``; None where an operation's course may depend on more than that."""
        storage, view = x.storage, x.view
        if x.inference or x.counter is None or storage.data is not None or storage.shared:
            return None
        if view is None:
            family: Any = None
        elif view.version != x.counter.version:
            return None  # its history must be written anew first
        else:
            family = (view.creation, view.base.requires_grad, view.base.is_leaf)
        key = (
            x.shape, x.stride, x.offset, x.dtype, x.device, x.flag, x.node is None, x.number, x.kind, storage.size, storage.dtype, family
        )  # fmt: skip
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = Form(x)
        return form


Follow = Callable[[Graph, Sequence[ShadowTensor]], tuple[tuple[ShadowTensor, ...], tuple[Node, ...]]]


class Underivable(Exception):
    """The call did something that no recipe can say."""


class Made:
    """A node to be made.

    ``edges`` are ``(True, k, output_nr)`` to the recipe's own node k, ``(False, j, is_leaf)`` to operand j, and ``(False, None, 0)``.
    """

    __slots__ = ("edges", "multiple", "name", "opaque", "outputs", "saved")

    def __init__(self, node: Node, edges: tuple[Any, ...], saved: tuple[Any, ...]) -> None:
        self.name = node.name
        self.edges = edges
        self.outputs: list[Meta] = list(node.outputs)
        self.saved = saved
        self.multiple = node.multiple
        self.opaque = node.opaque


class Window:
    """A tensor to be made. ``on`` is the operand whose memory it shares, or None for memory of its own."""

    __slots__ = (
        "base", "creation", "device", "dtype", "flag", "node", "offset", "on", "output_nr", "own_counter", "shape", "size", "stride",
    )  # fmt: skip

    def __init__(self, x: ShadowTensor, nodes: Sequence[Node], operands: Sequence[ShadowTensor]) -> None:
        self.shape: Shape = x.shape
        self.stride: Shape = x.stride
        self.dtype: DType = x.dtype
        self.device: Device = x.device
        self.size = x.storage.size
        self.flag = x.flag
        self.output_nr = x.output_nr
        self.node = None if x.node is None else _place(nodes, x.node)
        self.on = None if not x.storage.mark else next((j for j, o in enumerate(operands) if o.storage is x.storage), None)
        self.offset = x.offset - (0 if self.on is None else operands[self.on].offset)
        self.own_counter = self.on is None or x.counter is not operands[self.on].counter
        self.base: int | None = None
        self.creation = ""
        if (x.storage.mark and self.on is None) or x.inference or x.counter is None or (self.own_counter and x.counter.version):
            raise Underivable
        if x.view is not None:
            roots = [o if o.view is None else o.view.base for o in operands]
            self.base = _place(roots, x.view.base)
            self.creation = x.view.creation

    def written(self, name: str, constants: dict[str, Any]) -> Iterator[str]:
        """The lines that make the tensor and call it ``name``. Everything but the operands is a constant."""
        constants |= {f"{name}_{what}": getattr(self, what) for what in ("shape", "stride", "dtype", "device")}
        parent = f"o[{self.on}]"
        storage = f"{parent}.storage" if self.on is not None else f"Storage({self.size}, {name}_dtype, {name}_device)"
        counter = "Counter()" if self.own_counter else f"{parent}.counter"
        offset = f"{parent}.offset + {self.offset}" if self.on is not None else f"{self.offset}"
        yield f"{name} = ShadowTensor(graph, {storage}, {name}_shape, {name}_stride, {offset}, {name}_dtype, {counter})"
        if self.base is not None:
            root = f"o[{self.base}]"
            yield f"{name}.view = ViewOf({root} if {root}.view is None else {root}.view.base, {self.creation!r}, {name}.counter.version)"
        if self.node is not None:
            yield f"{name}.node = n{self.node}"
        if self.output_nr:
            yield f"{name}.output_nr = {self.output_nr}"
        if self.flag:
            yield f"{name}.flag = True"


def _place(things: Sequence[Any], wanted: object) -> int:
    for k, thing in enumerate(things):
        if thing is wanted:
            return k
    raise Underivable


class Recipe:
    """How to do a call again. ``results`` are windows, or the place of an operand that was handed back.

    ``follow(graph, operands)`` does it and returns the results and the nodes, those of leaves (AccumulateGrad) not among them.
    """

    __slots__ = ("follow", "nodes", "results")

    def __init__(self, applied: Applied, operands: Sequence[ShadowTensor]) -> None:
        """Derive the recipe of what was ``applied`` to ``operands``; the results must not have been marked yet.

        Raises:
            Underivable: there is none.
        """
        if applied.writes or applied.stale or applied.ran or applied.harms:
            raise Underivable
        results = applied.result if isinstance(applied.result, (tuple, list)) else (applied.result,)
        made = [node for node in applied.nodes if node.leaf is None]
        if not results or not all(isinstance(x, ShadowTensor) for x in results):
            raise Underivable
        for node in applied.nodes:
            if node.leaf is not None:
                _place(operands, node.leaf)
        self.results: list[Window | int] = []
        for x in results:
            handed_back = next((j for j, o in enumerate(operands) if o is x), None)
            self.results.append(Window(x, made, operands) if handed_back is None else handed_back)
        self.nodes = tuple(
            Made(node, tuple(_edge(e, made, operands) for e in node.next), tuple(_kept(s, made, operands, results) for s in node.saved))
            for node in made
        )
        if any(n.mirrored or n.inner is not None or n.hooks or n.retains for n in made):
            raise Underivable

        self.follow = self._compiled()

    def _compiled(self) -> Follow:
        """The recipe as one straight function: it is followed at every call, and a loop over its parts takes longer than the parts."""
        constants: dict[str, Any] = {
            "Node": Node, "Saved": Saved, "ShadowTensor": ShadowTensor, "Storage": Storage, "Counter": Counter, "ViewOf": ViewOf, "ref": ref
        }  # fmt: skip
        lines: list[str] = []
        for k, made in enumerate(self.nodes):
            edges = "".join(f"{_edge_text(edge)}, " for edge in made.edges)
            constants |= {f"n{k}_name": made.name, f"n{k}_outputs": made.outputs}
            lines += [f"n{k} = Node(n{k}_name, ({edges}), graph.sequence)", "graph.sequence += 1", f"n{k}.outputs = n{k}_outputs"]
            lines += [f"n{k}.multiple = True"] * made.multiple + [f"n{k}.opaque = True"] * made.opaque
        for k, window in enumerate(self.results):
            lines += [f"r{k} = o[{window}]"] if type(window) is int else window.written(f"r{k}", constants)  # type: ignore[union-attr]
        for k, made in enumerate(self.nodes):
            kept = []
            for j, (what, name, where) in enumerate(made.saved):
                s = f"s{k}_{j}"
                kept.append(s)
                if what is Saved:
                    constants[s] = name
                    continue
                if what == "inside":
                    lines += where.written(f"{s}_x", constants)
                x = {"operand": f"o[{where}]", "inside": f"{s}_x"}.get(what, f"r{where}")
                lines += [f"{s} = Saved({name!r}, {x}, is_output={what == 'output'})", f"{s}.owner = ref(n{k})"]
            if made.saved and all(what is Saved for what, _, _ in made.saved):
                constants[f"n{k}_saved"] = tuple(name for _, name, _ in made.saved)
                lines.append(f"n{k}.saved = n{k}_saved")
            elif kept:
                lines.append(f"n{k}.saved = ({', '.join(kept)},)")
        results = "".join(f"r{k}, " for k in range(len(self.results)))
        lines.append(f"return ({results}), ({''.join(f'n{k}, ' for k in range(len(self.nodes)))})")
        exec("def follow(graph, o):\n" + "".join(f"    {line}\n" for line in lines), constants)  # noqa: S102 - our own text
        follow: Follow = constants["follow"]
        return follow


def _edge_text(edge: tuple[bool, int | None, bool]) -> str:
    own, k, detail = edge
    if own:
        return f"(n{k}, {int(detail)})"
    if k is None:
        return "(None, 0)"
    return f"(graph.accumulate_grad(o[{k}]), 0)" if detail else f"(o[{k}].node, o[{k}].output_nr)"


def _edge(edge: Edge, nodes: Sequence[Node], operands: Sequence[ShadowTensor]) -> tuple[bool, int | None, int]:
    node, output_nr = edge
    if node is None:
        return False, None, 0
    if any(node is own for own in nodes):
        return True, _place(nodes, node), output_nr
    if node.leaf is not None:
        return False, _place(operands, node.leaf), 1
    for j, x in enumerate(operands):
        if x.node is node and x.output_nr == output_nr:
            return False, j, 0
    raise Underivable


def _kept(s: Saved, nodes: Sequence[Node], operands: Sequence[ShadowTensor], results: Sequence[ShadowTensor]) -> tuple[Any, Any, Any]:
    """A saved tensor, as what it is of the call: an operand, a result, or a private one (nothing can invalidate it: one will do)."""
    if s.own:
        return Saved, s, None
    if s.view_node is not None:
        raise Underivable
    if s.is_output:
        for k, x in enumerate(results):
            if x.storage is s.storage and (x.offset, x.shape, x.stride) == (s.offset, s.shape, s.stride) and x.counter is s.counter:
                return "output", s.name, k
        raise Underivable
    for what, things in (("operand", operands), ("result", results)):
        for k, x in enumerate(things):
            if x is s.tensor:
                return what, s.name, k
    assert s.tensor is not None
    inside = Window(s.tensor, nodes, operands)
    if inside.on is None:
        raise Underivable
    return "inside", s.name, inside
