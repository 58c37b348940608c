"""PL819: nearest rows by distances that are mostly rounding; and distances that are exact enough, or used otherwise."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
origin = torch.tensor([5200.0, 8700.0])
x = origin + 12 * torch.rand(80, 2)
y = x + 0.02 * torch.randn(80, 2)
"""
WRONG = {
    "partners": HEAD
    + """
gap, partner = torch.cdist(x, y).min(dim=1)  # PL819 used
print(gap.mean())
""",
    "in a function, squared": HEAD
    + """
def squares(a, b):
    return torch.cdist(a, b, p=2.0) ** 2  # PL819

print(squares(x, y).argmin(1)[:9])  # used
""",
    "the opposite": HEAD
    + """
near = -torch.cdist(x, y)  # PL819
print(near.topk(3, dim=1).indices[:3])  # used
""",
    "without the row itself": HEAD
    + """
x = origin + 0.5 * torch.rand(80, 2)
d = torch.cdist(x, x)  # PL819
d.fill_diagonal_(float("inf"))
print(d.topk(3, largest=False).values.mean())  # used
""",
    "asked for, in batches": HEAD
    + """
d = torch.cdist(x[None], y[None], compute_mode="use_mm_for_euclid_dist")  # PL819
print(torch.argsort(d / 2, dim=-1)[0, :5, 0])  # used
""",
    "learned": HEAD
    + """
shift = torch.zeros(2, requires_grad=True)
for _ in range(2):
    d = torch.cdist(x + shift, y)  # PL819
    d.min(1).values.mean().backward()  # used
print(shift.grad)
""",
}
RIGHT = {
    "subtracted": HEAD
    + """
print(torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist").min(1).values.mean())
""",
    "an offset taken away": HEAD
    + """
print(torch.cdist(x - origin, y - origin).min(1).indices[:5])
""",
    "few rows": HEAD
    + """
print(torch.cdist(x[:20], y[:20]).argmin(1))
""",
    "another norm": HEAD
    + """
print(torch.cdist(x, y, p=1.0).argmin(1)[:5])
""",
    "float64": HEAD
    + """
print(torch.cdist(x.double(), y.double()).argmin(1)[:5])
""",
    "vectors of usual size": HEAD
    + """
codes, z = torch.randn(64, 16), torch.randn(100, 16)
print(torch.cdist(z, codes).argmin(1)[:5], torch.cdist(codes, codes + 1e-5).argmin(1)[:5])
""",
    "the farthest, and the mean": HEAD
    + """
d = torch.cdist(x, y)
print(d.max(), d.mean(), (-d).min(), d.topk(3).values.sum())
""",
    "equal rows": HEAD
    + """
rows = torch.rand(60, 2)
print(torch.cdist(rows, rows.repeat(2, 1)).argmin(1)[:5])
""",
    "only near duplicates": HEAD
    + """
z = torch.randn(50, 8)
both = torch.cat([z, z + 1e-6, z + 2e-6])
print(torch.cdist(both, both).topk(3, largest=False).indices[:3])
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_distances_that_are_mostly_rounding_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_other_distances_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
