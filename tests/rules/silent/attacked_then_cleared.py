"""Adversarial training whose attacks leave nothing behind, and a shift that is trained with the network on purpose."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
for _ in range(3):
    probe = x.clone().requires_grad_()
    F.cross_entropy(model(probe), y).backward()
    moved = (probe + 0.1 * probe.grad.sign()).detach()
    opt.zero_grad()
    F.cross_entropy(model(moved), y).backward()
    opt.step()
shift = torch.zeros_like(x, requires_grad=True)
for _ in range(3):  # each replay is a step of both
    opt.zero_grad()
    F.cross_entropy(model(x + shift), y).backward()
    with torch.no_grad():
        shift += 0.1 * shift.grad.sign()
    shift.grad = None
    opt.step()
print([round(p.norm().item(), 3) for p in model.parameters()])
