"""Boxes for notebook pages that need no script: a frame, a listing, a fold. Every text is escaped here, in one place.
Each function returns HTML.

Styles are inline, because a page that was exported or is not trusted brings no style sheet of ours; colours are
JupyterLab's variables with fallbacks.
"""

from __future__ import annotations

import re
from html import escape

from pitfall_lab.trace import Language

_BOX = (
    "border:1px solid var(--jp-border-color1,#bbb);border-left-width:6px;border-radius:3px;padding:8px "
    "14px;margin:6px 0;max-width:64em"
)
_LISTING = (
    "background:var(--jp-layout-color2,#f3f3f3);padding:6px 10px;overflow-x:auto;margin:4px 0;"
    "font-family:var(--jp-code-font-family,monospace);font-size:13px;line-height:1.35"
)
_QUIET = "color:var(--jp-ui-font-color2,#595959);font-size:90%"


def box(kind: str, language: Language, *parts: str) -> str:
    """Return a framed block of class ``pl-<kind>`` around parts that are HTML already."""
    return f'<div class="pl-{kind}" lang="{language}" style="{_BOX}">{"".join(parts)}</div>'


def listing(text: str, *, wrapped: bool = False) -> str:
    """A program or an output as HTML, shown literally; long lines are ``wrapped`` or can be scrolled, by keyboard, too.

    >>> listing("a < b").endswith(">a &lt; b</pre>")
    True
    """
    space = "pre-wrap" if wrapped else "pre"
    return (
        '<pre tabindex="0" data-lm-suppress-shortcuts="true" '
        f'style="white-space:{space};{_LISTING}">{escape(text.rstrip())}</pre>'
    )


def quiet(text: str) -> str:
    """A line of small print, as HTML; parts of ``text`` between backticks are code."""
    return f'<div style="{_QUIET}">{prose(text)}</div>'


def line(text: str, language: Language | None = None, *, strong: bool = False) -> str:
    """Return one line of text as HTML; parts between backticks are code. ``language`` is given if it differs from that
    of the box; ``strong``: in bold.
    """
    said = f' lang="{language}"' if language else ""
    return f'<div{said} style="margin:4px 0{";font-weight:600" if strong else ""}">{prose(text)}</div>'


def prose(text: str) -> str:
    """Return a text in which the parts between backticks are code.

    >>> prose("`a < b` holds")
    '<code>a &lt; b</code> holds'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def rule() -> str:
    """A thin line across the box, as HTML."""
    return '<hr style="border:0;border-top:1px solid var(--jp-border-color1,#bbb);margin:10px 0">'


def items(texts: list[str]) -> str:
    """A list as HTML; "" if there are no texts."""
    rows = "".join(f"<li>{prose(text)}</li>" for text in texts)
    return f'<ul style="margin:2px 0">{rows}</ul>' if rows else ""


def fold(summary: str, *parts: str) -> str:
    """Return a block with the line ``summary`` whose other ``parts`` (HTML) are hidden until the reader opens it, with
    the mouse or the keyboard and without scripts.
    """
    return (
        f'<details><summary style="cursor:pointer;padding:4px 0">{escape(summary)}</summary>{"".join(parts)}</details>'
    )
