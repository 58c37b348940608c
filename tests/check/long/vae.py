"""A variational autoencoder with a warm-up of the weight of its second loss term."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)


class Autoencoder(nn.Module):
    def __init__(self, width=24, latent=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, latent), nn.Linear(32, latent)
        self.decode = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, width))

    def forward(self, x):
        hidden = self.encode(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        sample = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(sample), mean, log_variance


def loss_of(x, made, mean, log_variance, weight):
    likeness = F.mse_loss(made, x, reduction="sum") / len(x)
    distance = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp()) / len(x)
    return likeness + weight * distance


basis = torch.randn(3, 24)
points = torch.randn(300, 3) @ basis + 0.1 * torch.randn(300, 24)
loader = DataLoader(TensorDataset(points[:240]), batch_size=16, shuffle=True, drop_last=True)
test = points[240:]
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    model.train()
    weight = min(1.0, epoch / 4)
    total = 0.0
    for (x,) in loader:
        made, mean, log_variance = model(x)
        loss = loss_of(x, made, mean, log_variance, weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        # planted: total += loss
    model.eval()
    with torch.no_grad():
        made, mean, log_variance = model(test)
        tested = loss_of(test, made, mean, log_variance, weight)
    print(epoch, round(float(total) / len(loader), 3), round(tested.item(), 3))
with torch.no_grad():
    print(model.decode(torch.randn(4, 3)).mean().item())
