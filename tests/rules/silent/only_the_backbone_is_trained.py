"""The optimizer is for the backbone alone; the new head gets gradients and is left as it is, on purpose."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleDict({"backbone": nn.Linear(3, 4), "head": nn.Linear(4, 2)})
backbone = model["backbone"]
opt = torch.optim.SGD(backbone.parameters(), lr=0.1)
model["head"] = nn.Linear(4, 1)
x, y = torch.randn(6, 3), torch.randn(6, 1)
for _ in range(2):
    model.zero_grad()
    (model["head"](backbone(x)) - y).square().mean().backward()
    opt.step()
print(x.shape)
