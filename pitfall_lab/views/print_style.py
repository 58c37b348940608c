"""Common style of the printable pictures: size, fonts, and hatchings that identify a storage without colour.

A figure is 16 cm wide, the text block of an A4 page, and no letter is smaller than 8 pt. A storage has its
letter, its hue *and* a hatching, so that a black-and-white printer loses nothing. Figures are made without
pyplot: nothing global is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from pitfall_lab.views.encoding import GREY, clean_text, cut, hue, ink_on, letter, width_of

WIDTH = 16.0
"""Centimetres."""
CM = 1 / 2.54
SMALL, TEXT = 8.0, 9.0
"""Font sizes in points: of labels, and of the main text."""
POINT = 2.54 / 72
"""A point in centimetres."""
INK, DIM, RED = "#111111", "#555555", "#C62828"
HATCHES = ("", "////", "....", "", "\\\\\\\\", "xxxx")
"""The hatching of each hue of the palette; blue has none, since it is dark enough to be recognised."""


def sheet(height: float) -> tuple[Figure, Axes]:
    """A figure of ``height`` cm and one axes over all of it, measured in centimetres from the top left corner."""
    figure = Figure(figsize=(WIDTH * CM, height * CM))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")
    return figure, axes


@cache
def families() -> list[str]:
    """Font families in order of preference: matplotlib's own, then one with Chinese characters if installed."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return [
        "DejaVu Sans",
        *(name for name in ("Noto Sans CJK SC", "Noto Sans SC", "Microsoft YaHei", "PingFang SC") if name in known),
    ]


def write(axes: Axes, x: float, y: float, text: object, *, size: float = SMALL, **how: Any) -> None:
    """Draw one line of text; ``$`` is printed literally."""
    axes.text(
        x,
        y,
        clean_text(text),
        **{"fontsize": size, "family": families(), "color": INK, "parse_math": False, "va": "center", **how},
    )


def looks(storage: str | None, palette: Sequence[str]) -> dict[str, Any]:
    """Fill colour, hatching and edge of a storage's boxes, as keyword arguments of a matplotlib patch. ``palette`` are
    the storages that have a hue; all others, and None, are light grey without a hatching.
    """
    colour = hue(storage, palette)
    hatch = HATCHES[list(palette).index(storage)] if colour != GREY and storage else ""
    return {"facecolor": "#E4E4E4" if colour == GREY else colour, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6}


def swatch(axes: Axes, x: float, y: float, storage: str | None, palette: Sequence[str]) -> None:
    """A storage's letter on its fill, 0.5 cm square, from its top left corner."""
    axes.add_patch(Rectangle((x, y), 0.5, 0.5, **looks(storage, palette)))
    badge(axes, x + 0.25, y + 0.25, storage, palette)


def badge(axes: Axes, x: float, y: float, storage: str | None, palette: Sequence[str]) -> None:
    """A storage's letter, readable over its hatching."""
    fill = looks(storage, palette)["facecolor"]
    box = {"boxstyle": "round,pad=0.22", "facecolor": fill, "edgecolor": "none"}
    colour = ink_on(fill)
    write(axes, x, y, letter(storage), ha="center", weight="bold", color=colour, bbox=box, gid=f"letter-{storage}")


def cell(
    axes: Axes,
    place: tuple[float, float],
    size: tuple[float, float],
    text: object = "",
    *,
    ghost: bool = False,
    **how: Any,
) -> None:
    """Draw a box of ``size`` (cm) with its corner at ``place``, and text in its middle.

    A ``ghost`` has a dashed edge and dim text. ``how`` are arguments of matplotlib's ``Rectangle``.
    """
    style = {
        "facecolor": "white",
        "edgecolor": DIM if ghost else INK,
        "linewidth": 0.8,
        "linestyle": (0, (2, 2)) if ghost else "-",
        **how,
    }
    axes.add_patch(Rectangle(place, *size, **style))
    if text != "":
        write(axes, place[0] + size[0] / 2, place[1] + size[1] / 2, text, ha="center", color=DIM if ghost else INK)


def pill(axes: Axes, place: tuple[float, float], size: tuple[float, float], text: object = "", **how: Any) -> None:
    """A box with round ends from the corner ``place`` on, of ``size`` (cm), with text in its middle, such as the label
    of a version counter. ``how`` are arguments of matplotlib's ``FancyBboxPatch``.
    """
    x, y, (wide, tall) = *place, size
    style = f"round,pad=0,rounding_size={tall / 2.5}"
    axes.add_patch(
        FancyBboxPatch(
            (x, y), wide, tall, boxstyle=style, **{"facecolor": "white", "edgecolor": INK, "linewidth": 0.8, **how}
        )
    )
    if text != "":
        write(axes, x + wide / 2, y + tall / 2, text, ha="center")


def long(text: str, size: float = SMALL) -> float:
    """A generous estimate of the width of a line of text, in cm."""
    return width_of(text, size) * POINT


def fit(text: str, width: float, size: float = SMALL) -> str:
    """``text`` shortened with "…" to ``width`` cm at this font size (points), but at least one character."""
    kept = len(text)
    while kept > 1 and long(cut(text, kept), size) > width:
        kept -= 1
    return cut(text, kept)
