# In-place operations whose other side is stretched to fit: allowed, because the target keeps its shape.
import torch

torch.manual_seed(0)
table = torch.zeros(4, 3)
table += torch.arange(3.0)
table *= torch.arange(4.0).unsqueeze(1)
table.sub_(table.mean(dim=1, keepdim=True)).div_(table.std() + 1)
row = torch.zeros(1, 3)
row += torch.ones(3)
w = torch.randn(3, requires_grad=True)
total = torch.zeros(3)
for part in table.split(2):
    total = total + (part * w).sum(dim=0)
total -= row[0]
total.sum().backward()
print(table, w.grad)
