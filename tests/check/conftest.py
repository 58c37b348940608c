"""One worker process for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pitfall_lab.check import Workshop


@pytest.fixture(scope="session")
def shop() -> Iterator[Workshop]:
    """Runs programs in forks of one process."""
    with Workshop(timeout=60) as workshop:
        yield workshop
