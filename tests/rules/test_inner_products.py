"""PL480: products of complex vectors without the conjugate beside a Hermitian matrix; and products that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
a = torch.randn(5, 5, dtype=torch.complex128)
h = a @ a.mH + torch.eye(5)
s = a + a.mT + 8 * torch.eye(5)
b = torch.randn(5, dtype=torch.complex128)
"""
CG = """
def solve(matrix, b):
    x = torch.zeros_like(b)
    r = b - matrix @ x
    p = r.clone()
    rs = FIRST
    for _ in range(5):
        ap = matrix @ p
        alpha = rs / FORM
        x, r = x + alpha * p, r - alpha * ap
        new = FIRST
        p = r + (new / rs) * p
        rs = new
    return x

print(solve(h, b))
"""
WRONG = {
    "dot": CG.replace("FIRST", "torch.dot(r, r)").replace("FORM", "torch.dot(p, ap)  # PL480"),
    "the operator": CG.replace("FIRST", "r @ r").replace("FORM", "(p @ ap)  # PL480"),
    "methods": CG.replace("FIRST", "r.dot(r)").replace("FORM", "ap.dot(p)  # PL480"),
    "inner": CG.replace("FIRST", "torch.inner(r, r)").replace("FORM", "torch.inner(p, ap)  # PL480"),
    "a sum": CG.replace("FIRST", "(r * r).sum()").replace("FORM", "torch.sum(p * ap)  # PL480"),
    "a sum of squares": CG.replace("FIRST", "(r ** 2).sum()").replace("FORM", "torch.sum(p * ap)  # PL480"),
    "a helper": "def times(x, y):\n    return torch.dot(x, y)  # PL480\n"
    + CG.replace("FIRST", "times(r, r)").replace("FORM", "times(p, ap)"),
    "an energy": "print(torch.dot(b, h.mv(b)).real)  # PL480",
    "from the left": "print((b @ h @ b).abs())  # PL480",
    "columns": "x = b[:, None]\nprint((x.T @ (h @ x)).real)  # PL480",
    "a quotient": "y = h @ b\nprint((b @ y) / torch.vdot(b, b))  # PL480",
    "normalized": """x = b
for _ in range(9):
    x = h @ x
    x = x / torch.sqrt((x * x).sum())  # PL480
print(torch.vdot(x, h @ x))""",
}
RIGHT = {
    "vdot": CG.replace("FIRST", "torch.vdot(r, r)").replace("FORM", "torch.vdot(p, ap)"),
    "conjugated": CG.replace("FIRST", "(r.conj() * r).sum()").replace("FORM", "(p.conj() @ ap)"),
    "the other one conjugated": "print((b @ (h @ b).conj()).real)",
    "adjoint": "x = b[:, None]\nprint((x.mH @ (h @ x)).real)",
    "equal to its transpose": CG.replace("solve(h, b)", "solve(s, b)")
    .replace("FIRST", "torch.dot(r, r)")
    .replace("FORM", "torch.dot(p, ap)"),
    "a real matrix": CG.replace("solve(h, b)", "solve(h.real.to(b.dtype), b)")
    .replace("FIRST", "torch.dot(r, r)")
    .replace("FORM", "torch.dot(p, ap)"),
    "a diagonal one": "d = torch.diag(h.diagonal())\nprint(torch.dot(b, d @ b).abs())",
    "equal but for the sign": "print(torch.dot(b, (1j * h.imag) @ b).abs())",
    "another matrix": "print(torch.dot(b, a @ b).abs())",
    "two vectors": "c = torch.randn(5, dtype=torch.complex128)\nprint(torch.dot(c, h @ b).abs())",
    "real numbers": "x = b.real.to(b.dtype)\nprint(torch.dot(x, h @ x).real)",
    "a second vector that begins as the first": """r = b
shadow, p, q = r, r, r
for _ in range(3):
    ap, aq = h @ p, h.mT @ q
    alpha = torch.dot(shadow, r) / torch.dot(q, ap)
    new, other = r - alpha * ap, shadow - alpha * aq
    beta = torch.dot(other, new) / torch.dot(shadow, r)
    r, shadow = new, other
    p, q = r + beta * p, shadow + beta * q
print(r.norm())""",
    "a length without a matrix": "x = b / torch.sqrt((b * b).sum())\nprint(x, h @ x)",
    "changed in between": "x = b.clone()\ny = h @ x\nx.conj_physical_()\nprint((x @ y).real)",
    "a norm": "y = h @ b\ny = y / y.norm()\nprint((y.abs() ** 2).sum())",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_product_without_the_conjugate_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_other_products_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case])
