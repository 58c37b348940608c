"""The types of the state that a trace's effects write, as the docstring of
:mod:`pitfall_lab.trace.model` describes it.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

Cell = int | float | bool | str
"""One element: ``true``, ``3``, ``0.5``, or one of the strings ``"nan"``, ``"inf"``, ``"-inf"``, ``"1+2j"``."""


class Shortened(TypedDict):
    """Many elements: their number, and the few that are shown, as (index, element); where they are known, the
    mean, the lowest and the highest of all.

    ``count`` is the number, ``shown`` are the elements with their index in the flat storage or tensor, ``mean``,
    ``low`` and ``high`` are floats of all elements; these three are left out where they were not computed.
    """

    count: int
    shown: list[tuple[int, Cell]]
    mean: NotRequired[float]
    low: NotRequired[float]
    high: NotRequired[float]


Cells = list[Cell] | Shortened


class Text(TypedDict):
    """A sentence in both languages."""

    en: str
    zh: str


class TensorState(TypedDict):
    """A tensor or NumPy array: what the program calls it, its shape in elements, and the
    labels of what it belongs to.

    ``name`` is its name in the program (None: none), ``names`` are all of them. ``stride`` and ``offset`` are in
    elements, ``dtype`` and ``device`` names. Labels, or None: ``storage`` (``S1``), ``counter``, the version counter
    (``C1``), ``grad_fn``, a node (``n5``), ``base``, the tensor that it is a view of, and ``grad`` (``t9``). ``born``
    is the step at which it was first seen; ``alive``: it still exists.
    """

    kind: Literal["tensor", "parameter", "array"]
    name: str | None
    names: list[str]
    shape: list[int]
    stride: list[int]
    offset: int
    dtype: str
    device: str
    storage: str | None
    counter: str | None
    requires_grad: bool
    is_leaf: bool
    grad_fn: str | None
    base: str | None
    grad: str | None
    born: int
    alive: bool


class StorageState(TypedDict):
    """A storage: its size in elements and in bytes, and its elements where they are known.

    ``size`` is in elements of ``dtype``, ``nbytes`` in bytes; ``cells`` are the elements (None: not known); ``alive``:
    it still exists.
    """

    size: int
    dtype: str
    nbytes: int
    cells: Cells | None
    alive: bool


class SavedState(TypedDict):
    """A tensor that a node saved, with the version that its counter had then.

    ``name`` is torch's name for it in the node (``result``); ``tensor`` (``t4``), ``storage`` and ``counter`` are
    labels, None where there is none; ``version`` is the version.
    """

    name: str
    tensor: str | None
    storage: str | None
    counter: str | None
    version: int


class SentGradient(TypedDict):
    """What a node sent to another one.

    It is the gradient that arrived there, one of several that are added up: ``node`` is the label of the node that sent
    it, ``cells`` are its elements.
    """

    node: str
    cells: Cells


class NodeState(TypedDict):
    """A node of the graph; ``ran`` is the step in which backward ran it, ``gradient`` what it received there.

    ``name`` is torch's (``SigmoidBackward0``), ``next`` are the labels of the nodes to which it sends gradients (None:
    to none), ``born`` is the step that made it, ``output`` the label of its result (None: not known). ``freed``:
    backward has freed what it saved. ``ran``, ``gradient`` and ``gradient_shape`` are None before it ran; ``gradient``
    also where its values are unknown. ``added``: of a short gradient that several nodes sent, what each sent.
    """

    name: str
    next: list[str | None]
    born: int
    output: str | None
    saved: list[SavedState]
    freed: bool
    ran: int | None
    gradient: Cells | None
    gradient_shape: list[int] | None
    added: NotRequired[list[SentGradient]]


class ModeState(TypedDict):
    """The modes of autograd.

    ``grad``: grad mode is on; ``inference``: inference mode is on.
    """

    grad: bool
    inference: bool


class State(TypedDict):
    """The memory and the graph of a program after a step: all effects up to it, by label.

    ``counters`` has the version of each version counter; ``mode`` is not by label.
    """

    tensors: dict[str, TensorState]
    storages: dict[str, StorageState]
    counters: dict[str, int]
    nodes: dict[str, NodeState]
    mode: ModeState


Unknown = Any
"""Data that the browser shows as it is."""
