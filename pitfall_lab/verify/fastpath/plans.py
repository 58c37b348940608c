"""Plans: all that the express lane knows of a kind of calls, and what the recordings of one process share of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pitfall_lab.shadow import Node, ShadowTensor
from pitfall_lab.shadow.recipes import Form, Forms, Recipe, Underivable, Window
from pitfall_lab.verify.fastpath.call_sites import Again
from pitfall_lab.verify.fastpath.event_rows import MARKS, Row, Rows, Saying

MOST_SHARED, MOST_FORMS = 4_000, 50_000
"""So much is kept from one recording to the next: a plan is some kilobytes, a form some hundred bytes."""
SET_GRAD = torch.Tensor.grad.__set__  # type: ignore[attr-defined]
"""What ``zero_grad`` calls for every parameter."""


class Expected(NamedTuple):
    """What torch's result must look like, and the numbers of its labels, counted from those that were given out before."""

    window: Window
    form: Form | None
    shape: Any
    stride: Any
    offset: int
    dtype: torch.dtype
    requires_grad: bool
    node: str | None
    nbytes: int
    itemsize: int
    dtype_name: str
    t: int
    storage: int
    """0: no memory of its own."""
    counter: int
    version: int

    @property
    def look(self) -> tuple[Any, ...]:
        """What of it is asked of a tensor that was made alone."""
        return self.form, self.shape, self.stride, self.offset, self.dtype, self.requires_grad, self.node, self.version, self.window

    @property
    def is_as_large_as_its_model(self) -> bool:
        """Whether the model's memory tells how large torch's is, and of which type."""
        return (self.nbytes, self.dtype_name) == (self.window.size * self.itemsize, self.window.dtype[:])


class Plan:
    """All that is known of a call of one kind.

    ``nodes`` are the numbers of the labels of the recipe's nodes; ``leaves`` the operands whose AccumulateGrad nodes are made, with the
    numbers of theirs; ``links`` how torch's nodes behind the first are found: (from node, through edge, to node); ``made`` how many
    tensors, storages, counters and nodes get labels; ``row`` makes a row, of the operands and what else it tells, in its order.
    ``writes``: the memory of the first operand; ``uncounted`` are the operands whose memory is written besides.
    ``simple`` is the look of what a recipe makes that makes one tensor with memory of its own and at most one node, with the number of its
    label, and how many nodes get one. ``tells_numbers``: the row tells plain numbers.
    ``again`` does the same for a line that calls it over and over.
    ``kinds`` says of the nodes how they are called and how much they save; ``inside_at``, what keeps the tensors that remain inside the
    graph: (node, saved); ``looks`` are the numbers of the labels of the storages of whose numbers the event tells. ``opens``: the results
    are windows that may begin anywhere in the memory of the operand.
    """

    __slots__ = (
        "again", "follow", "inside_at", "insides", "kinds", "leaves", "links", "looks", "made", "nodes", "number", "op", "opens",
        "results", "row", "saying", "simple", "tells_numbers", "uncounted", "writes",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - its parts
        self, recipe: Recipe, saying: Saying, results: tuple[Expected | int, ...], nodes: Any, leaves: Any, made: Any,
        *, opens: bool = False,
    ) -> None:  # fmt: skip
        self.follow = None if opens else recipe.follow
        self.opens = opens
        self.number, self.op, self.saying = -1, saying.op, saying
        self.row, self.tells_numbers = row_of(saying.roles), bool(saying.plain)
        self.results = results
        self.nodes, self.leaves, self.links, self.made = nodes, leaves, _links(recipe), made
        self.kinds = tuple((node.name, len(node.saved), len(node.edges)) for node in recipe.nodes)
        self.inside_at: list[tuple[int, int]] = []
        self.looks, self.writes, self.uncounted = saying.looks, recipe.writes, recipe.uncounted
        first = results[0] if results else 0
        new = isinstance(first, Expected) and first.storage == first.counter == 1 and first.is_as_large_as_its_model
        alone = new and len(results) == 1 and len(nodes) == (first.node is not None)  # type: ignore[union-attr]
        alone = alone and not recipe.uncounted and not recipe.insides and self.follow is not None
        self.insides: list[int] = []
        """The numbers of the labels of the counters inside the graph, or 0."""
        self.simple: tuple[Any, ...] | None = (*first.look, nodes[0] if nodes else 0, made[3]) if alone else None  # type: ignore[union-attr]
        self.again = Again(recipe) if alone else None

    @classmethod
    def clearing(cls, saying: Saying) -> Plan:
        """The plan for ``x.grad = None``, which makes nothing."""
        return cls._empty(saying, _clear)

    @classmethod
    def observing(cls, saying: Saying) -> Plan:
        """The plan for a call without a model that returns something plain and does nothing."""
        return cls._empty(saying, _look_on)

    @classmethod
    def _empty(cls, saying: Saying, follow: Any) -> Plan:
        plan = cls.__new__(cls)
        plan.number, plan.op, plan.saying, plan.follow, plan.opens = -1, saying.op, saying, follow, False
        plan.results, plan.insides, plan.nodes, plan.leaves, plan.links, plan.made = (), [], (), (), (), (0, 0, 0, 0)
        plan.row, plan.tells_numbers, plan.simple, plan.again = row_of(saying.roles), bool(saying.plain), None, None
        plan.kinds, plan.inside_at, plan.looks, plan.writes, plan.uncounted = (), [], (), False, ()
        return plan

    def among(self, rows: Rows) -> Plan:
        """The plan for a trace with these rows; ``number`` is the place of its saying there."""
        mine = copy.copy(self)
        mine.number = len(rows.sayings)
        rows.sayings.append(self.saying)
        return mine


def _clear(_: Any, operands: list[ShadowTensor]) -> tuple[tuple[()], tuple[()], tuple[()]]:
    operands[0].gradient = None
    return (), (), ()


def _look_on(_: Any, __: list[ShadowTensor]) -> tuple[tuple[()], tuple[()], tuple[()]]:
    return (), (), ()


class Shared:
    """What the recordings of one process share, because it is about kinds of calls only: the forms of tensors, and plans.

    Recordings that follow the numbers of tensors up to another size have others.
    """

    def __init__(self) -> None:
        self.forms = Forms()
        self.plans: dict[Any, Plan] = {}
        self.functions: set[Any] = {SET_GRAD}
        """The functions that there may be plans for."""

    @classmethod
    def among(cls, limit: int) -> Shared:
        """What recordings share that follow the numbers of so many elements."""
        if limit < 0:
            return SHARED
        if limit not in _SHARED and len(_SHARED) >= MOST_LIMITS:
            _SHARED.clear()
        return _SHARED.setdefault(limit, cls())

    def add(self, key: Any, plan: Plan) -> None:
        """Keep a plan."""
        self.plans[key] = plan

    def tidy(self) -> None:
        """Forget everything when it has become too much. Recordings that run go on with what they have."""
        if len(self.plans) > MOST_SHARED or len(self.forms) > MOST_FORMS:
            self.plans.clear()
            self.forms = Forms()


SHARED = Shared()
"""Of the recordings without numbers."""
_SHARED: dict[int, Shared] = {}
MOST_LIMITS = 4


def forget_plans() -> None:
    """Begin anew, as in a process that has recorded nothing yet."""
    _SHARED.clear()
    SHARED.plans.clear()


_ROLES = {
    "t": "o[{}].mark", "S": "o[{}].shadow.storage.mark", "C": "o[{}].shadow.counter.mark", "v": "o[{}].shadow.counter.version",
    "o": "o[{}].shadow.offset", "n": "(o[{0}].node if o[{0}].window else o[{0}].made.node).mark", "a": "o[{}].shadow.accumulator().mark",
    "b": "o[{}].shadow.view.base.mark",
}  # fmt: skip


def row_of(roles: tuple[tuple[int, str], ...]) -> Callable[..., Row]:
    """A function from the operands, and from what stands before the numbers in these roles, to a row."""
    before = ", ".join(f"p{place}" for place in range(MARKS))
    numbers = "".join(_ROLES[role].format(place) + ", " for place, role in roles)
    made: Callable[..., Row] = eval(f"lambda o, {before}: ({before}, {numbers})")  # noqa: S307 - our own text
    return made



def keeper(x: ShadowTensor, nodes: list[Node]) -> tuple[int, int]:
    """Which node keeps a tensor that remains inside the graph, and as its how manieth saved one."""
    for place, node in enumerate(nodes):
        for number, saved in enumerate(node.saved):
            if saved.counter is x.counter and not saved.own:
                return place, number
    raise Underivable


def _links(recipe: Recipe) -> tuple[tuple[int, int, int], ...]:
    """How to walk from the nodes of the results to the recipe's other nodes."""
    known = {w.node for w in recipe.results if type(w) is not int and w.node is not None}  # type: ignore[union-attr]
    links = []
    work = list(known)
    while work:
        start = work.pop()
        for edge, (own, end, *_) in enumerate(recipe.nodes[start].edges):
            if own and end not in known:
                known.add(end)
                work.append(end)
                links.append((start, edge, end))
    return tuple(links)
