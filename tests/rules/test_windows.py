"""Windows of one series: split at random they overlap; by time, without overlap or by series they do not."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
from torch.utils.data import Subset, random_split
torch.manual_seed(0)
series, width = torch.randn(130).cumsum(0), 9
def learn(net, opt, x, y):
    update(opt, F.mse_loss(net(x), y))
net = nn.Sequential(nn.Linear(width - 1, 16), nn.ReLU(), nn.Linear(16, 1))
opt = Adam(net.parameters())
"""
CLASS = """
class Windows(Dataset):
    def __len__(self):
        return len(series) - width + 1
    def __getitem__(self, i):
        return series[i : i + width - 1], series[i + width - 1 : i + width]
data = Windows()
"""
LOOP = """
for _ in range(3):
    for x, y in DataLoader(one, 20, shuffle=True):
        learn(net, opt, x, y)
with torch.no_grad():
    for x, y in DataLoader(other, 20):
        print(F.mse_loss(net(x), y))
"""
TRAIN = """
for _ in range(3):
    learn(net, opt, x[one], y[one])
with torch.no_grad():
    print(F.l1_loss(net(x[other]), y[other]))
"""
WRONG = {
    "a data set of slices": SETTING + CLASS + "one, other = random_split(data, [90, len(data) - 90])  # PL975\n" + LOOP,
    "shares, and a scaled series": SETTING.replace("cumsum(0), 9", "cumsum(0) * 3, 9")
    + """
series = (series - series.mean()) / series.std()
pieces = series.unfold(0, width, 1)
one, other = random_split(TensorDataset(pieces[:, :-1], pieces[:, -1:]), [0.7, 0.3])  # PL975
"""
    + LOOP,
    "windows that are stacked, and an order": SETTING
    + """
x = torch.stack([series[i : i + 8] for i in range(0, 120, 2)])
y = torch.stack([series[i + 8 : i + 9] for i in range(0, 120, 2)])
order = torch.randperm(60)  # PL975
one, other = order[15:], order[:15]
"""
    + TRAIN,
    "batches of a part": SETTING
    + """
pieces = series.unfold(0, width, 1)
order = torch.randperm(pieces.shape[0])  # PL975
kept, rest = pieces[order[:100]], pieces[order[100:]]
for _ in range(3):
    rows = torch.randperm(100)
    for i in range(0, 100, 25):
        some = kept[rows[i : i + 25]]
        learn(net, opt, some[:, :-1], some[:, -1:])
with torch.no_grad():
    print(F.mse_loss(net(rest[:, :-1]), rest[:, -1:]))
""",
    "a list that is shuffled, and a recurrent net": SETTING
    + CLASS
    + """
import random
numbers = list(range(len(data)))
random.Random(0).shuffle(numbers)
one, other = Subset(data, numbers[:80]), Subset(data, numbers[80:])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(1, 6, batch_first=True), nn.Linear(6, 1)
    def forward(self, x):
        return self.head(self.rnn(x.unsqueeze(-1))[0][:, -1])  # PL975
net = Net()
opt = Adam(net.parameters())
for _ in range(3):
    for x, y in DataLoader(one, 20, shuffle=True):
        learn(net, opt, x, y)
with torch.no_grad():
    for x, y in DataLoader(other, 20):
        print(F.mse_loss(net(x), y))
""",
}
RIGHT = {
    "windows that do not overlap": SETTING
    + """
pieces = series.unfold(0, width, width)
one, other = random_split(TensorDataset(pieces[:, :-1], pieces[:, -1:]), [0.7, 0.3])
"""
    + LOOP,
    "the end of the series": SETTING
    + CLASS
    + "one, other = Subset(data, range(80)), Subset(data, range(80, len(data)))\n"
    + LOOP,
    "rows of a table": SETTING
    + """
x, y = torch.randn(60, 8), torch.randn(60, 1)
order = torch.randperm(60)
one, other = order[15:], order[:15]
"""
    + TRAIN,
    "series that are split": SETTING
    + """
many = torch.randn(12, 20).cumsum(1)
order = torch.randperm(12)
def windows(rows):
    return torch.cat([many[i].unfold(0, width, 1) for i in rows.tolist()])
one, other = windows(order[:8]), windows(order[8:])
for _ in range(3):
    learn(net, opt, one[:, :-1], one[:, -1:])
with torch.no_grad():
    print(F.mse_loss(net(other[:, :-1]), other[:, -1:]))
""",
    "the training's own windows": SETTING + CLASS + "one = other = Subset(data, range(80))\n" + LOOP,
    "windows drawn anew from what is learned from": SETTING
    + """
def some(part):
    at = torch.randint(0, len(part) - width, (6,))
    rows = torch.stack([part[i : i + width] for i in at.tolist()])
    return rows[:, :-1], rows[:, -1:]
early = series[:]
for step in range(6):
    learn(net, opt, *some(early))
    with torch.no_grad():
        x, y = some(early)
        print(F.mse_loss(net(x), y))
""",
}


def test_windows_between_learned_ones_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", ["a data set of slices", "windows that are stacked, and an order"])
def test_a_split_by_time_repairs_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_splits_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
