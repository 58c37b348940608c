"""One worker process for all tests of this folder, and for the rules' pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pitfall_lab.check import Workshop
from tests.workers import Remembering


@pytest.fixture(scope="session")
def shop() -> Iterator[Workshop]:
    """Runs programs in forks of one process, each once."""
    with Remembering(timeout=60) as workshop:
        yield workshop
