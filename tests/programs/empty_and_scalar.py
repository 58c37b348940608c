# Zero-element and 0-dim tensors.
import torch

e = torch.zeros(0, 3, requires_grad=True)
s = torch.tensor(2.0, requires_grad=True)
print(e.sum(), e.shape, (e * 2).mean(), e.t().shape, torch.cat([e, torch.ones(1, 3)]).shape)
(e.sum() + s**2).backward()
print(e.grad, s.grad, s.item(), s.view(1).shape, s[None].shape, float(s), s.expand(2, 0).shape)
torch.zeros(0).max()
