"""Means of groups, one of which is empty: the quotient is masked, its gradient is not."""

import torch


def group_mean(total, count):
    mean = total / count  # PL804 made
    return torch.where(count > 0, mean, torch.zeros_like(mean))  # used


weights = torch.ones(3, requires_grad=True)
count = torch.tensor([2.0, 0.0, 1.0])
sums = weights * torch.tensor([3.0, 0.0, 5.0])
loss = group_mean(sums, count).square().sum()
loss.backward()  # backward
print(weights.grad)
