"""Ordinary notebooks are not warned of, whatever is run again in them."""

from __future__ import annotations

import pytest

from tests.panel.right import RIGHT


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_notebook_gets_no_warning(notebook, name):
    texts = {}
    for cell in RIGHT[name]:
        at, text = (cell, texts[cell]) if isinstance(cell, str) else cell
        texts[at] = text
        assert notebook.run(texts[at], at) == [], (at, texts[at])
