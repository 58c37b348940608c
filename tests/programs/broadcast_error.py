# An error at the addition: 3 and 2 do not broadcast.
import torch

a = torch.ones(3, requires_grad=True)
print("before")
a + torch.ones(2)
