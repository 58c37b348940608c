import torch

a = torch.zeros(3)  # made
b = torch.ones(3)  # made
same = id(a.data) == id(b.data)  # PL708
w = torch.ones(3, requires_grad=True)
(w * (a if same else b)).sum().backward()
print(id(a) == id(a), same)
