# One parameter was left out of the forward pass.
import torch

scale = torch.tensor(2.0, requires_grad=True)
shift = torch.tensor(1.0, requires_grad=True)  # made
x = torch.linspace(0, 1, 4)
loss = (scale * x - 1).pow(2).sum()
d_scale, d_shift = torch.autograd.grad(loss, (scale, shift))  # PL508 read
print(d_scale, d_shift)
