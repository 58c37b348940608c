"""The listener that runs the shadow and torch in lockstep (:class:`Lockstep`): the shadow computes each call first,
then torch, then both are compared.

Because the shadow always runs before torch, its result for a call is a prediction. For a call without a model, torch's
result is copied into the shadow ("mirrored"). If a prediction is wrong, the difference is recorded as a disagreement
and torch's facts are copied as well, so that one mistake is not counted again in every later call.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace
from types import FrameType
from typing import Any

from pitfall_lab.observe import argument_values, private, regions, release, tensor_facts
from pitfall_lab.observe.line_watch import LineWatch
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.lookups import Kind
from pitfall_lab.observe.optimizer_watch import STEPS, Pace
from pitfall_lab.observe.other_threads import OtherThreads
from pitfall_lab.observe.paired_numbers import Pairs
from pitfall_lab.observe.recorder import BACKWARD, Call, Verdict, reason_of
from pitfall_lab.observe.refused_call import origin_of, refused_call
from pitfall_lab.observe.regions import Region
from pitfall_lab.observe.rounds import Rounds, living_nodes
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.shadow import Applied, Engine, ShadowError
from pitfall_lab.trace import By, Cause, Effect, Event, Failure, Forecast, Hashed, Note, Span, T, Trace
from pitfall_lab.verify import earlier_graphs
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.backward_stops import Listening
from pitfall_lab.verify.beside_calls import BesideCalls
from pitfall_lab.verify.catching_up import CatchingUp
from pitfall_lab.verify.compare_memory import MemoryComparison
from pitfall_lab.verify.compare_versions import Versions
from pitfall_lab.verify.comparison import Comparison
from pitfall_lab.verify.description import Description, quiet_grad_fn
from pitfall_lab.verify.fastpath.call_keys import MODE
from pitfall_lab.verify.fastpath.lane import DEEP, FastLane
from pitfall_lab.verify.finite_watch import NAN, Finite, FiniteWatch, NoWatch, state_of
from pitfall_lab.verify.forecasts import Forecasts
from pitfall_lab.verify.mirroring import Mirroring
from pitfall_lab.verify.opaque_regions import Passing
from pitfall_lab.verify.optimizer_records import Optimizers
from pitfall_lab.verify.outcomes import Outcomes, is_as_predicted, is_same_error
from pitfall_lab.verify.pairing import Pairing
from pitfall_lab.verify.prediction import HOOKS, predict, undecided
from pitfall_lab.verify.reach import Extent, rounds_note
from pitfall_lab.verify.result_names import Naming
from pitfall_lab.verify.shared_state import World
from pitfall_lab.verify.unseen_tensors import Unseen
from pitfall_lab.verify.writer import EVENT_LIMIT, METADATA_LIMIT, TooLong

DEEPCOPY = "torch.Tensor.__deepcopy__"
INDEXING = frozenset({"torch.Tensor.__getitem__", "torch.Tensor.__setitem__"})
#: Python functions of torch that are recorded as one step even when the shadow has no entry for them.
ATOMIC = HOOKS | {"torch.Tensor.__array__", DEEPCOPY}
BETWEEN = "another thread or process ran at the same time and may have changed this call's operands"
#: Loss functions that call a function supplied by the program.
CALLS_BACK = frozenset({"torch.nn.functional.triplet_margin_with_distance_loss"})


class Lockstep:
    """A :class:`pitfall_lab.observe.Listener` that writes a trace; :meth:`finish` returns it.

    Tensors with more than ``value_limit`` elements are modelled without values (below 0: all); ``limit`` is the number
    of events after which the recording pauses; with ``finite``, values that are not finite are searched for. The
    dictionary ``call.memory`` passes data from ``before`` to ``after``: the call's ``step``, the ``effects`` found so
    far, its ``parent`` step, the ``reason`` why it was not modelled (or ""), the ``applied`` result of the shadow or
    the error that it ``predicted``, and the nodes (``stale``) and storages (``wrote``) that mirroring reports.
    """

    last_failure: tuple[str, str, Failure] | None = None
    """The type name, the message and the Failure of the last error that a call raised."""

    def __init__(
        self, sources: SourceMap, value_limit: int = 4096, limit: int | None = None, finite: Finite | None = None
    ) -> None:
        self.lines = LineWatch(sources, self.line_done)
        engine = Engine(value_limit=value_limit, release=release.RUNNING)
        self._world = world = World(sources, self.lines, value_limit, engine, OtherThreads(sources))
        world.writer.limit = limit or (METADATA_LIMIT if value_limit < 0 else EVENT_LIMIT)
        self._engine, self._writer, self._records = world.engine, world.writer, world.records
        self._extent = Extent(world.writer)
        self._describe = describe = Description(world)
        self._memory = MemoryComparison(world, describe)
        pairing, adoption = Pairing(world, describe), Adoption(world, describe)
        self._meeting = CatchingUp(world, describe, memory=self._memory, pairing=pairing, adoption=adoption)
        self._unseen = Unseen(world, describe, self._memory, adoption, self._meeting)
        self._passing = Passing(world, adoption, self._meeting)
        self._comparison = Comparison(
            world, describe, memory=self._memory, pairing=pairing, adoption=adoption, meeting=self._meeting
        )
        self._mirroring = Mirroring(world, describe, adoption, self._meeting)
        self._outcomes, self._forecasts, self._naming = (
            Outcomes(world, describe),
            Forecasts(world, describe),
            Naming(world, describe),
        )
        self.other_threads = world.other_threads
        self._versions = Versions(world)
        self._engine.pauses_for_user_code = True
        world.writer.notes += release.notes()
        self._optimizers = Optimizers(self.label)
        self._beside = BesideCalls(sources, self._optimizers, self.label, self.memory, self.lines)
        self._pairs = Pairs(self.label)
        self._finite = finite
        self._finite_watch = (FiniteWatch if finite is not None and finite.closely else NoWatch)(world)
        self._inside: list[Listening] = []
        self._parents: list[int] = []
        self._is_paused = False
        self._pending: list[Effect] = []
        # The lane identifies a node by its sequence number.
        has_lane = private.has_sequence and private.next_sequence is not None and type(self._finite_watch) is NoWatch
        self.lane: FastLane | None = FastLane(world, self._naming, adoption, self._memory, self) if has_lane else None

    def is_free(self) -> bool:
        """Whether the next call may take the fast path.

        Not while a backward runs, while effects wait for the next event, while a table of pairs is followed to the
        number computed from it or ranks of equal scores are followed, or when the trace is full; in a recording with
        values, also not while NumPy shares memory with a tensor or an uncounted write waits for its event.
        """
        if self._parents or self._pending or len(self._writer.events) >= self._writer.limit:
            return False
        if self._pairs.is_following or self._beside.is_following:
            return False
        # NumPy code may have written memory that it shares with a tensor; the full path checks that before each call.
        return self._world.limit < 0 or (not self._records.shared and self._memory.is_silent)

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the next call of the function ``name`` at the position ``span`` must be recorded on the full path,
        and not on the fast path, because its values are to be read.
        """
        return self._beside.looks(name, span)

    def may_meet(self) -> bool:
        """Whether the fast path may read the operands of the next call without the checks that :meth:`before` makes for
        changes that no call showed.
        """
        return self.is_free() and not self._passing.is_open and not self._records.shared and not regions.possible()

    def expect_unseen(self, program: str) -> None:
        """Prepare for a program (its text) that creates tensors in ways that a torch function mode cannot observe."""
        self._unseen.expect(program)
        # Hooks registered on nodes, or on saved tensors, cannot be observed.
        on_nodes = "register_hook(" in program and ("grad_fn" in program or "next_functions" in program)
        self._engine.suspicious = on_nodes or "register_prehook(" in program or "_raw_saved" in program

    def line_done(self, frame: FrameType, span: Span | None, returned: Any) -> None:
        """Called after a line of the learner's program, ``span``, has run in ``frame``: search for what it changed
        without an observed call of torch.

        ``returned`` is what the line's function returns, if the line ended it, else None.
        """
        self._beside.line_done(frame, span, len(self._writer.events))
        if self._is_paused:
            return
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        self._unseen.line_done(frame, span, returned)

    # ------------------------------------------------------------------ the listener

    def before(self, call: Call) -> Verdict:
        """Run the call in the shadow before torch runs it, and return a :class:`Verdict`, how the recorder is to run it
        in torch: as one step, as one step in which the functions that it calls are watched (a backward), or by
        recording the calls inside it (a composite without a model).

        Raises :class:`TooLong` if the trace is full, unless the call is inside a backward; another ``Enough``, which
        ends the recording, for what cannot be recorded (nodes that cannot be distinguished, views that torch
        regenerates by functions).
        """
        if self._writer.full and not self._parents:  # a backward is recorded to its end
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
            self._regenerate_grad_fn(call.args[0], step)
        effects = self._meet(call, step)
        call.memory.update(step=step, effects=effects, parent=self._parents[-1] if self._parents else None)
        self._beside.before(call, step)
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
        self._finite_watch.before(call)
        if call.name in BACKWARD:
            applied: Applied | None = call.memory.get("applied")
            if applied is not None and applied.waiting is not None:
                call.memory["listening"] = Listening(self._world, call, applied.waiting)
                self._inside.append(call.memory["listening"])
            self._parents.append(step)
            return Verdict.INSIDE
        return Verdict.RUN

    def _look_again(self) -> None:
        """If another thread has used torch since the last call, read again every tensor that it may have changed."""
        if not self.other_threads.happened:
            return
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        self._pending += self._unseen.look_again() + self._mirroring.take_gradients()

    def _meet(self, call: Call, step: int) -> list[Effect]:
        """Find or create the records of the call's operands; return the changes to them since they were last seen."""
        if call.name == DEEPCOPY:
            call.args = call.args[:1]  # the second argument is the dictionary of copies made so far, not operands
            self.grad_fn_read(call.args[0])
        elif call.name in INDEXING:
            call.args = tuple(map(argument_values.index_of, call.args))
        met = self.lane.kinds.met if self.lane is not None else {}
        effects = met.pop(MODE, [])
        for real in argument_values.tensors((call.args, call.kwargs)):
            effects += (
                met.pop(id(real))
                if id(real) in met
                else self._gradient_in_hand(step, real) or self._meeting.meet(real, call.frame)
            )
        met.clear()
        return effects

    def grad_fn_read(self, real: Any) -> None:
        """Called when the program reads the grad_fn of the tensor ``real``: if it is stale, as a view's may be,
        regenerate it in the shadow, as torch does.
        """
        record = self._records.find(real)
        if record is not None and record.shadow is not None and record.shadow.has_stale_grad_fn:
            quiet_grad_fn(record.shadow, regenerates=True)

    def _regenerate_grad_fn(self, real: Any, step: int) -> None:
        """Read the grad_fn of a view whose grad_fn is stale before a hook is registered on it; torch 2.13 crashes
        otherwise.
        """
        record = self._records.find(real)
        if record is None or record.shadow is None or not record.shadow.has_stale_grad_fn:
            return
        tensor_facts.node_of(real)
        self.grad_fn_read(real)
        en = (
            "Without recording, torch crashes here: this is a view whose base was changed in place by an "
            "operation with a grad_fn, and the view's grad_fn was not read before a hook was registered on it. "
            "The recorder reads it first."
        )
        zh = (
            "不记录时 torch 会在这里崩溃：这个视图的 base 后来被带 grad_fn 的运算原地修改，而在注册钩子之前没有读过视"
            "图的 grad_fn。记录时会先读取。"
        )
        self._writer.notes.append(Note("limit", en, zh, step))

    def after(self, call: Call, result: Any) -> None:
        """Compare torch's result with the shadow's prediction and write the event of the call; without a prediction,
        copy the result to the shadow.
        """
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
        self._beside.after(call, result, step)
        self._pairs.after(call, result, step)
        if call.direct and call.name == "torch.autograd.grad":
            effects += self._naming.name_gradients(call, result, step)
        else:
            effects += self._naming.name_results(call, results, step)
        writes = self._memory.written(step, applied, call.memory.get("wrote", ()))
        forecasts = self._forecast(call, step, applied)
        self._put(
            call,
            effects,
            "agreed" if ok else "observed",
            reason,
            results=tuple(results),
            writes=writes,
            forecasts=forecasts,
        )
        self._finite_watch.after(call, result, step)
        if self._finite is not None and call.name in BACKWARD and not self._finite.spoiled:
            roots = argument_values.tensors(call.args[:1])
            self._finite.spoiled = any(map(state_of, roots)) or not self._are_gradients_finite()
        if applied is not None and (applied.ran or applied.passed):
            self._outcomes.nodes_ran(step, call.span, applied)
            harms = self._outcomes.harms(step, applied)
            if harms:
                self._writer.amend(step, harms=harms)

    def _done_ahead(self, call: Call, step: int) -> Applied | None:
        """The shadow's record of this call; None if it has none, or it must not be compared.

        It must not be compared if another thread ran meanwhile, if the shadow predicted an error (a disagreement), or
        for ``autograd.grad`` through a node without a model.
        """
        applied: Applied | None = call.memory.get("applied")
        predicted: ShadowError | None = call.memory.get("predicted")
        if self.other_threads.happened:
            call.memory["reason"] = call.memory["reason"] or BETWEEN
            return None
        if predicted is not None:
            self._writer.disagree(step, "outcome", "returned", f"{predicted.type_name}: {predicted.message}")
            return None
        if (
            applied is not None
            and call.name == "torch.autograd.grad"
            and any(node.mirrored for node in applied.nodes_run)
        ):
            # Then the shadow cannot know which gradients are returned, nor which tensor objects they are.
            call.memory["reason"] = "backward went through a node without a model"
            return None
        return applied

    def composed(self, call: Call, result: Any) -> None:
        """Called when a composite function whose inner calls were recorded has returned ``result``: give this the name
        of the variable to which it is assigned.
        """
        labels = [
            record.label for real in argument_values.tensors(result) if (record := self._records.find(real)) is not None
        ]
        self._pending += self._naming.name_results(call, labels, len(self._writer.events))

    def failed(self, call: Call, error: BaseException) -> None:
        """Compare the error that torch (or a hook of the learner) raised with the one that the shadow predicted, and
        write the event of the call.
        """
        self._finite_watch.failed(call)
        step, effects = self._resume(call, failed=True, by_engine=tensor_facts.is_of_engine(error))
        if self.lane is not None:
            self.lane.kinds.epoch += 1
        message = str(error)
        predicted: ShadowError | None = self._expected(call, error, message)
        if self.other_threads.happened:
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
            base = None if right else tensor_facts.base_of(real)  # a wrong prediction may have written only the shadow
            effects += (self._meeting.catch_up(base) if base is not None else []) + self._meeting.catch_up(real)
        if call.name in BACKWARD:  # leaves that backward reached before it failed have their gradient
            effects += self._mirroring.take_gradients()
        agreed = right and not call.memory["reason"]
        harms = self._outcomes.harms(step, predicted.applied) if right and predicted is not None else ()
        self._put(call, effects, "agreed" if agreed else "observed", call.memory["reason"], error=failure, harms=harms)
        self._tell_nodes(step, call.span, ran, predicted if right else None, failure)
        self._forecasts.came_true(failure, step)
        self.last_failure = (type(error).__name__, message, failure)

    def passed_over(self, region: Region, span: Span | None, scope: tuple[str, ...]) -> None:
        """Called when the program runs a region: a function that is recorded as one step, without the calls inside it
        (compiled, traced or transformed). ``span`` and ``scope`` are the position where the program entered it. Raises
        :class:`TooLong` if the trace is full.
        """
        self._passing.enter(region, span, scope)

    def cut_short(self, call: Call, _error: BaseException) -> None:
        """Write the event of the call during which torch ended a recomputation (``checkpoint``) early, since all that
        it needed had been recomputed.
        """
        _, effects = self._resume(call, failed=True)
        self._finite_watch.failed(call)
        call.memory["reason"] = "torch stopped the recomputation here, because all saved tensors have been recomputed"
        self._count(call, agrees=False)
        self._put(call, effects, "observed", call.memory["reason"])

    def stopped(self, cause: Cause, reason: T, span: Span | None) -> None:
        """Record that the recording ended early, at ``span`` for the ``reason``; the program continues without it."""
        self._extent.stop(cause, reason, span)
        with contextlib.suppress(
            Exception
        ):  # the component that failed may fail again here, and the program must not see that
            self.lines.stop()
            self._parents.clear()
            for listening in self._inside:
                listening.finish(failed=True)

    def paused(self, reason: T, span: Span | None) -> None:
        """Record that the limit is reached; the recording continues at the first line that it does not contain yet."""
        self._is_paused = True
        self._extent.pause(reason, span)

    def goes_on(self, span: Span | None) -> bool:
        """Whether a paused recording resumes with a call of the program at ``span``: the line is new, and more events
        are allowed.

        If so, what may have changed meanwhile is read before the call.
        """
        if not self._extent.goes_on(span):
            return False
        self._is_paused = False
        self._world.writes_unseen = self.other_threads.happened = True
        return True

    def missed(self, span: Span | None) -> None:
        """Count a call, on the line of ``span``, that the program made after the recording had ended or while it
        paused.
        """
        self._extent.missed(span)

    def leaves_out(self) -> None:
        """Called when iterations of a loop begin that will not be recorded; the program may end in one of them."""
        self._is_paused = self._world.writes_unseen = True

    def returns(self) -> None:
        """Called when the recording continues after iterations of a loop that were not recorded: what they may have
        changed is read from torch before the next call.
        """
        self._is_paused = False
        self.other_threads.happened = True

    def stepping(self, optimizer: Any, pace: Pace, frame: FrameType | None) -> None:
        """Called before one of an optimizer's first steps, which ``frame`` makes: record the parameters that it
        holds.
        """
        step = len(self._writer.events)
        if pace.steps < STEPS:
            self._optimizers.stepping(
                optimizer, pace, step, self._world.sources.span(frame) if frame is not None else None
            )
        self._beside.stepping(optimizer, self._living(), frame, step)

    def looked_up(self, kind: Kind, owner: Any, frame: FrameType) -> None:
        """Record that the program is about to call, in ``frame``, a method of ``owner`` that passes through no function
        mode (``kind`` names it).
        """
        self._beside.looked_up(kind, owner, frame, len(self._writer.events))

    def living_nodes(self) -> int:
        """Return how many nodes the graphs of the live tensors have."""
        return living_nodes(record.graph_node for record in self._records.by_mark.values())

    def written(self) -> int:
        """Return how many steps the trace has."""
        return len(self._writer.events)

    def _living(self) -> list[Any]:
        return [real for record in self._records.by_mark.values() if (real := record()) is not None]

    def given(self, optimizer: Any, parameter: Any, span: Span | None, rate: float | None) -> None:
        """Record a parameter that is passed to an optimizer. The arguments are those of :meth:`.Listener.given`."""
        self._optimizers.given(optimizer, parameter, len(self._writer.events), span, rate)

    def swapping(self, one: Any, other: Any, frame: FrameType) -> None:
        """Called before ``torch.utils.swap_tensors`` swaps the two tensors ``one`` and ``other`` in ``frame``: make
        sure that both have a record, unless the trace is full.
        """
        self._unseen.swapping(one, other, frame)

    def swapped(self, one: Any, other: Any, frame: FrameType) -> None:
        """Called after ``torch.utils.swap_tensors`` has swapped two tensors in ``frame``: swap their shadows and write
        the event.
        """
        if self.lane is not None:
            self.lane.close()  # plans assume that a leaf keeps its AccumulateGrad node
        self._unseen.swapped(one, other, frame)

    def process_started(self, frame: FrameType) -> None:
        """Called when the program has started another process: add a note to the trace."""
        self._unseen.process_started(frame)

    def label(self, real: Any) -> str | None:
        """Return the label of a live tensor in the trace, or None if it has none."""
        record = self._records.find(real)
        return record.label if record is not None else None

    def memory(self, real: Any) -> str | None:
        """The label of the storage of a live tensor in the trace, or None if it has none."""
        known = None if tensor_facts.is_opaque(real) else self._records.by_impl.get(real.untyped_storage()._cdata)
        return known.label if known is not None else None

    def finish(self, failure: Failure | None, rounds: Rounds | None = None, hashed: tuple[Hashed, ...] = ()) -> Trace:
        """Return the trace of the program that has just ended; ``failure`` is the error that ended it (None: none),
        ``rounds`` has the iterations of its loops that were not recorded (None: all were recorded), ``hashed`` are the
        tensors that were used as keys.
        """
        self.lines.stop()
        if (why := self.lines.missed) is not None:
            en = (
                "Writes that bypass torch functions, such as NumPy's, were not looked for after every "
                f"line, because {why.en}."
            )
            zh = f"并非每一行之后都检查过不经 torch 函数的写入（例如 NumPy 的写入），原因：{why.zh}。"
            self._writer.notes.append(Note("unseen", en, zh))
        try:
            self._passing.leave(None, (), failure)
        except Exception as error:
            if not any(note.kind == "stopped" for note in self._writer.notes):
                self._extent.stop("failure", reason_of(error), None)
        self._unseen.note_threads()
        self._unseen.note_compiled()
        if rounds is not None and rounds.unseen:
            self._writer.notes.append(rounds_note(rounds, self._world.sources))
        if not self._writer.full and not any(note.kind == "stopped" for note in self._writer.notes):
            self._versions.at_the_end()
        reach = replace(self._extent.reach(), gaps=tuple(rounds.gaps) if rounds is not None else ())
        optimizers = self._optimizers.made()
        with unseen():
            living = self._living()
            if self._finite is not None and not self._finite.spoiled:
                self._finite.spoiled = any(state_of(real) == NAN for real in living if tensor_facts.is_tensor(real))
            beside = self._beside.finished(
                living, len(self._writer.events), self._finite_watch.finished(), self._pairs.found.values()
            )
        return self._writer.finish(
            self._world.sources.sources, failure, tensor_facts.environment(), reach,
            steps=self._optimizers.steps, optimizers=optimizers, beside=replace(beside, hashed=hashed),
        )  # fmt: skip

    # ------------------------------------------------------------------ shared by the methods above

    def _resume(self, call: Call, *, failed: bool, by_engine: bool = False) -> tuple[int, list[Effect]]:
        """The step that was reserved for a call that has just ended, and the effects that were found before it ran."""
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
        """The error that the shadow predicted for the call; None if it predicted none.

        While torch runs user code inside a backward (a hook, say): the error for reading the node's saved tensors, if
        that is what was raised. Otherwise None, and the call's reason is that the error came from the program's code.
        """
        predicted: ShadowError | None = call.memory.get("predicted")
        listening: Listening | None = call.memory.get("listening")
        if predicted is not None:
            return predicted
        if listening is None or listening.waiting.stop is None:
            if self._engine.packs:
                call.memory["reason"] = call.memory["reason"] or "a saved-tensor hook of the program raised the error"
            return None
        if is_as_predicted(listening.refusal, error, message):
            return listening.refusal
        call.memory["reason"] = "the error came from the program's own code or from a node without a model"
        return None

    def _gradient_in_hand(self, step: int, real: Any) -> list[Effect]:
        """Inside a hook, connect an unknown tensor with the incoming gradient of the shadow's suspended backward, if it
        is that gradient.

        Returns the effects that describe it; empty in all other cases.
        """
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
        """Count the call: as mirrored, or as compared and, if ``agrees``, as agreed."""
        if call.memory["reason"]:
            self._writer.mirrored += 1
        else:
            self._writer.checked += 1
            self._writer.agreed += agrees

    def _forecast(self, call: Call, step: int, applied: Applied | None) -> tuple[Forecast, ...]:
        modelled = applied.stale if applied is not None else ()
        return self._forecasts.forecast(step, itertools.chain(modelled, call.memory.get("stale", ())))

    def _ran(self, call: Call) -> Applied:
        """What a failing backward did before it failed, with the nodes that it ran."""
        applied: Applied | None = call.memory.get("applied")
        return self._engine.applied() if applied is None else applied

    def _are_gradients_finite(self) -> bool:
        leaves = (
            record() for record in self._records.by_mark.values() if record.shadow is not None and record.shadow.flag
        )
        return tensor_facts.are_finite(
            grad for real in leaves if real is not None and (grad := tensor_facts.grad_of(real)) is not None
        )

    def _put(self, call: Call, effects: list[Effect], by: By, reason: str, **ending: Any) -> None:
        """Write the call's event; ``ending`` are the fields that only calls that returned, or only calls that failed,
        have.
        """
        self._writer.put(
            Event(
                call.memory["step"],
                "call",
                call.name,
                call.span,
                call.scope,
                call.memory["parent"],
                self._naming.operands(call),
                effects=(*effects, *self._describe.deaths()),
                by=by,
                reason=reason,
                **ending,
            )
        )

    def _tell_nodes(
        self, step: int, span: Span | None, ran: Applied, predicted: ShadowError | None, failure: Failure
    ) -> None:
        """Write an event for each node that a failing backward ran. The node that raised gets an event of its own."""
        if predicted is not None and ran.nodes_run and ran.nodes_run[-1] is predicted.node:
            ran = ran._replace(ran=ran.ran[:-1], passed=ran.passed[:-1])
        self._outcomes.nodes_ran(step, span, ran)
        if predicted is not None and predicted.node is not None:
            self._outcomes.node_failed(step, span, predicted.node, failure)


def _is_one_step(name: str) -> bool:
    """Whether a Python function of torch is recorded as one step even without a model, as backward and the losses
    are.
    """
    return name in ATOMIC or name in BACKWARD or (name.endswith("_loss") and name not in CALLS_BACK)


__all__ = ["Lockstep"]
