# A class that clips a saved activation with NumPy, for display only, as it believes.
import numpy as np
import torch
from torch import nn


class Probe:
    def __init__(self):
        self.seen = None

    def look(self, activation):
        self.seen = activation.detach().numpy()
        np.clip(self.seen, 0.2, 0.4, out=self.seen)  # PL301 changed


def main():
    torch.manual_seed(0)
    layer = nn.Linear(3, 4)
    probe = Probe()
    hidden = torch.sigmoid(layer(torch.randn(2, 3)))  # saved
    loss = hidden.sum()
    probe.look(hidden)
    loss.backward()  # backward
    print(layer.bias.grad)


if __name__ == "__main__":
    main()
