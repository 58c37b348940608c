# The in-place twins on a result: each raises the version by one, none needs the old value.
import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 1
h += 1
h -= 0.5
h *= 2
h.add_(3).sub_(1).div_(2)
h.neg_()
print(h._version, h.grad_fn.name())
h.sum().backward()
print(x.grad)
