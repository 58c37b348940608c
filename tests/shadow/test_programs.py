"""Random programs: after every statement the two engines agree on everything that can be seen."""

from __future__ import annotations

import pytest

from tests.shadow.programs import run_program


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("start", range(0, 120, 10))
def test_ten_random_programs(start: int) -> None:
    for seed in range(start, start + 10):
        assert run_program(seed)
