# An error in backward: nn.ReLU(inplace=True) after a sigmoid.
import torch
from torch import nn

net = nn.Sequential(nn.Sigmoid(), nn.ReLU(inplace=True))
x = torch.tensor([0.0, 1.0], requires_grad=True)
net(x).sum().backward()
