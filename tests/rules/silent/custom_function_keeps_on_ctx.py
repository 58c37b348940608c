"""Tensors on ctx that nobody writes, or only after backward, and numbers there; an input written by a Function and not used again."""
import torch


class Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, exponent):
        ctx.x = x
        ctx.exponent = exponent
        return x**exponent

    @staticmethod
    def backward(ctx, grad):
        return ctx.exponent * ctx.x ** (ctx.exponent - 1) * grad, None


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
for _ in range(2):
    h = w + 1
    loss = Power.apply(h, 3).sum()
    loss.backward()
    with torch.no_grad():
        h.zero_()
h = w * 3
h = Double.apply(h)
h.sum().backward()
print(w.grad)
