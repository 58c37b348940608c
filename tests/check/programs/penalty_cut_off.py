import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
x = torch.randn(8, 4)
for step in range(2):
    code = encoder(x)
    reconstruction = (decoder(code) - x).pow(2).mean()
    sparsity = code.detach().abs().mean()  # PL504 cut
    loss = reconstruction + 0.1 * sparsity
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
