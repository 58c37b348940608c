# An average of the weights lives in the same module and is moved by hand; a loss that the discriminator alone learns from is detached.
import copy

import torch
from torch import nn

torch.manual_seed(0)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Linear(4, 3)
        self.average = copy.deepcopy(self.online)

    @torch.no_grad()
    def follow(self, rate=0.9):
        for old, new in zip(self.average.parameters(), self.online.parameters(), strict=True):
            old.lerp_(new, 1 - rate)

    def forward(self, x):
        with torch.no_grad():
            target = self.average(x)
        return (self.online(x + 0.1 * torch.randn_like(x)) - target).square().mean()


student = Student()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    student(torch.randn(8, 4)).backward()
    optimizer.step()
    student.follow()
