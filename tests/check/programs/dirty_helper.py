# The in-place operation is called through a function of the program and returns a new tensor.
import torch


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        values.exp_()  # PL110 changed
        ctx.save_for_backward(values.clone())
        return values.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def activate(x):
    return Shift.apply(x)


w = torch.tensor([0.5, -0.5], requires_grad=True)
h = w * 2
y = activate(h)
loss = (y * h).sum()  # used
loss.backward()
print(w.grad)
