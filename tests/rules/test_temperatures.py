"""Temperatures that cancel where scores are divided by their sum, and right scales."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "annealed, in an agent": """
class Agent:
    def __init__(self):
        self.q, self.tau = nn.Sequential(nn.Linear(3, 4), nn.Softplus()), 1.0
    @torch.no_grad()
    def act(self, x):
        preferences = self.q(x) / self.tau
        return Categorical(preferences).sample()  # PL943
agent = Agent()
for _ in range(4):
    print(agent.act(torch.randn(2, 3)))
    agent.tau *= 0.9
""",
}
RIGHT = {
    "as logits": """
for tau in (1.0, 0.5):
    print(Categorical(logits=torch.rand(4) / tau).sample())
""",
    "one unit for all": """
for _ in range(3):
    print(Categorical(torch.rand(4) / 255).sample())
""",
    "shares, by hand": """
for _ in range(3):
    counts = torch.rand(4)
    print(torch.multinomial(counts / counts.sum(), 1))
""",
}


def test_temperatures_that_cancel_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_right_scales_are_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
