"""The computation graph as torch has it: leaves, nodes by torch's names, what each saved, and the way gradients take.
:func:`project` returns it as plain data, with all positions.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from pitfall_lab.trace import T, Trace
from pitfall_lab.trace.state_types import Cells
from pitfall_lab.trace.text import cell_text, cells_text, shape_text
from pitfall_lab.views.encoding import cut, width_of
from pitfall_lab.views.folds import folds
from pitfall_lab.views.graph.ladder import Ladder, ladder
from pitfall_lab.views.graph.layout import lay_out
from pitfall_lab.views.graph.nested import Nested, Pairs
from pitfall_lab.views.graph.ways import bezier, label_places, spread
from pitfall_lab.views.label_history import Facts, gather
from pitfall_lab.views.tabs import Tab

TAB = Tab(1, T(en="Graph", zh="计算图"))

FULL = 14
"""The largest number of nodes with which cards also show values."""
CARDS = 80
"""With more nodes than this the ladder is shown first."""
DRAWN = 500
"""With more nodes than this they are not drawn one by one."""
MOST = 4000
"""With more nodes than this only the ladder is drawn."""
FEW = 4
"""The largest number of a leaf's elements that its card shows in full."""
FOLDED = 6
"""The smallest number of nodes that a loop's later rounds must have for being folded."""

TITLE, LINE, NOTCH, PAD = 26.0, 18.0, 26.0, 6.0
ACROSS = 320.0
"""Room for notches in one row, in px; a recurrent layer saves more tensors than a row has room for."""
BADGE = 58.0
"""Room for a counter's badge ("C12·v3") in px; its version changes while stepping, its place does not."""

MANY, ROUNDING = 2, 1e-4
"""The smallest number of parts of a sum; and how far it may differ from their total, as a
fraction of the largest part.
"""
STATES = {"freed": " freed", "hooked": " hook"}
"""What a look at a live graph found of a saved tensor besides its version."""


class Notch(TypedDict):
    """A saved tensor, drawn as a notch at the foot of its node's card.

    ``broken``, ``wrong`` and ``stale`` are the steps at which torch refused it, it was used with a wrong value, and its
    version changed (None: never). ``x`` and ``y`` are its position in px, from the left and from the top of the first
    row of notches.
    """

    name: str
    text: str
    x: float
    y: float
    w: float
    tensor: str | None
    storage: str | None
    counter: str | None
    version: int
    broken: int | None
    wrong: int | None
    stale: int | None


class Card(TypedDict):
    """A leaf, a node, or a box that represents several of them (``count``); ``x`` and ``y`` are its top left corner in
    px.

    ``gradient`` is the last gradient that the node received, ``received`` all of them, each with its step.
    """

    id: str
    kind: Literal["leaf", "node", "fold", "skip", "module"]
    title: str
    sub: str
    x: float
    y: float
    w: float
    h: float
    born: int
    line: int | None
    storage: str | None
    counter: str | None
    saved: list[Notch]
    output: NotRequired[str | None]
    gradient: NotRequired[str]
    received: NotRequired[list[tuple[int, str]]]
    ran: NotRequired[list[int]]
    raised: NotRequired[int | None]
    numbers: NotRequired[int]
    count: NotRequired[int]
    until: NotRequired[int]
    inside: NotRequired[list[str]]
    opens: NotRequired[str]


Edge = TypedDict(
    "Edge",
    {
        "from": str,
        "to": str,
        "via": NotRequired[tuple[str, str]],
        "times": int,
        "born": int,
        "d": str,
        "label": tuple[float, float],
        "shape": str,
    },
)
"""The way from a card to another; ``via`` is the edge between nodes that one between boxes
represents, ``d`` its path in SVG.
"""


class Placed(TypedDict):
    """Cards with their positions, and edges with their routes.

    ``width`` and ``height`` are the picture's size in px; ``by`` is what computed the layout (``"dot"``: graphviz).
    """

    nodes: list[Card]
    edges: list[Edge]
    width: int
    height: int
    by: str


class Drawing(Placed):
    """A drawing that represents ``count`` nodes."""

    count: int


class OpenedModule(TypedDict):
    """A drawing of cards that other drawings use, too: each of ``places`` has the number of a card and its x and y."""

    places: list[tuple[int, float, float]]
    edges: list[Edge]
    width: int
    height: int
    by: str


class Boxes(TypedDict):
    """The modules as cards, and a drawing for each module that can be opened; that of "" has none open."""

    boxes: list[Card]
    pictures: dict[str, OpenedModule]


class GraphScene(Drawing):
    """The whole graph: as cards, as a ladder, with its loops folded, and with modules as boxes.

    ``cards`` have no positions.
    """

    ladder: NotRequired[Ladder]
    folded: NotRequired[Drawing]
    cards: NotRequired[list[Card]]
    modules: NotRequired[Boxes]


def project(trace: Trace, facts: Facts | None = None, *, dot: bool = True) -> GraphScene:
    """The graph with every position, as plain data.

    ``nodes`` are cards (``x``, ``y`` their top left corner); a leaf's card (``kind`` ``"leaf"``) has its tensor's label
    as ``id``, a graph node's its own. ``edges`` run forward (down); the gradient's arrow is drawn ``ways.BESIDE``
    pixels to their right. ``folded``, if loops made many nodes, is the same graph with a loop's later iterations as one
    card (``kind`` ``"fold"``). ``modules``, if the program has modules, is the same graph in boxes: ``pictures`` by the
    module that is open ("" is none), each with ``places`` (number of a card, x, y) for the cards of the whole graph,
    then those of ``boxes`` (kind ``"module"``, ``opens`` the picture that shows its inside). Above ``DRAWN`` nodes only
    the boxes have positions; above ``MOST`` there are no cards, only the ``ladder`` of :func:`outline`. ``dot=False``
    never starts graphviz.
    """
    facts = facts or gather(trace)
    count = len(facts.nodes)
    out = outline(trace, facts) or _empty(count)
    if 0 < count <= MOST:
        full = count <= FULL
        cards = leaf_cards(facts, full=full) + [node_card(facts, label, full=full) for label in facts.nodes]
        pairs = _pairs(facts, {card["id"]: i for i, card in enumerate(cards)})
        in_boxes = _in_boxes(facts, cards, pairs)
        if count <= DRAWN:
            out = {**out, **place_cards(facts, cards, pairs, dot=dot)}
            folded = _folded(facts, cards, pairs)
            if folded is not None:
                out["folded"] = {"count": count, **place_cards(facts, *folded, dot=dot)}
        elif in_boxes is not None:
            out["cards"] = cards
        if in_boxes is not None:
            out["modules"] = in_boxes
    return out


def outline(trace: Trace, facts: Facts) -> GraphScene | None:
    """What :func:`project` returns for a graph too large to be shown as cards first: the ladder, and no cards.

    None for a smaller graph. Large is a graph of more than ``CARDS`` nodes, or a trace without nodes of more than
    ``CARDS`` events. The ladder has a row per step (:mod:`pitfall_lab.views.graph.ladder`).
    """
    count = len(facts.nodes)
    large = count > CARDS or (count == 0 and len(trace.events) > CARDS)
    return {**_empty(count), "ladder": ladder(facts)} if large else None


def _empty(count: int) -> GraphScene:
    return {"count": count, "nodes": [], "edges": [], "width": 0, "height": 0, "by": "none"}


def _in_boxes(facts: Facts, cards: list[Card], pairs: Pairs) -> Boxes | None:
    """The graph with a box for each module and for each function in a module; None if there are no boxes.

    In a large graph without modules, functions alone get boxes.
    """
    nested = Nested(facts, cards, pairs, CARDS)
    if not nested.boxes:
        return None
    number = {card["id"]: i for i, card in enumerate((*cards, *nested.boxes.values()))}
    pictures: dict[str, OpenedModule] = {}
    for opened in ((), *(path for path in nested.openable() if nested.boxes[path]["opens"])):
        drawn = nested.picture(opened, pairs)
        if drawn is None:
            if opened:
                nested.boxes[opened]["opens"] = ""
            continue
        chosen, joined, inner = drawn
        placed = place_cards(facts, chosen, without_circles(joined), inner, dot=False)
        pictures["/".join(opened)] = {
            "edges": placed["edges"], "width": placed["width"], "height": placed["height"], "by": placed["by"],
            "places": [(number[card["id"]], card["x"], card["y"]) for card in placed["nodes"]],
        }  # fmt: skip
    return {"boxes": list(nested.boxes.values()), "pictures": pictures} if "" in pictures else None


def _folded(
    facts: Facts, cards: list[Card], pairs: dict[tuple[str, str], int]
) -> tuple[list[Card], Pairs, dict[tuple[str, str], tuple[str, str]]] | None:
    """The graph with the later iterations of each loop as one card: cards, edges, and for each edge one that it
    represents.

    None if no loop has ``FOLDED`` nodes in its later iterations. Loops in whose later iterations torch refused
    something, or a value was wrong, are not folded.
    """
    groups: dict[str, str] = {}
    heads: list[Card] = []
    for fold in folds(facts.trace):
        start, end = fold["first"] + fold["length"], fold["first"] + fold["length"] * fold["times"]
        inside = [card for card in cards if start <= card["born"] < end]
        marked = any(card.get("raised") is not None for card in inside)
        marked = marked or any(
            (slot["broken"], slot["wrong"]) != (None, None) for card in inside for slot in card["saved"]
        )
        if len(inside) < FOLDED or marked:
            continue
        head: Card = {
            "id": f"x{start}",
            "kind": "fold",
            "title": f"⟳ ×{fold['times'] - 1}",
            "sub": "",
            "x": 0.0,
            "y": 0.0,
            "w": 170.0,
            "h": TITLE + LINE + PAD,
            "born": start,
            "line": facts.line(start),
            "storage": None,
            "counter": None,
            "saved": [],
            "count": len(inside),
            "until": end,
        }
        heads.append(head)
        groups.update((card["id"], head["id"]) for card in inside)
    if not heads:
        return None
    drawn = [card.copy() for card in cards if card["id"] not in groups]
    joined: Pairs = {}
    inner: dict[tuple[str, str], tuple[str, str]] = {}
    for (one, other), times in pairs.items():
        pair = groups.get(one, one), groups.get(other, other)
        if pair[0] != pair[1]:
            joined[pair] = times if pair == (one, other) else 1
            inner.setdefault(pair, (one, other))
    return drawn + heads, without_circles(joined), inner


def place_cards(
    facts: Facts,
    cards: list[Card],
    pairs: Pairs,
    inner: dict[tuple[str, str], tuple[str, str]] | None = None,
    *,
    dot: bool,
) -> Placed:
    """Give every card its position (in the cards themselves) and every edge its route; return both with the picture's
    size.

    ``pairs`` are the edges, from the id of one card to that of another, with how often each occurs. ``inner`` gives,
    for an edge between boxes, the edge between nodes that it represents. ``dot=False`` never starts graphviz.
    """
    inner = inner or {}
    place = {card["id"]: i for i, card in enumerate(cards)}
    sizes, edges = [(c["w"], c["h"]) for c in cards], [(place[a], place[b]) for a, b in pairs]
    layout = lay_out(sizes, edges, dot=dot)
    for card, (x, y) in zip(cards, layout.centres, strict=True):
        card["x"], card["y"] = round(x - card["w"] / 2, 1), round(y - card["h"] / 2, 1)
    drawn: list[Edge] = []
    routes = spread(layout, sizes, edges)
    for ((source, target), times), route, label in zip(pairs.items(), routes, label_places(routes), strict=True):
        via = inner.get((source, target), (source, target))
        edge: Edge = {
            "from": source, "to": target, "times": times, "born": _born(facts, via[1]), "d": bezier(route),
            "label": label, "shape": _flow_shape(facts, via[0]),
        }  # fmt: skip
        if via != (source, target):
            edge["via"] = via
        drawn.append(edge)
    return {
        "edges": drawn,
        "nodes": cards,
        "width": round(layout.width),
        "height": round(layout.height),
        "by": layout.by,
    }


def _pairs(facts: Facts, place: dict[str, int]) -> dict[tuple[str, str], int]:
    """Forward edges (input → node) with how many times each is used: ``h * h`` reads the same input twice."""
    pairs: dict[tuple[str, str], int] = {}
    for label in facts.nodes:
        record = facts.nodes[label][-1][1] or {}
        for source in record.get("next", ()):
            if source in place:
                pairs[source, label] = pairs.get((source, label), 0) + 1
        leaf = record.get("output")
        if record.get("name") == "AccumulateGrad" and leaf in place:
            pairs[leaf, label] = 1
    return without_circles(pairs)


def without_circles(pairs: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """``pairs`` (edges between ids, each with how often it occurs) without the edges that close a cycle.

    Torch's graphs have no cycles, but a trace may come from a file.
    """
    out: dict[str, list[str]] = {}
    for source, target in pairs:
        out.setdefault(source, []).append(target)
    closing: set[tuple[str, str]] = set()
    done: set[str] = set()
    for start in list(out):
        path, todo = {start}, [(start, iter(out.get(start, ())))] if start not in done else []
        while todo:
            label, rest = todo[-1]
            following = next(rest, None)
            if following is None:
                todo.pop()
                path.discard(label)
                done.add(label)
            elif following in path:
                closing.add((label, following))
            elif following not in done:
                path.add(following)
                todo.append((following, iter(out.get(following, ()))))
    return {pair: times for pair, times in pairs.items() if pair not in closing}


def leaf_cards(facts: Facts, *, full: bool) -> list[Card]:
    """A card for each leaf that has an ``AccumulateGrad`` node, without a position yet.

    With ``full`` it has room for the leaf's values and those of its gradient.
    """
    cards: list[Card] = []
    for history in facts.nodes.values():
        record = history[-1][1] or {}
        leaf = record.get("output")
        if record.get("name") != "AccumulateGrad" or not leaf or any(card["id"] == leaf for card in cards):
            continue
        tensor = facts.tensor(leaf)
        title = cut(facts.called(leaf), 28)
        sub = shape_text(tensor.get("shape"))
        width = max(96.0, width_of(title) + 24, width_of(sub, 12) + 36 + BADGE)
        born = facts.tensors[leaf][0][0] if leaf in facts.tensors else history[0][0]
        numbers = _numbers(facts, leaf) if full else []
        width = max([width, *(width_of(text, 12) + 20 for text in numbers)])
        cards.append(
            {
                "id": leaf,
                "kind": "leaf",
                "title": title,
                "sub": sub,
                "x": 0.0,
                "y": 0.0,
                "w": round(width, 1),
                "h": TITLE + LINE + PAD + LINE * len(numbers),
                "born": born,
                "line": facts.line(born),
                "storage": tensor.get("storage"),
                "counter": tensor.get("counter"),
                "saved": [],
                "numbers": len(numbers),
            }
        )
    return cards


def _numbers(facts: Facts, leaf: str) -> list[str]:
    """The longest lines that show a leaf's values and those of its gradient at any step, to measure its card."""
    tensor = facts.tensor(leaf)
    gradient = next((r["grad"] for _, r in reversed(facts.tensors.get(leaf, [])) if r and r.get("grad")), None)
    lines = []
    for name, storage in (("", tensor.get("storage")), (".grad ", facts.tensor(gradient).get("storage"))):
        known = [gist for _, r in facts.storages.get(storage or "", []) if r and (gist := _gist(r.get("cells")))]
        if known:
            lines.append(max((f"{name}[{gist}]" for gist in known), key=len))
    return lines


def _gist(cells: Cells | None) -> str:
    """A text as wide as the browser writes these elements on a card: a few in full, else their mean and extremes.

    All fractions count as equally long, so that a card's width does not depend on random weights. "" if nothing is
    known.
    """
    if isinstance(cells, dict):
        if "mean" not in cells:
            return ""
        three = cells["mean"], cells["low"], cells["high"]
    else:
        cells = cells or []
        if len(cells) <= FEW:
            return ", ".join(_wide(cell, "-0.0001234") for cell in cells)
        numbers = [cell for cell in cells if not isinstance(cell, bool | str)]
        if len(numbers) < len(cells):
            return ""
        three = sum(numbers) / len(numbers), min(numbers), max(numbers)
    mean, low, high = (_wide(one, "-1.20e-10") for one in three)
    return f"mean {mean}, {low} … {high}"


def _wide(cell: Any, fraction: str) -> str:
    """An integer as text; for a number with a fraction or an exponent the text ``fraction``, which is as long
    as any.
    """
    return fraction if isinstance(cell, float) and (cell != int(cell) or abs(cell) >= 1e6) else cell_text(cell)


def node_card(facts: Facts, label: str, *, full: bool) -> Card:
    """The card of the node ``label``, without a position yet.

    It has the node's name, its output, its saved tensors and, with ``full``, the gradients that it received.
    """
    history = facts.nodes[label]
    record = history[-1][1] or {}
    born = history[0][0]
    title = str(record.get("name", label))
    output = facts.output(label)
    tensor = facts.tensor(output)
    bare = title == "AccumulateGrad"
    # What has no name of the program's is what this node made: its shape says more.
    called = f"{cut(facts.called(output), 24)} " if tensor.get("name") else ""
    sub = "" if bare or not output else f"{called}{shape_text(facts.tensor(output, born).get('shape'))}"
    if not sub and not bare and record.get("gradient_shape") is not None:
        sub = shape_text(record["gradient_shape"])  # no name refers to its result; torch still has its shape
    saved, across = _notches(facts, label, record)
    received = {step: _received(r) for step, r in history if full and r and r.get("gradient") is not None}
    gradient = _received(record) if full and record.get("gradient") is not None else ""
    width = max(
        90.0,
        width_of(title) + 24,
        width_of(cut(sub, 34), 12) + 36 + BADGE if sub else 0,
        across,
        *(width_of(f"∇ {text}", 12) + 18 for text in received.values()),
    )
    notches = saved[-1]["y"] + NOTCH if saved else 0.0
    height = TITLE + (LINE if sub else 0) + notches + (LINE if gradient else 0) + PAD
    return {
        "id": label,
        "kind": "node",
        "title": cut(title, 40),
        "sub": cut(sub, 34),
        "output": output,
        "x": 0.0,
        "y": 0.0,
        "w": round(width, 1),
        "h": height,
        "born": born,
        "line": facts.line(born),
        "storage": tensor.get("storage"),
        "counter": tensor.get("counter"),
        "saved": saved,
        "gradient": gradient,
        "received": list(received.items()),
        "ran": [s for s, r in history if r and r.get("ran") == s],
        "raised": next((s for (n, _), s in facts.broken.items() if n == label), None),
    }


def _received(record: dict[str, Any]) -> str:
    """The gradient that a node received, at most four values; a scalar that several nodes sent as a sum: ``3 +
    1 = 4``.
    """
    total = record["gradient"]
    parts = [sent["cells"][0] for sent in record.get("added", ()) if len(sent["cells"]) == 1]
    known = (
        isinstance(total, list) and len(total) == 1 and all(isinstance(one, (int, float)) for one in (*parts, *total))
    )
    if not known or len(parts) < MANY or abs(sum(parts) - total[0]) > ROUNDING * max(map(abs, parts)):
        return cell_text(total[0]) if known and record.get("gradient_shape") == [] else cells_text(total, 4)
    said = " + ".join(f"{one:.4g}" if one >= 0 else f"({one:.4g})" for one in parts)
    return f"{said} = {total[0]:.4g}"


def _notches(facts: Facts, label: str, record: dict[str, Any]) -> tuple[list[Notch], float]:
    """The first eight saved tensors of a node as notches, in rows at the foot of its card, and the width of the rows
    (px).
    """
    out: list[Notch] = []
    x, y, widest = PAD, 0.0, 0.0
    for slot in record.get("saved", ())[:8]:
        name, version = str(slot.get("name", "?")), slot.get("version", 0)
        broken = facts.broken.get((label, name))
        saved_at = f" v{version}" if slot.get("counter") and version is not None else ""
        text = cut(name, 14) + saved_at + STATES.get(slot.get("state", ""), "")
        width = round(width_of(text, 11) + 26, 1)
        if x > PAD and x + width > ACROSS:
            x, y = PAD, y + NOTCH
        out.append(
            {
                "name": name,
                "text": text,
                "x": x,
                "y": y,
                "w": width,
                "tensor": slot.get("tensor"),
                "storage": slot.get("storage"),
                "counter": slot.get("counter"),
                "version": version,
                "broken": broken,
                "wrong": facts.wrong.get((label, name)),
                "stale": stale_at(facts, slot, facts.nodes[label][0][0]) if slot.get("state") != "stale" else broken,
            }
        )
        x = round(x + width + PAD, 1)
        widest = max(widest, x)
    return out, widest


def stale_at(facts: Facts, slot: dict[str, Any], born: int) -> int | None:
    """The first step after ``born`` at which a saved tensor's counter had another version than the saved one, or None.

    ``slot`` is the saved tensor as the trace's state has it.
    """
    history = facts.counters.get(slot.get("counter") or "", [])
    return next((step for step, version in history if step > born and version != slot.get("version")), None)


def _born(facts: Facts, target: str) -> int:
    return facts.nodes[target][0][0] if target in facts.nodes else 0


def _flow_shape(facts: Facts, source: str) -> str:
    """The shape of the gradient that flows along an edge from ``source`` (a node or tensor), as text; "" if unknown.

    It is the shape of the gradient that the node received, if recorded, else that of the node's output.
    """
    record = (facts.nodes[source][-1][1] or {}) if source in facts.nodes else {}
    shape = record.get("gradient_shape")
    if shape is None:
        tensor = facts.tensor(facts.output(source) if record else source)
        shape = tensor.get("shape")
    return "" if shape is None else shape_text(shape)
