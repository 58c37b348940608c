"""What each program of the corpus does without and with recording, measured once per test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.corpus import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = Path(__file__).with_name("worker.py")


def _run(mode: str) -> dict[str, dict]:
    """One process for all programs: the first `import torch` costs more than all of them together."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONWARNINGS", None)
    command = [sys.executable, WORKER, mode, *PROGRAMS]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=420, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    # A program that takes the process down is named by what is missing after it.
    assert done.returncode == 0, (
        f"the {mode} worker died after {[f['program'] for f in found][-1:]}:\n{done.stderr[-3000:]}"
    )
    return {f["program"]: f for f in found}


@pytest.fixture(scope="session")
def runs() -> dict[str, dict[str, dict]]:
    """``runs["plain" | "recorded"][program]`` as tests/observer/worker.py reports it."""
    with ThreadPoolExecutor(2) as both:
        plain, recorded = both.map(_run, ["plain", "recorded"])
    return {"plain": plain, "recorded": recorded}
