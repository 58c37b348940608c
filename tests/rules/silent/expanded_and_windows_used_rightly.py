"""Expanded tensors and windows are read, cleared as a whole, or written as copies; parts of one tensor that do not overlap are swapped."""

import torch

row = torch.tensor([1.0, 2.0, 3.0])
table = row.expand(2, 3).clone()
table[0] = 0.0
scratch = torch.zeros(1, 3).expand(4, 3)
scratch.zero_()
windows = torch.arange(6.0).unfold(0, 2, 2)
windows[0] *= 10
moving = torch.arange(6.0).unfold(0, 3, 1).mean(dim=1)
a = torch.arange(6.0)
a[:3] += a[3:]
a[1:] = a[:-1].clone()
grid = torch.arange(6.0).reshape(2, 3).t()
grid[0] = -1.0
grid += 1
diagonal = torch.zeros(3, 3)
diagonal.as_strided((3,), (4,)).fill_(1.0)
w = torch.ones(3, requires_grad=True)
loss = (table @ w).sum() + (w * row.expand(2, 3) * diagonal[:2]).sum() + (windows.sum() + moving.sum() + a.sum() + scratch.sum()) * w.sum()
loss = loss + (grid.t() @ w).sum()
loss.backward()
