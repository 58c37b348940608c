"""Data that a cell changes through another name on its memory, between two cells that train on it."""

from __future__ import annotations

import pytest

START = """torch.manual_seed(0)
rng = np.random.default_rng(0)
points = rng.normal(size=(60, 4)).astype("float32")
labels = (points[:, 0] > 0).astype("int64")
X, y = torch.from_numpy(points), torch.from_numpy(labels)
def fit(n=4, epochs=2):
    net = nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(epochs):
        opt.zero_grad()
        nn.functional.cross_entropy(net(X), y).backward()
        opt.step()
    return net"""
PLANTED = {
    "a shuffle": [
        "net = fit()",
        "for _ in range(3):\n    rng.shuffle(labels)",
        "print('on')",
        "wide = fit(8)",
    ],
    "noise, in a function": [
        "def blur(a, s):\n    a += s * rng.normal(size=a.shape)\n    return a.std()",
        "net = fit()",
        "blur(points, 0.3)",
        "wide = fit(8)",
    ],
    "a sort, to look at quantiles": [
        "net = fit()",
        "flat = points.reshape(-1)\nflat.sort()\nprint(flat[:3])",
        "print((net(X).argmax(1) == y).float().mean())",
    ],
    "a second name made in the cell": [
        (
            "Z = torch.randn(60, 4)\nt = Z.sum(1, keepdim=True)\nnet = nn.Linear(4, 1)\n"
            "opt = torch.optim.SGD(net.parameters(), 0.1)"
        ),
        "for _ in range(3):\n    opt.zero_grad()\n    (net(Z) - t).square().mean().backward()\n    opt.step()",
        "noisy = Z.numpy()\nnoisy += 0.5 * rng.normal(size=noisy.shape)",
        "for _ in range(3):\n    opt.zero_grad()\n    (net(Z) - t).square().mean().backward()\n    opt.step()",
    ],
    "a slice that is set to zero": [
        (
            "Z = torch.randn(60, 4)\npart = Z[:40]\nt = Z.sum(1, keepdim=True)\nnet = nn.Linear(4, 1)\n"
            "opt = torch.optim.SGD(net.parameters(), 0.1)"
        ),
        "for _ in range(3):\n    opt.zero_grad()\n    (net(Z) - t).square().mean().backward()\n    opt.step()",
        "part[:, 2] = 0\nprint(net(part).mean())",
        "print((net(Z) - t).square().mean())",
    ],
    "the part that was not trained on": [
        "train, held = X[:40], X[40:]\nlow = points.min()",
        (
            "net = nn.Linear(4, 2)\nopt = torch.optim.SGD(net.parameters(), 0.1)\n"
            "for _ in range(3):\n    opt.zero_grad()\n"
            "    nn.functional.cross_entropy(net(train), y[:40]).backward()\n    opt.step()"
        ),
        "points -= points.mean(axis=0)\nprint(points[:3])",
        "print((net(held).argmax(1) == y[40:]).float().mean())",
    ],
    "features made before the rows were shuffled": [
        "frozen = nn.Linear(4, 3).requires_grad_(False)\nfeats = frozen(X)",
        "np.random.default_rng(1).shuffle(points)",
        "gap = (frozen(X) - feats).abs().mean()",
    ],
}


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_named_where_the_data_is_used_again(notebook, name):
    *cells, last = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == []
    warnings = notebook.run(last)
    assert {each["kind"] for each in warnings} == {"shared-write"}
    assert "changed `" in warnings[0]["sentence"]["en"]
    assert "which has the same memory" in warnings[0]["sentence"]["en"]


@pytest.mark.parametrize(
    "cells",
    [
        [
            "points -= points.mean(0)\npoints /= points.std(0)",
            "net = fit()",
            "wide = fit(8)",
        ],
        [
            "mean, std = X.mean(0), X.std(0)",
            "points -= mean.numpy()\npoints /= std.numpy()",
            "net = fit()",
            "wide = fit(8)",
        ],
        [
            "net = fit()",
            "backup = labels.copy()\nrng.shuffle(labels)\nlabels[:] = backup",
            "wide = fit(8)",
        ],
        [
            "net = fit()",
            "mixed = labels.copy()\nrng.shuffle(mixed)",
            "wide = fit(8)",
        ],
        [
            "net = fit()",
            "y.mul_(-1).add_(1)\nlabels.mean()",
            "wide = fit(8)",
        ],
        [
            (
                "buffer = np.zeros((16, 4), dtype='float32')\nbatch = torch.from_numpy(buffer)\n"
                "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)\ndef fill():\n"
                "    buffer[:] = rng.normal(size=buffer.shape)"
            ),
            *[
                "fill()",
                "opt.zero_grad(); net(batch).square().mean().backward(); opt.step()",
            ]
            * 3,
            "fill()\nprint(net(batch).mean())",
            "print(net(batch).std())",
        ],
        [
            "replay = torch.zeros(64, 4)\nnet = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)",
            "replay[:32] = torch.randn(32, 4)",
            "seen = replay[:32]",
            "opt.zero_grad(); net(seen).square().mean().backward(); opt.step()",
            "replay[:32] = torch.randn(32, 4)",
            "opt.zero_grad(); net(seen).square().mean().backward(); opt.step()",
        ],
        [
            "net = fit()",
            "rng.shuffle(labels)",
            "labels = rng.integers(0, 2, 60)\ny = torch.from_numpy(labels)",
            "wide = fit(8)",
        ],
    ],
)
def test_memory_that_is_shared_on_purpose_is_right(notebook, cells):
    for text in (START, *cells):
        assert notebook.run(text) == []


MARK = "def mark(row, value=9.0):\n    row[:2] = value\n    return row"
SHEET = "sheet = np.stack([mark(each) for each in points]).reshape(6, 40)"
RIGHT = {
    "a copy is given": ["sheet = np.stack([mark(each.copy()) for each in points])", "net = fit()"],
    "nothing trains on it": [SHEET, "print(X.mean())"],
    "made again": [SHEET, START, "net = fit()"],
    "written directly": ["points[:, 0] = 0\nfirst = points[:3].copy()", "net = fit()"],
    "a function that returns what it found": [
        "def centre(a):\n    mean = a.mean(0)\n    a -= mean\n    return mean",
        "mean = centre(points)",
        "net = fit()",
    ],
    "a function that copies first": [
        "def clean(a):\n    a = a.copy()\n    a[:2] = 0\n    return a",
        "cleaned = clean(points)",
        "net = fit()",
    ],
}


@pytest.mark.parametrize("made", [SHEET, f"pairs = zip(points, labels)\n{SHEET}", "low = mark(points).min(0)"])
def test_what_changes_data_while_it_makes_something_else_of_it(notebook, made):
    for text in (START, MARK, made):
        assert notebook.run(text) == []
    [warning] = notebook.run("net = fit()")
    assert (warning["kind"], warning["row"]) == ("shared-write", "X")
    assert "of `points` with `mark`, which changes in place what it is given" in warning["sentence"]["en"]
    assert "`X` of In [2] has the memory of `points`, so In [5] trained on" in warning["sentence"]["en"]
    assert [(each["count"], each["role"]) for each in warning["cells"]] == [(4, "changed"), (2, "made"), (5, "stale")]
    assert [each["kind"] for each in notebook.run("print('later')")] == ["shared-write"]
    assert notebook.run(START) == []


@pytest.mark.parametrize("name", RIGHT)
def test_data_that_is_changed_knowingly_is_right(notebook, name):
    for text in (START, MARK, *RIGHT[name]):
        assert notebook.run(text) == []
