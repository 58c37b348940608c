"""A class collects activations under the names of the layers, by functions that are made in a loop."""

import torch
from torch import nn


class Watch:
    def __init__(self, net):
        self.means = {}
        for number, layer in enumerate(net):
            name = f"{number} {type(layer).__name__}"

            def keep(module, inputs, output):  # PL343
                self.means[name] = output.mean().item()  # used

            layer.register_forward_hook(keep)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
watch = Watch(net)
net(torch.randn(8, 4))
print(watch.means)
