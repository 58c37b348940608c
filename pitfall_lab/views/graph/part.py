"""The part of the graph that a finding is about: its nodes, the root of its backward, and what is between them as one
card each. :func:`part` returns it as a drawing, None if too few of its nodes are known.
"""

from __future__ import annotations

from collections import deque

from pitfall_lab.views.graph import LINE, PAD, TITLE, Card, Drawing, leaf_cards, node_card, place_cards, without_circles
from pitfall_lab.views.graph.nested import Pairs
from pitfall_lab.views.label_history import Facts

FEWEST, MOST = 2, 16


def part(facts: Facts, wanted: list[str]) -> Drawing | None:
    """The graph of the first ``MOST`` of the ``wanted`` nodes (by label), drawn like the whole graph.

    The nodes between two of them are one card of kind ``"skip"`` with their number, so the node that saved a tensor and
    the one that changed it are close together, however large the model is. None if fewer than ``FEWEST`` of the nodes
    are in the trace.
    """
    nodes = [node for node in dict.fromkeys(wanted) if node in facts.nodes][:MOST]
    if len(nodes) < FEWEST:
        return None
    leaves = {str(card["id"]): card for card in leaf_cards(facts, full=True)}
    owners = {_output(facts, node): node for node in nodes if _name(facts, node) == "AccumulateGrad"}
    cards = [
        *(leaves[leaf] for leaf in owners if leaf in leaves),
        *(node_card(facts, node, full=False) for node in nodes),
    ]
    pairs: Pairs = {(leaf, node): 1 for leaf, node in owners.items() if leaf in leaves}
    for node in nodes:
        for other, between in _reached(facts, node, {*nodes}).items():
            if not between:
                pairs[other, node] = 1
                continue
            skip = _skip(facts, other, node, between)
            cards.append(skip)
            pairs[other, skip["id"]] = pairs[skip["id"], node] = 1
    between_ends = {pair: _ends(pair) for pair in pairs if "~" in "".join(pair)}
    return {"count": len(nodes), **place_cards(facts, cards, without_circles(pairs), between_ends, dot=False)}


def _ends(pair: tuple[str, str]) -> tuple[str, str]:
    """The nodes at the two ends of an edge; a card for skipped nodes stands for the node beyond it."""
    one, other = (name.split("~") for name in pair)
    return one[0], other[-1]


def _reached(facts: Facts, start: str, goals: set[str]) -> dict[str, int]:
    """The goals that the gradient reaches from ``start`` without passing another goal.

    Each has the number of nodes in between on the shortest path.
    """
    found: dict[str, int] = {}
    todo, seen = deque([(start, 0)]), {start}
    while todo:
        node, depth = todo.popleft()
        for following in (facts.nodes[node][-1][1] or {}).get("next", ()):
            if not following or following in seen or following not in facts.nodes:
                continue
            seen.add(following)
            if following in goals:
                found[following] = depth
            else:
                todo.append((following, depth + 1))
    return found


def _skip(facts: Facts, source: str, target: str, between: int) -> Card:
    born = facts.nodes[target][0][0]
    return {
        "id": f"{source}~{target}", "kind": "skip", "title": "⋯", "sub": "", "x": 0.0, "y": 0.0, "w": 150.0,
        "h": TITLE + LINE + PAD, "born": born,
        "line": facts.line(born), "storage": None, "counter": None, "saved": [], "count": between,
    }  # fmt: skip


def _name(facts: Facts, node: str) -> str:
    return str((facts.nodes[node][-1][1] or {}).get("name"))


def _output(facts: Facts, node: str) -> str:
    return str((facts.nodes[node][-1][1] or {}).get("output"))
