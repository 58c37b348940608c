"""``pytest --pitfalls``: a test that triggers an error or a warning of the rules fails, with the report.

A test that could not be observed to its end fails as well: its rest was not checked. Anything else that was not
observed is a warning. Without the option nothing is imported and nothing is done. With it each test function runs
recorded (:mod:`pitfall_lab.verify`), which is slower; its fixtures do not. Settings come from ``[tool.pitfall-lab]``
and from ``# pitfall: ignore[PL101]`` comments, as for ``pitfall-lab check``; ``--pitfalls-select PL1,PL301`` chooses
rules. Fixes are not offered: trying them would run the test many times.
"""

# ruff: noqa: PLC0415 - pytest loads this plugin in every project: without --pitfalls it must cost nothing

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pitfall_lab.rules import Finding
    from pitfall_lab.trace import Trace


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("pitfall-lab", "pitfalls of PyTorch")
    group.addoption(
        "--pitfalls", action="store_true", help="fail tests that trigger an error or a warning of pitfall_lab's rules"
    )
    group.addoption(
        "--pitfalls-select", metavar="CODES", default="", help="only these rules: PL101,PL2 (a whole family)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests if the option is given."""
    if config.getoption("--pitfalls"):
        config.pluginmanager.register(_Watch(config.getoption("--pitfalls-select")), "pitfall-lab-watch")


class _Watch:
    """Runs each test function under observation."""

    def __init__(self, select: str) -> None:
        from pitfall_lab.check.settings import codes
        from pitfall_lab.cli import Refusal

        try:
            self._select = codes([word.strip() for word in select.split(",") if word.strip()], "--pitfalls-select")
        except Refusal as refusal:
            raise pytest.UsageError(str(refusal)) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the test recorded, then say what was found."""
        if not isinstance(item, pytest.Function):
            return (yield)
        from pitfall_lab.verify import Session

        text = item.path.read_text(encoding="utf-8")
        session = Session(str(item.path), item.path.name, text)
        failed: BaseException | None = None
        session.__enter__()
        try:
            result = yield
        except BaseException as error:
            failed = error
            raise
        finally:
            session.__exit__(None, None, None)
            report = self._report(item, text, session.finish(failed))
            if report and failed is not None:
                item.add_report_section("call", "pitfalls", report)
        if report:
            pytest.fail(report, pytrace=False)
        return result

    def _report(self, item: pytest.Item, text: str, trace: Trace) -> str:
        """What fails a test, as text: that observation stopped before the test did, and findings;
        empty when there is nothing.
        """
        from pitfall_lab.check.observed import unobserved
        from pitfall_lab.check.terminal import Style, finding_text

        stopped = unobserved(item.path.name, None, trace)
        for note in trace.unseen:
            item.warn(pytest.PytestWarning(f"--pitfalls did not see everything: {note.en}"))
        found = [
            finding_text(item.path.name, text, finding.with_fixes(()), Style())
            for finding in self._findings(item, text, trace)
        ]
        return "\n".join(found if stopped is None else [f"{stopped}\n", *found])

    def _findings(self, item: pytest.Item, text: str, trace: Trace) -> list[Finding]:
        from pitfall_lab.check.ignores import without_ignored
        from pitfall_lab.check.settings import near
        from pitfall_lab.rules import find

        settings = near(item.path)
        settings = replace(settings, select=self._select) if self._select else settings
        chosen = [f for f in find(trace) if f.severity != "info" and settings.wants(f.rule, item.path)]
        kept, _ = without_ignored(chosen, text, wanted=lambda _: True, complete=False)
        return kept
