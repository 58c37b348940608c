"""Places for boxes and ways for edges, computed once: graphviz's dot where it is present, own layers otherwise.
:func:`lay_out` returns them as a :class:`Layout`.

Both answer the same question in the same terms: boxes of given sizes, edges that point down. Positions depend only
on the input, never on chance or time, so stepping never moves anything and two runs draw the same picture.
"""

# ruff: noqa: PLC0415 - without graphviz our own layout draws the graph

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab import processes

DOT_NODES = 500
DOT_SECONDS = 4.0
GAP_X, GAP_Y = 26.0, 44.0
MARGIN = 16.0
DUMMY = 14.0

Size = tuple[float, float]
Edge = tuple[int, int]
Point = tuple[float, float]
Neighbours = defaultdict[int, list[int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of boxes and routes of edges, in px.

    ``by`` is what computed them: ``"dot"`` (graphviz) or ``"own"``. ``centres`` has the centre of each box, ``routes``
    a list for each edge: the points of cubic Bézier segments, 1 + 3·n of them. ``width`` and ``height`` are the
    picture's.
    """

    by: str
    centres: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def lay_out(sizes: Sequence[Size], edges: Sequence[Edge], *, dot: bool = True) -> Layout:
    """Place boxes of ``sizes`` (width, height in px) so that every edge ``(from, to)`` points down.

    By graphviz if there are at most ``DOT_NODES`` boxes, and it is installed and answers within ``DOT_SECONDS``; else
    by layers of our own.
    ``dot=False`` never starts graphviz.
    """
    if dot and 0 < len(sizes) <= DOT_NODES and (program := processes.installed("dot")):
        placed = _dot(program, sizes, edges)
        if placed is not None:
            return placed
    return _layers(sizes, edges)


def _dot(program: str, sizes: Sequence[Size], edges: Sequence[Edge]) -> Layout | None:
    """The layout by graphviz; None if it fails or takes too long. Boxes are named by number, so no text is
    passed on.
    """
    import graphviz

    graph = graphviz.Digraph(
        graph_attr={"rankdir": "TB", "nodesep": f"{GAP_X / 72:.3f}", "ranksep": f"{GAP_Y / 72:.3f}"}
    )
    graph.attr("node", shape="box", fixedsize="true", label="")
    graph.attr("edge", arrowhead="none")
    for i, (w, h) in enumerate(sizes):
        graph.node(str(i), width=f"{w / 72:.4f}", height=f"{h / 72:.4f}")
    for a, b in edges:
        graph.edge(f"{a}:s", f"{b}:n")
    try:
        done = processes.run(  # the package's own pipe() has no time limit
            [program, "-Tplain"], input=graph.source, capture_output=True, timeout=DOT_SECONDS, check=True
        )
        return _plain(done.stdout, len(sizes), edges)
    except (OSError, processes.SubprocessError, ValueError, IndexError, KeyError):
        return None


def _plain(text: str, count: int, edges: Sequence[Edge]) -> Layout:
    centres: list[Point] = [(0.0, 0.0)] * count
    found: dict[Edge, list[Point]] = {}
    width = height = 0.0

    def place(x: str, y: str) -> Point:
        return round(float(x) * 72 + MARGIN, 1), round(height - float(y) * 72 + MARGIN, 1)

    for line in text.splitlines():
        word = line.split()
        if word[0] == "graph":
            width, height = float(word[2]) * 72, float(word[3]) * 72
        elif word[0] == "node":
            centres[int(word[1])] = place(word[2], word[3])
        elif word[0] == "edge":
            n = int(word[3])
            found[int(word[1]), int(word[2])] = [place(word[4 + 2 * i], word[5 + 2 * i]) for i in range(n)]
    return Layout("dot", centres, [found[edge] for edge in edges], width + 2 * MARGIN, height + 2 * MARGIN)


def _layers(sizes: Sequence[Size], edges: Sequence[Edge]) -> Layout:
    """Own layered layout: ranks, dummy boxes on long edges, barycentre ordering, positions by least squares."""
    rank = _ranks(len(sizes), edges)
    widths = [w for w, _ in sizes]
    chains, links = [], []
    for a, b in edges:
        chain = [a]
        for r in range(rank[a] + 1, rank[b]):
            rank.append(r)
            widths.append(DUMMY)
            chain.append(len(rank) - 1)
        chain.append(b)
        chains.append(chain)
        links += list(pairwise(chain))
    layers: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for box, r in enumerate(rank):
        layers[r].append(box)
    above: Neighbours = defaultdict(list)
    below: Neighbours = defaultdict(list)
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    _untangle(layers, above, below)
    x = _across(layers, widths, above, below)
    return _finish(sizes, layers, x, chains)


def _ranks(count: int, edges: Sequence[Edge]) -> list[int]:
    """The layer of each box: the length of the longest path to it from a box without inputs.

    A box with at most one input that feeds nothing else is moved down, directly above the first box that uses it, so
    that edges stay short.
    """
    into, out = defaultdict(list), defaultdict(list)
    for a, b in edges:
        into[b].append(a)
        out[a].append(b)
    rank, waiting = [0] * count, [len(into[i]) for i in range(count)]
    ready = [i for i in range(count) if not waiting[i]]
    order = []
    while ready:
        box = ready.pop()
        order.append(box)
        for b in out[box]:
            rank[b] = max(rank[b], rank[box] + 1)
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    for box in reversed(order):  # pull sources (and what hangs only on them) down, so that their edges stay short
        if out[box] and all(len(out[a]) == 1 for a in into[box]) and len(into[box]) <= 1:
            rank[box] = min(rank[b] for b in out[box]) - 1
    return rank


def _untangle(layers: list[list[int]], above: Neighbours, below: Neighbours) -> None:
    """Sort each layer, in place, by the mean index of the boxes' neighbours, sweeping down and up at most eight
    times.
    """
    place = {box: i for layer in layers for i, box in enumerate(layer)}
    still = 0
    for sweep in range(8):
        neighbours, moved = above if sweep % 2 == 0 else below, False
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            if len(layer) < 2:
                continue
            before = list(layer)
            means = {box: _mean([place[n] for n in neighbours[box]], place[box]) for box in layer}
            layer.sort(key=means.__getitem__)
            if layer != before:
                moved = True
                place.update((box, i) for i, box in enumerate(layer))
        still = 0 if moved else still + 1
        if still == 2:  # neither downwards nor upwards: no further sweep would do anything
            return


def _mean(places: list[int], own: int) -> float:
    return sum(places) / len(places) if places else float(own)


def _across(layers: list[list[int]], widths: list[float], above: Neighbours, below: Neighbours) -> list[float]:
    x = [0.0] * len(widths)
    for layer in layers:
        for i, box in enumerate(layer):
            x[box] = i * 120.0
    rows = [
        (layer, [above[box] + below[box] for box in layer], _shifts([widths[box] for box in layer])) for layer in layers
    ]
    for sweep in range(12):
        for layer, near, shift in rows if sweep % 2 == 0 else reversed(rows):
            wish = []
            for box, beside in zip(layer, near, strict=True):
                total = 0.0
                for other in beside:
                    total += x[other]
                wish.append(total / len(beside) if beside else x[box])
            for box, place in zip(layer, wish if len(wish) == 1 else _separate(wish, shift), strict=True):
                x[box] = place
    return x


def _shifts(widths: list[float]) -> list[float]:
    """For each box of a layer, the least distance (px) of its centre from that of the first box."""
    shift = [0.0]
    for left, right in pairwise(widths):
        shift.append(shift[-1] + (left + right) / 2 + GAP_X)
    return shift


def _separate(wish: list[float], shift: list[float]) -> list[float]:
    """The positions nearest to ``wish`` (least squares) that keep the order and the distances ``shift`` between boxes.

    The method is pool adjacent violators.
    """
    pools: list[list[float]] = []
    for value in (w - s for w, s in zip(wish, shift, strict=True)):
        pools.append([value, 1])
        while len(pools) > 1 and pools[-2][0] >= pools[-1][0]:
            mean, n = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * n) / (pools[-1][1] + n), pools[-1][1] + n]
    flat = [mean for mean, n in pools for _ in range(int(n))]
    return [v + s for v, s in zip(flat, shift, strict=True)]


def _finish(sizes: Sequence[Size], layers: list[list[int]], x: list[float], chains: list[list[int]]) -> Layout:
    count = len(sizes)
    y: dict[int, float] = {}
    top = MARGIN
    for layer in layers:
        tall = max((sizes[b][1] for b in layer if b < count), default=0.0)
        for box in layer:
            y[box] = top + tall / 2
        top += tall + GAP_Y
    reach = [(x[b] - sizes[b][0] / 2, x[b] + sizes[b][0] / 2) for b in range(count)]
    left = min((a for a, _ in reach), default=0.0) - MARGIN
    left = min([left, *(place - MARGIN for place in x[count:])])
    right = max([*(b for _, b in reach), *x[count:], left]) + MARGIN
    centres = [(round(x[b] - left, 1), round(y[b], 1)) for b in range(count)]
    routes = []
    for chain in chains:
        a, b = chain[0], chain[-1]
        stops = [(centres[a][0], centres[a][1] + sizes[a][1] / 2)]
        stops += [(x[d] - left, y[d]) for d in chain[1:-1]]
        stops.append((centres[b][0], centres[b][1] - sizes[b][1] / 2))
        routes.append(_smooth(stops))
    return Layout("own", centres, routes, right - left, top - GAP_Y + MARGIN if layers else 2 * MARGIN)


def _smooth(stops: list[Point]) -> list[Point]:
    """Bézier points through ``stops`` that leave and arrive vertically."""
    points = [stops[0]]
    for (x1, y1), (x2, y2) in pairwise(stops):
        bend = (y2 - y1) / 2
        points += [(x1, y1 + bend), (x2, y2 - bend), (x2, y2)]
    return [(round(px, 1), round(py, 1)) for px, py in points]
