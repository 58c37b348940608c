"""Blocks that are shared, used in turns, made in lists, or not used yet."""
import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc, self.norm = nn.Linear(i, o), nn.LayerNorm(o)

    def forward(self, x):
        return torch.relu(self.norm(self.fc(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.one, self.two = Block(3, 4), Block(4, 4), Block(4, 4)
        self.blocks = nn.ModuleList(Block(4, 4) for _ in range(3))
        self.heads = nn.ModuleDict({"a": Block(4, 4), "b": Block(4, 4)})

    def forward(self, x, task="a"):
        x = self.two(self.one(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        return self.heads[task](x)


class Encoders(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = Block(3, 4)
        self.text = Block(3, 4)

    def forward(self, a, b):
        left = self.image(a)
        right = self.image(b)
        return (left - right).square().mean()


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = Block(4, 4)
        self.rest = nn.ModuleList([Block(4, 4)])

    def forward(self, x):
        for _ in range(3):
            x = self.inside(x)
        return self.rest[0](x)


Net()(torch.randn(2, 3)).mean().backward()
Encoders()(torch.randn(2, 3), torch.randn(2, 3)).backward()
Unrolled()(torch.randn(2, 4)).mean().backward()
