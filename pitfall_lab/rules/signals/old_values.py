"""Values that were computed from a parameter before it was updated, and through which a later backward reaches the
parameter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.trace import Event


@dataclass(frozen=True, slots=True)
class Old:
    """A backward that reaches a parameter through old values: ``backward`` (an ``Event``) reaches ``leaf`` through the
    graph nodes ``old``, created before the parameter's last update ahead of the backward, and through ``new``, created
    after it; all are labels.

    ``update`` is the step of the first update after the newest of the old nodes.
    """

    backward: Event
    leaf: str
    update: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def old_values(story: Story) -> Iterator[Old]:
    """Yield, for each backward that did not raise, the parameters that it reaches through nodes created before their
    last update; each pair of lines (of the first old node, of the backward) once.
    """
    updates = {label: [m.step for m in moments if m.kind == "used"] for label, moments in lives(story).items()}
    if not any(updates.values()):
        return
    reported = set()
    for backward in story.backwards():
        for found in _of(story, backward, updates) if backward.error is None else ():
            place = (story.span(backward.step), story.span((story.record("nodes", found.old[0]) or {}).get("born")))
            if place not in reported:
                reported.add(place)
                yield found


def _of(story: Story, backward: Event, updates: dict[str, list[int]]) -> Iterator[Old]:
    starts = (
        (story.tensor(o.label, backward.step) or {}).get("grad_fn") for o in backward.operands if o.label is not None
    )
    users = _users(story, [str(start) for start in starts if start is not None])
    for leaf, nodes in users.items():
        steps = updates.get(leaf, [])
        count = bisect_left(steps, backward.step)
        if not count:
            continue
        born = {node: (story.record("nodes", node) or {}).get("born") for node in nodes}
        old = tuple(node for node, at in born.items() if at is not None and at < steps[count - 1])
        if old:
            first = steps[bisect_left(steps, max(int(born[node] or 0) for node in old))]
            yield Old(backward, leaf, first, old, tuple(node for node in nodes if node not in old))


def _users(story: Story, starts: list[str]) -> dict[str, list[str]]:
    """For each leaf that a backward from ``starts`` reaches: the nodes of the calls that read it, directly or through
    views.
    """
    nodes = dict.fromkeys(node for start in starts for node in story.behind(start))
    records = {node: story.record("nodes", node) or {} for node in nodes}
    leaves = {
        node: str(r["output"]) for node, r in records.items() if r.get("name") == "AccumulateGrad" and r.get("output")
    }
    memory = {leaf: (story.tensor(leaf) or {}).get("storage") for leaf in leaves.values()}
    parents: dict[str, list[str]] = defaultdict(list)
    for node, record in records.items():
        for child in record.get("next") or ():
            if child is not None:
                parents[child].append(node)
    found: dict[str, list[str]] = defaultdict(list)
    for start, leaf in leaves.items():
        pending, seen = [*parents[start]], set[str]()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            output = records[node].get("output")
            if output is not None and (story.tensor(output) or {}).get("storage") == memory[leaf]:
                pending += parents[node]  # a view has the values of today
            else:
                found[leaf].append(node)
    return found
