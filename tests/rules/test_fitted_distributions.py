"""PL847: distributions made from moments that they do not have; and programs where they have them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import distributions as D
torch.manual_seed(0)
data = torch.rand(40, 3).log().neg() * 3 + 2
"""
WRONG = {
    "a mean for a rate, of each column": HEAD
    + """
def waiting(rows):
    return D.Exponential(rows.mean(0))
print(waiting(data).sample((5,)).mean(0))  # PL847
""",
    "a variance for a deviation": HEAD
    + """
spread, centre = torch.var_mean(data)
fake = D.Normal(centre, spread).sample((100,))  # PL847
print(fake.std(), torch.normal(data.mean(0), data.var(0)))  # PL847
""",
    "a density, and noise by hand": HEAD
    + """
m, s = data.mean(), data.std()
theta = s ** 2 / m
print(D.Gamma(m / theta, theta).log_prob(data).mean())  # PL847
print((m + data.var() * torch.randn(50)).std())  # PL847
""",
}
RIGHT = {
    "rates, deviations": HEAD
    + """
m, v = data.mean(0), data.var(0)
print(D.Gamma(m ** 2 / v, m / v).sample((9,)).mean(), D.Exponential(1 / m).sample((9,)).mean())
print(D.Normal(m, v.sqrt()).sample((9,)).mean(), torch.normal(m, data.std(0)), m + data.std(0) * torch.randn(9, 3))
print(D.Gamma(m ** 2 / v, m / v).log_prob(data).mean())
""",
    "parameters that are learned, or given": HEAD
    + """
rate = torch.tensor(2.0, requires_grad=True)
print(D.Gamma(rate, rate * 2).rsample((9,)).mean(), D.Exponential(torch.tensor(3.0)).sample((4,)))
print(D.Normal(data.mean(), data[:5].var() + 1).sample((3,)), D.Exponential(data.std() / 2).sample((3,)))
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_other_moments_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL847",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_distributions_with_these_moments_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
