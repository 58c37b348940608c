"""A widget's output: live in a page with a kernel, and a page of its own where there is none."""

from __future__ import annotations

from typing import Any

MARK = "application/vnd.pitfall-lab.look+json"
"""Says to the extension in JupyterLab that this output has a page: a notebook that is opened again shows it instead of a missing widget."""


def with_page(live: Any, page: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The bundle of MIME types of a widget and its page, and the metadata; without the mark where there is no page."""
    data, metadata = live if isinstance(live, tuple) else (live or {}, {})
    mark = {MARK: {"version": 1}} if data and "text/html" in page else {}
    return {**mark, **data, **page}, metadata
