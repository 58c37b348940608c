import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 3)
x, y = torch.randn(4, 3), torch.randn(4, 3)
fit = (net(x) - y).square().mean()
with torch.no_grad():
    decay = sum(p.square().sum() for p in net.parameters())  # PL504 cut
(fit + 1e-2 * decay).backward()  # backward
print(net.weight.grad)
