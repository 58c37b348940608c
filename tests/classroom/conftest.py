"""Where the kernel has no fence for submissions, what would grade behind one is left out, and the
report's head says what is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pitfall_lab.classroom import fence

FOLDER = Path(__file__).resolve().parent
BEHIND_A_FENCE = ("test_between.py", "test_class.py", "test_dask.py", "test_progress_bar.py", "test_room.py")
LACKS = fence.missing()


def pytest_report_header() -> list[str]:
    """Say what cannot be tested here."""
    return [f"tests/classroom: grading needs {' and '.join(LACKS)}, which this machine does not have"] if LACKS else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a fence that this machine does not have."""
    left_out = [item for item in items if LACKS and item.path.parent == FOLDER and _grades(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _grades(item: pytest.Item) -> bool:
    if item.path.name in BEHIND_A_FENCE:
        return True
    grading = item.name == "test_the_commands_of_the_page_work" or "folder" in getattr(item, "fixturenames", ())
    return item.path.name == "test_command.py" and grading
