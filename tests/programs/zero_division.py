# An ordinary Python error next to torch calls.
import torch

x = torch.arange(3)
print(x.tolist())
1 / 0
