"""The best state is written to a file (here in memory) at once, which is a copy, and read back at the end."""

import io

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
x, y = torch.randn(40, 4), torch.randn(40, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
best, file = float("inf"), None
for _ in range(12):
    loss = (net(x) - y).square().mean()
    if loss.item() < best:
        best, file = loss.item(), io.BytesIO()
        torch.save(net.state_dict(), file)
    opt.zero_grad()
    loss.backward()
    opt.step()
file.seek(0)
net.load_state_dict(torch.load(file))
print(best, (net(x) - y).square().mean().item())
