"""Features and labels that were shuffled separately."""

from __future__ import annotations

import pytest

SHUFFLES = {
    "into new names": (
        "Xs = X[torch.randperm(len(X))]\nYs = Y[torch.randperm(len(Y))]",
        "`Xs` and `Ys` (the rows of `X` and `Y`)",
    ),
    "under their own names": ("X = X[torch.randperm(len(X))]\nY = Y[torch.randperm(len(Y))]", "`X` and `Y`"),
    "in place, by NumPy": ("np.random.shuffle(a)\nnp.random.shuffle(b)", "`"),
    "in a function": ("def mix(t):\n    return t[torch.randperm(len(t))]\nXs, Ys = mix(X), mix(Y)", "`Xs` and `Ys`"),
}


@pytest.mark.parametrize("name", SHUFFLES)
def test_two_orders_are_said_until_they_are_one(notebook, name):
    text, begins = SHUFFLES[name]
    start = (
        "torch.manual_seed(0); np.random.seed(0)\n"
        "a = np.random.randn(30, 4).astype('float32')\n"
        "b = (a[:, 0] > 0).astype('int64')"
    )
    assert notebook.run(start + "\nX, Y = torch.tensor(a), torch.tensor(b)", "data") == []
    warnings = notebook.run(text, "shuffle")
    assert [each["kind"] for each in warnings] == ["two-orders"]
    assert warnings[0]["sentence"]["en"].startswith(f"In [3] put {begins}")
    space = notebook.shell.user_ns
    told = warnings[0]["row"]
    rows = np_rows(space[told])
    labels = space[{"Xs": "Ys", "X": "Y", "a": "b"}[told]]
    wrong = sum(bool(row[0] > 0) != bool(label) for row, label in zip(rows, labels.tolist(), strict=True))
    assert f"{wrong} of 30 rows" in warnings[0]["sentence"]["en"]  # it is true
    assert [each["kind"] for each in notebook.run("1 + 1", "other")] == ["two-orders"]
    assert notebook.run(start + "\nX, Y = torch.tensor(a), torch.tensor(b)\nXs, Ys = X, Y", "data") == []


def np_rows(table):
    return table.tolist()
