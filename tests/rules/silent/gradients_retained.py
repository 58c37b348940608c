"""`retain_grad()` after the write in place, before a change that adds a number, or where the gradient is taken by a hook."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(6, 4)
w = torch.randn(4, 5, requires_grad=True)
h = x @ w
h = F.relu(h, inplace=True)
h.retain_grad()
h.square().sum().backward()
print(h.grad.norm())
shifted = x @ w
shifted.retain_grad()
shifted += 1
shifted.square().sum().backward()
print(shifted.grad.norm())
seen = []
hooked = x @ w
hooked.register_hook(lambda g: seen.append(g.norm().item()))
hooked.mul_(3).square().sum().backward()
print(seen)
rebound = x @ w
rebound.retain_grad()
first = rebound
rebound = rebound * 2
rebound.retain_grad()
rebound.square().sum().backward()
print(first.grad.norm(), rebound.grad.norm())
unread = x @ w
unread.retain_grad()
unread.tanh_()
unread.sum().backward()
table = torch.nn.Embedding(10, 4)
vectors = table(torch.tensor([1, 4, 7]))
vectors.retain_grad()
vectors[0] = 0
torch.tanh(vectors.sum(0)).sum().backward()
print((vectors.grad * vectors).sum(1))
masked = x @ w
masked.retain_grad()
masked *= torch.tensor([1.0, 0.0, 1.0, 0.0, 2.0])
masked.square().sum().backward()
print((masked.grad * masked).sum(1))
same = x @ w
same.retain_grad()
same = same.sigmoid_()
same.sum().backward()
print(same.grad)
