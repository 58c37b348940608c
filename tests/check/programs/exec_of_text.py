import torch

code = "h = x.exp()\nh.mul_(2)\n"
x = torch.tensor([1.0, 2.0], requires_grad=True)
exec(code)  # PL101 saved changed
h.sum().backward()  # backward
