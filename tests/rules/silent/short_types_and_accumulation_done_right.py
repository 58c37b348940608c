"""A float32 total of bfloat16 values, types converted on the way in, and gradients accumulated with each loss divided."""

import numpy as np
import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 2).bfloat16()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.from_numpy(np.random.default_rng(0).normal(size=(8, 3))).bfloat16()
target = torch.from_numpy(np.arange(8) % 2)
total, every, count = torch.zeros(()), 4, torch.zeros((), dtype=torch.float16)
for i in range(8):
    loss = torch.nn.functional.cross_entropy(model(data[i : i + 1]).float(), target[i : i + 1]) / every
    loss.backward()
    total += loss.detach() * every
    count += 1
    if (i + 1) % every == 0:
        opt.step()
        opt.zero_grad()
print(total / count, (torch.arange(3) * 0.5).mean())
