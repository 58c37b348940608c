"""A buffer that a module computes from its own parameter when it is made, and not again."""

from __future__ import annotations

import pytest
from IPython.core.interactiveshell import InteractiveShell

CLASS = """class Taper(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))
        self.gain = nn.Parameter(torch.ones(6))
        {}
    def forward(self, x):
        return x * self.window * self.gain"""
BUFFER = 'self.register_buffer("window", torch.linspace(0, 1, 6).mul(self.slope).exp())'
ATTRIBUTE = "self.window = (torch.linspace(0, 1, 6) * self.slope).exp()"
MAKE = "taper = Taper()\nsgd = torch.optim.SGD(taper.parameters(), lr=0.1)"
FIT = """for _ in range(2):
    error = (taper(torch.ones(3, 6)) - 2).pow(2).sum()
    sgd.zero_grad()
    error.backward({})
    sgd.step()"""
FORWARD = """class Taper(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.5))
        self.gain = nn.Parameter(torch.ones(6))
        self.register_buffer("window", torch.ones(6))
    def forward(self, x):
        self.window = (torch.linspace(0, 1, 6) * self.slope).exp()
        return x * self.window * self.gain"""


@pytest.mark.parametrize(("line", "kind"), [(BUFFER, "a buffer"), (ATTRIBUTE, "an attribute")])
def test_the_failed_backward_names_what_was_computed_once(notebook, monkeypatch, line, kind):
    monkeypatch.setattr(InteractiveShell, "showtraceback", lambda *args, **kwargs: None)
    for text in (CLASS.format(line), MAKE):
        assert notebook.run(text) == []
    result = notebook.shell.run_cell(FIT.format(""), store_history=True, cell_id="fit")
    assert not result.success
    [warning] = notebook.page.last("warnings")["warnings"]
    assert warning["kind"] == "computed-once"
    assert f"`taper.window` ({kind}) was computed once, in In [3]," in warning["sentence"]["en"]
    cause = notebook.panel.beside.cause(result.error_in_exec, FIT.format(""))
    assert cause.sentence.en.endswith("has freed its graph: this is why the next one failed.")
    assert "Compute `window` in `forward`, from `slope`" in cause.fix.en
    assert "In [2], line 6" in cause.fix.en


def test_with_the_graph_retained_it_is_said_that_it_does_not_follow(notebook):
    for text in (CLASS.format(BUFFER), MAKE):
        assert notebook.run(text) == []
    [warning] = notebook.run(FIT.format("retain_graph=True"))
    assert (warning["kind"], warning["level"]) == ("computed-once", "silent")
    assert "from `taper.slope`, which In [4] has changed: it still has the numbers" in warning["sentence"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert notebook.run("taper = None") == []


@pytest.mark.parametrize("text", [FORWARD, FORWARD.replace('self.register_buffer("window", torch.ones(6))', "pass")])
def test_what_forward_computes_each_time_is_right(notebook, text):
    steps = ["error = taper(torch.ones(3, 6)).sum()", "sgd.zero_grad()", "error.backward()", "sgd.step()"]
    for each in (text, MAKE, *steps, *steps, FIT.format(""), "with torch.no_grad():\n    taper(torch.ones(3, 6))"):
        assert notebook.run(each) == [], each


def test_a_buffer_without_a_graph_is_right(notebook):
    for each in (CLASS.format(BUFFER.replace("exp()", "exp().detach()")), MAKE, FIT.format("")):
        assert notebook.run(each) == [], each
