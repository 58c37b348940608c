import torch
x = torch.ones(4, 3)
w = torch.ones(3, 1, requires_grad=True)
b = torch.zeros(4, requires_grad=True)
y = x @ w + b  # PL402 used
y.pow(2).mean().backward()
