"""A head is trained on a frozen body, which is released after two epochs with a smaller rate."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(14)
x = torch.randn(240, 1, 6, 6)
y = (x.mean((1, 2, 3)) > 0).long()
loader = DataLoader(TensorDataset(x[:192], y[:192]), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x[192:], y[192:]), batch_size=16)


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten())

    def forward(self, images):
        return self.layers(images)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Body(), nn.Linear(24, 2)

    def forward(self, images):
        return self.head(self.body(images))


def validate(model):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in valid:
            right += (model(images).argmax(1) == labels).sum().item()
    return right / 48


model = Whole()
for parameter in model.body.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for epoch in range(6):
    if epoch == 2:
        for parameter in model.body.parameters():
            parameter.requires_grad = True
        optimizer.add_param_group({"params": model.body.parameters(), "lr": 1e-3})
        # planted: pass
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, round(total, 3), round(validate(model), 3))
