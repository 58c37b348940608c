"""A picture of a row's object, drawn by the same views as the pictures in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitfall_lab.panel.protocol import View
from pitfall_lab.trace import Language, T


def picture(namespace: Mapping[str, Any], path: tuple[str, ...], view: View, language: Language) -> tuple[str | None, T] | None:
    """The picture's SVG (None if there is none) and its text; ``None`` if the object no longer exists."""
    from pitfall_lab.observe.live.keeping import keeping
    from pitfall_lab.observe.live.tied import tied
    from pitfall_lab.observe.snapshot import graph, snapshot
    from pitfall_lab.views import moment

    values = tied(namespace, path)
    if not values:
        return None
    if view == "alive":
        return None, keeping(namespace, path)
    trace = snapshot(values) if view == "storage" else graph(values[:1])
    en, zh = ((moment.storage if view == "storage" else moment.graph)(trace, each) for each in ("en", "zh"))
    return (zh if language == "zh" else en).svg or None, T(en.text, zh.text)
