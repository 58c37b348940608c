"""Cases of several runs or submissions together: files, names, times and copies that would change a mark."""

from __future__ import annotations

import pytest

from tests.classroom.twentieth_class import between, fault


@pytest.mark.parametrize("what", between())
def test_what_lies_between_runs_is_read_as_what_it_is(what: str) -> None:
    assert fault(between()[what]) == ""
