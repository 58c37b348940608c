# An error at the write: several cells of an expanded tensor are one cell in memory.
import torch

x = torch.zeros(1, 3).expand(2, 3)
x.add_(1)
