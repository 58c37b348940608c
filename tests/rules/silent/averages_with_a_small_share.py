"""Averages of weights with a small share of the new ones, copies, warm-up, half and half, and sums of losses."""
import copy

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(8, 3)


def train(follow):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    average = copy.deepcopy(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        loss = (net(x) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                follow(a, p, step)


def warm(a, p, step):
    decay = min(0.99, (1 + step) / (10 + step))
    a.mul_(decay).add_(p, alpha=1 - decay)


def lookahead(a, p, step):
    a.lerp_(p, 0.8)
    p.copy_(a)


def mean(a, p, step):
    a.mul_(step / (step + 1)).add_(p, alpha=1 / (step + 1))


train(lambda a, p, step: a.lerp_(p, 0.01))
train(lambda a, p, step: a.mul_(0.99).add_(p, alpha=0.01))
train(lambda a, p, step: a.copy_(0.99 * a + 0.01 * p))
train(lambda a, p, step: a.copy_(p))
train(lambda a, p, step: a.lerp_(p, 1.0))
train(lambda a, p, step: a.data.copy_(p.data * 0.005 + a.data * (1 - 0.005)))
train(warm)
train(lookahead)
train(mean)


def drawn_back(a, p, step):
    p.mul_(0.99).add_(a, alpha=0.01)


def drawn_back_by_a_copy(a, p, step):
    p.copy_(0.99 * p + 0.01 * a)


train(drawn_back)
train(drawn_back_by_a_copy)
