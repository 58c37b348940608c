"""Power iteration by hand under no_grad, with buffers written between forwards; weights normalised out of place."""
import torch
from torch import nn


class SN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(o, i))
        self.register_buffer("u", torch.randn(o))

    def forward(self, x):
        with torch.no_grad():
            v = nn.functional.normalize(self.weight.t() @ self.u, dim=0)
            self.u = nn.functional.normalize(self.weight @ v, dim=0)
        sigma = self.u @ self.weight @ v
        return x @ (self.weight / sigma).t()


torch.manual_seed(0)
net = nn.Sequential(SN(3, 4), nn.ReLU(), SN(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    (net(torch.randn(4, 3)) - net(torch.randn(4, 3))).square().mean().backward()
    opt.step()
print(net[0].u.norm().item())
