"""Texts of students in cells of a spreadsheet."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"((?:^|;)[ \"]*)(?=[=+@＝＋－＠-])")
"""The beginning of a cell that a spreadsheet reads as a formula; a semicolon separates cells too,
where a comma is part of numbers. There, quotation marks behind it are those of a cell, and not read.
"""


def plain(text: str) -> str:
    """A text on one line that no spreadsheet reads as a formula, without signs that reverse the
    direction of the text around it.
    """
    text = "".join(
        " " if sign.isspace() else sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text
    )
    text = " ".join(text.split()) if text.strip() else text
    return _FORMULA.sub(r"\1'", text)
