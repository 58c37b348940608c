"""A split that is made again under the same names, while a model goes on from the one before."""

from __future__ import annotations

import pytest

START = """from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
torch.manual_seed(0)
X, Y = torch.randn(60, 4), torch.randn(60, 1)
ds = TensorDataset(X, Y)
def make():
    net = nn.Linear(4, 1)
    return net, torch.optim.SGD(net.parameters(), 0.1)"""
MODEL = "net, opt = make()"
SPLIT = """order = torch.randperm(60).tolist()
train, val = Subset(ds, order[12:]), Subset(ds, order[:12])
train_loader = DataLoader(train, 12, shuffle=True)
val_loader = DataLoader(val, 12)"""
SEEDED = SPLIT.replace("randperm(60)", "randperm(60, generator=torch.Generator().manual_seed(1))")
RANDOM = """train, val = random_split(ds, [48, 12])
train_loader = DataLoader(train, 12)
val_loader = DataLoader(val, 12)"""
FIT = """def fit(n):
    for _ in range(n):
        for x, y in train_loader:
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            opt.step()
def score(loader):
    with torch.no_grad():
        return sum((net(x) - y).square().sum().item() for x, y in loader)"""
GIVEN = """def fit(model, opt, loader, held):
    for x, y in loader:
        opt.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        opt.step()
    errors = []
    for x, y in held:
        with torch.no_grad():
            errors.append((model(x) - y).square().sum().item())
    return sum(errors)"""
INDEXED = """order = torch.randperm(60)
X_train, X_val = X[order[12:]], X[order[:12]]
Y_train, Y_val = Y[order[12:]], Y[order[:12]]"""
STEPS = """for _ in range(5):
    opt.zero_grad()
    loss = (net(X_train) - Y_train).square().mean()
    loss.backward()
    opt.step()"""
SCORE = "error = (net(X_val) - Y_val).square().mean().item()"
TEMPORARY = """order = torch.randperm(60)
X_train, X_rest = X[order[:40]], X[order[40:]]
Y_train, Y_rest = Y[order[:40]], Y[order[40:]]
X_val, X_test, Y_val, Y_test = X_rest[:10], X_rest[10:], Y_rest[:10], Y_rest[10:]"""
DICT = """order = torch.randperm(60).tolist()
parts = {'train': Subset(ds, order[12:]), 'val': Subset(ds, order[:12])}
loaders = {name: DataLoader(part, 12) for name, part in parts.items()}"""


@pytest.mark.parametrize(
    "cells",
    [
        [SPLIT, MODEL, FIT, "fit(3)\nprint(score(val_loader))", SPLIT, "fit(1)\nprint(score(val_loader))"],
        [RANDOM, MODEL, FIT, "fit(3)", RANDOM, "score(val_loader)"],
        [SPLIT, MODEL, GIVEN, "fit(net, opt, train_loader, val_loader)", SPLIT, "print(len(val))",
        "fit(net, opt, train_loader, val_loader)"],
        [DICT, MODEL, GIVEN, "fit(net, opt, loaders['train'], loaders['val'])", DICT,
        "fit(net, opt, loaders['train'], held=loaders['val'])"],
    ],
)  # fmt: skip
def test_a_model_that_goes_on_after_a_new_split_is_said_where_it_is_measured(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate((START, *cells))]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"]) == ("split-again", "silent")
    assert "but `net` goes on as it was trained on the split of In [3]" in warning["sentence"]["en"]
    assert " of the 12 rows of the new `" in warning["sentence"]["en"]
    assert notebook.run(MODEL, "anew") == []


@pytest.mark.parametrize("split", [INDEXED, TEMPORARY])
def test_rows_of_tables_are_known_by_what_is_in_them(notebook, split):
    notebook.run(START)
    notebook.run(split)
    old = {tuple(row) for row in notebook.shell.user_ns["X_train"].tolist()}
    assert [notebook.run(text) for text in (MODEL, STEPS, SCORE, split, STEPS)] == [[]] * 5
    [warning] = notebook.run(SCORE)
    new = [tuple(row) for row in notebook.shell.user_ns["X_val"].tolist()]
    shared = sum(row in old for row in new)
    assert f"{shared} of the {len(new)} rows of the new `X_val`" in warning["sentence"]["en"]


@pytest.mark.parametrize(
    "cells",
    [
        [SPLIT, MODEL, FIT, "fit(3)", f"{SPLIT}\n{MODEL}", "fit(1)\nprint(score(val_loader))"],
        [SPLIT, MODEL, FIT, "fit(3)", SPLIT, MODEL, "fit(1)\nprint(score(val_loader))"],
        [SPLIT, MODEL, FIT, "fit(3)", SPLIT, "net.reset_parameters()\nfit(1)\nprint(score(val_loader))"],
        [SEEDED, MODEL, FIT, "fit(3)", SEEDED, "fit(1)\nprint(score(val_loader))"],
        [SPLIT, MODEL, FIT, SPLIT, "fit(1)\nprint(score(val_loader))"],  # not trained before
        [SPLIT, MODEL, FIT, "fit(3)", SPLIT, "print(len(val_loader))\nfit(1)"],  # not measured
        [SPLIT, MODEL, FIT, "fit(3)", SPLIT, "old = net\nnet, opt = make()\nfit(1)\nprint(score(val_loader))"],
        [SPLIT, MODEL, FIT, "fit(3)", "X, Y = torch.randn(60, 4), torch.randn(60, 1)\nds = TensorDataset(X, Y)",
        SPLIT, "fit(1)\nprint(score(val_loader))"],  # other rows
        ["scores = []", GIVEN, """for k in range(3):
    held = list(range(20 * k, 20 * k + 20))
    train, val = Subset(ds, sorted(set(range(60)) - set(held))), Subset(ds, held)
    net, opt = make()
    scores.append(fit(net, opt, DataLoader(train, 12), DataLoader(val, 12)))"""] * 2,
        [INDEXED, MODEL, STEPS, SCORE, f"{INDEXED}\n{MODEL}", STEPS, SCORE],
        [INDEXED, MODEL, STEPS, SCORE, "torch.manual_seed(3)\nX = torch.randn(60, 4)", INDEXED, STEPS, SCORE],
        ["torch.manual_seed(1)\n" + INDEXED, MODEL, STEPS, "torch.manual_seed(1)\n" + INDEXED, STEPS, SCORE],
    ],
)  # fmt: skip
def test_a_model_made_anew_and_the_same_split_are_right(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate((START, *cells))]
    assert [each["kind"] for some in warned for each in some if each["kind"] == "split-again"] == []
