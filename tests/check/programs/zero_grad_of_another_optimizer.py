import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
opt_e = torch.optim.SGD(encoder.parameters(), lr=0.1)
opt_d = torch.optim.SGD(decoder.parameters(), lr=0.1, momentum=0.9)
data = torch.randn(12, 4)
for batch in data.split(4):
    opt_e.zero_grad()
    loss = (decoder(encoder(batch)) - batch).square().mean()
    loss.backward()  # PL601 backward
    opt_e.step()
    opt_d.step()  # step
print(decoder.weight.grad.norm())
