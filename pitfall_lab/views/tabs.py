"""Finds the views that are tabs of the Explorer: the folders of this package whose ``__init__.py`` has a ``TAB``.
:func:`tabs` returns them from left to right.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from pitfall_lab.trace import T


@dataclass(frozen=True, slots=True)
class Tab:
    """The tab of a view: ``place`` orders the tabs from left to right, ``title`` is written on it.

    The rest is found by the view's name. ``frontend/src/views/NAME.ts`` draws it in the browser. The view's ``svg.py``,
    if there is one, has ``draw(scene, facts, language)``, the picture for the page without scripts, and ``has(scene,
    facts)``: whether there is anything to draw.
    """

    place: int
    title: T


def tabs() -> dict[str, Tab]:
    """The views with a tab, by name, from left to right."""
    package = __name__.rpartition(".")[0]
    views = [found.name for found in iter_modules([str(Path(__file__).parent)]) if found.ispkg]
    found = {name: getattr(import_module(f"{package}.{name}"), "TAB", None) for name in views}
    known = {name: tab for name, tab in found.items() if isinstance(tab, Tab)}
    return dict(sorted(known.items(), key=lambda pair: pair[1].place))
