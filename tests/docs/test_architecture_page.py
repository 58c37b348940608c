"""The page of the architecture says what the files say."""

from __future__ import annotations

from functools import cache

from pitfall_lab.reference import architecture

page = cache(architecture.page)


def test_the_page_is_what_would_be_written() -> None:
    written = architecture.PAGE.read_text(encoding="utf-8")
    assert written == page(), "run `python -m pitfall_lab.reference.architecture`"


def test_no_two_rooms_import_each_other() -> None:
    arrows = [line.split(" --> ") for line in page().splitlines() if " --> " in line]
    meets: dict[str, set[str]] = {}
    for start, end in arrows:
        meets.setdefault(start.strip(), set()).add(end)
        meets.setdefault(end, set())
    assert len(meets) > 10
    assert not [name for name in meets if name in architecture._reach(name, meets)]
