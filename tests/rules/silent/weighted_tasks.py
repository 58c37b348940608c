"""Uncertainty weighted losses of several tasks in one backward; gradient accumulation with a scaled loss; no_sync-like closure."""
import contextlib
import torch
from torch import nn
torch.manual_seed(0)
class MultiTask(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 6), nn.Tanh())
        self.heads = nn.ModuleDict({t: nn.Linear(6, 1) for t in tasks})
        self.log_vars = nn.ParameterDict({t: nn.Parameter(torch.zeros(())) for t in tasks})
    def forward(self, x):
        h = self.trunk(x)
        return {t: head(h) for t, head in self.heads.items()}
model = MultiTask(["depth", "normals"])
opt = torch.optim.Adam(model.parameters())
accumulate = 2
batches = [(torch.randn(8, 3), {t: torch.randn(8, 1) for t in model.heads}) for _ in range(4)]
opt.zero_grad()
for i, (x, ys) in enumerate(batches):
    with contextlib.nullcontext():
        losses = {t: nn.functional.mse_loss(p, ys[t]) for t, p in model(x).items()}
        loss = sum(torch.exp(-model.log_vars[t]) * v + model.log_vars[t] for t, v in losses.items())
        (loss / accumulate).backward()
    if (i + 1) % accumulate == 0:
        opt.step()
        opt.zero_grad()
    print({t: round(v.item(), 3) for t, v in losses.items()})
