import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
batches = torch.randn(2, 12, 3)
for batch in batches:
    parts = batch.split(4)
    for part in parts:
        opt.zero_grad()  # PL602 cleared
        loss = model(part).square().mean() / len(parts)
        loss.backward()  # backward
    opt.step()  # step
print(model.weight.detach())
