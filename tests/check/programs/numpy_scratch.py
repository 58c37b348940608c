import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Gives all windows out of one scratch array: each batch is a view of the same memory."""

    def __init__(self, n):
        self.scratch = np.zeros(3, dtype=np.float32)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.scratch[:] = [i, i + 1, i + 2]
        return torch.from_numpy(self.scratch)  # PL701 alias


data = Windows(4)
kept = [data[i] for i in range(len(data))]
batch = torch.stack(kept)
layer = torch.nn.Linear(3, 1)
layer(batch).sum().backward()
print(batch)
