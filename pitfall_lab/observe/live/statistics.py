"""Finds models whose running statistics changed in a cell that trained nothing: they were run in training mode only to
inspect the output (:meth:`Statistics.compare`).

Determined from versions: the counter of a batch normalization was written, no parameter and no gradient was, and there
is no graph through which a backward may still run. A model that has not been trained yet is left out, as training will
recompute its statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch.nn import Parameter

from pitfall_lab.observe.live.broken import Root
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Found, Path, Thing
from pitfall_lab.observe.live.graphs import is_freed, walk
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.live.saved import Cells
from pitfall_lab.observe.tensor_facts import ACCUMULATE, sequence_of

COUNTER = "num_batches_tracked"
"""The buffer with which a normalization layer counts its batches; the statistics that are written with it get no new
version.
"""
STEPS = 4
"""The version that a weight of a newly found model with gradients must have for the model to count as trained in its
cell.
"""


class Looked(NamedTuple):
    """A model whose running statistics changed while nothing was trained.

    ``name`` is the model's name, and ``path`` this name as a path. Its weights were last written in cell ``trained``;
    the later ``cells`` have changed only its statistics (numbers of cells). ``layer`` is the expression for its first
    normalization layer, ``others`` counts further ones.
    """

    name: str
    path: Path
    layer: str
    others: int
    trained: int
    cells: tuple[int, ...]


class _ModelVersions(NamedTuple):
    """Versions by id: of ``weights``, of their gradients (with the ids of these) and of the counters of batches.

    ``trained`` is the cell that wrote the weights last, ``cells`` are those that have since changed only the
    statistics.
    """

    weights: dict[int, int]
    gradients: dict[int, tuple[int, int]]
    counters: dict[int, int]
    trained: int | None = None
    cells: tuple[int, ...] = ()


class Statistics:
    """Remembers, after each cell, the versions of models' weights, of their gradients and of the batch counters of
    normalization layers (``num_batches_tracked``), to find cells that changed only the statistics.
    """

    def __init__(self) -> None:
        self._was: dict[str, _ModelVersions] = {}
        self._is: dict[str, _ModelVersions] = {}
        self._cell = 0

    def compare(self, found: Found, roots: Sequence[Root], cells: Cells, budget: Budget) -> list[Looked]:
        """The models whose statistics were changed, since they were trained last, by cells that trained nothing.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``roots`` are the named tensors with
        a graph, ``found`` is what the notebook's names lead to; ``cells`` determines which cell created a node, and has
        the number of the last one.
        """
        if cells.now != self._cell:
            self._was, self._is, self._cell = self._is, {}, cells.now
        inside: dict[str, list[Thing]] = {}
        for thing in found.parameters:
            inside.setdefault(thing.path[0], []).append(thing)
        if not any(thing.path[-1] == COUNTER for things in inside.values() for thing in things):
            return []
        models = {name: _read(things) for name, things in inside.items() if budget.goes_on()}
        if budget.spent:
            self._is = {**self._was, **self._is}
            return []
        trains = any(_is_trained(self._was.get(name), model) for name, model in models.items())
        trains = trains or any(cells.of(sequence_of(root.node)) == cells.now for root in roots)
        self._is = {name: _next(self._was.get(name), model, cells.now, trains=trains) for name, model in models.items()}
        if any(model.cells[-1:] == (cells.now,) for model in self._is.values()):
            coming = _coming(roots, budget)
            for name, model in self._is.items():
                if model.cells[-1:] == (cells.now,) and not coming.isdisjoint(model.weights):
                    self._is[name] = model._replace(cells=model.cells[:-1])
        made = []
        for name, model in self._is.items():
            layers = [each.text.rpartition(".")[0] for each in inside[name] if each.path[-1] == COUNTER]
            if model.trained is not None and model.cells and layers:
                made.append(Looked(name, (name,), layers[0], len(layers) - 1, model.trained, model.cells))
        return made


def _read(things: Sequence[Thing]) -> _ModelVersions:
    model = _ModelVersions({}, {}, {})
    for thing in things:
        tensor = thing.value
        if not is_own(tensor) or tensor.is_inference():
            continue
        if thing.path[-1] == COUNTER:
            model.counters[id(tensor)] = tensor._version
        elif type(tensor) is Parameter:  # buffers are plain tensors
            model.weights[id(tensor)] = tensor._version
            gradient = tensor.grad
            if gradient is not None and is_own(gradient):
                model.gradients[id(tensor)] = id(gradient), gradient._version
    return model


def _is_trained(was: _ModelVersions | None, now: _ModelVersions) -> bool:
    """Whether the last cell wrote weights or gradients of the model."""
    if was is None or was.weights.keys() != now.weights.keys():
        return False
    written = any(was.gradients.get(at) != each for at, each in now.gradients.items())
    return written or was.weights != now.weights


def _coming(roots: Sequence[Root], budget: Budget) -> set[int]:
    """The ids of the leaves in the graphs of losses whose backward has not run yet: training will continue with it."""
    found: set[int] = set()
    for root in roots:
        nodes = walk([root.node], budget) if root.thing.value.numel() == 1 else []
        if not any(is_freed(node) for node in nodes):
            found |= {id(node.variable) for node in nodes if node.name() == ACCUMULATE}
    return found


def _next(was: _ModelVersions | None, now: _ModelVersions, cell: int, *, trains: bool) -> _ModelVersions:
    if was is None or was.weights.keys() != now.weights.keys() or was.counters.keys() != now.counters.keys():
        return now._replace(trained=cell if now.gradients and max(now.weights.values(), default=0) >= STEPS else None)
    if was.weights != now.weights:
        return now._replace(trained=cell)
    looked = was.counters != now.counters and not trains
    return now._replace(trained=was.trained, cells=(*was.cells, cell) if looked else was.cells)
