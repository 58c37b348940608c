"""Recipes: repeat what an operation did, for operands of the same shape, dtype and autograd state.

:class:`Recipe` is one. It is derived from what the engine did for one call: which nodes it made, what they saved, and
which storages the results use. Following it makes the same objects for other operands of the same :class:`Form`,
without running the entry of the operation. Only calls that return new tensors or views, or only write their first
operand, have a recipe. Recipes handle no values: an engine with values runs each call itself.
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
    """Everything about an operand that an operation may depend on, except its values, its grad_fn and its storage
    offset: shape, strides, dtype and the like.

    Equal forms are the same object. ``requires_grad`` is the operand's; ``is_flagged`` is True where it is set on the
    tensor itself, not only on its grad_fn or base.
    """

    __slots__ = ("is_flagged", "requires_grad")

    def __init__(self, shadow: ShadowTensor) -> None:
        self.is_flagged = shadow.flag
        self.requires_grad = shadow.requires_grad


class Forms:
    """Finds the form of a tensor: its shape, strides, dtype and whatever else a recipe depends on."""

    def __init__(self) -> None:
        self._known: dict[Any, Form] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, x: ShadowTensor) -> Form | None:
        """Return the form of ``x``; None if an operation may depend on more than a form contains.

        That is the case for inference tensors, storages shared with NumPy, and views whose grad_fn must be regenerated.
        """
        storage, view = x.storage, x.view
        if x.inference or x.counter is None or storage.shared:
            return None
        if view is None:
            family: Any = None
        elif view.version != x.counter.version:
            return None  # its grad_fn must be regenerated first
        else:
            family = (view.creation, view.base.requires_grad, view.base.is_leaf)
        key = (
            x.shape,
            x.stride,
            x.dtype,
            x.device,
            x.flag,
            x.node is None,
            x.output_nr,
            x.number,
            x.kind,
            storage.size,
            storage.dtype,
            storage.data is None,
            family,
        )
        form = self._known.get(key)
        if form is None:
            form = self._known[key] = Form(x)
        return form


Follow = Callable[
    [Graph, Sequence[ShadowTensor]], tuple[tuple[ShadowTensor, ...], tuple[Node, ...], tuple[ShadowTensor, ...]]
]


PLAIN = frozenset({bool, int, float, complex})


class Underivable(Exception):
    """Raised where a call did something that a recipe cannot express."""


class Way(NamedTuple):
    """An edge from a node that a recipe makes.

    ``own`` is True if it leads to one of the nodes that the recipe makes, and ``place`` is the index of that node.
    Otherwise ``place`` is the index of an operand, and the edge leads to the grad_fn of the operand, or to its
    AccumulateGrad node if ``is_leaf``. It is None if the edge leads to no node. ``output_nr`` is the index of the
    output, of the node at the end of the edge, that the gradient is for.
    """

    own: bool
    place: int | None
    output_nr: int = 0
    is_leaf: bool = False


class Made:
    """A node that the recipe makes.

    ``edges`` are its :class:`Way` to other nodes. ``saved`` has one item for each saved tensor: ``(name in the node,
    name of the tensor in the recipe's code, is_output)``, or the ``Saved`` object itself if it is private (no write can
    invalidate it, so that all calls share it). The other fields are those of :class:`Node`.

    Raises :class:`Underivable` for a mirrored node, a CopySlices, a node with hooks, and a node whose edges or saved
    tensors belong neither to an operand nor to what the call made.
    """

    __slots__ = ("edges", "multiple", "name", "outputs", "saved", "vjp")

    def __init__(self, node: Node, parts: Parts) -> None:
        if node.mirrored or node.inner is not None or node.hooks or node.retains:
            raise Underivable
        self.name, self.vjp = node.name, node.vjp
        self.edges = tuple(_way(edge, parts) for edge in node.next)
        self.outputs: list[Meta] = list(node.outputs)
        self.saved = tuple(_kept(s, node, parts) for s in node.saved)
        self.multiple = node.multiple


class Window:
    """A tensor that the recipe makes.

    ``on`` is the index of the operand whose storage it uses, ``counts_with`` that of the operand whose version counter
    it uses. Each is None if the tensor gets a new one, whose number is then ``storage`` or ``counter`` (otherwise -1).
    ``node`` is the index of its grad_fn among the nodes of the recipe (None: none). ``base`` is the code for the tensor
    that it is a view of (None: no view), and ``creation`` says how the view was made. ``size`` is the size of its
    storage; ``offset`` is relative to the offset of the operand ``on``.

    Raises :class:`Underivable` for an inference tensor, a storage shared with NumPy, a storage that is neither new nor
    an operand's, and a dtype other than that of the operand ``on``.
    """

    __slots__ = (
        "base", "counter", "counts_with", "creation", "device", "dtype", "flag", "node", "offset", "on", "output_nr",
        "shape", "size", "storage", "stride", "version",
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
        self.node = None if x.node is None else parts.place(x.node)
        self.on = next((j for j, o in enumerate(operands) if o.storage is x.storage), None)
        self.counts_with = next((j for j, o in enumerate(operands) if o.counter is x.counter), None)
        if x.storage.mark and self.on is None:
            raise Underivable
        if self.on is not None and x.dtype != operands[self.on].dtype:
            raise Underivable  # the offset is in elements of the view's dtype, and must be divisible
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
        """Whether :meth:`tensor` can make it.

        That requires a new storage, offset 0, a new counter at version 0, no base, and no leaf that requires a
        gradient.
        """
        alone = self.on is None and self.counts_with is None and self.base is None
        return alone and not (self.flag or self.offset or self.version)

    def tensor(self, graph: Graph, node: Node | None) -> ShadowTensor:
        """Return the tensor of a plain window; the lines of :meth:`written` do the same faster."""
        storage = Storage(self.size, self.dtype, self.device)
        x = ShadowTensor(graph, storage, self.shape, self.stride, 0, self.dtype, Counter())
        x.node, x.output_nr = node, self.output_nr
        return x

    def written(self, name: str, constants: dict[str, Any], known: set[str]) -> Iterator[str]:
        """Yield the lines of code that make the tensor and assign it to ``name``.

        Everything but the operands is a constant in them; the constants that they use are added to ``constants``. If
        the name of its new storage or counter is not in ``known``, lines that make it come first, and the name is added
        to ``known``.
        """
        constants |= {f"{name}_{what}": getattr(self, what) for what in ("shape", "stride", "dtype", "device")}
        storage, counter = f"m{self.storage}", f"c{self.counter}"
        if self.on is not None:
            storage = f"o{self.on}.storage"
        elif storage not in known:
            known.add(storage)
            yield _new(
                storage, Storage(self.size, self.dtype, self.device), dtype=f"{name}_dtype", device=f"{name}_device"
            )
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
    """Return statements that make an object with the attributes of ``like``, except those in ``given``.

    They run twice as fast as a call of the class.
    """
    kind = type(like)
    parts = [f"{called} = new({kind.__name__})"]
    for slot in kind.__slots__:
        if slot != "__weakref__" and slot not in given:
            plain = getattr(like, slot)
            assert plain == () or type(plain) in (int, bool, str, type(None)), slot
            given[slot] = repr(plain)
    return "; ".join(parts + [f"{called}.{slot} = {value}" for slot, value in given.items()])


class Parts:
    """The operands of a call, and the objects that the call made.

    ``operands`` are shadow tensors and ``nodes`` the new nodes. ``tensors`` are the new tensors, bases before their
    views, as (name in the recipe's code, tensor, :class:`Window` that makes it). ``storages`` and ``counters`` are the
    new ones that these need.
    """

    def __init__(self, operands: Sequence[ShadowTensor], nodes: Sequence[Node]) -> None:
        self.operands, self.nodes = operands, nodes
        self.places = {id(node): k for k, node in enumerate(nodes)}
        """The index of each node by its id: a recurrent layer makes hundreds of nodes."""
        self.tensors: list[tuple[str, ShadowTensor, Window]] = []
        self.storages: list[Storage] = []
        self.counters: list[Counter] = []

    def name(self, x: ShadowTensor) -> str:
        """Return the name of a tensor in the recipe's code.

        A tensor that is neither an operand nor in ``tensors`` is added to ``tensors``, which raises
        :class:`Underivable` where :class:`Window` does.
        """
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

    def place(self, node: Node) -> int:
        """Return the index of a node among those that the call made; raises :class:`Underivable` for any other node."""
        if (found := self.places.get(id(node))) is None:
            raise Underivable
        return found

    def root(self, base: ShadowTensor) -> str:
        """Return the expression for the base of a view in the recipe's code."""
        for j, operand in enumerate(self.operands):
            if operand.view is not None and operand.view.base is base:
                return f"o{j}.view.base"
        return self.name(base)

    def output(self, s: Saved, node: Node) -> str:
        """Return the name, in the recipe's code, of the tensor that ``s`` saves as an output of ``node``.

        ``s`` has no tensor object: it is the named tensor with the same storage, shape and strides, or gets a new name.
        """
        for name, x, _ in self.tensors:
            if (
                x.storage is s.storage
                and x.counter is s.counter
                and (x.offset, x.shape, x.stride) == (s.offset, s.shape, s.stride)
            ):
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
    """How to repeat a call that was made once.

    ``results`` are how to make each result (:class:`Window`), or the index of an operand that the call returned;
    ``nodes`` the nodes to make. ``follow(graph, operands)`` repeats the call and returns the results, the nodes
    (without AccumulateGrad nodes), and the tensors that only the graph holds; ``insides`` are those of the first call.
    ``follow`` is None for an engine with values. ``steps`` are its code, to be included in a larger function (None:
    there is none). ``writes``: the call writes its first operand and returns it. ``uncounted`` are the indices of the
    operands written without a change of version (running statistics of batch norm): without values nothing is to be
    done for these. ``is_plain``: the call returns a number or a bool. ``is_timeless``: it refers to no object of the
    engine that it was derived from, so that other engines can use it.
    """

    __slots__ = ("follow", "insides", "is_plain", "is_timeless", "nodes", "results", "steps", "uncounted", "writes")

    def __init__(self, applied: Applied, operands: Sequence[ShadowTensor], versions: Sequence[int]) -> None:
        """Derive the recipe of a call from its record ``applied``; the results must not have a ``mark`` yet.

        ``operands`` are the tensors that the call was given, ``versions`` the versions that these had before.

        Raises:
            Underivable: the call did something that a recipe cannot express.
        """
        if applied.stale or applied.ran or applied.harms:
            raise Underivable
        self.uncounted: tuple[int, ...] = ()
        if applied.writes and not _is_plain_write(applied, operands):
            self.uncounted = _uncounted_writes(applied, operands, versions)
        self.is_plain = type(applied.result) in PLAIN and not applied.nodes and not applied.writes
        results = (
            applied.result if isinstance(applied.result, (tuple, list)) else () if self.is_plain else (applied.result,)
        )
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
        self.follow: Follow | None = (
            None if has_numbers else _count_write if self.writes else self._compiled(parts, names)
        )

    def _compiled(self, parts: Parts, results: list[str]) -> Follow:
        """Return the recipe compiled into one function without loops, which is faster than interpreting it at each
        call.
        """
        self.steps = steps = self._written(parts)
        insides = [name for name, _, _ in parts.tensors if name not in results]
        returned = (
            "".join(f"{name}, " for name in names)
            for names in (results, [f"n{k}" for k in range(len(self.nodes))], insides)
        )
        given = "".join(f"o{j}, " for j in range(len(parts.operands)))
        lines = [f"{given}= o"] if given else []
        lines += [f"p{j} = o{j}.node" for j in range(len(parts.operands)) if steps.name(f"p{j}")]
        lines += [*steps.nodes, *steps.tensors, *steps.keeps, f"return {', '.join(f'({names})' for names in returned)}"]
        return steps.function("graph, o", lines)

    def _written(self, parts: Parts) -> Steps:
        """Return the recipe as lines of code, with the constants that they use."""
        constants: dict[str, Any] = {
            "Node": Node, "Saved": Saved, "ShadowTensor": ShadowTensor, "Storage": Storage, "Counter": Counter,
            "ViewOf": ViewOf, "ref": ref, "new": object.__new__,
        }  # fmt: skip
        nodes: list[str] = []
        for k, made in enumerate(self.nodes):
            children = "".join(f"{_end(way)}, " for way in made.edges)
            constants |= {f"n{k}_name": made.name, f"n{k}_vjp": made.vjp, f"n{k}_outputs": made.outputs}
            parts_of = {
                "children": f"({children})",
                "indices": f"({''.join(f'{way.output_nr}, ' for way in made.edges)})",
            }
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
    """The code of a recipe: lines of Python that make nodes (``nodes``), make tensors (``tensors``) and save tensors in
    the nodes (``keeps``), and the objects by name that these lines use (``constants``).

    Names in the code: operands o0, o1, …; their grad_fns p0, …; results x0, …; new nodes n0, ….
    """

    nodes: list[str]
    tensors: list[str]
    keeps: list[str]
    constants: dict[str, Any]

    def name(self, thing: str, *, but_for_tensors: bool = False) -> bool:
        """Whether the code contains the name ``thing``; with ``but_for_tensors``, the lines that make tensors are
        ignored.
        """
        lines = self.nodes + self.keeps + ([] if but_for_tensors else self.tensors)
        return any(re.search(rf"\b{thing}\b", line) for line in lines)

    def function(self, given: str, lines: Sequence[str], **constants: Any) -> Callable[..., Any]:
        """Compile ``lines`` into a function whose parameters are ``given``, as source text (``"graph, o"``).
        ``constants`` are added to those of the code.
        """
        named = self.constants | constants
        text = "".join(f"    {line}\n" for line in lines)
        exec(f"def follow({given}):\n{text}", named)  # noqa: S102 - our own text
        made: Callable[..., Any] = named["follow"]
        return made


def _count_write(
    graph: Graph, operands: Sequence[ShadowTensor]
) -> tuple[tuple[ShadowTensor, ...], tuple[()], tuple[()]]:
    """Record a write to the first operand, whose values are unknown."""
    target = operands[0]
    target.storage.about_to_change()
    graph.bump(target.counter)
    return (target,), (), ()


def _is_plain_write(applied: Applied, operands: Sequence[ShadowTensor]) -> bool:
    """Whether a call did nothing but write its first operand and return it.

    The operand must be no view and share its storage with no other operand.
    """
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
    """Return the indices of the operands that a call wrote without a change of version.

    Raises :class:`Underivable` if a version changed, or in an engine with values.
    """
    moved = any(x.version != before for x, before in zip(operands, versions, strict=True))
    if moved or any(x.graph.follows_values for x in operands):
        raise Underivable
    return tuple(_place([x.storage for x in operands], storage) for storage in applied.writes)


def _is_timeless(value: Any) -> bool:
    """Whether a vjp, and the values it closes over, refer to no tensor, storage or node."""
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
    """Return the source expression for the node at the end of an edge."""
    if way.own or way.place is None:
        return "None" if way.place is None else f"n{way.place}"
    return f"graph.accumulate_grad(o{way.place})" if way.is_leaf else f"p{way.place}"


def _way(edge: Edge, parts: Parts) -> Way:
    node, output_nr = edge
    if node is None:
        return Way(own=False, place=None)
    if (own := parts.places.get(id(node))) is not None:
        return Way(own=True, place=own, output_nr=output_nr)
    if node.leaf is not None:
        return Way(own=False, place=_place(parts.operands, node.leaf), is_leaf=True)
    for j, x in enumerate(parts.operands):
        if x.node is node and x.output_nr == output_nr:
            return Way(own=False, place=j, output_nr=output_nr)
    raise Underivable


def _kept(s: Saved, node: Node, parts: Parts) -> Saved | tuple[str, str, bool]:
    if s.own:
        kept = copy.copy(s)
        kept.tensor = kept.owner = None  # a recipe may be used after the program that it was derived from has ended
        return kept
    if s.view_node is not None or (s.tensor is None and not s.is_output):
        raise Underivable
    return s.name, parts.output(s, node) if s.tensor is None else parts.name(s.tensor), s.is_output
