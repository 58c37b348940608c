"""The pictures on the page of comparison are what the package draws today."""

from __future__ import annotations

import re

from tests.docs.comparison import FOLDER, pictures


def test_the_pictures_are_up_to_date_and_described():
    page = (FOLDER / "compare.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"!\[([^\]]{20,})\]\(([^)]+)\)", page))
    for name, picture in pictures().items():
        assert (FOLDER / name).read_text(encoding="utf-8") == picture.svg, (
            "python -m tests.docs.comparison draws them anew"
        )
        assert name in shown.values()
