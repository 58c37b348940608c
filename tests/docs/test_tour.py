"""The tour of the shadow engine is executed; where torch stands beside the shadow, both print what the page says."""

from __future__ import annotations

import re

import pytest

from tests.docs import tour

TEXT = tour.PAGE.read_text(encoding="utf-8")
CORE = ("storage", "graph", "engine", "backward")


@pytest.fixture(scope="module")
def played() -> tuple[list[tour.Step], str]:
    return tour.play(TEXT)


def test_every_program_prints_what_the_page_says(played: tuple[list[tour.Step], str]) -> None:
    for step in played[0]:
        for kind, body, output in step.programs:
            assert output == step.said, f"{kind}\n{body}"


def test_outputs_and_lengths_of_files_are_those_of_now(played: tuple[list[tour.Step], str]) -> None:
    assert played[1] == TEXT, "run `python -m tests.docs.tour`"


def test_most_steps_are_compared_with_torch(played: tuple[list[tour.Step], str]) -> None:
    both = [step for step in played[0] if {kind for kind, _, _ in step.programs} == {"python", "python torch"}]
    assert len(both) >= 9


def test_the_tour_visits_the_whole_core_and_says_what_torch_does_otherwise() -> None:
    assert [name for name in CORE if f"(../shadow/{name}.py)" not in TEXT] == []
    assert len(re.findall(r"^\*In torch:\*", TEXT, flags=re.MULTILINE)) >= 6


def test_the_core_can_be_read_in_one_sitting() -> None:
    # Docstrings that say what arguments and results are make it longer to scroll, and shorter to read.
    assert sum(tour.length_of_code(f"shadow/{name}.py") for name in CORE) <= 1700
    assert sum(tour.length(f"shadow/{name}.py") for name in CORE) <= 2250


def test_the_size_of_the_core_counts_every_file_that_it_imports() -> None:
    shadow, waiting, found = tour.ROOT / "pitfall_lab" / "shadow", [f"{name}.py" for name in CORE], set[str]()
    while waiting:
        name = waiting.pop()
        found.add(name)
        imported = re.findall(
            r"^ *from pitfall_lab\.shadow(?: import |\.)(\w+)", (shadow / name).read_text("utf-8"), re.MULTILINE
        )
        waiting += {f"{each}.py" for each in imported if (shadow / f"{each}.py").is_file()} - found
    assert len(found) > 15
    assert set(re.findall(r"^\| \[\w+\.py\]\(\.\./shadow/(\w+\.py)\) \| \d+ \|", TEXT, re.MULTILINE)) == found
