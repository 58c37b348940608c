"""PL471: cross products along the dimension that numbers the vectors; and cross products that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
a, b = torch.randn(3, 3), torch.randn(3, 3)
"""
WRONG = {
    "in a function, lengths after it": HEAD
    + """
def normals(u, v):
    n = torch.cross(u, v, dim=0)  # PL471
    return n / n.norm(dim=1, keepdim=True)
print(normals(a, b))
""",
    "a method, the axis by its place, normalized": HEAD
    + """
print(F.normalize(a.cross(b, 0), dim=-1))  # PL471
""",
    "vectors that were normalized before": HEAD
    + """
u = F.normalize(a, dim=1)
v = b / torch.linalg.vector_norm(b, dim=1, keepdim=True)
print(torch.linalg.cross(u, v, dim=0))  # PL471
""",
    "a dot product": HEAD
    + """
n = torch.cross(a, b, 0)  # PL471
print((n * torch.randn(3, 3)).sum(-1).abs())
""",
    "areas in a batch of three meshes, no axis": HEAD
    + """
corners = torch.randn(3, 7, 3, 3)
one, two = corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0]
n = torch.cross(one, two)  # PL471
print(n.square().sum(-1).sqrt().sum() / 2)
""",
    "the same line for other shapes, no axis": HEAD
    + """
def product(u, v):
    return torch.cross(u, v)  # PL471
for count in (5, 3):
    print(product(torch.randn(count, 3), torch.randn(count, 3)))
""",
}
RIGHT = {
    "along the components": HEAD
    + """
n = torch.cross(a, b, dim=1)
print(n / n.norm(dim=1, keepdim=True), (n * a).sum(1))
""",
    "vectors in columns": HEAD
    + """
n = torch.cross(a, b, dim=0)
print(n / n.norm(dim=0, keepdim=True), (n * a).sum(0), n.mean(1), n @ torch.rand(3))
""",
    "weights of columns, and a product of matrices": HEAD
    + """
n = torch.cross(a, b, dim=0)
print((n * torch.rand(3)).sum(1), (n * a).sum(1).sum(), n.norm())
""",
    "a field of vectors": HEAD
    + """
n = torch.cross(torch.randn(3, 3, 5), torch.randn(3, 3, 5), dim=0)
print(n.norm(dim=0), (n * torch.randn(3, 3, 5)).sum(0))
""",
    "nothing shows it": HEAD
    + """
print(torch.cross(a, b), torch.linalg.cross(a, b))
""",
    "components in columns, twice": HEAD
    + """
def product(u, v):
    return torch.cross(u, v)
for count in (5, 3):
    print(product(torch.randn(3, count), torch.randn(3, count)))
""",
    "both are looked at": HEAD
    + """
n = torch.cross(a, b, dim=0)
print(n.norm(dim=0), n.norm(dim=1))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_cross_product_over_the_vectors_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_a_cross_product_along_the_components_is_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
