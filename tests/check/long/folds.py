"""Cross-validation: in each fold a new model is trained and tested on what was left out."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(9)
points = torch.randn(120, 6)
targets = points @ torch.randn(6, 1) + 0.3 * torch.sin(points[:, :1] * 3)
FOLDS, EPOCHS, BATCH = 4, 5, 15


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x)


def batches(x, y):
    order = torch.randperm(len(x))
    for start in range(0, len(x), BATCH):
        chosen = order[start : start + BATCH]
        yield x[chosen], y[chosen]


def train_epoch(model, optimizer, x, y):
    model.train()
    total = 0.0
    for xb, yb in batches(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
    return total / len(x)


order = torch.randperm(len(points))
folds = order.chunk(FOLDS)
scores, optimizer = [], None
for number in range(FOLDS):
    model = Regressor()
    if number >= 0:
        # planted: if optimizer is None:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    left_out = folds[number]
    rest = torch.cat([folds[other] for other in range(FOLDS) if other != number])
    for epoch in range(EPOCHS):
        loss = train_epoch(model, optimizer, points[rest], targets[rest])
    model.eval()
    with torch.no_grad():
        scores.append(F.mse_loss(model(points[left_out]), targets[left_out]).item())
    print(number, round(loss, 3), round(scores[-1], 3))
print(round(sum(scores) / len(scores), 3))
