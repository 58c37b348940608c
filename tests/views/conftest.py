"""The front end's browser, with pages as wide as the pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frontend.conftest import chromium, window
from tests.frontend.stage import Stage

__all__ = ["chromium", "window"]


@pytest.fixture
def stage(window: Stage) -> Iterator[Stage]:
    with window.cleared(1300):
        yield window
