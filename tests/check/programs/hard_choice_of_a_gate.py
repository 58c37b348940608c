"""A gate chooses an expert by argmax; no gradient comes back through the choice, and the gate stays as it was born."""

import torch
from torch import nn

torch.manual_seed(1)
gate = nn.Linear(4, 2)
experts = nn.Parameter(torch.randn(2, 4))
optimizer = torch.optim.AdamW([*gate.parameters(), experts], lr=0.01)
x, y = torch.randn(12, 4), torch.randn(12)
for _ in range(3):
    choice = gate(x).argmax(dim=1)  # PL504 cut
    prediction = (experts[choice] * x).sum(dim=1)
    loss = (prediction - y).square().mean()
    optimizer.zero_grad()
    loss.backward()  # backward
    optimizer.step()  # step
