# An error at backward: more than one element and no gradient given.
import torch

x = torch.ones(2, requires_grad=True)
(x * 2).backward()
