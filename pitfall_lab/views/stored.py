"""The output of a widget: live where a kernel runs, and a static page elsewhere. :func:`with_page` returns both as one
MIME bundle.
"""

from __future__ import annotations

from typing import Any

MARK = "application/vnd.pitfall-lab.look+json"
"""Marks an output that has a static page: the JupyterLab extension shows it in a reopened notebook in
place of the missing widget.
"""


def with_page(live: Any, page: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The MIME bundle of a widget together with that of its static ``page``, and the metadata.

    ``live`` is the widget's data, or a pair of data and metadata. The bundle has ``MARK`` if it has both a widget and
    HTML.
    """
    data, metadata = live if isinstance(live, tuple) else (live or {}, {})
    mark = {MARK: {"version": 1}} if data and "text/html" in page else {}
    return {**mark, **data, **page}, metadata
