# A hand-written linear layer keeps its inputs on ctx; the buffer that holds the batch is filled again before backward.
import torch


class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, batch, weight):
        ctx.shape = weight.shape
        ctx.kept = batch  # kept
        return batch @ weight

    @staticmethod
    def backward(ctx, grad):
        return None, (ctx.kept.t() @ grad).view(ctx.shape)


def main():
    torch.manual_seed(0)
    weight = torch.randn(3, requires_grad=True)
    buffer = torch.empty(5, 3)
    losses = []
    for _ in range(2):
        buffer.normal_()  # PL109 changed
        losses.append(Multiply.apply(buffer, weight).square().mean())
    torch.stack(losses).sum().backward()  # backward
    print(weight.grad)


main()
