"""Gradients of several small batches are added up, scaled, and used in one step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data, target = torch.randn(24, 4), torch.randn(24, 1)
pieces = 3

for epoch in range(2):
    optimizer.zero_grad()
    for number, (x, y) in enumerate(zip(data.split(8), target.split(8)), start=1):
        loss = F.mse_loss(model(x), y) / pieces
        loss.backward()
        if number % pieces == 0:
            optimizer.step()
            optimizer.zero_grad()
print(loss.item() >= 0)
