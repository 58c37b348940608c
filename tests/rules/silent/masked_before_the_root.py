"""Roots, logarithms and quotients at the edge, each kept in range, or their gradients looked at before they are used."""

import torch

x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
safe = torch.where(x > 0, x, torch.ones_like(x))
root = torch.where(x > 0, safe.sqrt(), torch.zeros_like(x))
entropy = -(x * torch.log(x + 1e-8)).sum()
scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True, False, False], [False, False, True]]), float("-inf"))
attention = torch.softmax(scores * x.sum() / x.sum(), -1).sum()
length = x[:1].norm()
(root.sum() + entropy + attention + length + (x / (x.sum() + 1e-6)).sum()).backward()
print(x.grad)
w = torch.tensor([0.0, 2.0], requires_grad=True)
loss = w.sqrt().sum()
loss.backward()
if not torch.isfinite(w.grad).all():
    w.grad = torch.nan_to_num(w.grad, posinf=0.0)
print(w.grad)
