"""How edges leave, run and are labelled once the boxes have their places: the same for both layouts. :func:`spread`
returns the routes, :func:`label_places` the places of the labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from pitfall_lab.views.graph.layout import GAP_Y, Edge, Layout, Point, Size

SPREAD = 56.0
STOPS = 60
"""A label is put at one of so many places along its edge."""
ROOM, STEP = 40.0, 13.0
"""Labels at one height that are closer than this overlap, and are put so much lower or higher (px)."""
BESIDE = 11.0
"""How far the gradient's way runs beside the forward edge, in px."""


def spread(layout: Layout, sizes: Sequence[Size], edges: Sequence[Edge]) -> list[list[Point]]:
    """The routes of ``layout`` for ``edges``, with the ends of edges side by side along a box instead of in one point.

    ``edges`` are pairs of box numbers, ``sizes`` the boxes' (width, height). If no box is in its way, a route becomes a
    plain curve between its ends.
    """
    routes = [list(route) for route in layout.routes]
    leaving, arriving = defaultdict(list), defaultdict(list)
    for i, (a, b) in enumerate(edges):
        leaving[a].append(i)
        arriving[b].append(i)
    for box, ways in leaving.items():
        ways.sort(key=lambda i: (routes[i][-1][0], i))
        for i, x in zip(ways, _ends(layout.centres[box][0], sizes[box][0], len(ways)), strict=True):
            route = routes[i]
            shift = x - route[0][0]
            route[0], route[1] = (x, route[0][1]), (round(route[1][0] + shift, 1), route[1][1])
    for box, ways in arriving.items():
        ways.sort(key=lambda i: (routes[i][0][0], i))
        for i, x in zip(ways, _ends(layout.centres[box][0], sizes[box][0], len(ways)), strict=True):
            route = routes[i]
            shift = x - route[-1][0]
            route[-1], route[-2] = (x, route[-1][1]), (round(route[-2][0] + shift, 1), route[-2][1])
    rows = _rows(layout, sizes)
    return [_direct(rows, route) or route for route in routes]


Row = tuple[float, float, list[tuple[float, float]]]


def _rows(layout: Layout, sizes: Sequence[Size]) -> list[Row]:
    """The boxes by their vertical extent, sorted: (top, bottom, horizontal extents of the boxes with this extent)."""
    rows: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for (x, y), (w, h) in zip(layout.centres, sizes, strict=True):
        rows.setdefault((y - h / 2, y + h / 2), []).append((x - w / 2, x + w / 2))
    return sorted((top, bottom, covered) for (top, bottom), covered in rows.items())


def _direct(rows: Sequence[Row], route: list[Point]) -> list[Point] | None:
    """One plain curve between the ends of a route; None if a box is in between."""
    (x1, y1), (x2, y2) = route[0], route[-1]
    left, right = min(x1, x2) - 4, max(x1, x2) + BESIDE + 4
    for top, bottom, covered in rows:
        if top >= y2 - 1:
            break
        if bottom > y1 + 1 and any(start < right and end > left for start, end in covered):
            return None
    bend = round((y2 - y1) / 2, 1)
    return [(x1, y1), (x1, round(y1 + bend, 1)), (x2, round(y2 - bend, 1)), (x2, y2)]


def _ends(centre: float, width: float, count: int) -> list[float]:
    step = min(SPREAD, (width - 30) / max(count, 1))
    return [round(centre + (i - (count - 1) / 2) * step - BESIDE / 2, 1) for i in range(count)]


def bezier(points: Sequence[Point]) -> str:
    """An SVG path through cubic Bézier ``points`` (1 + 3·n of them)."""
    head, *rest = points
    return f"M{head[0]:g},{head[1]:g}C" + " ".join(f"{x:g},{y:g}" for x, y in rest)


def back(d: str) -> str:
    """The gradient's arrow along an edge as an SVG path: the edge's path ``d``, reversed and ``BESIDE`` px to its
    right.

    The browser computes the same from the same path.

    >>> back("M0,0C0,5 4,5 4,10")
    'M15,10C15,5 11,5 11,0'
    """
    points = [tuple(map(float, point.split(","))) for point in d[1:].replace("C", " ").split()]
    return bezier([(round(x + BESIDE, 1), y) for x, y in reversed(points)])


def label_places(routes: Sequence[Sequence[Point]]) -> list[Point]:
    """The positions (x, y) of the labels of all edges, in the order of ``routes`` (:func:`label_place`).

    Labels that would overlap are put at three different heights.
    """
    found = [label_place(route) for route in routes]
    last = (0.0, 0.0)
    beside = 0
    for i in sorted(range(len(routes)), key=lambda i: (routes[i][0][1], found[i][0])):
        x, y = found[i]
        close = abs(y - last[1]) < STEP and x - last[0] < ROOM
        beside, last = beside + 1 if close else 0, (x, y)
        if beside % 3:
            found[i] = label_place(routes[i], STEP * (1 if beside % 3 == 1 else -1))
    return found


def label_place(route: Sequence[Point], lower: float = 0.0) -> Point:
    """The position (x, y) of an edge's label in px: right of the gradient's arrow, just below the box where the arrow
    ends.

    It is further down by about ``lower`` px.
    """
    across, down = [x for x, _ in route], [y for _, y in route]
    height = route[0][1] + GAP_Y / 2 + lower
    below = bisect_left(range(STOPS + 1), height, hi=STOPS, key=lambda i: _along(down, i / STOPS))  # ways go down
    at = min((max(below - 1, 0), below), key=lambda i: abs(_along(down, i / STOPS) - height)) / STOPS
    return round(max(_along(across, at), route[0][0]) + BESIDE + 7, 1), round(_along(down, at) + 2, 1)


def _along(values: Sequence[float], t: float) -> float:
    """One coordinate at ``t`` (0 to 1) of a chain of cubic Bézier segments."""
    count = (len(values) - 1) // 3
    place = min(int(t * count), count - 1)
    u = t * count - place
    a, b, c, d = values[3 * place : 3 * place + 4]
    v = 1 - u
    return v * v * v * a + 3 * u * v * v * b + 3 * u * u * v * c + u * u * u * d
