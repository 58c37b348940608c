import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(0)
blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.2)) for _ in range(2))
tail = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)) for _ in range(4)))
opt = torch.optim.SGD([*blocks.parameters(), *tail.parameters()], lr=0.1)
for step in range(2):
    h = torch.randn(3, 4)
    for block in blocks:
        h = h + checkpoint(block, h, use_reentrant=False)
    h = checkpoint_sequential(tail, 2, h, use_reentrant=False)
    loss = h.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{loss.item():.3f}")
