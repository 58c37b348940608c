"""What each test file costs: ``python -m tests.processor [words for pytest]`` prints processor time,
that of every process included.

A test's own clock misses what it leaves to others: processes that are kept for the next test, forks that nobody waits
for, kernels, a browser. So each worker of pytest is put into a control group of Linux (version 1, ``cpuacct``), which
counts all of them. Needs root.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")
FOLDER = "PITFALL_PROCESSOR"


class Meter:
    """A plugin of pytest: from one test to the next, what the group of this process has used."""

    def __init__(self, folder: Path) -> None:
        self.used: Counter[str] = Counter()
        self.group = GROUPS / f"pitfall-lab-{os.getpid()}"
        self.file = folder / f"{os.getpid()}.json"
        self.group.mkdir()
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def now(self) -> float:
        return int((self.group / "cpuacct.usage").read_text()) / 1e9

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        before = self.now()
        try:
            return (yield)
        finally:
            self.used["(collecting)"] += self.now() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[bool | None]:
        before = self.now()
        try:
            return (yield)
        finally:
            self.used[item.nodeid.partition("::")[0]] += self.now() - before

    def pytest_unconfigure(self) -> None:
        self.file.write_text(json.dumps(self.used))


def pytest_configure(config: pytest.Config) -> None:
    """Where tests are run: in pytest's workers, or in pytest itself where it has none. Not in what a test starts."""
    here = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if here and (folder := os.environ.pop(FOLDER, "")):
        config.pluginmanager.register(Meter(Path(folder)))


def main(words: list[str]) -> int:
    """Run the tests and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        code = pytest.main(["-p", "tests.processor", *words])
        used: Counter[str] = Counter()
        for file in Path(folder).iterdir():
            used.update(json.loads(file.read_text()))
    print("\n".join(f"{seconds:8.1f} s  {name}" for name, seconds in used.most_common()))
    print(f"{sum(used.values()):8.1f} s in all")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
