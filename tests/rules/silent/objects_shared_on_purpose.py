"""One tensor under two names on purpose, defaults that are only read or filled completely, one object for many keys that is never written."""
import torch
from torch import nn


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffer = buffer = torch.zeros(4)
        buffer[0] = 1
        self.total = 0.0

    def forward(self, x):
        self.last = y = x * 2
        y.add_(1)
        return y + self.buffer


def scaled(x, by=torch.tensor([1.0, 2.0])):
    return x * by


def doubled(x, out=torch.zeros(2)):
    return torch.mul(x, 2, out=out).clone()


def grown(x, total=torch.zeros(2)):
    total = total + x
    return total


def counted(x, total=torch.zeros(2)):
    total = total.clone()
    total += x
    return total


x = torch.ones(2)
for _ in range(3):
    print(scaled(x), doubled(x), grown(x), counted(x))
a = b = torch.zeros(2)
a = a + 1
b = b + 2
h = c = torch.zeros(3)
for _ in range(2):
    h, c = torch.tanh(h + c), c + 1
start = x = torch.zeros(2)
x = x - 1
print(Kept()(torch.ones(4)), a, b, h, c, start - x)
weights = dict.fromkeys("abc", torch.tensor(1.0))
weights["a"] = weights["a"] * 2
print(sum(weights.values()))
first = second = torch.arange(3.0)
first[0] = 5
print(first.sum())
