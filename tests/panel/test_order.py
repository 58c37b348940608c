"""Cells run out of order: a name was computed from what has been made anew since."""

from __future__ import annotations

import pytest

from pitfall_lab.panel.cells_run import Cell
from pitfall_lab.panel.name_flow import flow


@pytest.mark.parametrize(
    ("cells", "name", "source"),
    [
        ([("a", "x = torch.randn(3)"), ("b", "y = x * 2"), ("a", "x = torch.randn(3)"), ("c", "z = y + 1")], "y", "x"),
        (
            [
                ("a", "lr = 0.1"),
                ("b", "opt = torch.optim.SGD([torch.ones(1)], lr=lr)"),
                ("a", "lr = 0.5"),
                ("c", "opt.step()"),
            ],
            "opt",
            "lr",
        ),
        ([("a", "def f(v): return v"), ("b", "y = f(2)"), ("a", "def f(v): return v + 1"), ("c", "y")], "y", "f"),
        ([("a", "k = 1"), ("b", "y = k"), ("c", "z = y"), ("a", "k = 2"), ("d", "z")], "z", "k"),
        ([("a", "xs = [1, 2]"), ("b", "y = sum(xs)"), ("a", "xs = [1, 2, 3]"), ("c", "y")], "y", "xs"),
        ([("a", "n = np.arange(3.0)"), ("b", "y = n.sum()"), ("a", "n = np.ones(3)"), ("c", "y")], "y", "n"),
    ],
)
def test_what_was_computed_from_an_earlier_value_is_said_where_it_is_read(notebook, cells, name, source):
    warned = [notebook.run(text, cell) for cell, text in cells]
    assert warned[:-1] == [[]] * (len(cells) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["row"]) == ("out-of-order", name)
    assert f"`{source}`" in warning["sentence"]["en"]
    assert [cell["role"] for cell in warning["cells"]] == ["changed", "stale"]


@pytest.mark.parametrize(
    "cells",
    [
        [("a", "x = torch.ones(3)"), ("b", "y = x * 2"), ("a", "x = torch.ones(3)"), ("c", "y")],  # the same again
        [
            ("a", "x = torch.randn(3)"),
            ("b", "y = x.shape[0]"),
            ("a", "x = torch.randn(3)"),
            ("c", "y"),
        ],  # only its shape
        [
            ("a", "x = torch.randn(3)"),
            ("b", "y = x * 2"),
            ("c", "x = torch.randn(4)"),
            ("d", "y"),
        ],  # the name used for another thing
        [
            ("a", "x = torch.randn(3)"),
            ("b", "y = x * 2"),
            ("a", "x = torch.randn(3)"),
            ("b", "y = x * 2"),
            ("c", "y"),
        ],  # computed again
        [
            ("a", "x = torch.randn(3)"),
            ("b", "y = x * 2\nw = 3"),
            ("a", "x = torch.randn(3)"),
            ("c", "w"),
        ],  # another name of the cell
        [("a", "import math"), ("b", "y = math.pi"), ("a", "import math"), ("c", "y")],
        [("a", "n = 0"), ("b", "n += 1"), ("b", "n += 1"), ("a", "n = 0"), ("b", "n += 1")],
        [("a", "k = 1"), ("b", "y = k"), ("a", "k = 2"), ("c", "y = 5\ny")],
    ],
)
def test_what_is_as_it_would_be_is_not(notebook, cells):
    assert [notebook.run(text, cell) for cell, text in cells] == [[]] * len(cells)


def test_how_names_flow_through_a_cell():
    taken, made = flow(
        Cell(1, "", "for x in xs:\n    t = f(x)\n    s += t\nwith open(p) as g:\n    d = g\nn = len(z)").tree
    )
    assert taken == {"xs", "f", "s", "open", "p"}
    assert {name: made[name] for name in ("x", "t", "s", "d", "n")} == {
        "x": {"xs"}, "t": {"f", "xs"}, "s": {"f", "xs", "s"}, "d": {"open", "p"}, "n": set(),
    }  # fmt: skip
