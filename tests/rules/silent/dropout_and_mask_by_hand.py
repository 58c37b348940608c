"""A random mask is made, scaled in place and used; nothing saved it before."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
x = torch.randn(6, 4, requires_grad=True)
mask = torch.empty(6, 4).bernoulli_(0.8)
mask.div_(0.8)
loss = (torch.tanh(x) * mask).sum()
loss.backward()
print(x.grad.shape)
