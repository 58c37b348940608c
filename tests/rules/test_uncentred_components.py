"""PL825: principal components of tables that were not centred; and decompositions that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
x = torch.randn(100, 5) @ torch.diag(torch.tensor([3., 1, 1, .5, .2])) + torch.tensor([10., -4, 3, 0, 1])
"""
WRONG = {
    "a projection and shares, in a function": HEAD
    + """
def pca(data, k):
    u, s, vh = torch.linalg.svd(data, full_matrices=False)  # PL825
    return data @ vh[:k].T, s[:k] ** 2 / (s ** 2).sum()
print(pca(x, 2)[1])
""",
    "variances and their shares": HEAD
    + """
values = torch.linalg.svd(x.detach(), full_matrices=False)[1]  # PL825
variance = values.square() / (len(x) - 1)
print(variance / variance.sum())
""",
    "only a projection, by a layer": HEAD
    + """
u, s, v = x.svd()  # PL825
print(torch.nn.functional.linear(x, v[:, :2].T).std(0))
""",
    "eigenvalues of a product": HEAD
    + """
c = x.T @ x / (len(x) - 1)  # PL825
values, vectors = torch.linalg.eigh(c)
print(values.flip(0) / values.sum(), (x @ vectors[:, -2:]).std(0))
""",
    "cumulated shares": HEAD
    + """
s = torch.linalg.svd(x, full_matrices=False).S  # PL825
print((s * s).cumsum(0) / (s * s).sum())
""",
    "scores from the left vectors": HEAD
    + """
u, s, vh = torch.linalg.svd(x, full_matrices=False)  # PL825
print((u[:, :2] * s[:2]).std(0), s[:2].pow(2) / s.pow(2).sum())
""",
}
RIGHT = {
    "centred": HEAD
    + """
def pca(data, k):
    data = data - data.mean(0)
    u, s, vh = torch.linalg.svd(data, full_matrices=False)
    return data @ vh[:k].T, s[:k] ** 2 / (s ** 2).sum()
c = torch.cov(x.T)
values, vectors = torch.linalg.eigh(c)
print(pca(x, 2)[1], values / values.sum(), torch.pca_lowrank(x, q=2)[1])
""",
    "a matrix of low rank": HEAD
    + """
u, s, vh = torch.linalg.svd(x, full_matrices=False)
print((u[:, :2] * s[:2]) @ vh[:2], (s[:2] ** 2).sum() / (s ** 2).sum(), x @ vh[:2].T @ vh[:2])
""",
    "least squares": HEAD
    + """
y = torch.randn(100)
u, s, vh = torch.linalg.svd(x, full_matrices=False)
values, vectors = torch.linalg.eigh(x.T @ x)
print(vh.T @ (u.T @ y / s), vectors @ ((vectors.T @ (x.T @ y)) / values), s[0] / s[-1])
""",
    "orthogonal factors": HEAD
    + """
u, s, vh = torch.linalg.svd(x, full_matrices=False)
print(u @ vh)
""",
    "modes of snapshots, which are the columns": HEAD
    + """
u, s, vh = torch.linalg.svd(x, full_matrices=False)
print(u[:, :2].T @ x, s ** 2 / (s ** 2).sum())
""",
    "documents and terms": HEAD
    + """
counts = torch.poisson(torch.full((60, 12), 0.3))
u, s, vh = torch.linalg.svd(counts, full_matrices=False)
print(counts @ vh[:2].T, s ** 2 / (s ** 2).sum())
""",
    "small means, and few rows": HEAD
    + """
for table in (x - torch.tensor([9., -4, 3, 0, 1]), x[:6]):
    u, s, vh = torch.linalg.svd(table, full_matrices=False)
    print(table @ vh[:2].T, s ** 2 / (s ** 2).sum())
""",
    "a plane through points in homogeneous coordinates": HEAD
    + """
points = torch.cat([torch.rand(50, 3), torch.ones(50, 1)], 1)
print(torch.linalg.svd(points).Vh[-1], torch.linalg.svdvals(points))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_components_of_the_mean_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_other_decompositions_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
