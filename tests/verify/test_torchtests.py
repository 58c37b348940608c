"""The command that runs a file of torch's own tests, on a file of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os
import time
import unittest
import warnings

import torch


class TestSome(unittest.TestCase):
    def test_agrees(self):
        x = torch.ones(3, requires_grad=True)
        x.mul(2).sum().backward()
        self.assertEqual(x.grad.tolist(), [2, 2, 2])

    def test_fails_alone(self):
        self.assertTrue(False)

    def test_notices(self):
        self.assertEqual(torch._C._len_torch_function_stack(), 0)

    def test_warns_more(self):
        if torch._C._len_torch_function_stack():
            warnings.warn("recorded")

    def test_draws_more(self):
        torch.rand(1 + torch._C._len_torch_function_stack())

    def test_never_ends(self):
        while torch._C._len_torch_function_stack():
            pass

    def test_dies(self):
        if torch._C._len_torch_function_stack():
            os._exit(3)

    @unittest.skip("not here")
    def test_skipped(self):
        pass
"""


def test_what_changes_when_recorded_is_named(tmp_path: Path) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS, encoding="utf-8")
    words = [sys.executable, "-m", "tests.torchtests", str(file), "--jobs", "2", "--timeout", "2"]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 1, run.stderr
    rows = dict(
        line.strip("| ").split(" | ") for line in run.stdout.splitlines() if line.startswith("| ") and len(line) > 6
    )
    assert rows["tests"] == "8"
    assert rows["passed plain (or skipped)"] == "7 (1)"
    assert rows["passed recorded, in the same way"] == "2"
    assert rows["changed outcome"] == "4"
    assert rows["not finished recorded"] == "1"
    assert rows["calls compared / mirrored / disagreed"] == "7 / 0 / 0"
    for said in ("test_notices: passed, recorded failed", "test_warns_more: other warnings", "test_draws_more: other random numbers",  # noqa: E501
                 "test_dies: passed, recorded crashed", "the process ended with 3"):  # fmt: skip
        assert said in run.stdout


def test_only_the_tests_that_are_named(tmp_path: Path, warm_python: str) -> None:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS, encoding="utf-8")
    words = [warm_python, "-m", "tests.torchtests", str(file), "-k", "agrees", "-k", "*skipped"]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| tests | 2 |" in run.stdout
