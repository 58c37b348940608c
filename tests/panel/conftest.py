"""The panel's connection and a notebook."""

from __future__ import annotations

import pytest

from pitfall_lab.panel.connection import LivePanel
from tests.panel.notebook import Notebook


@pytest.fixture(autouse=True)
def time_enough(monkeypatch, request):
    """What is found, and not how fast: one garbage collection in a process with ten thousand tests takes longer than a
    look after a cell may. That a look ends in time is tested in ``test_harmless.py``, with the limits that hold.
    """
    if request.path.name == "test_harmless.py":
        return
    monkeypatch.setattr("pitfall_lab.panel.connection.SECONDS", 2.0)
    monkeypatch.setattr("pitfall_lab.panel.connection.LONGEST", 2.0)
    monkeypatch.setattr("pitfall_lab.panel.connection.ASKED_SECONDS", 5.0)


@pytest.fixture
def notebook(monkeypatch):
    """A notebook whose panel is open. Errors of the panel's, which a learner never sees, are seen here."""
    after = LivePanel._after
    errors = []

    def loud(self, *given):
        try:
            after(self, *given)
        except Exception as error:
            errors.append(error)
            raise

    monkeypatch.setattr(LivePanel, "_after", loud)
    made = Notebook()
    made.run("import numpy as np\nimport torch\nfrom torch import nn")
    yield made
    made.close()
    assert errors == []
