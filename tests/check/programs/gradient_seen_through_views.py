"""Gradients before and after a step, as flat views of one tensor: their difference is 0."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, y = torch.randn(20, 4), torch.randn(20, 3)


class Turning:
    def __init__(self, w):
        self.w, self.before = w, None

    def remember(self):
        self.before = self.w.grad.detach().view(-1)  # PL605 kept

    def turned(self):
        return F.cosine_similarity(self.before, self.w.grad.flatten(), dim=0)  # used


w = torch.zeros(4, 3, requires_grad=True)
turning = Turning(w)
(x @ w - y).square().mean().backward()
turning.remember()
with torch.no_grad():
    w -= 3.0 * w.grad
w.grad.zero_()  # changed
(x @ w - y).square().mean().backward()
print(turning.turned())
