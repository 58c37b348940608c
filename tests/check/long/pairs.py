"""A siamese network that scores pairs, trained with a contrastive loss and tested by a threshold."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(11)
kinds = torch.randn(4, 12)


def make_pairs(count):
    first, same = torch.randint(0, 4, (count,)), torch.rand(count) < 0.5
    second = torch.where(same, first, (first + 1 + torch.randint(0, 3, (count,))) % 4)
    noise = 0.3 * torch.randn(2, count, 12)
    return kinds[first] + noise[0], kinds[second] + noise[1], same.float()


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
        self.scale = nn.Linear(1, 1)

    def embed(self, x):
        return F.normalize(self.layers(x), dim=1)

    def forward(self, left, right):
        likeness = (self.embed(left) * self.embed(right)).sum(1, keepdim=True)
        return self.scale(likeness)


model = Tower()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=120)
test = make_pairs(64)
for epoch in range(6):
    model.train()
    total = 0.0
    for _ in range(20):
        left, right, same = make_pairs(16)
        score = model(left, right)
        loss = F.binary_cross_entropy_with_logits(score, same[:, None])
        # planted: loss = F.mse_loss(score, same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    model.eval()
    with torch.no_grad():
        score = model(test[0], test[1]).squeeze(1)
        right_ones = ((score > 0) == (test[2] > 0.5)).float().mean().item()
    print(epoch, round(total / 20, 3), round(right_ones, 3), f"{scheduler.get_last_lr()[0]:.2e}")
