"""MoCo: queries against keys of a slow encoder, and a queue of older keys as negatives."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
INPUTS, WIDTH, QUEUE, BATCH, TEMPERATURE, MOMENTUM = 12, 8, 32, 4, 0.07, 0.99


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(INPUTS, 16), nn.ReLU(), nn.Linear(16, WIDTH))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query)
        for parameter in self.key.parameters():
            parameter.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(WIDTH, QUEUE), dim=0))
        self.place = 0

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters()):
            slow.mul_(MOMENTUM).add_(fast, alpha=1 - MOMENTUM)

    @torch.no_grad()
    def enqueue(self, keys):
        self.queue[:, self.place : self.place + len(keys)] = keys.T
        self.place = (self.place + len(keys)) % QUEUE

    def forward(self, one, other):
        q = self.query(one)
        with torch.no_grad():
            self.follow()
            k = self.key(other)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue
        logits = torch.cat([positive, negative], dim=1) / TEMPERATURE
        labels = torch.zeros(len(logits), dtype=torch.long)
        self.enqueue(k)
        return logits, labels


def two_looks(count):
    """Two noisy looks at the same things."""
    things = torch.randn(count, INPUTS)
    return things + 0.1 * torch.randn_like(things), things + 0.1 * torch.randn_like(things)


model = MoCo()
optimizer = torch.optim.SGD(model.query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
for step in range(3):
    one, other = two_looks(BATCH)
    logits, labels = model(one, other)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), (logits.argmax(1) == labels).float().mean().item())
