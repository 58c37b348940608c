"""The processes in which programs are checked are kept from one test to the next: each takes as long to start as torch to import.

A worker process serves one program after the other, and nothing of one reaches the next: that is what it is for. Here it serves the next
workshop as well, if that has the same environment and current folder. Commands that are started as processes of their own start theirs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

from pitfall_lab.check import Workshop

MOST = 4
Key = tuple[str, frozenset[tuple[str, str]]]


@contextmanager
def kept() -> Iterator[None]:
    """Let workshops take over each other's processes."""
    start, end = Workshop._start, Workshop.__exit__
    made: dict[subprocess.Popen[str], Key] = {}
    free: list[subprocess.Popen[str]] = []

    def take(shop: Workshop) -> None:
        mine = _key()
        for worker in free:
            if made[worker] == mine and worker.poll() is None:
                free.remove(worker)
                shop._worker = worker
                return
        start(shop)
        if shop._worker is not None:
            made[shop._worker] = mine

    def leave(shop: Workshop, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and shop._worker in made and shop._worker.poll() is None:  # after an exception it may still be at work
            free.append(shop._worker)
            shop._worker = free.pop(0) if len(free) > MOST else None
        end(shop, kind, value, trace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workshop, "_start", take)
        patch.setattr(Workshop, "__exit__", leave)
        yield
    for worker in free:
        shop = Workshop()
        shop._worker = worker
        end(shop, None, None, None)


def _key() -> Key:
    return str(Path.cwd()), frozenset(item for item in os.environ.items() if item[0] != "PYTEST_CURRENT_TEST")
