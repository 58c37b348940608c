"""One browser and one page for all tests of a file, cleared for each; what the page
said or asked for fails its test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.frontend.stage import Stage, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def window(chromium: Browser) -> Stage:
    return Stage(chromium.new_page())


@pytest.fixture
def stage(window: Stage) -> Iterator[Stage]:
    with window.cleared(1040):
        yield window
