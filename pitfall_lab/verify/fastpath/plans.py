"""Plans (:class:`Plan`): what the fast path has stored about the calls with one key, and what the recordings of a
process share.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch

from pitfall_lab.shadow import Node, ShadowTensor
from pitfall_lab.shadow.recipes import Form, Forms, Recipe, Underivable, Window
from pitfall_lab.verify.beside_calls import LOOKED_AT
from pitfall_lab.verify.fastpath.call_sites import CallCompiler
from pitfall_lab.verify.fastpath.event_rows import MARKS, Packed, Rows, Saying

MOST_SHARED, MOST_FORMS = 4_000, 50_000
"""How many plans and how many forms are kept for later recordings at most: a plan takes some kilobytes, a form some
hundred bytes.
"""
SET_GRAD: Any = torch.Tensor.grad.__set__  # type: ignore[union-attr]
"""The function that ``zero_grad`` calls for each parameter."""


class Expected(NamedTuple):
    """The expected properties of one result of a call with a plan.

    ``window`` describes its memory in the shadow, ``form`` its form (None: it has none), ``node`` the name of its
    grad_fn (None: none), ``nbytes`` the size of its storage and ``itemsize`` that of an element, in bytes. ``shape``,
    ``stride``, ``offset``, ``dtype``, its name ``dtype_name``, ``requires_grad`` and ``version`` are those that torch's
    tensor must have. The label numbers ``t`` (of the tensor), ``storage`` and ``counter`` are relative to those before
    the call; ``counter`` is 0 if it has no new one.
    """

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
    """0 if the result has no new storage."""
    counter: int
    version: int

    @property
    def look(self) -> tuple[Any, ...]:
        """The properties that are compared for a call with one result in a new storage."""
        return (
            self.form,
            self.shape,
            self.stride,
            self.offset,
            self.dtype,
            self.requires_grad,
            self.node,
            self.version,
            self.window,
        )

    @property
    def is_as_large_as_its_model(self) -> bool:
        """Whether torch's storage has the size and dtype of the shadow's."""
        return (self.nbytes, self.dtype_name) == (self.window.size * self.itemsize, self.window.dtype[:])


class Plan:
    """All that is stored about the calls with one key, to repeat what the shadow did in the first of them.

    - ``follow``: the recipe as a function; None if the shadow's entry must run
    - ``results``: the expected properties of each result, or the index of the operand that it is
    - ``saying``: the form of the events; ``number`` is its index among those of the trace, ``op`` torch's name of the
      function
    - ``nodes``: the label numbers of the new nodes
    - ``leaves``: the operands that get an AccumulateGrad, with the label number of each
    - ``links``: the paths to torch's nodes behind the first one, as (from node, through edge, to node)
    - ``made``: the numbers of tensors, storages, counters and nodes that get labels
    - ``row``: a function that makes a row
    - ``writes``: whether the call writes the storage of its first operand and increments its version; ``uncounted``:
      the operands whose storage it writes without increasing the version
    - ``simple``: None, or, for a call with a ``follow`` that returns one tensor in a new storage as large as the
      shadow's, with at most one node, no uncounted writes and no tensors that only the graph refers to, one flat tuple:
      the fields of :attr:`Expected.look`, the node's label number (0: no node), and how many nodes get labels
    - ``has_numbers``: whether the row contains number arguments
    - ``again``: compiles the function for a line that repeats the call; None if there is none
    - ``kinds``: the name and the numbers of saved tensors and edges of each node
    - ``inside_at``: where new tensors that only the graph refers to are saved, as indices (node, saved); ``insides``:
      the label numbers of their counters
    - ``looks``: the label numbers of the storages whose contents the event shows
    - ``looked_at``: whether the full path examines the values of the first calls at each source position
    - ``opens``: whether the results are views at any offset of the operand's storage
    """

    __slots__ = (
        "again",
        "follow",
        "has_numbers",
        "inside_at",
        "insides",
        "kinds",
        "leaves",
        "links",
        "looked_at",
        "looks",
        "made",
        "nodes",
        "number",
        "op",
        "opens",
        "results",
        "row",
        "saying",
        "simple",
        "uncounted",
        "writes",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - its parts
        self, recipe: Recipe, saying: Saying, results: tuple[Expected | int, ...], nodes: Any, leaves: Any, made: Any,
        *, opens: bool = False,
    ) -> None:  # fmt: skip
        self.follow = None if opens else recipe.follow
        self.opens = opens
        self.number, self.op, self.saying, self.looked_at = -1, saying.op, saying, saying.op in LOOKED_AT
        self.row, self.has_numbers = row_of(saying.roles), bool(saying.plain)
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
        """The label numbers of the counters of tensors that only the graph refers to, or 0."""
        self.simple: tuple[Any, ...] | None = (*first.look, nodes[0] if nodes else 0, made[3]) if alone else None  # type: ignore[union-attr]
        self.again = CallCompiler(recipe) if alone else None

    @classmethod
    def clearing(cls, saying: Saying) -> Plan:
        """Return the plan for ``x.grad = None``, which creates nothing; ``saying`` is the form of its events."""
        return cls._empty(saying, _clear)

    @classmethod
    def observing(cls, saying: Saying) -> Plan:
        """Return the plan for a call of an operation of which the engine has no model, that returns a plain value and
        has no effect; ``saying`` is the form of its events.
        """
        return cls._empty(saying, _look_on)

    @classmethod
    def _empty(cls, saying: Saying, follow: Any) -> Plan:
        plan = cls.__new__(cls)
        plan.number, plan.op, plan.saying, plan.follow, plan.opens, plan.looked_at = (
            -1,
            saying.op,
            saying,
            follow,
            False,
            False,
        )
        plan.results, plan.insides, plan.nodes, plan.leaves, plan.links, plan.made = (), [], (), (), (), (0, 0, 0, 0)
        plan.row, plan.has_numbers, plan.simple, plan.again = row_of(saying.roles), bool(saying.plain), None, None
        plan.kinds, plan.inside_at, plan.looks, plan.writes, plan.uncounted = (), [], (), False, ()
        return plan

    def among(self, rows: Rows) -> Plan:
        """Return a copy of the plan for the trace whose rows are ``rows``. The form of its events is added to
        ``rows.sayings``; the copy's ``number`` is its index there.
        """
        mine = copy.copy(self)
        mine.number = len(rows.sayings)
        rows.sayings.append(self.saying)
        return mine


def _clear(_: Any, operands: list[ShadowTensor]) -> tuple[tuple[()], tuple[()], tuple[()]]:
    operands[0].gradient = None
    return (), (), ()


def _look_on(_: Any, __: list[ShadowTensor]) -> tuple[tuple[()], tuple[()], tuple[()]]:
    return (), (), ()


class SharedPlans:
    """What the recordings of one process share because it depends only on the keys of calls: the forms of tensors, and
    plans by key.

    Recordings with different value limits share nothing.
    """

    def __init__(self) -> None:
        self.forms = Forms()
        self.plans: dict[Any, Plan] = {}
        self.functions: set[Any] = {SET_GRAD}
        """The functions that may have a plan; all others take the full path at once."""

    @classmethod
    def among(cls, limit: int) -> SharedPlans:
        """Return the object shared by the recordings with this value limit."""
        if limit < 0:
            return SHARED
        if limit not in _SHARED and len(_SHARED) >= MOST_LIMITS:
            _SHARED.clear()
        return _SHARED.setdefault(limit, cls())

    def add(self, key: Any, plan: Plan) -> None:
        """Store a plan under its key."""
        self.plans[key] = plan

    def tidy(self) -> None:
        """Clear everything once it exceeds its limits. Recordings that are running keep the objects that they use."""
        if len(self.plans) > MOST_SHARED or len(self.forms) > MOST_FORMS:
            self.plans.clear()
            self.forms = Forms()


SHARED = SharedPlans()
"""What recordings without values share."""
_SHARED: dict[int, SharedPlans] = {}
MOST_LIMITS = 4


def forget_plans() -> None:
    """Clear all that recordings share, as in a process that has not recorded anything yet."""
    _SHARED.clear()
    SHARED.plans.clear()
    SHARED.forms = Forms()  # or the next recording ends above their limit and clears its own plans


_ROLES = {
    "t": "o[{}].mark", "S": "o[{}].shadow.storage.mark", "C": "o[{}].shadow.counter.mark",
    "v": "o[{}].shadow.counter.version", "o": "o[{}].shadow.offset",
    "n": "(o[{0}].node if o[{0}].window else o[{0}].made.node).mark", "a": "o[{}].shadow.accumulator().mark",
    "b": "o[{}].shadow.view.base.mark",
}  # fmt: skip


@cache
def row_of(roles: tuple[tuple[int, str], ...]) -> Callable[..., Packed]:
    """Compile a function that makes a packed row (:data:`~pitfall_lab.verify.fastpath.event_rows.Packed`) from the list
    of operands and the other fields, in their order; ``roles`` are pairs of an operand's index and a letter, which
    determine the marks that the row contains.
    """
    before = ", ".join(f"p{place}" for place in range(MARKS))
    numbers = "".join(_ROLES[role].format(place) + ", " for place, role in roles)
    made: Callable[..., Packed] = eval(f"lambda o, {before}: ({before}, {numbers})")  # noqa: S307 - our own text
    return made


def keeper(x: ShadowTensor, nodes: list[Node]) -> tuple[int, int]:
    """Return where the tensor ``x``, which a call created and to which only the graph refers, is saved: the index of
    the node among ``nodes``, and the index of the saved tensor in that node.

    Raises Underivable if no node saves it.
    """
    for place, node in enumerate(nodes):
        for number, saved in enumerate(node.saved):
            if saved.counter is x.counter and not saved.own:
                return place, number
    raise Underivable


def _links(recipe: Recipe) -> tuple[tuple[int, int, int], ...]:
    """The path from the nodes of the results to each of the recipe's other nodes, as (from node, through edge, to
    node).
    """
    known = {w.node for w in recipe.results if type(w) is not int and w.node is not None}  # type: ignore[union-attr]
    links: list[tuple[Any, int, Any]] = []
    work: list[Any] = list(known)
    while work:
        start = work.pop()
        for edge, (own, end, *_) in enumerate(recipe.nodes[start].edges):
            if own and end not in known:
                known.add(end)
                work.append(end)
                links.append((start, edge, end))
    return tuple(links)
