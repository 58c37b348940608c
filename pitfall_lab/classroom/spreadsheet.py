"""Texts of students in cells of a spreadsheet."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"((?:^|;)[ \"]*)(?=[=+@＝＋－＠-])")
"""The beginning of a cell that a spreadsheet reads as a formula; a semicolon separates cells too,
where a comma is part of numbers. There, quotation marks behind it are those of a cell, and not read.
"""

LONGEST_CELL = 32_000
"""Characters of a cell of a table: Excel takes 32,767, and Python's own reader of CSV 131,072, without which no later
run could go on.
"""


def plain(text: str) -> str:
    """A text on one line that no spreadsheet reads as a formula, cut to :data:`LONGEST_CELL` characters.

    White space becomes single spaces, and unprintable characters, such as those that reverse the direction of text, are
    replaced.
    """
    text = text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]} …"
    text = "".join(
        " " if sign.isspace() else sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text
    )
    text = " ".join(text.split()) if text.strip() else text
    return _FORMULA.sub(r"\1'", text)
