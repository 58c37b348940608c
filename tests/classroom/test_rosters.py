"""Names, logins and addresses that students have chosen to get another one's points, or to act in tables and pages."""

from __future__ import annotations

import pytest

from tests.classroom.rosters import Chosen, rosters


@pytest.mark.parametrize("chosen", rosters(), ids=lambda chosen: chosen.what)
def test_whatever_a_student_is_called_points_are_whose_they_are(chosen: Chosen) -> None:
    assert chosen.faults() == ""
