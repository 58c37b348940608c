"""The processes in which programs are checked are kept from one test to the next: each takes as
long to start as torch to import.

A worker process serves one program after the other, and nothing of one reaches the next: that is what it is for. Here
it serves the next workshop as well, if that has the same environment and current folder. Commands that are started as
processes of their own start theirs.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import pytest

from pitfall_lab.check import Subject, Workshop

MOST = 4
Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass(eq=False)
class Remembering(Workshop):
    """Runs a program once for all tests that ask the same of it.

    A rule's programs are wanted for its findings, its repairs, its traps and its page.
    """

    known: ClassVar[dict[tuple[Any, ...], tuple[str, str]]] = {}

    def _run(self, kind: str, subject: Subject, **how: Any) -> str:
        asked = (kind, subject, self.memory, *sorted(how.items()))
        if asked not in self.known:
            self.known[asked] = super()._run(kind, subject, **how), self.printed
        answer, self.printed = self.known[asked]
        return answer


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

    def leave(
        shop: Workshop, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (
            kind is None and shop._worker in made and shop._worker.poll() is None
        ):  # after an exception it may still be at work
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
