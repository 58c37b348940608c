import torch
from torch import nn

torch.manual_seed(0)
encoder, head = nn.Linear(2, 2), nn.Linear(2, 1)
opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, weight_decay=0.1)
x = torch.randn(6, 2)
for epoch in range(3):
    opt.zero_grad(set_to_none=False)
    loss = head(encoder(x)).square().mean()
    loss.backward()  # around
    opt.step()  # step
    if epoch == 0:
        encoder.requires_grad_(False)  # PL607 changed
print(encoder.weight)
