"""A picture of a row's object, drawn by the same views as the pictures in a notebook (:func:`picture`)."""

# ruff: noqa: PLC0415 - a picture is drawn when a row is opened, which is seldom

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitfall_lab.panel.protocol import View
from pitfall_lab.trace import Language, T

_NOTHING = T(
    "This has no memory of its own: unfold it, and click what is inside.",
    "它没有自己的内存：请展开它，然后点击其中的内容。",
)
_OPAQUE = T("This cannot be looked at without running code of its class.", "不运行其类的代码就无法查看它。")


def picture(
    namespace: Mapping[str, Any], path: tuple[str, ...], view: View, language: Language
) -> tuple[str | None, T] | None:
    """Return a picture of the notebook's object at ``path``, as SVG in ``language`` (None if the text is enough), and
    the picture as text, in English and Chinese; None if the object no longer exists.

    ``view`` is what is drawn: its storage, its autograd graph, or what keeps it alive. ``namespace`` has the notebook's
    names and their objects.
    """
    from pitfall_lab.observe.live.inside import resolve
    from pitfall_lab.observe.live.keeping import keeping
    from pitfall_lab.observe.live.tied import tied
    from pitfall_lab.observe.looking import unseen
    from pitfall_lab.observe.snapshot import graph, snapshot
    from pitfall_lab.views import moment

    values = tied(namespace, path)
    if not values:
        with unseen():
            thing = resolve(namespace, path)
        return (None, _OPAQUE if thing.kind in ("tensor", "array") else _NOTHING) if thing is not None else None
    if view == "alive":
        return None, keeping(namespace, path)
    trace = snapshot(values) if view == "storage" else graph(values[:1])
    en, zh = ((moment.storage if view == "storage" else moment.graph)(trace, each) for each in ("en", "zh"))
    return (zh if language == "zh" else en).svg or None, T(en.text, zh.text)
