"""The progress bar of a long run: only where there is a terminal to draw it on."""

from __future__ import annotations

import io
import sys

import pytest

from pitfall_lab.classroom.grade import _bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_counts_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with _bar(3) as step:
        for _ in range(3):
            step()
    assert "3/3" in screen.getvalue()
    assert "submission" in screen.getvalue()


def test_a_file_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with _bar(3) as step:
        step()
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]
