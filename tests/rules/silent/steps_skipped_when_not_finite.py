"""A batch with a gradient that is not finite is skipped: its gradients are thrown away on purpose."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randn(4, 2), torch.full((4, 2), float("inf")), torch.randn(4, 2)]
for batch in batches:
    opt.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if torch.isfinite(norm):
        opt.step()
print(torch.isfinite(model.weight).all())
