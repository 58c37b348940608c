# Gradient descent by hand: the first loss moves the weight that the second loss was computed with.
import torch

torch.manual_seed(0)
weight = torch.randn(3, requires_grad=True)
data, target = torch.randn(5, 3), torch.rand(5)


def losses(w):
    guess = torch.sigmoid(data @ w)
    return (guess - target).square().mean(), (guess * w.norm()).mean()  # saved


fit, size = losses(weight)
fit.backward(retain_graph=True)
with torch.no_grad():
    weight -= 0.1 * weight.grad  # PL104 changed
weight.grad = None
size.backward()  # backward
