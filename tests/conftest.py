"""The order in which the tests are handed out: what takes long begins first, so that no worker is
left alone with it at the end.

And what the garbage collector need not look at.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.slow import is_left_out, waiting
from tests.turns import EVERYTHING, TURN, WHOLE, todays

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# Hypothesis has its opinion of slow programs on an idle machine; the workers share one with browsers and kernels.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

# To import jsonschema, as each reading of a notebook does, is to compile a grammar of internationalised
# addresses: longer than torch takes.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

ROOT = Path(__file__).resolve().parent
LONGEST = (
    "notebooks", "docs/test_readme.py", "rules", "docs/test_pages.py", "classroom/test_class.py",
    "classroom/test_room.py", "check", "fuzz", "frontend", "docs", "classroom", "bench", "test_packaging.py",
    "test_safe_path.py", "test_warm.py", "observer", "panel", "lessons", "views", "shadow/test_variants.py", "verify",
    "shadow/test_entries.py", "shadow/test_alone.py", "shadow/test_types.py",
)  # fmt: skip
RULES = tuple(f"tests/{name}.py" for name in ("rules/test_programs", "rules/test_findings", "docs/test_pages"))
"""What asks something of the rules' own programs: each is run once."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Twelve thousand tests and torch stay to the end: to go through them takes half a second each time
    that a test collects garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_report_header() -> str:
    """Say which part of what takes long is run."""
    return "all variants" if EVERYTHING else f"PITFALL_TURN={TURN}"


@pytest.fixture(scope="session", autouse=True)
def _kept_workers() -> Iterator[None]:
    from tests.workers import kept

    with kept():
        yield


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """What a test draws depends neither on the tests before it nor on the worker that runs it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_hook_stays_behind() -> Iterator[None]:
    """A hook that a test's program leaves in this process would run in the optimizers of all tests after it."""
    yield
    optimizer = sys.modules.get("torch.optim.optimizer")
    if optimizer is not None:
        for hooks in (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks):
            left = list(hooks.values())
            hooks.clear()
            assert not left, "an optimizer hook stays behind"


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A command like Python that has imported torch, and most of this package, already."""
    from tests.warm import USUAL, warmed

    with warmed(tmp_path_factory.mktemp("warm"), USUAL) as python:
        yield python


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort whole files; the order within a file stays. Of slow tests and browser tests, those of today when all run."""
    items.sort(key=lambda item: _place(item.path))
    if WHOLE in os.environ:
        # Several cases of one function stay together: some functions have another case each day, and get all of them
        # as long as the numbers of days have no common factor.
        names = dict.fromkeys(item.nodeid.partition("[")[0] for item in items if item.path.parent == ROOT / "browser")
        browser = {*names} - {*todays(names, of=4)}
        waits = browser | waiting(item.nodeid for item in items)
        others = [
            item for item in items
            if is_left_out(item.nodeid) or not waits.isdisjoint((item.nodeid, item.nodeid.partition("[")[0]))
        ]  # fmt: skip
        config.hook.pytest_deselected(items=others)
        left = {id(item) for item in others}
        items[:] = [item for item in items if id(item) not in left]


@cache
def _place(path: Path) -> int:
    inside = path.relative_to(ROOT).as_posix() if ROOT in path.parents else ""
    return next((n for n, begin in enumerate(LONGEST) if inside.startswith(begin)), len(LONGEST))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Hand out whole files in the order above, but the notebooks one by one, and together what
    runs the rules' own programs.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrNotebook(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            notebook = re.search(r"/test_execution\.py::.*\[(.+)\.ipynb", nodeid)
            if notebook:
                return notebook[1]
            return "rules" if nodeid.startswith(RULES) else str(super()._split_scope(nodeid))

    # By default xdist sorts what it hands out by the number of tests; a notebook has few and takes long.
    config.option.loadscopereorder = False
    return ByFileOrNotebook(config, log)
