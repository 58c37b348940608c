# Newton's method: the second derivative of a function of one number, by two calls.
import torch


def newton(f, x, rounds=3):
    for _ in range(rounds):
        slope = torch.autograd.grad(f(x), x)[0]  # PL509 made
        bend = torch.autograd.grad(slope, x)[0]  # backward
        x = (x - slope / bend).detach().requires_grad_()
    return x


print(newton(lambda t: (t - 2) ** 4 + t**2, torch.tensor(0.5, requires_grad=True)))
