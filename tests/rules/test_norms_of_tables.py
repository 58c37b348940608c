"""PL472: tables that are divided by one norm where each row should have length 1; and such norms that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.randn(30, 8) * torch.rand(30, 1)
y = torch.randn(12, 8) * torch.rand(12, 1)
"""
WRONG = {
    "two tables in a function, argmax": HEAD
    + """
def unit(v):
    return v / v.norm()  # PL472
print((unit(y) @ unit(x).T).argmax(1))
""",
    "a query that is one vector": HEAD
    + """
q = y[0] / y[0].norm()
table = x / torch.norm(x)  # PL472
print((table @ q).topk(3).indices)
""",
    "a contrastive loss": HEAD
    + """
class Loss(torch.nn.Module):
    def forward(self, a, b):
        a = a / (torch.linalg.norm(a) + 1e-8)  # PL472
        b = b / torch.linalg.norm(b).clamp_min(1e-8)  # PL472
        logits = torch.einsum("id,jd->ij", a, b) / 0.1
        return F.cross_entropy(logits, torch.arange(len(a)))
w = torch.nn.Linear(8, 4)
loss = Loss()(w(y), w(y + 0.1 * torch.randn(12, 8)))
loss.backward()
print(loss, w.weight.grad.norm())
""",
    "a root of squares, in place, with a mask": HEAD
    + """
x /= x.square().sum().sqrt()  # PL472
scores = F.linear(x, x)
scores.fill_diagonal_(-1)
print(scores.sort(dim=1, descending=True).indices[:, 0])
""",
    "matrices of a batch": HEAD
    + """
b = x.view(3, 10, 8)
b = b / b.norm(2)  # PL472
print((b @ b.transpose(1, 2) > 0.5).sum())
""",
}
RIGHT = {
    "each row": HEAD
    + """
def unit(v):
    return v / v.norm(dim=-1, keepdim=True)
print((unit(y) @ unit(x).T).argmax(1), (unit(y[0]) @ unit(x).T).topk(3))
""",
    "one query; a table of rows that have their own length": HEAD
    + """
q = y[:1] / y[:1].norm()
print((q @ F.normalize(x, dim=1).T).argmax(1))
""",
    "the orthogonal factor of a matrix": HEAD
    + """
m = y / y.norm()
for _ in range(5):
    a = m @ m.T
    m = 3.4 * m - 4.8 * a @ m + 2.0 * a @ a @ m
print((m @ m.T - torch.eye(12)).abs().max())
""",
    "gradients, and weights": HEAD
    + """
w = torch.nn.Parameter(torch.randn(5, 8))
loss = F.cross_entropy(F.linear(F.normalize(x, dim=1), w / w.norm()), torch.arange(30) % 5)
loss.backward()
w.grad /= w.grad.norm()
print(loss, w.grad)
""",
    "one scale for the side that is not chosen among": HEAD
    + """
print((y / y.norm() @ F.normalize(x, dim=1).T).argmax(1))
""",
    "alignment of two kernels": HEAD
    + """
k, l = x @ x.T, x.tanh() @ x.tanh().T
print(((k / k.norm()) * (l / l.norm())).sum(), ((k / k.norm()) @ (l / l.norm()).T).trace())
""",
    "attention without a softmax": HEAD
    + """
q, k = x / torch.norm(x, p=2), x.flip(1) / torch.norm(x.flip(1), p=2)
a = torch.einsum("nd,ld->nl", q, k) + 1
print(a / a.sum(1, keepdim=True) @ x)
""",
    "a power iteration": HEAD
    + """
m = torch.rand(12, 12)
s = torch.rand(12, 12)
for _ in range(3):
    s = m @ s @ m.T
    s = s / s.norm()
print(s.argmax(1))
""",
    "divided after the products": HEAD
    + """
print((x @ x.T).argmax(1))
x /= x.norm()
print(x.norm())
""",
    "rows of one length": HEAD
    + """
z = F.normalize(x, dim=1)
z = z / z.norm()
print((z @ z.T).argmin(1))
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_one_norm_for_all_rows_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_norms_of_rows_and_of_whole_matrices_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
