"""A line search goes back to the parameters that it kept: `dict` copies the names and not the parameters."""

import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
x, y = torch.randn(16, 3), torch.randn(16, 1)
for step in range(2):
    loss = (net(x) - y).square().mean()
    net.zero_grad()
    loss.backward()
    before, rate = dict(net.named_parameters()), 4.0  # PL703 kept
    with torch.no_grad():
        while rate > 0.1:
            for p in net.parameters():
                p -= rate * p.grad  # changed
            if (net(x) - y).square().mean() < loss:
                break
            for name, p in net.named_parameters():
                p.copy_(before[name])  # used
            rate /= 2
    print(loss.item())
