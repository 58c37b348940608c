"""A small convolutional network with validation after each epoch; the best state is kept and restored."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.drop, self.fc = nn.Dropout(0.2), nn.Linear(8 * 2 * 2, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(self.drop(x.flatten(1)))


def make(count):
    labels = torch.randint(0, 10, (count,))
    return TensorDataset(torch.randn(count, 1, 8, 8) + labels[:, None, None, None] * 0.1, labels)


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = count = 0
    for images, labels in loader:
        right += (model(images).argmax(1) == labels).sum().item()
        count += len(labels)
    return right / count


train_loader = DataLoader(make(230), batch_size=16, shuffle=True)
val_loader = DataLoader(make(100), batch_size=16)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
best, best_accuracy = None, -1.0
for epoch in range(6):
    loss = train_one_epoch(model, train_loader, optimizer)
    accuracy = evaluate(model, val_loader)
    scheduler.step()
    if accuracy >= best_accuracy:
        best_accuracy = accuracy
        best = {name: value.clone() for name, value in model.state_dict().items()}
        # planted: best = model.state_dict()
    print(epoch, round(loss, 3), round(accuracy, 3))
model.load_state_dict(best)
print(evaluate(model, val_loader))
