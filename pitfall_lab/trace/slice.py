"""Finds the steps that matter for a storage, a tensor or a failure: a backward slice of the event log (:func:`slice_of`
returns it), and the steps that summarise a program (:func:`story`).
"""

from __future__ import annotations

from collections.abc import Iterable

from pitfall_lab.trace.event_log import Trace
from pitfall_lab.trace.model import Event, Failure

STORY_LIMIT = 6


class Slices:
    """The slices of one trace. What each event touches and needs is computed once, for any number of slices."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._home = home = _homes(trace)
        self._calls = [
            (
                event.step,
                {*event.writes, *_born(event), *(home.get(label, label) for label in event.results)},
                {home[o.label] for o in event.operands if o.label in home},
            )
            for event in reversed(trace.events)
            if event.kind != "node"
        ]

    def of(self, labels: Iterable[str], until: int | None = None) -> tuple[int, ...]:
        """The steps that led to the contents of the tensors and storages with ``labels``, up to and including the step
        ``until`` (None: to the end), each once and in order.

        Starting from the end, an event that creates or writes a needed storage, or returns a tensor on it, is included,
        and makes its operands' storages needed too. Backward nodes are left out.
        """
        needed = {self._home.get(label, label) for label in labels}
        steps = []
        for step, touched, operands in self._calls:
            if not needed.isdisjoint(touched) and (until is None or step <= until):
                steps.append(step)
                needed |= operands
        return tuple(reversed(steps))

    def of_failure(self, failure: Failure) -> tuple[int, ...]:
        """The steps that led to ``failure``: those that saved and changed its tensor, raised the
        error, or led to that tensor.

        If the failure names no tensor, those that led to the operands of the call that raised.
        """
        labels = [label for label in (failure.storage, failure.tensor) if label]
        steps = {*self.of(labels, failure.step), *_own(failure)}
        if not labels and failure.step is not None:
            event = self._trace.events[failure.step] if failure.step < len(self._trace.events) else None
            steps |= {*self.of([o.label for o in event.operands if o.label], failure.step)} if event else set()
        return tuple(sorted(steps))


def slice_of(trace: Trace, labels: Iterable[str], until: int | None = None) -> tuple[int, ...]:
    """Return the steps that led to the contents of the tensors and storages with ``labels``, up to the step ``until``;
    see :meth:`Slices.of`.
    """
    return Slices(trace).of(labels, until)


def behind_failures(trace: Trace) -> set[int]:
    """The steps that led to the failures of a trace (see :class:`Slices`), those that are only forecast included."""
    slices = Slices(trace)
    return {step for failure in failures(trace) for step in slices.of_failure(failure)}


def failures(trace: Trace) -> tuple[Failure, ...]:
    """The errors of a trace: the one that ended the program first, then those of events, then those that were forecast,
    except where an error listed before has the same ``node``, ``saved`` and ``counter``.
    """
    found: list[Failure] = [trace.outcome.failure] if trace.outcome.failure else []
    found += [event.error for event in trace.events if event.error and event.error not in found]
    for forecast in trace.forecasts:
        if all(
            (f.node, f.saved, f.counter) != (forecast.failure.node, forecast.failure.saved, forecast.failure.counter)
            for f in found
        ):
            found.append(forecast.failure)
    return tuple(found)


def story(trace: Trace, extra: Iterable[int] = ()) -> tuple[int, ...]:
    """Up to six steps that summarise the program, in ascending order: those of the first failure (saved, changed,
    raised), of the first two wrong gradients, and ``extra``, the steps of findings; of more than six, the first five
    and the last.

    If there are fewer than four of these, steps that led to the first failure are added, then those that show most
    (writes, backward, first and last results, other calls), up to four in all; up to six if there are none of these.
    """
    count = len(trace.events)
    wanted = [s for failure in failures(trace)[:1] for s in _own(failure)]
    wanted += [s for harm in trace.harms[:2] for s in (*_causes(harm.causes), harm.step)]
    wanted += list(extra)
    chosen = list(dict.fromkeys(s for s in wanted if 0 <= s < count))
    if len(chosen) > STORY_LIMIT:
        chosen = [*chosen[: STORY_LIMIT - 1], max(chosen)]
    background = [s for failure in failures(trace)[:1] for s in Slices(trace).of_failure(failure)]
    background += _telling(trace)
    for step in background:
        if len(chosen) >= (STORY_LIMIT if not wanted else 4):
            break
        if step not in chosen and trace.events[step].kind != "node":
            chosen.append(step)
    return tuple(sorted(set(chosen)))


def _own(failure: Failure) -> list[int]:
    steps = [failure.saved_at, *failure.changed_at[:2], failure.step]
    return [step for step in steps if step is not None]


def _causes(causes: Iterable[object]) -> list[int]:
    out: list[int] = []
    for cause in causes:
        saved_at, changed_at = getattr(cause, "saved_at", None), getattr(cause, "changed_at", ())
        out += [step for step in (saved_at, *changed_at[:1]) if step is not None]
    return out


def _telling(trace: Trace) -> list[int]:
    """Steps worth showing if nothing failed, the most important first."""
    calls = [e for e in trace.events if e.kind != "node" and e.parent is None]
    writes = [e.step for e in calls if e.writes]
    backward = [e.step for e in calls if e.name == "backward"]
    births = [e.step for e in calls if e.results]
    return [*writes[:2], *backward[:1], *births[:2], *births[-1:], *(e.step for e in calls)]


def _homes(trace: Trace) -> dict[str, str]:
    """The storage of each tensor; of a tensor that was moved to another storage, the last one."""
    homes: dict[str, str] = {}
    for event in trace.events:
        for effect in event.effects:
            parts = effect.path.split(".")
            if parts[0] != "tensors":
                continue
            if len(parts) == 2 and isinstance(effect.value, dict) and isinstance(effect.value.get("storage"), str):
                homes[parts[1]] = effect.value["storage"]
            elif len(parts) == 3 and parts[2] == "storage" and isinstance(effect.value, str):
                homes[parts[1]] = effect.value
    return homes


def _born(event: Event) -> set[str]:
    return {
        parts[1]
        for e in event.effects
        if len(parts := e.path.split(".")) == 2 and parts[0] == "storages" and e.value is not None
    }
