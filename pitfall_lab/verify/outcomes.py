"""Describes how a call ended (:class:`Outcomes`): the nodes that a backward ran, the error it raised, or the wrong
gradients it left without an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from pitfall_lab.shadow import Applied, Node, NodeRun, ShadowError
from pitfall_lab.trace import CELL_LIMIT, Effect, Event, Failure, Harm, Span, StaleRead
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.fastpath.event_rows import NodesRan
from pitfall_lab.verify.json_values import cells, look
from pitfall_lab.verify.shared_state import World

_mark, _name = attrgetter("mark"), attrgetter("name")


class Outcomes:
    """Translates the shadow's description of how a call ended into the trace's events, failures and harms."""

    def __init__(self, world: World, describe: Description) -> None:
        self._records, self._writer, self._writes = world.records, world.writer, world.writes
        self._describe = describe
        self._parted: set[int] = set()

    def failure(
        self, error: BaseException, message: str, predicted: ShadowError | None, step: int, span: Span | None
    ) -> Failure:
        """Return the Failure for torch's ``error``, with this message at ``step`` and ``span``, and with the shadow's
        facts about it if it was ``predicted`` (None: it was not).
        """
        failure = Failure(type(error).__name__, message, "other", step, span)
        if predicted is None:
            return failure
        tensor, node = self._records.shadow_label(predicted.tensor), self._records.node_label(predicted.node)
        failure = replace(failure, kind=predicted.kind, tensor=tensor, node=node)
        if predicted.saved is not None:
            failure = replace(failure, **self._describe.saved(predicted.saved))
        return replace(failure, expected=predicted.expected, found=predicted.found)

    def nodes_ran(self, parent: int, span: Span | None, applied: Applied) -> None:
        """Write an event for each node that a backward ran (``applied``) and that is in the trace; ``parent`` is the
        step of the backward.
        """
        nodes: Sequence[Node] = applied.nodes_run
        runs: Sequence[NodeRun] = applied.ran
        if not all(map(_mark, nodes)):
            nodes, runs = [node for node in nodes if node.mark], [run for run in runs if run.node.mark]
        shapes = [run.shape for run in runs] or [node.outputs[0][0] if node.outputs else () for node in nodes]
        gradients = [None if run.gradient is None else look(np.asarray(run.gradient).reshape(-1)) for run in runs]
        freed = [node.freed and node.leaf is None for node in nodes]
        events, place = self._writer.events, self._writer.rows.place(span)
        parts = {
            k: [(_mark(sender), look(part.reshape(-1))) for sender, part in run.parts]
            for k, run in enumerate(runs) if run.parts and all(_mark(sender) for sender, _ in run.parts)
        }  # fmt: skip
        # A leaf's node runs in each backward: what it has now did not come in the parts of an earlier one.
        parts |= {k: [] for k, node in enumerate(nodes) if k not in parts and _mark(node) in self._parted}
        self._parted |= {_mark(nodes[k]) for k in parts}
        ran = NodesRan(
            parent,
            place,
            len(events),
            list(map(_mark, nodes)),
            list(map(_name, nodes)),
            shapes,
            gradients,
            freed,
            parts,
        )
        events += [ran] * len(nodes)

    def node_failed(self, parent: int, span: Span | None, node: Node, failure: Failure) -> None:
        """Write the event of the node at which the backward with the step ``parent`` raised, if what it saved was
        modified or freed; other errors have none.
        """
        label = self._records.node_label(node)
        if label is not None and failure.kind in ("saved-tensor-modified", "backward-twice"):
            step = self._writer.reserve()
            effects = (Effect(f"nodes.{label}.ran", step, "modelled"),)
            self._writer.put(
                Event(step, "node", node.name, span, parent=parent, effects=effects, by="modelled", error=failure)
            )

    def harms(self, step: int, applied: Applied | None) -> tuple[Harm, ...]:
        """Return the wrong gradients that a backward has left, from what the shadow did (``applied``; None: unknown);
        empty if there are none.

        A gradient is left out if its actual or its intended value is unknown.
        """
        found = applied.harms if applied is not None else ()
        return tuple(self._harm(step, harm) for harm in found if harm.torch is not None and harm.meant is not None)

    def _harm(self, step: int, harm: Any) -> Harm:
        """A wrong gradient, the intended gradient, and the reads of changed saved tensors that caused the
        difference.
        """
        causes = []
        for node, saved in harm.causes:
            known = self._describe.saved(saved)
            storage = known["storage"] or ""
            changed = tuple(
                at for at in self._writes.get(storage, ()) if known["saved_at"] is None or at > known["saved_at"]
            )
            causes.append(
                StaleRead(self._records.node_label(node) or "", saved.name, storage, known["saved_at"], changed)
            )
        leaf = self._records.shadow_label(harm.leaf) or ""
        given, meant = np.asarray(harm.torch), np.asarray(harm.meant)
        # of a large gradient, show the elements that differ
        apart = (
            tuple(np.flatnonzero(given.reshape(-1) != meant.reshape(-1))[:CELL_LIMIT].tolist())
            if given.shape == meant.shape
            else ()
        )
        return Harm(step, leaf, cells(given, keep=apart), cells(meant, keep=apart), tuple(causes))


def is_as_predicted(predicted: ShadowError | None, error: BaseException, message: str) -> bool:
    """Whether torch raised an error of the predicted type, with the same ``message`` up to a hint (``Hint:``) at its
    end; False without a prediction.
    """
    if predicted is None or predicted.type_name != type(error).__name__:
        return False
    return _without_hint(predicted.message) == _without_hint(message)


def is_same_error(predicted: ShadowError | None, error: BaseException, message: str) -> bool:
    """Whether an error has the predicted type and the first 60 characters of its ``message`` are as predicted; False
    without a prediction.

    Both then describe the same failure and differ only in details, so that it can be explained despite the
    disagreement.
    """
    return (
        predicted is not None and predicted.type_name == type(error).__name__ and predicted.message[:60] == message[:60]
    )


def _without_hint(message: str) -> str:
    return message.split(" Hint:", maxsplit=1)[0].strip()
