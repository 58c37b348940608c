# The same in a helper function, with a method call as the last word.
import torch


def squash(t):
    s = t.sigmoid()  # saved
    s.relu_()  # PL105 changed
    return s


w = torch.full((2, 2), 0.5, requires_grad=True)
x = torch.tensor([[1.0, -1.0], [2.0, 0.5]])
for _ in range(3):
    y = squash(x @ w)
    y.sum().backward()  # backward
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad = None
