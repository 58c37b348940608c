"""Selections and reshaped tensors that are written and then used, or put back, or that look at the same memory."""

import torch

x = torch.arange(12.0).reshape(3, 4)
rows = x[[0, 2]]
rows.mul_(2)
print(rows)
chosen = x[x > 5]
chosen.clamp_(max=7)
x[x > 5] = chosen
x[[0, 1]] += 1
x[1:].zero_()
x.reshape(-1)[0] = 7
x.view(-1).add_(1)
flat = x.t().reshape(-1)
flat[0] = 3
total = flat.sum()
y = x[torch.tensor([0, 1])].add_(1)
z = x.t().flatten().clone().mul_(2)
x.index_add_(0, torch.tensor([0]), torch.ones(1, 4))
x[x > 3] = x[x > 3].sub_(1)


def normalised(t, index):
    part = t[index]
    part.sub_(part.mean())
    return part


print(normalised(x, [0]).sum(), total, x.sum(), y.sum(), z.sum())
