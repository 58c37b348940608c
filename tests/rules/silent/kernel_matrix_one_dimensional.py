"""Every number minus every number, in one line: a kernel matrix."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-1, 1, 6)
scale = torch.tensor(0.5, requires_grad=True)
noise = torch.tensor(0.1, requires_grad=True)
y = torch.sin(3 * x)
kernel = torch.exp(-((x.unsqueeze(1) - x.unsqueeze(0)) ** 2) / (2 * scale**2)) + noise**2 * torch.eye(6)
factor = torch.linalg.cholesky(kernel)
loss = (y * torch.cholesky_solve(y.unsqueeze(1), factor).squeeze(1)).sum() / 2 + factor.diagonal().log().sum()
loss.backward()
print(scale.grad is not None)
