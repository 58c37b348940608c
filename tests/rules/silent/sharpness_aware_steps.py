"""Sharpness-aware minimisation: a step up, new gradients, a step back, then the optimizer's step."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(12, 3), torch.randn(12, 1)
for _ in range(3):
    opt.zero_grad()
    (model(x) - y).square().mean().backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    moves = []
    with torch.no_grad():
        for p in model.parameters():
            move = 0.05 * p.grad / norm
            p.add_(move)
            moves.append(move)
    opt.zero_grad()
    (model(x) - y).square().mean().backward()
    with torch.no_grad():
        for p, move in zip(model.parameters(), moves):
            p.sub_(move)
    opt.step()
print(norm > 0)
