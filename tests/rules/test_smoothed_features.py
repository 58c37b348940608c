"""Smoothed series as features of a forecast: with a window that reaches up to the target, and with one that does "
"not."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

SETTING = """
torch.manual_seed(0)
load = torch.randn(60).cumsum(0)
def teach(x, y):
    net = nn.Linear(x.shape[1], 1)
    opt = Adam(net.parameters())
    for _ in range(3):
        update(opt, F.mse_loss(net(x[:40]).squeeze(1), y[:40]))
    with torch.no_grad():
        print(F.mse_loss(net(x[40:]).squeeze(1), y[40:]))
"""
WRONG = {
    "a pooling that is padded on both sides": SETTING
    + """
trend = F.avg_pool1d(load[None, None], 5, stride=1, padding=2)[0, 0]  # PL458
teach(torch.stack([load[:-1], trend[:-1]], dim=1), load[1:])
""",
    "a padded convolution with weights by hand": SETTING
    + """
smooth = F.conv1d(load.reshape(1, 1, -1), torch.full((1, 1, 5), 0.2), padding=2).flatten()  # PL458
x = torch.cat([load[:-2].unsqueeze(1), smooth[:-2, None], smooth[:-2, None] ** 2], 1)
teach(x, load[2:])
""",
    "an average kept in a module, subtracted": SETTING
    + """
class Trend(nn.Module):
    def forward(self, x):
        wide = F.pad(x, (3, 3))  # PL458
        return F.avg_pool1d(wide, 7, 1).squeeze(0)
rest = load - Trend()(load.unsqueeze(0))
teach(torch.stack([load[:-1], rest[:-1]], -1), load[1:])
""",
}
RIGHT = {
    "a window of the past": SETTING
    + """
trend = F.avg_pool1d(F.pad(load[None, None], (4, 0)), 5, stride=1)[0, 0]
teach(torch.stack([load[:-1], trend[:-1]], dim=1), load[1:])
""",
    "a centered window that ends before the target": SETTING
    + """
trend = F.avg_pool1d(load[None, None], 5, stride=1, padding=2)[0, 0]
teach(torch.stack([load[2:-1], trend[:-3]], dim=1), load[3:])
""",
    "a series that is to be smoothed": SETTING
    + """
noisy = load + torch.randn(60)
teach(torch.stack([noisy, F.avg_pool1d(noisy[None], 5, 1, 2)[0]], 1), load)
teach(F.avg_pool1d(load[None], 5, 1, 2).T, load)
""",
    "weights that are 0 behind the place": SETTING
    + """
kernel = torch.tensor([[[0.4, 0.3, 0.3, 0.0, 0.0]]])
trend = F.conv1d(load[None, None], kernel, padding=2)[0, 0]
teach(torch.stack([load[:-1], trend[:-1]], dim=1), load[1:])
""",
    "another series": SETTING
    + """
heat = torch.randn(60)
calm = F.avg_pool1d(heat[None, None], 5, stride=1, padding=2)[0, 0]
teach(torch.stack([load[:-1], calm[:-1]], dim=1), load[1:])
""",
}


def test_features_that_see_the_target_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


@pytest.mark.parametrize("name", WRONG)
def test_a_window_of_the_past_repairs_it(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], repaired=True)


def test_right_features_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
