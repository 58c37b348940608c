"""A config dataclass, a scheduler and a scaler; the gradients are never cleared."""
from dataclasses import dataclass, field
import torch
from torch import nn
@dataclass(frozen=True)
class Config:
    lr: float = 0.05
    steps: int = 4
    widths: list = field(default_factory=lambda: [3, 8, 1])
def build(config):
    layers = []
    for a, b in zip(config.widths, config.widths[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])
def fit(config):
    torch.manual_seed(0)
    net = build(config)
    optimizer = torch.optim.SGD(net.parameters(), lr=config.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=config.lr, total_steps=config.steps)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    inputs, targets = torch.randn(16, 3), torch.randn(16, 1)
    history = []
    for _ in range(config.steps):
        loss = (net(inputs) - targets).square().mean()
        scaler.scale(loss).backward()  # PL601 backward
        scaler.step(optimizer)  # step
        scaler.update()
        scheduler.step()
        history.append(loss.item())
    return history
print(fit(Config()))
