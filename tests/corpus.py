"""The programs that tests run on: tests/programs, one idea each."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "programs"
PROGRAMS = sorted(FOLDER.glob("*.py"))
