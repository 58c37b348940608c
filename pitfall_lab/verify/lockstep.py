"""Lockstep: the shadow runs each call first, then torch runs it, then the two are compared.

This is the one place where the two engines meet. The shadow is always one call ahead, so that what it says of a call is a
prediction. Where it has no model, torch's result is taken over ("mirrored"); where it turns out wrong, the difference is
written down as a disagreement and torch's facts are taken over as well, so that one slip is not counted a hundred times.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np

from pitfall_lab.observe import facts, values
from pitfall_lab.observe.facts import Facts
from pitfall_lab.observe.lines import LineWatch
from pitfall_lab.observe.namespace import Namespace
from pitfall_lab.observe.recorder import BACKWARD, Call, Verdict
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.shadow import Applied, Device, DType, Engine, Node, Saved, ShadowError, ShadowTensor, Unmodelled
from pitfall_lab.trace import Effect, Event, Failure, Forecast, Harm, Note, Operand, Span, StaleRead, T, Trace
from pitfall_lab.verify.cells import cells, equal, identical
from pitfall_lab.verify.records import Records, StorageRecord, TensorRecord, array_facts
from pitfall_lab.verify.writer import EVENT_LIMIT, Writer

#: Python functions of torch's that are one step for the learner even when the shadow has no entry for them.
ATOMIC = frozenset({"torch.Tensor.__array__", "torch.Tensor.__deepcopy__", "torch.Tensor.register_hook", "torch.Tensor.register_post_accumulate_grad_hook"})
HOOKS = frozenset({"torch.Tensor.register_hook", "torch.Tensor.register_post_accumulate_grad_hook"})
SEARCHES = 4
#: What passes no torch function: a word the program must contain, the text of the call, and torch's name for it.
UNSEEN = (("from_numpy", "from_numpy(", "torch.from_numpy"), ("autograd.Function", ".apply(", "torch.autograd.Function.apply"))


class Lockstep:
    """A :class:`pitfall_lab.observe.Listener` that writes a trace."""

    def __init__(self, sources: SourceMap, value_limit: int = 4096) -> None:
        self.engine = Engine(value_limit=value_limit)
        self.records = Records()
        self.writer = Writer()
        self.sources = sources
        self.namespace = Namespace()
        self.lines = LineWatch(sources, self.line_done)
        self._limit = value_limit
        self._parents: list[int] = []
        self._hooked = False
        self._unseen: list[tuple[str, str, str]] = []
        self._silently: list[StorageRecord] = []
        self._operands_before: list[np.ndarray] = []
        self._named: tuple[int, Span | None, TensorRecord | None] = (-1, None, None)
        self._bumps: dict[str, list[tuple[int, int]]] = {}
        self._writes: dict[str, list[int]] = {}
        self._forecast_at: dict[tuple[str, str], tuple[int, int]] = {}
        self._pending: list[Effect] = []

    # ------------------------------------------------------------------ the listener

    def before(self, call: Call) -> Verdict:
        """Let the shadow do the call first."""
        if self.writer.full:
            raise TooLong
        self.engine.grad_enabled, self.engine.inference = call.grad, call.inference
        self._mode(call)
        self._look_for_writes(None)
        step = self.writer.reserve()
        effects: list[Effect] = []
        for real in values.tensors((call.args, call.kwargs)):
            effects += self._meet(real, call)
        call.memory.update(step=step, effects=effects, parent=self._parents[-1] if self._parents else None)
        reason = self._predict(call)
        if reason and call.composite and not _is_one_step(call.name):
            self._pending += effects
            self.writer.drop(step)
            return Verdict.OPEN
        call.memory["reason"] = reason
        if call.name in BACKWARD:
            self._parents.append(step)
            return Verdict.INSIDE
        return Verdict.RUN

    def after(self, call: Call, result: Any) -> None:
        """Compare what torch did with what the shadow said."""
        step = call.memory["step"]
        if call.name in BACKWARD:
            self._parents.pop()
        effects: list[Effect] = self._pending + call.memory["effects"]
        self._pending = []
        predicted: ShadowError | None = call.memory.get("predicted")
        applied: Applied | None = call.memory.get("applied")
        if predicted is not None:
            self.writer.disagree(step, "outcome", "returned", f"{predicted.type_name}: {predicted.message}")
            applied = None
        nodes: list[tuple[Any, Node]] = []
        if applied is not None:
            results, ok, more = self._compare(call, step, applied, result)
        else:
            results, more = self._mirror(call, step, result, call.memory["reason"] or "the engines disagree")
            ok = False
        effects += more
        self._note_hook(call)
        by = "agreed" if ok else "observed"
        reason = call.memory["reason"] if applied is None else ""
        if call.memory["reason"]:
            self.writer.mirrored += 1
        else:
            self.writer.checked += 1
            self.writer.agreed += ok
        del nodes
        self._name_results(call, results, effects, step)
        event = Event(
            step, "call", call.name, call.span, call.scope, call.memory["parent"], self._operands(call), tuple(results), self._written(call, applied, step),
            tuple(effects) + tuple(self._deaths()), by, reason or "", self._forecasts(step, applied, call.memory.get("stale", ())),
        )  # fmt: skip
        self.writer.put(event)
        if applied is not None and applied.ran:
            self._ran(step, call.span, applied.ran)
            harms = tuple(self._harm(step, harm) for harm in applied.harms)
            if harms:
                self.writer.amend(step, harms=harms)

    def failed(self, call: Call, error: BaseException) -> None:
        """Torch (or the learner's hook) raised: was it what the shadow said?"""
        step = call.memory["step"]
        if call.name in BACKWARD:
            self._parents.pop()
        predicted: ShadowError | None = call.memory.get("predicted")
        effects: list[Effect] = self._pending + call.memory["effects"]
        self._pending = []
        message = str(error)
        if predicted is None and not call.memory["reason"] and any(run.node.mirrored for run in self.engine.ran):
            call.memory["reason"] = "backward went through a node without a model"
        right = predicted is not None and predicted.type_name == type(error).__name__ and _first_sentence(predicted.message) == _first_sentence(message)
        if call.memory["reason"]:
            self.writer.mirrored += 1
        else:
            self.writer.checked += 1
            self.writer.agreed += right
            if not right:
                said = "returned" if predicted is None else f"{predicted.type_name}: {predicted.message}"
                self.writer.disagree(step, "outcome", f"{type(error).__name__}: {message}", said)
        failure = self._failure(error, message, predicted if right or _is_same_error(predicted, error, message) else None, step, call.span)
        call.memory["failure"] = failure
        ran = tuple(self.engine.ran) if right and call.name in BACKWARD else ()
        if ran and predicted is not None and ran[-1].node is predicted.node:
            ran = ran[:-1]  # the node that failed gets an event of its own
        for real in values.tensors((call.args, call.kwargs)):
            effects += self._resync(real)
        event = Event(
            step, "call", call.name, call.span, call.scope, call.memory["parent"], self._operands(call), (), (), tuple(effects) + tuple(self._deaths()),
            "agreed" if right else "observed", call.memory["reason"] or "", error=failure,
        )  # fmt: skip
        self.writer.put(event)
        self._ran(step, call.span, ran)
        if predicted is not None and right and predicted.node is not None:
            self._stopped_at(step, call.span, predicted.node, failure)
        self._came_true(failure, step)
        self.last_failure = (type(error).__name__, message, failure)

    last_failure: tuple[str, str, Failure] | None = None

    def stopped(self, reason: str) -> None:
        """Note that the recording ended early; the program goes on without us."""
        self.lines.stop()
        self._parents.clear()
        self.writer.notes.append(
            Note("stopped", f"Observation stopped here, because {reason}.", f"从这里起停止观察,原因:{reason}。", max(len(self.writer.events) - 1, 0))
        )

    def finish(self, failure: Failure | None) -> Trace:
        """Return the trace of the program that has just ended."""
        self.lines.stop()
        return self.writer.finish(self.sources.sources, failure, facts.environment())

    # ------------------------------------------------------------------ before: meeting arguments, predicting

    def _predict(self, call: Call) -> str:
        """Run the call in the shadow. Returns why it cannot, or an empty string."""
        if not facts.plain_defaults():
            return "the program changed torch's default dtype"
        if facts.autocasting():
            return "autocast decides the types of operands"
        if not facts.may_read_saved() and call.name not in BACKWARD:
            return "saved-tensor hooks of the program's decide what is saved"
        try:
            args, kwargs = (values.convert(part, self._shadow, DType, Device) for part in (call.args, call.kwargs))
            call.memory["applied"] = self.engine.call(call.name, args, kwargs)
        except values.Unconvertible as unknown:
            return str(unknown)
        except Unmodelled as unknown:
            return unknown.reason
        except ShadowError as predicted:
            call.memory["predicted"] = predicted
        return ""

    def _shadow(self, real: Any) -> ShadowTensor:
        record = self.records.find(real)
        if record is None or record.shadow is None:
            raise values.Unconvertible("a tensor whose memory cannot be looked at (sparse, nested, transformed)")
        return record.shadow

    def _meet(self, real: Any, call: Call) -> list[Effect]:
        """Make sure the shadow of an argument is what torch holds now; adopt what was never seen."""
        record = self.records.find(real)
        if record is None:
            return self._adopt(real, call.frame)[1]
        if record.kind == "parameter" and not record.names and record.searches < SEARCHES:
            record.searches += 1
            record.names = self.namespace.names(real, call.frame)
            if record.names:
                return self._resync(real, announce=True) + self._describe(record, real, facts.read(real), "observed")
        return self._resync(real, announce=True)

    def _resync(self, real: Any, *, announce: bool = False) -> list[Effect]:
        """Take over what happened to a known tensor: versions, history, memory. ``announce`` tells of a write nobody saw."""
        record = self.records.find(real)
        if record is None or record.shadow is None or record.storage is None:
            return []
        seen, shadow = facts.read(real), record.shadow
        if seen.shape != shadow.shape or seen.dtype != shadow.dtype or self.records.storage_of(seen) is not record.storage:
            return self._replace(record, real, seen)
        was = (shadow.node, shadow.flag, shadow.grad, shadow._version)
        if seen.version is not None and shadow.counter is not None and seen.version != shadow.counter.version:
            self.engine.bump(shadow.counter, seen.version - shadow.counter.version)
        effects = self._sync_history(record, real, seen)
        effects += self._sync_memory(record.storage, real, announce=announce)
        if effects or announce is False or was != (shadow.node, shadow.flag, shadow.grad, shadow._version):
            effects += self._describe(record, real, seen, "observed")
        return effects

    def _sync_history(self, record: TensorRecord, real: Any, seen: Facts) -> list[Effect]:
        """Make the shadow's node the one torch has (an unseen custom Function, a hook, a flag set from C++)."""
        shadow = record.shadow
        if shadow is None or seen.inference:
            return []
        node = facts.node_of(real)
        mine = _quiet_grad_fn(shadow)
        if node is None:
            if mine is not None and seen.is_leaf:
                shadow.node = None
            if shadow.node is None and (shadow.base is None or not shadow.base.requires_grad):
                shadow.flag = seen.requires_grad
            return []
        if mine is not None and self.records.nodes.get(facts.node_key(node)) is mine:
            return []
        effects: list[Effect] = []
        if mine is None or not self._pair(node, mine, effects):
            shadow.node, shadow.output_nr, shadow.flag = self._mirror_node(node, effects), real.output_nr, False
            if shadow.view is not None:
                shadow.view.version = shadow._version
        return effects

    def _replace(self, record: TensorRecord, real: Any, seen: Facts) -> list[Effect]:
        """The object now looks at other memory (``p.data = …``, ``set_``, ``module.to``): give it another shadow."""
        storage, effects = self._storage(real, seen)
        shadow, more = self._make_shadow(real, seen, storage)
        if record.shadow is not None and record.shadow.counter is not None:
            shadow.counter = record.shadow.counter
            shadow.counter.version = seen.version or 0
        self.records.rebind(record, shadow, storage)
        return effects + more + self._describe(record, real, seen, "observed")

    # ------------------------------------------------------------------ adopting

    def _adopt(self, real: Any, frame: FrameType | None, names: tuple[str, ...] = ()) -> tuple[TensorRecord, list[Effect]]:
        """Take over a tensor that torch made unseen, or whose operation has no model."""
        seen = facts.read(real)
        effects: list[Effect] = []
        if seen.storage is None:
            record = self.records.enter(real, None, seen.kind, len(self.writer.events), None)
        else:
            storage, effects = self._storage(real, seen)
            shadow, more = self._make_shadow(real, seen, storage)
            effects += more
            record = self.records.enter(real, shadow, seen.kind, len(self.writer.events) - 1, storage)
        record.names = list(names) or self.namespace.names(real, frame)
        if record.storage is not None and seen.foreign:
            self.records.share(record.storage)
            self.lines.start(frame)
        if record.storage is not None and frame is not None:
            for array, name in self.namespace.arrays(frame, seen.pointer, seen.nbytes):
                effects += self._enter_array(array, record.storage, [name], frame)
        return record, effects + self._describe(record, real, seen, "observed")

    def _make_shadow(self, real: Any, seen: Facts, storage: StorageRecord) -> tuple[ShadowTensor, list[Effect]]:
        effects: list[Effect] = []
        base_real = facts.base_of(real)
        base: TensorRecord | None = None
        if base_real is not None:
            base = self.records.find(base_real)
            if base is None:
                base, effects = self._adopt(base_real, None)
        node = None if seen.inference else facts.node_of(real)
        shadow = self.engine.adopt(
            storage.shadow, seen.shape, seen.stride or (), self.records.offset(seen, storage), seen.dtype, version=seen.version or 0,
            requires_grad=seen.requires_grad and node is None, grad_fn=None if node is None else self._mirror_node(node, effects),
            output_nr=real.output_nr, base=base.shadow if base is not None else None, kind=seen.kind,
        )  # fmt: skip
        shadow.inference = seen.inference
        if base is not None and base.shadow is not None:
            shadow.counter = base.shadow.counter
            # requires_grad_() on a view of a plain tensor makes the view a leaf of its own.
            shadow.flag = seen.requires_grad and node is None and not base.shadow.requires_grad
        return shadow, effects

    def _storage(self, real: Any, seen: Facts) -> tuple[StorageRecord, list[Effect]]:
        known = self.records.storage_of(seen)
        if known is not None:
            self.records.add_impl(known, seen, real)
            return known, []
        size = seen.nbytes // max(seen.itemsize, 1)
        flat = facts.flat_values(real, self._limit)
        record = self.records.add_storage(self.engine.storage(size, seen.dtype, seen.device, flat), seen, real)
        return record, self._describe_storage(record, "observed")

    def _enter_array(self, array: np.ndarray, storage: StorageRecord, names: list[str], frame: FrameType | None) -> list[Effect]:
        """A NumPy array on memory that torch uses too: from now on it can change without a version."""
        self.records.share(storage)
        record = self.records.find(array)
        if record is None:
            record = self.records.enter(array, None, "array", len(self.writer.events) - 1, storage)
        record.names += [name for name in names if name not in record.names]
        if frame is not None:
            self.lines.start(frame)
        return self._describe_array(record, array)

    def _mirror_node(self, node: Any, effects: list[Effect]) -> Node:
        """Take over torch's node and everything behind it that is not known yet."""
        order: list[Any] = []
        stack = [node]
        seen: set[Any] = set()
        while stack:
            item = stack.pop()
            key = facts.node_key(item)
            if key in seen or key in self.records.nodes:
                continue
            seen.add(key)
            order.append(item)
            stack += [child for child, _ in facts.next_nodes(item) if child is not None]
        for item in sorted(order, key=lambda n: (facts.leaf_of(n) is None, n._sequence_nr())):
            self.records.nodes[facts.node_key(item)] = self._mirror_one(item, effects)
        return self.records.nodes[facts.node_key(node)]

    def _mirror_one(self, item: Any, effects: list[Effect]) -> Node:
        leaf = facts.leaf_of(item)
        if leaf is not None:
            record = self.records.find(leaf)
            if record is None:
                record, more = self._adopt(leaf, None)
                effects += more
            shadow_node = self.engine.accumulate_grad(record.shadow) if record.shadow is not None else self.engine.node("AccumulateGrad")
        else:
            edges = [(None if child is None else self.records.nodes.get(facts.node_key(child)), index) for child, index in facts.next_nodes(item)]
            shadow_node = self.engine.node(facts.node_name(item), edges, self._mirror_saved(item))
        self.records.label_node(shadow_node)
        effects += self._describe_node(shadow_node, "observed")
        return shadow_node

    def _mirror_saved(self, item: Any) -> list[Saved]:
        if not facts.may_read_saved():
            return []
        found = []
        for slot, tensor in facts.saved_tensors(item):
            record = self.records.find(tensor)
            seen = facts.read(tensor)
            storage = self.records.storage_of(seen)
            if record is not None and record.shadow is not None:
                found.append(self.engine.saved(slot, record.shadow))
            elif storage is not None:
                twin = self._twin(storage, seen)
                if twin is not None:
                    found.append(self.engine.saved(slot, twin, is_output=True))
        return found

    def _twin(self, storage: StorageRecord, seen: Facts) -> ShadowTensor | None:
        """A window on known memory for a saved tensor that is no object of the program's; it shares the counter of its family."""
        for record, _ in self.records.live(storage):
            if record.shadow is not None and record.shadow.counter is not None and record.shadow.counter.version == seen.version:
                return self.engine.adopt(
                    storage.shadow, seen.shape, seen.stride or (), self.records.offset(seen, storage), seen.dtype, counter=record.shadow.counter
                )
        return None

    # ------------------------------------------------------------------ after: comparing

    def _compare(self, call: Call, step: int, applied: Applied, result: Any) -> tuple[list[str], bool, list[Effect]]:
        effects: list[Effect] = []
        before = len(self.writer.disagreements)
        found = (self.records.find(real) for real in values.tensors((call.args, call.kwargs)))
        self._operands_before = [r.storage.shadow.data for r in found if r is not None and r.storage is not None and r.storage.shadow.data is not None]
        reals = list(values.tensors(result))
        shadows = list(_shadows(applied.result))
        results: list[str] = []
        if len(reals) != len(shadows):
            self.writer.disagree(step, "result", f"{len(reals)} tensors", f"{len(shadows)} tensors")
        for real, shadow in zip(reals, shadows, strict=False):
            label, more = self._bind(step, real, shadow)
            results.append(label)
            effects += more
        touched = {id(real): real for real in itertools.chain(reals, self._changed(call, applied))}
        for real in list(touched.values()):
            base = facts.base_of(real)
            if base is not None and self.records.find(base) is not None:
                touched.setdefault(id(base), base)
        for real in touched.values():
            record = self.records.find(real)
            if record is not None and record.shadow is not None:
                effects += self._check(step, record, real)
        if not reals:
            self._compare_plain(step, applied.result, result)
        for array in values.arrays(result):
            results += self._meet_array(array, call, effects)
        effects += self._grads(step, [run.node for run in applied.ran])
        return results, len(self.writer.disagreements) == before, effects

    def _changed(self, call: Call, applied: Applied) -> Iterator[Any]:
        """The arguments that this call may have changed. The others were compared just before it, so they need no second look."""
        for real in values.tensors((call.args, call.kwargs)):
            record = self.records.find(real)
            shadow = record.shadow if record is not None else None
            if shadow is not None and (
                shadow.storage in applied.writes or not facts.is_at_version(real, shadow._version) or real.requires_grad != shadow.requires_grad
                or call.name.endswith("_")
            ):  # fmt: skip
                yield real

    def _bind(self, step: int, real: Any, shadow: ShadowTensor) -> tuple[str, list[Effect]]:
        """Let ``shadow`` stand for ``real``, if nothing speaks against it."""
        seen = facts.read(real)
        known = self.records.find(real)
        if known is not None and known.shadow is shadow:
            return known.label, []
        other = self.records.shadow_label(shadow)
        if known is not None or other is not None:
            self.writer.disagree(step, "result.is", known.label if known else "a new tensor", other or "a new tensor")
            record, effects = (known, []) if known else self._adopt(real, None)
            return record.label, effects
        effects: list[Effect] = []
        if seen.storage is None:
            record, effects = self._adopt(real, None)
            return record.label, effects
        storage = self.records.storage_of(seen)
        mine = self.records.storage_label(shadow.storage)
        if (storage.label if storage else None) != mine:
            self.writer.disagree(step, "result.storage", storage.label if storage else "new memory", mine or "new memory")
            record, effects = self._adopt(real, None)
            return record.label, effects
        if storage is None:
            storage = self.records.add_storage(shadow.storage, seen, real)
            if shadow.storage.data is None:
                self._fill(storage, real)
        else:
            self.records.add_impl(storage, seen, real)
        shadow.kind = seen.kind
        record = self.records.enter(real, shadow, seen.kind, step, storage)
        return record.label, effects

    def _check(self, step: int, record: TensorRecord, real: Any) -> list[Effect]:
        """Compare one tensor's facts and memory; on a difference, torch's are taken over."""
        seen, shadow, label = facts.read(real), record.shadow, record.label
        if shadow is None or record.storage is None:
            return []
        if not self._follow_storage(record, real, seen):
            known = self.records.storage_of(seen)
            mine_at = self.records.storage_label(shadow.storage)
            self.writer.disagree(step, f"tensors.{label}.storage", known.label if known else "new memory", mine_at or "new memory")
            return self._replace(record, real, seen)
        effects: list[Effect] = []
        mine: dict[str, Any] = {
            "shape": shadow.shape, "stride": shadow.stride, "offset": shadow.offset, "dtype": str(shadow.dtype[:]), "requires_grad": shadow.requires_grad,
            "is_leaf": shadow.is_leaf,
        }  # fmt: skip
        theirs: dict[str, Any] = {
            "shape": seen.shape, "stride": seen.stride, "offset": self.records.offset(seen, record.storage), "dtype": seen.dtype,
            "requires_grad": seen.requires_grad, "is_leaf": seen.is_leaf,
        }  # fmt: skip
        if seen.version is not None and shadow.counter is not None:
            mine["version"], theirs["version"] = shadow.counter.version, seen.version
        wrong = [key for key in theirs if mine[key] != theirs[key] and theirs[key] is not None]
        for key in wrong:
            self.writer.disagree(step, f"tensors.{label}.{key}", _jsonable(theirs[key]), _jsonable(mine[key]))
        node = None if seen.inference else facts.node_of(real)
        own = _quiet_grad_fn(shadow)
        if (node is None) != (own is None) or (node is not None and not self._pair(node, own, effects, step, label)):
            if (node is None) != (own is None):
                self.writer.disagree(step, f"tensors.{label}.grad_fn", node and facts.node_name(node), own and own.name)
            wrong.append("grad_fn")
        if not self._same_memory(step, record.storage, real):
            wrong.append("cells")
        if wrong:
            effects += self._resync(real) if "shape" not in wrong and "stride" not in wrong and "offset" not in wrong else self._replace(record, real, seen)
        by = "observed" if wrong else "agreed"
        return effects + self._describe_storage(record.storage, by) + self._describe(record, real, seen, by)

    def _follow_storage(self, record: TensorRecord, real: Any, seen: Facts) -> bool:
        """The object may look at other memory now (``p.data = …``). True when the shadow says the same."""
        storage = self.records.storage_of(seen)
        shadow = record.shadow
        if storage is record.storage or shadow is None:
            return True
        if storage is None and self.records.storage_label(shadow.storage) is None:
            storage = self.records.add_storage(shadow.storage, seen, real)
        if storage is None or storage.shadow is not shadow.storage:
            return False
        self.records.rebind(record, shadow, storage)
        return True

    def _same_memory(self, step: int, storage: StorageRecord, real: Any) -> bool:
        """Compare the numbers and go on with torch's, which differ by rounding at most."""
        observed = facts.flat_values(real, self._limit)
        modelled = storage.shadow.data
        if observed is None:
            return True
        if modelled is None or modelled.dtype != observed.dtype or modelled.size != observed.size:
            self._fill(storage, real)
            return True
        if identical(observed, modelled):
            return True
        same = equal(observed, modelled, storage.dtype) or equal(observed, modelled, storage.dtype, scale=self._operand_scale())
        if not same:
            self.writer.disagree(step, f"storages.{storage.label}.cells", cells(observed), cells(modelled))
        modelled[...] = observed
        return same

    def _operand_scale(self) -> float:
        """The largest number that went into this call: where large numbers cancel, the rounding of the *operands* is what remains."""
        sizes = [float(np.abs(data[np.isfinite(data)]).max(initial=0.0)) * max(data.size, 1) for data in self._operands_before if data.dtype.kind in "fc"]
        return max(sizes, default=0.0)

    def _fill(self, storage: StorageRecord, real: Any) -> None:
        flat = facts.flat_values(real, self._limit)
        if flat is not None and flat.size == storage.shadow.size:
            self.engine.fill(storage.shadow, flat)

    def _pair(self, node: Any, mine: Node | None, effects: list[Effect], step: int | None = None, label: str = "") -> bool:
        """Match torch's node and everything behind it with the shadow's; new pairs get a label. False on a difference."""
        if mine is None:
            return False
        fresh: dict[Any, tuple[Any, Node]] = {}
        work: list[tuple[Any, Node]] = [(node, mine)]
        while work:
            theirs, own = work.pop()
            key = facts.node_key(theirs)
            known = fresh[key][1] if key in fresh else self.records.nodes.get(key)
            if known is own:
                continue
            children, edges = facts.next_nodes(theirs), own.next
            if known is not None or facts.node_name(theirs) != own.name or [c is None for c, _ in children] != [e is None for e, _ in edges]:
                return self._differ(step, label, theirs, own)
            fresh[key] = (theirs, own)
            work += [(child, edge) for (child, _), (edge, _) in zip(children, edges, strict=True) if child is not None and edge is not None]
        # Only a graph that fits as a whole is taken as known.
        self.records.nodes.update({key: own for key, (_, own) in fresh.items()})
        for theirs, own in sorted(fresh.values(), key=lambda pair: (pair[1].leaf is None, pair[1].sequence)):
            self.records.label_node(own)
            self._compare_saved(step, theirs, own)
            effects += self._describe_node(own, "agreed")
        return True

    def _differ(self, step: int | None, label: str, theirs: Any, own: Node) -> bool:
        if step is not None:
            observed = [facts.node_name(theirs), [None if child is None else facts.node_name(child) for child, _ in facts.next_nodes(theirs)]]
            self.writer.disagree(step, f"tensors.{label}.grad_fn", observed, [own.name, [None if edge is None else edge.name for edge, _ in own.next]])
        return False

    def _compare_saved(self, step: int | None, theirs: Any, own: Node) -> None:
        """Compare which tensors a new node saved, and at which version."""
        if step is None or own.leaf is not None or own.mirrored or own.name == "CopySlices" or not facts.may_read_saved():
            return
        observed = {slot: tensor._version for slot, tensor in facts.saved_tensors(theirs) if not tensor.is_inference()}
        modelled = {saved.name: saved for saved in own.saved}
        for slot in observed.keys() | modelled.keys():
            saved = modelled.get(slot)
            if saved is not None and (saved.own or (saved.stale and slot not in observed)):
                continue
            told = None if saved is None else saved.version
            if observed.get(slot) != told:
                self.writer.disagree(step, f"nodes.{own.name}.saved.{slot}", observed.get(slot), told)

    def _compare_plain(self, step: int, mine: Any, theirs: Any) -> None:
        kinds = (bool, int, float, str)
        if type(mine) in kinds and type(theirs) in kinds and mine != theirs:
            if isinstance(mine, float) and equal(np.array([theirs]), np.array([mine]), "float32"):
                return
            self.writer.disagree(step, "result", _jsonable(theirs), _jsonable(mine))

    def _grads(self, step: int, ran: list[Node]) -> list[Effect]:
        """After a backward: compare the gradients it left on leaves (and on tensors that retain theirs)."""
        effects: list[Effect] = []
        for node in ran:
            if node.leaf is not None:
                label = self.records.shadow_label(node.leaf)
                record = self.records.by_label.get(label) if label else None
                real = record.ref() if record is not None else None
                if record is not None and real is not None:
                    effects += self._grad(step, record, real)
        return effects

    def _grad(self, step: int, record: TensorRecord, real: Any) -> list[Effect]:
        observed = facts.grad_of(real)
        modelled = record.shadow.grad if record.shadow is not None else None
        effects: list[Effect] = []
        if observed is not None:
            known = self.records.find(observed)
            unknown = modelled is not None and modelled.storage.data is None
            if known is None and modelled is not None and self.records.shadow_label(modelled) is None:
                _, effects = self._bind(step, observed, modelled)
                known = self.records.find(observed)
                if unknown and modelled.counter is not None:
                    # Whether torch takes an unknown gradient over or copies it shows in its version: that is unknown as well.
                    modelled.counter.version = observed._version
            elif known is None:
                known, effects = self._adopt(observed, None)
            if known is not None and known.shadow is not None:
                if self._hooked and known.storage is not None:
                    self._fill(known.storage, observed)
                effects += self._check(step, known, observed)
                if record.shadow is not None and record.shadow.grad is not known.shadow:
                    self.writer.disagree(step, f"tensors.{record.label}.grad", known.label, self.records.shadow_label(record.shadow.grad))
                    self.engine.set_grad(record.shadow, known.shadow)
        elif modelled is not None and record.shadow is not None:
            self.writer.disagree(step, f"tensors.{record.label}.grad", None, "a gradient")
            self.engine.set_grad(record.shadow, None)
        return effects + self._describe(record, real, facts.read(real), "agreed")

    # ------------------------------------------------------------------ after: mirroring

    def _mirror(self, call: Call, step: int, result: Any, reason: str) -> tuple[list[str], list[Effect]]:
        """Take over what torch did: changed arguments, new results, filled gradients."""
        effects: list[Effect] = []
        for real in values.tensors((call.args, call.kwargs)):
            known = self.records.find(real)
            if known is not None and known.shadow is not None and known.shadow.counter is not None:
                seen = facts.read(real)
                if seen.version is not None and seen.version > known.shadow.counter.version:
                    stale = self.engine.bump(known.shadow.counter, seen.version - known.shadow.counter.version)
                    call.memory["stale"] = (*call.memory.get("stale", ()), *stale)
                    call.memory.setdefault("wrote", []).append(known.storage)
            base = facts.base_of(real)
            effects += self._resync(real) + (self._resync(base) if base is not None else [])
        results = []
        for real in values.tensors(result):
            record = self.records.find(real)
            if record is None:
                record, more = self._adopt(real, call.frame)
                effects += more
            results.append(record.label)
        for array in values.arrays(result):
            results += self._meet_array(array, call, effects)
        if call.name in BACKWARD:
            self._release(call)
            for record in list(self.records.by_label.values()):
                real = record.ref()
                if real is not None and record.shadow is not None and record.shadow.flag:
                    effects += self._take_grad(record, real)
        return results, effects

    def _release(self, call: Call) -> None:
        """After a backward that was not modelled: what could be reached has dropped its saved tensors, unless it was told to keep them."""
        if call.kwargs.get("retain_graph") or call.kwargs.get("create_graph"):
            return
        work = [_quiet_grad_fn(record.shadow) for real in values.tensors(call.args) if (record := self.records.find(real)) and record.shadow is not None]
        seen: set[int] = set()
        while work:
            node = work.pop()
            if node is not None and id(node) not in seen:
                seen.add(id(node))
                node.release()
                work += [edge for edge, _ in node.next]

    def _take_grad(self, record: TensorRecord, real: Any) -> list[Effect]:
        observed = facts.grad_of(real)
        effects: list[Effect] = []
        known = None
        if observed is not None:
            known = self.records.find(observed)
            if known is None:
                known, effects = self._adopt(observed, None)
            else:
                effects = self._resync(observed)
        if record.shadow is not None:
            self.engine.set_grad(record.shadow, known.shadow if known is not None else None)
        return effects + self._describe(record, real, facts.read(real), "observed")

    def _meet_array(self, array: np.ndarray, call: Call, effects: list[Effect]) -> list[str]:
        seen = array_facts(array)
        storage = self.records.covering(seen["low"], seen["high"] - seen["low"])
        if storage is None:
            return []
        effects += self._enter_array(array, storage, [], call.frame)
        record = self.records.find(array)
        return [record.label] if record is not None else []

    # ------------------------------------------------------------------ memory that changed behind torch's back

    def expect_unseen(self, program: str) -> None:
        """Watch the program's lines from the beginning if it makes tensors in ways that no mode can see."""
        self._unseen = [way for way in UNSEEN if way[0] in program]
        if self._unseen:
            self.lines.start(None)

    def line_done(self, frame: FrameType, span: Span | None) -> None:
        """A line of the learner's has run: did it write memory that torch shares, or make a tensor unseen?"""
        self._look_for_writes(span)
        for _, text, op in self._unseen if span is not None else ():
            for name, where in self.sources.targets_on(span, text):
                self._made_unseen(frame, name, where, op)

    def _made_unseen(self, frame: FrameType, name: str, where: Span, op: str) -> None:
        real = frame.f_locals.get(name, frame.f_globals.get(name))
        if not facts.is_tensor(real) or self.writer.full:
            return
        known = self.records.find(real)
        node = None if known is None else facts.node_of(real)
        if known is not None and (node is None or facts.node_key(node) in self.records.nodes):
            return
        step = self.writer.reserve()
        record, effects = (known, self._resync(real)) if known is not None else self._adopt(real, frame, (name,))
        arrays = [other.label for other, _ in self.records.live(record.storage) if other.kind == "array"] if record.storage is not None else []
        self.writer.mirrored += 1
        self.writer.put(Event(step, "call", op, where, operands=tuple(Operand(label) for label in arrays), results=(record.label,), effects=tuple(effects),
                              reason=f"{op} passes no torch function; its result was read after the line"))  # fmt: skip

    def _look_for_writes(self, span: Span | None) -> None:
        for storage in list(self.records.shared.values()):
            for record, real in self.records.live(storage):
                if record.kind != "array":
                    effects = self._sync_memory(storage, real, span, announce=True)
                    if effects:
                        break

    def _sync_memory(self, storage: StorageRecord, real: Any, span: Span | None = None, *, announce: bool) -> list[Effect]:
        """Compare the memory with what it was after the last event; a difference is a write that no version counted."""
        observed = facts.flat_values(real, self._limit)
        modelled = storage.shadow.data
        if observed is None or modelled is None or observed.dtype != modelled.dtype or observed.size != modelled.size:
            return []
        if identical(observed, modelled):
            return []
        self.engine.overwrite(storage.shadow, observed)
        effects = self._describe_storage(storage, "observed")
        if not announce:
            self._silently.append(storage)
            return effects
        op = "numpy" if storage.shared else "unseen"
        step = self.writer.reserve()
        self._writes.setdefault(storage.label, []).append(step)
        arrays = tuple(Operand(record.label) for record, _ in self.records.live(storage) if record.kind == "array")
        self.writer.put(Event(step, "write", op, span, operands=arrays, writes=(storage.label,), effects=tuple(effects)))
        return effects

    # ------------------------------------------------------------------ describing

    def _describe(self, record: TensorRecord, real: Any, seen: Facts, by: Any) -> list[Effect]:
        shadow, storage = record.shadow, record.storage
        grad = shadow.grad if shadow is not None else None
        value: dict[str, Any] = {
            "kind": record.kind, "name": record.names[-1] if record.names else None, "names": list(record.names), "shape": list(seen.shape),
            "stride": None if seen.stride is None else list(seen.stride), "offset": None if storage is None else self.records.offset(seen, storage),
            "dtype": seen.dtype, "device": seen.device, "storage": storage.label if storage else None,
            "counter": self.records.counter_label(shadow.counter) if shadow is not None and not seen.inference else None,
            "requires_grad": seen.requires_grad, "is_leaf": seen.is_leaf,
            "grad_fn": self.records.node_label(_quiet_grad_fn(shadow)) if shadow is not None else None,
            "base": self.records.shadow_label(shadow.base) if shadow is not None else None,
            "grad": self.records.shadow_label(grad), "born": record.born, "alive": True,
        }  # fmt: skip
        effects = self.writer.changes(f"tensors.{record.label}", value, by)
        node = f"nodes.{value['grad_fn']}"
        if value["grad_fn"] and self.writer.known(node) and self.writer.last(node)["output"] is None:
            effects += self.writer.changes(node, {"output": record.label}, by)
        if value["counter"] and seen.version is not None:
            bumped = self.writer.changes(f"counters.{value['counter']}", seen.version, by)
            if bumped:
                self._bumps.setdefault(value["counter"], []).append((max(len(self.writer.events) - 1, 0), seen.version))
            effects = bumped + effects
        return effects

    def _describe_array(self, record: TensorRecord, array: np.ndarray) -> list[Effect]:
        seen, storage = array_facts(array), record.storage
        offset = (seen["pointer"] - storage.pointer) // seen["itemsize"] if storage is not None else None
        value = {
            "kind": "array", "name": record.names[-1] if record.names else None, "names": list(record.names), "shape": seen["shape"], "stride": seen["stride"],
            "offset": offset, "dtype": seen["dtype"], "device": "cpu", "storage": storage.label if storage else None, "counter": None,
            "requires_grad": False, "is_leaf": True, "grad_fn": None, "base": None, "grad": None, "born": record.born, "alive": True,
        }  # fmt: skip
        return self.writer.changes(f"tensors.{record.label}", value, "observed")

    def _describe_storage(self, record: StorageRecord, by: Any) -> list[Effect]:
        value = {"size": record.shadow.size, "dtype": record.dtype, "nbytes": record.nbytes, "cells": cells(record.shadow.data), "alive": True}
        return self.writer.changes(f"storages.{record.label}", value, by)

    def _describe_node(self, node: Node, by: Any) -> list[Effect]:
        saved = [
            {
                "name": s.name, "tensor": self._saved_label(s), "storage": None if s.own else self.records.storage_label(s.storage),
                "counter": None if s.own else self.records.counter_label(s.counter), "version": s.version,
            }
            for s in node.saved
        ]  # fmt: skip
        value = {
            "name": node.name, "next": [self.records.node_label(edge) for edge, _ in node.next], "born": max(len(self.writer.events) - 1, 0),
            "output": self.records.shadow_label(node.leaf) if node.leaf is not None else None, "saved": saved, "freed": False, "ran": None,
            "gradient": None, "gradient_shape": None,
        }  # fmt: skip
        return self.writer.changes(f"nodes.{self.records.node_label(node)}", value, by)

    def _saved_label(self, saved: Saved) -> str | None:
        if saved.own:
            return None
        return self.records.shadow_label(saved.tensor) or self._output_label(self.records.storage_label(saved.storage), saved)

    def _deaths(self) -> list[Effect]:
        tensors, storages = self.records.bury()
        effects = []
        for label in tensors:
            if self.writer.known(f"tensors.{label}"):
                effects.append(Effect(f"tensors.{label}.alive", False))
                self.writer.forget(f"tensors.{label}")
        for label in storages:
            effects.append(Effect(f"storages.{label}.alive", False))
            self.writer.forget(f"storages.{label}")
        return effects

    def _mode(self, call: Call) -> None:
        value = {"grad": call.grad, "inference": call.inference}
        if not self.writer.known("mode"):
            self.writer.changes("mode", {"grad": True, "inference": False}, "observed")
        self._pending += self.writer.changes("mode", value, "observed")

    def composed(self, call: Call, result: Any) -> None:
        """A composite told in parts has returned: its result gets the name it is assigned to."""
        labels = [record.label for real in values.tensors(result) if (record := self.records.find(real)) is not None]
        self._name_results(call, labels, self._pending, len(self.writer.events))

    def _name_results(self, call: Call, results: list[str], effects: list[Effect], step: int) -> None:
        """Name the result by what it is assigned to. Inside a module's call every step looks like the result until the next one."""
        if call.span is None or len(results) != 1 or (not call.direct and _is_being_built(call.frame)):
            return
        name, record = self.sources.target(call.span), self.records.by_label.get(results[0])
        if name is None or record is None:
            return
        at, span, before = self._named
        if before is not None and span == call.span and at == step - 1 and before is not record and before.names[-1:] == [name]:
            before.names.pop()
            effects += self._renamed(before)
        self._named = (step, call.span, record)
        if record.names[-1:] != [name]:
            record.names.append(name)
            effects += self._renamed(record)

    def _renamed(self, record: TensorRecord) -> list[Effect]:
        value = {"name": record.names[-1] if record.names else None, "names": list(record.names)}
        return self.writer.changes(f"tensors.{record.label}", value, "observed") if self.writer.known(f"tensors.{record.label}") else []

    def _operands(self, call: Call) -> tuple[Operand, ...]:
        found = [self._operand(value, "") for value in call.args] + [self._operand(value, key) for key, value in call.kwargs.items()]
        shown = itertools.chain.from_iterable(found)
        # torch's Python functions pass their defaults on; nobody wrote them.
        return tuple(operand for operand in shown if operand.label or operand.text not in ("None", "False"))

    def _operand(self, value: Any, name: str) -> list[Operand]:
        if facts.is_tensor(value):
            record = self.records.find(value)
            return [Operand(record.label if record else None, "" if record else "<tensor>", name)]
        inside = list(itertools.islice(values.tensors(value), 65))
        if inside:
            labels = [record.label for real in inside[:64] if (record := self.records.find(real)) is not None]
            return [Operand(label, "", name) for label in labels]
        return [Operand(None, values.text(value), name)]

    def _written(self, call: Call, applied: Applied | None, step: int) -> tuple[str, ...]:
        storages = [self.records.storage_label(storage) for storage in applied.writes] if applied is not None else []
        storages += [storage.label for storage in call.memory.get("wrote", []) if storage is not None]
        storages += [storage.label for storage in self._silently]
        self._silently.clear()
        labels = tuple(dict.fromkeys(label for label in storages if label))
        for label in labels:
            self._writes.setdefault(label, []).append(step)
        return labels

    # ------------------------------------------------------------------ backward: nodes, failures, forecasts, harm

    def _ran(self, parent: int, span: Span | None, ran: Any) -> None:
        for run in ran:
            label = self.records.node_label(run.node)
            if label is None:
                continue
            step = self.writer.reserve()
            gradient = None if run.gradient is None else cells(np.asarray(run.gradient))
            path = f"nodes.{label}"
            effects = [Effect(f"{path}.ran", step, "modelled"), Effect(f"{path}.gradient", gradient, "modelled"),
                       Effect(f"{path}.gradient_shape", list(run.shape), "modelled")]  # fmt: skip
            if run.node.freed and run.node.leaf is None:
                effects.append(Effect(f"{path}.freed", True, "modelled"))
            self.writer.put(Event(step, "node", run.node.name, span, parent=parent, effects=tuple(effects), by="modelled"))

    def _stopped_at(self, parent: int, span: Span | None, node: Node, failure: Failure) -> None:
        label = self.records.node_label(node)
        if label is not None and failure.kind in ("saved-tensor-modified", "backward-twice"):
            step = self.writer.reserve()
            self.writer.put(Event(step, "node", node.name, span, parent=parent, effects=(Effect(f"nodes.{label}.ran", step, "modelled"),), by="modelled", error=failure))

    def _failure(self, error: BaseException, message: str, predicted: ShadowError | None, step: int, span: Span | None) -> Failure:
        failure = Failure(type(error).__name__, message, "other", step, span)
        if predicted is None:
            return failure
        failure = replace(failure, kind=predicted.kind, tensor=self.records.shadow_label(predicted.tensor), node=self.records.node_label(predicted.node))
        if predicted.saved is not None:
            failure = replace(failure, **self._saved_facts(predicted.saved))
        return replace(failure, expected=predicted.expected, found=predicted.found)

    def _saved_facts(self, saved: Saved) -> dict[str, Any]:
        counter = self.records.counter_label(saved.counter)
        node = self.records.node_label(saved.node)
        born = (self.writer.last(f"nodes.{node}") or {}).get("born")
        storage = self.records.storage_label(saved.storage)
        tensor = self._saved_label(saved)
        changed = tuple(step for step, version in self._bumps.get(counter or "", ()) if version > saved.version)
        return {"saved": saved.name, "tensor": tensor, "storage": storage, "counter": counter, "saved_at": born, "changed_at": changed}

    def _output_label(self, storage: str | None, saved: Saved) -> str | None:
        """A saved output is kept without its object: find the living tensor that looks at the same place."""
        record = self.records.storages.get(storage or "")
        for other, _ in self.records.live(record) if record is not None else ():
            shadow = other.shadow
            if shadow is not None and (shadow.offset, shadow.shape, shadow.stride) == (saved.offset, saved.shape, saved.stride):
                return other.label
        return None

    def _forecasts(self, step: int, applied: Applied | None, mirrored: Any) -> tuple[Forecast, ...]:
        found = []
        for node, saved in itertools.chain(applied.stale if applied is not None else (), mirrored):
            label = self.records.node_label(node)
            if label is None or (label, saved.name) in self._forecast_at:
                continue
            message = _foretold(node, saved)
            failure = Failure("RuntimeError", message, "saved-tensor-modified", node=label, expected=saved.version,
                              found=saved.counter.version if saved.counter else None)  # fmt: skip
            self._forecast_at[(label, saved.name)] = (step, len(found))
            found.append(Forecast(step, replace(failure, **self._saved_facts(saved))))
        return tuple(found)

    def _came_true(self, failure: Failure, step: int) -> None:
        place = self._forecast_at.get((failure.node or "", failure.saved or ""))
        if place is None or failure.kind != "saved-tensor-modified":
            return
        at, index = place
        event = self.writer.events[at]
        if event is not None and index < len(event.forecasts):
            forecasts = list(event.forecasts)
            forecasts[index] = replace(forecasts[index], came_true=step, failure=replace(forecasts[index].failure, message=failure.message))
            self.writer.amend(at, forecasts=tuple(forecasts))

    def _harm(self, step: int, harm: Any) -> Harm:
        causes = []
        for node, saved in harm.causes:
            known = self._saved_facts(saved)
            storage = known["storage"] or ""
            changed = tuple(at for at in self._writes.get(storage, ()) if known["saved_at"] is None or at > known["saved_at"])
            causes.append(StaleRead(self.records.node_label(node) or "", saved.name, storage, known["saved_at"], changed))
        return Harm(step, self.records.shadow_label(harm.leaf) or "", cells(_array(harm.torch)), cells(_array(harm.meant)), tuple(causes))

    def _note_hook(self, call: Call) -> None:
        """Hooks may change gradients: from now on their numbers are torch's, not ours."""
        if call.name in HOOKS:
            self._hooked = True


class TooLong(Exception):
    """The trace has reached its size limit."""

    def __str__(self) -> str:
        return f"the trace has {EVENT_LIMIT} steps, its limit"


def _is_being_built(frame: FrameType) -> bool:
    """Whether library code that the learner's ``frame`` called is inside a constructor: what it makes is a part of the result."""
    walk: FrameType | None = sys._getframe(1)
    while walk is not None and walk is not frame:
        if walk.f_code.co_name in ("__init__", "reset_parameters") and walk.f_globals.get("__name__") != __name__:
            return True
        walk = walk.f_back
    return False


def _is_one_step(name: str) -> bool:
    """Whether a Python function of torch's stays whole in the trace even when it has no model. A loss is one thing to a learner."""
    return name in ATOMIC or name in BACKWARD or name.endswith("_loss")


def _quiet_grad_fn(shadow: ShadowTensor) -> Node | None:
    try:
        return shadow.grad_fn
    except ShadowError:
        return None


def _shadows(value: Any) -> Any:
    if isinstance(value, ShadowTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _shadows(item)


def _is_same_error(predicted: ShadowError | None, error: BaseException, message: str) -> bool:
    """Whether two texts tell of one failure and differ in a detail: the disagreement is recorded, and the failure still explained."""
    return predicted is not None and predicted.type_name == type(error).__name__ and predicted.message[:60] == message[:60]


def _first_sentence(message: str) -> str:
    return message.split(" Hint:")[0].strip()


def _foretold(node: Node, saved: Saved) -> str:
    try:
        saved.check(node)
    except ShadowError as error:
        return error.message
    return ""


def _array(value: Any) -> np.ndarray | None:
    return None if value is None else np.asarray(value)


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value if isinstance(value, (bool, int, float, str, type(None), list)) else str(value)


__all__ = ["Lockstep", "T"]
