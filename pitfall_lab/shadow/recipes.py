"""Recipes: what an operation did once to operands of one kind, it does again.

A recipe is derived from what the engine itself did with a call: which nodes it made, what they saved, what memory the results lie
on. Following it makes the same things for other operands of the same kind (:class:`Form`) without working out again why. Only
calls that make new tensors or windows can be followed; what they change besides, they must not change: no memory, no history, no
counter. Numbers have no part in it: an engine that follows them does each call itself, and a recipe only says what came of it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from pitfall_lab.shadow.applied import Applied
from pitfall_lab.shadow.dtypes import Device, DType
from pitfall_lab.shadow.graph import Edge, Graph, Meta, Node, Saved
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Shape, Storage, ViewOf


class Form:
    """All that the course of an operation can depend on in an operand, but for its numbers, its history and where in its memory it begins.

    One object for each kind.
    """

    __slots__ = ("is_flagged", "requires_grad")

    def __init__(self, shadow: ShadowTensor) -> None:
        self.is_flagged = shadow.flag
        self.requires_grad = shadow.requires_grad


class Forms:
    """Finds the form of a tensor."""

    def __init__(self) -> None:
        self._known: dict[Any, Form] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, x: ShadowTensor) -> Form | None:
        """The form of ``x``; None where an operation's course may depend on more than that."""
        storage, view = x.storage, x.view
        if x.inference or x.counter is None or storage.shared:
            return None
        if view is None:
            family: Any = None
        elif view.version != x.counter.version:
            return None  # its history must be written anew first
        else:
            family = (view.creation, view.base.requires_grad, view.base.is_leaf)
        key = (
            x.shape, x.stride, x.dtype, x.device, x.flag, x.node is None, x.output_nr, x.number, x.kind, storage.size, storage.dtype,
            storage.data is None, family,
        )  # fmt: skip
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = Form(x)
        return form


Follow = Callable[[Graph, Sequence[ShadowTensor]], tuple[tuple[ShadowTensor, ...], tuple[Node, ...], tuple[ShadowTensor, ...]]]


PLAIN = frozenset({bool, int, float, complex})


class Underivable(Exception):
    """The call did something that no recipe can say."""


class Way(NamedTuple):
    """Where a gradient goes: to the recipe's ``own`` node in this place, to what made the operand in this place, or nowhere (None)."""

    own: bool
    place: int | None
    output_nr: int = 0
    is_leaf: bool = False


class Made:
    """A node to be made.

    ``saved`` holds private saved tensors (nothing can invalidate them, so that one will do for all) and ``(slot, name of the tensor,
    is_output)``.
    """

    __slots__ = ("edges", "multiple", "name", "outputs", "saved", "vjp")

    def __init__(self, node: Node, parts: Parts) -> None:
        if node.mirrored or node.inner is not None or node.hooks or node.retains:
            raise Underivable
        self.name, self.vjp = node.name, node.vjp
        self.edges = tuple(_way(edge, parts.nodes, parts.operands) for edge in node.next)
        self.outputs: list[Meta] = list(node.outputs)
        self.saved = tuple(_kept(s, node, parts) for s in node.saved)
        self.multiple = node.multiple


class Window:
    """A tensor to be made. ``on`` is the operand whose memory it shares, ``counts_with`` the one whose counter; None for one of its own."""

    __slots__ = (
        "base", "counter", "counts_with", "creation", "device", "dtype", "flag", "node", "offset", "on", "output_nr", "shape", "size",
        "storage", "stride", "version",
    )  # fmt: skip

    def __init__(self, x: ShadowTensor, parts: Parts) -> None:
        operands = parts.operands
        if x.inference or x.counter is None or x.storage.shared:
            raise Underivable
        self.shape: Shape = x.shape
        self.stride: Shape = x.stride
        self.dtype: DType = x.dtype
        self.device: Device = x.device
        self.flag = x.flag
        self.output_nr = x.output_nr
        self.node = None if x.node is None else _place(parts.nodes, x.node)
        self.on = next((j for j, o in enumerate(operands) if o.storage is x.storage), None)
        self.counts_with = next((j for j, o in enumerate(operands) if o.counter is x.counter), None)
        if x.storage.mark and self.on is None:
            raise Underivable
        if self.on is not None and x.dtype != operands[self.on].dtype:
            raise Underivable  # it begins elsewhere, counted in its own elements, and not everywhere can it begin
        self.size = x.storage.size
        self.storage = -1 if self.on is not None else _number(parts.storages, x.storage)
        self.version = x.counter.version
        self.counter = -1 if self.counts_with is not None else _number(parts.counters, x.counter)
        self.offset = x.offset - (0 if self.on is None else operands[self.on].offset)
        self.base: str | None = None
        self.creation = ""
        if x.view is not None:
            self.base, self.creation = parts.root(x.view.base), x.view.creation

    @property
    def is_plain(self) -> bool:
        """Whether :meth:`tensor` makes it: nothing but its node ties it to anything else."""
        alone = self.on is None and self.counts_with is None and self.base is None
        return alone and not (self.flag or self.offset or self.version)

    def tensor(self, graph: Graph, node: Node | None) -> ShadowTensor:
        """The tensor of a plain window. The recipe's own lines do the same in less time."""
        storage = Storage(self.size, self.dtype, self.device)
        x = ShadowTensor(graph, storage, self.shape, self.stride, 0, self.dtype, Counter())
        x.node, x.output_nr = node, self.output_nr
        return x

    def written(self, name: str, constants: dict[str, Any], known: set[str]) -> Iterator[str]:
        """The lines that make the tensor and call it ``name``. Everything but the operands is a constant."""
        constants |= {f"{name}_{what}": getattr(self, what) for what in ("shape", "stride", "dtype", "device")}
        storage, counter = f"m{self.storage}", f"c{self.counter}"
        if self.on is not None:
            storage = f"o{self.on}.storage"
        elif storage not in known:
            known.add(storage)
            yield _new(storage, Storage(self.size, self.dtype, self.device), dtype=f"{name}_dtype", device=f"{name}_device")
        if self.counts_with is not None:
            counter = f"o{self.counts_with}.counter"
        elif counter not in known:
            known.add(counter)
            yield _new(counter, Counter(self.version))
        offset = f"{self.offset}" if self.on is None else f"o{self.on}.offset + {self.offset}"
        plain = ShadowTensor(None, Storage(0, self.dtype, self.device), self.shape, self.stride)  # type: ignore[arg-type]
        view = "None" if self.base is None else f"ViewOf({self.base}, {self.creation!r}, {counter}.version)"
        yield _new(
            name, plain, graph="graph", storage=storage, offset=offset, counter=counter, view=view,
            node="None" if self.node is None else f"n{self.node}", output_nr=str(self.output_nr), flag=str(self.flag),
            **{part: f"{name}_{part}" for part in ("shape", "stride", "dtype", "device")},
        )  # fmt: skip


def _new(called: str, like: Node | Storage | Counter | ShadowTensor, /, **given: str) -> str:
    """The statements that make a thing ``like`` this one, but for what is ``given``. Calling its class would take twice as long."""
    kind = type(like)
    parts = [f"{called} = new({kind.__name__})"]
    for slot in kind.__slots__:
        if slot != "__weakref__" and slot not in given:
            plain = getattr(like, slot)
            assert plain == () or type(plain) in (int, bool, str, type(None)), slot
            given[slot] = repr(plain)
    return "; ".join(parts + [f"{called}.{slot} = {value}" for slot, value in given.items()])


class Parts:
    """What a call worked with and made: operands, nodes, the tensors that are made (bases before their views), their memory."""

    def __init__(self, operands: Sequence[ShadowTensor], nodes: Sequence[Node]) -> None:
        self.operands, self.nodes = operands, nodes
        self.tensors: list[tuple[str, ShadowTensor, Window]] = []
        self.storages: list[Storage] = []
        self.counters: list[Counter] = []

    def name(self, x: ShadowTensor) -> str:
        """What a tensor is called in the recipe: an operand, or one to be made."""
        for j, operand in enumerate(self.operands):
            if operand is x:
                return f"o{j}"
        for name, other, _ in self.tensors:
            if other is x:
                return name
        window = Window(x, self)
        name = f"x{len(self.tensors)}"
        self.tensors.append((name, x, window))
        return name

    def root(self, base: ShadowTensor) -> str:
        """How to find the base of a view."""
        for j, operand in enumerate(self.operands):
            if operand.view is not None and operand.view.base is base:
                return f"o{j}.view.base"
        return self.name(base)

    def output(self, s: Saved, node: Node) -> str:
        """The tensor of a saved output, which is kept without its object."""
        for name, x, _ in self.tensors:
            if x.storage is s.storage and x.counter is s.counter and (x.offset, x.shape, x.stride) == (s.offset, s.shape, s.stride):
                return name
        inside = ShadowTensor(self.tensors[0][1].graph, s.storage, s.shape, s.stride, s.offset, s.dtype, s.counter)
        inside.node = node
        return self.name(inside)


def _number(things: list[Any], wanted: object) -> int:
    for k, thing in enumerate(things):
        if thing is wanted:
            return k
    things.append(wanted)
    return len(things) - 1


def _place(things: Sequence[Any], wanted: object) -> int:
    for k, thing in enumerate(things):
        if thing is wanted:
            return k
    raise Underivable


class Recipe:
    """How to do a call again. ``results`` are windows, or the place of an operand that was handed back.

    ``follow(graph, operands)`` does it and returns the results, the nodes (those of leaves, AccumulateGrad, not among them), and the
    tensors that remain inside the graph; ``insides`` are those of the first call. It is None where there are numbers. ``steps`` are its
    text, for who wants to do more in one function. ``writes``: the memory of the first operand is written, which is handed back.
    ``uncounted`` are the operands whose memory is written as well, and no counter moves (the statistics of a batch norm): without numbers
    there is nothing to do for that. ``is_plain``: what is returned is no tensor. ``is_timeless``: it holds nothing of the engine that it
    was derived from, so that it will do for others.
    """

    __slots__ = ("follow", "insides", "is_plain", "is_timeless", "nodes", "results", "steps", "uncounted", "writes")

    def __init__(self, applied: Applied, operands: Sequence[ShadowTensor], versions: Sequence[int]) -> None:
        """Derive the recipe of what was ``applied`` to ``operands``; the results must not have been marked yet.

        ``versions`` are those that the operands had before.

        Raises:
            Underivable: there is none.
        """
        if applied.stale or applied.ran or applied.harms:
            raise Underivable
        self.uncounted: tuple[int, ...] = ()
        if applied.writes and not _is_plain_write(applied, operands):
            self.uncounted = _uncounted_writes(applied, operands, versions)
        self.is_plain = type(applied.result) in PLAIN and not applied.nodes and not applied.writes
        results = applied.result if isinstance(applied.result, (tuple, list)) else () if self.is_plain else (applied.result,)
        made = [node for node in applied.nodes if node.leaf is None]
        if not (results or self.is_plain) or not all(isinstance(x, ShadowTensor) for x in results):
            raise Underivable
        for node in applied.nodes:
            if node.leaf is not None:
                _place(operands, node.leaf)
        parts = Parts(operands, made)
        names = [parts.name(x) for x in results]
        self.nodes = tuple(Made(node, parts) for node in made)
        self.writes = bool(applied.writes) and not self.uncounted
        has_numbers = self.is_plain or results[0].graph.follows_values
        self.is_timeless = self.writes or has_numbers or all(_is_timeless(node.vjp) for node in made)
        windows = {name: window for name, _, window in parts.tensors}
        self.results = [windows[name] if name in windows else int(name[1:]) for name in names]
        self.insides = [x for name, x, _ in parts.tensors if name not in names]
        self.steps: Steps | None = None
        self.follow: Follow | None = None if has_numbers else _count_write if self.writes else self._compiled(parts, names)

    def _compiled(self, parts: Parts, results: list[str]) -> Follow:
        """The recipe as one straight function: it is followed at every call, and a loop over its parts takes longer than the parts."""
        self.steps = steps = self._written(parts)
        insides = [name for name, _, _ in parts.tensors if name not in results]
        returned = ("".join(f"{name}, " for name in names) for names in (results, [f"n{k}" for k in range(len(self.nodes))], insides))
        given = "".join(f"o{j}, " for j in range(len(parts.operands)))
        lines = [f"{given}= o"] if given else []
        lines += [f"p{j} = o{j}.node" for j in range(len(parts.operands)) if steps.name(f"p{j}")]
        lines += [*steps.nodes, *steps.tensors, *steps.keeps, f"return {', '.join(f'({names})' for names in returned)}"]
        return steps.function("graph, o", lines)

    def _written(self, parts: Parts) -> Steps:
        """What the recipe does, in lines of text, and the constants that they name."""
        constants: dict[str, Any] = {
            "Node": Node, "Saved": Saved, "ShadowTensor": ShadowTensor, "Storage": Storage, "Counter": Counter, "ViewOf": ViewOf,
            "ref": ref, "new": object.__new__,
        }  # fmt: skip
        nodes: list[str] = []
        for k, made in enumerate(self.nodes):
            children = "".join(f"{_end(way)}, " for way in made.edges)
            constants |= {f"n{k}_name": made.name, f"n{k}_vjp": made.vjp, f"n{k}_outputs": made.outputs}
            parts_of = {"children": f"({children})", "indices": f"({''.join(f'{way.output_nr}, ' for way in made.edges)})"}
            parts_of |= {"sequence": "graph.sequence", "multiple": str(made.multiple)}
            parts_of |= {slot: f"n{k}_{slot}" for slot in ("name", "vjp", "outputs")}
            if made.saved and all(isinstance(saved, Saved) for saved in made.saved):
                constants[f"n{k}_saved"] = made.saved
                parts_of["saved"] = f"n{k}_saved"
            nodes += [_new(f"n{k}", Node("", (), 0), **parts_of), "graph.sequence += 1"]
        known: set[str] = set()
        tensors: list[str] = []
        for name, _, window in parts.tensors:
            tensors += window.written(name, constants, known)
        keeps: list[str] = []
        for k, made in enumerate(self.nodes):
            if f"n{k}_saved" in constants:
                continue
            for j, saved in enumerate(made.saved):
                s = f"s{k}_{j}"
                if isinstance(saved, Saved):
                    constants[s] = saved
                else:
                    slot, x, is_output = saved
                    keeps += [f"{s} = Saved({slot!r}, {x}, is_output={is_output})", f"{s}.owner = ref(n{k})"]
            if made.saved:
                keeps.append(f"n{k}.saved = ({''.join(f's{k}_{j}, ' for j in range(len(made.saved)))})")
        return Steps(nodes, tensors, keeps, constants)


class Steps(NamedTuple):
    """What a recipe does, in lines of text: how nodes and tensors are made and what is kept; and the constants that these name.

    They call the operands o0, o1 and so on, the nodes that those come from p0, the results x0, and the nodes that are made n0.
    """

    nodes: list[str]
    tensors: list[str]
    keeps: list[str]
    constants: dict[str, Any]

    def name(self, thing: str, *, but_for_tensors: bool = False) -> bool:
        """Whether the steps speak of something; ``but_for_tensors``: also where no tensor is made."""
        lines = self.nodes + self.keeps + ([] if but_for_tensors else self.tensors)
        return any(re.search(rf"\b{thing}\b", line) for line in lines)

    def function(self, given: str, lines: Sequence[str], **constants: Any) -> Callable[..., Any]:
        """The function of what is ``given`` that consists of these lines."""
        named = self.constants | constants
        text = "".join(f"    {line}\n" for line in lines)
        exec(f"def follow({given}):\n{text}", named)  # noqa: S102 - our own text
        made: Callable[..., Any] = named["follow"]
        return made


def _count_write(graph: Graph, operands: Sequence[ShadowTensor]) -> tuple[tuple[ShadowTensor, ...], tuple[()], tuple[()]]:
    """Write the first operand, of whose numbers nothing is known."""
    target = operands[0]
    target.storage.about_to_change()
    graph.bump(target.counter)
    return (target,), (), ()


def _is_plain_write(applied: Applied, operands: Sequence[ShadowTensor]) -> bool:
    """Whether a call wrote its first operand, which is no view, and nothing else came of it."""
    target = operands[0] if operands else None
    return (
        target is not None
        and applied.result is target
        and applied.writes == (target.storage,)
        and not applied.nodes
        and target.view is None
        and all(x is target or x.storage is not target.storage for x in operands)
    )


def _uncounted_writes(applied: Applied, operands: Sequence[ShadowTensor], versions: Sequence[int]) -> tuple[int, ...]:
    """The operands whose memory a call wrote, if no counter has moved and there are no numbers."""
    moved = any(x.version != before for x, before in zip(operands, versions, strict=True))
    if moved or any(x.graph.follows_values for x in operands):
        raise Underivable
    return tuple(_place([x.storage for x in operands], storage) for storage in applied.writes)


def _is_timeless(value: Any) -> bool:
    """Whether a vjp (or what it encloses) knows of no tensor, memory or node."""
    if isinstance(value, FunctionType):
        inside = [cell.cell_contents for cell in value.__closure__ or ()]
        return all(map(_is_timeless, [*inside, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]))
    if isinstance(value, (tuple, list)):
        return all(map(_is_timeless, value))
    if isinstance(value, partial):
        return all(map(_is_timeless, [value.func, *value.args, *value.keywords.values()]))
    if is_dataclass(value):
        return all(_is_timeless(getattr(value, field.name)) for field in fields(value))
    return value is None or isinstance(value, (bool, int, float, complex, str, slice, np.ndarray, np.generic, np.ufunc))


def _end(way: Way) -> str:
    """The node that a way leads to."""
    if way.own or way.place is None:
        return "None" if way.place is None else f"n{way.place}"
    return f"graph.accumulate_grad(o{way.place})" if way.is_leaf else f"p{way.place}"


def _way(edge: Edge, nodes: Sequence[Node], operands: Sequence[ShadowTensor]) -> Way:
    node, output_nr = edge
    if node is None:
        return Way(own=False, place=None)
    if any(node is own for own in nodes):
        return Way(own=True, place=_place(nodes, node), output_nr=output_nr)
    if node.leaf is not None:
        return Way(own=False, place=_place(operands, node.leaf), is_leaf=True)
    for j, x in enumerate(operands):
        if x.node is node and x.output_nr == output_nr:
            return Way(own=False, place=j, output_nr=output_nr)
    raise Underivable


def _kept(s: Saved, node: Node, parts: Parts) -> Saved | tuple[str, str, bool]:
    if s.own:
        kept = copy.copy(s)
        kept.tensor = kept.owner = None  # a recipe may outlive the program it was derived from
        return kept
    if s.view_node is not None or (s.tensor is None and not s.is_output):
        raise Underivable
    return s.name, parts.output(s, node) if s.tensor is None else parts.name(s.tensor), s.is_output
