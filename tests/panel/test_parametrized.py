"""A parametrization that a second run of its cell has registered once more, and those that are there on purpose."""

from __future__ import annotations

import pytest

HEAD = """from torch.nn.utils import parametrize, parametrizations
class Positive(nn.Module):
    def forward(self, w):
        return nn.functional.softplus(w)
class Half(nn.Module):
    def forward(self, w):
        return w / 2
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))"""
EACH = """for layer in net:
    if isinstance(layer, nn.Linear):
        parametrize.register_parametrization(layer, "weight", Positive())"""
FUNCTION = "def constrain(net):\n    " + EACH.replace("\n", "\n    ")


@pytest.mark.parametrize(
    ("cells", "again"),
    [
        ([EACH, "net(torch.ones(2, 3))", EACH], 5),
        ([FUNCTION, "constrain(net)", "constrain(net)\nprint('again')"], 5),
    ],
)
def test_a_second_registration_is_warned_of_with_both_cells(notebook, cells, again):
    notebook.run(HEAD)
    for text in cells[:-1]:
        assert notebook.run(text) == []
    [warning] = notebook.run(cells[-1])
    assert (warning["kind"], warning["level"]) == ("parametrized-again", "silent")
    said = warning["sentence"]["en"]
    assert said.startswith("`net[0].weight` and 1 more go through `Positive` twice: In [")
    assert f"and In [{again}] did so again" in said
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert [each["kind"] for each in notebook.run("print('later')")] == ["parametrized-again"]
    assert notebook.run(HEAD) == []


@pytest.mark.parametrize(
    "cells",
    [
        [EACH, EACH.replace("Positive", "Half")],
        [EACH, "for layer in net[::2]:\n    parametrize.remove_parametrizations(layer, 'weight')", EACH],
        [EACH + "\n" + EACH],
        [EACH, "net = nn.Sequential(nn.Linear(3, 1))", EACH],
        ["parametrizations.spectral_norm(net[0])", "parametrizations.orthogonal(net[2])"],
    ],
)
def test_what_is_registered_on_purpose_is_not(notebook, cells):
    notebook.run(HEAD)
    for text in cells:
        assert notebook.run(text) == []
