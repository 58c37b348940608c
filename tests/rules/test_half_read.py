"""Decompositions for symmetric matrices that were given others."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
half = torch.rand(90, 90).triu(1)
"""
EMPTY = {
    "a large one, in a function": HEAD
    + """
def spectrum(matrix):
    return torch.linalg.eigvalsh(matrix)  # PL849
print(spectrum(torch.diag(half.sum(0) + half.sum(1)) - half))
""",
    "the upper triangle is read": """
w = torch.rand(3, 3).tril(-1)
values, vectors = torch.linalg.eigh(w + torch.eye(3), UPLO="U")  # PL849
print(values)
""",
    "a Cholesky factor": HEAD
    + """
print(torch.linalg.cholesky(half / 90 + 2 * torch.eye(90)))  # PL849
""",
    "a batch": """
w = torch.rand(4, 3, 3).triu()
print(torch.linalg.eigh(w)[0])  # PL849
""",
}
OTHERS = {
    "a random walk": """
w = torch.rand(5, 5)
w = w + w.T
print(torch.linalg.eigh(w / w.sum(1, keepdim=True))[0])  # PL849
""",
    "complex, but not conjugate": """
w = torch.randn(3, 3, dtype=torch.complex64)
print(torch.linalg.eigvalsh(w + w.T))  # PL849
""",
}
RIGHT = {
    "symmetric, up to rounding": """
x = torch.randn(40, 6)
c = x.T @ x / 40
c.requires_grad_()
torch.linalg.eigh(c)[0].sum().backward()
print(torch.linalg.cholesky(c + 1e-5 * torch.randn(6, 6)), torch.linalg.cholesky(c.detach(), upper=True))
""",
    "only the triangle that is read": """
x = torch.randn(40, 6)
c = x.T @ x / 40
print(torch.linalg.eigh(c.tril())[0], torch.linalg.cholesky(c.tril()), torch.linalg.eigvalsh(c.triu(), UPLO="U"))
""",
    "diagonal, one number, conjugate": """
w = torch.randn(3, 3, dtype=torch.complex64)
print(torch.linalg.eigvalsh(w + w.mH), torch.linalg.eigh(torch.diag(torch.rand(3))))
print(torch.linalg.eigvalsh(torch.zeros(2, 0, 0)), torch.linalg.eigvalsh(torch.ones(1, 1)))
""",
}


def test_a_triangle_that_is_not_read_is_found_and_read(shop: Workshop) -> None:
    for title, text in EMPTY.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_matrices_that_are_not_symmetric_are_found(shop: Workshop) -> None:
    assert_found(shop, together(OTHERS))


def test_symmetric_matrices_and_half_ones_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
