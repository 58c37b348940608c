# Silent: the array of detach().numpy() is the result's own memory.
import torch

x = torch.tensor([0.0, 1.0], requires_grad=True)
s = torch.sigmoid(x)
array = s.detach().numpy()
array[:] = 0.5
s.sum().backward()
print(x.grad, s.detach())
