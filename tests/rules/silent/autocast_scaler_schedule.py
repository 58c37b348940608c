"""A dataclass config, autocast and GradScaler on the CPU, clipping after unscale_, OneCycle."""
from dataclasses import asdict, dataclass
import torch
from torch import nn
@dataclass
class Config:
    lr: float = 0.05
    steps: int = 4
    clip: float = 1.0
config = Config()
print(asdict(config))
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=config.lr, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=config.lr, total_steps=config.steps)
scaler = torch.amp.GradScaler("cpu")
x, y = torch.randn(16, 3), torch.randn(16, 1)
for _ in range(config.steps):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), config.clip)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    print(loss.item())
