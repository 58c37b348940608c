# requires_grad_ on leaves, retain_grad on results, detach against data.
import torch

a = torch.ones(2)
a.requires_grad_()
h = a * 2
h.retain_grad()
h.sum().backward()
print(a.grad, h.grad, a.is_leaf, h.is_leaf, h.detach().requires_grad)
a.requires_grad_(False)
print((a * 2).requires_grad, h.data.requires_grad)
h.requires_grad_(False)
