"""The examples in the docstrings of the lessons are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"lessons.{name}"
            for name in (
                "boxes",
                "run_here",
                "attempt",
                "exercise",
                "exercises",
                "worlds",
                "claims",
                "demonstrations",
                "turns",
            )
        ),
        "verify.counted_writes",
        "verify.large_results",
    ],
)
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    done = doctest.testmod(import_module(f"pitfall_lab.{name}"))
    assert done.attempted
    assert not done.failed
