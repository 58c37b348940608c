"""PL823: a row of a matrix of eigenvectors that is used as one of them; and programs where rows are right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

DATA = """
points = torch.randn(40, 6, generator=torch.Generator().manual_seed(1)) * torch.arange(1.0, 7)
points = points - points.mean(0)
cov = points.T @ points / 39
"""
WRONG = {
    "one vector beside its value": DATA
    + """
values, vectors = torch.linalg.eigh(cov)
print(values[1], vectors[1])  # PL823
""",
    "data on the first two": DATA
    + """
def project(rows, k):
    found = torch.linalg.eigh(rows.T @ rows)
    basis = found.eigenvectors.flip(1)[:k, :]  # PL823
    return rows @ basis.T
print(project(points, 2).shape)
""",
    "signs of a row": DATA
    + """
vectors = torch.linalg.eigh(cov)[1]
side = vectors[-1] > 0  # PL823
print(side.sum())
""",
    "one after the other": DATA
    + """
values, vectors = torch.linalg.eigh(cov)
for value, vector in zip(values, vectors):  # PL823
    print(value * vector)
""",
    "complex ones, and the left ones of an svd": DATA
    + """
values, vectors = torch.linalg.eig(cov)
print((cov @ vectors.real.select(0, 2)).norm())  # PL823
u, s, vh = torch.linalg.svd(cov)
print(s[0] * torch.outer(u[0], vh[0]))  # PL823
""",
}
RIGHT = {
    "columns": DATA
    + """
values, vectors = torch.linalg.eigh(cov)
print(values[1], vectors[:, 1], points @ vectors[:, -2:], (vectors[:, 0] > 0).sum())
for value, vector in zip(values, vectors.T):
    print(value * vector)
turned = vectors.mT
print(turned[0] * values[0], points @ turned[:2].T)
""",
    "rows of Vh": DATA
    + """
u, s, vh = torch.linalg.svd(points, full_matrices=False)
print(s[0] * torch.outer(u[:, 0], vh[0]), points @ vh[:2].T, u[:5] * s)
""",
    "the places of some nodes": DATA
    + """
near = (torch.cdist(points, points) < 8).float()
values, vectors = torch.linalg.eigh(torch.diag(near.sum(1)) - near)
place = vectors[:, 1:4]
print(values[:4], place[0], (place[3] - place[5]).norm(), vectors[7] @ vectors[8], place[:10].mean(0))
""",
    "an entry of a function of the matrix": DATA
    + """
values, vectors = torch.linalg.eigh(cov)
print(vectors[2] * values.exp() @ vectors[3], (vectors * values)[1] @ vectors[1])
""",
    "a matrix whose vectors are also its rows": """
flat = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
values, vectors = torch.linalg.eigh(flat)
print(values[1] * vectors[1], flat @ vectors[1])
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL823",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
