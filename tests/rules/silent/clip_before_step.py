"""Gradients are clipped after backward and before the step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.LSTM(3, 5, batch_first=True)
head = nn.Linear(5, 1)
parameters = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)

for step in range(2):
    optimizer.zero_grad()
    hidden, _ = model(torch.randn(4, 6, 3))
    loss = head(hidden[:, -1]).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
print(loss.item() > 0)
