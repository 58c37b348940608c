"""An attribute of a data set that is set through one part of a split, and holds for the other parts as well."""

from __future__ import annotations

import pytest

START = """from torch.utils.data import DataLoader, Dataset, Subset, random_split
torch.manual_seed(0)
class Pulses(Dataset):
    def __init__(self, n):
        self.x, self.y = torch.randn(n, 4), torch.randint(0, 2, (n,))
        self.augment, self.transform, self.scale, self.seen = False, None, 1.0, 0
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        self.seen += 1
        x = self.x[i] * self.scale
        if self.augment:
            x = x + 0.1 * torch.randn(4)
        if self.transform is not None:
            x = self.transform(x)
        return x, self.y[i]
def flipped(x):
    return x.flip(0) if torch.rand(1) < 0.5 else x
def halved(x):
    return x / 2
net = nn.Linear(4, 2)
def train(loader):
    opt = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in loader:
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
@torch.no_grad()
def check(loader):
    return sum((net(x).argmax(1) == y).sum().item() for x, y in loader)"""
SPLIT = """train_set, val_set = random_split(Pulses(40), [30, 10])
train_loader, val_loader = DataLoader(train_set, batch_size=10), DataLoader(val_set, batch_size=10)"""
SUBSETS = """data = Pulses(40)
train_set, val_set = Subset(data, range(30)), Subset(data, range(30, 40))
train_loader, val_loader = DataLoader(train_set, batch_size=10), DataLoader(val_set, batch_size=10)"""
CHECK = "right = check(val_loader)"


@pytest.mark.parametrize(
    ("cells", "part", "text"),
    [
        ([SPLIT, "train_set.dataset.augment = True", "train(train_loader)", CHECK], "val_set", "augment = True"),
        ([SUBSETS, CHECK, "train_loader.dataset.dataset.augment = True\ntrain(train_loader)", CHECK], "val_set", ""),
        ([SPLIT, "train_set.dataset.transform = flipped", "train(train_loader)", CHECK], "val_set", "= flipped"),
        ([SPLIT, CHECK, "train_set.dataset.transform = halved", "train(train_loader)", CHECK], "val_set", "= halved"),
        ([SPLIT, "d = train_set.dataset\nd.augment = True", "train(train_loader)", "x, y = val_set[0]"], "val_set", ""),
        (
            [SPLIT, "def on(part):\n    part.dataset.augment = True", "on(train_set)\ntrain(train_loader)", CHECK],
            "val_set",
            "",
        ),
        ([SPLIT, "setattr(train_set.dataset, 'augment', True)", "train(train_loader)", CHECK], "val_set", "setattr"),
        (
            [SPLIT, "print(len(val_set))", f"train_set.dataset.augment = True\ntrain(train_loader)\n{CHECK}"],
            "val_set",
            "",
        ),
        (
            [SPLIT, "train_set.dataset.transform = flipped\nval_set.dataset.transform = halved", "train(train_loader)"],
            "train_set",
            "= halved",
        ),
    ],
)
def test_the_use_of_the_other_part_is_named(notebook, cells, part, text):
    warned = [notebook.run(each) for each in (START, *cells)]
    assert warned[:-1] == [[]] * len(cells)
    [warning] = warned[-1]
    assert (warning["kind"], warning["rule"]) == ("shared-setting", "PL738")
    assert f"which is also the data set of `{part}`: In [{len(cells) + 2}] used `{part}`" in warning["sentence"]["en"]
    assert text in warning["sentence"]["en"]
    assert [each["kind"] for each in notebook.run("1 + 1")] == ["shared-setting"]
    repair = "import copy\ntrain_set.dataset = copy.copy(train_set.dataset)\nval_set.dataset.augment = False"
    assert notebook.run(repair) == []


@pytest.mark.parametrize(
    "cells",
    [
        [SPLIT, "train_set.dataset.augment = True\ntrain(train_loader)\ntrain_set.dataset.augment = False", CHECK],
        [SPLIT, "train_set.dataset.augment = True\ntrain(train_loader)", "val_set.dataset.augment = False", CHECK],
        [
            SPLIT,
            "train_set.dataset.augment = True",
            "train(train_loader)",
            "print(len(val_set))",
            "train(train_loader)",
        ],
        [
            SPLIT,
            "import copy\ntrain_set.dataset = copy.copy(train_set.dataset)\ntrain_set.dataset.augment = True",
            "train(train_loader)",
            CHECK,
        ],
        [SPLIT, CHECK, "train_set.dataset.scale = 1 / train_set.dataset.x.std().item()", "train(train_loader)", CHECK],
        [SPLIT, "train_set.dataset.transform = halved", "train(train_loader)", CHECK],
        [SUBSETS, "data.augment = True", "train(train_loader)", CHECK],
        [SPLIT, "for part in (train_set, val_set):\n    part.dataset.scale = 2.0", "train(train_loader)", CHECK],
        [SPLIT, "train_set.dataset.scale = 2.0\nval_set.dataset.scale = 2.0", "train(train_loader)", CHECK],
        [
            SPLIT,
            "def fit():\n    train_set.dataset.augment = True\n    train(train_loader)",
            "def score():\n    val_set.dataset.augment = False\n    return check(val_loader)",
            *["fit()", "score()"] * 2,
        ],
        [
            "train_set, val_set = Pulses(30), Pulses(10)",
            "train_set.augment = True\ntrain(DataLoader(train_set, batch_size=5))",
            "check(DataLoader(val_set, batch_size=5))",
        ],
    ],
)
def test_what_is_set_back_or_for_all_parts_is_right(notebook, cells):
    for text in (START, *cells):
        assert notebook.run(text) == []
