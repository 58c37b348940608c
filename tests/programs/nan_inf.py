# NaN and infinities in values and gradients.
import torch

x = torch.tensor([0.0, -1.0, float("inf"), float("nan"), 1e30], requires_grad=True)
y = torch.log(x) + torch.sqrt(x) + 1 / x + x * x
y.sum().backward()
print(y.detach(), x.grad, torch.isnan(y).sum(), (y != y).tolist())
