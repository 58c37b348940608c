"""EMA weights swapped in for evaluation and out again."""
import torch
from torch import nn


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n].lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def swap(self, model):
        for n, p in model.named_parameters():
            kept = p.data.clone()
            p.data.copy_(self.shadow[n])
            self.shadow[n].copy_(kept)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
ema = EMA(model, 0.9)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    opt.step()
    ema.update(model)
    ema.swap(model)
    with torch.no_grad():
        print(f"{nn.functional.mse_loss(model(x), y).item():.3f}")
    ema.swap(model)
