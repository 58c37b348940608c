"""A data set that is split again after training, while a loader still has the part that the model was trained on."""

from __future__ import annotations

import pytest

START = (
    "from torch.utils.data import DataLoader, Subset, TensorDataset, random_split\n"
    "X, Y = torch.randn(60, 4), torch.randn(60, 1)\nds = TensorDataset(X, Y)\n"
    "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"
)
ANEW = "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"
SPLIT = "train, test = random_split(ds, [48, 12])"
SEEDED = SPLIT.replace("12]", "12], torch.Generator().manual_seed(0)")
TRAIN = (
    "loader = DataLoader(train, 12)\nfor x, y in loader:\n    loss = (net(x) - y).square().mean()\n"
    "    opt.zero_grad()\n    loss.backward()\n    opt.step()"
)
MEASURE = "with torch.no_grad():\n    x, y = test[:]\n    error = (net(x) - y).square().mean()"
SCORE = "def score(model, part):\n    x, y = part[:]\n    return (model(x) - y).square().mean().item()"


@pytest.mark.parametrize(
    "cells",
    [
        [SPLIT, TRAIN, SPLIT, MEASURE],
        [SPLIT, TRAIN, f"{SPLIT}\nprint(len(test))", SCORE, "score(net, test)"],
        [SPLIT, TRAIN, SPLIT, "tests = DataLoader(test, 12)",
        "with torch.no_grad():\n    errors = [net(x) - y for x, y in tests]"], [SPLIT, TRAIN, SPLIT,
        "def measure():\n    x, y = test[:]\n    return (net(x) - y).abs().mean().item()", "measure()"], [SPLIT, TRAIN,
        f"order = torch.randperm(60)\ntrain, test = Subset(ds, order[:48]), Subset(ds, order[48:])\n{MEASURE}"],
        ["parts = random_split(ds, [40, 10, 10])", TRAIN.replace("train", "parts[0]"),
        "parts = random_split(ds, [40, 10, 10])", MEASURE.replace("test", "parts[2]")],
    ],
)  # fmt: skip
def test_it_is_said_where_the_model_is_measured(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate([START, *cells])]
    assert warned[:-1] == [[]] * (len(warned) - 1)
    [warning] = warned[-1]
    assert (warning["kind"], warning["level"]) == ("split-again", "silent")
    assert "split the data again, but `loader` still has a part of the split of In [3]" in warning["sentence"]["en"]
    name = warning["sentence"]["en"].split("rows of the new `")[1].split("`")[0]
    part, loader = eval(name, notebook.shell.user_ns), notebook.shell.user_ns["loader"]
    shared = {int(i) for i in part.indices} & {int(i) for i in loader.dataset.indices}
    assert f"{len(shared)} of the {len(part)} rows" in warning["sentence"]["en"]
    anew = TRAIN.replace("train", "train" if "parts" not in cells[0] else "parts[0]")
    assert notebook.run(f"{ANEW}\n{anew}", "anew") == []


FOLDS = (
    "folds = []\n"
    "for at in range(3):\n"
    "    held = list(range(20 * at, 20 * at + 20))\n"
    "    rest = sorted(set(range(60)) - set(held))\n"
    "    folds.append((Subset(ds, rest), Subset(ds, held)))"
)


@pytest.mark.parametrize(
    "cells",
    [
        [SPLIT, SPLIT, TRAIN, MEASURE],
        [SEEDED, TRAIN, SEEDED, MEASURE],
        [SPLIT, TRAIN, MEASURE, f"{ANEW}\n{SPLIT}", TRAIN, MEASURE],  # a new round
        [SPLIT, TRAIN, SPLIT, f"{ANEW}\n{TRAIN}", MEASURE],
        [FOLDS, "for train, test in folds:\n    loader = DataLoader(train, 12)", MEASURE],
        ["train_a, test_a = random_split(ds, [48, 12])", "loader = DataLoader(train_a, 12)",
        "train_b, test_b = random_split(ds, [48, 12])", "loader_b = DataLoader(train_b, 12)", MEASURE.replace("test",
        "test_a"), MEASURE.replace("test", "test_b")], [SPLIT, TRAIN,
        "few = Subset(ds, range(6))\nlook = DataLoader(few, 6)", MEASURE, "x, y = next(iter(look))\nnet(x)"],
        ["bags = [Subset(ds, torch.randint(60, (60,)).tolist()) for _ in range(3)]\nloader = DataLoader(bags[0], 12)",
        SPLIT, MEASURE], [SPLIT, TRAIN, "train, val = random_split(train, [36, 12])", "x, y = val[:]\nnet(x).shape"],
        # a part of the part
    ],
)  # fmt: skip
def test_folds_and_new_rounds_are_right(notebook, cells):
    warned = [notebook.run(text, str(at)) for at, text in enumerate([START, *cells])]
    assert [each["kind"] for some in warned for each in some if each["kind"] == "split-again"] == []
