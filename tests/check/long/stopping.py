"""Early stopping with patience; the best weights are kept in memory, restored, and fine-tuned with a lower rate."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(10)
x = torch.randn(260, 5)
y = (x[:, 0] * x[:, 1] > 0).float()
train_set, valid_set = random_split(TensorDataset(x, y), [200, 60])
train_loader = DataLoader(train_set, batch_size=20, shuffle=True)
valid_loader = DataLoader(valid_set, batch_size=20)


class Stopper:
    def __init__(self, patience):
        self.patience, self.waited, self.best, self.state = patience, 0, float("inf"), None

    def should_stop(self, loss, model):
        if loss < self.best - 1e-3:
            self.best, self.waited = loss, 0
            self.state = copy.deepcopy(model.state_dict())
            # planted: self.state = model.state_dict()
        else:
            self.waited += 1
        return self.waited >= self.patience


model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
stopper = Stopper(patience=3)


def run_epoch(loader, train):
    model.train(train)
    total = 0.0
    with torch.set_grad_enabled(train):
        for xb, yb in loader:
            loss = criterion(model(xb).squeeze(1), yb)
            if train:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
    return total / len(loader)


for epoch in range(12):
    trained, validated = run_epoch(train_loader, True), run_epoch(valid_loader, False)
    print(epoch, round(trained, 3), round(validated, 3))
    if stopper.should_stop(validated, model):
        break
model.load_state_dict(stopper.state)
for group in optimizer.param_groups:
    group["lr"] = 1e-3
for epoch in range(2):
    run_epoch(train_loader, True)
print(round(run_epoch(valid_loader, False), 3))
