# A UserWarning: reading .grad of a result; and a warning of the program's own.
import warnings

import torch

x = torch.ones(2, requires_grad=True)
y = x * 2
y.sum().backward()
print(y.grad)
warnings.warn("my own", stacklevel=1)


def deprecated():
    warnings.warn("old", DeprecationWarning, stacklevel=2)


deprecated()
