"""``pytest --pitfalls`` fails a test that triggers a finding, with the report; without the option it costs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import pitfall_lab

pytest_plugins = ["pytester"]
ROOT = str(Path(pitfall_lab.__file__).parent.parent)
TESTS = """\
import unittest

import pytest
import torch
import torch.nn.functional as F


def test_right():
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()


def test_silently_wrong():
    x = torch.ones(3, requires_grad=True)
    h = x * 2
    y = (h ** 2).sum()
    h.data[0] = 50.0
    y.backward()


def test_expects_torchs_error():
    x = torch.ones(3, requires_grad=True)
    h = torch.exp(x)
    h += 1
    with pytest.raises(RuntimeError):
        h.sum().backward()


def test_meant():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError):
        x += 1  # pitfall: ignore[PL201]


def test_fails_by_itself():
    x = torch.ones(3, requires_grad=True)
    h = torch.exp(x)
    h += 1
    h.sum().backward()


class Old(unittest.TestCase):
    def test_of_the_old_kind(self):
        x = torch.ones(3, requires_grad=True)
        with self.assertRaises(RuntimeError):
            x.mul_(2)
"""


@pytest.fixture
def cold(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Runs pytest in a Python that has imported nothing."""
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_it=TESTS)
    return lambda *words: pytester.runpytest_subprocess(
        "-p", "pitfall_lab.pytest_plugin", "-p", "no:cacheprovider", *words
    )


@pytest.fixture
def run(cold, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, warm_python: str):
    """Runs pytest in one that has torch already."""
    monkeypatch.setattr(pytester, "_getpytestargs", lambda: (warm_python, "-m", "pytest"))
    return cold


def test_tests_that_trigger_a_finding_fail_with_the_report(run) -> None:
    done = run("--pitfalls", "-rfp")
    done.assert_outcomes(passed=4, failed=2)  # an error that a test expects is none
    done.stdout.fnmatch_lines_random(
        [
            "PASSED test_it.py::test_right",
            "PASSED test_it.py::test_meant",
            "test_it.py:17:*: warning PL301 version-counter-bypassed",
            "*- Captured pitfalls call -*",
            "test_it.py:38:*: error PL101 saved-tensor-overwritten",
        ]
    )


def test_rules_can_be_chosen(run) -> None:
    done = run("--pitfalls", "--pitfalls-select", "PL3", "-rp")
    done.assert_outcomes(passed=4, failed=2)
    assert "PL101" not in done.stdout.str()


def test_an_unknown_rule_is_an_error_of_usage(run) -> None:
    done = run("--pitfalls", "--pitfalls-select", "nonsense")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "no rule has the code 'nonsense'" in done.stderr.str()


def test_settings_are_read_from_pyproject(run, pytester: pytest.Pytester) -> None:
    pytester.makepyprojecttoml('[tool.pitfall-lab]\nignore = ["PL"]\n')
    run("--pitfalls").assert_outcomes(passed=5, failed=1)


def test_without_the_option_nothing_is_imported(cold, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="import sys\n"
        "def test_imports():\n"
        "    assert not {'torch', 'pitfall_lab.rules', 'pitfall_lab.verify'} & set(sys.modules)\n"
    )
    cold().assert_outcomes(passed=1)


def test_the_plugin_is_known_to_pytest_when_the_package_is_installed() -> None:
    import tomllib

    project = tomllib.loads((Path(ROOT) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"pitfall-lab": "pitfall_lab.pytest_plugin"}


def test_a_test_that_was_not_observed_to_its_end_fails_and_what_passed_unseen_is_a_warning(
    run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(
        test_it="""
        import sys
        import numpy as np
        import torch


        def test_blind():
            x = torch.ones(2)
            torch.overrides._pop_mode()
            assert (x + 1).tolist() == [2.0, 2.0]


        def test_traced():
            x = torch.ones(2)
            a = x.numpy()
            sys.settrace(lambda *_: None)
            a[0] = 2.0
            sys.settrace(None)
        """
    )
    done = run("--pitfalls")
    done.assert_outcomes(passed=1, failed=1, warnings=1)
    done.stdout.fnmatch_lines(
        ["*:7: Observation stopped here, because the program removed pitfall_lab's function mode*"]
    )
    done.stdout.fnmatch_lines(["*--pitfalls did not see everything: Writes that bypass torch functions*"])
