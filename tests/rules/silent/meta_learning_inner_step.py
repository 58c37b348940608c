"""An inner step out of place, so that the outer gradient flows through it."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
w = torch.randn(3, 1, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.01)
for _ in range(2):
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    inner = F.mse_loss(x @ w, y)
    (gradient,) = torch.autograd.grad(inner, w, create_graph=True)
    adapted = w - 0.1 * gradient
    outer = F.mse_loss(x @ adapted, y)
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
print(w.grad.shape)
