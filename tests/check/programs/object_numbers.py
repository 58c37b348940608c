import torch
a = torch.zeros(3)
b = torch.ones(3)
print(id(a.data) == id(b.data))  # PL708
c = a.detach()
print(a.data is c.data, id(a) == id(a))  # PL708
