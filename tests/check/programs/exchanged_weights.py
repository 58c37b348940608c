# Weights are swapped for their average before the loss has gone back.
import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        return torch.tanh(x @ self.mix) @ self.mix  # saved


def use_average(model, average):
    for parameter, mean in zip(model.parameters(), average):
        parameter.data = mean.clone()  # PL303 changed


torch.manual_seed(0)
model = Mixer()
average = [torch.zeros_like(p) + 0.1 for p in model.parameters()]
loss = model(torch.randn(5, 3)).square().mean()
use_average(model, average)
loss.backward()  # backward
print(model.mix.grad)
