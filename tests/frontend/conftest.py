"""One browser for all tests of a file, one page for each test; what a page said or asked for fails its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.frontend.stage import Stage, browser, staged


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def stage(chromium: Browser) -> Iterator[Stage]:
    with staged(chromium, 1040) as here:
        yield here
