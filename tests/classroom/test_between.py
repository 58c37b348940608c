"""Cases of several runs or submissions together: files, names, times and copies that would change a mark."""

from __future__ import annotations

import pytest

from tests.classroom import twenty_first_class, twenty_second_class
from tests.classroom.twentieth_class import between, fault

ALL = {**between(), **twenty_first_class.between(), **twenty_second_class.between()}


@pytest.mark.parametrize("what", ALL)
def test_what_lies_between_runs_is_read_as_what_it_is(what: str) -> None:
    assert fault(ALL[what]) == ""
