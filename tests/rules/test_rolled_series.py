"""PL998: inputs of a forecast that were rolled from later times; and rolls to earlier times, and for other ends."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SERIES = """
y = torch.randn(120).cumsum(0)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.001)
"""

WRONG = {
    "columns that were stacked, with a part for training": SERIES
    + """
scaled = (y - y.mean()) / y.std()
lags = torch.stack([torch.roll(scaled, -k) for k in (1, 2, 3)], dim=1)  # PL998
x, t = lags[3:-3], scaled[3:-3]
for _ in range(4):
    update(opt, F.l1_loss(net(x[:80]).squeeze(1), t[:80]))
""",
    "line by line, with the hour beside them, in batches": SERIES
    + """
one = y.roll(shifts=-1)  # PL998
two = y.roll(shifts=-2)
x = torch.stack([one, two, torch.arange(120) / 24 % 1], dim=1)
for part in (torch.randperm(110) + 4).split(22):
    update(opt, F.mse_loss(net(x[part]).squeeze(1), y[part]))
""",
    "several series at once": """
y = torch.randn(90, 2).cumsum(0)
later = torch.stack([torch.roll(y, -k, dims=0) for k in (1, 2)], dim=2).flatten(1)  # PL998
net = nn.Linear(4, 2)
opt = Adam(net.parameters(), lr=0.01)
for _ in range(4):
    update(opt, (net(later[2:-2]) - y[2:-2]).square().mean())
""",
}

RIGHT = {
    "earlier values": SERIES
    + """
lags = torch.stack([torch.roll(y, k) for k in (1, 2, 3)], dim=1)
for _ in range(3):
    update(opt, F.mse_loss(net(lags[3:]).squeeze(1), y[3:]))
""",
    "the next value as the target": SERIES
    + """
lags, later = torch.stack([y, y.roll(1), y.roll(2)], dim=1), y.roll(-1)
for _ in range(3):
    update(opt, F.mse_loss(net(lags[3:-1]).squeeze(1), later[3:-1]))
""",
    "a gap that is filled from both sides": SERIES
    + """
sides = torch.stack([y.roll(1), y.roll(-1), y.roll(-2)], dim=1)
for _ in range(3):
    update(opt, F.mse_loss(net(sides[3:-3]).squeeze(1), y[3:-3]))
""",
    "a plan for the next hours, known beforehand": SERIES
    + """
plan = torch.rand(120)
x = torch.stack([y.roll(1), plan.roll(-1), plan.roll(-2)], dim=1)
for _ in range(3):
    update(opt, F.mse_loss(net(x[3:-3]).squeeze(1), y[3:-3]))
""",
    "examples that are paired with others of the batch": """
x = torch.randn(40, 3)
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    a, b = net(x), net(x.roll(-1, 0))
    update(opt, F.relu(1 + (a - x).square().mean(1) - (b - x).square().mean(1)).mean())
    update(opt, F.mse_loss(net(0.7 * x + 0.3 * x.roll(-1, 0)), x))
""",
    "tokens of a sentence": """
words = torch.randint(0, 9, (6, 20))
emb, out = nn.Embedding(9, 8), nn.Linear(8, 9)
opt = SGD([*emb.parameters(), *out.parameters()], lr=0.1)
for _ in range(3):
    update(opt, F.cross_entropy(out(emb(words[:, :-1])).flatten(0, 1), words.roll(-1, 1)[:, :-1].flatten()))
""",
}


def test_inputs_from_later_times_are_found_and_turned_round(shop: Workshop) -> None:
    for text in WRONG.values():
        assert_found(shop, together({"alone": text}), only=("PL998",), repaired=True)


def test_inputs_from_earlier_times_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
