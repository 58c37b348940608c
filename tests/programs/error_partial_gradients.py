# An error in backward after other leaves were filled already.
import torch

a = torch.ones(2, requires_grad=True)
b = torch.ones(2, requires_grad=True)
h = b.exp()
out = (a * 2).sum() + h.sum()
h.add_(1)
try:
    out.backward()
except RuntimeError as error:
    print(type(error).__name__, a.grad, b.grad)
