"""Targets from networks with dropout: averages that may be noisy, samples on purpose, features, evaluation mode."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


x = torch.randn(16, 4)
# mean teacher
student = mlp()
teacher = copy.deepcopy(student)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        t = teacher(x)
    loss = F.mse_loss(student(x), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), student.parameters()):
            a.lerp_(b, 0.1)
# pi model
net = mlp()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        t = net(x)
    loss = F.mse_loss(net(x), t)
    opt.zero_grad()
    loss.backward()
    opt.step()
# frozen backbone features
back = mlp().requires_grad_(False)
head = nn.Linear(3, 1)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(3):
    loss = (head(back(x)) - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
# MC dropout teacher
tea = mlp()
stu = nn.Linear(4, 3)
opt = torch.optim.SGD(stu.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        t = torch.stack([tea(x).softmax(1) for _ in range(4)]).mean(0)
    loss = F.kl_div(F.log_softmax(stu(x), 1), t, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
tea.eval()
opt = torch.optim.SGD(stu.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        t = tea(x).softmax(1)
    loss = F.kl_div(F.log_softmax(stu(x), 1), t, reduction="batchmean")
    opt.zero_grad()
    loss.backward()
    opt.step()
