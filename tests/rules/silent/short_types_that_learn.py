"""Short types that learn: updates large enough, weights in float32 under autocast, a copy in float32, a rate that warms up."""
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 8)


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


one = net().bfloat16()
opt = torch.optim.SGD(one.parameters(), lr=0.5)
for _ in range(4):
    loss = (one(x.bfloat16()) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
two = net()
opt = torch.optim.AdamW(two.parameters(), lr=1e-5)
for _ in range(4):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (two(x) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
three = net().bfloat16()
master = [p.detach().float().clone() for p in three.parameters()]
for _ in range(4):
    loss = (three(x.bfloat16()) - 1).square().mean()
    grads = torch.autograd.grad(loss, list(three.parameters()))
    with torch.no_grad():
        for p, m, g in zip(three.parameters(), master, grads):
            m -= 1e-4 * g.float()
            p.copy_(m)
four = net().bfloat16()
opt = torch.optim.SGD(four.parameters(), lr=1.0)
warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 1e-6 if e < 3 else 1.0)
for _ in range(7):
    loss = (four(x.bfloat16()) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    warm.step()
