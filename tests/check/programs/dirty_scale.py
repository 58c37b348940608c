# A Function that scales in place; the residual of the block reads the same tensor afterwards.
import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        x *= factor  # PL110 changed
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


torch.manual_seed(0)
layer = nn.Linear(3, 3)
h = layer(torch.randn(2, 3))
scaled = Scale.apply(h, 0.5)
out = torch.tanh(scaled) + h  # used
out.sum().backward()
print(layer.bias.grad)
