"""A matplotlib figure together with its words: JupyterLab draws images without an alternative text, so a screen reader
finds nothing. :func:`show_figure` returns both as one object that a notebook displays.

``play`` puts sliders above such a figure; a page without a kernel shows the figure as it was drawn first.
"""

# ruff: noqa: PLC0415 - a figure without sliders needs no widgets

from __future__ import annotations

import base64
import inspect
import io
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pitfall_lab.views.stored import with_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pitfall_lab.views.picture import Picture


# Figures are drawn in dark colours on white paper. In a dark theme lightness is turned round and every hue kept: what
# contrasted with the paper contrasts with the page, whatever colours a chapter or a learner chose.
STYLE = """<style>
.pl-figure { background: white; max-width: 100%; height: auto }
:is([data-jp-theme-light="false"], .vscode-dark) .pl-figure:not(.pl-as-drawn) {
  filter: invert(0.93) hue-rotate(180deg)
}
@media print { .pl-figure.pl-figure { filter: none } }
</style>"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A drawing with its description, displayed in a notebook as an image with an alternative text, printed as the
    text.

    ``svg`` is the drawing, ``alt`` the description. ``as_drawn``: it keeps its own colours in a dark theme.
    """

    svg: bytes = field(repr=False)
    alt: str
    as_drawn: bool = False

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg).decode("ascii")
        kind = "pl-figure pl-as-drawn" if self.as_drawn else "pl-figure"
        return f'{STYLE}<img class="{kind}" alt="{escape(self.alt)}" src="data:image/svg+xml;base64,{data}">'

    def __repr__(self) -> str:
        return f"[Figure: {self.alt}]"


def show_figure(figure: Figure, alt: str, *, as_drawn: bool = False) -> Shown:
    """Make a matplotlib figure an image that the notebook shows, with ``alt`` as the text for readers who do not see
    it; the figure is closed in pyplot.

    With ``as_drawn`` it keeps its colours in a dark theme too, on its white paper: for colours that a text names, and
    for areas of colour, whose light and dark mean something.

    Raises ValueError if ``alt`` is blank.
    """
    if not alt.strip():
        raise ValueError("Say in a sentence what the figure shows: screen readers read it aloud.")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close(figure)  # or the notebook would draw the open figure a second time
    return Shown(drawn.getvalue(), alt, as_drawn)


class Still:
    """A :class:`~pitfall_lab.views.picture.Picture` shown without widgets: otherwise each position of a slider would
    leave a widget behind in the page and the kernel.
    """

    def __init__(self, picture: Picture) -> None:
        self._picture = picture

    def _repr_html_(self) -> str:
        return self._picture.html

    def __repr__(self) -> str:
        return repr(self._picture)


class Play:
    """A figure that is drawn again whenever a control is moved (see :func:`play`). Figures of pyplot that a drawing
    left open when it raised are closed.
    """

    def __init__(self, draw: Callable[..., Shown | Picture | None], controls: dict[str, Any]) -> None:
        """See :func:`play`."""
        from ipywidgets import interactive

        refused: list[Exception] = []

        def drawn(**values: Any) -> Shown | Still | None:
            before = _open_figures()
            try:
                found = draw(**values)
            except Exception as error:
                refused.append(error)
                _close(_open_figures() - before)
                raise
            return found if found is None or isinstance(found, Shown) else Still(found)

        drawn.__signature__ = _with_defaults(draw, controls)  # type: ignore[attr-defined] # where ipywidgets looks
        self._live = interactive(drawn, {"manual": False, "auto_display": True}, **controls)
        if refused:  # ipywidgets prints it into a widget that is not on the page yet
            self._live.close()
            raise refused[0]
        self._first: Shown | Still | None = self._live.result
        self._live.layout.min_height = "360px"  # or the page jumps each time a figure is replaced

    def _repr_mimebundle_(self, **options: Any) -> Any:
        live = self._live._repr_mimebundle_(**options)
        return (
            live
            if self._first is None
            else with_page(live, {"text/html": self._first._repr_html_(), "text/plain": repr(self._first)})
        )


def _with_defaults(draw: Callable[..., Any], controls: Iterable[str]) -> inspect.Signature:
    """A signature with the controls as parameters, with the defaults that they have in ``draw``."""
    try:
        own = inspect.signature(draw).parameters
    except (TypeError, ValueError):  # a function that is not Python's may have none
        own = MappingProxyType({})
    kind, none = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return inspect.Signature(
        [inspect.Parameter(name, kind, default=own[name].default if name in own else none) for name in controls]
    )


def _open_figures() -> set[int]:
    """The numbers of matplotlib's open figures; none where matplotlib is not in use."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set(pyplot.get_fignums()) if pyplot else set()


def _close(numbers: set[int]) -> None:
    """Close figures that a drawing left open, or the notebook would draw them half finished."""
    for number in numbers:
        sys.modules["matplotlib.pyplot"].close(number)


def play(draw: Callable[..., Shown | Picture | None], **controls: Any) -> Play:
    """Show ``draw(...)``, a figure made by :func:`show_figure` or a picture such as ``show_storage``'s,
    below a control for each argument.

    ``None`` is drawn as nothing, where ``draw`` has printed something instead. A control is an ipywidget or
    what ``ipywidgets.interact`` makes one from: ``rate=(0.0, 1.0, 0.1)`` is a slider, a list a menu. These begin
    with the defaults of ``draw``. Raises what the first drawing raises.
    """
    return Play(draw, controls)
