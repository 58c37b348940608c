"""A moving average of the parameters, kept beside the model and updated in place under no_grad."""
import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, target = torch.randn(16, 3), torch.randn(16, 1)

for step in range(4):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(data), target)
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for kept, current in zip(average.parameters(), model.parameters()):
            kept.mul_(0.9).add_(current, alpha=0.1)

with torch.no_grad():
    print(nn.functional.mse_loss(average(data), target).item() > 0)
