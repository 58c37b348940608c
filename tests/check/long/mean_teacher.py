"""Semi-supervised learning: a teacher is the moving average of the student, and both agree on points without a label."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(13)
angle = torch.rand(200) * 6.283
label = torch.arange(200) % 2
points = torch.stack([angle.cos(), angle.sin()], 1) * (1 + label[:, None]) + 0.1 * torch.randn(200, 2)
known, unknown = points[:40], points[40:]
known_labels, hidden_labels = label[:40], label[40:]


def network():
    return nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))


@torch.no_grad()
def follow(teacher, student, decay):
    for mine, its in zip(teacher.parameters(), student.parameters()):
        mine.mul_(decay).add_(its, alpha=1 - decay)


def noisy(x):
    return x + 0.1 * torch.randn_like(x)


student = network()
teacher = copy.deepcopy(student)
for parameter in teacher.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
for epoch in range(6):
    order, others = torch.randperm(40), torch.randperm(160)
    total = 0.0
    for start in range(0, 160, 10):
        chosen = order[(start % 40) : (start % 40) + 10]
        free = unknown[others[start : start + 10]]
        logits = student(noisy(known[chosen]))
        supervised = F.cross_entropy(logits, known_labels[chosen])
        # planted: supervised = F.cross_entropy(F.softmax(logits, dim=1), known_labels[chosen])
        with torch.no_grad():
            wanted = teacher(noisy(free)).softmax(1)
        agreement = F.mse_loss(student(noisy(free)).softmax(1), wanted)
        loss = supervised + min(1.0, epoch / 3) * agreement
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(teacher, student, 0.95)
        total += loss.item()
    with torch.no_grad():
        right = (teacher(unknown).argmax(1) == hidden_labels).float().mean().item()
    print(epoch, round(total, 3), round(right, 3))
