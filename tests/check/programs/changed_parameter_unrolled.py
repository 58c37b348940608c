# A recurrent cell is stepped after each time step, while the sum of the losses still goes back through all of them.
import torch
from torch import nn

torch.manual_seed(0)
cell = nn.Linear(6, 4)
opt = torch.optim.Adam(cell.parameters(), lr=0.01)
hidden = torch.zeros(3, 4)
for step in range(3):
    hidden = torch.tanh(cell(torch.cat([torch.randn(3, 2), hidden], dim=1)))  # saved
    loss = hidden.square().mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)  # backward
    opt.step()  # PL104 changed
