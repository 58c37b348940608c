# A buffer filled anew for each batch, while the graphs of earlier batches still wait for backward.
import numpy as np
import torch

w = torch.tensor([1.0, 1.0], requires_grad=True)
buffer = np.zeros(2, dtype=np.float32)
total = 0
for batch in range(3):
    buffer[:] = [batch + 1, batch + 2]  # PL301 changed
    x = torch.from_numpy(buffer)
    total = total + (w * x).sum()  # saved
total.backward()  # backward
print(w.grad)
