"""How edges leave, run and are labelled once the boxes have their places: the same for both layouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pitfall_lab.views.graph.layout import GAP_Y, Edge, Layout, Point, Size

SPREAD = 56.0
BESIDE = 11.0
"""How far the gradient's way runs beside the forward edge, in px."""


def spread(layout: Layout, sizes: Sequence[Size], edges: Sequence[Edge]) -> list[list[Point]]:
    """The routes with their ends side by side along a box's edge instead of all in one point."""
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
    return [_direct(layout, sizes, route) or route for route in routes]


def _direct(layout: Layout, sizes: Sequence[Size], route: list[Point]) -> list[Point] | None:
    """One plain curve between the route's ends, when no box stands in between: a detour there would only be noise."""
    (x1, y1), (x2, y2) = route[0], route[-1]
    left, right = min(x1, x2) - 4, max(x1, x2) + BESIDE + 4
    for (x, y), (w, h) in zip(layout.centres, sizes, strict=True):
        if y - h / 2 < y2 - 1 and y + h / 2 > y1 + 1 and x - w / 2 < right and x + w / 2 > left:
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
    """The gradient's way: the same curve, beside it, upwards. The browser does the same with the same path.

    >>> back("M0,0C0,5 4,5 4,10")
    'M15,10C15,5 11,5 11,0'
    """
    points = [tuple(map(float, point.split(","))) for point in d[1:].replace("C", " ").split()]
    return bezier([(round(x + BESIDE, 1), y) for x, y in reversed(points)])


def label_place(route: Sequence[Point]) -> Point:
    """Where the label stands: right of the gradient's arrow, just under the box that it arrives at."""
    height = route[0][1] + GAP_Y / 2
    at = min((_point(route, i / 60) for i in range(61)), key=lambda p: abs(p[1] - height))
    return round(max(at[0], route[0][0]) + BESIDE + 7, 1), round(at[1] + 2, 1)


def _point(route: Sequence[Point], t: float) -> Point:
    """The point at ``t`` (0 to 1) of a chain of cubic Bézier segments."""
    count = (len(route) - 1) // 3
    place = min(int(t * count), count - 1)
    u = t * count - place
    a, b, c, d = route[3 * place : 3 * place + 4]
    weights = ((1 - u) ** 3, 3 * u * (1 - u) ** 2, 3 * u * u * (1 - u), u**3)
    return sum(w * p[0] for w, p in zip(weights, (a, b, c, d), strict=True)), sum(
        w * p[1] for w, p in zip(weights, (a, b, c, d), strict=True)
    )
