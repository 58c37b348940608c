# An error at the write: a leaf that requires grad.
import torch

w = torch.ones(3, requires_grad=True)
w += 1
