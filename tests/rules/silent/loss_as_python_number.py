"""The running loss is summed as a number, so no graph is kept."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, seen = 0.0, 0
for x in torch.randn(4, 5, 3):
    loss = model(x).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item() * len(x)
    seen += len(x)
print(total / seen > 0)
