"""After a call without a model, copies what torch did into the shadow (:class:`Mirroring`): changed arguments, new
results, accumulated gradients.
"""

from __future__ import annotations

from typing import Any

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.recorder import BACKWARD, Call
from pitfall_lab.shadow import Node
from pitfall_lab.trace import Effect
from pitfall_lab.verify.adoption import Adoption
from pitfall_lab.verify.catching_up import CatchingUp
from pitfall_lab.verify.description import Description, quiet_grad_fn, read
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World


class Mirroring:
    """Copies what torch did into the engine after a call for which the engine has no model."""

    def __init__(self, world: World, describe: Description, adoption: Adoption, meeting: CatchingUp) -> None:
        self._engine, self._records, self._writer = world.engine, world.records, world.writer
        self._describe, self._adoption, self._meeting = describe, adoption, meeting

    def mirror(self, call: Call, result: Any) -> tuple[list[str], list[Effect]]:
        """After a call that the engine cannot predict, copy what torch did to its arguments, their bases and its
        results into the engine; return the results' labels and the effects for the trace.

        After a backward, the gradients of all leaves are copied.
        """
        effects: list[Effect] = []
        regenerates = any(
            real.requires_grad for real in argument_values.tensors(result)
        )  # torch has read the operands' grad_fn
        for real in argument_values.tensors((call.args, call.kwargs)):
            self._note_write(call, real)
            base = tensor_facts.base_of(real)
            if base is not None:
                self._meet_base(real, base)
            effects += self._meeting.catch_up(real, regenerates=regenerates) + (
                self._meeting.catch_up(base) if base is not None else []
            )
        results = []
        for real in argument_values.tensors(result):
            record = self._records.find(real)
            if record is None:
                record, more = self._adoption.adopt(real, call.frame)
                effects += more
            results.append(record.label)
        for array in argument_values.arrays(result):
            results += self._adoption.meet_array(array, call.frame, effects)
        if call.name in BACKWARD:
            effects += self._mirror_backward(call)
        elif call.name == "torch.Tensor.grad.__set__" and (owner := self._records.find(call.args[0])) is not None:
            effects += self._take_gradient(owner, call.args[0])
        return results, effects

    def _meet_base(self, real: Any, base: Any) -> None:
        """Create a record for a base to which only an operation referred (``F.linear`` of a row), because a write
        through a view gives its base a grad_fn.
        """
        known = self._records.find(real)
        mine = None if known is None or known.shadow is None else known.shadow.base
        if (
            known is not None
            and mine is not None
            and self._records.find(base) is None
            and self._records.shadow_label(mine) is None
        ):
            self._records.enter(base, mine, tensor_facts.read(base).kind, len(self._writer.events) - 1, known.storage)

    def _note_write(self, call: Call, real: Any) -> None:
        """If the argument's version has increased, record the write, and, for the call's forecasts, the saved tensors
        that it made stale.
        """
        known = self._records.find(real)
        if known is None or known.shadow is None or known.shadow.counter is None:
            return
        seen, counter = read(known, real), known.shadow.counter
        if seen.version is not None and seen.version > counter.version:
            stale = self._engine.bump(counter, seen.version - counter.version)
            call.memory["stale"] = (*call.memory.get("stale", ()), *stale)
            call.memory.setdefault("wrote", []).append(known.storage)

    # ------------------------------------------------------------------ backward

    def _mirror_backward(self, call: Call) -> list[Effect]:
        self._release(call)
        return self.take_gradients()

    def take_gradients(self) -> list[Effect]:
        """Copy the gradients of all leaves and of tensors that retain theirs to the shadow, and return the effects for
        the trace: a backward without a model may have set any of them.
        """
        effects: list[Effect] = []
        for record in list(self._records.by_mark.values()):
            real = record()
            if real is not None and record.shadow is not None and (record.shadow.flag or record.shadow.retains_grad):
                effects += self._take_gradient(record, real)
        return effects

    def _release(self, call: Call) -> None:
        """Mark the saved tensors of the nodes that a backward ran as freed, unless it was called with retain_graph or
        create_graph.
        """
        if call.kwargs.get("retain_graph") or call.kwargs.get("create_graph"):
            return
        given = call.kwargs.get(
            "inputs", call.args[1] if call.name == "torch.autograd.grad" and len(call.args) > 1 else None
        )
        outputs = call.kwargs.get("outputs", call.args[:1])
        for node in _between(self._nodes(outputs), None if given is None else self._nodes(given)):
            node.release()

    def _nodes(self, given: Any) -> list[Node]:
        """The nodes at which a backward from (or to) these tensors begins (or ends)."""
        shadows = [
            record.shadow for real in argument_values.tensors(given) if (record := self._records.find(real)) is not None
        ]
        known = [shadow for shadow in shadows if shadow is not None]
        found = [
            quiet_grad_fn(s, regenerates=True) or (s.accumulator() if s.accumulator is not None else None)
            for s in known
        ]
        return [node for node in found if node is not None]

    def _take_gradient(self, record: TensorRecord, real: Any) -> list[Effect]:
        observed = tensor_facts.grad_of(real, stale=record.shadow is not None and record.shadow.has_stale_grad_fn)
        effects: list[Effect] = []
        known = None
        if observed is not None:
            known = self._records.find(observed)
            if known is None:
                known, effects = self._adoption.adopt(observed, None)
            else:
                effects = self._meeting.catch_up(observed)
            if known.shadow is None:
                self._records.strange_gradients[record.mark] = tensor_facts.opacity(observed)
        if record.shadow is not None:
            self._engine.set_grad(record.shadow, known.shadow if known is not None else None)
        return effects + self._describe.tensor(record, read(record, real), "observed")


def _between(roots: list[Node], ends: list[Node] | None) -> list[Node]:
    """The nodes that a backward from ``roots`` runs: all, or, given ``ends``, those from which an end is reachable over
    at least one edge. An end is among them only if it leads to another end.
    """
    runs: dict[Node, bool] = {}
    stack = [(root, False) for root in roots]
    while stack:
        node, done = stack.pop()
        if done:
            runs[node] = ends is None or any(
                child is not None and (child in ends or runs.get(child, False)) for child in node.children
            )
        elif node not in runs:
            runs[node] = False
            stack.append((node, True))
            stack.extend((child, False) for child in node.children if child is not None)
    return [node for node, run in runs.items() if run]
