import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
seen = {}
handles = [m.register_forward_hook(lambda m, i, o, n=n: seen.__setitem__(n, o)) for n, m in net.named_children()]
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for p in net.parameters():
    p.register_hook(lambda g: g.clamp(-1, 1))
for _ in range(2):
    out = net(torch.randn(4, 3))
    loss = out.square().mean() + 0.01 * sum(o.abs().mean() for o in seen.values())
    opt.zero_grad()
    loss.backward()
    opt.step()
for h in handles:
    h.remove()
print(sorted(seen))
