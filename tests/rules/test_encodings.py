"""The mean target of a category as a feature: with the row's own target, and without it."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
torch.manual_seed(0)
town, age, won = torch.randint(0, 12, (40,)), torch.randn(40), (torch.rand(40) > 0.5).float()
net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.1)
def learn(x, y):
    for _ in range(3):
        update(opt, F.binary_cross_entropy_with_logits(net(x).squeeze(1), y))
"""
WRONG = {
    "weights of a histogram": SETTING
    + """
rate = (torch.bincount(town, won, minlength=12) / torch.bincount(town, minlength=12).clamp(min=1)).float()
known = rate[town]  # PL945
learn(torch.stack([age, known], 1), won)
""",
    "a mean by scattering, in batches": SETTING
    + """
means = torch.zeros(12).scatter_reduce(0, town, won, reduce="mean", include_self=False)
rows = torch.cat([age[:, None], means.gather(0, town)[:, None]], 1)  # PL945
for x, y in DataLoader(TensorDataset(rows, won), 10, shuffle=True):
    learn(x, y)
""",
    "a smoothed function": SETTING
    + """
class Encoder:
    def fit(self, c, y):
        total = torch.zeros(12).scatter_add_(0, c, y)
        count = torch.zeros(12).scatter_add_(0, c, torch.ones_like(y))
        self.table = (total + 2 * y.mean()) / (count + 2)
        return self
    def __call__(self, c):
        return self.table.index_select(0, c)  # PL945
encoder = Encoder().fit(town, won)
learn(torch.stack([age, encoder(town)], 1), won)
""",
    "a product with the code of ones and zeros": SETTING
    + """
code = F.one_hot(town, 12).float()
mean = (code.t() @ won) / code.sum(0).clamp(min=1)
column = mean[town]  # PL945
learn(torch.stack([age, column], 1), won)
""",
    "whole numbers that are taught as classes": SETTING
    + """
kind = won.long()
two = nn.Linear(2, 2)
step = SGD(two.parameters(), lr=0.1)
total = torch.zeros(12)
total.index_add_(0, town, kind.float())
count = torch.bincount(town, minlength=12)
share = total / count.clamp(min=1)
x = torch.stack([age, share[town] - 0.5], 1)  # PL945
for _ in range(2):
    order = torch.randperm(40)
    for i in range(0, 40, 20):
        some = order[i : i + 20]
        update(step, F.cross_entropy(two(x[some]), kind[some]))
""",
}
RIGHT = {
    "from the other half": SETTING
    + """
def rates(c, y):
    return torch.zeros(12).index_add_(0, c, y) / torch.bincount(c, minlength=12).clamp(min=1)
known = torch.cat([rates(town[20:], won[20:])[town[:20]], rates(town[:20], won[:20])[town[20:]]])
learn(torch.stack([age, known], 1), won)
""",
    "without the own one": SETTING
    + """
total, count = torch.zeros(12).index_add_(0, town, won), torch.bincount(town, minlength=12)
known = (total[town] - won) / (count[town] - 1).clamp(min=1)
learn(torch.stack([age, known], 1), won)
""",
    "many rows in few categories": SETTING
    + """
sex = torch.arange(40) % 2
share = torch.zeros(2).index_add_(0, sex, won) / torch.bincount(sex)
learn(torch.stack([age, share[sex]], 1), won)
""",
    "the mean of another number": SETTING
    + """
older = torch.zeros(12).index_add_(0, town, age) / torch.bincount(town, minlength=12).clamp(min=1)
learn(torch.stack([age, older[town]], 1), won)
""",
    "earlier rows": SETTING
    + """
before = torch.zeros(12).index_add_(0, town[:20], won[:20]) / torch.bincount(town[:20], minlength=12).clamp(min=1)
learn(torch.stack([age[20:], before[town[20:]]], 1), won[20:])
print(before[town[:20]].mean())
""",
    "means that are subtracted from the target": SETTING
    + """
mean = torch.zeros(12).index_add_(0, town, won) / torch.bincount(town, minlength=12).clamp(min=1)
x = torch.stack([age, age**2], 1)
for _ in range(3):
    update(opt, F.mse_loss(net(x).squeeze(1), won - mean[town]))
""",
    "messages of neighbours": SETTING
    + """
there = torch.zeros(40, 2).index_add_(0, torch.arange(40).roll(1), torch.stack([age, age], 1))
learn(there[torch.arange(40)], won)
""",
}


def test_encodings_that_contain_their_target_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", ["weights of a histogram", "whole numbers that are taught as classes"])
def test_other_rows_repair_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_encodings_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
