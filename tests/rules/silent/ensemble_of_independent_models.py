"""Several models with optimizers of their own, each with its own forward, backward and step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
models = [nn.Linear(3, 1) for _ in range(3)]
optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
x, y = torch.randn(8, 3), torch.randn(8, 1)
for model, optimizer in zip(models, optimizers):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    mean = torch.stack([m(x) for m in models]).mean(dim=0)
print(mean.shape)
