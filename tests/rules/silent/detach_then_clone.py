"""A snapshot that may be written, because it has memory of its own."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(4, requires_grad=True)
h = torch.sigmoid(x)
snapshot = h.detach().clone()
snapshot.clamp_(max=0.5)
snapshot[0] = 0.0
loss = (h * snapshot).sum()
loss.backward()
print(x.grad.shape)
