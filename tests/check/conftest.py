"""One worker process for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pitfall_lab.check import Workshop


@pytest.fixture(scope="session")
def open_shop() -> Iterator[Workshop]:
    with Workshop(timeout=60) as workshop:
        yield workshop


@pytest.fixture
def shop(open_shop: Workshop) -> Workshop:
    """Runs programs in forks of one process, within the usual limits: a test that sets
    others sets them for itself alone.
    """
    usual = Workshop(timeout=60)
    open_shop.timeout, open_shop.memory, open_shop.steps = usual.timeout, usual.memory, usual.steps
    open_shop.every_round = usual.every_round
    return open_shop
