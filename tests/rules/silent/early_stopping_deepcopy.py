"""The best weights are kept as a copy and put back at the end."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data, target = torch.randn(20, 3), torch.randn(20, 1)
held_out, held_target = torch.randn(10, 3), torch.randn(10, 1)
best, best_loss = None, float("inf")

for epoch in range(4):
    optimizer.zero_grad()
    F.mse_loss(model(data), target).backward()
    optimizer.step()
    with torch.no_grad():
        loss = F.mse_loss(model(held_out), held_target).item()
    if loss < best_loss:
        best, best_loss = copy.deepcopy(model.state_dict()), loss
model.load_state_dict(best)
print(best_loss < float("inf"))
