import functools

import torch


def normalised(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        out = function(*args, **kwargs)
        out /= out.norm()  # PL101 saved changed
        return out

    return inner


@normalised
def features(x, w):
    return torch.sigmoid(x @ w)


torch.manual_seed(0)
w = torch.randn(3, 2, requires_grad=True)
loss = features(torch.randn(4, 3), w).sum()
loss.backward()  # backward
