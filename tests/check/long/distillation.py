"""A teacher is trained first, then a smaller student learns from its softened outputs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)
TEMPERATURE, MIX = 3.0, 0.7
centers = torch.randn(5, 10) * 1.5
labels = torch.randint(0, 5, (320,))
points = centers[labels] + torch.randn(320, 10)
train = DataLoader(TensorDataset(points[:240], labels[:240]), batch_size=20, shuffle=True)
test_points, test_labels = points[240:], labels[240:]


def network(width, dropout):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 5))


def accuracy(model):
    was = model.training
    model.eval()
    with torch.no_grad():
        right = (model(test_points).argmax(1) == test_labels).float().mean().item()
    model.train(was)
    return round(right, 3)


teacher = network(32, 0.3)
optimizer = torch.optim.SGD(teacher.parameters(), lr=0.05, momentum=0.9)
for epoch in range(5):
    for x, y in train:
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        optimizer.step()
    print("teacher", epoch, accuracy(teacher))

teacher.eval()
for parameter in teacher.parameters():
    parameter.requires_grad_(False)
student = network(8, 0.0)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
for epoch in range(6):
    student.train()
    losses = []
    for x, y in train:
        with torch.no_grad():
            soft = F.softmax(teacher(x) / TEMPERATURE, dim=1)
        logits = student(x)
        likeness = F.kl_div(F.log_softmax(logits / TEMPERATURE, dim=1), soft, reduction="batchmean")
        # planted: likeness = F.kl_div(F.softmax(logits / TEMPERATURE, dim=1), soft, reduction="batchmean")
        loss = MIX * TEMPERATURE**2 * likeness + (1 - MIX) * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("student", epoch, round(sum(losses) / len(losses), 3), accuracy(student))
