"""MAML: the inner step's gradients are made without create_graph and the fast weights detached by .data."""
import torch
from torch import nn
torch.manual_seed(0)
w = torch.randn(2, 1, requires_grad=True)
outer = torch.optim.SGD([w], lr=0.01)
def task():
    k = torch.randn(2, 1)
    x = torch.randn(10, 2)
    return x, x @ k
for _ in range(2):
    meta = 0.0
    for _ in range(2):
        x, y = task()
        inner = ((x @ w - y) ** 2).mean()
        (g,) = torch.autograd.grad(inner, w)
        fast = torch.tensor(w - 0.1 * g, requires_grad=True)  # PL504 cut
        x2, y2 = task()
        meta = meta + ((x2 @ fast - y2) ** 2).mean()
    outer.zero_grad()
    meta.backward()  # backward
    outer.step()
