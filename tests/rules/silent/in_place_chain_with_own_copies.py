"""In-place operations that keep what they need themselves."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(5, requires_grad=True)
h = x * 1.5
h.add_(1).mul_(2).sub_(0.5)
h.clamp_(-3, 3)
h.sin_()
h.sum().backward()
print(torch.isfinite(x.grad).all().item())
