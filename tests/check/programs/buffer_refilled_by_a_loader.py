# A loader hands out its one buffer: no line gives the tensor made by from_numpy a name.
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
buffer = np.zeros((4, 3), dtype=np.float32)


def batches():
    for step in range(3):
        buffer[:] = np.random.default_rng(step).normal(size=buffer.shape)  # PL301 changed
        yield torch.from_numpy(buffer)


model = nn.Linear(3, 1)
total = sum(model(batch).square().mean() for batch in batches())  # saved
total.backward()  # backward
