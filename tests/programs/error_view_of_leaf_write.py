# An error at the write: a view of a leaf that requires grad.
import torch

w = torch.ones(2, 3, requires_grad=True)
w[0] = 0.0
