"""Custom Functions that can be differentiated twice: inputs, outputs, masks and signs are kept; or no second derivative is taken."""

import torch


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = torch.where(x > 0, 1.0, 0.1)
        ctx.save_for_backward(x.sign())
        return x * ctx.slope

    @staticmethod
    def backward(ctx, grad):
        (sign,) = ctx.saved_tensors
        return grad * ctx.slope * sign.abs()


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        gate = torch.sigmoid(x)
        return x * gate

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.gate = torch.sigmoid(x)
        return x * ctx.gate

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (ctx.gate + x * ctx.gate * (1 - ctx.gate))


torch.manual_seed(0)
x = torch.randn(6, dtype=torch.float64, requires_grad=True)
for function in (Exp, Leaky, Swish):
    energy = function.apply(x).square().sum()
    (force,) = torch.autograd.grad(energy, x, create_graph=True)
    (second,) = torch.autograd.grad(force.sum(), x)
    print(second)
(first,) = torch.autograd.grad(Once.apply(x).square().sum(), x, create_graph=True)
first.detach().sum()
(Once.apply(x).square().sum() + x.sum()).backward()
print(first.norm().item(), x.grad)
