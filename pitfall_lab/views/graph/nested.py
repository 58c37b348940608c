"""The graph with modules and functions as boxes: one picture for each box that can be opened, with the boxes around it
open as well. :meth:`Nested.picture` returns what is drawn in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pitfall_lab.views.encoding import width_of
from pitfall_lab.views.graph.modules import Path, modules
from pitfall_lab.views.label_history import Facts

if TYPE_CHECKING:
    from pitfall_lab.views.graph import Card

PICTURES = 48
"""The largest number of modules that can be opened; the boxes of the others stay closed."""
LARGEST = 160
"""The largest number of cards in one picture."""
TITLE = 26
FEWEST = 2
"""The smallest number of cards in a box: a box around a single card would show less than the card."""

Pairs = dict[tuple[str, str], int]


class Nested:
    """The autograd graph with modules, and the program's functions inside them, as boxes.

    Without modules, functions alone are boxes. ``cards`` are those of leaves and nodes. ``home`` has, for each card's
    id, the path of the module or function that it is in (``()``: none). ``boxes`` has the card of each box by its path:
    a box has at least ``FEWEST`` cards inside, and no path through the graph leaves it and enters it again. Only the
    first ``PICTURES`` boxes can be opened.
    """

    def __init__(self, facts: Facts, cards: list[Card], pairs: Pairs, many: int = 0) -> None:
        of = modules(facts, many)
        self.cards = cards
        self.home: dict[str, Path] = {card["id"]: of.get(card["id"], ()) for card in cards}
        held: dict[Path, list[Card]] = {}
        for card in cards:
            path = self.home[card["id"]]
            for depth in range(1, len(path) + 1):
                held.setdefault(path[:depth], []).append(card)
        below: dict[str, list[str]] = {}
        for one, other in pairs:
            below.setdefault(one, []).append(other)
        self.boxes = {
            path: _box(path, inside)
            for path, inside in held.items()
            if len(inside) >= FEWEST and not _comes_back({card["id"] for card in inside}, below)
        }
        for path in self.openable()[PICTURES:]:
            self.boxes[path]["opens"] = ""

    def openable(self) -> list[Path]:
        """The paths of the boxes, from the outermost to the innermost; at the same depth, in the
        order in which they were created.
        """
        return sorted(self.boxes, key=lambda path: (len(path), self.boxes[path]["born"]))

    def seen(self, opened: Path) -> dict[str, str]:
        """What is drawn for each card, by the card's id, while the module ``opened`` and those around it are open.

        That is the card's own id, or the id of the closed box that it is in.
        """
        out = {}
        for card in self.cards:
            path = self.home[card["id"]]
            shut = (
                path[:depth]
                for depth in range(1, len(path) + 1)
                if path[:depth] != opened[:depth] and path[:depth] in self.boxes
            )
            box = next(shut, None)
            out[card["id"]] = self.boxes[box]["id"] if box else card["id"]
        return out

    def picture(
        self, opened: Path, pairs: Pairs
    ) -> tuple[list[Card], Pairs, dict[tuple[str, str], tuple[str, str]]] | None:
        """What is drawn while the module ``opened`` is open; None if there are more than ``LARGEST`` cards.

        Returns copies of the cards, the edges between them with how often each occurs, and for each of these edges one
        of the edges of ``pairs`` that it represents.
        """
        seen = self.seen(opened)
        shown = set(seen.values())
        cards = [card.copy() for card in (*self.cards, *self.boxes.values()) if card["id"] in shown]
        if len(cards) > LARGEST:
            return None
        joined: Pairs = {}
        inner: dict[tuple[str, str], tuple[str, str]] = {}
        for (one, other), times in pairs.items():
            pair = seen[one], seen[other]
            if pair[0] != pair[1]:
                joined[pair] = times if pair == (one, other) else 1
                inner.setdefault(pair, (one, other))
        return cards, joined, inner


def _comes_back(inside: set[str], below: dict[str, list[str]]) -> bool:
    """Whether a path in the graph leaves the box and enters it again: the nodes in between
    would be above and below it at once.
    """
    todo = [other for one in inside for other in below.get(one, ()) if other not in inside]
    seen = set(todo)
    while todo:
        for other in below.get(todo.pop(), ()):
            if other in inside:
                return True
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return False


def _box(path: Path, inside: list[Card]) -> Card:
    """The card of a closed module; it is marked as raised if torch refused a node inside."""
    nodes = [card for card in inside if card["kind"] == "node"]
    title = ".".join(path)
    title = title if len(title) <= TITLE else f"…{title[1 - TITLE :]}"
    raised = [step for card in nodes if (step := card.get("raised")) is not None]
    born = min(card["born"] for card in nodes or inside)
    return {
        "id": f"m{'/'.join(path)}",
        "kind": "module",
        "title": title,
        "sub": "",
        "x": 0.0,
        "y": 0.0,
        "w": round(max(116.0, width_of(title) + 24), 1),
        "h": 50.0,
        "born": born,
        "inside": [card["id"] for card in inside],
        "line": None,
        "storage": None,
        "counter": None,
        "saved": [],
        "count": len(nodes),
        "raised": min(raised, default=None),
        "opens": "/".join(path),
    }
