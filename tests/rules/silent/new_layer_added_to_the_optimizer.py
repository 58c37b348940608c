"""A layer that is made later is given to the optimizer as a group of its own."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model[1] = nn.Linear(4, 1)
opt.add_param_group({"params": model[1].parameters()})
x, y = torch.randn(6, 3), torch.randn(6, 1)
for _ in range(2):
    opt.zero_grad()
    (model(x) - y).square().mean().backward()
    opt.step()
print(x.shape)
