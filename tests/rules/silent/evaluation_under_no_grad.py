"""An evaluation loop between training epochs; metrics are kept as numbers."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.Adam(model.parameters())
data, labels = torch.randn(30, 4), torch.randint(0, 3, (30,))
history = []

for epoch in range(2):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), labels)
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(data)
        scores -= scores.max(dim=1, keepdim=True).values
        accuracy = (scores.argmax(dim=1) == labels).float().mean().item()
    history.append((loss.item(), accuracy))
print(len(history))
