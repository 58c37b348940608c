# Silent: NumPy writes into a tensor saved for backward; the gradient is wrong.
import numpy as np
import torch

buffer = np.array([1.0, 2.0, 3.0], dtype=np.float32)
x = torch.from_numpy(buffer)
w = torch.tensor([1.0, 1.0, 1.0], requires_grad=True)
y = (w * x).sum()
buffer[0] = 100.0
y.backward()
print(w.grad)
