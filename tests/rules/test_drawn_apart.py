"""Answers and labels that are measured against each other: drawn by one index, or by two."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
torch.manual_seed(0)
x = torch.randn(40, 3)
y = (x[:, 0] > 0).long()
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    scores = net(x)
said = scores.argmax(1)
"""
WRONG = {
    "a bootstrap in one line": SETTING
    + """
def share(said, true):
    return (said == true).float().mean()
found = [share(said[torch.randint(40, (40,))], y[torch.randint(40, (40,))]) for _ in range(5)]  # PL414
print(torch.stack(found).std())
""",
    "half of the rows, by a method": SETTING
    + """
for _ in range(4):
    some = scores.index_select(0, torch.randperm(40)[:20])
    true = y.index_select(0, torch.randperm(40)[:20])  # PL414
    print(some.argmax(1).ne(true).sum())
""",
    "weights of the rows": SETTING
    + """
weights = torch.ones(40)
rows = torch.multinomial(weights, 30)
answers = said[rows]
rows = torch.multinomial(weights, 30)
print((answers == y[rows]).double().mean())  # PL414
""",
    "all rounds at once": SETTING
    + """
a = said[torch.randint(0, 40, (6, 40))]
b = y[torch.randint(0, 40, (6, 40))]  # PL414
print((a == b).float().mean(1))
""",
    "an error of numbers": SETTING
    + """
level = nn.Linear(3, 1)
true = x.sum(1)
with torch.no_grad():
    guess = level(x).squeeze(1)
print(F.mse_loss(guess, true))
print((guess[torch.randint(0, 40, (40,))] - true[torch.randint(0, 40, (40,))]).pow(2).mean())  # PL414
""",
}
RIGHT = {
    "one index for both": SETTING
    + """
for _ in range(4):
    rows = torch.randint(0, 40, (40,))
    print((said[rows] == y[rows]).float().mean())
""",
    "labels that are permuted, for the accuracy of chance": SETTING
    + """
print([(said == y[torch.randperm(40)]).float().mean() for _ in range(4)])
""",
    "two samples that are independent": SETTING
    + """
real, made = torch.randn(40), net(x)[:, 0].detach()
apart = (made[torch.randint(0, 40, (30,))] - real[torch.randint(0, 40, (30,))]).abs().mean()
print(apart)
""",
    "two networks": SETTING
    + """
with torch.no_grad():
    others = nn.Linear(3, 2)(x).argmax(1)
print((said[torch.randint(0, 40, (9,))] == others[torch.randint(0, 40, (9,))]).float().mean())
""",
    "one seed before each draw": SETTING
    + """
torch.manual_seed(1)
some = said[torch.randint(0, 40, (8,))]
torch.manual_seed(1)
print((some == y[torch.randint(0, 40, (8,))]).float().mean())
""",
    "means of two bootstraps": SETTING
    + """
one = said[torch.randint(0, 40, (40,))].float().mean()
two = y[torch.randint(0, 40, (40,))].float().mean()
print(one - two, one == two)
""",
}


def test_pairs_that_are_drawn_apart_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", ["a bootstrap in one line", "half of the rows, by a method", "all rounds at once"])
def test_one_draw_repairs_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_draws_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
