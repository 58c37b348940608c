"""A gradient penalty through a layer whose backward uses the norms that its forward computed."""

import torch


class Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        square = (x * x).mean(dim=1, keepdim=True)
        scale = torch.rsqrt(square + eps)  # PL342 kept
        y = x * scale
        ctx.save_for_backward(x, scale)
        return y

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        inner = (grad * x).mean(dim=1, keepdim=True)
        return grad * scale - x * inner * scale**3, None  # used


torch.manual_seed(0)
critic = torch.nn.Linear(6, 1)
x = torch.randn(16, 6, requires_grad=True)
score = torch.tanh(critic(Normalize.apply(x, 1e-6))).sum()
(slope,) = torch.autograd.grad(score, x, create_graph=True)
penalty = (slope.norm(dim=1) - 1).square().mean()
penalty.backward()  # backward
print(x.grad.norm(), critic.weight.grad.norm())
