# A Function in the newer form: setup_context keeps the input as an attribute.
import torch
class Cube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x ** 3
    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.x = x  # kept
    @staticmethod
    def backward(ctx, g):
        return 3 * ctx.x ** 2 * g
w = torch.tensor([1., 2.], requires_grad=True)
a = w * 2
b = Cube.apply(a)
a += 1  # PL109 changed
b.sum().backward()  # backward
print(w.grad)
