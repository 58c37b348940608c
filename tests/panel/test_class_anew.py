"""A cell that fails because its object was made of an earlier definition of a class."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.notebook.magic import HINT
from tests.panel.notebook import Notebook

WITH_NAME = """class Tower(nn.Module):
    def __init__(self, width):
        super(Tower, self).__init__()
        self.inner = nn.Linear(3, width)
    def forward(self, x):
        return self.inner(x)
    def eval(self):
        return super(Tower, self).eval()"""
PLAIN = """class Tower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(3, width)
    def forward(self, x):
        return self.inner(x)"""
NEWER = PLAIN.replace("width)\n    def", "width)\n        self.norm = nn.LayerNorm(width)\n    def", 1)
NEWER += "\n    def grow(self):\n        return 2"
MASKED = PLAIN.replace("def forward(self, x):", "def forward(self, x, mask=None):")
OPT = "tower = Tower(2)", "sgd = torch.optim.SGD(tower.parameters(), lr=0.1)"
FAILS = {
    "super with the name": (
        [WITH_NAME, *OPT, WITH_NAME], "tower.eval()",
        "`tower` of In [3] is a `Tower` of the earlier definition: In [5] defined the class anew",
        "Run In [3] again, which makes `tower`, and then In [4]: `sgd` has its parameters.",
    ),
    "a method that is new": ([PLAIN, *OPT, NEWER], "tower.grow()", "`tower` of In [3] is a `Tower` of", "In [4]"),
    "a layer that is new": ([PLAIN, "tower = Tower(2)", NEWER], "tower.norm.weight", "`tower` of In [3]", "In [3]"),
    "an argument that is new": (
        [PLAIN, "towers = {'a': Tower(2)}", MASKED], "towers['a'](torch.ones(1, 3), mask=None)",
        "`towers['a']` of In [3] is a `Tower`", "Run In [3] again, which makes `towers`. To keep",
    ),
    "inside of a model": (
        [PLAIN, "net = nn.Sequential(nn.Linear(2, 3), Tower(2))", NEWER], "net[1].grow()",
        "`net.1` of In [3] is a `Tower`", "which makes `net`",
    ),
    "pickled": (
        [PLAIN, "import io, pickle\ntower = Tower(2)", PLAIN], "torch.save(tower, io.BytesIO())",
        "`tower` of In [3] is a `Tower`", "In [3]",
    ),
    "a base": (
        [WITH_NAME, "class High(Tower):\n    pass", "high = High(2)", WITH_NAME], "high.eval()",
        "`high` of In [4] is a `Tower` of the earlier definition", "Run again the cell that defines `High`",
    ),
    "no module": (
        ["class Meter:\n    def add(self, n):\n        self.n = n", "meter = Meter()",
        "class Meter:\n    def add(self, n):\n        self.n = n\n    def mean(self):\n        return self.n"],
        "def end():\n    return meter.mean()\nend()", "`meter` of In [3] is a `Meter`", "which makes `meter`.",
    ),
    "defined in the cell that fails": (
        [PLAIN, "tower = Tower(2)"], f"{NEWER}\ntower.grow()", "In [4] defined the class anew", "In [3]",
    ),
}  # fmt: skip
SILENT = {
    "another mistake": ([PLAIN, "tower = Tower(2)", NEWER], "tower.shrink()"),
    "the earlier one takes as many": ([PLAIN, "tower = Tower(2)", PLAIN], "tower(1, 2, 3)"),
    "made anew": ([PLAIN, "tower = Tower(2)", NEWER, "tower = Tower(2)"], "tower.norms"),
    "an object of another class": ([PLAIN, "tower = Tower(2)\nother = nn.Linear(1, 1)", NEWER], "other.grow()"),
    "super of another class": (
        ["class A: pass", "class B:\n    def go(self):\n        super(A, self).go()", "b = B()", "class A: pass"],
        "b.go()",
    ),
}  # fmt: skip


@pytest.fixture
def failing(monkeypatch):
    """A notebook with the whole extension in it; what it shows is in ``shown``, and no traceback is drawn."""
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    notebook = Notebook(whole=True)
    notebook.shown = []
    monkeypatch.setattr(
        notebook.shell.display_pub, "publish", lambda data, *args, **kwargs: notebook.shown.append(data)
    )
    notebook.run("import torch\nfrom torch import nn")
    yield notebook
    notebook.close()


def after(notebook, cells, last):
    for text in cells:
        assert notebook.run(text) == [], text
    assert not notebook.shell.run_cell(last, store_history=True, cell_id="d").success
    return [data[HINT]["text"] for data in notebook.shown if HINT in data]


@pytest.mark.parametrize("name", FAILS)
def test_the_cells_that_made_the_object_and_its_class_are_named(failing, name):
    cells, last, sentence, fix = FAILS[name]
    [said] = after(failing, cells, last)
    assert said["en"].startswith("pitfall_lab: ")
    assert all(each in said["en"] for each in (sentence, fix))
    assert "先前定义的" in said["zh"]


@pytest.mark.parametrize("name", SILENT)
def test_another_error_is_not_laid_to_the_definition(failing, name):
    assert all("earlier definition" not in said["en"] for said in after(failing, *SILENT[name]))
