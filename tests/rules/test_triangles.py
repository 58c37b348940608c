"""PL845: solves that read the triangle of zeros; and matrices of which the filled triangle is read."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

MATRIX = """
C = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
b = torch.ones(3, 1)
L = torch.linalg.cholesky(C)
"""
WRONG = {
    "a factor too large for its numbers to be known, transposed, in a method": """
class Process:
    def __init__(self, times):
        gap = (times[:, None] - times).square()
        self.root = torch.linalg.cholesky(torch.exp(-gap) + 0.1 * torch.eye(len(times)))
    def weights(self, y):
        half = torch.linalg.solve_triangular(self.root, y[:, None], upper=False)
        return torch.linalg.solve_triangular(self.root.T, half, upper=False)  # PL845
print(Process(torch.linspace(0, 3, 40)).weights(torch.ones(40)).sum())
""",
    "the factor itself, said to be upper": MATRIX
    + """
print(torch.linalg.solve_triangular(L, B=b, upper=True))  # PL845
""",
    "an upper factor, from the right": MATRIX
    + """
U = torch.linalg.cholesky(C, upper=True)
print(torch.linalg.solve_triangular(U, b.T, upper=False, left=False))  # PL845
""",
    "a solve for a factored matrix": MATRIX
    + """
print(torch.cholesky_solve(b, L.mT))  # PL845
print(b.cholesky_solve(L, upper=True))  # PL845
""",
    "an inverse": MATRIX
    + """
print(torch.cholesky_inverse(L, True))  # PL845
print(L.mT.clone().cholesky_inverse())  # PL845
""",
    "by the old function, upper by default": MATRIX
    + """
x, _ = torch.triangular_solve(b, L)  # PL845
y, _ = b.triangular_solve(L.T, upper=False)  # PL845
print(x, y)
""",
    "the second factor of QR": MATRIX
    + """
Q, R = torch.linalg.qr(C)
print(torch.linalg.solve_triangular(R, Q.T @ b, upper=False))  # PL845
""",
    "known numbers": """
A = torch.tensor([[1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [0.5, 0.0, 3.0]])
print(torch.linalg.solve_triangular(A, torch.ones(3, 1), upper=True))  # PL845
""",
    "a learned triangle with its diagonal, in a batch": """
raw, logs = nn.Parameter(0.1 * torch.randn(2, 20, 20)), nn.Parameter(torch.zeros(2, 20))
opt = SGD([raw, logs], lr=0.01)
y = torch.randn(2, 20, 1)
for _ in range(2):
    root = raw.tril(-1) + torch.diag_embed(logs.exp())
    z = torch.linalg.solve_triangular(root.transpose(-2, -1), y, upper=False)  # PL845
    update(opt, z.square().mean() + logs.sum())
""",
}
SHARED = {
    "one line for both triangles": MATRIX
    + """
def solve(matrix, right):
    return torch.linalg.solve_triangular(matrix, right, upper=False)  # PL845
print(solve(L.T, solve(L, b)))
""",
}
RIGHT = {
    "each triangle as it is": MATRIX
    + """
half = torch.linalg.solve_triangular(L, b, upper=False)
print(torch.linalg.solve_triangular(L.T, half, upper=True), torch.cholesky_solve(b, L), torch.cholesky_inverse(L))
print(torch.cholesky_solve(b, L.mT, upper=True), torch.cholesky_inverse(L.mT.contiguous(), True))
print(torch.triangular_solve(b, L, upper=False), torch.triangular_solve(b, L.T), b.triangular_solve(L, False, True))
print(torch.linalg.solve_triangular(L.T.T, b, upper=False), torch.linalg.solve_triangular(L.mH.mT, b, upper=False))
""",
    "one line for both, with its triangle": MATRIX
    + """
def solve(matrix, right, upper):
    return torch.linalg.solve_triangular(matrix, right, upper=upper)
print(solve(L.T, solve(L, b, False), True))
""",
    "a diagonal matrix": """
D = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
L = torch.linalg.cholesky(D)
print(torch.linalg.solve_triangular(D, torch.ones(3, 1), upper=True))
print(torch.linalg.solve_triangular(L, torch.ones(3, 1), upper=True), torch.cholesky_solve(torch.ones(3, 1), L.T))
""",
    "one triangle of a full matrix": MATRIX
    + """
print(torch.linalg.solve_triangular(C, b, upper=True), torch.linalg.solve_triangular(C, b, upper=False))
""",
    "the two factors of LU, in one table and apart": MATRIX
    + """
LU, pivots = torch.linalg.lu_factor(C)
half = torch.linalg.solve_triangular(LU, b, upper=False, unitriangular=True)
print(torch.linalg.solve_triangular(LU, half, upper=True))
P, lower, upper = torch.linalg.lu(C)
print(torch.linalg.solve_triangular(upper, torch.linalg.solve_triangular(lower, P.T @ b, upper=False), upper=True))
""",
    "a triangle that is filled in later rounds": """
A = torch.eye(3)
A[1, 0] = 1.0
for k in range(3):
    A[0, k] += 1.0
    print(torch.linalg.solve_triangular(A, torch.ones(3, 1), upper=True))
""",
    "a large triangle that other numbers were written into": """
A = torch.randn(30, 30).tril() + 9 * torch.eye(30)
A += torch.randn(30, 30).triu(1)
print(torch.linalg.solve_triangular(A, torch.ones(30, 1), upper=True))
""",
    "the sum of two triangles": """
raw = torch.randn(30, 30)
A = raw.tril(-1) + raw.tril(-1).T + 9 * torch.eye(30)
print(torch.linalg.solve_triangular(A, torch.ones(30, 1), upper=True))
""",
    "distributions that solve for themselves": MATRIX
    + """
far = MultivariateNormal(torch.zeros(3), precision_matrix=C)
print(far.log_prob(b.T), MultivariateNormal(torch.zeros(3), scale_tril=L).log_prob(b.T), far.covariance_matrix)
""",
    "a triangle with a diagonal above": """
A = torch.randn(30, 30).tril(2) + 9 * torch.eye(30)
print(torch.linalg.solve_triangular(A, torch.ones(30, 1), upper=True))
""",
}


def test_they_are_found_and_the_fix_reads_the_other_triangle(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL845",), repaired=True)


def test_a_line_that_both_triangles_pass_is_found_without_a_fix(shop: Workshop) -> None:
    assert_found(shop, together(SHARED), only=("PL845",))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
