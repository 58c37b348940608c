"""Old-style initialisation through .data, before anything was computed."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.layer.weight.data.normal_(0, 0.1)
        self.layer.bias.data.zero_()
        self.scale = nn.Parameter(torch.empty(3))
        nn.init.constant_(self.scale, 0.5)

    def forward(self, x):
        return self.layer(x) * self.scale


net = Net()
loss = net(torch.randn(4, 3)).square().sum()
loss.backward()
print(net.scale.grad.shape)
