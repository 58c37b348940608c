# An error in backward: the square needs h as it was, += changed it.
import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
h = x + 1
y = h**2
h += 1
y.sum().backward()
