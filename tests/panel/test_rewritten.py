"""Data of another cell that a statement changes in place once more, because its cell was run again."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

DATA = (
    "stars = np.arange(40) % 5 + 1\nraw = np.random.default_rng(0).normal(5, 2, (40, 3)).astype('float32')\n"
    "images = 255 * torch.rand(40, 3)"
)
SCALED = "x = torch.from_numpy(raw)\nx = (x - x.mean(0)) / x.std(0)"


@pytest.mark.parametrize(
    ("first", "again", "row", "level"),
    [
        ("y = torch.from_numpy(stars)\ny -= 1", "", "stars", "silent"),
        ("y = torch.from_numpy(stars)\ny -= 1", f"{SCALED}\ny = torch.from_numpy(stars)\ny -= 1", "stars", "silent"),
        ("y = torch.as_tensor(stars).view(8, 5)\nif True:\n    y.sub_(1)", "", "stars", "silent"),
        ("x = torch.from_numpy(raw)\nx[:, 1] *= 100", "", "raw", "silent"),
        ("flat = images.reshape(-1)\nflat.div_(255)", "", "images", "silent"),
        ("images /= 255", "", "images", "note"),
        ("stars -= 1", "", "stars", "note"),
        ("images.log1p_()", "", "images", "note"),
    ],
)  # fmt: skip
def test_it_is_said_of_the_second_run(notebook, first, again, row, level):
    notebook.run(DATA, "data")
    assert notebook.run(first, "change") == []
    assert notebook.run("print(stars[:3], images.mean())", "look") == []
    [warning] = notebook.run(again or first, "change")
    assert (warning["kind"], warning["row"], warning["level"]) == ("written-again", row, level)
    assert f"in In [5] has changed `{row}` of In [2] once more: In [3] had already done so" in warning["sentence"]["en"]
    assert [each["row"] for each in notebook.run("1 + 1", "other")] == [row]  # as long as it is true
    assert notebook.run(DATA, "data") == []
    assert notebook.run(again or first, "change") == []


def test_numbers_that_were_computed_from_the_data_in_another_cell(notebook):
    notebook.run(DATA, "data")
    notebook.run("mu, sd = images.mean(0), images.std(0)", "numbers")
    change = "images -= mu\nimages /= sd"
    assert notebook.run(change, "change") == []
    [warning] = notebook.run(change, "change")
    assert warning["row"] == "images"
    notebook.run(DATA, "data")
    notebook.run("mu, sd = images.mean(0), images.std(0)", "numbers")
    assert notebook.run(change, "change") == []


def test_an_attribute_of_an_object_of_ones_own(notebook):
    notebook.run(
        "class Set:\n    def __init__(self):\n        self.targets = torch.arange(40) % 5 + 1\nds = Set()", "data"
    )
    notebook.run("ds.targets -= 1", "change")
    [warning] = notebook.run("ds.targets -= 1", "change")
    assert warning["row"] == "ds\x1ftargets"


@pytest.mark.parametrize(
    "cells",
    [
        [("c", "y = torch.from_numpy(stars).clone()\ny -= 1"), "c", "c"],
        [("c", "y = torch.from_numpy(stars) - 1"), "c", "c"],
        # the second time nothing changes
        [("c", "x = torch.from_numpy(raw)\nx -= x.mean(0)\nx /= x.std(0)"), "c", "c"],
        [("c", "images.clamp_(0, 1)\nimages[images < 0.5] = 0"), "c", "c"],
        [("c", "stars -= 1"), "data", "c", "data", "c"],  # made anew in between
        [("a", "images /= 255"), ("b", "images *= 255"), "a", "b"],  # there and back
        # a state, step by step
        [("a", "position, speed = torch.zeros(40), torch.ones(40)"), ("c", "position += 0.1 * speed"), "c", "c"],
        [("a", "trace = torch.zeros(40)"), ("c", "trace *= 0.9\ntrace += images[:, 0]"), "c", "c"],
        [("a", "total = torch.zeros(40)"), ("c", "total += images.sum(1)"), "c", "c"],
        [("a", "h = torch.zeros(12)"), ("c", "for x in images[:3]:\n    h *= 0.5\n    h[:3] += x"), "c", "c"],
        [("a", "steps = torch.zeros(1)"), ("c", "steps += 1"), "c", "c"],
        [("a", "w = torch.ones(3, 1, requires_grad=True)"),
         ("c", ("(images @ w).mean().backward()\n"
         "with torch.no_grad():\n"
         "    w -= 0.1 * w.grad\n"
         "    w.grad.zero_()")), "c", "c"],
        [("a", ("import copy\n"
        "net = nn.Linear(3, 4)\n"
        "ema = copy.deepcopy(net)\n"
        "w = ema.weight.detach()")), ("c", "w.mul_(0.9)"), "c"],
        [("a", "net = nn.Linear(3, 4)\nopt = torch.optim.SGD(net.parameters(), 0.1)"),
         ("c", "net(images).mean().backward()\ng = net.weight.grad\ng *= 0.5\nopt.step()\nopt.zero_grad()"), "c", "c"],
    ],
)  # fmt: skip
def test_copies_states_and_what_is_made_anew_are_right(notebook, cells):
    texts = {"data": DATA}
    notebook.run(DATA, "data")
    for cell in cells:
        at, text = (cell, texts[cell]) if isinstance(cell, str) else cell
        texts[at] = text
        assert [each["kind"] for each in notebook.run(text, at) if each["kind"] == "written-again"] == [], (at, text)


def test_it_is_the_reason_of_the_error_that_follows(monkeypatch):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook, shown = Notebook(whole=True), []
    monkeypatch.setattr(notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: shown.append(data))
    try:
        notebook.run(f"import numpy as np\nimport torch\nfrom torch import nn\n{DATA}", "data")
        labels = "y = torch.from_numpy(stars)\ny -= 1"
        notebook.run(labels, "labels")
        notebook.run("net = nn.Linear(3, 5)", "net")
        loss = (
            "x = torch.from_numpy(raw)\nfor at in range(0, 40, 8):\n    yb = y[at:at + 8]\n"
            "    loss = nn.functional.cross_entropy(net(x[at:at + 8]), yb)"
        )
        assert notebook.run(loss, "train") == []
        notebook.run(labels, "labels")
        assert not notebook.shell.run_cell(loss, store_history=True, cell_id="train").success
        [hint] = [data[HINT] for data in shown if HINT in data]
        assert hint["text"]["en"].startswith(
            "pitfall_lab: `y -= 1` in In [5] has changed `stars` of In [1] once more: In [2] had already done so"
        )
        assert hint["again"] is None
        assert [
            each["failed"] for each in notebook.page.last("warnings")["warnings"] if each["kind"] == "written-again"
        ] == [True]
        other = "nn.functional.embedding(torch.tensor([9]), torch.ones(3, 2))"
        assert not notebook.shell.run_cell(other, store_history=True, cell_id="other").success
        assert (
            "once more" not in [data[HINT] for data in shown if HINT in data][-1]["text"]["en"]
        )  # another error, of other data
    finally:
        notebook.close()
