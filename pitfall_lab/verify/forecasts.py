"""Forecasts (:class:`Forecasts`): errors of a later backward that a write has made certain; recorded at the write, and
marked when they occur.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pitfall_lab.shadow import Node, Saved, ShadowError
from pitfall_lab.shadow.graph import Graph
from pitfall_lab.trace import Event, Failure, Forecast
from pitfall_lab.verify.description import Description
from pitfall_lab.verify.shared_state import World


class Forecasts:
    """Makes forecasts (errors of a later backward that a write has made certain) and remembers where each is, so that
    none is made twice.
    """

    def __init__(self, world: World, describe: Description) -> None:
        self._records, self._writer = world.records, world.writer
        self._describe, self._graph = describe, world.engine.graph
        self._made: dict[tuple[str, str], tuple[int, int]] = {}

    def forecast(self, step: int, stale: Iterable[tuple[Node, Saved]]) -> tuple[Forecast, ...]:
        """Return the errors that backward will raise for the saved tensors that the call at ``step`` has made stale:
        ``stale`` are pairs of a node and its saved tensor. Empty if there are none.

        Those already forecast are left out, and those of nodes that are not in the trace.
        """
        found: list[Forecast] = []
        for node, saved in stale:
            label = self._records.node_label(node)
            if label is None or (label, saved.name) in self._made:
                continue
            now = saved.counter.version if saved.counter else None
            failure = Failure(
                "RuntimeError",
                _message(node, saved, self._graph),
                "saved-tensor-modified",
                node=label,
                expected=saved.version,
                found=now,
            )
            self._made[(label, saved.name)] = (step, len(found))
            found.append(Forecast(step, replace(failure, **self._describe.saved(saved))))
        return tuple(found)

    def came_true(self, failure: Failure, step: int) -> None:
        """Mark the forecast of ``failure``, if there is one, as raised by torch at ``step``, with torch's error
        message.
        """
        place = self._made.get((failure.node or "", failure.saved or ""))
        if place is None or failure.kind != "saved-tensor-modified":
            return
        at, index = place
        event = self._writer.events[at]
        if isinstance(event, Event) and index < len(event.forecasts):
            forecasts = list(event.forecasts)
            observed = replace(forecasts[index].failure, message=failure.message)
            forecasts[index] = replace(forecasts[index], came_true=step, failure=observed)
            self._writer.amend(at, forecasts=tuple(forecasts))


def _message(node: Node, saved: Saved, graph: Graph) -> str:
    """The message of the error that checking the saved tensor would raise now, or an empty string."""
    try:
        saved.check(node, graph, dry_run=True)
    except ShadowError as error:
        return error.message
    return ""
