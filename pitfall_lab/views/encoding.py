"""Colours, letters and SVG text: the encoding that all pictures share.

Storage = hue. At most six hues (Okabe and Ito's without yellow and black); every other storage is grey with a letter,
which tells it from the other grey ones. Red is kept for "torch raised" and "the value is wrong".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from unicodedata import east_asian_width

HUES = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
GREY = "#8A8A8A"

# XML 1.0 cannot carry these characters at all, not even escaped; a picture with one of them would not open.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

LIGHT = (
    "--paper:#fff;--ink:#1c1c1c;--dim:#5b5b5b;--box:#fff;--edge:#4a4a4a;--red:#c62828;--redt:#c62828;--ghost:#"
    "7a7a7a;--rule:#bdbdbd;"
)
DARK = (
    "--paper:#1b1b1d;--ink:#ececec;--dim:#b4b4b4;--box:#26262a;--edge:#b9b9b9;--red:#ff6b6b;--redt:#ff8080;--ghost"
    ":#999;--rule:#55555a;"
)
RULES = """
.bg{fill:var(--paper)}.t{fill:var(--ink);font:13px ui-sans-serif,system-ui,"Noto Sans CJK SC",sans-serif}
.m{font-family:ui-monospace,"DejaVu Sans Mono",monospace}
.s{font-size:11px}.dim{fill:var(--dim)}.b{font-weight:600}.box{fill:var(--box);stroke:var(--edge);stroke-width:1.2}
.line{stroke:var(--edge);fill:none;stroke-width:1.4}
.back{stroke:var(--edge);fill:none;stroke-width:1.4;stroke-dasharray:5 4;marker-end:url(#tip)}.head{fill:var(--edge)}
.red{stroke:var(--red);fill:none;stroke-width:2.4}.redt{fill:var(--redt);font-weight:700}
.halo{paint-order:stroke;stroke:var(--paper);stroke-width:4px}
.ghost{fill:none;stroke:var(--ghost);stroke-dasharray:3 3}
.rule{stroke:var(--rule);stroke-width:1;fill:none}.now{stroke:var(--ink);stroke-width:3;fill:none}
"""
STYLE = f"svg{{{LIGHT}}}@media (prefers-color-scheme:dark){{svg{{{DARK}}}}}{RULES}"
"""A picture of its own follows the system's colours; one inside a page follows the page (see
:mod:`pitfall_lab.views.picture`).
"""


def ink_on(colour: str) -> str:
    """The colour (``#fff`` or ``#000``) of text that can be read on a storage's ``colour``: with a contrast of at least
    4.5 to 1.
    """
    return "#fff" if colour == "#0072B2" else "#000"


def letter(storage: str | None) -> str:
    """The letter of a storage, from the number in its label: A for S1 … Z for S26, then AA; "?" for None.

    >>> letter("S1"), letter("S27"), letter(None)
    ('A', 'AA', '?')
    """
    match = re.fullmatch(r"S(\d+)", storage or "")
    index, text = int(match[1]) if match else 0, ""
    while index > 0:
        index, rest = divmod(index - 1, 26)
        text = chr(65 + rest) + text
    return text or "?"


def hue(storage: str | None, palette: Sequence[str]) -> str:
    """The storage's colour as a CSS hex colour: one of the six ``HUES``, by its index in ``palette``.

    ``palette`` are labels of storages. ``GREY`` if the storage is None or not among the first six of them.
    """
    return HUES[list(palette).index(storage)] if storage is not None and storage in palette[: len(HUES)] else GREY


def clean_text(text: object) -> str:
    """``text`` with a replacement character for each that XML, terminals or JSON cannot carry."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def clean(text: object) -> str:
    """``text`` safe inside XML and HTML, in content and in quoted attributes."""
    return escape(clean_text(text), quote=True)


def width_of(text: str, size: float = 13.0) -> float:
    """A generous estimate of a text's width in px at font size ``size`` (px); wide (East Asian)
    characters count nearly double.
    """
    return sum(1.0 if east_asian_width(c) in "WF" else 0.62 for c in text) * size


def cut(text: str, limit: int) -> str:
    """Return ``text``; if it is longer than ``limit`` characters, its beginning followed by "…",
    ``limit`` characters in all.
    """
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


class Canvas:
    """An SVG drawing that is put together element by element; ``parts`` are the elements as text, in drawing order.
    Every text passes through :func:`clean`; coordinates are in px.
    """

    def __init__(self) -> None:
        tip = '<path class="head" d="M0 0L8 4L0 8z"/>'
        marker = (
            '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto">{tip}</marker>'
        )
        self.parts: list[str] = [f"<defs>{marker}</defs>"]

    def text(self, x: float, y: float, text: object, kind: str = "t", anchor: str = "start") -> None:
        """One line of text at ``x`` with its baseline at ``y``; ``kind`` is a list of classes of :data:`STYLE`.
        ``anchor`` says which part of the text is at ``x``: ``"start"``, ``"middle"`` or ``"end"``.
        """
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{clean(text)}</text>')

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        kind: str = "box",
        *,
        fill: str = "",
        stroke: str = "",
        rx: float = 0,
    ) -> None:
        """A box with its top left corner at ``x``, ``y``; ``rx`` is the radius of its corners. ``kind`` is a class of
        :data:`STYLE`; ``fill`` and ``stroke`` are colours that replace those of the class, for a storage's hue (empty:
        none).
        """
        style = (f"fill:{fill};" if fill else "") + (f"stroke:{stroke};" if stroke else "")
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{rx}"'
            + (f' style="{style}"' if style else "")
            + "/>"
        )

    def swatch(self, x: float, y: float, storage: str | None, palette: Sequence[str]) -> None:
        """A storage's hue, 18 px square with its top left corner at ``x``, ``y``; a grey one with its letter."""
        colour = hue(storage, palette)
        self.rect(x, y, 18, 18, "box", fill=colour, rx=3)
        if colour != GREY:
            return
        place = f'x="{x + 9:.1f}" y="{y + 13:.1f}" text-anchor="middle"'
        self.parts.append(f'<text class="t s b" {place} style="fill:{ink_on(colour)}">{letter(storage)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "line", *, style: str = "") -> None:
        """A straight line; ``kind`` is a class of :data:`STYLE`, ``style`` is CSS of our own making, never data."""
        self.parts.append(
            f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
            + (f' style="{style}"' if style else "")
            + "/>"
        )

    def path(self, d: str, kind: str = "line", *, style: str = "") -> None:
        """A path; ``d`` is made of numbers only."""
        self.parts.append(f'<path class="{kind}" d="{d}"' + (f' style="{style}"' if style else "") + "/>")

    def svg(self, width: float, height: float, title: str) -> str:
        """The finished picture as self-contained SVG, ``width`` × ``height`` px, with ``title`` for screen readers."""
        size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
            f"<title>{clean(title)}</title><style>{STYLE}</style>"
            f'<rect class="bg" width="100%" height="100%"/>{"".join(self.parts)}</svg>'
        )
