# In-place through views rewrites history: CopySlices, regenerated grad_fn, and the right gradient.
import torch

x = torch.ones(4, requires_grad=True)
h = x * 2
v = h[:2]
w = h[2:]
v.mul_(3)
w.add_(1)
print(h.grad_fn.name(), v.grad_fn.name(), h._version, v._version)
h[0] = 0.0
h.sum().backward()
print(x.grad)
b = torch.zeros(2)
b[0] = x[0] * 5
b.sum().backward()
print(x.grad, b.is_leaf)
