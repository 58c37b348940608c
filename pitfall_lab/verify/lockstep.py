"""Lockstep: the shadow runs each call first, then torch runs it, then the two are compared.

This is the one place where the two engines meet. The shadow is always one call ahead, so that what it says of a call is a
prediction. Where it has no model, torch's result is taken over ("mirrored"); where it turns out wrong, the difference is
written down as a disagreement and torch's facts are taken over as well, so that one slip is not counted a hundred times.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, private, regions, release, tensor_facts
from pitfall_lab.observe.line_watch import LineWatch
from pitfall_lab.observe.other_threads import Elsewhere
from pitfall_lab.observe.recorder import BACKWARD, Call, Verdict, reason_of
from pitfall_lab.observe.refused_call import origin_of, refused_call
from pitfall_lab.observe.regions import Region
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.shadow import Applied, Engine, ShadowError
from pitfall_lab.trace import By, Cause, Effect, Event, Failure, Forecast, Note, Span, T, Trace
from pitfall_lab.verify import earlier_graphs
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.backward_stops import Listening
from pitfall_lab.verify.catching_up import Meeting
from pitfall_lab.verify.compare_memory import Memory
from pitfall_lab.verify.compare_versions import Versions
from pitfall_lab.verify.comparison import Comparison
from pitfall_lab.verify.description import Description, quiet_grad_fn
from pitfall_lab.verify.fastpath.call_keys import MODE
from pitfall_lab.verify.fastpath.lane import DEEP, Express
from pitfall_lab.verify.forecasts import Forecasts
from pitfall_lab.verify.mirroring import Mirroring
from pitfall_lab.verify.opaque_regions import Passing
from pitfall_lab.verify.optimizer_records import Optimizers
from pitfall_lab.verify.outcomes import Outcomes, is_as_predicted, is_same_error
from pitfall_lab.verify.pairing import Pairing
from pitfall_lab.verify.prediction import HOOKS, predict, undecided
from pitfall_lab.verify.reach import Extent
from pitfall_lab.verify.result_names import Naming
from pitfall_lab.verify.shared_state import World
from pitfall_lab.verify.unseen_tensors import Unseen
from pitfall_lab.verify.writer import EVENT_LIMIT, METADATA_LIMIT, TooLong

DEEPCOPY = "torch.Tensor.__deepcopy__"
INDEXING = frozenset({"torch.Tensor.__getitem__", "torch.Tensor.__setitem__"})
#: Python functions of torch's that are one step for the learner even when the shadow has no entry for them.
ATOMIC = HOOKS | {"torch.Tensor.__array__", DEEPCOPY}
BETWEEN = "another thread or process ran meanwhile, and may have changed what this call works with"
#: A loss that calls a function of the learner's.
CALLS_BACK = frozenset({"torch.nn.functional.triplet_margin_with_distance_loss"})


class Lockstep:
    """A :class:`pitfall_lab.observe.Listener` that writes a trace.

    Between ``before`` and ``after`` a call's ``memory`` holds its ``step``, ``effects`` so far, ``parent``, the ``reason`` why it
    was not modelled (or ""), what the shadow ``applied`` or ``predicted``, and what mirroring found ``stale`` and ``wrote``.
    """

    last_failure: tuple[str, str, Failure] | None = None
    """The type, the text and the facts of the last error that a call raised."""

    def __init__(self, sources: SourceMap, value_limit: int = 4096, limit: int | None = None, *, looks_at_gradients: bool = False) -> None:
        self.lines = LineWatch(sources, self.line_done)
        engine = Engine(value_limit=value_limit, release=release.RUNNING)
        self._world = world = World(sources, self.lines, value_limit, engine, Elsewhere(sources))
        world.writer.limit = limit or (METADATA_LIMIT if value_limit < 0 else EVENT_LIMIT)
        self._engine, self._writer, self._records = world.engine, world.writer, world.records
        self._extent = Extent(world.writer)
        self._describe = describe = Description(world)
        self._memory = Memory(world, describe)
        pairing, adoption = Pairing(world, describe), Adoption(world, describe)
        self._meeting = Meeting(world, describe, memory=self._memory, pairing=pairing, adoption=adoption)
        self._unseen = Unseen(world, describe, self._memory, adoption, self._meeting)
        self._passing = Passing(world, adoption, self._meeting)
        self._comparison = Comparison(
            world, describe, memory=self._memory, pairing=pairing, adoption=adoption, meeting=self._meeting
        )
        self._mirroring = Mirroring(world, describe, adoption, self._meeting)
        self._outcomes, self._forecasts, self._naming = Outcomes(world, describe), Forecasts(world, describe), Naming(world, describe)
        self.elsewhere = world.elsewhere
        self._versions = Versions(world)
        self._engine.asks = True
        world.writer.notes += release.notes()
        self._optimizers = Optimizers(self.label)
        self._looks_at_gradients = looks_at_gradients
        self._inside: list[Listening] = []
        self._parents: list[int] = []
        self._pending: list[Effect] = []
        # The lane tells a node by its sequence number.
        has_lane = private.has_sequence and private.next_sequence is not None
        self.lane: Express | None = Express(world, self._naming, adoption, self._memory, self) if has_lane else None

    def is_free(self) -> bool:
        """Whether nothing waits to be told with the next call, and the trace has room for one."""
        if self._parents or self._pending or len(self._writer.events) >= self._writer.limit:
            return False
        # NumPy code may have written memory that it shares: that is looked for before each call.
        return self._world.limit < 0 or (not self._records.shared and self._memory.is_silent)

    def may_meet(self) -> bool:
        """Whether nothing is to be told, or looked for, before the operands of the next call are met."""
        return self.is_free() and not self._passing.is_open and not self._records.shared and not regions.possible()

    def expect_unseen(self, program: str) -> None:
        """Prepare for a program that makes tensors in ways that no mode can see."""
        self._unseen.expect(program)
        # Nothing tells of hooks that are put on nodes, or on what a node saved.
        on_nodes = "register_hook(" in program and ("grad_fn" in program or "next_functions" in program)
        self._engine.suspicious = on_nodes or "register_prehook(" in program or "_raw_saved" in program

    def line_done(self, frame: FrameType, span: Span | None) -> None:
        """A line of the learner's has run."""
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        self._unseen.line_done(frame, span)

    # ------------------------------------------------------------------ the listener

    def before(self, call: Call) -> Verdict:
        """Let the shadow do the call first."""
        if self._writer.full:
            raise TooLong(self._writer.limit)
        lane = self.lane
        if lane is not None:
            lane.kinds.epoch += 1
        engine = self._engine
        engine.grad_enabled, engine.inference = call.grad, call.inference
        engine.packs = tensor_facts.packs()
        if call.name in BACKWARD:
            engine.checks_nan = tensor_facts.checks_nan()
        self._passing.leave(call.frame, (call.args, call.kwargs), parent=self._parents[-1] if self._parents else None)
        self._note_mode(call)
        self._unseen.before(call)
        self._look_again()
        step = self._writer.reserve()
        if call.name in HOOKS:
            self._wake(call.args[0], step)
        effects = self._meet(call, step)
        call.memory.update(step=step, effects=effects, parent=self._parents[-1] if self._parents else None)
        if lane is not None:
            lane.planning.study(call)
        reason = predict(self._world, call)
        if lane is not None:
            lane.planning.modelled(call.memory.get("applied"), reason)
        if reason and call.composite and not _is_one_step(call.name):
            self._pending += effects
            self._writer.drop(step)
            return Verdict.OPEN
        call.memory["reason"] = reason
        if call.name in BACKWARD:
            applied: Applied | None = call.memory.get("applied")
            if applied is not None and applied.waiting is not None:
                call.memory["listening"] = Listening(self._world, call, applied.waiting)
                self._inside.append(call.memory["listening"])
            self._parents.append(step)
            return Verdict.INSIDE
        return Verdict.RUN

    def _look_again(self) -> None:
        """If another thread has used torch, meet anew what it may have changed."""
        if not self.elsewhere.happened:
            return
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        self._pending += self._unseen.look_again() + self._mirroring.take_gradients()

    def _meet(self, call: Call, step: int) -> list[Effect]:
        """Meet the operands of a call; returns what has happened to them since they were last seen."""
        if call.name == DEEPCOPY:
            call.args = call.args[:1]  # what has been copied already is no operand
            self.asked(call.args[0])
        elif call.name in INDEXING:
            call.args = tuple(map(argument_values.index_of, call.args))
        met = self.lane.kinds.met if self.lane is not None else {}
        effects = met.pop(MODE, [])
        for real in argument_values.tensors((call.args, call.kwargs)):
            effects += met.pop(id(real)) if id(real) in met else self._gradient_in_hand(step, real) or self._meeting.meet(real, call.frame)
        met.clear()
        return effects

    def asked(self, real: Any) -> None:
        """The program asks a tensor for its history: a view that passes for a leaf gets its own, in torch and here."""
        record = self._records.find(real)
        if record is not None and record.shadow is not None and record.shadow.sleeps:
            quiet_grad_fn(record.shadow, wakes=True)

    def _wake(self, real: Any, step: int) -> None:
        """A view that sleeps is about to get a hook. Torch (2.13) writes its history while it puts the hook on, and crashes."""
        record = self._records.find(real)
        if record is None or record.shadow is None or not record.shadow.sleeps:
            return
        tensor_facts.node_of(real)
        self.asked(real)
        en = (
            "Alone, torch crashes here: this is a view whose base has got a history since, and nobody has asked for its grad_fn before "
            "it gets a hook. Recorded, it was asked."
        )
        zh = (
            "单独运行时 torch 会在这里崩溃：这是一个视图，它的 base 后来有了历史，而在注册钩子之前没有人读过它的 grad_fn。"
            "记录时已先读取。"
        )
        self._writer.notes.append(Note("limit", en, zh, step))

    def after(self, call: Call, result: Any) -> None:
        """Compare what torch did with what the shadow said."""
        step, effects = self._resume(call, failed=False)
        applied = self._done_ahead(call, step)
        ok, reason = False, ""
        if applied is not None:
            results, ok, more = self._comparison.compare(call, step, applied, result)
            ok &= self._versions.after_writes(step, applied.writes)
            if self.lane is not None:
                self.lane.kinds.epoch += 1
                if ok:
                    self.lane.planning.learn(call, applied, result, more, self._naming.operands(call))
        else:
            results, more = self._mirroring.mirror(call, result)
            reason = call.memory["reason"]
            if self.lane is not None:
                self.lane.kinds.epoch += 1
                self.lane.planning.observe(call, result, [*results, *more], self._naming.operands(call))
        effects += more
        self._count(call, agrees=ok)
        effects += self._naming.name_results(call, results, step)
        writes = self._memory.written(step, applied, call.memory.get("wrote", ()))
        forecasts = self._forecast(call, step, applied)
        self._put(call, effects, "agreed" if ok else "observed", reason, results=tuple(results), writes=writes, forecasts=forecasts)
        if self._looks_at_gradients and call.name in BACKWARD:
            self._look_at_gradients(step)
        if applied is not None and (applied.ran or applied.passed):
            self._outcomes.nodes_ran(step, call.span, applied)
            harms = self._outcomes.harms(step, applied)
            if harms:
                self._writer.amend(step, harms=harms)

    def _done_ahead(self, call: Call, step: int) -> Applied | None:
        """What the shadow did before torch returned, where that can be compared with what torch did."""
        applied: Applied | None = call.memory.get("applied")
        predicted: ShadowError | None = call.memory.get("predicted")
        if self.elsewhere.happened:
            call.memory["reason"] = call.memory["reason"] or BETWEEN
            return None
        if predicted is not None:
            self._writer.disagree(step, "outcome", "returned", f"{predicted.type_name}: {predicted.message}")
            return None
        if applied is not None and call.name == "torch.autograd.grad" and any(node.mirrored for node in applied.nodes_run):
            # Which gradients come back at all, and which objects they are, is then not ours to say.
            call.memory["reason"] = "backward went through a node without a model"
            return None
        return applied

    def composed(self, call: Call, result: Any) -> None:
        """A composite told in parts has returned: its result gets the name it is assigned to."""
        labels = [record.label for real in argument_values.tensors(result) if (record := self._records.find(real)) is not None]
        self._pending += self._naming.name_results(call, labels, len(self._writer.events))

    def failed(self, call: Call, error: BaseException) -> None:
        """Torch (or the learner's hook) raised: was it what the shadow said?"""
        step, effects = self._resume(call, failed=True, by_engine=tensor_facts.is_of_engine(error))
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        message = str(error)
        predicted: ShadowError | None = self._expected(call, error, message)
        if self.elsewhere.happened:
            call.memory["reason"] = call.memory["reason"] or BETWEEN
        if predicted is None and isinstance(error, Warning):
            call.memory["reason"] = call.memory["reason"] or "the program's filters turn warnings into errors"
        right = is_as_predicted(predicted, error, message)
        if predicted is None and not call.memory["reason"]:
            call.memory["reason"] = undecided(self._world, call, message)
        if not right and not call.memory["reason"] and any(node.mirrored for node in self._engine.applied().nodes_run):
            call.memory["reason"] = "backward went through a node without a model"
        self._count(call, agrees=right)
        if not call.memory["reason"] and not right:
            said = "returned" if predicted is None else f"{predicted.type_name}: {predicted.message}"
            self._writer.disagree(step, "outcome", f"{type(error).__name__}: {message}", said)
        explained = predicted if right or is_same_error(predicted, error, message) else None
        failure = self._outcomes.failure(error, message, explained, step, call.span)
        given = refused_call(call, self._world.sources, self.label)
        failure = replace(failure, origin=origin_of(error, self._world.sources), op=call.name, given=given)
        if call.name in BACKWARD:
            failure, more = earlier_graphs.explained(self._records, call, failure)
            effects += more
        ran = self._ran(call) if right and call.name in BACKWARD else Applied()
        for real in argument_values.tensors((call.args, call.kwargs)):
            base = None if right else tensor_facts.base_of(real)  # a write that only the shadow has done is in its history
            effects += (self._meeting.catch_up(base) if base is not None else []) + self._meeting.catch_up(real)
        if call.name in BACKWARD:  # leaves that were reached before it failed have got theirs
            effects += self._mirroring.take_gradients()
        agreed = right and not call.memory["reason"]
        harms = self._outcomes.harms(step, predicted.applied) if right and predicted is not None else ()
        self._put(call, effects, "agreed" if agreed else "observed", call.memory["reason"], error=failure, harms=harms)
        self._tell_nodes(step, call.span, ran, predicted if right else None, failure)
        self._forecasts.came_true(failure, step)
        self.last_failure = (type(error).__name__, message, failure)

    def passed_over(self, region: Region, span: Span | None, scope: tuple[str, ...]) -> None:
        """Torch is inside a function that it runs as one thing: one step, whatever happens in there."""
        self._passing.enter(region, span, scope)

    def cut_short(self, call: Call, _error: BaseException) -> None:
        """Tell of a call that was recomputed only for what it saves."""
        _, effects = self._resume(call, failed=True)
        call.memory["reason"] = "torch ended the recomputation here: it has all that backward needs"
        self._count(call, agrees=False)
        self._put(call, effects, "observed", call.memory["reason"])

    def stopped(self, cause: Cause, reason: T, span: Span | None) -> None:
        """Note that the recording ended early; the program goes on without us."""
        self._extent.stop(cause, reason, span)
        with contextlib.suppress(Exception):  # what failed may fail again, and the program must not notice
            self.lines.stop()
            self._parents.clear()
            for listening in self._inside:
                listening.finish(failed=True)

    def missed(self, span: Span | None) -> None:
        """The program made a call after the recording had ended."""
        self._extent.missed(span)

    def stepping(self, optimizer: Any, span: Span | None) -> None:
        """Note what an optimizer holds that is about to step."""
        self._optimizers.stepping(optimizer, len(self._writer.events), span)

    def given(self, optimizer: Any, parameter: Any, span: Span | None) -> None:
        """Note what an optimizer is given."""
        self._optimizers.given(optimizer, parameter, len(self._writer.events), span)

    def swapping(self, one: Any, other: Any, frame: FrameType) -> None:
        """Two tensors are about to swap what they are."""
        self._unseen.swapping(one, other, frame)

    def swapped(self, one: Any, other: Any, frame: FrameType) -> None:
        """They have."""
        if self.lane is not None:
            self.lane.close()  # plans take it that a leaf keeps its AccumulateGrad
        self._unseen.swapped(one, other, frame)

    def process_started(self, frame: FrameType) -> None:
        """The program has started another process."""
        self._unseen.process_started(frame)

    def label(self, real: Any) -> str | None:
        """What the trace calls a live tensor, or None."""
        record = self._records.find(real)
        return record.label if record is not None else None

    def finish(self, failure: Failure | None) -> Trace:
        """Return the trace of the program that has just ended."""
        self.lines.stop()
        if (why := self.lines.missed) is not None:
            en = f"Not all lines were looked at for writes that pass no torch function, such as NumPy's, because {why.en}."
            zh = f"并非每一行都检查过不经 torch 函数的写入（例如 NumPy 的写入），原因：{why.zh}。"
            self._writer.notes.append(Note("unseen", en, zh))
        try:
            self._passing.leave(None, (), failure)
        except Exception as error:
            if not any(note.kind == "stopped" for note in self._writer.notes):
                self._extent.stop("failure", reason_of(error), None)
        self._unseen.note_threads()
        self._unseen.note_compiled()
        if not self._writer.full and not any(note.kind == "stopped" for note in self._writer.notes):
            self._versions.at_the_end()
        optimizers = self._optimizers.made()
        return self._writer.finish(
            self._world.sources.sources, failure, tensor_facts.environment(), self._extent.told(),
            steps=self._optimizers.steps, optimizers=optimizers,
        )  # fmt: skip

    # ------------------------------------------------------------------ what the listener's methods share

    def _resume(self, call: Call, *, failed: bool, by_engine: bool = False) -> tuple[int, list[Effect]]:
        """Take a call up again that has just ended: its step, and the effects that were found before it ran."""
        if call.name in BACKWARD:
            self._parents.pop()
            if self.lane is not None:
                self.lane.deep = self._records.node_count + DEEP
        listening: Listening | None = call.memory.get("listening")
        if listening is not None:
            self._inside.remove(listening)
            call.memory["applied"] = listening.finish(failed=failed, by_engine=by_engine)
        effects: list[Effect] = self._pending + call.memory["effects"]
        self._pending = []
        return call.memory["step"], effects

    def _expected(self, call: Call, error: BaseException, message: str) -> ShadowError | None:
        """The error that the shadow named: as certain, or as what the program's own code would get if it asked."""
        predicted: ShadowError | None = call.memory.get("predicted")
        listening: Listening | None = call.memory.get("listening")
        if predicted is not None:
            return predicted
        if listening is None or listening.waiting.stop is None:
            if self._engine.packs:
                call.memory["reason"] = call.memory["reason"] or "a saved-tensor hook of the program's raised it"
            return None
        if is_as_predicted(listening.refusal, error, message):
            return listening.refusal
        call.memory["reason"] = "code of the program's own, or of a node without a model, raised it"
        return None

    def _gradient_in_hand(self, step: int, real: Any) -> list[Effect]:
        """Inside a hook an unknown tensor may be the gradient that the shadow waits with."""
        if not self._inside or self._records.find(real) is not None:
            return []
        shadow = self._inside[-1].recognise(real)
        return [] if shadow is None else self._comparison.bind(step, real, shadow)

    def _note_mode(self, call: Call) -> None:
        if not self._writer.known("mode"):
            self._writer.changes("mode", {"grad": True, "inference": False}, "observed")
        self._pending += self._writer.changes("mode", {"grad": call.grad, "inference": call.inference}, "observed")
        if self.lane is not None:
            self.lane.kinds.grad, self.lane.kinds.inference = call.grad, call.inference

    def _count(self, call: Call, *, agrees: bool) -> None:
        """Count the call as mirrored, or as checked and perhaps agreed."""
        if call.memory["reason"]:
            self._writer.mirrored += 1
        else:
            self._writer.checked += 1
            self._writer.agreed += agrees

    def _forecast(self, call: Call, step: int, applied: Applied | None) -> tuple[Forecast, ...]:
        modelled = applied.stale if applied is not None else ()
        return self._forecasts.forecast(step, itertools.chain(modelled, call.memory.get("stale", ())))

    def _ran(self, call: Call) -> Applied:
        """What a failing backward did: the nodes that it ran."""
        applied: Applied | None = call.memory.get("applied")
        return self._engine.applied() if applied is None else applied

    def _look_at_gradients(self, step: int) -> None:
        """Say once that a gradient has become NaN or infinite."""
        leaves = (record() for record in self._records.by_mark.values() if record.shadow is not None and record.shadow.flag)
        if not tensor_facts.are_finite(grad for real in leaves if real is not None and (grad := tensor_facts.grad_of(real)) is not None):
            self._looks_at_gradients = False
            en = "A gradient became NaN or infinite here; only a recording with numbers tells where that came from."
            zh = "这里有梯度变成了 NaN 或无穷大；只有带数值的记录才能说明它从何而来。"
            self._writer.notes.append(Note("limit", en, zh, step))

    def _put(self, call: Call, effects: list[Effect], by: By, reason: str, **ending: Any) -> None:
        """Write the call's event; ``ending`` is what only calls that returned, or only calls that failed, have."""
        self._writer.put(
            Event(
                call.memory["step"], "call", call.name, call.span, call.scope, call.memory["parent"], self._naming.operands(call),
                effects=(*effects, *self._describe.deaths()), by=by, reason=reason, **ending,
            )
        )  # fmt: skip

    def _tell_nodes(self, step: int, span: Span | None, ran: Applied, predicted: ShadowError | None, failure: Failure) -> None:
        """Tell of the nodes that a failing backward ran; the one that failed gets an event of its own."""
        if predicted is not None and ran.nodes_run and ran.nodes_run[-1] is predicted.node:
            ran = ran._replace(ran=ran.ran[:-1], passed=ran.passed[:-1])
        self._outcomes.nodes_ran(step, span, ran)
        if predicted is not None and predicted.node is not None:
            self._outcomes.node_failed(step, span, predicted.node, failure)


def _is_one_step(name: str) -> bool:
    """Whether a Python function of torch's stays whole in the trace even when it has no model. A loss is one thing to a learner."""
    return name in ATOMIC or name in BACKWARD or (name.endswith("_loss") and name not in CALLS_BACK)


__all__ = ["Lockstep"]
