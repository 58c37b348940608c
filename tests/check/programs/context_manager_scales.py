import contextlib

import torch


@contextlib.contextmanager
def scaled(tensor, factor):
    tensor *= factor  # PL101 changed
    yield tensor
    tensor /= factor


torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
h = w * 2
energy = (h**3).sum()  # saved
with scaled(h, 10.0) as big:
    print(big.max().item() > 0)
    energy.backward()  # backward
