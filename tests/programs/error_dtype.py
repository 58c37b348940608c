# Errors of types: a matrix product of two dtypes, caught; then grad for integers.
import torch

try:
    torch.ones(2, 2) @ torch.ones(2, 2, dtype=torch.float64)
except RuntimeError as error:
    print(error)
torch.tensor([1, 2], requires_grad=True)
