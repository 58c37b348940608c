"""Finds copies of weights (a state dict, a second model) made from a model whose name now has another model
(:meth:`Snapshots.compare`).

The names and shapes of both models' weights agree, so that the copy can be loaded into the new one. Of the copies,
checksums are stored; of the models, the ids and the classes of their modules.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import ELEMENTS, Found, Path, Thing
from pitfall_lab.observe.live.object_kinds import Kinds, class_name, is_own, tables
from pitfall_lab.observe.live.sums import Sums
from pitfall_lab.observe.tensor_facts import is_opaque

MARKED = 4
"""Of how many tensors of a copy the checksums are stored at most."""
_Shapes = dict[str, tuple[int, ...]]


class OldSnapshot(NamedTuple):
    """A copy of a model's weights that is older than the model which now has the name.

    ``name`` is the expression for the copy, ``path`` the names and keys that lead to it, ``model`` the model's name.
    The copy has had its values since cell ``since``; the model it was made from was first seen after cell ``made``, and
    the one that has the name now after cell ``again`` (numbers of cells). ``is_model``: the copy is a model itself, not
    a state dict. ``is_alike``: the new model consists of the same classes as the old one.
    """

    name: str
    path: Path
    model: str
    since: int
    made: int
    again: int
    is_model: bool
    is_alike: bool


class _Model(NamedTuple):
    """A model: the ids of it and its tensors, the classes of its modules, the cell that created it, and the shapes of
    its weights.
    """

    at: tuple[int, ...]
    classes: tuple[str, ...]
    cell: int
    parameters: _Shapes
    buffers: _Shapes


class _Copy(NamedTuple):
    """A copy: its checksums, the cell after which these were first seen, and the models that it may be a copy of, by
    name.
    """

    mark: tuple[int | None, ...]
    since: int
    of: dict[str, _Model]


class Snapshots:
    """Remembers copies of weights and the models that they were made from, as plain values."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}
        self._copies: dict[Path, _Copy] = {}

    def compare(self, found: Found, now: int, budget: Budget) -> list[OldSnapshot]:
        """The copies whose model has since been created again; ``now`` is the number of the last cell.

        An empty list if there are none, or the time limit ``budget`` is exceeded. ``found`` is what the notebook's
        names lead to.
        """
        models = {
            thing.text: made for thing in found.modules if len(thing.path) == 1 and (made := _model(thing, budget))
        }
        models = {name: self._with_cell(name, each, now) for name, each in models.items()}
        if budget.spent:
            return []
        sums, copies, old = Sums(), dict[Path, _Copy](), list[OldSnapshot]()
        for thing, tensors in _copies(found, models):
            if not budget.goes_on():
                return []
            mark = tuple(sums.of(each) for each in islice(tensors.values(), MARKED))
            was = self._copies.get(thing.path)
            if was is None or was.mark != mark or None in mark:
                fits = {name: each for name, each in models.items() if name != thing.text and _fits(tensors, each)}
                was = _Copy(mark, now, fits)
            if was.of:
                copies[thing.path] = was
            for name, model in was.of.items():
                new = models.get(name)
                if new is not None and new.at != model.at and _fits(tensors, new):
                    old.append(
                        OldSnapshot(
                            thing.text, thing.path, name, was.since, model.cell, new.cell,
                            thing.kind == "module", new.classes == model.classes,
                        )
                    )  # fmt: skip
        self._models, self._copies = models, copies
        return old

    def _with_cell(self, name: str, model: _Model, now: int) -> _Model:
        was = self._models.get(name)
        return model._replace(cell=was.cell if was is not None and was.at == model.at else now)


def _model(thing: Thing, budget: Budget) -> _Model | None:
    """Return the present state of a model; ``None`` if it has no parameters, or the time limit is exceeded."""
    parameters, buffers, classes, at = _Shapes(), _Shapes(), list[str](), [id(thing.value)]
    work, seen, kinds = [("", thing.value)], {id(thing.value)}, Kinds()
    for prefix, module in work:  # the list grows during the iteration
        if not budget.goes_on():
            return None
        own, other, children = tables(module)
        classes.append(class_name(module))
        for table, shapes in ((own, parameters), (other, buffers)):
            for name, each in list(table.items()):
                if type(name) is str and is_own(each):
                    shapes[prefix + name] = tuple(each.shape)
                    at.append(id(each))
        for name, child in list(children.items()):
            if type(name) is str and kinds.of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append((f"{prefix}{name}.", child))
    return _Model(tuple(at), tuple(classes), 0, parameters, buffers) if parameters else None


def _fits(tensors: Mapping[str, Any], model: _Model) -> bool:
    """Whether tensors have the names and shapes of a model's weights: all of its parameters, and nothing but these and
    its buffers.
    """
    known = {**model.buffers, **model.parameters}
    return model.parameters.keys() <= tensors.keys() and all(
        name in known and known[name] == tuple(each.shape) for name, each in tensors.items()
    )


def _copies(found: Found, models: Mapping[str, _Model]) -> Iterator[tuple[Thing, dict[str, Any]]]:
    """The state dicts, also inside a dict, and the models, each with its tensors by name; a state dict that refers to a
    module's parameters is left out.
    """
    weights = {each.value.data_ptr() for each in found.parameters if is_own(each.value) and not is_opaque(each.value)}
    for thing in found.names if models else ():
        if thing.kind == "group" and type(thing.value) in (dict, OrderedDict):
            inner = [(thing, thing.value)]
            for key, each in list(islice(thing.value.items(), ELEMENTS)):
                if type(key) is str and type(each) in (dict, OrderedDict):
                    inner.append((Thing((*thing.path, repr(key)), f"{thing.text}[{key!r}]", "group", each), each))
            for part, table in inner:
                items = list(table.items())
                plain = all(type(key) is str and is_own(each) and not is_opaque(each) for key, each in items)
                if items and plain and not any(each.data_ptr() in weights for _, each in items if each.numel()):
                    yield part, dict(items)
        elif thing.kind == "module" and thing.text in models:
            yield thing, {name: each for name, each in _state(thing.value) if not is_opaque(each)}


def _state(module: Any) -> Iterator[tuple[str, Any]]:
    work, seen, kinds = [("", module)], {id(module)}, Kinds()
    for prefix, each in work:  # the list grows during the iteration
        own, other, children = tables(each)
        for name, tensor in [*own.items(), *other.items()]:
            if type(name) is str and is_own(tensor):
                yield prefix + name, tensor
        for name, child in list(children.items()):
            if type(name) is str and kinds.of(child) == "module" and id(child) not in seen:
                seen.add(id(child))
                work.append((f"{prefix}{name}.", child))
