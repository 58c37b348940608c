# An error at backward: nothing requires grad.
import torch

torch.ones(2).sum().backward()
