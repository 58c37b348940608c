"""The calls through which a later step of a trace gets what an earlier one used or made: :func:`calls_between` gives
them.
"""

from __future__ import annotations

from pitfall_lab.trace import Event
from pitfall_lab.views.label_history import Facts

MOST = 20_000
"""The number of events between two steps that are read; of more, no calls are returned."""


def calls_between(facts: Facts, first: int, last: int) -> tuple[Event, ...] | None:
    """The calls that lead from the tensors of step ``first`` to an operand of step ``last``, oldest first.

    The two steps themselves are not among them. The tensors of ``first`` are its operands and results, and those on
    storages that it wrote. Of several ways, the one with the fewest calls is returned; it is ``()`` if an operand of
    ``last`` is such a tensor. None if no operand comes from one, if the steps are more than ``MOST`` apart, or unless
    ``first`` is before ``last`` and both are steps of the trace.
    """
    events = facts.trace.events
    if not 0 <= first < last < len(events) or last - first > MOST:
        return None
    begin, end = events[first], events[last]
    ways: dict[str, tuple[Event, ...]] = {
        label: () for label in (*(operand.label for operand in begin.operands), *begin.results, *begin.writes) if label
    }
    for event in events[first + 1 : last]:
        if event.kind != "call" or not (event.results or event.writes):
            continue
        way = _shortest(facts, event, ways)
        if way is None:
            continue
        for label in (*event.results, *event.writes):
            if label not in ways or len(ways[label]) > len(way) + 1:
                ways[label] = (*way, event)
    return _shortest(facts, end, ways)


def _shortest(facts: Facts, event: Event, ways: dict[str, tuple[Event, ...]]) -> tuple[Event, ...] | None:
    """The shortest known way to an operand of a call, or to a write into its memory; None if there is none."""
    found = []
    for operand in event.operands:
        if operand.label:
            storage = facts.tensor(operand.label, event.step).get("storage")
            found += [ways[label] for label in (operand.label, storage) if label in ways]
    return min(found, key=len, default=None)
