"""One layer twice on purpose: encoders of two inputs, recurrent layers, heads that take turns."""

import copy

import torch
from torch import nn

torch.manual_seed(0)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head_a = nn.Linear(4, 4)
        self.head_b = nn.Linear(4, 4)

    def forward(self, x, which):
        x = torch.relu(self.body(x))
        x = torch.relu(self.body(x))
        return self.head_a(x) if which else self.head_b(x)


net = Shared()
for w in (True, False):
    net(torch.randn(3, 4), w).mean().backward()


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, a, b):
        one = self.enc(a)
        two = self.enc(b)
        return (one - two).square().sum()


s = Siamese()
s(torch.randn(2, 4), torch.randn(2, 4)).backward()


class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.i, self.h, self.o = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = torch.zeros(2, 4)
        for t in range(3):
            h = torch.tanh(self.i(x) + self.h(h))
        return self.o(h)


Rec()(torch.randn(2, 4)).mean().backward()
g, d = nn.Linear(4, 4), nn.Linear(4, 4)
x = torch.randn(2, 4)
y = g(x)
z = g(y)
d(z).mean().backward()
m = nn.Linear(4, 4)
t = copy.deepcopy(m)
(m(m(x)) - x).square().mean().backward()
