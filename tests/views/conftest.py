"""The front end's browser, with pages as wide as the pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.frontend.conftest import chromium
from tests.frontend.stage import Stage, staged

__all__ = ["chromium"]


@pytest.fixture
def stage(chromium: Browser) -> Iterator[Stage]:
    with staged(chromium, 1300) as here:
        yield here
