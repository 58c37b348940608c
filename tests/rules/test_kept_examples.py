"""Examples changed by chance: kept by a data set for all passes, or changed anew in each."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
torch.manual_seed(0)
pictures, kinds = torch.rand(8, 6, 6), torch.arange(8) % 2
net = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
opt = SGD(net.parameters(), lr=0.1)
def passes(data):
    for epoch in range(3):
        for x, y in DataLoader(data, 2, shuffle=True):
            update(opt, F.cross_entropy(net(x), y))
class Pictures(Dataset):
    def __init__(self):
        self.kept = {}
    def __len__(self):
        return 8
"""
WRONG = {
    "a flip by a coin": SETTING
    + """
class Flipped(Pictures):
    def __getitem__(self, i):
        if i not in self.kept:
            x = pictures[i] - 0.5
            if torch.rand(1) < 0.7:
                x = x.flip(-1)
            x = x + 0.1 * torch.randn(6, 6)  # PL955
            self.kept[i] = x
        return self.kept[i], kinds[i]
passes(Flipped())
""",
    "a decorator": SETTING
    + """
import functools
@functools.lru_cache(maxsize=None)
def load(i):
    x = pictures[i] * 2 - 1
    return torch.roll(x, int(torch.randint(-2, 3, (1,))), 0)  # PL955
class Rolled(Pictures):
    def __getitem__(self, i):
        return load(i), kinds[i]
passes(Rolled())
""",
    "batches that are put together by hand": SETTING
    + """
kept = [None] * 8
def example(i):
    if kept[i] is None:
        angle = torch.randint(0, 4, ()).item()
        kept[i] = torch.rot90(pictures[i], angle)  # PL955
    return kept[i]
for epoch in range(3):
    for rows in torch.randperm(8).split(2):
        x = torch.stack([example(i) for i in rows.tolist()])
        update(opt, F.cross_entropy(net(x), kinds[rows]))
""",
}
RIGHT = {
    "a critic that sees one batch before and after its update": """
states, actions = torch.randn(64, 4), torch.randn(64, 2)
actor, critic = nn.Linear(4, 2), nn.Linear(6, 1)
first, second = SGD(actor.parameters(), lr=0.01), SGD(critic.parameters(), lr=0.01)
def judge(state, action):
    return critic(torch.cat([state, action], dim=1))
for turn in range(4):
    rows = torch.randint(0, 64, (8,))
    state, action = states[rows], actions[rows]
    update(second, (judge(state, action) - state.sum(1, keepdim=True)).pow(2).mean())
    update(first, -judge(state, actor(state)).mean())
""",
    "batches drawn once and joined in each epoch": """
torch.manual_seed(0)
pictures, net = torch.rand(8, 6), nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
drawn = {}
def chosen(turn):
    if turn not in drawn:
        drawn[turn] = pictures[torch.randperm(8)[:4]]
    return drawn[turn]
for epoch in range(3):
    x = torch.cat([chosen(turn) for turn in range(4)])
    update(opt, net(x).pow(2).mean())
""",
    "changed after it was taken out": SETTING
    + """
class Moved(Pictures):
    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = pictures[i] * 2 - 1
        return torch.roll(self.kept[i], torch.randint(-2, 3, (2,)).tolist(), (0, 1)), kinds[i]
passes(Moved())
""",
    "kept without a draw": SETTING
    + """
class Scaled(Pictures):
    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = (pictures[i] - pictures[i].mean()) / pictures[i].std()
        return self.kept[i], kinds[i]
passes(Scaled())
""",
    "data that were enlarged before": SETTING
    + """
many = [(torch.roll(pictures[i], torch.randint(-2, 3, (2,)).tolist(), (0, 1)), kinds[i]) for i in range(8)]
passes(many)
""",
    "changed anew each time": SETTING
    + """
class Noisy(Pictures):
    def __getitem__(self, i):
        return pictures[i] + 0.1 * torch.randn(6, 6), kinds[i]
passes(Noisy())
""",
}


def test_kept_changes_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", ["a flip by a coin", "a decorator"])
def test_a_change_at_each_access_repairs_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_caches_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
