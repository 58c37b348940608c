"""Numbers of data that a second run of a cell has overwritten are named when they are read; others are not."""

from __future__ import annotations

import pytest

DATA = (
    "torch.manual_seed(0)\nprice = 50 + 9 * torch.randn(40, 1)\ntable = np.arange(40.0) + 3\n"
    "lengths = torch.arange(20) * 7 % 20\nnet, step = nn.Linear(1, 1), 0\n"
    "def level(x):\n    return x.mean()"
)
SCALE = "mu, sd = price.mean(), price.std()\nprice = (price - mu) / sd"
READ = "print(net(price) * sd + mu)"
PLANTED = {
    "mean and spread": (SCALE, "print('a prediction', (net(price) * sd + mu).shape)", "`mu`, `sd`", "price"),
    "in an array": ("top = float(table.max())\ntable = table / top", "print(table * top)", "`top`", "table"),
    "an order": ("order = lengths.argsort()\nlengths = lengths[order]", "print(price[order])", "`order`", "lengths"),
    "read in a function": (SCALE + "\ndef back(p):\n    return p * sd", "print(back(price))", "`sd`", "price"),
}
RIGHT = {
    "not read": [SCALE, SCALE, "print(price.mean())"],
    "made again": [SCALE, DATA, SCALE, READ],
    "run once": [SCALE, READ, READ],
    "from the raw data": ["x = price.clone()\nmu, sd = x.mean(), x.std()\nx = (x - mu) / sd"] * 2 + [READ],
    "computed again": [SCALE, SCALE, "mu, sd = 50.0, 9.0", READ],
    "a state": ["step = step + 1\nscaled = price * step\nprice = price + 0 * step"] * 2 + ["print(step, scaled)"],
    "a model's output": [
        "out = net(price).detach()\nprice = price + 0 * out",
        "with torch.no_grad():\n    net.weight.add_(1)",
        "out = net(price).detach()\nprice = price + 0 * out",
        "print(out)",
    ],
    "drawn": ["noise = torch.rand_like(price)\nprice = price + 0 * noise"] * 2 + ["print(noise)"],
    "as before": ["top = price.max()\nprice = price.clamp(max=top)"] * 2 + ["print(top)"],
    "a function of the notebook": ["mu = level(price)\nprice = price - mu"] * 2 + ["print(mu)"],
}


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_said_when_a_later_cell_reads_the_numbers(notebook, name):
    cell, reads, names, source = PLANTED[name]
    notebook.run(DATA)
    for text in (cell, "print('look')", cell):
        assert notebook.run(text) == []
    [warning] = notebook.run(reads)
    assert (warning["kind"], warning["row"]) == ("numbers-overwritten", source)
    assert f"In [5] computed {names} from `{source}` once more, as In [3] had left it" in warning["sentence"]["en"]
    assert f"of `{source}` of In [2] are lost, and In [6] reads" in warning["sentence"]["en"]
    assert [(each["count"], each["role"]) for each in warning["cells"]] == [
        (5, "changed"),
        (3, "changed"),
        (6, "stale"),
    ]
    assert [each["kind"] for each in notebook.run(cell)] == ["numbers-overwritten"]
    notebook.run(DATA)
    assert notebook.run(cell) == []


def test_the_values_are_shown(notebook):
    for text in (DATA, SCALE, SCALE):
        notebook.run(text)
    [warning] = notebook.run(READ)
    assert "→ 0, `sd` " in warning["sentence"]["en"]
    assert "→ 1)" in warning["sentence"]["en"]


@pytest.mark.parametrize("name", RIGHT)
def test_numbers_that_are_still_right_are_not_named(notebook, name):
    for text in (DATA, *RIGHT[name]):
        assert notebook.run(text) == []
