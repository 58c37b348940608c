# The tensor was made from an array, and the array is reused before backward.
import numpy as np
import torch


def loss_of(weight, batch):
    x = torch.from_numpy(batch)
    return (weight * x).sum()  # saved


weight = torch.ones(3, requires_grad=True)
batch = np.array([1.0, 2.0, 3.0], dtype=np.float32)
loss = loss_of(weight, batch)
batch *= 10  # PL301 changed
loss.backward()  # backward
print(weight.grad)
