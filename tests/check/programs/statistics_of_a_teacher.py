# Consistency training with one network: eval mode for the clean view, train mode for the augmented one, one backward.
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))  # PL305 changed saved


torch.manual_seed(0)
net = Net()
views = torch.randn(6, 3), 3 * torch.randn(6, 3)
net.eval()
clean = net(views[0])
net.train()
noisy = net(views[1])
(clean - noisy).square().mean().backward()  # backward
