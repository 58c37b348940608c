# Silent: .data changes a saved value and no counter tells; the gradient is wrong.
import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
h = x.exp()
y = h.sum()
h.data.mul_(0)
y.backward()
print(x.grad)
