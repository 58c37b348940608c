"""Where the kernel has no fence for submissions, what would grade behind one is skipped, and the report says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pitfall_lab.classroom import fence

FOLDER = Path(__file__).resolve().parent
BEHIND_A_FENCE = ("test_class.py", "test_dask.py", "test_progress_bar.py", "test_room.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a fence that this machine does not have."""
    lacks = fence.missing()
    if not lacks:
        return
    skip = pytest.mark.skip(reason=f"grading needs {' and '.join(lacks)}, which this machine does not have")
    for item in items:
        named = item.name == "test_the_commands_of_the_page_work" or "folder" in getattr(item, "fixturenames", ())
        if item.path.parent == FOLDER and (item.path.name in BEHIND_A_FENCE or (item.path.name == "test_command.py" and named)):
            item.add_marker(skip)
