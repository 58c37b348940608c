"""The order in which the tests are handed out: what takes long begins first, so that no worker is left alone with it at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
LONGEST = ("notebooks", "verify/test_claims_agree.py", "fuzz", "docs", "bench", "classroom", "frontend", "check", "rules")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort whole files; the order within a file stays."""
    items.sort(key=lambda item: _place(item.path.relative_to(ROOT).as_posix()) if ROOT in item.path.parents else len(LONGEST))


def _place(path: str) -> int:
    return next((n for n, begin in enumerate(LONGEST) if path.startswith(begin)), len(LONGEST))
