"""The part of a trace that a finding is about: the storages, counters, nodes and steps that a panel shows first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from pitfall_lab.views.finding_pictures import Beat
from pitfall_lab.views.label_history import Facts

STEPS = 400
NODES = 14
BESIDE = 4
"""So many nodes that the saving call made are shown beside the one that saved."""


class Slice(TypedDict):
    """The part of a trace that is shown for a finding: the labels of its storages, tensors,
    counters and nodes, and its steps.
    """

    storages: list[str]
    tensors: list[str]
    counters: list[str]
    nodes: list[str]
    steps: list[int]


def around(facts: Facts, picture: Mapping[str, Any], beats: list[Beat]) -> Slice:
    """The labels and steps that belong to a finding's picture and its beats; of the steps, the first ``STEPS``."""
    storages = list(dict.fromkeys(picture.get("about", ())))
    tensors = [label for storage in storages for label in facts.of_storage(storage)]
    counters = list(dict.fromkeys(c for t in tensors if (c := facts.tensor(t).get("counter"))))
    marked = [beat["step"] for beat in beats if isinstance(beat["step"], int)]
    steps = sorted({*marked, *_touching(facts, {*storages}, {*tensors})})
    # A line of role "call" only says from where another line was reached; the tensors it made
    # do not belong to the finding.
    picked = [beat["step"] for beat in beats if isinstance(beat["step"], int) and beat["was"] != "forward"]
    return {
        "storages": storages,
        "tensors": tensors,
        "counters": counters,
        "nodes": _nodes(facts, picture, picked, {*storages}, _writers(beats)),
        "steps": steps[:STEPS],
    }


def _touching(facts: Facts, storages: set[str], tensors: set[str]) -> set[int]:
    """Return the steps that read, create or write these storages or tensors."""
    return {
        event.step
        for event in facts.trace.events
        if storages & set(event.writes) or tensors & {*event.results, *(o.label for o in event.operands if o.label)}
    }


def _writers(beats: list[Beat]) -> list[int]:
    """The steps at which the story's memory was written."""
    return [beat["step"] for beat in beats if isinstance(beat["step"], int) and beat["was"] == "changed"]


def _nodes(
    facts: Facts, picture: Mapping[str, Any], marked: list[int], storages: set[str], writers: list[int]
) -> list[str]:
    """The nodes that the picture contains, those that its writes made, and those created at its other steps;
    AccumulateGrad nodes only for leaves on these storages. A write that made no node has that of the leaf it wrote.

    If that leaves fewer than two, all nodes created at its steps. At most ``NODES`` beside the picture's own. Where a
    call made many nodes (a recurrent cell), the one that saved stands for it.
    """
    keeper = picture.get("keeper") or {}
    named = [*([keeper["node"]] if keeper else []), *picture.get("nodes", ())]
    born = {label: history[0][0] for label, history in facts.nodes.items()}
    made = [label for label, step in born.items() if step in marked]
    own = [node for node in made if not _of_other_leaf(facts, node, storages)]
    kept = born.get(str(keeper.get("node")))
    beside = [node for node in own if born[node] == kept and node not in named]
    if len(beside) > BESIDE:
        own = [node for node in own if node not in beside]
    wrote = [node for node in own if born[node] in writers] or _leaves(facts, writers, storages)
    return list(dict.fromkeys([*named, *wrote, *(own if len({*named, *own}) > 1 else made)]))[: max(NODES, len(named))]


def _leaves(facts: Facts, writers: list[int], storages: set[str]) -> list[str]:
    """The AccumulateGrad nodes of the leaves that these steps wrote."""
    written = {storage for step in writers for storage in facts.trace.events[step].writes} & storages
    nodes = ((node, history[-1][1] or {}) for node, history in facts.nodes.items() if written)
    return [
        node
        for node, record in nodes
        if record.get("name") == "AccumulateGrad" and facts.tensor(str(record.get("output"))).get("storage") in written
    ]


def _of_other_leaf(facts: Facts, node: str, storages: set[str]) -> bool:
    record = facts.nodes[node][-1][1] or {}
    return (
        record.get("name") == "AccumulateGrad"
        and str(facts.tensor(str(record.get("output"))).get("storage")) not in storages
    )
