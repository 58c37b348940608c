import torch
from torch import nn
from torch.nn.utils import clip_grad_value_

torch.manual_seed(0)
model = nn.Linear(40, 120)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(16, 40)).pow(2).sum().backward()  # backward
    optimizer.step()  # step
    clip_grad_value_(model.parameters(), 0.1)  # PL603 changed
print(model.bias.grad.abs().max())
