"""A recurrent state is detached between the pieces of a long sequence."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(2, 6), nn.Linear(6, 2)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01)
sequence = torch.randn(12, 3, 2)
state = torch.zeros(3, 6)

for piece in sequence.split(4):
    loss = 0.0
    for x in piece:
        state = cell(x, state)
        loss = loss + F.mse_loss(head(state), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state.detach()
print(loss.item() > 0)
