import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.Adam(model.parameters(), lr=0.05)
x, y = torch.randn(8, 3), torch.randn(8, 1)


def train(rounds):
    for _ in range(rounds):
        loss = (model(x) - y).square().mean()
        for p in model.parameters():
            if p.requires_grad:
                p.grad = None
        loss.backward()  # around
        opt.step()  # step


train(2)
for p in model[0].parameters():
    p.requires_grad_(False)  # PL607 changed
train(2)
print(model[0].bias)
