"""PL854: covariances between samples; and tables whose rows are variables."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
x = torch.randn(60, 4) @ torch.randn(4, 4)
"""
WRONG = {
    "centred": HEAD
    + """
print(torch.cov(x - x.mean(0)).diagonal().mean())  # PL854
""",
    "not centred": HEAD
    + """
print(x.cov().mean())  # PL854
""",
    "correlations of a standardized table": HEAD
    + """
z = (x - x.mean(dim=0)) / x.std(dim=0)
print(torch.corrcoef(z).mean())  # PL854
""",
    "a few more rows, centred": HEAD
    + """
x = x[:6]
print(torch.cov(x - x.mean(0, keepdim=True)).mean())  # PL854
""",
}
RIGHT = {
    "transposed": HEAD
    + """
print(torch.cov((x - x.mean(0)).T), torch.corrcoef(x.mT))
""",
    "correlations between rows": HEAD
    + """
print(torch.corrcoef(x).mean(), torch.corrcoef(x - x.mean(1, keepdim=True)).mean())
""",
    "few variables": HEAD
    + """
print(torch.cov(x.T.contiguous()), torch.cov(x[:4]), torch.cov(x[:, 0]))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_covariance_between_samples_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_a_covariance_between_variables_is_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
