"""PL905 where a function is given its seed: a loop that counts gives another one in each round."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

TRAINED = """
torch.manual_seed(0)
data, net = torch.randn(40, 3), nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def noisy(x, seed):
    g = torch.Generator().manual_seed(seed)%s
    noise = torch.randn(x.shape, generator=g)
    return x + noise, noise
for %s:
    given, noise = noisy(data[:8], %s)
    loss = F.mse_loss(net(given), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "a constant": TRAINED % ("  # PL905", "step in range(5)", "1234"),
    "by name, in a loop that counts beside": TRAINED % ("  # PL905", "step, lr in enumerate([0.1] * 5)", "seed=7"),
}
RIGHT = {
    "a number of the round": TRAINED % ("", "step in range(5)", "1234 + step"),
    "drawn": TRAINED % ("", "step in range(5)", "int(torch.randint(0, 9999, ()))"),
}


@pytest.mark.parametrize("name", WRONG)
def test_they_are_found_and_repaired(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], only=("PL905",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
