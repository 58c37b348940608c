# An error in backward: the write goes through a view of the saved tensor.
import torch

x = torch.arange(4.0, requires_grad=True)
weights = torch.exp(x)
out = weights * 2
row = weights.view(2, 2)[0]
row[0] = 10.0
out.sum().backward()
