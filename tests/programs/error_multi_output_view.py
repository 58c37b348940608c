# An error at the write: one output of unbind is edited in place.
import torch

x = torch.ones(3, 2, requires_grad=True) * 2
first, second, third = x
first.add_(1)
