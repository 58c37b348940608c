# NumPy and torch share memory: from_numpy, numpy(), as_tensor; torch.tensor copies.
import numpy as np
import torch

array = np.arange(4.0)
shared = torch.from_numpy(array)
also = torch.as_tensor(array)
copied = torch.tensor(array)
array[1] = 50.0
shared[2] = 60.0
back = shared.numpy()
back += 1
print(array, shared, also, copied, back is array)
print(np.sin(copied.numpy()).round(3), torch.from_numpy(array[::2]).stride(), np.asarray(also)[0])
