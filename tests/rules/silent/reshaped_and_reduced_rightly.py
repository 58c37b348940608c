"""Axes joined and split by view, exchanged by transpose; reductions over the first axis, or with keepdim; a column layout with its bias."""

import torch

torch.manual_seed(0)
x = torch.randn(4, 3, 6)
w = torch.randn(6, 6, requires_grad=True)
heads = (x @ w).view(4, 3, 2, 3).transpose(1, 2)
merged = heads.transpose(1, 2).reshape(4, 3, 6)
table = merged.reshape(12, 6)[:6]
table = (table - table.mean(0)) / table.std(dim=0)
table = table / table.norm(dim=1, keepdim=True)
top = table - table.max(dim=1).values[:, None]
kernel = table @ table.t()
kernel = kernel - kernel.mean(0) - kernel.mean(0)[:, None]
columns = torch.randn(5, 6, requires_grad=True) @ x.reshape(12, 6).t() + torch.zeros(5, 1, requires_grad=True)
grid = torch.arange(12.0).view(3, 4)
print(grid, grid.view(4, 3), grid.reshape(2, 6))
loss = top.exp().mean() + kernel.square().mean() + columns.square().mean()
loss.backward()
