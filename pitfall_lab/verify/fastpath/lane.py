"""The fast path (:class:`FastLane`): calls whose key (function, mode, forms of the arguments) has been seen before.

The first call with a key takes the full path: the shadow's entry runs, everything is compared with torch, and a whole
event is written. If torch and the shadow agreed and the call had no unusual effects, a :class:`Plan` is derived from
it. Later calls follow the plan: before torch runs, the shadow repeats what its entry did, *by recipe*; then torch's
result is compared with it (shape, strides, offset, dtype, requires_grad, version, node, and whether its storage is new
or an operand's), and the event is written as a row. In recordings with values, and for calls that write memory, the
shadow's entry itself runs, its effects are compared with the plan (:class:`Done`), and the contents of operands
(before) and results (after) are compared as well. A result that differs is passed to the full comparison.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.private import leave_uncompiled, let_go, next_sequence
from pitfall_lab.observe.recorder import Call, Place, Site
from pitfall_lab.shadow import Applied, Device, DType, Node, ShadowError, ShadowTensor, Unmodelled
from pitfall_lab.shadow.dtypes import FLOAT32
from pitfall_lab.shadow.recipes import PLAIN, Window
from pitfall_lab.shadow.storage import Counter
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.compare_versions import Versions
from pitfall_lab.verify.fastpath.call_keys import MODE, CallKeys
from pitfall_lab.verify.fastpath.call_sites import OFTEN, TENSORS
from pitfall_lab.verify.fastpath.event_rows import Saying
from pitfall_lab.verify.fastpath.planning import Planning
from pitfall_lab.verify.fastpath.plans import SET_GRAD, Expected, Plan, SharedPlans
from pitfall_lab.verify.fastpath.value_checks import ValueChecks
from pitfall_lab.verify.json_values import Look, equal, look
from pitfall_lab.verify.records import StorageRecord, TensorRecord
from pitfall_lab.verify.result_names import Naming
from pitfall_lab.verify.shared_state import World

_is_grad_enabled = torch.is_grad_enabled
DEEP = 4_000
"""How many nodes the fast path reads from torch at most, while no backward runs.

Reading a node gives it a Python object for life, and torch 2.13 frees a chain of nodes with Python objects recursively:
about 50,000 of them crash the process.
"""
GRAD = "grad"


class Done(NamedTuple):
    """What the shadow did when its entry ran the call: ``applied``, or the error that it ``predicted``; the other one
    is None.

    ``plain`` are the number arguments, ``before`` the contents of the storage that the call writes (None: it writes
    none, or they are unknown).
    """

    applied: Applied | None
    predicted: ShadowError | None
    plain: tuple[float, ...]
    before: Look | None


Ahead = tuple[
    Plan, list[TensorRecord], tuple[ShadowTensor, ...], tuple[Node, ...], Place, Any, Any, tuple[Any, ...], Done | None
]
"""A call that the shadow has run and torch has not: its plan, operands, results, nodes, origin and arguments.

Discarded after the call.
"""


class FastLane:
    """Decides which calls take the fast path (a plan is stored for calls of their kind), and runs them there.

    ``long_way`` is the listener that records all others.
    """

    def __init__(
        self, world: World, naming: Naming, adoption: Adoption, memory: MemoryComparison, long_way: Any
    ) -> None:
        self._is_free, self._long_way = long_way.is_free, long_way
        self._world, self._records, self._writer, self._naming = world, world.records, world.writer, naming
        self._graph, self._by_id = world.engine.graph, world.records.by_id
        self._follows_values = world.limit >= 0
        self._shared = shared = SharedPlans.among(world.limit)
        shared.tidy()
        self._forms, self.functions = shared.forms, shared.functions
        self.kinds = CallKeys(world, adoption, shared.forms, long_way.may_meet)
        self.planning = Planning(world, self.kinds, shared)
        self._plans = self.planning.plans
        self._numbers, self._versions = ValueChecks(world.records, memory), Versions(world)
        self._gone = world.records.gone
        self._events, self._row_steps, self._cells = (
            world.writer.events,
            world.writer.row_steps,
            world.writer.rows.cells,
        )
        self._scopes: dict[tuple[str, ...], int] = {}
        self._clearings: dict[bool, Plan] = {}
        self.deep = DEEP
        """From this number of nodes on, torch's nodes are no longer read (see :data:`DEEP`)."""

    # ------------------------------------------------------------------ calls with a plan

    def close(self) -> None:
        """Send all later calls to the full path."""
        self.functions = set()

    def before(self, func: Any, args: Any, kwargs: Any, place: Place) -> Ahead | None:  # noqa: C901 - runs before every call
        """Run a call of ``func`` from ``place`` in the engine by the plan that is stored for its key; None if it has no
        plan, or must be recorded on the full path.

        Tensors seen for the first time may have been given records even then; their effects remain in ``kinds.met``.
        """
        kinds = self.kinds
        if not kinds.are_usual() or not self._is_free():
            return None
        grad = kinds.grad
        turned = _is_grad_enabled() is not grad
        if turned:  # the program has entered or left ``no_grad``; plans exist for both modes
            if not self._writer.remembers("mode"):
                return None
            kinds.grad = not grad
        site = place[0]
        operands: list[TensorRecord] = []
        again = site.again
        if again is not None and again[0] is func and again[1] is grad and not (turned or kwargs):
            ahead: Ahead | None = again[2](args, kwargs, place, kinds.epoch)
            if ahead is not None:
                return ahead
        whole = kinds.of(func, args, kwargs, operands, place[2])
        plan = None if whole is None else self._plans.get(whole) or self._plan_of_others(whole, func, operands, place)
        if plan is None or (plan.looked_at and self._long_way.looks(plan.op, place[1].span)):
            kinds.grad = grad
            return None
        if turned:
            self._world.engine.grad_enabled = not grad
            kinds.met = {
                MODE: self._writer.changes("mode", {"grad": not grad, "inference": False}, "observed"),
                **kinds.met,
            }
        if plan.follow is None or (plan.writes and _is_watched(operands[0].shadow.counter)):  # type: ignore[union-attr, arg-type]
            return self._done(plan, operands, place, args, kwargs)
        shadows: Any = [operands[0].shadow] if len(operands) == 1 else [record.shadow for record in operands]
        results, nodes, insides = plan.follow(self._graph, shadows)
        own = site is place[1] or not plan.looked_at
        if (
            again is None
            and own
            and plan.again is not None
            and not (kwargs or turned or kinds.plain or self._follows_values)
        ):
            plan.again.uses += 1
            wanted = kinds.wanted_again(args, operands) if plan.again.uses > OFTEN else None
            if wanted is not None:
                site.again = func, grad, plan.again.follow(wanted, plan, self._by_id, self._graph)
        return plan, operands, results, nodes, place, args, kwargs, insides, None

    def _done(self, plan: Plan, operands: list[TensorRecord], place: Place, args: Any, kwargs: Any) -> Ahead | None:
        """Run the call with the shadow's entry; return None if the entry has no model for it.

        An error that it predicts is part of the result.
        """
        engine, before = self._world.engine, None
        engine.packs, engine.default_float = False, FLOAT32
        if plan.writes:
            data = operands[0].shadow.storage.data  # type: ignore[union-attr]
            before = None if data is None else look(data)
        try:
            given = [self._shadow_of(value) for value in (args if not plan.opens else (args[0], self.kinds.plain[0]))]
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
        plain = (self.kinds.plain[0], results[0].offset) if plan.opens and results else tuple(self.kinds.plain)
        return plan, operands, results, nodes, place, args, kwargs, (), Done(applied, None, plain, before)

    def _shadow_of(self, value: Any) -> Any:
        """Return an argument with torch's types replaced by the shadow's."""
        kind = type(value)
        if kind in TENSORS:
            return self._by_id[id(value)].shadow
        if kind is float or kind is int or kind is bool or value is None:
            return value
        return argument_values.convert(value, lambda real: self._by_id[id(real)].shadow, DType, Device)

    def _conforms(self, ahead: Ahead) -> bool:
        """Whether the shadow's entry did what the plan predicts.

        That is: no error, the same numbers of nodes, results and writes, and results of the expected forms in the
        expected memory.
        """
        plan, operands, shadows, nodes, _, _, _, _, done = ahead
        applied = done.applied  # type: ignore[union-attr]
        if (
            applied is None
            or applied.stale
            or applied.ran
            or len(shadows) != len(plan.results)
            or len(nodes) != len(plan.kinds)
        ):
            return False
        if len(applied.nodes) - len(nodes) != len(plan.leaves) or len(applied.writes) != plan.writes:
            return False
        if applied.writes and applied.writes[0] is not operands[0].shadow.storage:  # type: ignore[union-attr]
            return False
        for node, kind in zip(nodes, plan.kinds, strict=True):
            if (node.name, len(node.saved), len(node.children)) != kind:
                return False
        return all(
            self._is_like(x, expected, operands, nodes, opens=plan.opens)
            for x, expected in zip(shadows, plan.results, strict=True)
        )

    def _is_like(
        self,
        x: ShadowTensor,
        expected: Expected | int,
        operands: list[TensorRecord],
        nodes: tuple[Node, ...],
        *,
        opens: bool,
    ) -> bool:
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
        if window.on is None:
            return is_counted and x.offset == window.offset and not x.storage.mark
        on = operands[window.on].shadow
        return is_counted and x.storage is on.storage and (opens or x.offset == on.offset + window.offset)  # type: ignore[union-attr]

    def _plan_of_others(self, key: Any, func: Any, operands: list[TensorRecord], place: Place) -> Plan | None:
        """A plan made by an earlier recording; or the plan for ``x.grad = None``, if library code does it; else
        None.
        """
        known = self._shared.plans.get(key)
        if known is not None:
            mine = self._plans[key] = known.among(self._writer.rows)
            return mine
        # the key is (function, mode, form, NoneType, None), and for a leaf also whether it has its AccumulateGrad
        if func == SET_GRAD and place[0] is not place[1] and key[-2:] == (type(None), None) and len(operands) == 1:
            return self._clearing(operands[0])
        return None

    def after(self, ahead: Ahead, real: Any) -> None:  # noqa: C901, PLR0912, PLR0915 - one call instead of seven
        """Compare torch's result ``real`` with the shadow's (``ahead`` is what :meth:`before` returned) and write the
        row; pass a result that differs to the full path.

        Plans with ``simple``, by far the most common ones (one tensor in a new storage with at most one node), are
        handled here without calling :meth:`_enter` and :meth:`_write`, for speed.
        """
        plan, operands, shadows, nodes, (caller, site, frame, scope), _, _, _, _ = ahead
        if plan.simple is None:
            return None if self._agrees(ahead, real) else self._differs(ahead, real)
        form, shape, stride, offset, dtype, requires_grad, name, version, window, number, made = plan.simple
        by_id = self._by_id
        if (
            type(real) is not torch.Tensor
            or real.shape != shape
            or real.stride() != stride
            or real.dtype is not dtype
            or real._version != version
            or real.storage_offset() != offset
            or (key := id(real)) in by_id
        ):
            return self._differs(ahead, real)
        records = self._records
        nodes_before = records.node_count
        if nodes:
            if nodes_before < self.deep:
                node = real.grad_fn
                if node is None or node.name() != name:
                    return self._differs(ahead, real)
                sequence = node._sequence_nr()
            elif real.requires_grad and real.output_nr == 0:
                sequence = next_sequence() - 1  # type: ignore[misc]
            else:
                return self._differs(ahead, real)
        elif real.requires_grad is not requires_grad or real.grad_fn is not None:
            return self._differs(ahead, real)
        impl: Any = real.untyped_storage()._weak_ref()
        fresh = records.fresh
        if impl in fresh or impl in records.by_impl:
            let_go(impl)
            return self._differs(ahead, real)
        events = self._events
        step = len(events)
        t, storages, counters = records.tensor_count, records.storage_count, records.counter_count
        own = None
        if nodes:
            if plan.leaves:
                self._graph.created.clear()
                self._label_leaves(plan, operands)
            (own,) = nodes
            own.mark, records.node_count = nodes_before + number, nodes_before + made
            own.torch_key = records.nodes.latest = sequence
        records.tensor_count = mark = t + 1
        records.storage_count, records.counter_count = storages + 1, counters + 1
        fresh[impl] = by_id[key] = records.by_mark[mark] = record = TensorRecord(real, self._gone)
        record.key, record.mark, record.kind, record.born, record.place = key, mark, "tensor", step, impl
        record.records, record.form, record.epoch = records, form, self.kinds.epoch
        if shadows:
            record.made = shadow = shadows[0]
            record.window = record.node = None
            shadow.mark, shadow.storage.mark, shadow.counter.mark = mark, storages + 1, counters + 1  # type: ignore[union-attr]
        else:
            record.window, record.node = window, own
        names = None
        target, naming = site.target, self._naming
        if target is None:
            record.names = ()
        elif caller is site and (naming.span is not site.span or naming.step != step - 1):
            record.names = site.names[0]  # type: ignore[assignment]
            naming.step, naming.span, naming.record = step, site.span, record
            names = site.names
        else:
            record.names = ()
            names = naming.claim(target, site.span, record, step, None if caller is site else frame)
        deaths = records.bury() if records.died or records.left else None
        if site.scope is not scope or self.kinds.met or plan.has_numbers:
            births = t, storages, counters, nodes_before
            self._write_row(plan, site, scope, births, operands, names, deaths, None, _plain(ahead))
            return None
        self._row_steps.append(step)
        cells = self._cells
        events.append(len(cells))
        cells += plan.row(
            operands,
            plan.number,
            site.number,
            site.scope_number,
            t,
            storages,
            counters,
            nodes_before,
            names,
            deaths,
            None,
            None,
            None,
        )
        return None

    def _differs(self, ahead: Ahead, result: Any) -> None:
        self._long_way.after(self._as_call(ahead), result)

    def failed(self, ahead: Ahead, error: BaseException) -> None:
        """Pass a call of the fast path for which torch raised ``error`` to the full path; ``ahead`` is what
        :meth:`before` returned.
        """
        self._long_way.failed(self._as_call(ahead), error)

    def _agrees(self, ahead: Ahead, result: Any) -> bool:  # noqa: C901, PLR0912 - runs after every call
        """Compare torch's results with the shadow's, and return whether all agree.

        If they do, record the call as a row of the trace; if not, record nothing.
        """
        plan, operands, shadows, nodes, place, _, _, insides, done = ahead
        if done is not None and not self._conforms(ahead):
            return False
        if not plan.results:
            if plan.saying.reason:
                return self._is_plain(ahead, result)
            return self._is_cleared(ahead) if done is None else self._is_same_plain(ahead, result)
        if plan.writes and done is None:
            return self._is_written(ahead, result)
        if plan.inside_at:
            insides = tuple(nodes[node].saved[number] for node, number in plan.inside_at)
        if plan.leaves:
            self._graph.created.clear()
        reals = (result,) if type(result) in TENSORS else result
        if type(reals) not in (tuple, list) or len(reals) != len(plan.results):
            return False
        impls = self._compare_all(reals, shadows, plan.results, operands)
        if impls is None:
            return False
        if done is not None and not (
            self._numbers.agree(reals, shadows, plan, operands) and (not plan.writes or self._counts_alike(operands[0]))
        ):
            for impl in impls:
                let_go(impl)
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        step = len(self._writer.events)
        self._label_nodes(plan, operands, nodes, reals)
        for inside, number in zip(insides, plan.insides, strict=True):
            if number:
                inside.counter.mark = records.counter_count + number
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
            self._numbers.fill(reals, shadows, plan)
        for written in plan.uncounted:
            self._world.writes.setdefault(operands[written].storage.label, []).append(step)  # type: ignore[union-attr]
        numbers: tuple[Look | None, ...] | None = None
        if plan.writes:
            numbers = self._note_write(operands[0], done, step)
        elif plan.looks:
            numbers = self._numbers.looks(plan, shadows)
        self._write(
            plan, place, births, operands, entered[0] if len(entered) == 1 else None, step, numbers, _plain(ahead)
        )
        return True

    def _is_written(self, ahead: Ahead, real: Any) -> bool:
        """Like :meth:`_agrees`, for a call that writes memory in a recording without values; storage, shape and
        versions are compared.
        """
        plan, operands, (shadow,), _, place, _, _, _, _ = ahead
        record: Any = operands[0]
        counter = shadow.counter
        if (
            record() is not real
            or real._version != counter.version  # type: ignore[union-attr]
            or real.shape != shadow.shape
            or real.requires_grad is not shadow.requires_grad
            or real.untyped_storage()._cdata != record.storage.impls[0]
            or not self._counts_alike(record)
        ):
            return False
        records, step = self._records, len(self._writer.events)
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        self._write(plan, place, births, operands, record, step, self._note_write(record, None, step), _plain(ahead))
        return True

    def _counts_alike(self, written: TensorRecord) -> bool:
        """Whether the versions of all tensors on the written storage are those of the shadow."""
        place = written.storage
        return place is None or len(place.members) == 1 or self._versions.agree(place)

    def _note_write(self, record: TensorRecord, done: Done | None, step: int) -> tuple[Look | None, Look | None]:
        """Record a write as the full path would; return the storage's contents before and after it (None where they are
        unknown).
        """
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
            self.kinds.epoch += 1  # views of it have another grad_fn now
        return None if done is None else done.before, after

    # ------------------------------------------------------------------ the row

    def _is_same_plain(self, ahead: Ahead, result: Any) -> bool:
        """Like :meth:`_agrees`, for a result that is a plain number (``loss.item()``)."""
        plan, operands, _, _, place, _, _, _, done = ahead
        mine = done.applied.result  # type: ignore[union-attr]
        if type(mine) is not type(result):
            return False
        if mine != result and not (type(mine) is float and equal(np.array([result]), np.array([mine]), "float32")):
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        self._write(plan, place, births, operands, None, len(self._writer.events), None, _plain(ahead))
        return True

    def _is_plain(self, ahead: Ahead, result: Any) -> bool:
        """Like :meth:`_agrees`, for a plain result of which the shadow has no model (``loss.item()`` without
        values).
        """
        plan, operands, _, _, place, _, _, _, _ = ahead
        if result is not None and type(result) not in PLAIN:
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        self._writer.rows_observed += 1
        self._write(plan, place, births, operands, None, len(self._writer.events), None, _plain(ahead))
        return True

    def _clearing(self, record: TensorRecord) -> Plan | None:
        """The plan for ``x.grad = None``: one for a tensor whose gradient is in the trace, one for a tensor without a
        gradient.

        None if there is a gradient that the trace does not show.
        """
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
        """Record ``x.grad = None`` as a row if torch and the shadow agree; return whether they do."""
        plan, operands, _, _, place, *_ = ahead
        (record,) = operands
        real: Any = record()
        if tensor_facts.grad_of(real) is not None:
            return False
        records = self._records
        births = records.tensor_count, records.storage_count, records.counter_count, records.node_count
        if plan is self._clearings.get(True):
            self._writer.note(f"tensors.{record.label}", GRAD, None)
        self._write(plan, place, births, operands, None, len(self._writer.events))
        return True

    def _write(  # noqa: PLR0917 - the same
        self, plan: Plan, place: Place, births: tuple[int, int, int, int], operands: list[TensorRecord],
        result: TensorRecord | None, step: int, numbers: Any = None, plain: tuple[Any, ...] | None = None,
    ) -> None:  # fmt: skip
        """Write the row. ``result`` is the record that may get a name (None: no result gets one)."""
        records, naming = self._records, self._naming
        caller, site, frame, scope = place
        names = None
        if result is not None and site.target is not None:
            if caller is site and (naming.step != step - 1 or naming.span is not site.span) and not result.names:
                naming.step, naming.span, naming.record = step, site.span, result
                result.names = site.names[0]  # type: ignore[assignment]
                names = site.names
            else:
                names = naming.claim(site.target, site.span, result, step, None if caller is site else frame)
        deaths = records.bury() if records.died or records.left else None
        self._write_row(plan, site, scope, births, operands, names, deaths, numbers, plain)

    def _write_row(  # noqa: PLR0917 - the same
        self, plan: Plan, site: Site, scope: tuple[str, ...], births: tuple[int, int, int, int],
        operands: list[TensorRecord], names: Any, deaths: Any, numbers: Any, plain: Any,
    ) -> None:  # fmt: skip
        writer = self._writer
        writer.row_steps.append(len(writer.events))
        if site.number < 0:
            site.number = writer.rows.place(site.span)
        if site.scope is not scope:
            site.scope, site.scope_number = scope, self._scope_number(scope)
        met = None
        if self.kinds.met:
            met = tuple([effect for effects in self.kinds.met.values() for effect in effects])
            self.kinds.met.clear()
        writer.events.append(len(self._cells))
        self._cells += plan.row(
            operands, plan.number, site.number, site.scope_number, *births, names, deaths, met, numbers, plain
        )

    def _scope_number(self, scope: tuple[str, ...]) -> int:
        known = self._scopes.get(scope)
        if known is None:
            known = self._scopes[scope] = len(self._scopes)
            self._writer.rows.scopes.append(scope)
        return known

    def _as_call(self, ahead: Ahead) -> Call:
        """The call as the full path expects it, with what the shadow did.

        Used for results that differ and for errors.
        """
        plan, _, shadows, nodes, (caller, site, frame, scope), args, kwargs, _, done = ahead
        if plan.simple is not None and not shadows:
            shadows = (plan.results[0].window.tensor(self._graph, nodes[0] if nodes else None),)  # type: ignore[union-attr]
        grad, inference = self.kinds.grad, self.kinds.inference
        self.planning.stop()
        call = Call(
            plan.op,
            None,
            args,
            kwargs,
            site.span,
            scope,
            frame,
            grad,
            inference,
            dispatching=False,
            composite=False,
            direct=caller is site,
        )
        step = self._writer.reserve()
        self._world.engine.begin()
        result = shadows[0] if len(shadows) == 1 else shadows
        met = [effect for effects in self.kinds.met.values() for effect in effects]
        self.kinds.met.clear()
        call.memory.update(step=step, effects=met, parent=None, reason="")
        if done is None:
            written = (shadows[0].storage,) if plan.writes else ()
            call.memory["applied"] = Applied(result, nodes, written)
        elif done.applied is not None:
            call.memory["applied"] = done.applied
        else:
            call.memory["predicted"] = done.predicted
        return call

    # ------------------------------------------------------------------ the comparison

    def _compare_all(
        self,
        reals: Any,
        shadows: tuple[ShadowTensor, ...],
        results: tuple[Expected | int, ...],
        operands: list[TensorRecord],
    ) -> list[int] | None:
        """Compare all results. Return the weak references to the new StorageImpls, or None if a result differs."""
        impls: list[int] = []
        for real, shadow, expected in zip(reals, shadows, results, strict=True):
            impl = self._compare(real, shadow.offset, expected, operands)
            if impl is None:
                for taken in impls:
                    let_go(taken)
                return None
            if impl:
                impls.append(impl)
        return impls

    def _compare(self, real: Any, offset: int, expected: Expected | int, operands: list[TensorRecord]) -> int | None:
        """Compare one result.

        Return a weak reference to its StorageImpl if its storage is new, 0 if not, or None if it differs.
        """
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
            impl: int = storage._weak_ref()  # type: ignore[assignment]
            if self._records.knows(impl):
                let_go(impl)
                return None
            return impl
        parent = operands[window.on]
        shadow = parent.shadow
        version = shadow.counter.version if window.counts_with is not None else window.version  # type: ignore[union-attr]
        if (
            not self._records.lies_at(storage._cdata, parent.storage)  # type: ignore[arg-type]
            or real._version != version
            or self._records.offset_of(real, parent.storage) != offset  # type: ignore[arg-type]
            or real._is_view() is (window.base is None)
            or id(real) in self._by_id
        ):
            return None
        return 0

    # ------------------------------------------------------------------ labels and records

    def _label_leaves(self, plan: Plan, operands: list[TensorRecord]) -> None:
        """Label the AccumulateGrad nodes that the call created."""
        records = self._records
        for place, number in plan.leaves:
            record = operands[place]
            node: Any = record.shadow.accumulator()
            node.mark = records.node_count + number
            records.nodes["leaf", record.key] = node

    def _label_nodes(self, plan: Plan, operands: list[TensorRecord], nodes: tuple[Node, ...], reals: Any) -> None:
        """Label the new nodes, and store the key of the torch node that each models."""
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
            nodes[place].torch_key = key = tensor_facts.node_key(node)
            records.nodes.latest = max(records.nodes.latest, key[0])

    def _enter(
        self, real: Any, shadow: ShadowTensor, expected: Expected, impl: int, operands: list[TensorRecord]
    ) -> TensorRecord:
        """Create the records of a new result, and return its own."""
        records = self._records
        if expected.counter:
            shadow.counter.mark = records.counter_count + expected.counter  # type: ignore[union-attr]
        if expected.storage:
            mark = records.storage_count + expected.storage
            storage = StorageRecord(mark, shadow.storage, None, expected.nbytes, expected.dtype_name, expected.itemsize)
            records.add_new_storage(storage, impl)
        else:
            storage = operands[expected.window.on].storage  # type: ignore[index,assignment]
        record = records.enter_as(
            records.tensor_count + expected.t, real, shadow, "tensor", len(self._writer.events), storage
        )
        record.form, record.epoch = expected.form, self.kinds.epoch
        return record


def _is_watched(counter: Counter) -> bool:
    """Whether some node that has not been freed has saved a tensor with this counter."""
    return counter.saved is not None and any(
        (saved := known()) is not None and not saved.freed for known in counter.saved
    )


def _plain(ahead: Ahead) -> tuple[Any, ...] | None:
    """The number arguments that differ between calls with the same key; None if the plan has none."""
    plan, _, _, _, _, args, kwargs, _, done = ahead
    if not plan.saying.plain:
        return None
    return (
        done.plain
        if done is not None
        else tuple([value for value in (*args, *kwargs.values()) if type(value) is float])
    )


leave_uncompiled(FastLane.before, FastLane.after, FastLane.failed)

__all__ = ["FastLane"]
