"""A quantizer's backward clears gradients in place; they come to it by way of a view, and to the other branch directly."""

import torch


class Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.abs() > 1)
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        (outside,) = ctx.saved_tensors
        grad_output.masked_fill_(outside, 0.0)  # PL340 changed
        return grad_output


torch.manual_seed(0)
w = torch.randn(2, 6, requires_grad=True)
h = w * 1.5
flat = Quantize.apply(h.reshape(-1))
mixed = h + flat.view(2, 6)  # forward
(mixed * torch.arange(12.0).view(2, 6)).sum().backward()  # backward
print(w.grad)
