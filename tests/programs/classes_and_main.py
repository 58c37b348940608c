# A program with classes, functions, a loop and a main guard, as in a file of one's own.
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.scale
        return x


def main():
    torch.manual_seed(0)
    net = Net(3)
    out = net(torch.ones(2, 3)).sum()
    out.backward()
    print(all(p.grad is not None for p in net.parameters()), __name__, sum(p.numel() for p in net.parameters()))


if __name__ == "__main__":
    main()
