"""The panel's connection and a notebook."""

from __future__ import annotations

import pytest

from pitfall_lab.panel.connection import LivePanel
from tests.panel.notebook import Notebook


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
