"""The kept state of an optimizer, which steps change before it is loaded again."""

from __future__ import annotations

import pytest

START = """import copy, io
x, y = torch.randn(16, 3), torch.randn(16, 1)
lin = nn.Linear(3, 1)
adam = torch.optim.Adam(lin.parameters(), lr=0.01)
def fit(rounds=2):
    for _ in range(rounds):
        adam.zero_grad()
        (lin(x) - y).pow(2).mean().backward()
        adam.step()
fit()"""
KEEP = "state = adam.state_dict()"
PLANTED = {
    "trained in between": ([KEEP, "fit()"], "adam.load_state_dict(state)",
        "has the tensors of `adam` itself, not copies: In [4] trained, which changed them, and In [5] loads it"),
    "in a dict": (["both = {'net': copy.deepcopy(lin.state_dict()), 'adam': adam.state_dict()}", "fit()"],
        "lin.load_state_dict(both['net'])\nadam.load_state_dict(both['adam'])", "`both['adam']` of In [3] has"),
    "loaded in each round": ([KEEP], "for rate in (1, 2):\n    adam.load_state_dict(state)\n    fit()",
        "In [4] trained, which changed them, and it is loaded again after that"),
    "a copy, loaded in each round": (
        ["state = copy.deepcopy(adam.state_dict())"], "for rate in (1, 2):\n    adam.load_state_dict(state)\n    fit()",
        "`state` of In [3] was loaded, and `load_state_dict` of `adam` took its tensors without a copy: In [4]"),
    "a function, called twice": (
        [KEEP, "def attempt():\n    adam.load_state_dict(state)\n    fit()"], "attempt()\nattempt()",
        "and it is loaded again"),
    "an argument": ([KEEP, "def back(of):\n    adam.load_state_dict(of)", "fit()"], "back(state)", "In [6] loads it"),
    "in one cell": ([], f"{KEEP}\nfit()\nadam.load_state_dict(state)", "`state` of In [3] has"),
}  # fmt: skip
RIGHT = {
    "copied twice": ["state = copy.deepcopy(adam.state_dict())"]
    + ["adam.load_state_dict(copy.deepcopy(state))\nfit()"] * 3,
    "kept to be written to a file": [f"{KEEP}\ntorch.save(state, io.BytesIO())", "fit()"] * 2,
    "loaded once from a file": [
        "file = io.BytesIO()\ntorch.save({'adam': adam.state_dict()}, file)\nfile.seek(0)",
        "saved = torch.load(file)\nadam.load_state_dict(saved['adam'])\nfit()", "fit()",
    ],
    "read anew each time": [
        "file = io.BytesIO()\ntorch.save(adam.state_dict(), file)",
        *["file.seek(0)\nstate = torch.load(file)\nadam.load_state_dict(state)\nfit()"] * 2,
    ],
    "another rate": [f"{KEEP}\nstate['param_groups'][0]['lr'] = 0.1\nadam.load_state_dict(state)\nfit()"] * 2,
    "passed on to the next optimizer": [
        KEEP, "adam = torch.optim.Adam(lin.parameters(), lr=0.1)\nadam.load_state_dict(state)\nfit()", "fit()",
    ],
    "a history": ["states = []\nfor _ in range(3):\n    fit()\n    states.append(adam.state_dict())", "fit()"],
    "kept in each round": [
        "for _ in range(3):\n    state = adam.state_dict()\n    adam.load_state_dict(state)\n    fit()",
    ],
    "weights only": ["state = copy.deepcopy(lin.state_dict())", "fit()", "lin.load_state_dict(state)\nfit()"],
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_said_where_the_state_is_loaded(notebook, name):
    cells, last, words = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"], warning["rule"]) == ("state-kept", "silent", "PL703")
    assert words in warning["sentence"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert [each["kind"] for each in notebook.run("1 + 1")] == ["state-kept"]
    assert notebook.run("state = both = None") == []


@pytest.mark.parametrize("name", RIGHT)
def test_a_state_that_is_copied_or_not_loaded_again_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == [], text
