"""PL824: data projected on the components with the least variance; and programs in which the smallest are meant."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(60, 6) * torch.tensor([5.0, 3, 2, 1, 0.5, 0.2])
y = torch.randint(2, (60,))
"""
FOUND = {
    "a class with a mean": """
class Pca:
    def fit(self, data, k):
        self.mean = data.mean(0, keepdim=True)
        centred = data - self.mean
        values, vectors = torch.linalg.eigh(centred.t().mm(centred) / len(data))
        self.basis = vectors[:, :k]  # here
        return self

    def transform(self, data):
        return (data - self.mean) @ self.basis

print(Pca().fit(x, 2).transform(x).std(0))
""",
    "cov, and scores for a layer": """
values, vectors = torch.linalg.eigh(torch.cov(x.T))
z = (x - x.mean(0)) @ vectors[:, 0:3]  # here
print(nn.Linear(3, 2)(z).shape)
""",
    "turned before it is cut": """
x = (x - x.mean(0)) / x.std(0)
x = x + x[:, [1]] * 2
basis = torch.linalg.eigh(x.T @ x).eigenvectors.T[:2]  # here
print((x @ basis.T)[:3])
""",
    "corrcoef": """
x = x + x[:, [1]] * 2
s = (x - x.mean(0)) / x.std(0)
basis = torch.linalg.eigh(torch.corrcoef(x.T))[1][:, :2]  # here
print((basis.T @ s.T)[:, :3])
""",
    "rebuilt from two": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(torch.einsum("ni,nj->ij", c, c))
top = v[..., :2]  # here
again = c @ top @ top.T
print((c - again).square().mean(), w[:2].sum() / w.sum())
""",
}
RIGHT = {
    "the last ones": FOUND["rebuilt from two"].replace(":2]", "-2:]"),
    "turned round": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c)
v = v.flip(1)
print((c @ v[:, :2]).var(0))
w, v = torch.linalg.eigh(-c.T @ c)
print((c @ v[:, :2]).var(0))
""",
    "in descending order": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c)
order = w.argsort(descending=True)
v = v[:, order]
print((c @ v[:, :2]).var(0))
""",
    "a Laplacian": """
near = (torch.cdist(x, x) < 3).float()
w, v = torch.linalg.eigh(torch.diag(near.sum(1)) - near)
place = v[:, :2]
print(place.T @ x)
""",
    "a singular value decomposition": """
c = x - x.mean(0)
u, s, vh = torch.linalg.svd(c.T @ c)
print((c @ u[:, :2]).var(0))
""",
    "all columns, for whitening": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c / 59)
print(((c @ v) / w.sqrt()).var(0), c @ (v * w.rsqrt()) @ v.T)
""",
    "how far points are from a plane": """
c = x[:, :4] - x[:, :4].mean(0)
w, v = torch.linalg.eigh(c.T @ c)
normal = v[:, 0]
print((c @ normal).abs().max())
beside = c @ v[:, :2]
print(beside.pow(2).sum(1))
""",
    "residuals, each in its deviation": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c / 59)
minor = c @ v[:, :3] / w[:3].sqrt()
print(minor.norm(dim=1))
""",
    "taken out of the data": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c / 59)
noise = v[:, :2]
print((c - c @ noise @ noise.T).var(0), (c @ noise @ noise.T).norm(dim=1))
""",
    "only taken out of the data": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c / 59)
noise = v[:, :2]
clean = c - c @ noise @ noise.T
print(nn.Linear(6, 2)(clean).shape)
""",
    "a null space": """
a = torch.randn(3, 6)
w, v = torch.linalg.eigh(a.T @ a)
print(a @ v[:, :3])
""",
    "what changes slowly": """
c = (x - x.mean(0)).cumsum(0)
step = c[1:] - c[:-1]
w, v = torch.linalg.eigh(step.T @ step / 58)
print((c @ v[:, :2]).shape)
""",
    "both ends": """
c = x - x.mean(0)
w, v = torch.linalg.eigh(c.T @ c / 59)
filters = torch.cat([v[:, :2], v[:, -2:]], 1)
print((c @ filters).var(0), c @ v[:, :2])
""",
    "within the classes": """
means = torch.stack([x[y == c].mean(0) for c in range(2)])
inside = x - means[y]
w, v = torch.linalg.eigh(inside.T @ inside)
print((x @ v[:, :2]).shape)
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_the_smallest_components_are_found_where_they_are_taken(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text)) if each.span and each.rule == "PL824"]
    assert found == [("PL824", 1 + text[: text.index("# here")].count("\n"))]


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_resemble_them_draw_nothing(name: str) -> None:
    assert "PL824" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
