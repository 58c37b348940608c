"""The norm of the gradients is asked for after the step, with no limit: nothing is clipped, it is only printed."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 2)
for _ in range(3):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    print(round(norm.item(), 3))
