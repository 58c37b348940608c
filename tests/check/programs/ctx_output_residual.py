# The output of a custom Function is kept as an attribute, and the block adds its input in place; too large for values.
import torch
from torch import nn
from torch.autograd import Function


class FastTanh(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.y = y  # kept
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 - ctx.y * ctx.y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        y = FastTanh.apply(self.layer(x))
        y += x  # PL109 changed
        return y


torch.manual_seed(0)
block = Block(64)
block(torch.randn(200, 64)).mean().backward()  # backward
print(block.layer.bias.grad.norm())
