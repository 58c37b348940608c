"""A fused optimizer steps after backward: nothing saved is used again."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.Sigmoid(), nn.Linear(5, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
for _ in range(3):
    loss = model(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item() >= 0)
