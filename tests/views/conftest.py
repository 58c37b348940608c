"""One browser for the pictures' tests; what a page said on its console or asked the network for fails its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.frontend.stage import Stage, browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def stage(chromium: Browser) -> Iterator[Stage]:
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    here = Stage(page)
    yield here
    page.close()
    assert here.said == [], "the page spoke on its console"
    assert here.asked == [], "the page asked the network"
