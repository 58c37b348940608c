import torch


def gated(h):
    value, gate = h.split([3, 1], dim=1)  # made
    value[:, 0] = 0  # PL202 changed
    return h.sum() + (value * gate).sum()


x = torch.arange(8.0).reshape(2, 4).requires_grad_()
loss = gated(x * x)
loss.backward()
print(x.grad)
