"""The express lane: calls of a kind that was met before.

The first call of a kind takes the full lane: the shadow's entry runs, everything is compared with torch, and a whole event is written.
If both engines agreed and nothing out of the ordinary happened, a :class:`Plan` is derived from it. The next call of that kind follows the
plan: the shadow does *by recipe* what its entry did, before torch runs; then torch's result is compared with it: shape, strides,
offset, type, requires_grad, version, node, and whether its memory is new or whose it is; and the event is a row.
Where numbers are followed, and where memory is written, the entry itself runs, what it did must be what the plan says (:class:`Done`),
and the numbers of operands, before, and results, afterwards, are compared as well.
Whatever differs goes to the full comparison, and everything out of the ordinary does not come here at all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import facts, values
from pitfall_lab.observe.recorder import Call, Place
from pitfall_lab.shadow import Applied, Device, DType, Node, ShadowError, ShadowTensor, Storage, Unmodelled
from pitfall_lab.shadow.dtypes import FLOAT32
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.recipes import Form, Forms, Recipe, Underivable, Window
from pitfall_lab.trace import Effect, Operand
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.cells import Look, equal, look
from pitfall_lab.verify.meeting import SEARCHES
from pitfall_lab.verify.memory import Memory
from pitfall_lab.verify.naming import Naming
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.rows import Births, Labels, Rows, Saying, Unsayable
from pitfall_lab.verify.world import World

MOST_PLANS = 20_000
MOST_SHARED, MOST_FORMS = 4_000, 50_000
"""So much is kept from one recording to the next: a plan is some kilobytes, a form some hundred bytes."""
PATIENCE = 256
"""So many plans are made at first sight. After that, while few of them have been of use, a call must be met twice."""
ITEMS = 8
"""Longer lists among the arguments are not looked through."""

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
SET_GRAD = torch.Tensor.grad.__set__  # type: ignore[attr-defined]
"""What ``zero_grad`` calls for every parameter."""
GRAD = "grad"
_PLAIN = frozenset({int, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout, type(Ellipsis)})


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


class Plan:
    """All that is known of a call of one kind.

    ``nodes`` are the numbers of the labels of the recipe's nodes; ``leaves`` the operands whose AccumulateGrad nodes are made, with the
    numbers of theirs; ``links`` how torch's nodes behind the first are found: (from node, through edge, to node); ``made`` how many
    tensors, storages, counters and nodes get labels; ``marks`` finds the numbers that a row needs of the operands.
    ``simple`` is the result of a recipe that makes one tensor with memory of its own and at most one node.
    ``kinds`` says of the nodes how they are called and how much they save; ``inside_at``, what keeps the tensors that remain inside the
    graph: (node, saved); ``looks`` are the numbers of the labels of the storages of whose numbers the event tells.
    """

    __slots__ = (
        "follow", "inside_at", "insides", "kinds", "leaves", "links", "looks", "made", "marks", "nodes", "number", "op", "results",
        "saying", "simple",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - its parts
        self, recipe: Recipe, saying: Saying, results: tuple[Expected | int, ...], nodes: Any, leaves: Any, made: Any
    ) -> None:
        self.follow = recipe.follow
        self.number, self.op, self.saying = -1, saying.op, saying
        self.marks = marks_of(saying.roles)
        self.results = results
        self.nodes, self.leaves, self.links, self.made = nodes, leaves, _links(recipe), made
        self.kinds = tuple((node.name, len(node.saved), len(node.edges)) for node in recipe.nodes)
        self.inside_at: list[tuple[int, int]] = []
        self.looks = saying.looks
        first = results[0] if results else 0
        new = isinstance(first, Expected) and first.storage == first.counter == 1
        alone = new and len(results) == 1 and len(nodes) <= 1 and not recipe.insides and self.follow is not None
        self.insides: list[int] = []
        """The numbers of the labels of the counters inside the graph, or 0."""
        self.simple: Expected | None = first if alone else None  # type: ignore[assignment]

    @classmethod
    def clearing(cls, saying: Saying) -> Plan:
        """The plan for ``x.grad = None``, which makes nothing."""
        plan = cls.__new__(cls)
        plan.number, plan.op, plan.saying, plan.follow = -1, saying.op, saying, _clear  # type: ignore[assignment]
        plan.results, plan.insides, plan.nodes, plan.leaves, plan.links, plan.made = (), [], (), (), (), (0, 0, 0, 0)
        plan.marks, plan.simple = marks_of(()), None
        plan.kinds, plan.inside_at, plan.looks = (), [], ()
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


class Done(NamedTuple):
    """What the shadow did when it did a call itself: ``applied``, or the error it ``predicted``.

    ``plain`` are the plain numbers among the arguments, ``before`` what lay in the memory that the call writes.
    """

    applied: Applied | None
    predicted: ShadowError | None
    plain: tuple[float, ...]
    before: Look | None


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
    "t": "o[{}].mark", "S": "o[{}].storage.mark", "C": "o[{}].shadow.counter.mark", "v": "o[{}].shadow.counter.version",
    "n": "o[{}].shadow.node.mark", "a": "o[{}].shadow.accumulator().mark", "b": "o[{}].shadow.view.base.mark",
}  # fmt: skip


def marks_of(roles: tuple[tuple[int, str], ...]) -> Callable[[list[TensorRecord]], tuple[int, ...]]:
    """A function from the operands to the numbers in these roles."""
    numbers = "".join(_ROLES[role].format(place) + ", " for place, role in roles)
    found: Callable[[list[TensorRecord]], tuple[int, ...]] = eval(f"lambda o: ({numbers})")  # noqa: S307 - our own text
    return found


Ahead = tuple[Plan, list[TensorRecord], tuple[ShadowTensor, ...], tuple[Node, ...], Place, Any, Any, tuple[Any, ...], Done | None]
"""A call that the shadow has done and torch has not: its plan, its operands, what was made, and the call. It lives as long as the call."""


class Express:
    """Decides which calls take the lane, and takes them through it."""

    def __init__(self, world: World, naming: Naming, adoption: Adoption, memory: Memory, long_way: Any) -> None:
        self._is_free, self._may_meet, self._long_way, self._adoption = long_way.is_free, long_way.may_meet, long_way, adoption
        self._world, self._records, self._writer, self._naming = world, world.records, world.writer, naming
        self._graph, self._by_id = world.engine.graph, world.records.by_id
        self._follows_values = world.limit >= 0
        self._memory = memory
        self._plans: dict[Any, Plan | None] = {}
        self._shared = shared = Shared.among(world.limit)
        shared.tidy()
        self._forms = shared.forms
        self._scopes: dict[tuple[str, ...], int] = {}
        self._used = 0
        self._key: Any = None
        self._operands: list[TensorRecord] = []
        self._births = Births(0, 0, 0, 0)
        self._candidate: Recipe | None = None
        self._open: list[float] = []
        self._is_other = False
        self._plain: list[float] = []
        self.functions = shared.functions
        self.met: dict[int, list[Effect]] = {}
        """The tensors that the lane has met for the first time, by their id, on behalf of the call that is about to run."""
        self._clearings: dict[bool, Plan] = {}
        self.epoch = 0
        """Raised by whatever may change a tensor's form: forms of an earlier epoch are looked at again."""
        self.grad, self.inference = True, False
        """The mode that the trace has noted."""

    # ------------------------------------------------------------------ calls with a plan

    def before(self, func: Any, args: Any, kwargs: Any, place: Place) -> Ahead | None:
        """Let the shadow do the call by its plan; None if it has none."""
        operands: list[TensorRecord] = []
        whole = self._kind_of(func, args, kwargs, operands, place[2])
        if whole is None:
            return None
        plan = self._plans.get(whole)
        if plan is None:
            plan = self._plan_of_others(whole, func, operands, place)
        if plan is None or not self._is_usual() or not self._is_free():
            return None
        if plan.follow is None:
            return self._done(plan, operands, place, args, kwargs)
        results, nodes, insides = plan.follow(self._graph, [record.shadow for record in operands])  # type: ignore[misc]
        if insides:
            return plan, operands, results, nodes, place, args, kwargs, insides, None
        return plan, operands, results, nodes, place, args, kwargs, (), None

    def _kind_of(self, func: Any, args: Any, kwargs: Any, operands: list[TensorRecord], frame: FrameType | None) -> Any:
        """What calls have in common that follow one plan; finds the operands. None if the call cannot have one."""
        key: list[Any] = [func, self.grad]
        self._plain = plain = []
        if not self._gather(args, key, operands, frame, plain) or (
            kwargs and not self._gather_named(kwargs, key, operands, frame, plain)
        ):
            return None
        if plain and not self._is_open(operands):
            key += [value or repr(value) for value in plain]  # 0.0 equals -0.0
            self._plain = []
        return tuple(key)

    def _is_open(self, operands: list[TensorRecord]) -> bool:
        """Whether another call of the kind may have other plain numbers: where the shadow does the call itself, and no node is made."""
        return self._follows_values and bool(operands) and not (self.grad and any(o.form.requires_grad for o in operands))

    def _done(self, plan: Plan, operands: list[TensorRecord], place: Place, args: Any, kwargs: Any) -> Ahead | None:
        """Let the shadow do the call itself; None if it cannot this time."""
        engine, before = self._world.engine, None
        engine.packs, engine.default_float = False, FLOAT32
        if plan.saying.writes:
            data = operands[0].shadow.storage.data  # type: ignore[union-attr]
            before = None if data is None else look(data)
        try:
            given = [self._shadow_of(value) for value in args]
            named = {name: self._shadow_of(value) for name, value in kwargs.items()} if kwargs else None
            applied = engine.call(plan.op, given, named)
        except Unmodelled:
            return None
        except ShadowError as predicted:
            done = Done(None, predicted.with_traceback(None), (), None)
            return plan, operands, (), (), place, args, kwargs, (), done
        result = applied.result
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,) if plan.results else ()
        nodes = tuple([node for node in applied.nodes if node.leaf is None])
        return plan, operands, results, nodes, place, args, kwargs, (), Done(applied, None, tuple(self._plain), before)

    def _shadow_of(self, value: Any) -> Any:
        """An argument as the shadow takes it."""
        kind = type(value)
        if kind in _TENSORS:
            return self._by_id[id(value)].shadow
        if kind is float or kind is int or kind is bool or value is None:
            return value
        return values.convert(value, lambda real: self._by_id[id(real)].shadow, DType, Device)

    def _conforms(self, ahead: Ahead) -> bool:
        """Whether what the shadow did is what the plan says."""
        plan, operands, shadows, nodes, _, _, _, _, done = ahead
        applied = done.applied  # type: ignore[union-attr]
        if applied is None or applied.stale or applied.ran or len(shadows) != len(plan.results) or len(nodes) != len(plan.kinds):
            return False
        if len(applied.nodes) - len(nodes) != len(plan.leaves) or len(applied.writes) != len(plan.saying.writes):
            return False
        if applied.writes and applied.writes[0] is not operands[0].shadow.storage:  # type: ignore[union-attr]
            return False
        for node, kind in zip(nodes, plan.kinds, strict=True):
            if (node.name, len(node.saved), len(node.next)) != kind:
                return False
        return all(self._is_like(x, expected, operands, nodes) for x, expected in zip(shadows, plan.results, strict=True))

    def _is_like(self, x: ShadowTensor, expected: Expected | int, operands: list[TensorRecord], nodes: tuple[Node, ...]) -> bool:
        if type(expected) is int:
            return x is operands[expected].shadow
        window: Window = expected.window  # type: ignore[union-attr]
        counter = x.counter
        if not isinstance(x, ShadowTensor) or counter is None or x.mark or x.output_nr != window.output_nr:
            return False
        node = None if window.node is None else nodes[window.node]
        if x.node is not node or self._forms.of(x) is not expected.form:  # type: ignore[union-attr]
            return False
        if window.counts_with is None:
            is_counted = not counter.mark and counter.version == window.version
        else:
            is_counted = counter is operands[window.counts_with].shadow.counter  # type: ignore[union-attr]
        on = None if window.on is None else operands[window.on].shadow.storage  # type: ignore[union-attr]
        return is_counted and (not x.storage.mark if on is None else x.storage is on)

    def _plan_of_others(self, key: Any, func: Any, operands: list[TensorRecord], place: Place) -> Plan | None:
        """A plan that was made in an earlier recording; or one for ``x.grad = None`` where library code does it."""
        known = self._shared.plans.get(key)
        if known is not None:
            mine = self._plans[key] = known.among(self._writer.rows)
            return mine
        # (function, mode, form, NoneType, None), and for a leaf whether it has its AccumulateGrad
        if func == SET_GRAD and place[0] is not place[1] and key[-2:] == (type(None), None) and len(operands) == 1:
            return self._clearing(operands[0])
        return None

    def after(self, ahead: Ahead, result: Any) -> None:
        """Compare with torch and write the row; where something differs, the full lane takes over."""
        if (ahead[8] is not None and not self._conforms(ahead)) or not (
            self._agrees(ahead, result) if ahead[0].simple is None else self._is_as_expected(ahead, result)
        ):
            self._long_way.after(self._as_call(ahead), result)

    def failed(self, ahead: Ahead, error: BaseException) -> None:
        """Torch refused what the shadow did: the full lane tells of it."""
        self._long_way.failed(self._as_call(ahead), error)

    def _agrees(self, ahead: Ahead, result: Any) -> bool:  # noqa: C901, PLR0912 - runs after every call
        """Compare with torch and write the row. False, with nothing noted, if something differs."""
        plan, operands, shadows, nodes, place, _, _, insides, done = ahead
        if not plan.results:
            return self._is_cleared(ahead) if done is None else self._is_same_plain(ahead, result)
        if plan.inside_at:
            insides = tuple(nodes[node].saved[number] for node, number in plan.inside_at)
        if plan.leaves:
            self._graph.created.clear()
        reals = (result,) if type(result) in _TENSORS else result
        if type(reals) not in (tuple, list) or len(reals) != len(plan.results):
            return False
        impls = self._compare_all(reals, plan.results, operands)
        if impls is None:
            return False
        if done is not None and not self._has_numbers(reals, shadows, plan, operands):
            for impl in impls:
                facts.let_go(impl)
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        step = len(self._writer.events)
        marks = plan.marks(operands)
        self._label_nodes(plan, operands, nodes, reals)
        for inside, number in zip(insides, plan.insides, strict=True):
            if number:
                inside.counter.mark = records.counter_count + number  # type: ignore[union-attr]
        entered = []
        for real, shadow, expected in zip(reals, shadows, plan.results, strict=True):
            if type(expected) is int:
                entered.append(operands[expected])
            else:
                entered.append(self._enter(real, shadow, expected, impls.pop(0) if expected.storage else 0, operands))  # type: ignore[union-attr,arg-type]
        made = plan.made
        records.tensor_count += made[0]
        records.storage_count += made[1]
        records.counter_count += made[2]
        records.node_count += made[3]
        if self._follows_values:
            self._fill(reals, shadows, plan)
        numbers = None
        if plan.saying.writes:
            numbers = self._note_write(operands[0], done, step)
        elif plan.looks:
            numbers = self._looks(plan, shadows)
        self._write(plan, place, births, marks, entered[0] if len(entered) == 1 else None, step, numbers, done)
        return True

    def _is_as_expected(self, ahead: Ahead, real: Any) -> bool:
        """The same for the plans that most calls have: one tensor with memory of its own and at most one node."""
        plan, operands, (shadow,), nodes, place, _, _, _, _ = ahead
        expected: Any = plan.simple
        if (
            type(real) is not torch.Tensor
            or real.shape != expected.shape
            or real.stride() != expected.stride
            or real.dtype is not expected.dtype
            or real._version != expected.window.version
            or real.storage_offset() != expected.offset
            or id(real) in self._by_id
        ):
            return False
        node = real.grad_fn
        if node is None:
            if expected.node is not None or real.requires_grad is not expected.requires_grad:
                return False
        elif node.name() != expected.node:
            return False
        records = self._records
        impl = real.untyped_storage()._weak_ref()
        if impl in records.by_impl:
            facts.let_go(impl)
            return False
        step = len(self._writer.events)
        marks = plan.marks(operands)
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        t, storages, counters, nodes_before = births
        if plan.leaves:
            self._graph.created.clear()
            self._label_leaves(plan, operands)
        if node is not None:
            own = nodes[0]
            own.mark = nodes_before + plan.nodes[0]
            records.nodes.latest = sequence = node._sequence_nr()
            own.twin = sequence, expected.node
            records.node_count = nodes_before + plan.made[3]
        records.tensor_count = mark = t + 1
        records.storage_count = storages + 1
        records.counter_count = shadow.counter.mark = counters + 1  # type: ignore[union-attr]
        storage = StorageRecord(storages + 1, shadow.storage, None, expected.nbytes, expected.dtype_name, expected.itemsize)
        records.add_new_storage(storage, impl)
        record = records.enter_as(mark, real, shadow, "tensor", step, storage)
        record.form, record.epoch = expected.form, self.epoch
        self._write(plan, place, births, marks, record, step)
        return True

    # ------------------------------------------------------------------ numbers

    def _holds(self, real: Any, place: StorageRecord, data: np.ndarray) -> bool:
        """Whether the memory of a tensor is where it was, and holds what it held after the last event."""
        memory = real.untyped_storage()
        return (
            memory._cdata == place.impls[0]
            and memory.nbytes() >= data.nbytes
            and facts.bytes_in(memory, data.nbytes) == data.tobytes()
        )

    def _same_numbers(self, memory: Any, storage: Storage, operands: list[TensorRecord]) -> bool:
        """Compare numbers and go on with torch's. What the shadow does not know it will be told."""
        data = storage.data
        if data is None:
            return True
        if memory.nbytes() < data.nbytes:
            return False
        found = facts.bytes_in(memory, data.nbytes)
        if found == data.tobytes():
            return True
        observed = np.frombuffer(found, data.dtype)
        self._memory.remember(operands)
        if not self._memory.is_close(observed, data, storage.dtype):
            return False
        data[...] = observed
        return True

    def _has_numbers(self, reals: Any, shadows: tuple[ShadowTensor, ...], plan: Plan, operands: list[TensorRecord]) -> bool:
        """Compare the numbers in new memory, or in the memory that the call has written, and the version of that."""
        if plan.saying.writes:
            real, shadow = reals[0], shadows[0]
            memory = real.untyped_storage()
            return (
                real._version == shadow.counter.version  # type: ignore[union-attr]
                and real.shape == shadow.shape
                and real.requires_grad is shadow.requires_grad
                and memory._cdata == operands[0].storage.impls[0]  # type: ignore[union-attr]
                and self._same_numbers(memory, shadow.storage, operands)
            )
        for real, shadow, expected in zip(reals, shadows, plan.results, strict=True):
            is_new = type(expected) is not int and expected.storage  # type: ignore[union-attr]
            if is_new and not self._same_numbers(real.untyped_storage(), shadow.storage, operands):
                return False
        return True

    def _fill(self, reals: Any, shadows: tuple[ShadowTensor, ...], plan: Plan) -> None:
        """Give the shadow numbers that it could not compute."""
        for real, shadow, expected in zip(reals, shadows, plan.results, strict=True):
            if shadow.storage.data is None and (plan.saying.writes or (type(expected) is not int and expected.storage)):  # type: ignore[union-attr]
                self._memory.fill(self._records.storages[shadow.storage.mark], real)

    @staticmethod
    def _looks(plan: Plan, shadows: tuple[ShadowTensor, ...]) -> tuple[Look, ...]:
        made: dict[int, Any] = {}
        for x, expected in zip(shadows, plan.results, strict=True):
            if type(expected) is not int:
                made[expected.storage] = x.storage.data  # type: ignore[union-attr]
        return tuple([look(made[number]) for number in plan.looks])

    def _note_write(self, record: TensorRecord, done: Done | None, step: int) -> tuple[Look | None, Look | None]:
        """Note what the full lane notes of a write; returns the numbers from before it and from after it."""
        shadow, place = record.shadow, record.storage
        assert shadow is not None
        assert place is not None
        assert shadow.counter is not None
        after = None if shadow.storage.data is None else look(shadow.storage.data)
        version = shadow.counter.version
        self._writer.wrote(place.mark, shadow.counter.mark, version, after)
        self._world.bumps.setdefault(f"C{shadow.counter.mark}", []).append((step, version))
        self._world.writes.setdefault(place.label, []).append(step)
        if len(place.members) > 1:
            self.epoch += 1  # views of it have another history now
        return None if done is None else done.before, after

    # ------------------------------------------------------------------ the row

    def _is_same_plain(self, ahead: Ahead, result: Any) -> bool:
        """The same for a plain number (``loss.item()``)."""
        plan, operands, _, _, place, _, _, _, done = ahead
        mine = done.applied.result  # type: ignore[union-attr]
        if type(mine) is not type(result):
            return False
        if mine != result and not (type(mine) is float and equal(np.array([result]), np.array([mine]), "float32")):
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        self._write(plan, place, births, plan.marks(operands), None, len(self._writer.events), None, done)
        return True

    def _clearing(self, record: TensorRecord) -> Plan | None:
        """The plan for ``x.grad = None``: one for tensors whose gradient the trace knows, one for the others."""
        gradient = record.shadow.gradient  # type: ignore[union-attr]
        knows = gradient is not None
        if gradient is not None and not (gradient.mark and self._writer.remembers(f"tensors.{record.label}")):
            return None
        plan = self._clearings.get(knows)
        if plan is None:
            saying = Saying.clearing(f"torch.Tensor.{GRAD}.__set__", GRAD if knows else "")
            plan = self._clearings[knows] = Plan.clearing(saying).among(self._writer.rows)
        return plan

    def _is_cleared(self, ahead: Ahead) -> bool:
        """The same for ``x.grad = None``."""
        plan, operands, _, _, place, *_ = ahead
        record, = operands
        real: Any = record()
        if facts.grad_of(real) is not None:
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        if plan is self._clearings.get(True):
            self._writer.note(f"tensors.{record.label}", GRAD, None)
        self._write(plan, place, births, (record.mark,), None, len(self._writer.events))
        return True

    def _write(  # noqa: PLR0917 - the same
        self, plan: Plan, place: Place, births: tuple[int, int, int, int], marks: Any, result: TensorRecord | None, step: int,
        numbers: Any = None, done: Done | None = None,
    ) -> None:  # fmt: skip
        """Write the row. ``result`` is the one that may get a name."""
        records, writer, naming = self._records, self._writer, self._naming
        caller, site, frame, scope = place
        names = None
        if result is not None and site.target is not None:
            if caller is site and (naming.step != step - 1 or naming.span is not site.span) and not result.names:
                naming.step, naming.span, naming.record = step, site.span, result
                result.names.append(site.target)
                names = site.names
            else:
                names = naming.claim(site.target, site.span, result, step, None if caller is site else frame)
        deaths = records.bury() if records.died or records.left else None
        self._used += 1
        writer.row_steps.append(step)
        if site.number < 0:
            site.number = writer.rows.place(site.span)
        if site.scope is scope:
            around = site.scope_number
        else:
            site.scope, site.scope_number = scope, self._scope_number(scope)
            around = site.scope_number
        t, storages, counters, nodes = births
        met = None
        if self.met:
            met = tuple([effect for effects in self.met.values() for effect in effects])
            self.met.clear()
        plain = None if done is None else done.plain
        writer.events.append((plan.number, site.number, around, t, storages, counters, nodes, marks, names, deaths, met, numbers, plain))

    def _scope_number(self, scope: tuple[str, ...]) -> int:
        known = self._scopes.get(scope)
        if known is None:
            known = self._scopes[scope] = len(self._scopes)
            self._writer.rows.scopes.append(scope)
        return known

    def _as_call(self, ahead: Ahead) -> Call:
        """The call as the full lane knows it, with what the shadow did: for what turned out otherwise, and for what failed."""
        plan, _, shadows, nodes, (caller, site, frame, scope), args, kwargs, _, done = ahead
        self._key = None
        call = Call(
            plan.op, None, args, kwargs, site.span, scope, frame, self.grad, self.inference, composite=False, direct=caller is site
        )
        step = self._writer.reserve()
        self._world.engine.begin()
        result = shadows[0] if len(shadows) == 1 else shadows
        met = [effect for effects in self.met.values() for effect in effects]
        self.met.clear()
        call.memory.update(step=step, effects=met, parent=None, reason="")
        if done is None:
            call.memory["applied"] = Applied(result, nodes)
        elif done.applied is not None:
            call.memory["applied"] = done.applied
        else:
            call.memory["predicted"] = done.predicted
        return call

    def _gather(  # noqa: C901, PLR0912 - runs before every call
        self, args: Any, key: list[Any], operands: list[TensorRecord], frame: FrameType | None, plain: list[float] | None = None
    ) -> bool:
        """Make the key of a call's kind and find its operands. False if it cannot have a plan.

        With the learner's ``frame``, operands that are seen for the first time are taken over. ``plain`` collects the plain numbers that
        are arguments themselves.
        """
        add = key.append
        for value in args:
            kind = type(value)
            if kind is torch.Tensor or kind is torch.nn.Parameter:
                # A record goes with its tensor: what is found by the id is the tensor's.
                record = self._by_id.get(id(value))
                if record is None:
                    record = None if frame is None else self._adopted(value, frame)
                    if record is None:
                        return False
                form = record.form if record.epoch == self.epoch else self._form_of(record)
                if form is None:
                    return False
                shadow: Any = record.shadow
                if shadow.counter.version != value._version or form.requires_grad is not value.requires_grad:
                    return False
                data = shadow.storage.data
                if data is not None and not self._holds(value, record.storage, data):  # type: ignore[arg-type]
                    return False
                add(form)
                if form.is_flagged:
                    # Whether the leaf has its AccumulateGrad already, or the call makes it.
                    add(shadow.accumulator is not None and shadow.accumulator() is not None)
                if operands:
                    for place, other in enumerate(operands):
                        if other.storage is record.storage:
                            add(place if other is record else -1 - place)
                operands.append(record)
            elif kind is float:
                add(kind)
                if plain is None:
                    add(value or repr(value))  # 0.0 equals -0.0
                else:
                    plain.append(value)
            elif kind in _PLAIN:
                add(kind)
                add(value)
            elif (kind is tuple or kind is list or kind is torch.Size) and len(value) <= ITEMS:
                add(kind)
                add(len(value))
                if not self._gather(value, key, operands, frame):
                    return False
            elif kind is slice:
                add(kind)
                if not self._gather((value.start, value.stop, value.step), key, operands, frame):
                    return False
            else:
                return False
        return True

    def _gather_named(
        self, kwargs: Any, key: list[Any], operands: list[TensorRecord], frame: FrameType | None, plain: list[float]
    ) -> bool:
        key += kwargs
        return self._gather(kwargs.values(), key, operands, frame, plain)

    def _adopted(self, real: Any, frame: FrameType) -> TensorRecord | None:
        """Meet a tensor on behalf of the call that is about to run, if nothing else has to be told before."""
        if not self._is_usual() or not self._may_meet():
            return None
        step = self._writer.reserve()
        record, effects = self._adoption.adopt(real, frame)
        self._writer.drop(step)
        self.met[id(real)] = effects
        return record

    def _form_of(self, record: TensorRecord) -> Form | None:
        record.epoch = self.epoch
        unnamed = record.kind == "parameter" and not record.names and record.searches < SEARCHES
        usable = record.shadow is not None and record.storage is not None and not unnamed and record() is not None
        if usable and record.shadow.storage.data is not None:  # type: ignore[union-attr]
            # bfloat16 is followed in numbers of another width
            usable = record.shadow.storage.data.itemsize == record.storage.itemsize and len(record.storage.impls) == 1  # type: ignore[union-attr]
        record.form = form = self._forms.of(record.shadow) if usable else None  # type: ignore[arg-type]
        return form

    def _is_usual(self) -> bool:
        """Whether the program's settings are those that plans are made under."""
        return (
            torch.is_grad_enabled() is self.grad
            and torch._C._functorch.peek_interpreter_stack() is None
            and torch.is_inference_mode_enabled() is self.inference is False
            and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
            and not torch._C._is_any_autocast_enabled()
            and not torch._C._get_deterministic_algorithms()
            and torch.get_default_dtype() is torch.float32
        )

    # ------------------------------------------------------------------ the comparison

    def _compare_all(self, reals: Any, results: tuple[Expected | int, ...], operands: list[TensorRecord]) -> list[int] | None:
        """Compare the results: None if one differs; else the numbers of the storages that are new."""
        impls: list[int] = []
        for real, expected in zip(reals, results, strict=True):
            impl = self._compare(real, expected, operands)
            if impl is None:
                for taken in impls:
                    facts.let_go(taken)
                return None
            if impl:
                impls.append(impl)
        return impls

    def _compare(self, real: Any, expected: Expected | int, operands: list[TensorRecord]) -> int | None:
        """Compare one result: None if it differs; else the storage's number if its memory is new, or 0."""
        if type(expected) is int:
            return 0 if operands[expected]() is real else None
        node = real.grad_fn if type(real) is torch.Tensor else None
        if (
            type(real) is not torch.Tensor
            or real.shape != expected.shape  # type: ignore[union-attr]
            or real.stride() != expected.stride  # type: ignore[union-attr]
            or real.dtype is not expected.dtype  # type: ignore[union-attr]
            or real.requires_grad is not expected.requires_grad  # type: ignore[union-attr]
            or (None if node is None else node.name()) != expected.node  # type: ignore[union-attr]
        ):
            return None
        window: Window = expected.window  # type: ignore[union-attr]
        storage = real.untyped_storage()
        if window.on is None:
            if real._version != window.version or real.storage_offset() != window.offset or id(real) in self._by_id:
                return None
            impl = storage._weak_ref()
            if impl in self._records.by_impl:
                facts.let_go(impl)
                return None
            return impl
        parent = operands[window.on]
        shadow = parent.shadow
        version = shadow.counter.version if window.counts_with is not None else window.version  # type: ignore[union-attr]
        if (
            self._records.by_impl.get(storage._cdata) is not parent.storage
            or real._version != version
            or self._records.offset_of(real, parent.storage) != shadow.offset + window.offset  # type: ignore[union-attr,arg-type]
            or real._is_view() is (window.base is None)
            or id(real) in self._by_id
        ):
            return None
        return 0

    # ------------------------------------------------------------------ labels and records

    def _label_leaves(self, plan: Plan, operands: list[TensorRecord]) -> None:
        """Give the new AccumulateGrad nodes their labels."""
        records = self._records
        for place, number in plan.leaves:
            record = operands[place]
            node: Any = record.shadow.accumulator()  # type: ignore[union-attr,misc]
            node.mark = records.node_count + number
            records.nodes["leaf", record.key] = node

    def _label_nodes(self, plan: Plan, operands: list[TensorRecord], nodes: tuple[Node, ...], reals: Any) -> None:
        """Give the new nodes their labels, and note which of torch's they stand for."""
        self._label_leaves(plan, operands)
        records = self._records
        for own, number in zip(nodes, plan.nodes, strict=True):
            own.mark = records.node_count + number
        theirs: dict[int, Any] = {}
        for real, expected in zip(reals, plan.results, strict=True):
            if type(expected) is not int and expected.window.node is not None and expected.window.node not in theirs:  # type: ignore[union-attr]
                theirs[expected.window.node] = real.grad_fn  # type: ignore[union-attr]
        for start, edge, end in plan.links:
            theirs[end] = theirs[start].next_functions[edge][0]
        for place, node in theirs.items():
            nodes[place].twin = key = facts.node_key(node)
            records.nodes.latest = max(records.nodes.latest, key[0])

    def _enter(self, real: Any, shadow: ShadowTensor, expected: Expected, impl: int, operands: list[TensorRecord]) -> TensorRecord:
        """Make the records of a result."""
        records = self._records
        if expected.counter:
            shadow.counter.mark = records.counter_count + expected.counter  # type: ignore[union-attr]
        if expected.storage:
            mark = records.storage_count + expected.storage
            storage = StorageRecord(mark, shadow.storage, None, expected.nbytes, expected.dtype_name, expected.itemsize)
            records.add_new_storage(storage, impl)
        else:
            storage = operands[expected.window.on].storage  # type: ignore[index,assignment]
        record = records.enter_as(records.tensor_count + expected.t, real, shadow, "tensor", len(self._writer.events), storage)
        record.form, record.epoch = expected.form, self.epoch
        return record

    # ------------------------------------------------------------------ making plans

    def study(self, call: Call) -> None:
        """The full lane is about to take a call: see whether a plan may come of it. Must come before the shadow does the call."""
        self._key, self._candidate = None, None
        entry = ENTRIES.get(call.name)
        if entry is None or not self._is_usual():
            return
        func = call.func
        operands: list[TensorRecord] = []
        self.functions.add(func)
        whole = self._kind_of(func, call.args, call.kwargs, operands, None)
        if whole is None:
            return
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        if whole not in self._plans:
            self._plans[whole] = None
            if len(self._plans) > PATIENCE and self._used < len(self._plans):
                return
        self._key, self._operands, self._open, self._is_other = whole, operands, self._plain, entry.kind == "other"

    def modelled(self, applied: Applied | None) -> None:
        """The shadow has done the call that is being studied (or could not); its results have no labels yet."""
        if self._key is None:
            return
        if applied is None:
            self._key = None
            return
        if self._follows_values and any(saved.drawn for node in applied.nodes for saved in node.saved):
            self._key = None  # torch's numbers have to be fetched from its node
            return
        records = self._records
        self._births = Births(records.tensor_count, records.storage_count, records.counter_count, records.node_count)
        try:
            self._candidate = recipe = Recipe(applied, [record.shadow for record in self._operands])  # type: ignore[misc]
            if self._is_other is not recipe.is_plain:
                self._key = None  # of what an entry of another kind does, only a plain number tells all
        except Underivable:
            self._key = None

    def learn(self, call: Call, applied: Applied, result: Any, effects: list[Effect], operands: tuple[Operand, ...]) -> None:
        """Both engines agreed on the call that was studied: make its plan."""
        key, recipe, records = self._key, self._candidate, self._records
        self._key = self._candidate = None
        if key is None or recipe is None:
            return
        reals = list(values.tensors(result))
        births, after = self._births, Births(records.tensor_count, records.storage_count, records.counter_count, records.node_count)
        olds: dict[str, tuple[int, str]] = {}
        for place, record in enumerate(self._operands):
            for letter, label in self._labels_of(record):
                olds.setdefault(label, (place, letter))
        try:
            results = [record.label for real in reals if (record := records.find(real)) is not None]
            written = None
            if recipe.writes:
                target = self._operands[0]
                written = target.storage.label, f"C{target.shadow.counter.mark}"  # type: ignore[union-attr]
            saying = Saying(call.name, effects, operands, results, Labels(births, after, olds), written, self._open)
            plan = self._plan(recipe, saying, applied, reals, births, after)
            shared = self._shared
            if recipe.is_timeless and self._forms is shared.forms and len(shared.plans) <= MOST_SHARED:
                shared.add(key, plan)
            self._plans[key] = plan.among(self._writer.rows)
        except (Unsayable, Underivable):
            pass
        finally:
            self._operands = []

    def _labels_of(self, record: TensorRecord) -> list[tuple[str, str]]:
        shadow, storage = record.shadow, record.storage
        assert shadow is not None
        assert storage is not None
        found = [("t", record.label), ("S", storage.label)]
        if shadow.counter is not None and shadow.counter.mark:
            found.append(("C", f"C{shadow.counter.mark}"))
        if shadow.node is not None and shadow.node.mark:
            found.append(("n", f"n{shadow.node.mark}"))
        accumulator = shadow.accumulator() if shadow.accumulator is not None else None
        if accumulator is not None and accumulator.mark:
            found.append(("a", f"n{accumulator.mark}"))
        if shadow.view is not None and shadow.view.base.mark:
            found.append(("b", f"t{shadow.view.base.mark}"))
        return found

    def _plan(  # noqa: PLR0917 - what both engines made of the call
        self, recipe: Recipe, saying: Saying, applied: Applied, reals: list[Any], births: Births, after: Births
    ) -> Plan:
        shadows = [] if recipe.is_plain else list(applied.result) if isinstance(applied.result, (tuple, list)) else [applied.result]
        if len(reals) != len(recipe.results):
            raise Underivable
        expected: list[Expected | int] = []
        for real, shadow, window in zip(reals, shadows, recipe.results, strict=True):
            if type(window) is int:
                expected.append(window)
                continue
            new = window.on is None  # type: ignore[union-attr]
            if type(real) is not torch.Tensor or (new and facts.read(real).foreign):
                raise Underivable
            node = real.grad_fn
            expected.append(
                Expected(
                    window, self._forms.of(shadow), real.shape, real.stride(), shadow.offset, real.dtype, real.requires_grad,  # type: ignore[arg-type]
                    None if node is None else node.name(), real.untyped_storage().nbytes(), real.element_size(),
                    facts.dtype_name(real.dtype), shadow.mark - births.t,
                    shadow.storage.mark - births.S if new else 0,
                    max(shadow.counter.mark - births.C, 0),  # type: ignore[union-attr]
                )
            )  # fmt: skip
        own = [node for node in applied.nodes if node.leaf is None]
        leaves = []
        for node in applied.nodes:
            if node.leaf is not None:
                place = next(k for k, record in enumerate(self._operands) if record.shadow is node.leaf)
                leaves.append((place, node.mark - births.n))
        made = tuple(b - a for a, b in zip(births, after, strict=True))
        if not all(node.mark for node in applied.nodes) or made[3] != len(applied.nodes):
            raise Underivable
        plan = Plan(recipe, saying, tuple(expected), tuple(node.mark - births.n for node in own), tuple(leaves), made)
        plan.insides = [max(x.counter.mark - births.C, 0) for x in recipe.insides]  # type: ignore[union-attr]
        if plan.follow is None:
            plan.inside_at = [_keeper(x, own) for x in recipe.insides]
            new = {x.storage for x in expected if type(x) is not int}  # type: ignore[union-attr]
            if not new.issuperset(plan.looks):
                raise Underivable
        recipe.insides = []
        return plan


def _keeper(x: ShadowTensor, nodes: list[Node]) -> tuple[int, int]:
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
        for edge, (own, end, _) in enumerate(recipe.nodes[start].edges):
            if own and end not in known:
                known.add(end)
                work.append(end)
                links.append((start, edge, end))
    return tuple(links)


__all__ = ["Express"]
