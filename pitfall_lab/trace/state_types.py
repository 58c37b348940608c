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
    """A storage: its size in elements and in bytes, and its elements where they are known."""

    size: int
    dtype: str
    nbytes: int
    cells: Cells | None
    alive: bool


class SavedState(TypedDict):
    """A tensor that a node saved, with the version that its counter had then."""

    name: str
    tensor: str | None
    storage: str | None
    counter: str | None
    version: int


class SentGradient(TypedDict):
    """What a node sent to another one.

    It is the gradient that arrived there, one of several that are added up.
    """

    node: str
    cells: Cells


class NodeState(TypedDict):
    """A node of the graph; ``ran`` is the step in which backward ran it, ``gradient`` what it received there.

    ``added``: of a short gradient that several nodes sent, what each sent.
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
    """The modes of autograd."""

    grad: bool
    inference: bool


class State(TypedDict):
    """The memory and the graph of a program after a step: all effects up to it, by label."""

    tensors: dict[str, TensorState]
    storages: dict[str, StorageState]
    counters: dict[str, int]
    nodes: dict[str, NodeState]
    mode: ModeState


Unknown = Any
"""Data that the browser shows as it is."""
