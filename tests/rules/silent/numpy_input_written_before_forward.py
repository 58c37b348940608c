"""An array is filled and scaled before torch reads it."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
array = np.zeros((4, 3), dtype=np.float32)
array[:, 0] = [1, 2, 3, 4]
array /= array.max()
x = torch.from_numpy(array)
w = torch.ones(3, requires_grad=True)
loss = (x @ w).square().mean()
loss.backward()
array[:] = 0
print(w.grad.sum().item() > 0)
