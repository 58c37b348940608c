# A tensor of 10**9 elements on the meta device: shapes without memory.
import torch

x = torch.empty(10**9, device="meta", requires_grad=True)
y = (x * 2 + 1).view(1000, 1000, 1000)
z = y.sum(0)
print(z.shape, z.device, y.stride(), y[0].shape)
z.sum().backward()
print(x.grad.shape)
