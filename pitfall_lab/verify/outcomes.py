"""Outcomes: how a call ended: the nodes that a backward ran, the failure it met, the harm it did without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from pitfall_lab.shadow import Applied, Node, NodeRun, ShadowError
from pitfall_lab.trace import CELL_LIMIT, Effect, Event, Failure, Harm, Span, StaleRead
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.fastpath.event_rows import Ran
from pitfall_lab.verify.json_values import cells, look
from pitfall_lab.verify.shared_state import World

_mark, _name = attrgetter("mark"), attrgetter("name")


class Outcomes:
    """Turns what the shadow says of an ending into the trace's words."""

    def __init__(self, world: World, describe: Description) -> None:
        self._records, self._writer, self._writes = world.records, world.writer, world.writes
        self._describe = describe

    def failure(self, error: BaseException, message: str, predicted: ShadowError | None, step: int, span: Span | None) -> Failure:
        """A typed failure: torch's error, with the facts that the shadow knows when it ``predicted`` it."""
        failure = Failure(type(error).__name__, message, "other", step, span)
        if predicted is None:
            return failure
        tensor, node = self._records.shadow_label(predicted.tensor), self._records.node_label(predicted.node)
        failure = replace(failure, kind=predicted.kind, tensor=tensor, node=node)
        if predicted.saved is not None:
            failure = replace(failure, **self._describe.saved(predicted.saved))
        return replace(failure, expected=predicted.expected, found=predicted.found)

    def nodes_ran(self, parent: int, span: Span | None, applied: Applied) -> None:
        """Give each node that a backward ran an event of its own."""
        nodes: Sequence[Node] = applied.nodes_run
        runs: Sequence[NodeRun] = applied.ran
        if not all(map(_mark, nodes)):
            nodes, runs = [node for node in nodes if node.mark], [run for run in runs if run.node.mark]
        shapes = [run.shape for run in runs] or [node.outputs[0][0] if node.outputs else () for node in nodes]
        gradients = [None if run.gradient is None else look(np.asarray(run.gradient).reshape(-1)) for run in runs]
        freed = [node.freed and node.leaf is None for node in nodes]
        events, place = self._writer.events, self._writer.rows.place(span)
        ran = Ran(parent, place, len(events), list(map(_mark, nodes)), list(map(_name, nodes)), shapes, gradients, freed)
        events += [ran] * len(nodes)

    def node_failed(self, parent: int, span: Span | None, node: Node, failure: Failure) -> None:
        """Give the node at which a backward stopped its event."""
        label = self._records.node_label(node)
        if label is not None and failure.kind in ("saved-tensor-modified", "backward-twice"):
            step = self._writer.reserve()
            effects = (Effect(f"nodes.{label}.ran", step, "modelled"),)
            self._writer.put(Event(step, "node", node.name, span, parent=parent, effects=effects, by="modelled", error=failure))

    def harms(self, step: int, applied: Applied | None) -> tuple[Harm, ...]:
        """The wrong gradients that a backward has left. Where one of the two numbers is not known there is nothing to say."""
        found = applied.harms if applied is not None else ()
        return tuple(self._harm(step, harm) for harm in found if harm.torch is not None and harm.meant is not None)

    def _harm(self, step: int, harm: Any) -> Harm:
        """A wrong gradient beside the one that was meant, and the stale reads it comes from."""
        causes = []
        for node, saved in harm.causes:
            known = self._describe.saved(saved)
            storage = known["storage"] or ""
            changed = tuple(at for at in self._writes.get(storage, ()) if known["saved_at"] is None or at > known["saved_at"])
            causes.append(StaleRead(self._records.node_label(node) or "", saved.name, storage, known["saved_at"], changed))
        leaf = self._records.shadow_label(harm.leaf) or ""
        given, meant = np.asarray(harm.torch), np.asarray(harm.meant)
        # Of a large gradient, the cells that differ are the ones to show.
        apart = tuple(np.flatnonzero(given.reshape(-1) != meant.reshape(-1))[:CELL_LIMIT].tolist()) if given.shape == meant.shape else ()
        return Harm(step, leaf, cells(given, keep=apart), cells(meant, keep=apart), tuple(causes))


def is_as_predicted(predicted: ShadowError | None, error: BaseException, message: str) -> bool:
    """Whether torch raised what the shadow said. A hint at the end is torch's to word."""
    if predicted is None or predicted.type_name != type(error).__name__:
        return False
    return _without_hint(predicted.message) == _without_hint(message)


def is_same_error(predicted: ShadowError | None, error: BaseException, message: str) -> bool:
    """Whether two texts tell of one failure and differ in a detail: the disagreement is recorded, and the failure still explained."""
    return predicted is not None and predicted.type_name == type(error).__name__ and predicted.message[:60] == message[:60]


def _without_hint(message: str) -> str:
    return message.split(" Hint:", maxsplit=1)[0].strip()

