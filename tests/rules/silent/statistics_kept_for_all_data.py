"""Data scaled by kept statistics, by those of each batch or each example, and two experiments apart."""

import torch
from torch import nn
torch.manual_seed(0)
train, test = torch.randn(32, 3) * 2 + 1, torch.randn(8, 3) * 2 + 1
mean, std = train.mean(0), train.std(0)
train, test = (train - mean) / std, (test - mean) / std
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = (net(train) - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): print((net(test) - 1).square().mean())
# per batch, and per example
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def norm(x): return (x - x.mean(0)) / x.std(0)
def each(x): return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
for part in train.split(8):
    loss = (net(norm(part)) - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): print((net(norm(test)) - 1).square().mean())
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
a, b = each(train), each(test)
for _ in range(2):
    loss = (net(a) - 1).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
with torch.no_grad(): print((net(b) - 1).square().mean())
# two experiments
for data in (train, test):
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    z = norm(data)
    for _ in range(2):
        loss = (net(z) - 1).square().mean()
        opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad(): print(net(z).mean())
