"""The part of a trace that a finding is about: :func:`around` gives the storages, tensors, counters, nodes and steps
that a panel shows first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

from pitfall_lab.views.finding_pictures import Beat
from pitfall_lab.views.label_history import Facts

STEPS = 400
NODES = 14
FEW = 4
"""A call that made more nodes than these is one thing in the program (a cell, a whole layer):
of it only the node that the finding names is drawn.
"""


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
    """The labels and steps of the trace that a finding's ``picture`` and the ``beats`` of its story are about.

    Storages are those of the picture and those that the story's calls made; tensors and counters are those on the
    picture's storages; nodes are those of :func:`_nodes`. Of the steps, the first ``STEPS``.
    """
    storages = list(dict.fromkeys(picture.get("about", ())))
    tensors = [label for storage in storages for label in facts.of_storage(storage)]
    counters = list(dict.fromkeys(c for t in tensors if (c := facts.tensor(t).get("counter"))))
    marked = [beat["step"] for beat in beats if isinstance(beat["step"], int)]
    steps = sorted({*marked, *_touching(facts, {*storages}, {*tensors})})
    # A line of role "call" only says from where another line was reached; the tensors it made
    # do not belong to the finding.
    picked = [beat["step"] for beat in beats if isinstance(beat["step"], int) and beat["was"] != "forward"]
    writes = [beat["step"] for beat in beats if isinstance(beat["step"], int) and beat["role"] == "changed"]
    return {
        "storages": list(dict.fromkeys([*storages, *_made(facts, beats)])),
        "tensors": tensors,
        "counters": counters,
        "nodes": _nodes(facts, picture, picked, writes, {*storages}),
        "steps": steps[:STEPS],
    }


def _made(facts: Facts, beats: list[Beat]) -> list[str]:
    """The storages that the steps of the beats wrote or made, except calls that only lead to another line."""
    found: list[str] = []
    for beat in beats:
        if isinstance(beat["step"], int) and beat["was"] != "forward":
            event = facts.trace.events[beat["step"]]
            made = (facts.tensor(label, event.step).get("storage") for label in event.results)
            found += [*event.writes, *(str(storage) for storage in made if storage)]
    return found


def _touching(facts: Facts, storages: set[str], tensors: set[str]) -> set[int]:
    """Return the steps that read, create or write these storages or tensors."""
    return {
        event.step
        for event in facts.trace.events
        if storages & set(event.writes) or tensors & {*event.results, *(o.label for o in event.operands if o.label)}
    }


def _nodes(
    facts: Facts, picture: Mapping[str, Any], marked: list[int], writes: list[int], storages: set[str]
) -> list[str]:
    """The nodes to draw for a finding, at most ``NODES`` beside those that the picture names.

    They are the nodes of the picture, those of its writes, and those created at its other steps; AccumulateGrad nodes
    only of leaves on ``storages``. If these are fewer than two, all nodes created at its steps.
    """
    keeper = picture.get("keeper") or {}
    named = [*([keeper["node"]] if keeper else []), *picture.get("nodes", ())]
    born = {label: history[0][0] for label, history in facts.nodes.items()}
    named += [node for step in writes for node in _of_write(facts, step, born)]
    made = [label for label, step in born.items() if step in marked]
    own = [node for node in made if not _of_other_leaf(facts, node, storages)]
    times = Counter(born[node] for node in own)
    chosen = next(
        some
        for some in ([n for n in own if times[born[n]] <= FEW], own, made)
        if len({*named, *some}) > 1 or some is made
    )
    return list(dict.fromkeys([*named, *chosen]))[: max(NODES, len({*named}))]


def _of_write(facts: Facts, step: int, born: Mapping[str, int]) -> list[str]:
    """The last node that a write created; if it created none, the AccumulateGrad nodes of the leaves that it wrote.

    A write creates none under ``no_grad`` and in an optimizer.
    """
    made = [node for node, at in born.items() if at == step]
    if made:
        return made[-1:]
    written = {*facts.trace.events[step].writes}
    return [node for node in born if _of_leaf(facts, node, written)][:FEW]


def _of_leaf(facts: Facts, node: str, storages: set[str]) -> bool:
    record = facts.nodes[node][-1][1] or {}
    output = str(record.get("output"))
    return record.get("name") == "AccumulateGrad" and str(facts.tensor(output).get("storage")) in storages


def _of_other_leaf(facts: Facts, node: str, storages: set[str]) -> bool:
    record = facts.nodes[node][-1][1] or {}
    return record.get("name") == "AccumulateGrad" and not _of_leaf(facts, node, storages)
