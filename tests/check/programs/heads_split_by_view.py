# Attention with several heads. The heads are asked for in front of the positions, and each gets pieces of several words.
import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width=8, heads=4):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        n, length, width = x.shape
        return x.view(n, self.heads, length, width // self.heads)  # PL407 made

    def forward(self, x):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        weights = (q @ k.transpose(-1, -2)).softmax(dim=-1)  # used
        mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
        return self.out(mixed)


model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 5, 8)).square().mean().backward()
    optimizer.step()
