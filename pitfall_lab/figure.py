"""A matplotlib figure together with its words: JupyterLab draws images without an alternative text, so a screen reader finds nothing."""

from __future__ import annotations

import base64
import io
import sys
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Shown:
    """A drawing and its description; displayed as an image with an alternative text, printed as the text."""

    svg: bytes = field(repr=False)
    alt: str

    def _repr_html_(self) -> str:
        # White paper below the drawing in every theme: its axes and numbers are black.
        style = "background: white; max-width: 100%; height: auto"
        data = base64.b64encode(self.svg).decode("ascii")
        return f'<img alt="{escape(self.alt)}" style="{style}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"[Figure: {self.alt}]"


def show_figure(figure: Figure, alt: str) -> Shown:
    """Show a matplotlib figure once, with ``alt`` as the text for readers who do not see it. Raises ValueError without such a text."""
    if not alt.strip():
        raise ValueError("Say in a sentence what the figure shows: screen readers read it aloud.")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # or the notebook would draw the open figure a second time
    return Shown(drawn.getvalue(), alt)
